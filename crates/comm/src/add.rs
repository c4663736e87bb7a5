//! Sums of views, element by element.

use half::bf16;
use rayon::prelude::*;

use crate::view::{Type, View};

/// Elements summed at a time, in registers and the first cache.
const BLOCK: usize = 512;

/// Elements that one thread takes at a time: fewer are not worth waking another.
const SHARE: usize = 1 << 16;

/// Leaves the sum of `pieces`, added in their order, in `to`, which may be one of them. bf16 is added in f32 and
/// rounded once.
///
/// # Safety
/// All views are valid host memory of the length and type of `to`, which is for writing and does not overlap others in
/// part.
pub(crate) unsafe fn add_up(to: View, pieces: &[View]) {
    // SAFETY: as promised by the caller.
    unsafe {
        match to.dtype {
            Type::F32 => shares::<f32, f32>(to, pieces, |x| x, |x| x),
            Type::F64 => shares::<f64, f64>(to, pieces, |x| x, |x| x),
            Type::BF16 => shares::<bf16, f32>(to, pieces, bf16::to_f32, bf16::from_f32),
            Type::Bytes => {}
        }
    }
}

/// # Safety
/// As for [`add_up`], with elements of type `T`.
unsafe fn shares<T: Copy, A: Copy + Default + std::ops::AddAssign>(
    to: View,
    pieces: &[View],
    widen: impl Fn(T) -> A + Sync,
    narrow: impl Fn(A) -> T + Sync,
) {
    let elements = to.bytes / size_of::<T>();
    let share = |k: usize| {
        for start in (k * SHARE..elements.min((k + 1) * SHARE)).step_by(BLOCK) {
            let len = BLOCK.min(elements - start);
            let mut sums = [A::default(); BLOCK];
            for (p, piece) in pieces.iter().enumerate() {
                let x = piece.element::<T>(start);
                for (k, sum) in sums[..len].iter_mut().enumerate() {
                    // SAFETY: inside the piece; pieces need not be aligned.
                    let x = widen(unsafe { x.add(k).read_unaligned() });
                    if p == 0 { *sum = x } else { *sum += x }
                }
            }
            let to = to.element::<T>(start);
            for (k, sum) in sums[..len].iter().enumerate() {
                // SAFETY: inside `to`, which no other share writes.
                unsafe { to.add(k).write_unaligned(narrow(*sum)) };
            }
        }
    };
    (0..elements.div_ceil(SHARE)).into_par_iter().for_each(share);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_in_order_and_may_go_where_a_piece_was() {
        let n = 3 * SHARE + 77;
        // (1e16 + 1) + 1 is not 1e16 + (1 + 1): the order shows.
        let mut pieces = [vec![1e16f64; n], vec![1.0; n], vec![1.0; n]];
        let views = pieces.each_mut().map(|p| View::host_mut(p, Type::F64));
        // SAFETY: the vectors are as long as each other and borrowed here only.
        unsafe { add_up(views[1], &views) };
        assert!(pieces[1].iter().all(|x| *x == 1e16 + 1.0 + 1.0));
        assert!(pieces[2].iter().all(|x| *x == 1.0));
    }

    #[test]
    fn bf16_is_rounded_once_and_pieces_need_no_alignment() {
        let one = |x: f32| bf16::from_f32(x).to_bits().to_le_bytes();
        let mut bytes: Vec<u8> = vec![0];
        for x in [256.0, 1.0, 1.0] {
            bytes.extend(one(x));
        }
        let mut sum = [0u8; 3];
        let all = View::host_mut(&mut bytes, Type::BF16);
        let to = View::host_mut(&mut sum, Type::BF16).part(1, 2);
        let pieces: Vec<View> = (0..3).map(|k| all.part(1 + 2 * k, 2)).collect();
        // SAFETY: inside the arrays above.
        unsafe { add_up(to, &pieces) };
        assert_eq!(sum[1..], one(258.0));
    }
}
