use graphweft_graph::Permutation;
use graphweft_model::{Aggregation, Attend, EdgeWeight, HeadVectors, Score};
use graphweft_tensor::{DType, Dropout, Tag, Tape, Var};

use super::*;

const N: usize = 17;
const D: usize = 4;
const PARTS: [u64; 5] = [0, 5, 6, 6, N as u64];

/// A hub, parallel edges, self-loops, nodes without in-edges; edges in one direction only.
fn graph() -> Csr<u32> {
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for i in 0..N as u32 {
        let mut row: Vec<u32> = match i {
            3 => (0..N as u32).collect(),
            i if i % 5 == 4 => Vec::new(),
            i => (0..=i % 3).map(|k| (i * 7 + k * 4) % N as u32).chain([i, 3, 3]).collect(),
        };
        row.sort_unstable();
        indices.extend(row);
        indptr.push(indices.len() as u64);
    }
    Csr::new(indptr, indices, N).unwrap()
}

fn chunks(device: &Device, parts: &[u64]) -> Pipeline {
    let permutation = Permutation::from_old_of_new((0..N as u64).map(|k| (k * 5 + 2) % N as u64).collect()).unwrap();
    let partition = Partition::new(permutation, parts.to_vec()).unwrap();
    Pipeline::new(device, &graph(), &partition, None, None, |_| Ok(None)).unwrap()
}

/// Two layers of every kind of operation, with dropout on edges: from a row per node to a row per node.
fn layers(ops: &Rc<dyn GraphOps>, kind: usize, tape: &mut Tape, x: &Var) -> Result<Var> {
    let vector = |tape: &Tape, seed| {
        let m = tape.device().upload(2, D / 2, &values(seed, 2 * (D / 2)), Tag::Parameters)?;
        Ok(tape.constant(m))
    };
    let dropout = |layer| Some(Dropout::new(0.3, 1, 2, layer, 0));
    let mut x = x.clone();
    for layer in 1..=2 {
        let attend = |tape: &mut Tape, score| {
            ops.attend(tape, layer, Attend { dropout: dropout(layer), ..Attend::new(2, score) })
        };
        x = match kind {
            0 => {
                let kv = graphweft_tensor::ops::combine::concat(tape, &[&x, &x])?;
                attend(tape, Score::Dot { q: &x, kv: &kv })?
            }
            1 => {
                let (dst, src) = (vector(tape, 5)?, vector(tape, 6)?);
                attend(tape, Score::Gat { l: HeadVectors(&dst), r: HeadVectors(&src), z: &x, slope: 0.2 })?
            }
            2 => {
                let a = vector(tape, 7)?;
                attend(tape, Score::Gatv2 { l: &x, r: &x, value: None, a: &a, slope: 0.2 })?
            }
            3 => ops.aggregate(tape, layer, &x, Aggregation::Sum, EdgeWeight::Symmetric)?,
            4 => ops.aggregate(tape, layer, &x, Aggregation::Mean, EdgeWeight::None)?,
            _ => ops.aggregate(tape, layer, &x, Aggregation::Max, EdgeWeight::None)?,
        };
    }
    Ok(x)
}

const KINDS: usize = 6;

/// Numbers that look random.
fn values(seed: usize, count: usize) -> Vec<f64> {
    (0..count).map(|k| ((k * 37 + seed * 101) as f64 * 0.618).sin()).collect()
}

fn rows(device: &Device, all: &[f64], rows: Range<usize>) -> Matrix {
    device.upload(rows.len(), D, &all[rows.start * D..rows.end * D], Tag::Activations).unwrap()
}

/// What all rows come to at once.
fn all_rows(device: &Device, chunks: &Pipeline, kind: usize, x: &[f64]) -> Vec<f64> {
    let mut tape = Tape::without_gradients(device);
    let x = tape.constant(rows(device, x, 0..N));
    layers(&chunks.all_rows(), kind, &mut tape, &x).unwrap().value().to_vec().unwrap()
}

/// How chunks go through the layers.
#[derive(Clone, Copy)]
struct Pass<'a> {
    order: &'a [usize],
    across: Across,
    /// Whether each is computed again in backward.
    again: bool,
}

/// What they come to chunk by chunk, and the gradient of Σ out·g.
fn by_chunks(
    device: &Device,
    chunks: &Pipeline,
    kind: usize,
    x: &[f64],
    g: &[f64],
    pass: Pass<'_>,
) -> (Vec<f64>, Vec<f64>) {
    let Pass { order, across, again } = pass;
    chunks.begin(order, across);
    let (mut out, mut dx, mut passes) = (vec![0.0; N * D], vec![0.0; N * D], Vec::new());
    let put = |to: &mut [f64], chunk: usize, m: &Matrix| {
        let own = chunks.rows(chunk);
        to[own.start * D..own.end * D].copy_from_slice(&m.to_vec::<f64>().unwrap());
    };
    for &chunk in order {
        let (ops, mut tape) = (chunks.chunk(chunk), Tape::new(device));
        let leaf = tape.leaf(rows(device, x, chunks.rows(chunk)));
        let end = if again {
            let pass = move |tape: &mut Tape, x: &[Var]| Ok(vec![layers(&ops, kind, tape, &x[0])?]);
            tape.checkpoint(&[&leaf], pass).unwrap().remove(0)
        } else {
            layers(&ops, kind, &mut tape, &leaf).unwrap()
        };
        put(&mut out, chunk, end.value());
        passes.push((chunk, tape, leaf, end));
    }
    for (chunk, tape, leaf, end) in passes.into_iter().rev() {
        let g = rows(device, g, chunks.rows(chunk));
        let found = tape.backward(vec![(end, g)], &[&leaf], |_| Ok(())).unwrap().remove(0);
        put(&mut dx, chunk, &found.unwrap());
    }
    (out, dx)
}

fn near(a: &[f64], b: &[f64], tolerance: f64, what: &str) {
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(a.len() == b.len() && apart < tolerance, "{what}: {apart:e}");
}

#[test]
fn with_the_history_of_now_chunks_see_what_all_rows_see() {
    let device = Device::cpu();
    let (chunks, x) = (chunks(&device, &PARTS), values(1, N * D));
    for kind in 0..KINDS {
        let expected = chunks.remember(|| all_rows(&device, &chunks, kind, &x));
        for order in [[0, 1, 2, 3], [3, 1, 0, 2]] {
            let (out, _) =
                by_chunks(&device, &chunks, kind, &x, &x, Pass { order: &order, across: Across::Once, again: false });
            near(&out, &expected, 1e-12, &format!("kind {kind} in order {order:?}"));
        }
    }
}

#[test]
fn one_chunk_is_exact() {
    let device = Device::cpu();
    let (one, x, g) = (chunks(&device, &[0, N as u64]), values(1, N * D), values(2, N * D));
    for kind in 0..KINDS {
        let (out, dx) =
            by_chunks(&device, &one, kind, &x, &g, Pass { order: &[0], across: Across::Twice, again: true });
        near(&out, &all_rows(&device, &one, kind, &x), 1e-12, &format!("kind {kind}"));
        let mut tape = Tape::new(&device);
        let leaf = tape.leaf(rows(&device, &x, 0..N));
        let end = layers(&one.all_rows(), kind, &mut tape, &leaf).unwrap();
        let found = tape.backward(vec![(end, rows(&device, &g, 0..N))], &[&leaf], |_| Ok(())).unwrap();
        near(&dx, &found[0].as_ref().unwrap().to_vec::<f64>().unwrap(), 1e-12, &format!("gradient of kind {kind}"));
    }
}

#[test]
fn gradients_are_those_of_fresh_rows_and_the_same_when_computed_again() {
    let device = Device::cpu();
    let chunks = chunks(&device, &PARTS);
    let (old, x, g) = (values(3, N * D), values(1, N * D), values(2, N * D));
    for kind in 0..KINDS {
        chunks.remember(|| all_rows(&device, &chunks, kind, &old));
        for order in [[0, 1, 2, 3], [3, 0, 2, 1]] {
            let pass = |again| Pass { order: &order, across: Across::Once, again };
            let run = |x: &[f64], again| by_chunks(&device, &chunks, kind, x, &g, pass(again));
            let (out, dx) = run(&x, false);
            assert_eq!((out, dx.clone()), run(&x, true), "kind {kind}");
            // Finite differences see the function that was computed: history does not change with x.
            let loss = |x: &[f64]| run(x, false).0.iter().zip(&g).map(|(y, g)| y * g).sum::<f64>();
            for k in (0..N * D).step_by(5) {
                let moved = |by: f64| {
                    let mut x = x.clone();
                    x[k] += by;
                    loss(&x)
                };
                let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                assert!((slope - dx[k]).abs() < 1e-6, "kind {kind}, order {order:?}, {k}: {slope} and {}", dx[k]);
            }
        }
    }
}

#[test]
fn gradients_across_chunks_count_twice_if_asked_for() {
    let device = Device::cpu();
    let chunks = chunks(&device, &PARTS);
    let (x, g, order) = (values(1, N * D), values(2, N * D), [1, 3, 0, 2]);
    chunks.remember(|| all_rows(&device, &chunks, 4, &x));
    let run = |across| by_chunks(&device, &chunks, 4, &x, &g, Pass { order: &order, across, again: false }).1;
    let (once, twice) = (run(Across::Once), run(Across::Twice));
    // Chunk 2 has no rows, so nobody sees fresh rows of chunk 0: its gradients are its own.
    let own = chunks.rows(0).flat_map(|row| row * D..(row + 1) * D);
    own.for_each(|k| assert_eq!(once[k], twice[k], "{k}"));
    assert_ne!(once, twice);
}

#[test]
fn what_needs_all_rows_is_refused() {
    let device = Device::cpu();
    let chunks = chunks(&device, &PARTS);
    let ops = chunks.chunk(0);
    let x = rows(&device, &values(1, N * D), chunks.rows(0));
    let e = ops.moments(1, &x).unwrap_err().to_string();
    assert!(e.contains("batch normalisation") && e.contains("all of them"), "{e}");
    let mut tape = Tape::new(&device);
    let x = tape.leaf(x);
    ops.aggregate(&mut tape, 1, &x, Aggregation::Sum, EdgeWeight::None).unwrap_err();
    chunks.remember(|| all_rows(&device, &chunks, 3, &values(1, N * D)));
    chunks.begin(&[0, 1, 2, 3], Across::Once);
    ops.aggregate(&mut tape, 1, &x, Aggregation::Sum, EdgeWeight::None).unwrap();
    let e = ops.aggregate(&mut tape, 1, &x, Aggregation::Sum, EdgeWeight::None).unwrap_err().to_string();
    assert!(e.contains("twice"), "{e}");
    assert_eq!(x.value().dtype(), DType::F64);
}
