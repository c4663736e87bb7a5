//! The traffic floor on the GPU: a kernel that makes the same passes over the same indices and only loads.

use super::compile::{Defines, Source};
use super::launch::THREADS;
use super::{Cuda, source};
use crate::adjacency::Direction;
use crate::backend::{Floor, Memory};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;

const OP: &str = "touch";
pub(super) static SOURCE: Source = source!("floor", ["numbers", "random", "edges"]);
/// How many tables the kernel takes, and what their rows' sizes are called.
pub(super) const SIZES: [&str; 4] = ["BYTES_0", "BYTES_1", "BYTES_2", "BYTES_3"];

impl Floor for Cuda {
    fn touch(&self, direction: &Direction, tables: &[&Matrix]) -> Result<u64> {
        let [first, rest @ ..] = tables else { return Ok(0) };
        if rest.len() >= SIZES.len() {
            return Err(Error::Argument { op: OP, problem: format!("at most {} tables", SIZES.len()) });
        }
        let device = first.device();
        let graph = self.resident(device, direction)?;
        let mut found = device.uninit(OP, graph.count.max(1), 1, DType::F32, Tag::Workspace)?;
        let (mut defines, mut places) = (Defines::of(DType::F32).with("THREADS", THREADS), [0; SIZES.len()]);
        for (k, name) in SIZES.into_iter().enumerate() {
            let mut bytes = 0;
            if let Some(m) = tables.get(k) {
                m.expect(OP, "table", direction.csr.num_src(), m.cols())?;
                bytes = m.cols() * m.dtype().size();
                places[k] = self.address(OP, "table", m, m.dtype())?;
            }
            defines = defines.with(name, bytes);
        }
        let at = graph.places(self);
        let mut launch = self.kernel(OP, &SOURCE, defines, "touch")?;
        launch = launch.arg(at.items).arg(graph.count as u32).arg(at.indices);
        for place in places {
            launch = launch.arg(place);
        }
        let launch = launch.write("found", &mut found)?;
        // SAFETY: the arguments are those of the kernel; ids in a CSR are below the number of rows of the tables.
        unsafe { launch.run([graph.count.div_ceil(THREADS / 32), 1], THREADS, 0)? };
        let mut one = [0; 4];
        self.download(&found, &mut one)?;
        Ok(u32::from_le_bytes(one).into())
    }
}
