//! The traffic floor: a kernel that makes the same passes over the same indices and only loads.
//!
//! What a sparse operation costs at least is fetching the rows that its edges name. This kernel fetches them in the
//! same order, by the same tasks, prefetched as far ahead as pays, and takes the maximum of everything so that no load
//! can be left out.

#![allow(unsafe_op_in_unsafe_fn)]

use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::neighbours::{AHEAD, prefetch};
use super::simd::{Avx2, Avx512, Simd, Version};
use super::{Cpu, host};
use crate::adjacency::Direction;
use crate::backend::Floor;
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;

impl Floor for Cpu {
    fn touch(&self, direction: &Direction, tables: &[&Matrix]) -> Result<u64> {
        let mut views: Vec<(&[f32], usize)> = Vec::new();
        for m in tables {
            m.expect("touch", "table", direction.csr.num_src(), m.cols())?;
            let words: &[f32] = match m.dtype() {
                DType::Bf16 => bytemuck::cast_slice(host::<bf16>("touch", "table", m)?),
                _ => host::<f32>("touch", "table", m)?,
            };
            views.push((words, m.cols() * m.dtype().size() / 4));
        }
        let version = Version::new(self.isa, |_| true);
        let indices = direction.csr.indices();
        let tasks = direction.portions.all.par_iter().with_max_len(1);
        Ok(tasks
            .map(|task| {
                let edges = task.edges.clone();
                // SAFETY: the version is one that the processor has.
                let largest = unsafe {
                    match version {
                        Version::Avx512 => touch_avx512(&views, indices, edges),
                        Version::Avx2 => touch_avx2(&views, indices, edges),
                        Version::Portable => edges
                            .flat_map(|at| {
                                views.iter().map(move |(table, width)| (table, indices[at] as usize * width, width))
                            })
                            .flat_map(|(table, start, width)| &table[start..start + width])
                            .fold(0.0, |m: f32, x| m.max(*x)),
                    }
                };
                u64::from(largest.to_bits())
            })
            .reduce(|| 0, u64::wrapping_add))
    }
}

/// The largest of all numbers in the rows of `edges`. Vectors go into four registers in turn, so that none waits for
/// the one before; a line is asked for with each that is loaded.
#[inline(always)]
unsafe fn touch<S: Simd>(views: &[(&[f32], usize)], indices: &[u32], edges: Range<usize>) -> f32 {
    let (mut largest, mut rest) = ([S::splat(0.0); 4], [0f32; 4]);
    for at in edges {
        let row = indices[at] as usize;
        let next = indices.get(at + AHEAD).map_or(row, |&j| j as usize);
        for (table, width) in views {
            let next = table.as_ptr().wrapping_add(next * width);
            let row = &table[row * width..][..*width];
            let fours = row.chunks_exact(4 * S::LANES);
            let ones = fours.remainder().chunks_exact(S::LANES);
            for (k, x) in ones.remainder().iter().enumerate() {
                rest[k % 4] = rest[k % 4].max(*x);
            }
            let done = row.len() - fours.remainder().len();
            for (k, (vector, largest)) in ones.zip(&mut largest).enumerate() {
                prefetch(next.wrapping_add(done + k * S::LANES), S::LANES);
                *largest = S::max(S::load(vector.as_ptr()), *largest);
            }
            for (four, vectors) in fours.enumerate() {
                for (k, largest) in largest.iter_mut().enumerate() {
                    prefetch(next.wrapping_add((4 * four + k) * S::LANES), S::LANES);
                    *largest = S::max(S::load(vectors.as_ptr().add(k * S::LANES)), *largest);
                }
            }
        }
    }
    let mut lanes = [0f32; 16];
    for v in largest {
        S::store(lanes.as_mut_ptr(), v);
        rest[0] = lanes.iter().fold(rest[0], |m, x| m.max(*x));
    }
    rest.iter().fold(0.0, |m, x| m.max(*x))
}

/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn touch_avx512(views: &[(&[f32], usize)], indices: &[u32], edges: Range<usize>) -> f32 {
    touch::<Avx512>(views, indices, edges)
}

/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn touch_avx2(views: &[(&[f32], usize)], indices: &[u32], edges: Range<usize>) -> f32 {
    touch::<Avx2>(views, indices, edges)
}
