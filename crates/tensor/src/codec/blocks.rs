//! Codes of a few bits in words, a block of columns at a time: loops of fixed length, which become vectors. A block is
//! folded in halves, the second above the first, until what is left are whole words.

/// Columns of a block.
pub(super) const BLOCK: usize = 64;

/// Groups of columns that go side by side, the last of them filled up.
#[inline(always)]
pub(super) fn each<const N: usize>(x: &[f32], filler: f32, mut f: impl FnMut(&[f32; N])) {
    let mut group = [filler; N];
    let groups = x.chunks_exact(N);
    let rest = groups.remainder();
    for x in groups {
        group.copy_from_slice(x);
        f(&group);
    }
    if !rest.is_empty() {
        group = [filler; N];
        group[..rest.len()].copy_from_slice(rest);
        f(&group);
    }
}

/// All lanes as one, by halves.
#[inline(always)]
pub(super) fn reduce<T: Copy>(mut x: [T; BLOCK], of: impl Fn(T, T) -> T) -> T {
    #[inline(always)]
    fn half<T: Copy, const N: usize>(x: &mut [T; BLOCK], of: &impl Fn(T, T) -> T) {
        for k in 0..N {
            x[k] = of(x[k], x[N + k]);
        }
    }
    half::<T, 32>(&mut x, &of);
    half::<T, 16>(&mut x, &of);
    half::<T, 8>(&mut x, &of);
    half::<T, 4>(&mut x, &of);
    half::<T, 2>(&mut x, &of);
    of(x[0], x[1])
}

/// Codes of so many bits of all columns; `filler` stands for columns beyond the last. `codes` is asked with the first
/// column of a block.
#[inline(always)]
pub(super) fn encode<const B: u32>(
    x: &[f32],
    to: &mut [u32],
    filler: f32,
    codes: impl Fn(&[f32; BLOCK], u32) -> [u32; BLOCK],
) {
    let words = 2 * B as usize;
    let full = x.len() / BLOCK;
    let (to, last) = to.split_at_mut(full * words);
    let (mut block, mut first) = ([filler; BLOCK], 0);
    for (x, to) in x.chunks_exact(BLOCK).zip(to.chunks_exact_mut(words)) {
        block.copy_from_slice(x);
        let mut packed = codes(&block, first);
        pack::<B>(&mut packed);
        to.copy_from_slice(&packed[..words]);
        first += BLOCK as u32;
    }
    let rest = &x[full * BLOCK..];
    if !rest.is_empty() {
        block = [filler; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        // In order, as the words of a part of a block have no room for its halves.
        let codes = codes(&block, first);
        for (to, codes) in last.iter_mut().zip(codes.chunks_exact((32 / B) as usize)) {
            *to = codes.iter().rev().fold(0, |word, code| word << B | code);
        }
    }
}

/// The way back.
#[inline(always)]
pub(super) fn decode<const B: u32>(from: &[u32], to: &mut [f32], value: impl Fn(u32) -> f32) {
    let words = 2 * B as usize;
    let full = to.len() / BLOCK;
    let (whole, rest) = to.split_at_mut(full * BLOCK);
    let (from, last) = from.split_at(full * words);
    let mut codes = [0u32; BLOCK];
    for (from, to) in from.chunks_exact(words).zip(whole.chunks_exact_mut(BLOCK)) {
        codes[..words].copy_from_slice(from);
        unpack::<B>(&mut codes);
        for k in 0..BLOCK {
            to[k] = value(codes[k]);
        }
    }
    if !rest.is_empty() {
        for (to, word) in rest.chunks_mut((32 / B) as usize).zip(last) {
            for (k, to) in to.iter_mut().enumerate() {
                *to = value(word >> (k as u32 * B) & ((1 << B) - 1));
            }
        }
    }
}

/// The second half of 2·N numbers is put above the first, which have so many bits; nothing where they are whole words.
#[inline(always)]
fn fold<const N: usize>(x: &mut [u32; BLOCK], bits: u32) {
    if bits < 32 {
        for k in 0..N {
            x[k] |= x[N + k] << bits;
        }
    }
}

/// The way back.
#[inline(always)]
fn unfold<const N: usize>(x: &mut [u32; BLOCK], bits: u32) {
    if bits < 32 {
        for k in 0..N {
            (x[k], x[N + k]) = (x[k] & ((1 << bits) - 1), x[k] >> bits);
        }
    }
}

/// Leaves 2·B words in front.
#[inline(always)]
fn pack<const B: u32>(x: &mut [u32; BLOCK]) {
    fold::<32>(x, B);
    fold::<16>(x, 2 * B);
    fold::<8>(x, 4 * B);
    fold::<4>(x, 8 * B);
    fold::<2>(x, 16 * B);
}

#[inline(always)]
fn unpack<const B: u32>(x: &mut [u32; BLOCK]) {
    unfold::<2>(x, 16 * B);
    unfold::<4>(x, 8 * B);
    unfold::<8>(x, 4 * B);
    unfold::<16>(x, 2 * B);
    unfold::<32>(x, B);
}
