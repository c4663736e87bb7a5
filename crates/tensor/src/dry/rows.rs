//! Kernels that go through matrices row by row, rehearsed.

use super::{Dry, Kind};
use crate::cpu::scratch;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::activation::{Activation, ActivationKernels};
use crate::ops::batch_norm::{BatchNormKernels, Normaliser};
use crate::ops::combine::{CombineKernels, Patch};
use crate::ops::dropout::{DropoutKernels, RowDropout};
use crate::ops::epilogue::{Ending, EpilogueKernels};
use crate::ops::head_dot::HeadDotKernels;
use crate::ops::l2norm::L2NormKernels;
use crate::ops::many_rows::ManyRows;
use crate::ops::norm::{NormKernels, NormNumbers, NormSaved};
use crate::ops::product::ProductKernels;
use crate::ops::residual::{Branches, ResidualKernels};
use crate::ops::rows::{RowIndex, RowKernels};

fn drops(dropout: Option<&RowDropout>) -> bool {
    dropout.is_some_and(|d| d.dropout.is_active())
}

/// Those that are there.
fn present<const K: usize>(all: [Option<&Matrix>; K]) -> Vec<&Matrix> {
    all.into_iter().flatten().collect()
}

impl ActivationKernels for Dry {
    fn activate(&self, activation: Activation, x: &Matrix, y: &mut Matrix) -> Result<()> {
        self.stream(if activation == Activation::Gelu { "activate, gelu" } else { "activate" }, &[x], &[y])
    }

    fn activation_backward(&self, activation: Activation, saved: &Matrix, dy: &mut Matrix) -> Result<()> {
        let gelu = activation == Activation::Gelu;
        let op = if gelu { "activation backward, gelu" } else { "activation backward" };
        self.stream(op, &[saved, dy], &[dy])
    }
}

impl BatchNormKernels for Dry {
    fn moment_sums(&self, x: &Matrix, _: &Matrix, sums: &mut Matrix) -> Result<()> {
        let _sums = self.within(|| scratch::batch_norm(x))?;
        self.stream("batch norm moments", &[x], &[sums])
    }

    fn normalise(&self, x: &Matrix, _: &Normaliser<'_>, _: &NormNumbers<'_>, y: &mut Matrix) -> Result<()> {
        self.stream("batch norm", &[x], &[y])
    }

    fn batch_norm_sums(&self, x: &Matrix, _: &Normaliser<'_>, dy: &Matrix, sums: &mut Matrix) -> Result<()> {
        let _sums = self.within(|| scratch::batch_norm(x))?;
        self.stream("batch norm sums", &[x, dy], &[sums])
    }

    fn batch_norm_dx(
        &self,
        x: &Matrix,
        _: &Normaliser<'_>,
        _: &Matrix,
        _: &Matrix,
        g: &mut Matrix,
        plus: Option<&Matrix>,
    ) -> Result<()> {
        self.stream("batch norm dx", &present([Some(x), Some(g), plus]), &[g])
    }
}

impl CombineKernels for Dry {
    fn combine(&self, _: f64, x: &Matrix, other: Option<(f64, &Matrix)>, to: &mut Matrix) -> Result<()> {
        self.stream("combine", &present([Some(x), other.map(|(_, y)| y)]), &[to])
    }

    fn scale(&self, _: f64, m: &mut Matrix) -> Result<()> {
        self.stream("scale", &[m], &[m])
    }

    fn copy_patch(&self, from: &Matrix, to: &mut Matrix, patch: Patch, add: bool) -> Result<()> {
        patch.check(from, to)?;
        let bytes = patch.size[0] * patch.size[1] * to.dtype().size();
        let (op, read) = if add { ("copy patch, added", 2 * bytes) } else { ("copy patch", bytes) };
        self.tell(op, to.dtype(), false, Kind::Stream { read, written: bytes, rows: patch.size[0] })
    }
}

impl DropoutKernels for Dry {
    fn dropout(&self, d: &RowDropout, x: &Matrix, y: &mut Matrix) -> Result<()> {
        self.dropping("dropout", drops(Some(d)), &[x], &[y])
    }

    fn dropout_in_place(&self, d: &RowDropout, m: &mut Matrix) -> Result<()> {
        self.dropping("dropout", drops(Some(d)), &[m], &[m])
    }
}

impl EpilogueKernels for Dry {
    fn epilogue(&self, ending: &Ending<'_>, x: &Matrix, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
        let read = present([Some(x), ending.plus]);
        self.dropping("epilogue", drops(ending.dropout), &read, &present([Some(y), pre.map(|m| &*m)]))
    }

    fn epilogue_backward(
        &self,
        ending: &Ending<'_>,
        saved: Option<&Matrix>,
        g: &mut Matrix,
        db: Option<&mut Matrix>,
    ) -> Result<()> {
        let _sums = self.within(|| scratch::epilogue_backward(g, db.is_some()))?;
        self.dropping("epilogue backward", drops(ending.dropout), &present([Some(g), saved]), &[g])
    }

    fn spread_groups(&self, dy: &Matrix, _: usize, dx: &mut Matrix) -> Result<()> {
        self.stream("spread groups", &[dy], &[dx])
    }
}

impl HeadDotKernels for Dry {
    fn head_dot(&self, z: &Matrix, _: &[&Matrix], to: &mut [&mut Matrix]) -> Result<()> {
        self.stream("products by head", &[z], &to.iter().map(|m| &**m).collect::<Vec<_>>())
    }

    fn head_dot_backward(
        &self,
        z: &Matrix,
        vectors: &[&Matrix],
        g: &[&Matrix],
        (dz, write): (&mut Matrix, Write),
        _: &mut [&mut Matrix],
    ) -> Result<()> {
        let _sums = self.within(|| scratch::head_dot_backward(z, vectors.len()))?;
        let held = if write == Write::Add { Some(&*dz) } else { None };
        let read: Vec<&Matrix> = present([Some(z), held]).into_iter().chain(g.iter().copied()).collect();
        self.stream("products by head backward", &read, &[dz])
    }
}

impl L2NormKernels for Dry {
    fn l2_norm(&self, x: &Matrix, y: &mut Matrix, norms: &mut Matrix) -> Result<()> {
        self.stream("l2 norm", &[x], &[y, norms])
    }

    fn l2_norm_backward(&self, y: &Matrix, norms: &Matrix, g: &mut Matrix) -> Result<()> {
        self.stream("l2 norm backward", &[y, norms, g], &[g])
    }
}

impl NormKernels for Dry {
    fn layer_norm(&self, x: &Matrix, _: &NormNumbers<'_>, y: &mut Matrix, stats: &mut Matrix) -> Result<()> {
        self.stream("layer norm", &[x], &[y, stats])
    }

    fn layer_norm_backward(
        &self,
        saved: &NormSaved<'_>,
        g: &mut Matrix,
        plus: Option<&Matrix>,
        dropped: Option<(&RowDropout, &mut Matrix)>,
        _: &mut Matrix,
        _: &mut Matrix,
    ) -> Result<()> {
        let _sums = self.within(|| scratch::layer_norm_backward(g))?;
        let dropout = drops(dropped.as_ref().map(|(d, _)| *d));
        let read = present([Some(saved.x), Some(saved.stats), Some(g), plus]);
        self.dropping("layer norm backward", dropout, &read, &present([Some(g), dropped.map(|(_, m)| &*m)]))
    }
}

impl ProductKernels for Dry {
    fn product(&self, a: &Matrix, _: f64, b: &Matrix, y: &mut Matrix) -> Result<()> {
        self.stream("product", &[a, b], &[y])
    }
}

impl ResidualKernels for Dry {
    fn residual(&self, b: &Branches<'_>, sum: &mut Matrix) -> Result<()> {
        self.dropping("residual", drops(b.dropout), &[b.x, b.z], &[sum])
    }

    fn residual_norm(
        &self,
        b: &Branches<'_>,
        _: &NormNumbers<'_>,
        sum: &mut Matrix,
        y: &mut Matrix,
        stats: &mut Matrix,
    ) -> Result<()> {
        self.dropping("residual norm", drops(b.dropout), &[b.x, b.z], &[sum, y, stats])
    }
}

/// How many rows an index lists, and the bytes that so many rows of `x` have.
fn listed(index: &RowIndex, x: &Matrix) -> (usize, usize) {
    let rows = index.index().len();
    (rows, rows * x.cols() * x.dtype().size())
}

impl RowKernels for Dry {
    fn gather_rows(&self, x: &Matrix, index: &RowIndex, _: &mut Matrix) -> Result<()> {
        let (rows, bytes) = listed(index, x);
        self.tell("gather rows", x.dtype(), false, Kind::Stream { read: bytes, written: bytes, rows })
    }

    fn scatter_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix, add: bool) -> Result<()> {
        let (rows, bytes) = listed(index, x);
        if add {
            // As many rows are read and written as are added.
            let kind = Kind::Stream { read: 2 * bytes, written: bytes, rows };
            return self.tell("scatter rows, added", x.dtype(), false, kind);
        }
        self.tell("scatter rows", x.dtype(), false, Kind::Stream { read: bytes, written: y.bytes(), rows: y.rows() })
    }

    fn gather_many(&self, _: &[&Matrix], list: &ManyRows, y: &mut Matrix) -> Result<()> {
        let (rows, bytes) = (list.len(), y.bytes());
        self.tell("gather rows", y.dtype(), false, Kind::Stream { read: bytes, written: bytes, rows })
    }

    fn scatter_many(&self, x: &Matrix, list: &ManyRows, to: &mut [Option<Matrix>]) -> Result<()> {
        let rows = to.iter().zip(list.parts()).filter(|(to, _)| to.is_some()).map(|(_, part)| part.entries.len()).sum();
        let bytes = rows * x.cols() * x.dtype().size();
        self.tell("scatter rows, added", x.dtype(), false, Kind::Stream { read: 2 * bytes, written: bytes, rows })
    }
}
