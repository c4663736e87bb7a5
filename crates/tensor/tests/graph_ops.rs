//! Graph operations over random small graphs: against dense definitions in f64, against finite differences, f32 against
//! f64.

#![allow(clippy::unwrap_used)] // Helpers of tests.

use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_tensor::gradcheck::{check, numbers};
use graphweft_tensor::ops::attention::{Bias, Score, attention};
use graphweft_tensor::ops::spmm::{Reduction, WeightVar, aggregate};
use graphweft_tensor::{Adjacency, DType, Device, Ids, Matrix, Result, Tag, Tape, Var};
use proptest::prelude::*;

/// Rows of sources: isolated nodes, self-loops and parallel edges come up by themselves.
#[derive(Clone, Debug)]
struct Graph {
    rows: Vec<Vec<u32>>,
    num_src: usize,
    seed: u64,
}

impl Graph {
    fn on(&self, device: &Device) -> Rc<Adjacency> {
        let mut indptr = vec![0u64];
        let mut indices: Vec<u32> = Vec::new();
        for row in &self.rows {
            indices.extend(row);
            indptr.push(indices.len() as u64);
        }
        Rc::new(Adjacency::new(device, Csr::new(indptr, indices, self.num_src).unwrap()).unwrap())
    }

    fn edges(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// Multiples of 1/1024, and for the first operand numbers between them: a sum of the first two is never near 0,
    /// where a LeakyReLU has no derivative.
    fn numbers(&self, salt: u64, len: usize) -> Vec<f64> {
        let between = if salt == 0 { 1.0 / 2048.0 } else { 0.0 };
        let numbers = numbers(self.seed.wrapping_mul(31).wrapping_add(salt), len);
        numbers.into_iter().map(|x| (x * 1024.0).round() / 1024.0 + between).collect()
    }
}

fn graphs() -> impl Strategy<Value = Graph> {
    (0usize..7, 1usize..7, any::<u64>()).prop_flat_map(|(num_dst, num_src, seed)| {
        let row = prop::collection::vec(0..num_src as u32, 0..12).prop_map(|mut row| {
            row.sort_unstable();
            row
        });
        prop::collection::vec(row, num_dst).prop_map(move |rows| Graph { rows, num_src, seed })
    })
}

/// Inputs by shape, in f64 or rounded to f32.
fn upload(device: &Device, graph: &Graph, shapes: &[(usize, usize)], dtype: DType) -> Vec<Matrix> {
    let one = |(k, (rows, cols)): (usize, &(usize, usize))| {
        let m = device.upload(*rows, *cols, &graph.numbers(k as u64, rows * cols), Tag::Activations).unwrap();
        device.convert("test", &m, dtype).unwrap()
    };
    shapes.iter().enumerate().map(one).collect()
}

/// The output and all gradients.
fn results(
    graph: &Graph,
    shapes: &[(usize, usize)],
    dtype: DType,
    f: impl Fn(&mut Tape, &Rc<Adjacency>, &[Var]) -> Result<Var>,
) -> Vec<Vec<f64>> {
    let device = Device::cpu();
    let mut tape = Tape::new(&device);
    let vars: Vec<Var> = upload(&device, graph, shapes, dtype).into_iter().map(|m| tape.leaf(m)).collect();
    let out = f(&mut tape, &graph.on(&device), &vars).unwrap();
    let value = out.value().clone();
    let g =
        device.upload(value.rows(), value.cols(), &graph.numbers(50, value.rows() * value.cols()), Tag::Activations);
    let g = device.convert("test", &g.unwrap(), dtype).unwrap();
    let found = tape.backward(vec![(out, g)], &vars.iter().collect::<Vec<_>>(), |_| Ok(())).unwrap();
    let f64s = |m: &Matrix| device.convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap();
    std::iter::once(&value).chain(found.iter().flatten()).map(f64s).collect()
}

/// Single precision gives what double precision gives, and double precision what finite differences give.
fn holds(
    graph: &Graph,
    shapes: &[(usize, usize)],
    f: impl Fn(&mut Tape, &Rc<Adjacency>, &[Var]) -> Result<Var>,
) -> std::result::Result<(), TestCaseError> {
    let (exact, single) = (results(graph, shapes, DType::F64, &f), results(graph, shapes, DType::F32, &f));
    prop_assert_eq!(exact.len(), single.len());
    for (e, s) in exact.iter().flatten().zip(single.iter().flatten()) {
        prop_assert!((e - s).abs() <= 1e-5 * e.abs().max(1.0), "{} in f64, {} in f32", e, s);
    }
    let device = Device::cpu();
    let adjacency = graph.on(&device);
    check(&device, &upload(&device, graph, shapes, DType::F64), &[], |tape, x| f(tape, &adjacency, x)).unwrap();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn sums_and_means(graph in graphs(), width in 1usize..20, mean in any::<bool>()) {
        let shapes = [(graph.num_src, width), (graph.edges(), 1)];
        let reduction = || if mean { Reduction::Mean } else { Reduction::Sum };
        let f = |tape: &mut Tape, g: &Rc<Adjacency>, x: &[Var]| {
            aggregate(tape, g, &x[0], reduction(), WeightVar::PerEdge(&x[1]))
        };
        let found = results(&graph, &shapes, DType::F64, f);
        let (x, w) = (graph.numbers(0, graph.num_src * width), graph.numbers(1, graph.edges()));
        let mut edge = 0;
        for (i, row) in graph.rows.iter().enumerate() {
            let mut expected = vec![0.0; width];
            for &j in row {
                for (c, to) in expected.iter_mut().enumerate() {
                    *to += w[edge] * x[j as usize * width + c];
                }
                edge += 1;
            }
            let divisor = if mean { row.len().max(1) as f64 } else { 1.0 };
            for (c, e) in expected.iter().enumerate() {
                prop_assert!((found[0][i * width + c] - e / divisor).abs() < 1e-12);
            }
        }
        holds(&graph, &shapes, f)?;
    }

    #[test]
    fn maxima(graph in graphs(), width in 1usize..20, coarse in any::<bool>(), turned in any::<bool>()) {
        // Coarse numbers make many ties. −0 would be one with 0, but not for total_cmp below.
        let number = |x: &f64| if coarse { x.round() + 0.0 } else { *x } as f32;
        let x: Vec<f32> = graph.numbers(0, graph.num_src * width).iter().map(number).collect();
        let id = |j: u32| if turned { 1000 - u64::from(j) } else { u64::from(j) };
        let ids = Ids::Listed((0..graph.num_src as u32).map(id).collect());
        let device = Device::cpu();
        let mut tape = Tape::new(&device);
        let leaf = tape.leaf(device.upload(graph.num_src, width, &x, Tag::Activations).unwrap());
        let out = aggregate(&mut tape, &graph.on(&device), &leaf, Reduction::Max(ids), WeightVar::None).unwrap();
        let found = out.value().to_vec::<f32>().unwrap();
        let g: Vec<f32> = (0..found.len()).map(|k| k as f32 + 1.0).collect();
        let seed = device.upload(graph.rows.len(), width, &g, Tag::Activations).unwrap();
        let dx = tape.backward(vec![(out, seed)], &[&leaf], |_| Ok(())).unwrap().remove(0).unwrap();
        let mut expected = vec![0f32; x.len()];
        for (i, c) in (0..graph.rows.len()).flat_map(|i| (0..width).map(move |c| (i, c))) {
            let at = |j: u32| j as usize * width + c;
            let best = graph.rows[i].iter().copied().min_by(|a, b| x[at(*b)].total_cmp(&x[at(*a)]).then(id(*a).cmp(&id(*b))));
            prop_assert_eq!(found[i * width + c], best.map_or(0.0, |j| x[at(j)]));
            if let Some(j) = best {
                expected[at(j)] += g[i * width + c];
            }
        }
        prop_assert_eq!(dx.to_vec::<f32>().unwrap(), expected);
    }

    #[test]
    fn dot_products(graph in graphs(), heads in 1usize..4, wide in any::<bool>()) {
        let d = heads * if wide { 16 } else { 2 };
        let shapes = [(graph.rows.len(), d), (graph.num_src, 2 * d), (graph.edges(), heads)];
        holds(&graph, &shapes, |tape, g, x| attention(tape, g, heads, Score::Dot { q: &x[0], kv: &x[1] }, Bias::PerEdge(&x[2]), None, None))?;
    }

    #[test]
    fn gats(graph in graphs(), heads in 1usize..6, wide in any::<bool>()) {
        let d = heads * if wide { 16 } else { 2 };
        let n = graph.rows.len();
        let shapes = [(n, heads), (graph.num_src, heads), (graph.num_src, d), (graph.edges(), heads)];
        holds(&graph, &shapes, |tape, g, x| {
            let score = Score::Gat { l: &x[0], r: &x[1], z: &x[2], slope: 0.2 };
            attention(tape, g, heads, score, Bias::PerEdge(&x[3]), None, None)
        })?;
    }

    #[test]
    fn gatv2s(graph in graphs(), heads in 1usize..4, wide in any::<bool>()) {
        let w = if wide { 16 } else { 2 };
        let shapes = [(graph.rows.len(), heads * w), (graph.num_src, heads * w), (heads, w)];
        holds(&graph, &shapes, |tape, g, x| {
            let score = Score::Gatv2 { l: &x[0], r: &x[1], value: None, a: &x[2], slope: 0.2 };
            attention(tape, g, heads, score, Bias::None, None, None)
        })?;
    }
}
