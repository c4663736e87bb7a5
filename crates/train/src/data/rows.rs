//! Some rows of what is stored, or all of them: a rank takes its own and never copies the others.

use std::borrow::Cow;

use graphweft_graph::dataset::{Dense, SparseFeatures};
use rayon::prelude::*;

/// Rows that a thread copies at a time.
const AT_A_TIME: usize = 1 << 12;

/// The rows with these ids, in this order; all of them, as they are, where `None` is given.
pub(crate) type Which<'a> = Option<&'a [u64]>;

/// Rows of numbers.
pub(crate) fn numbers<'a, T: Copy>(values: &'a [T], width: usize, which: Which<'_>) -> Cow<'a, [T]> {
    match which {
        None => values.into(),
        Some(ids) => {
            // As large as it will be: growing by doubling would take three times the memory on the way.
            let mut some = Vec::with_capacity(ids.len() * width);
            ids.iter().for_each(|id| some.extend_from_slice(&values[*id as usize * width..][..width]));
            some.into()
        }
    }
}

/// Rows of a matrix, as f32.
pub(crate) fn dense<'a>(m: &'a Dense, which: Which<'_>) -> Cow<'a, [f32]> {
    match m {
        Dense::F32 { values, width } => numbers(values, *width, which),
        Dense::F16 { values, width } => numbers(values, *width, which).iter().map(|x| x.to_f32()).collect(),
    }
}

/// Copies rows of a matrix to `out`, as f32, with all threads: what is mapped comes faster where several wait for the
/// disk.
pub(crate) fn copy_dense<I: Copy + Into<u64> + Sync>(m: &Dense, ids: &[I], out: &mut [f32]) {
    let width = m.width().max(1);
    let parts = out.par_chunks_mut(width * AT_A_TIME).zip(ids.par_chunks(AT_A_TIME));
    parts.for_each(|(out, ids)| {
        for (to, id) in out.chunks_exact_mut(width).zip(ids) {
            let id: u64 = (*id).into();
            let from = id as usize * width..(id as usize + 1) * width;
            match m {
                Dense::F32 { values, .. } => to.copy_from_slice(&values[from]),
                Dense::F16 { values, .. } => to.iter_mut().zip(&values[from]).for_each(|(to, x)| *to = x.to_f32()),
            }
        }
    });
}

/// Rows of a sparse matrix.
pub(crate) fn sparse(m: &SparseFeatures, which: Which<'_>) -> SparseFeatures {
    let Some(ids) = which else { return m.clone() };
    let entries = |id: &u64| m.indptr[*id as usize] as usize..m.indptr[*id as usize + 1] as usize;
    let mut indptr = Vec::with_capacity(ids.len() + 1);
    indptr.push(0);
    let mut end = 0;
    indptr.extend(ids.iter().map(|id| {
        end += entries(id).len() as u64;
        end
    }));
    let indices: Vec<u32> = ids.iter().flat_map(|id| &m.indices[entries(id)]).copied().collect();
    let data = m.data.as_ref().map(|data| ids.iter().flat_map(|id| &data[entries(id)]).copied().collect::<Vec<f32>>());
    SparseFeatures { indptr: indptr.into(), indices: indices.into(), data: data.map(Into::into), width: m.width }
}

/// Rows of features, on the host.
pub(crate) enum Rows<'a> {
    Dense { values: Cow<'a, [f32]>, width: usize },
    Sparse(SparseFeatures),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_asked_for() {
        let m = Dense::F32 { values: (0..8).map(|k| k as f32).collect::<Vec<_>>().into(), width: 2 };
        assert_eq!(*dense(&m, Some(&[3, 0, 3])), [6.0, 7.0, 0.0, 1.0, 6.0, 7.0]);
        assert_eq!(dense(&m, None).len(), 8);
        assert!(dense(&m, Some(&[])).is_empty());
        let mut copied = [0.0; 6];
        copy_dense(&m, &[3u32, 0, 3], &mut copied);
        assert_eq!(copied, [6.0, 7.0, 0.0, 1.0, 6.0, 7.0]);
        let sparse_rows =
            |data| SparseFeatures { indptr: vec![0, 2, 2, 3].into(), indices: vec![0, 4, 1].into(), data, width: 5 };
        let some = sparse(&sparse_rows(Some(vec![0.5, 1.5, 2.5].into())), Some(&[2, 1, 0]));
        assert_eq!((&some.indptr[..], &some.indices[..]), (&[0, 1, 1, 3][..], &[1, 0, 4][..]));
        assert_eq!(some.data.unwrap()[..], [2.5, 0.5, 1.5]);
        assert_eq!(sparse(&sparse_rows(None), None), sparse_rows(None));
    }
}
