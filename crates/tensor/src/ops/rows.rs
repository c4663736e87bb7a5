//! Rows picked by index, and the adjoint: rows added up by index.
//!
//! [`gather`] makes row k of the output from row `index[k]`; [`scatter`] adds row k of its input to row `index[k]`.
//! Each is the backward half of the other. The index is prepared once ([`RowIndex`]): positions are grouped by the row
//! they point to, so that a scatter writes each row once, adding in order of position. No atomics, the same bits every
//! time.

use std::rc::Rc;

use crate::device::{Charge, Device};
use crate::dry::{Work, WorkKind};
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::many_rows::ManyRows;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "rows";

/// A list of rows, some of which may be listed more than once.
#[derive(Debug)]
pub struct RowIndex {
    rows: usize,
    index: Vec<u32>,
    groups: Groups,
    /// A copy where the kernels are, if that is not the host; made by the backend at first use.
    #[cfg(feature = "cuda")]
    resident: std::cell::OnceCell<Rc<dyn std::any::Any>>,
    _charge: Option<Charge>,
}

/// Positions in a list by the row they point to.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The rows that are listed, increasing.
    targets: Vec<u32>,
    /// Where each target's positions start in `positions`, and the end.
    starts: Vec<u32>,
    /// The positions, increasing for each row.
    positions: Vec<u32>,
}

impl RowIndex {
    /// Prepares `index`, a list of rows of a matrix with `rows` rows.
    pub fn new(device: &Device, rows: usize, index: Vec<u32>) -> Result<Self> {
        let targets = |index: &RowIndex| index.groups.targets.len();
        Self::charged(device, rows, index, targets)
    }

    /// The same for rows that are drawn, of which another draw may list fewer twice: what is charged does not depend on
    /// which they are.
    pub fn drawn(device: &Device, rows: usize, index: Vec<u32>) -> Result<Self> {
        Self::charged(device, rows, index, |index| index.rows.min(index.index.len()))
    }

    fn charged(device: &Device, rows: usize, index: Vec<u32>, targets: impl Fn(&Self) -> usize) -> Result<Self> {
        let problem = |problem| Error::Argument { op: OP, problem };
        if let Some((k, i)) = index.iter().enumerate().find(|(_, i)| **i as usize >= rows) {
            return Err(problem(format!("index {k} is row {i}, but there are {rows} rows")));
        }
        let count = u32::try_from(index.len()).map_err(|_| problem(format!("{} indices", index.len())))?;
        let mut positions: Vec<u32> = (0..count).collect();
        positions.sort_by_key(|k| (index[*k as usize], *k));
        let (mut grouped, mut starts) = (Vec::new(), Vec::new());
        for (at, k) in (0..count).zip(&positions) {
            let target = index[*k as usize];
            if grouped.last() != Some(&target) {
                grouped.push(target);
                starts.push(at);
            }
        }
        starts.push(count);
        let mut made = Self {
            rows,
            index,
            groups: Groups { targets: grouped, starts, positions },
            #[cfg(feature = "cuda")]
            resident: Default::default(),
            _charge: None,
        };
        // The list and its positions, and for every row that is listed which it is and where its positions start.
        let bytes = 4 * (2 * made.index.len() + 2 * targets(&made) + 1);
        made._charge = Some(device.charge(Tag::Graph, bytes as u64));
        Ok(made)
    }

    /// Rows of the matrix that the list points into.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// The list.
    pub fn index(&self) -> &[u32] {
        &self.index
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn resident(&self) -> &std::cell::OnceCell<Rc<dyn std::any::Any>> {
        &self.resident
    }

    /// Its positions, by row.
    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }
}

impl Groups {
    /// The listed rows within `rows`, each with the positions that list it.
    pub(crate) fn within(&self, rows: std::ops::Range<usize>) -> impl Iterator<Item = (usize, &[u32])> {
        let at = |row: usize| self.targets.partition_point(|t| (*t as usize) < row);
        let (first, end) = (at(rows.start), at(rows.end));
        self.targets[first..end]
            .iter()
            .zip(self.starts[first..=end].windows(2))
            .map(|(target, ends)| (*target as usize, &self.positions[ends[0] as usize..ends[1] as usize]))
    }
}

/// How many rows an index lists, and the bytes that so many rows of `x` have.
fn listed(index: &RowIndex, x: &Matrix) -> (usize, usize) {
    let rows = index.index().len();
    (rows, rows * x.cols() * x.dtype().size())
}

kernels! {
    /// What a backend does with rows.
    pub trait RowKernels {
        /// `y[k] = x[index[k]]`.
        fn gather_rows(x: &Matrix, index: &RowIndex, y: &mut Matrix) -> Result<()> {
            |dry|
            let (rows, bytes) = listed(index, x);
            dry.tell(Work::new("gather rows", x.dtype(), WorkKind::Stream { read: bytes, written: bytes, rows }))
        }

        /// `y[i] = Σ x[k]` over all k with `index[k] = i`, written as `write` says.
        fn scatter_rows(x: &Matrix, index: &RowIndex, y: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            let (rows, bytes) = listed(index, x);
            let (op, kind) = match write {
                Write::Set => ("scatter rows", WorkKind::Stream { read: bytes, written: y.bytes(), rows: y.rows() }),
                // As many rows are read and written as are added.
                Write::Add => ("scatter rows, added", WorkKind::Stream { read: 2 * bytes, written: bytes, rows }),
            };
            dry.tell(Work::new(op, x.dtype(), kind))
        }

        /// Entry k of `list` is a row of one of the matrices `from`: it becomes row k of `y`.
        fn gather_many(from: &[&Matrix], list: &ManyRows, y: &mut Matrix) -> Result<()> {
            |dry|
            let (rows, bytes) = (list.len(), y.bytes());
            dry.tell(Work::new("gather rows", y.dtype(), WorkKind::Stream { read: bytes, written: bytes, rows }))
        }

        /// Adds row k of `x` to the row of one of the matrices `to` that is entry k of `list`; nowhere if that matrix
        /// is not there.
        fn scatter_many(x: &Matrix, list: &ManyRows, to: &mut [Option<Matrix>]) -> Result<()> {
            |dry|
            let rows = to.iter().zip(list.parts()).filter(|(to, _)| to.is_some()).map(|(_, part)| part.entries.len()).sum();
            let bytes = rows * x.cols() * x.dtype().size();
            let kind = WorkKind::Stream { read: 2 * bytes, written: bytes, rows };
            dry.tell(Work::new("scatter rows, added", x.dtype(), kind))
        }
    }
}

/// The rows of `x` that `index` lists.
pub fn gather(tape: &mut Tape, x: &Var, index: &Rc<RowIndex>) -> Result<Var> {
    let (cols, dtype, device) = (x.value().cols(), x.value().dtype(), tape.device().clone());
    x.value().expect(OP, "x", index.rows, cols)?;
    let mut y = device.uninit(OP, index.index.len(), cols, dtype, Tag::Activations)?;
    device.backend().gather_rows(x.value(), index, &mut y)?;
    Ok(tape.push(&[x], y, || GatherBackward(Rc::clone(index))))
}

/// A matrix of all rows: each the sum of the rows of `x` whose index it is, zero where there are none.
pub fn scatter(tape: &mut Tape, x: &Var, index: &Rc<RowIndex>) -> Result<Var> {
    let (cols, dtype, device) = (x.value().cols(), x.value().dtype(), tape.device().clone());
    x.value().expect(OP, "x", index.index.len(), cols)?;
    let mut y = device.uninit(OP, index.rows, cols, dtype, Tag::Activations)?;
    device.backend().scatter_rows(x.value(), index, &mut y, Write::Set)?;
    Ok(tape.push(&[x], y, || ScatterBackward(Rc::clone(index))))
}

struct GatherBackward(Rc<RowIndex>);

impl Backward for GatherBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(dy) = grads.output(0) else { return Ok(()) };
        let device = grads.device().clone();
        let (mut dx, write) = grads.begin(OP, 0, self.0.rows, dy.cols(), dy.dtype())?;
        device.backend().scatter_rows(&dy, &self.0, &mut dx, write)?;
        grads.put(0, dx)
    }
}

struct ScatterBackward(Rc<RowIndex>);

impl Backward for ScatterBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(dy) = grads.output(0) else { return Ok(()) };
        let device = grads.device().clone();
        let mut dx = device.uninit(OP, self.0.index.len(), dy.cols(), dy.dtype(), Tag::Activations)?;
        device.backend().gather_rows(&dy, &self.0, &mut dx)?;
        grads.put(0, dx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::residual::residual;
    use crate::ops::tests::*;

    gradients!(|device| {
        for (rows, list) in [(5, vec![3, 0, 3, 3, 1]), (4, vec![]), (3, vec![2, 1, 0])] {
            let index = Rc::new(RowIndex::new(&device, rows, list.clone()).unwrap());
            let x = upload(&device, 1, (rows, 3), 1.0);
            check(&device, std::slice::from_ref(&x), &[], |tape, x| gather(tape, &x[0], &index)).unwrap();
            let x_listed = upload(&device, 2, (list.len(), 3), 1.0);
            check(&device, &[x_listed], &[], |tape, x| scatter(tape, &x[0], &index)).unwrap();
            // The rows go elsewhere too: gradients are added to what is there.
            check(&device, &[x], &[], |tape, x| {
                let y = gather(tape, &x[0], &index)?;
                let y = scatter(tape, &y, &index)?;
                residual(tape, &x[0], &y, None)
            })
            .unwrap();
        }
    });

    /// 900 rows listed 2000 times, one of them very often.
    fn list() -> Vec<u32> {
        (0..2000).map(|k| if k % 5 == 0 { 7 } else { k * 31 % 900 }).collect()
    }

    fn case() -> Case {
        Case::new(vec![(900, 40), (2000, 40)], vec![], |tape, x, _| {
            let index = Rc::new(RowIndex::new(tape.device(), 900, list())?);
            Ok(vec![gather(tape, &x[0], &index)?, scatter(tape, &x[1], &index)?])
        })
    }

    agrees_with_f64!([(case(), 1e-6, 1e-2)], case());

    #[test]
    fn rows_are_where_the_index_says() {
        let device = Device::cpu();
        let index = Rc::new(RowIndex::new(&device, 4, vec![2, 2, 0]).unwrap());
        let mut tape = Tape::new(&device);
        let x = tape.leaf(device.upload(4, 1, &[1.0, 2.0, 3.0, 4.0], Tag::Activations).unwrap());
        let y = gather(&mut tape, &x, &index).unwrap();
        assert_eq!(f64s(y.value()), [3.0, 3.0, 1.0]);
        assert_eq!(f64s(scatter(&mut tape, &y, &index).unwrap().value()), [1.0, 0.0, 6.0, 0.0]);
    }

    #[test]
    fn rows_that_are_not_there_are_refused() {
        let device = Device::cpu();
        assert!(RowIndex::new(&device, 4, vec![0, 4]).is_err());
        let index = Rc::new(RowIndex::new(&device, 4, vec![0]).unwrap());
        let mut tape = Tape::new(&device);
        let x = tape.leaf(upload(&device, 1, (5, 2), 1.0));
        assert!(gather(&mut tape, &x, &index).is_err());
        assert!(scatter(&mut tape, &x, &index).is_err());
    }
}
