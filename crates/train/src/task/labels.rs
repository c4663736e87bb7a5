//! Labels as they are stored: whole numbers or others, row by row. What they mean is known to a task alone.

use bytemuck::cast_slice;
use graphweft_tensor::Ids;

use crate::data::rows;

/// Labels of nodes or of some rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// One for each row.
    Integers(Vec<i64>),
    /// As many for each row as the data have classes.
    Numbers(Vec<f32>),
}

/// The same, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum LabelView<'a> {
    /// One for each row.
    Integers(&'a [i64]),
    /// As many for each row as the data have classes.
    Numbers(&'a [f32]),
}

impl Labels {
    /// Borrows them.
    pub fn view(&self) -> LabelView<'_> {
        match self {
            Self::Integers(y) => LabelView::Integers(y),
            Self::Numbers(y) => LabelView::Numbers(y),
        }
    }

    /// Numbers; nothing where there are whole ones.
    pub fn into_numbers(self) -> Vec<f32> {
        match self {
            Self::Numbers(y) => y,
            Self::Integers(_) => Vec::new(),
        }
    }

    /// Those of the rows with these ids; `columns` is how many numbers a row has.
    pub(crate) fn of_rows(&self, ids: &Ids, columns: usize) -> Self {
        let Ids::Listed(ids) = ids else { return self.clone() };
        match self {
            Self::Integers(y) => Self::Integers(rows::numbers(y, 1, Some(&ids[..])).into_owned()),
            Self::Numbers(y) => Self::Numbers(rows::numbers(y, columns, Some(&ids[..])).into_owned()),
        }
    }

    /// As many zeros as `rows` rows have labels.
    pub(crate) fn zeros(&self, rows: usize, columns: usize) -> Self {
        match self {
            Self::Integers(_) => Self::Integers(vec![0; rows]),
            Self::Numbers(_) => Self::Numbers(vec![0.0; rows * columns]),
        }
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Integers(y) => cast_slice(y),
            Self::Numbers(y) => cast_slice(y),
        }
    }
}

impl<'a> LabelView<'a> {
    /// Whole numbers; nothing where there are others.
    pub fn integers(self) -> &'a [i64] {
        match self {
            Self::Integers(y) => y,
            Self::Numbers(_) => &[],
        }
    }

    /// Numbers; nothing where there are whole ones.
    pub fn numbers(self) -> &'a [f32] {
        match self {
            Self::Numbers(y) => y,
            Self::Integers(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_takes_the_labels_of_its_rows() {
        let ids = Ids::Listed(vec![9, 0, 2].into());
        let classes = Labels::Integers((0..10).map(|k| k * 10).collect());
        assert_eq!(classes.of_rows(&ids, 1), Labels::Integers(vec![90, 0, 20]));
        let each = Labels::Numbers((0..20).map(|k| k as f32).collect());
        assert_eq!(each.of_rows(&ids, 2), Labels::Numbers(vec![18.0, 19.0, 0.0, 1.0, 4.0, 5.0]));
        assert_eq!(each.of_rows(&Ids::Same, 2), each);
    }
}
