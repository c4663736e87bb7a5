//! Category columns as features: each category of each column is a column of its own, with ones in it. A linear layer
//! over such rows looks up a row for every category and adds them up, and is computed so.

use graphweft_graph::Dataset;
use graphweft_graph::dataset::{Categories, Dense, Features, SparseFeatures};

use super::rows;

/// The features of the nodes of a dataset, category columns after the others; nothing if it has neither.
pub(crate) fn features_of(dataset: &Dataset) -> Option<Features> {
    let Some(categories) = dataset.categories() else { return dataset.features().cloned() };
    let parts = Parts::of(dataset.features(), categories);
    Some(Features::Sparse(parts.together()))
}

/// What rows are made of.
struct Parts<'a> {
    before: Option<SparseFeatures>,
    categories: &'a Categories,
}

impl<'a> Parts<'a> {
    fn of(features: Option<&Features>, categories: &'a Categories) -> Self {
        let before = features.map(|features| match features {
            Features::Sparse(m) => m.clone(),
            Features::Dense(m) => sparse(m, categories.rows()),
        });
        Self { before, categories }
    }

    fn together(&self) -> SparseFeatures {
        let (rows, columns) = (self.categories.rows(), self.categories.sizes().len());
        let start = self.before.as_ref().map_or(0, |m| m.width) as u32;
        let ends: Vec<u32> = std::iter::once(start)
            .chain(self.categories.sizes().iter().scan(start, |end, size| {
                *end += size;
                Some(*end)
            }))
            .collect();
        let known = self.before.as_ref().map_or(0, |m| m.indices.len());
        let mut indices = Vec::with_capacity(known + rows * columns);
        let mut values = self.before.as_ref().map(|_| Vec::with_capacity(known + rows * columns));
        let mut indptr = Vec::with_capacity(rows + 1);
        indptr.push(0u64);
        for row in 0..rows {
            if let (Some(m), Some(values)) = (&self.before, &mut values) {
                let entries = m.indptr[row] as usize..m.indptr[row + 1] as usize;
                indices.extend_from_slice(&m.indices[entries.clone()]);
                match &m.data {
                    Some(data) => values.extend_from_slice(&data[entries]),
                    None => values.extend(entries.map(|_| 1.0f32)),
                }
                values.extend((0..columns).map(|_| 1.0));
            }
            indices.extend((0..columns).map(|column| ends[column] + self.categories.get(row, column)));
            indptr.push(indices.len() as u64);
        }
        let width = ends[columns] as usize;
        SparseFeatures { indptr: indptr.into(), indices: indices.into(), data: values.map(Into::into), width }
    }
}

/// All numbers of a matrix as entries.
fn sparse(m: &Dense, rows: usize) -> SparseFeatures {
    let width = m.width();
    SparseFeatures {
        indptr: (0..=rows as u64).map(|row| row * width as u64).collect::<Vec<_>>().into(),
        indices: (0..rows).flat_map(|_| 0..width as u32).collect::<Vec<_>>().into(),
        data: Some(rows::dense(m, None).into_owned().into()),
        width,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_is_a_column_after_the_features() {
        let categories = Categories::new(vec![1, 0, 0, 2], 2, &[3, 4]).unwrap();
        let alone = Parts::of(None, &categories).together();
        assert_eq!((&alone.indptr[..], &alone.indices[..]), (&[0, 2, 4][..], &[1, 3, 0, 5][..]));
        assert_eq!((alone.width, alone.data), (7, None));
        let dense = Features::Dense(Dense::F32 { values: vec![0.5, -1.0].into(), width: 1 });
        let both = Parts::of(Some(&dense), &categories).together();
        assert_eq!((&both.indices[..], both.width), (&[0, 2, 4, 0, 1, 6][..], 8));
        assert_eq!(both.data.unwrap()[..], [0.5, 1.0, 1.0, -1.0, 1.0, 1.0]);
        let bag = SparseFeatures { indptr: vec![0, 0, 1].into(), indices: vec![4].into(), data: None, width: 5 };
        let both = Parts::of(Some(&Features::Sparse(bag)), &categories).together();
        assert_eq!((&both.indptr[..], &both.indices[..]), (&[0, 2, 5][..], &[6, 8, 4, 5, 10][..]));
    }
}
