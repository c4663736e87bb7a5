//! Rows in segments: a batch of graphs, whose nodes are ranges of rows, one after the other.
//!
//! A readout makes a row of each graph: the sum, the mean, the maximum per column, or a sum that a softmax inside the
//! graph weighs. The other way, each row gets its graph's. Neither needs kernels of its own: a readout is an
//! [aggregation](crate::ops::spmm) or an [attention](crate::ops::gat) along edges from rows to graphs, with a fixed
//! order of summation and large graphs cut into pieces; the other way is a [gather](crate::ops::rows), whose backward
//! adds up the rows of each graph in their order. So all devices have them, and rehearsals know what they take.
//!
//! Costs: 16 bytes a row for the edges both ways, and 12 for the gather.

use std::rc::Rc;

use graphweft_graph::Csr;

use crate::adjacency::Adjacency;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::ops::attention::{Bias, Score, attention};
use crate::ops::rows::{RowIndex, gather};
use crate::ops::spmm::{Reduction, WeightVar, aggregate};
use crate::random::Ids;
use crate::tape::{Tape, Var};

const OP: &str = "segments";

/// The rows of a batch of graphs.
#[derive(Clone, Debug)]
pub struct Segments {
    /// From rows to graphs.
    edges: Rc<Adjacency>,
    /// The graph of each row.
    of_rows: Rc<RowIndex>,
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
        Ok(Self { edges: Rc::new(edges), of_rows: Rc::new(of_rows), rows, graphs })
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

    agrees_with_f64!([(case(), 2e-6, 1e-2)]);

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        on_any_threads(&case());
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
