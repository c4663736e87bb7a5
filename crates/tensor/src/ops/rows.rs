//! Rows picked by index, and the adjoint: rows added up by index.
//!
//! [`gather`] makes row k of the output from row `index[k]`; [`scatter`] adds row k of its input to row `index[k]`. Each is the
//! backward half of the other. The index is prepared once ([`RowIndex`]): positions are grouped by the row they point to, so that
//! a scatter writes each row once, adding in order of position. No atomics, the same bits every time.

use std::ops::Range;
use std::rc::Rc;

use crate::device::{Charge, Device};
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "rows";

/// A list of rows, some of which may be listed more than once.
#[derive(Debug)]
pub struct RowIndex {
    rows: usize,
    entries: usize,
    /// Empty where only some of the entries count.
    index: Vec<u32>,
    groups: Groups,
    /// A copy where the kernels are, if that is not the host; made by the backend at first use.
    #[cfg(feature = "cuda")]
    resident: std::cell::OnceCell<Rc<dyn std::any::Any>>,
    _charge: Charge,
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
        let problem = |problem| Error::Argument { op: OP, problem };
        if let Some((k, i)) = index.iter().enumerate().find(|(_, i)| **i as usize >= rows) {
            return Err(problem(format!("index {k} is row {i}, but there are {rows} rows")));
        }
        let count = u32::try_from(index.len()).map_err(|_| problem(format!("{} indices", index.len())))?;
        let groups = Groups::new(&index, (0..count).collect());
        Ok(Self::with_groups(device, rows, index.len(), index, groups))
    }

    /// The same list, of which only the entries in `ranges` count: for scattering alone. Ranges must not overlap.
    pub fn part(&self, device: &Device, ranges: impl Iterator<Item = Range<usize>>) -> Result<Self> {
        let mut positions = Vec::new();
        for range in ranges {
            if range.end > self.index.len() {
                let problem = format!("entries {range:?} of a list of {}", self.index.len());
                return Err(Error::Argument { op: OP, problem });
            }
            positions.extend(range.start as u32..range.end as u32);
        }
        let groups = Groups::new(&self.index, positions);
        Ok(Self::with_groups(device, self.rows, self.entries, Vec::new(), groups))
    }

    fn with_groups(device: &Device, rows: usize, entries: usize, index: Vec<u32>, groups: Groups) -> Self {
        let Groups { targets, starts, positions } = &groups;
        let bytes = 4 * (index.len() + targets.len() + starts.len() + positions.len());
        let _charge = device.charge(Tag::Graph, bytes as u64);
        #[cfg(feature = "cuda")]
        let resident = std::cell::OnceCell::new();
        Self {
            rows,
            entries,
            index,
            groups,
            #[cfg(feature = "cuda")]
            resident,
            _charge,
        }
    }

    /// Rows of the matrix that the list points into.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// The list; nothing if it is a [part](RowIndex::part).
    pub fn index(&self) -> &[u32] {
        &self.index
    }

    /// Entries of the list, whether they count or not: rows of what is scattered by it.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether the list has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entries that count.
    pub(crate) fn counted(&self) -> usize {
        self.groups.positions.len()
    }

    /// The list, for gathering.
    ///
    /// # Errors
    /// If it is a part: nobody knows what the other rows are.
    pub(crate) fn whole(&self) -> Result<&[u32]> {
        if self.index.len() == self.entries {
            return Ok(&self.index);
        }
        Err(Error::Argument { op: OP, problem: "a part of a list is for scattering alone".into() })
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
    /// Of a list, by those `positions` that count, which increase.
    fn new(index: &[u32], mut positions: Vec<u32>) -> Self {
        positions.sort_by_key(|k| (index[*k as usize], *k));
        let (mut targets, mut starts) = (Vec::new(), Vec::new());
        for (at, k) in (0..).zip(&positions) {
            let target = index[*k as usize];
            if targets.last() != Some(&target) {
                targets.push(target);
                starts.push(at);
            }
        }
        starts.push(positions.len() as u32);
        Self { targets, starts, positions }
    }

    /// The listed rows within `rows`, each with the positions that list it.
    pub(crate) fn within(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, &[u32])> {
        let at = |row: usize| self.targets.partition_point(|t| (*t as usize) < row);
        let (first, end) = (at(rows.start), at(rows.end));
        self.targets[first..end]
            .iter()
            .zip(self.starts[first..=end].windows(2))
            .map(|(target, ends)| (*target as usize, &self.positions[ends[0] as usize..ends[1] as usize]))
    }
}

/// What a backend does with rows.
pub trait RowKernels {
    /// `y[k] = x[index[k]]`.
    fn gather_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix) -> Result<()>;

    /// `y[i] = Σ x[k]` over all k that count with `index[k] = i`, added to what `y` holds if `add`.
    fn scatter_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix, add: bool) -> Result<()>;
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
    device.backend().scatter_rows(x.value(), index, &mut y, false)?;
    Ok(tape.push(&[x], y, || ScatterBackward(Rc::clone(index))))
}

struct GatherBackward(Rc<RowIndex>);

impl Backward for GatherBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(dy) = grads.output(0) else { return Ok(()) };
        let device = grads.device().clone();
        let collected = grads.take(0);
        let add = collected.is_some();
        let mut dx = match collected {
            Some(dx) => dx,
            None => device.uninit(OP, self.0.rows, dy.cols(), dy.dtype(), Tag::Activations)?,
        };
        device.backend().scatter_rows(&dy, &self.0, &mut dx, add)?;
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
    use crate::gradcheck::check;
    use crate::ops::residual::residual;
    use crate::ops::tests::{Case, agrees_with_f64, f64s, on_any_threads, upload};

    #[test]
    fn gradients() {
        let device = Device::cpu();
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
    }

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

    agrees_with_f64!([(case(), 1e-6, 1e-2)]);

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        on_any_threads(&case());
    }

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

    fn what_counts_of_a_list_is_scattered(device: &Device) {
        // Rows of every alignment.
        for cols in [1, 2, 3, 4, 8, 20] {
            let index = RowIndex::new(device, 4, vec![2, 2, 0, 3, 2]).unwrap();
            let numbers =
                |first: usize, rows: usize| (first..first + rows * cols).map(|k| k as f32).collect::<Vec<_>>();
            let (x, y) = (numbers(0, 4), numbers(1000, 5));
            let [mut sums, from] =
                [(4, &x), (5, &y)].map(|(rows, m)| device.upload(rows, cols, m, Tag::Activations).unwrap());
            let part = index.part(device, [1..3, 4..5].into_iter()).unwrap();
            device.backend().scatter_rows(&from, &part, &mut sums, true).unwrap();
            let row = |of: &[f32], k: usize| of[k * cols..][..cols].to_vec();
            let add = |a: Vec<f32>, b: Vec<f32>| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
            let third = add(add(row(&x, 2), row(&y, 1)), row(&y, 4));
            let wanted = [add(row(&x, 0), row(&y, 2)), row(&x, 1), third, row(&x, 3)].concat();
            assert_eq!(sums.to_vec::<f32>().unwrap(), wanted);

            let mut to = device.upload(5, cols, &y, Tag::Activations).unwrap();
            let e = device.backend().gather_rows(&sums, &part, &mut to).unwrap_err().to_string();
            assert!(e.contains("scattering alone"), "{e}");
            assert!(index.part(device, std::iter::once(3..6)).is_err());
            let mut wrong = device.upload(3, cols, &y[..3 * cols], Tag::Activations).unwrap();
            assert!(device.backend().scatter_rows(&wrong, &part, &mut sums, true).is_err());
            assert!(device.backend().gather_rows(&sums, &index, &mut wrong).is_err());
            assert_eq!(sums.to_vec::<f32>().unwrap(), wanted, "refused before anything is written");
        }
    }

    crate::ops::tests::on_every_device!(what_counts_of_a_list_is_scattered);

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
