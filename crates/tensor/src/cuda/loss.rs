//! Losses on the GPU: a warp per listed row, loss and gradient together.

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::THREADS;
use super::{Cuda, source};
use crate::backend::Memory;
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::loss::{LossKernels, LossOperands, Target};

const OP: &str = "loss";
pub(super) static SOURCE: Source = source!("loss", ["numbers", "lanes"]);
/// Warps of a block, as in the source.
const WARPS: usize = 8;
/// Blocks, and so losses that are added up one after the other, at most.
const MOST_BLOCKS: usize = 512;

impl LossKernels for Cuda {
    fn loss(&self, operands: &LossOperands<'_>, loss: &mut Matrix, mut gradient: Option<&mut Matrix>) -> Result<()> {
        let logits = operands.logits;
        let (cols, dtype, rows) = (logits.cols(), logits.dtype(), operands.rows);
        if let Some(gradient) = gradient.as_deref_mut() {
            typed(OP, "gradient", gradient, dtype)?;
            // Rows that are not listed have none.
            self.zero(gradient)?;
        }
        let count = rows.rows().len();
        let blocks = count.div_ceil(WARPS).min(MOST_BLOCKS);
        let mut partial = logits.device().uninit(OP, 1, blocks, DType::F64, Tag::Workspace)?;
        let (listed, weights) = rows.shared();
        let (listed, weights) = (self.list(listed)?, weights.map(|w| self.list(w)).transpose()?.unwrap_or(0));
        let defines = Defines::of(dtype);
        let is_value = matches!(operands.target, Target::Value(_));
        let launch = match operands.target {
            Target::Class { labels, smoothing } => self
                .kernel(OP, &SOURCE, defines.clone(), "loss_class")?
                .read("logits", logits)?
                .arg(self.list(labels)?)
                .arg(listed)
                .arg(weights)
                .maybe_write("gradient", gradient)?
                .write("partial sums", &mut partial)?
                .arg(count as i64)
                .arg(cols as i32)
                .arg(smoothing),
            Target::Each(targets) | Target::Value(targets) => self
                .kernel(OP, &SOURCE, defines.clone(), if is_value { "loss_value" } else { "loss_each" })?
                .read("logits", logits)?
                .read("targets", targets)?
                .arg(listed)
                .arg(weights)
                .maybe_write("gradient", gradient)?
                .write("partial sums", &mut partial)?
                .arg(count as i64)
                .arg(cols as i32),
        };
        // SAFETY: the arguments are those of the kernel; listed rows and their labels were checked by the operation.
        unsafe { launch.arg(operands.total).run([blocks, 1], THREADS, 0) }?;
        let launch = self
            .kernel(OP, &SOURCE, defines, "loss_total")?
            .read("partial sums", &partial)?
            .arg(blocks as i32)
            .write("loss", loss)?;
        // SAFETY: as above.
        unsafe { launch.run([1, 1], 1, 0) }
    }
}
