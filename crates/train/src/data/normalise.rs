//! Features whose rows are divided by their sums.

use graphweft_graph::dataset::{Dense, Features, SparseFeatures};

use super::rows;

/// Each row divided by the sum of its absolute values; rows of zeros stay.
pub(super) fn normalised(features: &Features) -> Features {
    let divide = |row: &mut [f32]| {
        let sum: f64 = row.iter().map(|x| f64::from(x.abs())).sum();
        if sum > 0.0 {
            row.iter_mut().for_each(|x| *x = (f64::from(*x) / sum) as f32);
        }
    };
    match features {
        Features::Dense(m) => {
            let (mut values, width) = (rows::dense(m, None).into_owned(), m.width());
            values.chunks_mut(width.max(1)).for_each(divide);
            Features::Dense(Dense::F32 { values: values.into(), width })
        }
        Features::Sparse(m) => {
            let mut data = m.data.as_ref().map_or_else(|| vec![1.0; m.indices.len()], |d| d.to_vec());
            for row in m.indptr.windows(2) {
                divide(&mut data[row[0] as usize..row[1] as usize]);
            }
            Features::Sparse(SparseFeatures { data: Some(data.into()), ..m.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_by_their_sums() {
        let width = 2;
        let m = Features::Dense(Dense::F32 { values: vec![1.0, -3.0, 0.0, 0.0].into(), width });
        let values = vec![0.25, -0.75, 0.0, 0.0].into();
        assert_eq!(normalised(&m), Features::Dense(Dense::F32 { values, width }));
        let indices = vec![0u32, 1, 0];
        let sparse =
            |data| SparseFeatures { indptr: vec![0, 2, 3, 3].into(), indices: indices.clone().into(), data, width };
        let expected = Features::Sparse(sparse(Some(vec![0.5, 0.5, 1.0].into())));
        assert_eq!(normalised(&Features::Sparse(sparse(None))), expected);
        assert_eq!(normalised(&Features::Sparse(sparse(Some(vec![2.0, 2.0, 7.0].into())))), expected);
    }
}
