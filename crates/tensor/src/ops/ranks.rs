//! How many rows score higher than what is right, and how many the same: what exact ranks are counted from.
//!
//! A score is the plain product of a query with a row, in f64, its columns added one after another: the same bits on
//! every device and for any number of threads, so that equal scores are equal everywhere. No matrix of scores is made:
//! for every query and 32 rows one number comes back, which holds both counts.
//!
//! Queries stand in groups of [`GROUP`], column by column: that many numbers side by side are what a vector of the CPU
//! and a warp of a GPU load at once. A row is compared with a whole group while it is in registers.

use rayon::prelude::*;

use crate::cpu::{Isa, host, host_mut};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::custom::{GpuKernel, Kernel, custom};

const OP: &str = "ranks";
/// Rows that are counted together.
const PIECE: usize = 32;
/// Queries side by side.
pub const GROUP: usize = 32;
/// Numbers of a vector, and rows that are compared with it at a time.
const LANES: usize = 8;
/// What an equal score adds to a count, beside the 1 of a higher one.
const EQUAL: u32 = 64;

/// Queries and what their right answers score, on a device.
pub struct Queries {
    columns: usize,
    /// Groups, then columns; a query per column of the matrix.
    numbers: Matrix,
    /// A row; NaN where a group has no query, which nothing is higher than or equal to.
    right: Matrix,
}

impl Queries {
    /// `count` queries of so many columns: number `k` has `query(k)`, whose right answer scores `right(k)`.
    ///
    /// # Errors
    /// If memory is short.
    pub fn new<'a>(
        device: &Device,
        [count, columns]: [usize; 2],
        query: impl Fn(usize) -> &'a [f64],
        right: impl Fn(usize) -> f64,
    ) -> Result<Self> {
        let groups = count.div_ceil(GROUP);
        let numbers = device.upload_from(groups * columns, GROUP, Tag::Workspace, || {
            let mut all = vec![0.0; groups * columns * GROUP];
            for k in 0..count {
                let group = &mut all[k / GROUP * columns * GROUP..];
                for (c, x) in query(k).iter().enumerate() {
                    group[c * GROUP + k % GROUP] = *x;
                }
            }
            all
        })?;
        let right = device.upload_from(1, groups * GROUP, Tag::Workspace, || -> Vec<f64> {
            (0..groups * GROUP).map(|k| if k < count { right(k) } else { f64::NAN }).collect()
        })?;
        Ok(Self { columns, numbers, right })
    }

    /// The counts of all pieces of `rows`, which are f64: a row per piece, a column per query.
    ///
    /// # Errors
    /// If rows have another number of columns, or memory is short.
    pub fn compare(&self, rows: &Matrix) -> Result<Matrix> {
        if rows.cols() != self.columns {
            let problem = format!("rows have {} columns, queries {}", rows.cols(), self.columns);
            return Err(Error::Argument { op: OP, problem });
        }
        custom(&Counts, &[rows, &self.numbers, &self.right], rows.rows().div_ceil(PIECE), self.right.cols())
    }
}

/// The higher and the equal scores that a count has.
pub fn higher_and_equal(count: f64) -> [i64; 2] {
    let count = count as i64;
    [count % i64::from(EQUAL), count / i64::from(EQUAL)]
}

struct Counts;

impl Kernel for Counts {
    fn name(&self) -> &'static str {
        OP
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        let columns = from[0].cols();
        let (rows, queries) = (host::<f64>(OP, "rows", from[0])?, host::<f64>(OP, "queries", from[1])?);
        let (right, all) = (host::<f64>(OP, "right scores", from[2])?, to.cols());
        let isa = Isa::detect();
        let pieces = host_mut::<f64>(OP, "counts", to)?.par_chunks_mut(all.max(1));
        pieces.zip(rows.par_chunks((PIECE * columns).max(1))).for_each(|(to, rows)| {
            isa.run(
                #[inline(always)]
                || count_piece(columns, rows, queries, right, to),
            );
        });
        Ok(())
    }

    fn gpu(&self) -> Option<GpuKernel> {
        // SAFETY: a thread of the result compares the rows of its piece, as far as there are any, with its query.
        Some(unsafe { GpuKernel::new(include_str!("../cuda/ranks.cu"), "ranks") })
    }
}

/// The counts of some rows for every query.
#[inline(always)]
fn count_piece(columns: usize, rows: &[f64], queries: &[f64], right: &[f64], to: &mut [f64]) {
    to.fill(0.0);
    for rows in rows.chunks(LANES * columns) {
        for (k, (right, to)) in right.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)).enumerate() {
            let group = &queries[k * LANES / GROUP * columns * GROUP + k * LANES % GROUP..];
            let counted = rows.len() / columns;
            let sums = if counted == LANES { scores(columns, rows, group) } else { few(columns, rows, group) };
            for sums in &sums[..counted] {
                for lane in 0..LANES {
                    let (higher, equal) = (sums[lane] > right[lane], sums[lane] == right[lane]);
                    to[lane] += f64::from(u32::from(higher) + EQUAL * u32::from(equal));
                }
            }
        }
    }
}

/// The scores of eight rows with eight queries.
#[inline(always)]
fn scores(columns: usize, rows: &[f64], group: &[f64]) -> [[f64; LANES]; LANES] {
    let mut sums = [[0.0; LANES]; LANES];
    for c in 0..columns {
        let Some(query) = group[c * GROUP..].first_chunk::<LANES>() else { break };
        for (row, sums) in sums.iter_mut().enumerate() {
            let x = rows[row * columns + c];
            for lane in 0..LANES {
                sums[lane] += query[lane] * x;
            }
        }
    }
    sums
}

/// The same of fewer rows.
#[inline(always)]
fn few(columns: usize, rows: &[f64], group: &[f64]) -> [[f64; LANES]; LANES] {
    let mut sums = [[0.0; LANES]; LANES];
    for (row, sums) in rows.chunks_exact(columns).zip(&mut sums) {
        for (x, query) in row.iter().zip(group.chunks(GROUP)) {
            for lane in 0..LANES {
                sums[lane] += query[lane] * x;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dry::tests::takes_as_much;
    use crate::gradcheck::numbers;
    use crate::ops::graphs::f64s;
    use crate::ops::tests::on_every_device;

    on_every_device!(equals_plain_loops, ties_are_counted);

    /// By plain loops.
    fn plain(rows: &[f64], columns: usize, query: &[f64], right: f64) -> [i64; 2] {
        let score = |row: &[f64]| row.iter().zip(query).fold(0.0, |sum, (x, q)| sum + q * x);
        let scores: Vec<f64> = rows.chunks(columns).map(score).collect();
        [scores.iter().filter(|s| **s > right).count() as i64, scores.iter().filter(|s| **s == right).count() as i64]
    }

    fn found(device: &Device, rows: &[f64], columns: usize, queries: &[&[f64]], right: &[f64]) -> Vec<[i64; 2]> {
        let asked = Queries::new(device, [queries.len(), columns], |k| queries[k], |k| right[k]).unwrap();
        let rows = device.upload(rows.len() / columns, columns, rows, Tag::Activations).unwrap();
        let counts = f64s(&asked.compare(&rows).unwrap());
        let all = right.len().div_ceil(GROUP) * GROUP;
        let mut sums = vec![[0; 2]; right.len()];
        for piece in counts.chunks(all) {
            for (sum, count) in sums.iter_mut().zip(piece) {
                let [higher, equal] = higher_and_equal(*count);
                *sum = [sum[0] + higher, sum[1] + equal];
            }
        }
        sums
    }

    fn equals_plain_loops(device: &Device) {
        for (rows, columns, asked) in [(1, 1, 1), (32, 4, 32), (33, 7, 33), (100, 20, 70), (7, 3, 5)] {
            let (z, q) = (numbers(1, rows * columns), numbers(2, asked * columns));
            let queries: Vec<&[f64]> = q.chunks(columns).collect();
            // What a row that is there scores: it is equal to itself, whatever the rounding.
            let score = |k: usize| {
                let row = &z[k % rows * columns..][..columns];
                row.iter().zip(queries[k]).fold(0.0, |sum, (x, q)| sum + q * x)
            };
            let right: Vec<f64> = (0..asked).map(score).collect();
            let expected: Vec<_> = queries.iter().zip(&right).map(|(q, r)| plain(&z, columns, q, *r)).collect();
            assert_eq!(found(device, &z, columns, &queries, &right), expected, "{rows} × {columns}, {asked}");
            assert!(expected.iter().all(|[_, equal]| *equal > 0));
        }
    }

    fn ties_are_counted(device: &Device) {
        let rows = [1.0, 2.0, 2.0, 3.0, 2.0];
        assert_eq!(found(device, &rows, 1, &[&[1.0], &[-1.0]], &[2.0, -2.0]), [[1, 3], [1, 3]]);
    }

    #[test]
    fn it_takes_what_it_gives_and_refuses_other_widths() {
        takes_as_much("ranks", |device| {
            let rows = device.uninit(OP, 70, 3, crate::DType::F64, Tag::Activations).unwrap();
            Queries::new(device, [40, 3], |_| &[0.0; 3], |_| 0.0).unwrap().compare(&rows).unwrap()
        });
        let device = Device::cpu();
        let asked = Queries::new(&device, [1, 3], |_| &[0.0; 3], |_| 0.0).unwrap();
        assert!(asked.compare(&device.upload(1, 2, &[0.0f64; 2], Tag::Activations).unwrap()).is_err());
    }
}
