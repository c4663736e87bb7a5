//! What the GPU cannot do yet: every call answers with an error that says so.

use super::Cuda;
use crate::adjacency::Adjacency;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::bag::BagKernels;
use crate::ops::dropout::RowDropout;
use crate::ops::spmm::{Along, EdgeWeights, SpmmKernels};
use crate::random::Ids;

macro_rules! not_yet {
    ($($trait:ident, $what:literal: { $(fn $name:ident($($type:ty),*);)* })*) => { $(
        impl $trait for Cuda {
            $(fn $name(&self, $(_: $type),*) -> Result<()> {
                Err(self.unsupported($what))
            })*
        }
    )* };
}

not_yet! {
    BagKernels, "a layer over sparse features": {
        fn transpose(&Matrix, &mut Matrix);
        fn spread_row(&Matrix, &mut Matrix);
        fn sum_rows(&Matrix, &mut Matrix);
        fn drop_entries(&Adjacency, Option<&Matrix>, &RowDropout, &mut Matrix);
    }
    SpmmKernels, "aggregation": {
        fn inverse_degrees(&Adjacency, Option<&Matrix>, &mut Matrix);
        fn spmm(&Adjacency, &EdgeWeights<'_>, Along, &Matrix, &mut Matrix, Write);
        fn spmm_dw(&Adjacency, &EdgeWeights<'_>, &Matrix, &Matrix, &mut Matrix);
        fn spmm_max(&Adjacency, &Matrix, &Ids, &mut Matrix, &mut Matrix, Write);
        fn spmm_max_dx(&Adjacency, &Ids, &Matrix, &Matrix, &mut Matrix, Write);
    }
}
