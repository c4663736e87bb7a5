//! What the GPU cannot do yet: every call answers with an error that says so.

use super::Cuda;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::activation::{Activation, ActivationKernels};
use crate::ops::batch_norm::{BatchNormKernels, Normaliser};
use crate::ops::combine::{Columns, CombineKernels};
use crate::ops::dropout::{DropoutKernels, RowDropout};
use crate::ops::epilogue::{Ending, EpilogueKernels};
use crate::ops::global::{GlobalKernels, GlobalRows, GlobalSaved};
use crate::ops::head_dot::HeadDotKernels;
use crate::ops::l2norm::L2NormKernels;
use crate::ops::loss::{LossKernels, LossOperands};
use crate::ops::norm::{NormKernels, NormNumbers, NormSaved};
use crate::ops::product::ProductKernels;
use crate::ops::residual::{Branches, ResidualKernels};
use crate::ops::rows::{RowIndex, RowKernels};
use crate::optim::{OptimizerKernels, Slot, Step};

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
    ActivationKernels, "an activation": {
        fn activate(Activation, &Matrix, &mut Matrix);
        fn activation_backward(Activation, &Matrix, &mut Matrix);
    }
    BatchNormKernels, "batch norm": {
        fn moment_sums(&Matrix, &Matrix, &mut Matrix);
        fn normalise(&Matrix, &Normaliser<'_>, &NormNumbers<'_>, &mut Matrix);
        fn batch_norm_sums(&Matrix, &Normaliser<'_>, &Matrix, &mut Matrix);
        fn batch_norm_dx(&Matrix, &Normaliser<'_>, &Matrix, &Matrix, &mut Matrix, Option<&Matrix>);
    }
    CombineKernels, "a combination of matrices": {
        fn combine(f64, &Matrix, Option<(f64, &Matrix)>, &mut Matrix);
        fn scale(f64, &mut Matrix);
        fn copy_columns(&Matrix, &mut Matrix, Columns, bool);
    }
    DropoutKernels, "dropout": {
        fn dropout(&RowDropout, &Matrix, &mut Matrix);
        fn dropout_in_place(&RowDropout, &mut Matrix);
    }
    EpilogueKernels, "the end of a layer": {
        fn epilogue(&Ending<'_>, &Matrix, &mut Matrix, Option<&mut Matrix>);
        fn epilogue_backward(&Ending<'_>, Option<&Matrix>, &mut Matrix, Option<&mut Matrix>);
        fn spread_groups(&Matrix, usize, &mut Matrix);
    }
    GlobalKernels, "global attention": {
        fn global_norms(&GlobalRows<'_>, &mut Matrix);
        fn global_sums(&GlobalRows<'_>, &mut Matrix);
        fn global_apply(&GlobalRows<'_>, &Matrix, &mut Matrix, &mut Matrix);
        fn global_back_sums(&GlobalRows<'_>, &GlobalSaved<'_>, &mut Matrix);
        fn global_back_rows(&GlobalRows<'_>, &GlobalSaved<'_>, &Matrix, &Matrix, [&mut Matrix; 3]);
    }
    HeadDotKernels, "products by head": {
        fn head_dot(&Matrix, [&Matrix; 2], [&mut Matrix; 2]);
        fn head_dot_backward(&Matrix, [&Matrix; 2], [&Matrix; 2], (&mut Matrix, Write), [&mut Matrix; 2]);
    }
    L2NormKernels, "the L2 norm": {
        fn l2_norm(&Matrix, &mut Matrix, &mut Matrix);
        fn l2_norm_backward(&Matrix, &Matrix, &mut Matrix);
    }
    LossKernels, "a loss": {
        fn loss(&LossOperands<'_>, &mut Matrix, Option<&mut Matrix>);
    }
    NormKernels, "layer norm": {
        fn layer_norm(&Matrix, &NormNumbers<'_>, &mut Matrix, &mut Matrix);
        fn layer_norm_backward(
            &NormSaved<'_>, &mut Matrix, Option<&Matrix>, Option<(&RowDropout, &mut Matrix)>, &mut Matrix, &mut Matrix
        );
    }
    ProductKernels, "a product of elements": {
        fn product(&Matrix, f64, &Matrix, &mut Matrix);
    }
    ResidualKernels, "a residual": {
        fn residual(&Branches<'_>, &mut Matrix);
        fn residual_norm(&Branches<'_>, &NormNumbers<'_>, &mut Matrix, &mut Matrix, &mut Matrix);
    }
    RowKernels, "moving rows": {
        fn gather_rows(&Matrix, &RowIndex, &mut Matrix);
        fn scatter_rows(&Matrix, &RowIndex, &mut Matrix, bool);
    }
}

impl OptimizerKernels for Cuda {
    fn step(&self, _: &Step, _: &mut [Slot<'_>]) -> Result<()> {
        Err(self.unsupported("an optimizer"))
    }

    fn square_sums(&self, _: &[&Matrix]) -> Result<Vec<f64>> {
        Err(self.unsupported("an optimizer"))
    }
}
