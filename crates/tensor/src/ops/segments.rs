//! Rows in segments: a batch of graphs, whose nodes are ranges of rows, one after the other.
//!
//! A readout makes a row of each graph: the sum, the mean, the maximum per column, or a sum that a softmax inside the
//! graph weighs. The other way, each row gets its graph's. And every row may attend to all rows of its graph, in one
//! softmax. None of these needs kernels of its own: a readout is an [aggregation](crate::ops::spmm) or an
//! [attention](crate::ops::attention) along edges from rows to graphs, with a fixed order of summation and large graphs
//! cut into pieces; the other way is a [gather](crate::ops::rows), whose backward adds up the rows of each graph in
//! their order; attention inside graphs goes along the edges of complete graphs, fused as ever: for a graph of n rows
//! there are n² indices, and no scores. So all devices have them, and rehearsals know what they take.
//!
//! Costs: 16 bytes a row for the edges both ways, and 12 for the gather. For attention inside graphs 8 bytes a pair of
//! rows of the same graph, when it is first asked for.

use std::cell::OnceCell;
use std::rc::Rc;

use graphweft_graph::Csr;

use crate::adjacency::Adjacency;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::ops::attention::{Bias, EdgeDropout, Score, attention};
use crate::ops::rows::{RowIndex, gather};
use crate::ops::spmm::{Reduction, WeightVar, aggregate};
use crate::random::{Dropout, Ids};
use crate::tape::{Tape, Var};

const OP: &str = "segments";

/// The rows of a batch of graphs.
#[derive(Clone, Debug)]
pub struct Segments {
    /// From rows to graphs.
    edges: Rc<Adjacency>,
    /// The graph of each row.
    of_rows: Rc<RowIndex>,
    /// From every row to all rows of its graph.
    pairs: OnceCell<Rc<Adjacency>>,
    rows: Ids,
    graphs: Ids,
}

/// How the rows of a graph become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readout {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their maximum per column; the smallest original id wins among equals.
    Max,
}

impl Segments {
    /// Graph g has the rows from `ptr[g]` up to `ptr[g + 1]`. Original ids are of rows and of graphs.
    ///
    /// # Errors
    /// If `ptr` does not begin with 0, or descends.
    pub fn new(device: &Device, ptr: &[u64], rows: Ids, graphs: Ids) -> Result<Self> {
        let (count, end) = (ptr.len().saturating_sub(1), ptr.last().copied().unwrap_or(0));
        if ptr.first().is_none_or(|first| *first != 0) || ptr.windows(2).any(|ends| ends[0] > ends[1]) {
            return Err(Error::Argument { op: OP, problem: "graphs do not follow one another".into() });
        }
        let all = u32::try_from(end).map_err(|_| Error::Argument { op: OP, problem: format!("{end} rows") })?;
        rows.expect(OP, all as usize)?;
        graphs.expect(OP, count)?;
        let csr = Csr::from_valid(ptr.to_vec(), (0..all).collect::<Vec<u32>>(), all as usize);
        let of = |graph: usize| std::iter::repeat_n(graph as u32, (ptr[graph + 1] - ptr[graph]) as usize);
        let index = (0..count).flat_map(of).collect();
        let (edges, of_rows) = (Adjacency::new(device, csr)?, RowIndex::new(device, count, index)?);
        Ok(Self { edges: Rc::new(edges), of_rows: Rc::new(of_rows), pairs: OnceCell::new(), rows, graphs })
    }

    /// Copies which rows are whose to where the kernels are: see [`Adjacency::bring`].
    pub fn bring(&self) -> Result<()> {
        self.edges.bring()
    }

    /// How many graphs there are.
    pub fn count(&self) -> usize {
        self.of_rows.num_rows()
    }

    /// Original ids of graphs.
    pub fn ids(&self) -> &Ids {
        &self.graphs
    }

    /// A row per graph from a row per node; zeros for a graph without nodes.
    pub fn readout(&self, tape: &mut Tape, x: &Var, how: Readout) -> Result<Var> {
        let reduction = match how {
            Readout::Sum => Reduction::Sum,
            Readout::Mean => Reduction::Mean,
            Readout::Max => Reduction::Max(self.rows.clone()),
        };
        aggregate(tape, &self.edges, x, reduction, WeightVar::None)
    }

    /// A row per graph: the sum of the rows of `x`, each weighed by the softmax of `score` inside its graph. `score`
    /// has a column per head, in the type of the computation; heads share the columns of `x`.
    pub fn attend(&self, tape: &mut Tape, score: &Var, x: &Var) -> Result<Var> {
        let (heads, dtype, device) = (score.value().cols(), score.value().dtype(), tape.device().clone());
        let l = tape.constant(device.zeros(OP, self.count(), heads, dtype, Tag::Activations)?);
        // A LeakyReLU that does nothing.
        let score = Score::Gat { l: &l, r: score, z: x, slope: 1.0 };
        attention(tape, &self.edges, heads, score, Bias::None, None, None)
    }

    /// A row per graph: the sum of the values of its rows, each weighed by the softmax inside the graph of q_g·k_i /
    /// √d. `kv` has keys and values side by side; there is one head.
    pub fn attend_by(&self, tape: &mut Tape, q: &Var, kv: &Var) -> Result<Var> {
        attention(tape, &self.edges, 1, Score::Dot { q, kv }, Bias::None, None, None)
    }

    /// A row per node: what it finds in all nodes of its graph, itself among them, by softmax attention with dot
    /// products as scores. `kv` has keys and values side by side; heads share the columns.
    pub fn within(&self, tape: &mut Tape, heads: usize, q: &Var, kv: &Var, dropout: Option<Dropout>) -> Result<Var> {
        let dropout = dropout.map(|dropout| EdgeDropout { dropout, src: self.rows.clone(), dst: self.rows.clone() });
        let pairs = self.pairs(tape.device())?;
        attention(tape, &pairs, heads, Score::Dot { q, kv }, Bias::None, None, dropout)
    }

    /// The complete graph of each graph's rows.
    fn pairs(&self, device: &Device) -> Result<Rc<Adjacency>> {
        if let Some(pairs) = self.pairs.get() {
            return Ok(Rc::clone(pairs));
        }
        let ends = self.edges.forward.csr.indptr();
        let sizes = ends.windows(2).map(|ends| (ends[1] - ends[0]) as usize);
        let count: usize = sizes.map(|rows| rows * rows).sum();
        let (mut indptr, mut indices) = (Vec::with_capacity(self.of_rows.index().len() + 1), Vec::with_capacity(count));
        indptr.push(0u64);
        for ends in ends.windows(2) {
            for _ in ends[0]..ends[1] {
                indices.extend(ends[0] as u32..ends[1] as u32);
                indptr.push(indices.len() as u64);
            }
        }
        let rows = indptr.len() - 1;
        let pairs = Rc::new(Adjacency::symmetric(device, Csr::from_valid(indptr, indices, rows))?);
        Ok(Rc::clone(self.pairs.get_or_init(|| pairs)))
    }

    /// A row per node: its graph's row of `x`.
    pub fn spread(&self, tape: &mut Tape, x: &Var) -> Result<Var> {
        gather(tape, x, &self.of_rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::*;

    fn segments(device: &Device, ptr: &[u64]) -> Segments {
        Segments::new(device, ptr, Ids::Same, Ids::Same).unwrap()
    }

    /// Graphs of one row, of several and of none.
    const PTR: [u64; 6] = [0, 1, 4, 4, 6, 7];

    #[test]
    fn gradients() {
        let device = Device::cpu();
        let of = segments(&device, &PTR);
        for how in [Readout::Sum, Readout::Mean, Readout::Max] {
            check(&device, &[upload(&device, 1, (7, 3), 1.0)], &[], |tape, x| of.readout(tape, &x[0], how)).unwrap();
        }
        check(&device, &[upload(&device, 2, (5, 3), 1.0)], &[], |tape, x| of.spread(tape, &x[0])).unwrap();
        for heads in [1, 2] {
            let inputs = [upload(&device, 3, (7, heads), 1.0), upload(&device, 4, (7, 4), 1.0)];
            check(&device, &inputs, &[], |tape, x| of.attend(tape, &x[0], &x[1])).unwrap();
            let inputs = [upload(&device, 5, (7, 4), 1.0), upload(&device, 6, (7, 8), 1.0)];
            for drop in [None, Some(half().dropout)] {
                check(&device, &inputs, &[], |tape, x| of.within(tape, heads, &x[0], &x[1], drop)).unwrap();
            }
        }
        let inputs = [upload(&device, 7, (5, 3), 1.0), upload(&device, 8, (7, 6), 1.0)];
        check(&device, &inputs, &[], |tape, x| of.attend_by(tape, &x[0], &x[1])).unwrap();
    }

    #[test]
    fn attention_inside_graphs_is_a_dense_softmax_of_each() {
        let device = Device::cpu();
        let of = segments(&device, &PTR);
        let (heads, width) = (2, 3);
        let (q, kv) = (upload(&device, 1, (7, 6), 1.5), upload(&device, 2, (7, 12), 1.5));
        let mut tape = Tape::new(&device);
        let (x, y) = (tape.leaf(q.clone()), tape.leaf(kv.clone()));
        let found = f64s(of.within(&mut tape, heads, &x, &y, None).unwrap().value());
        let (q, kv) = (f64s(&q), f64s(&kv));
        for ends in PTR.windows(2) {
            let rows = ends[0] as usize..ends[1] as usize;
            for (i, h) in rows.clone().flat_map(|i| (0..heads).map(move |h| (i, h))) {
                let score = |j: usize| -> f64 {
                    let terms = (0..width).map(|c| q[i * 6 + h * width + c] * kv[j * 12 + h * width + c]);
                    (terms.sum::<f64>() / (width as f64).sqrt()).exp()
                };
                let total: f64 = rows.clone().map(score).sum();
                for c in 0..width {
                    let value = |j: usize| score(j) / total * kv[j * 12 + 6 + h * width + c];
                    let expected: f64 = rows.clone().map(value).sum();
                    assert!((found[i * 6 + h * width + c] - expected).abs() < 1e-13, "row {i}, head {h}");
                }
            }
        }
    }

    #[test]
    fn rows_of_a_graph_become_one_and_back() {
        let device = Device::cpu();
        let of = segments(&device, &PTR);
        let values = [1.0, 2.0, 3.0, 7.0, -5.0, -3.0, 4.0];
        let mut tape = Tape::new(&device);
        let x = tape.leaf(device.upload(7, 1, &values, Tag::Activations).unwrap());
        let mut read = |how| f64s(of.readout(&mut tape, &x, how).unwrap().value());
        assert_eq!(read(Readout::Sum), [1.0, 12.0, 0.0, -8.0, 4.0]);
        assert_eq!(read(Readout::Mean), [1.0, 4.0, 0.0, -4.0, 4.0]);
        assert_eq!(read(Readout::Max), [1.0, 7.0, 0.0, -3.0, 4.0]);
        let y = of.readout(&mut tape, &x, Readout::Mean).unwrap();
        assert_eq!(f64s(of.spread(&mut tape, &y).unwrap().value()), [1.0, 4.0, 4.0, 4.0, -4.0, -4.0, 4.0]);
        // Softmax by hand; equal scores are a mean.
        let score = tape.leaf(device.upload(7, 1, &[0.0, 0.5, -1.0, 2.0, 3.0, 3.0, 9.0], Tag::Activations).unwrap());
        let found = f64s(of.attend(&mut tape, &score, &x).unwrap().value());
        let e = [0.5f64, -1.0, 2.0].map(f64::exp);
        let expected = (2.0 * e[0] + 3.0 * e[1] + 7.0 * e[2]) / e.iter().sum::<f64>();
        assert!((found[1] - expected).abs() < 1e-14 && (found[3] + 4.0).abs() < 1e-14, "{found:?}");
        assert_eq!((found[0], found[2], found[4]), (1.0, 0.0, 4.0));
    }

    fn case() -> Case {
        Case::new(vec![(900, 40), (40, 40)], vec![], |tape, x, _| {
            let ptr: Vec<u64> = (0..=40).map(|k| 900 * k * k / 1600).collect();
            let of = segments(tape.device(), &ptr);
            let [sum, mean] = [Readout::Sum, Readout::Mean].map(|how| of.readout(tape, &x[0], how));
            Ok(vec![sum?, mean?, of.readout(tape, &x[0], Readout::Max)?, of.spread(tape, &x[1])?])
        })
    }

    /// Softmax, whose exponentials make more of what rounding leaves.
    fn softmax() -> Case {
        Case::new(vec![(900, 40), (40, 40), (900, 80)], vec![], |tape, x, _| {
            let ptr: Vec<u64> = (0..=40).map(|k| 900 * k * k / 1600).collect();
            let of = segments(tape.device(), &ptr);
            let within = of.within(tape, 5, &x[0], &x[2], Some(half().dropout))?;
            Ok(vec![within, of.attend_by(tape, &x[1], &x[2])?])
        })
    }

    agrees_with_f64!([(case(), 2e-6, 1e-2), (softmax(), 1e-5, 2e-2)]);

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        on_any_threads(&case());
        on_any_threads(&softmax());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let device = Device::cpu();
        for ptr in [&[][..], &[1, 2], &[0, 3, 2]] {
            assert!(Segments::new(&device, ptr, Ids::Same, Ids::Same).is_err());
        }
        assert!(Segments::new(&device, &[0, 2], Ids::Listed([1].into()), Ids::Same).is_err());
        let (of, mut tape) = (segments(&device, &PTR), Tape::new(&device));
        let x = tape.leaf(upload(&device, 1, (6, 2), 1.0));
        assert!(of.readout(&mut tape, &x, Readout::Sum).is_err() && of.spread(&mut tape, &x).is_err());
    }
}
