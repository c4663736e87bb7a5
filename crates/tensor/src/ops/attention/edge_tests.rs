//! Attention with features of edges: k_j + W·e_ij and v_j + W·e_ij.

use super::*;
use crate::gradcheck::{check, numbers};
use crate::ops::attention_blocks::{Block, attention_blocks};
use crate::ops::edge_values::{EdgeColumns, absorb, widen};
use crate::ops::graphs::InputType::{Computed, Stored};
use crate::ops::graphs::{
    Case, blocks, cases_agree_with_f64, dropout, empty, f64s, from_rows, near, rows_of, same_bits_over_a_hub, small,
    upload, with_hub,
};
use crate::ops::tests::on_every_device;

on_every_device!(
    gradients,
    gradients_with_bias_and_dropout,
    gradients_with_tokens,
    equals_its_definition,
    block_by_block_is_the_same,
    nothing_for_blocks_without_edges
);

/// Numbers, categories, both.
pub(super) fn kinds() -> [EdgeColumns; 3] {
    [EdgeColumns::numbers(3), EdgeColumns::new(0, &[5]).unwrap(), EdgeColumns::new(2, &[3, 1, 4]).unwrap()]
}

/// Features of so many edges, as f64: numbers below 1, then ids.
pub(super) fn features(edges: usize, columns: &EdgeColumns) -> Vec<f64> {
    let dense = numbers(9, edges * columns.dense());
    let row = |e: usize| {
        let ids = columns.categories().iter().enumerate().map(move |(k, count)| ((e * 7 + k * 3) % count) as f64);
        dense[e * columns.dense()..][..columns.dense()].iter().copied().chain(ids)
    };
    (0..edges).flat_map(row).collect()
}

pub(super) fn tail(device: &Device, edges: usize, columns: &EdgeColumns, dtype: DType) -> EdgeTail {
    let rows = device.upload(edges, columns.stored(), &features(edges, columns), Tag::Graph).unwrap();
    let rows = device.convert("test", &rows, dtype.compute()).unwrap();
    EdgeTail { columns: *columns, rows: Some(rows) }
}

/// x: q, kv, the weight, and a bias per edge if there is one.
fn run(
    tape: &mut Tape,
    graph: &Rc<Adjacency>,
    heads: usize,
    x: &[Var],
    columns: &EdgeColumns,
    dropout: Option<EdgeDropout>,
) -> Result<Var> {
    let q = widen(tape, &x[0], &x[2], heads, columns)?;
    let bias = x.get(3).map_or(Bias::None, Bias::PerEdge);
    let edges = Some(tail(tape.device(), graph.num_edges(), columns, q.value().dtype()).into());
    let out = attention(tape, graph, heads, Score::Dot { q: &q, kv: &x[1] }, bias, edges, dropout)?;
    absorb(tape, &out, &x[2], heads, columns)
}

fn gradients(device: &Device) {
    let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
    for graph in [vec![small(device)], empty(device).to_vec()].concat() {
        let (n, m) = (graph.num_dst(), graph.num_src());
        for columns in kinds() {
            for heads in [1, 2, 3] {
                let inputs = [up(1, n, 6), up(2, m, 12), up(3, 6, columns.width())];
                check(device, &inputs, &[], |tape, x| run(tape, &graph, heads, x, &columns, None)).unwrap();
            }
        }
    }
}

fn gradients_with_bias_and_dropout(device: &Device) {
    let graph = small(device);
    let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
    for columns in kinds() {
        let inputs = [up(1, 5, 6), up(2, 6, 12), up(3, 6, columns.width()), up(4, graph.num_edges(), 2)];
        check(device, &inputs, &[], |tape, x| run(tape, &graph, 2, x, &columns, Some(dropout(&graph)))).unwrap();
    }
}

/// Neighbours with features, then three tokens without. x: q, kv, the weight, kv of tokens.
fn with_tokens(tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var], columns: &EdgeColumns) -> Result<Var> {
    let device = tape.device().clone();
    let tokens = from_rows(&device, vec![vec![0, 1, 2]; graph.num_dst()], 3);
    let q = widen(tape, &x[0], &x[2], 2, columns)?;
    let edges = tail(&device, graph.num_edges(), columns, q.value().dtype());
    let none = EdgeTail { rows: None, ..edges.clone() };
    let drop = Some(dropout(graph));
    let near = Block { graph, kv: &x[1], bias: Bias::None, edges: Some(edges), dropout: drop };
    let tokens = Block { graph: &tokens, kv: &x[3], bias: Bias::None, edges: Some(none), dropout: None };
    let out = attention_blocks(tape, 2, &q, &[near, tokens])?;
    absorb(tape, &out, &x[2], 2, columns)
}

fn gradients_with_tokens(device: &Device) {
    let graph = small(device);
    let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
    for columns in kinds() {
        let inputs = [up(1, 5, 6), up(2, 6, 12), up(3, 6, columns.width()), up(4, 3, 12)];
        check(device, &inputs, &[], |tape, x| with_tokens(tape, &graph, x, &columns)).unwrap();
    }
}

fn equals_its_definition(device: &Device) {
    let (graph, heads, w) = (small(device), 2, 3);
    let (csr, d) = (&graph.forward.csr, heads * w);
    for columns in kinds() {
        let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
        let f = columns.width();
        let inputs = [up(1, 5, d), up(2, 6, 2 * d), up(3, d, f)];
        let mut tape = Tape::new(device);
        let vars = inputs.clone().map(|m| tape.leaf(m));
        let out = f64s(run(&mut tape, &graph, heads, &vars, &columns, None).unwrap().value());
        let [q, kv, weight] = inputs.each_ref().map(f64s);
        // One-hot, and W·e for every edge: what attention must not make.
        let stored = features(csr.num_edges(), &columns);
        let wide = |e: usize| {
            let (row, mut all) = (&stored[e * columns.stored()..], vec![0.0; f]);
            all[..columns.dense()].copy_from_slice(&row[..columns.dense()]);
            for (id, [first, _]) in row[columns.dense()..].iter().zip(columns.places()) {
                all[first + *id as usize] = 1.0;
            }
            all
        };
        let product = |e: usize, c: usize| wide(e).iter().zip(&weight[c * f..]).map(|(x, w)| x * w).sum::<f64>();
        for (i, h) in (0..5).flat_map(|i| (0..heads).map(move |h| (i, h))) {
            let edges: Vec<(usize, usize)> = csr.edges_of(i).map(|e| (e, csr.indices()[e] as usize)).collect();
            let score = |(e, j): (usize, usize)| {
                let of = |c: usize| q[i * d + c] * (kv[j * 2 * d + c] + product(e, c));
                (h * w..(h + 1) * w).map(of).sum::<f64>() / (w as f64).sqrt()
            };
            let weights: Vec<f64> = edges.iter().map(|edge| score(*edge).exp()).collect();
            let total: f64 = weights.iter().sum();
            for c in h * w..(h + 1) * w {
                let value = |(p, (e, j)): (&f64, &(usize, usize))| p / total * (kv[j * 2 * d + d + c] + product(*e, c));
                let expected: f64 = weights.iter().zip(&edges).map(value).sum();
                assert!((out[i * d + c] - expected).abs() < 1e-12, "{columns:?}");
            }
        }
    }
}

fn block_by_block_is_the_same(device: &Device) {
    for (heads, w, dtype, tolerance) in
        [(2, 3, DType::F64, 1e-12), (2, 16, DType::F32, 2e-5), (8, 16, DType::F32, 2e-5), (8, 16, DType::Bf16, 4e-2)]
    {
        let graph = with_hub(device);
        let (n, d) = (graph.num_dst(), heads * w);
        for columns in kinds() {
            let up = |seed, cols, dtype| upload(device, seed, (n, cols), dtype);
            let wide = d + heads * columns.tail();
            let (q, kv, g) = (up(1, wide, dtype), up(2, 2 * d, dtype), up(3, wide, dtype));
            let whole = tail(device, graph.num_edges(), &columns, dtype);
            let rows = whole.rows.as_ref().unwrap();
            let cut: Vec<_> = blocks(device, &graph, 77)
                .into_iter()
                .map(|(block, first, edges)| {
                    let kv = rows_of(&kv, first..first + block.num_src());
                    (block, kv, EdgeTail { rows: Some(rows_of(rows, edges)), ..whole.clone() })
                })
                .collect();
            let over = |parts: &[(Rc<Adjacency>, Matrix, EdgeTail)]| {
                let mut tape = Tape::new(device);
                let (q, kvs) = (tape.leaf(q.clone()), parts.iter().map(|(_, kv, _)| tape.leaf(kv.clone())));
                let kvs: Vec<Var> = kvs.collect();
                let block = |((graph, _, edges), kv)| {
                    let edges: &EdgeTail = edges;
                    Block { graph, kv, bias: Bias::None, edges: Some(edges.clone()), dropout: None }
                };
                let list: Vec<_> = parts.iter().map(|(a, b, c)| (a, b, c)).zip(&kvs).map(block).collect();
                let out = match &list[..] {
                    [one] => {
                        let score = Score::Dot { q: &q, kv: one.kv };
                        let edges = one.edges.clone().map(EdgeTerms::from);
                        attention(&mut tape, one.graph, heads, score, Bias::None, edges, None)
                    }
                    all => attention_blocks(&mut tape, heads, &q, all),
                }
                .unwrap();
                let value = f64s(out.value());
                let leaves: Vec<&Var> = std::iter::once(&q).chain(&kvs).collect();
                let found = tape.backward(vec![(out, g.clone())], &leaves, |_| Ok(())).unwrap();
                (value, found.into_iter().map(|m| f64s(&m.unwrap())).collect::<Vec<_>>())
            };
            let (out, expected) = over(&[(graph.clone(), kv.clone(), whole.clone())]);
            let (found_out, found) = over(&cut);
            near(&found_out, &out, tolerance, "out");
            near(&found[0], &expected[0], 2.0 * tolerance, "dq");
            near(&found[1..].concat(), &expected[1], 2.0 * tolerance, "dkv");
        }
    }
}

fn nothing_for_blocks_without_edges(device: &Device) {
    for (graph, dtype) in empty(device).into_iter().flat_map(|g| [(g.clone(), DType::F32), (g, DType::F64)]) {
        for columns in kinds() {
            let mut tape = Tape::new(device);
            let mut leaf = |rows, cols, dtype| tape.leaf(upload(device, 1, (rows, cols), dtype));
            let x = [
                leaf(graph.num_dst(), 16, dtype),
                leaf(graph.num_src(), 32, dtype),
                leaf(16, columns.width(), dtype.compute()),
            ];
            let out = run(&mut tape, &graph, 1, &x, &columns, None).unwrap();
            assert!(f64s(out.value()).iter().all(|x| *x == 0.0));
        }
    }
}

/// Columns that fill vectors, and parts of them.
pub(super) fn widths() -> [EdgeColumns; 5] {
    let of = |dense, categories: &[usize]| EdgeColumns::new(dense, categories).unwrap();
    [of(16, &[]), of(1, &[]), of(21, &[]), of(0, &[5]), of(3, &[5, 6, 2])]
}

/// With tolerances for f32 and bf16.
fn cases(check: impl Fn(&Case<'_>, &str, f64, f64)) {
    for (heads, width) in [(8, 16), (3, 8), (1, 32), (2, 5), (9, 8), (16, 16)] {
        // Heads that are not whole vectors are served by portable code, which adds up a hub's edges one after another.
        let single = if width % 8 == 0 { 2e-5 } else { 1e-4 };
        for (k, columns) in widths().iter().enumerate() {
            let (d, dropped) = (heads * width, k % 2 == 1);
            let inputs = [(300, d, Stored), (300, 2 * d, Stored), (d, columns.width(), Computed)];
            let f = &|tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var]| {
                run(tape, graph, heads, x, columns, dropped.then(|| dropout(graph)))
            };
            let what = format!("{heads}×{width} {columns:?}");
            check(&Case { graph: &with_hub, inputs: &inputs, f }, &what, single, 4e-2);
        }
    }
}

cases_agree_with_f64!(cases);

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let columns = EdgeColumns::new(3, &[5]).unwrap();
    let inputs = [(300, 64, Stored), (300, 128, Stored), (64, columns.width(), Computed)];
    same_bits_over_a_hub("edges", &inputs, |tape, graph, x| run(tape, graph, 4, x, &columns, Some(dropout(graph))));
}

#[test]
fn nothing_grows_with_edges_but_the_features() {
    adds_a_number_per_node_and_head(Some(&EdgeColumns::numbers(16)));
}

/// Attention of wide rows, with or without features of edges: how much memory it takes beyond its operands.
pub(super) fn adds_a_number_per_node_and_head(columns: Option<&EdgeColumns>) {
    let device = Device::cpu();
    let graph = with_hub(&device);
    let (n, d, heads) = (graph.num_dst(), 128, 8);
    let wide = d + heads * columns.map_or(0, EdgeColumns::tail);
    let up = |cols| device.upload(n, cols, &vec![0.5f32; n * cols], Tag::Activations).unwrap();
    let (q, kv, g) = (up(wide), up(2 * d), up(wide));
    let edges = columns.map(|columns| tail(&device, graph.num_edges(), columns, DType::F32));
    // Where edges of the transpose stand is a part of the graph.
    graph.edges();
    let before = device.ledger().now().total();
    device.ledger().reset_peak();
    let mut tape = Tape::new(&device);
    let (q, kv) = (tape.leaf(q), tape.leaf(kv));
    let score = Score::Dot { q: &q, kv: &kv };
    let out = attention(&mut tape, &graph, heads, score, Bias::None, edges.map(EdgeTerms::from), None).unwrap();
    let grads = tape.backward(vec![(out, g)], &[&q, &kv], |_| Ok(())).unwrap();
    let unavoidable = 4 * n * (wide + wide + 2 * d);
    let beyond = device.ledger().peak().total() - before - unavoidable as u64;
    // At the peak: log-sum-exp, D, and for the pieces of the hub one row of dk ‖ dv each.
    let pieces = graph.transpose.portions.pieces;
    assert_eq!(beyond, (4 * (n * 2 * heads + pieces * 2 * d)) as u64);
    drop(grads);
}

#[test]
fn an_id_that_is_no_category_stays_inside() {
    let device = Device::cpu();
    let graph = from_rows(&device, vec![vec![0, 0, 0, 0]], 1);
    let columns = EdgeColumns::new(0, &[3]).unwrap();
    for dtype in [DType::F32, DType::F64] {
        let ids = device.upload(4, 1, &[f64::NAN, -5.0, 1e30, 2.0], Tag::Graph).unwrap();
        let edges = EdgeTail { columns, rows: Some(device.convert("test", &ids, dtype).unwrap()) };
        let mut tape = Tape::new(&device);
        let q = tape.leaf(upload(&device, 1, (1, 16 + columns.tail()), dtype));
        let kv = tape.leaf(upload(&device, 2, (1, 32), dtype));
        let score = Score::Dot { q: &q, kv: &kv };
        let out = attention(&mut tape, &graph, 1, score, Bias::None, Some(edges.into()), None).unwrap();
        let shares: f64 = f64s(out.value())[16..].iter().sum();
        assert!((shares - 1.0).abs() < 1e-6);
    }
}

#[test]
fn nonsense_is_refused() {
    let device = Device::cpu();
    let graph = small(&device);
    let columns = EdgeColumns::numbers(3);
    let mut tape = Tape::new(&device);
    let mut leaf = |rows, cols| tape.leaf(upload(&device, 1, (rows, cols), DType::F64));
    let (q, narrow, kv, l) = (leaf(5, 14), leaf(5, 6), leaf(6, 12), leaf(5, 2));
    let (r, z) = (leaf(6, 2), leaf(6, 4));
    let mut run = |score: Score<&Var>, edges: usize| {
        let edges = tail(&device, edges, &columns, DType::F64);
        attention(&mut tape, &graph, 2, score, Bias::None, Some(edges.into()), None).is_ok()
    };
    assert!(run(Score::Dot { q: &q, kv: &kv }, graph.num_edges()));
    assert!(!run(Score::Dot { q: &q, kv: &kv }, graph.num_edges() - 1));
    assert!(!run(Score::Dot { q: &narrow, kv: &kv }, graph.num_edges()));
    assert!(!run(Score::Gat { l: &l, r: &r, z: &z, slope: 0.2 }, graph.num_edges()));
}
