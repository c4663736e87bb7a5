//! The traffic floor: a kernel that makes the same passes over the same indices and only loads.
//!
//! What a sparse operation costs at least is fetching the rows that its edges name. This kernel fetches them in the same order,
//! by the same tasks, with the same prefetching, and adds everything up so that no load can be left out.

use half::bf16;
use rayon::prelude::*;

use super::{Cpu, host};
use crate::adjacency::Direction;
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;

/// Edges ahead that are prefetched, as the kernels do.
const AHEAD: usize = 8;

impl Cpu {
    /// Loads, for every edge of `direction`, the row that it names in each of `tables`. Returns a sum over everything loaded.
    ///
    /// # Errors
    /// If a table has fewer rows than the graph has columns, or is of f64.
    pub fn touch(&self, direction: &Direction, tables: &[&Matrix]) -> Result<u64> {
        let mut views: Vec<(&[u32], usize)> = Vec::new();
        for m in tables {
            m.expect("touch", "table", direction.csr.num_src(), m.cols())?;
            let words: &[u32] = match m.dtype() {
                DType::Bf16 => bytemuck::cast_slice(host::<bf16>("touch", "table", m)?),
                _ => bytemuck::cast_slice(host::<f32>("touch", "table", m)?),
            };
            views.push((words, m.cols() * m.dtype().size() / 4));
        }
        let isa = self.isa;
        let indices = direction.csr.indices();
        let tasks = direction.tasks.all.par_iter().with_max_len(1);
        Ok(tasks
            .map(|task| {
                isa.run(|| {
                    let mut sum = [0u32; 16];
                    for at in task.edges.clone() {
                        let row = indices[at] as usize;
                        let next = indices.get(at + AHEAD).map_or(row, |&j| j as usize);
                        for (table, width) in &views {
                            prefetch(&table[next * width..][..*width]);
                            let (lines, rest) = table[row * width..][..*width].as_chunks::<16>();
                            for line in lines {
                                for (s, w) in sum.iter_mut().zip(line) {
                                    *s = s.wrapping_add(*w);
                                }
                            }
                            for (s, w) in sum.iter_mut().zip(rest) {
                                *s = s.wrapping_add(*w);
                            }
                        }
                    }
                    sum.iter().map(|&x| u64::from(x)).sum::<u64>()
                })
            })
            .reduce(|| 0, u64::wrapping_add))
    }
}

/// Asks for the cache lines of a row.
#[inline(always)]
fn prefetch(row: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    for line in row.chunks(16) {
        // SAFETY: prefetching any address is harmless, and this one is inside the slice.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}
