//! Rows picked from many matrices at once, and the adjoint: rows added to many matrices at once.
//!
//! What is put together from pieces that lie apart, such as the chunks of a pipeline, would otherwise take a call for
//! each of them, which costs a GPU more than the rows do, or a copy of all pieces. Who may see which piece can change
//! from call to call; the lists ([`ManyRows`]) stay the same.

use std::ops::Range;
#[cfg(feature = "cuda")]
use std::rc::Rc;

use crate::device::{Charge, Device};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;

const OP: &str = "rows of many";

/// Lists of rows, one for each of many matrices, one after another.
#[derive(Debug)]
pub struct ManyRows {
    parts: Vec<Part>,
    rows: Vec<u32>,
    /// A copy where the kernels are, if that is not the host; made by the backend at first use.
    #[cfg(feature = "cuda")]
    resident: std::cell::OnceCell<Rc<dyn std::any::Any>>,
    _charge: Charge,
}

/// What is listed of one matrix.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Rows of the matrix.
    pub(crate) rows: usize,
    /// The entries of its list among all.
    pub(crate) entries: Range<usize>,
}

impl ManyRows {
    /// Prepares the rows that are listed of each matrix, given with how many it has. Lists ascend, and have no row
    /// twice.
    ///
    /// # Errors
    /// If they do not, or a row is not there.
    ///
    /// ```
    /// use graphweft_tensor::ops::many_rows::ManyRows;
    /// use graphweft_tensor::{Device, Tag};
    ///
    /// let device = Device::cpu();
    /// let list = ManyRows::new(&device, [(3, vec![0, 2]), (2, vec![1])])?;
    /// let a = device.upload(3, 1, &[10f32, 11.0, 12.0], Tag::Activations)?;
    /// let b = device.upload(2, 1, &[20f32, 21.0], Tag::Activations)?;
    /// let mut y = device.upload(3, 1, &[0f32; 3], Tag::Activations)?;
    /// device.backend().gather_many(&[&a, &b], &list, &mut y)?;
    /// assert_eq!(y.to_vec::<f32>()?, [10.0, 12.0, 21.0]);
    /// # Ok::<_, graphweft_tensor::Error>(())
    /// ```
    pub fn new(device: &Device, lists: impl IntoIterator<Item = (usize, Vec<u32>)>) -> Result<Self> {
        let (mut parts, mut rows) = (Vec::new(), Vec::new());
        for (number, (count, list)) in lists.into_iter().enumerate() {
            let wrong = |what: String| Err(Error::Argument { op: OP, problem: format!("list {number} {what}") });
            if let Some(pair) = list.windows(2).find(|pair| pair[0] >= pair[1]) {
                return wrong(format!("has row {} before row {}", pair[0], pair[1]));
            }
            if let Some(last) = list.last().filter(|row| **row as usize >= count) {
                return wrong(format!("has row {last} of {count}"));
            }
            let start = rows.len();
            rows.extend(list);
            parts.push(Part { rows: count, entries: start..rows.len() });
        }
        let _charge = device.charge(Tag::Graph, (4 * rows.len()) as u64);
        #[cfg(feature = "cuda")]
        let resident = std::cell::OnceCell::new();
        Ok(Self {
            parts,
            rows,
            #[cfg(feature = "cuda")]
            resident,
            _charge,
        })
    }

    /// Entries of all lists.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows of each matrix.
    pub fn counts(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|part| part.rows)
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The rows of all lists.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn resident(&self) -> &std::cell::OnceCell<Rc<dyn std::any::Any>> {
        &self.resident
    }

    /// Fails unless there is a matrix, or nothing, for every list, each with the rows that it should have.
    pub(crate) fn expect<'a>(
        &self,
        matrices: impl ExactSizeIterator<Item = Option<&'a Matrix>>,
        cols: usize,
        dtype: DType,
    ) -> Result<()> {
        if matrices.len() != self.parts.len() {
            let problem = format!("{} matrices for {} lists", matrices.len(), self.parts.len());
            return Err(Error::Argument { op: OP, problem });
        }
        for (m, part) in matrices.zip(&self.parts).filter_map(|(m, part)| Some((m?, part))) {
            m.expect(OP, "matrix of a list", part.rows, cols)?;
            if m.dtype() != dtype {
                let problem = format!("a matrix of {} among those of {dtype}", m.dtype());
                return Err(Error::Argument { op: OP, problem });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::numbers;

    /// Lists of which some are empty, and more of them than a kernel takes at once.
    fn lists(count: usize) -> Vec<(usize, Vec<u32>)> {
        let list = |k: u32| (0..k % 5 + 1).filter(|row| !(row * 7 + k).is_multiple_of(3)).collect();
        (0..count as u32).map(|k| ((k % 5 + 1) as usize, list(k))).collect()
    }

    fn rows_are_picked_from_many_and_added_to_many(device: &Device) {
        for (count, cols) in [(1, 4), (3, 1), (7, 20), (64, 8), (150, 3)] {
            for dtype in [DType::F32, DType::F64, DType::Bf16] {
                let lists = lists(count);
                let list = ManyRows::new(device, lists.clone()).unwrap();
                // Whole numbers, which every type holds.
                let whole = |seed: u64, rows: usize| -> Vec<f64> {
                    numbers(seed, rows * cols).into_iter().map(|x| (x * 20.0).round()).collect()
                };
                let upload = |rows: usize, values: &[f64]| {
                    let m = device.upload(rows, cols, values, Tag::Activations).unwrap();
                    device.convert("test", &m, dtype).unwrap()
                };
                let values = |m: &Matrix| device.convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap();
                let of: Vec<Vec<f64>> = lists.iter().zip(0..).map(|((rows, _), seed)| whole(seed, *rows)).collect();
                let from: Vec<Matrix> = of.iter().zip(&lists).map(|(of, (rows, _))| upload(*rows, of)).collect();
                let mut y = upload(list.len(), &vec![-1.0; list.len() * cols]);
                device.backend().gather_many(&from.iter().collect::<Vec<_>>(), &list, &mut y).unwrap();
                let picked = |(of, (_, list)): (&Vec<f64>, &(usize, Vec<u32>))| {
                    list.iter().flat_map(|row| of[*row as usize * cols..][..cols].to_vec()).collect::<Vec<f64>>()
                };
                assert_eq!(values(&y), of.iter().zip(&lists).flat_map(picked).collect::<Vec<f64>>());

                // To every other one, on top of what is there.
                let mut to: Vec<Option<Matrix>> =
                    from.into_iter().enumerate().map(|(k, m)| (k % 2 == 0).then_some(m)).collect();
                let more = whole(99, list.len());
                device.backend().scatter_many(&upload(list.len(), &more), &list, &mut to).unwrap();
                for (k, to) in to.iter().enumerate().filter_map(|(k, to)| Some((k, to.as_ref()?))) {
                    let mut wanted = of[k].clone();
                    for (entry, row) in list.parts[k].entries.clone().zip(&lists[k].1) {
                        for c in 0..cols {
                            wanted[*row as usize * cols + c] += more[entry * cols + c];
                        }
                    }
                    assert_eq!(values(to), wanted, "{k} of {count}, {cols} columns of {dtype}");
                }
            }
        }
    }

    fn what_does_not_fit_is_refused(device: &Device) {
        let list = ManyRows::new(device, [(2, vec![1]), (3, vec![0, 2])]).unwrap();
        let new = |rows: usize| device.upload(rows, 2, &vec![1f32; 2 * rows], Tag::Activations).unwrap();
        let (a, b, mut y) = (new(2), new(3), new(3));
        assert!(device.backend().gather_many(&[&a], &list, &mut y).is_err(), "a list without a matrix");
        assert!(device.backend().gather_many(&[&b, &a], &list, &mut y).is_err(), "other rows");
        assert!(device.backend().gather_many(&[&a, &b], &list, &mut new(4)).is_err(), "too many to fill");
        let wide = device.convert("test", &b, DType::F64).unwrap();
        assert!(device.backend().gather_many(&[&a, &wide], &list, &mut y).is_err(), "another type");
        assert!(device.backend().scatter_many(&new(2), &list, &mut [None, Some(b)]).is_err(), "too few to add");
        for wrong in [vec![1, 0], vec![0, 0], vec![2]] {
            assert!(ManyRows::new(device, [(2, wrong)]).is_err());
        }
    }

    crate::ops::tests::on_every_device!(rows_are_picked_from_many_and_added_to_many, what_does_not_fit_is_refused);
}
