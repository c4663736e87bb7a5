//! Features of edges in attention: keys k_j + W·e_ij and values v_j + W·e_ij, without a tensor of edges × columns.
//!
//! Per head h, q_i·(W_h e_ij) = (W_hᵀ q_i)·e_ij and Σ_j α_ij W_h e_ij = W_h (Σ_j α_ij e_ij). So a destination's query
//! is *widened*: behind the w columns of each head stand u_i = W_hᵀ q_i, one number per feature. The pass over edges
//! adds u_i·e_ij / √w to the score and collects s_i = Σ_j α_ij e_ij behind the head's columns of its output, which is
//! then *absorbed*: o_i + W_h s_i. Per edge and head that is 4·F operations, not 4·w·F, and what is kept is N·H·F
//! numbers.
//!
//! Each of the two is the other's transpose, so the gradient of a widened row is absorbed, and that of an absorbed one
//! widened: t_i = W_hᵀ g_i stands behind g_i, D_i = g_i·o_i comes out of the widened rows as it does without features,
//! and what the pass by destination finds behind dq_i is du_i. dW_h = Σ_i q_i du_iᵀ + g_i s_iᵀ, one term from each.
//!
//! Numbers behind a head are its *tail*: the features, and zeros up to a multiple of four, so that rows stay aligned.
//!
//! A feature may also be a category, one column of ids for each kind of category. It stands for as many features as
//! there are categories, of which one is 1: u_i·e_ij is then a look-up, and s_i a histogram.

use crate::cpu::scratch;
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Backend;
use crate::tape::{Grads, Tape, Var, one_output};

const OP: &str = "edge features";

/// Columns of categories at most.
pub const MOST_CATEGORIES: usize = 16;

/// What the columns of edge features are: numbers first, then ids of categories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeColumns {
    dense: usize,
    /// How many categories each of the other columns has; the first `count` are meant.
    categories: [usize; MOST_CATEGORIES],
    count: usize,
}

impl EdgeColumns {
    /// `dense` columns of numbers, then columns of ids below `categories`, each written as a number.
    ///
    /// # Errors
    /// If a column has no category, or there are more than [`MOST_CATEGORIES`] columns of them.
    pub fn new(dense: usize, categories: &[usize]) -> Result<Self> {
        let mut all = [0; MOST_CATEGORIES];
        match all.get_mut(..categories.len()) {
            Some(all) if !categories.contains(&0) => all.copy_from_slice(categories),
            _ => {
                let problem = format!(
                    "{} columns of categories: there may be {MOST_CATEGORIES}, each with a category at least",
                    categories.len()
                );
                return Err(Error::Argument { op: OP, problem });
            }
        }
        Ok(Self { dense, categories: all, count: categories.len() })
    }

    /// Columns of numbers alone.
    pub fn numbers(dense: usize) -> Self {
        Self { dense, ..Self::default() }
    }

    /// Columns of numbers.
    pub fn dense(&self) -> usize {
        self.dense
    }

    /// How many categories each of the other columns has.
    pub fn categories(&self) -> &[usize] {
        &self.categories[..self.count]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stored() == 0
    }

    /// Columns that are stored per edge.
    pub fn stored(&self) -> usize {
        self.dense + self.count
    }

    /// Features that they stand for, a category one each.
    pub fn width(&self) -> usize {
        self.dense + self.categories().iter().sum::<usize>()
    }

    /// Numbers behind each head of a widened row.
    pub fn tail(&self) -> usize {
        self.width().next_multiple_of(4)
    }

    /// Of each column of categories, the feature that its first category is, and their number.
    pub(crate) fn places(&self) -> impl Iterator<Item = [usize; 2]> {
        self.categories().iter().scan(self.dense, |first, count| {
            let place = [*first, *count];
            *first += count;
            Some(place)
        })
    }
}

/// What edges bring for the tails of widened rows.
#[derive(Clone, Debug)]
pub struct EdgeTail {
    /// What their features are.
    pub columns: EdgeColumns,
    /// A row per edge, in the type of the computation; nothing where these edges have no features, and add nothing.
    pub rows: Option<Matrix>,
}

kernels! {
    /// What a backend does for it. `weight` has a row per column of `x`, in the compute type; `wide` has the columns of
    /// each head of `x` and a tail behind them.
    pub trait EdgeValueKernels {
        /// Overwrites `wide` with the columns of `x`, W_hᵀ x_h behind each head, and zeros.
        fn widen(x: &Matrix, weight: &Matrix, heads: usize, wide: &mut Matrix) -> Result<()> {
            |dry| dry.stream("widen", &[x], &[wide])
        }

        /// Overwrites `x` with the columns of each head of `wide` and W_h times what stands behind them.
        fn absorb(wide: &Matrix, weight: &Matrix, heads: usize, x: &mut Matrix) -> Result<()> {
            |dry| dry.stream("absorb", &[wide], &[x])
        }

        /// Overwrites `dw` with the sum over rows of x_h times the tail of `wide`.
        fn tail_products(x: &Matrix, wide: &Matrix, heads: usize, dw: &mut Matrix) -> Result<()> {
            |dry|
            let _sums = dry.within(|| scratch::tail_products(x, dw))?;
            dry.stream("tail products", &[x, wide], &[dw])
        }
    }
}

/// Columns of the widened rows of `x`, if a weight and so many heads fit together.
fn widened(x: &Matrix, weight: &Matrix, heads: usize, columns: &EdgeColumns) -> Result<usize> {
    let d = x.cols();
    if heads == 0 || d == 0 || !d.is_multiple_of(heads) {
        return Err(Error::Argument { op: OP, problem: format!("{d} columns cannot be shared by {heads} heads") });
    }
    weight.expect(OP, "weight", d, columns.width())?;
    Ok(d + heads * columns.tail())
}

/// The rows of `x` with W_hᵀ x_h behind each head.
pub fn widen(tape: &mut Tape, x: &Var, weight: &Var, heads: usize, columns: &EdgeColumns) -> Result<Var> {
    let cols = widened(x.value(), weight.value(), heads, columns)?;
    let device = tape.device().clone();
    let mut wide = device.uninit(OP, x.value().rows(), cols, x.value().dtype(), Tag::Activations)?;
    device.backend().widen(x.value(), weight.value(), heads, &mut wide)?;
    let (x_value, weight_value) = (x.value().clone(), weight.value().clone());
    Ok(tape.push(&[x, weight], wide, || {
        one_output(move |g, grads| {
            put_weight_gradient(grads, &weight_value, [&x_value, &g], heads)?;
            put_gradient(grads, &x_value, |kernels, dx| kernels.absorb(&g, &weight_value, heads, dx))
        })
    }))
}

/// Each head's columns of `wide` plus W_h times what stands behind them.
pub fn absorb(tape: &mut Tape, wide: &Var, weight: &Var, heads: usize, columns: &EdgeColumns) -> Result<Var> {
    let (rows, cols) = wide.value().shape();
    let narrow = cols.saturating_sub(heads * columns.tail());
    let device = tape.device().clone();
    let mut x = device.uninit(OP, rows, narrow, wide.value().dtype(), Tag::Activations)?;
    let expected = widened(&x, weight.value(), heads, columns)?;
    wide.value().expect(OP, "widened rows", rows, expected)?;
    device.backend().absorb(wide.value(), weight.value(), heads, &mut x)?;
    let (wide_value, weight_value) = (wide.value().clone(), weight.value().clone());
    Ok(tape.push(&[wide, weight], x, || {
        one_output(move |g, grads| {
            put_weight_gradient(grads, &weight_value, [&g, &wide_value], heads)?;
            put_gradient(grads, &wide_value, |kernels, dwide| kernels.widen(&g, &weight_value, heads, dwide))
        })
    }))
}

/// What `compute` makes of the gradient goes back to the rows, which are like `of`.
fn put_gradient(
    grads: &mut Grads<'_>,
    of: &Matrix,
    compute: impl FnOnce(&dyn Backend, &mut Matrix) -> Result<()>,
) -> Result<()> {
    let mut gradient = grads.device().uninit(OP, of.rows(), of.cols(), of.dtype(), Tag::Activations)?;
    compute(grads.device().backend(), &mut gradient)?;
    grads.put(0, gradient)
}

/// Of the rows on both sides of an operation, those without tails and those with, what goes back to the weight.
fn put_weight_gradient(
    grads: &mut Grads<'_>,
    weight: &Matrix,
    [narrow, wide]: [&Matrix; 2],
    heads: usize,
) -> Result<()> {
    if !grads.wants(1) {
        return Ok(());
    }
    let (rows, cols) = weight.shape();
    let mut dw = grads.device().uninit(OP, rows, cols, weight.dtype(), Tag::Gradients)?;
    grads.device().backend().tail_products(narrow, wide, heads, &mut dw)?;
    grads.put(1, dw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::*;

    fn there_and_back(tape: &mut Tape, x: &Var, w: &Var, heads: usize, columns: &EdgeColumns) -> Result<[Var; 2]> {
        let wide = widen(tape, x, w, heads, columns)?;
        let back = absorb(tape, &wide, w, heads, columns)?;
        Ok([wide, back])
    }

    #[test]
    fn gradients() {
        let device = Device::cpu();
        for (rows, heads, width, features) in [(5, 3, 4, 5), (4, 1, 7, 1), (0, 2, 3, 4), (3, 2, 16, 17)] {
            let columns = EdgeColumns::numbers(features);
            let (x, w) = (upload(&device, 1, (rows, heads * width), 1.0), (heads * width, features));
            let inputs = [x, upload(&device, 2, w, 1.0)];
            for which in 0..2 {
                check(&device, &inputs, &[], |tape, x| {
                    Ok(there_and_back(tape, &x[0], &x[1], heads, &columns)?[which].clone())
                })
                .unwrap();
            }
        }
    }

    #[test]
    fn equals_its_definition() {
        let device = Device::cpu();
        let (rows, heads, width) = (7, 2, 3);
        let columns = EdgeColumns::new(2, &[3, 1]).unwrap();
        let (f, tail) = (columns.width(), columns.tail());
        assert_eq!((f, columns.stored(), tail), (6, 4, 8));
        assert_eq!(columns.places().collect::<Vec<_>>(), [[2, 3], [5, 1]]);
        let mut tape = Tape::new(&device);
        let (x, w) = (upload(&device, 1, (rows, heads * width), 1.0), upload(&device, 2, (heads * width, f), 1.0));
        let (x, w) = (tape.leaf(x), tape.leaf(w));
        let [wide, back] = there_and_back(&mut tape, &x, &w, heads, &columns).unwrap();
        let [x, w, wide, back] = [&x, &w, &wide, &back].map(|v| f64s(v.value()));
        for (row, h) in (0..rows).flat_map(|row| (0..heads).map(move |h| (row, h))) {
            let part = &wide[(row * heads + h) * (width + tail)..][..width + tail];
            let own = &x[(row * heads + h) * width..][..width];
            assert_eq!(&part[..width], own);
            let u = |k: usize| (0..width).map(|c| own[c] * w[(h * width + c) * f + k]).sum::<f64>();
            for (k, found) in part[width..].iter().enumerate() {
                assert!((found - if k < f { u(k) } else { 0.0 }).abs() < 1e-12);
            }
            for (c, own) in own.iter().enumerate() {
                let expected = own + (0..f).map(|k| w[(h * width + c) * f + k] * u(k)).sum::<f64>();
                assert!((back[(row * heads + h) * width + c] - expected).abs() < 1e-12);
            }
        }
    }

    fn case([rows, heads, width, features]: [usize; 4]) -> Case {
        Case::new(vec![(rows, heads * width)], vec![(heads * width, features)], move |tape, x, p| {
            let w = tape.parameter(&p[0]);
            Ok(there_and_back(tape, &x[0], &w, heads, &EdgeColumns::numbers(features))?.to_vec())
        })
    }

    agrees_with_f64!([[600, 8, 16, 16], [300, 3, 7, 5], [1000, 1, 40, 33]].map(|shape| (case(shape), 5e-6, 2e-2)));

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        on_any_threads(&case([3000, 8, 16, 16]));
    }

    #[test]
    fn nonsense_is_refused() {
        let device = Device::cpu();
        assert!(EdgeColumns::new(1, &[2, 0]).is_err());
        assert!(EdgeColumns::new(1, &[1; MOST_CATEGORIES + 1]).is_err());
        let mut tape = Tape::new(&device);
        let mut leaf = |rows, cols| tape.leaf(upload(&device, 1, (rows, cols), 1.0));
        let (x, w, odd) = (leaf(4, 6), leaf(6, 4), leaf(5, 4));
        let columns = EdgeColumns::numbers(4);
        assert!(widen(&mut tape, &x, &w, 2, &columns).is_ok());
        assert!(widen(&mut tape, &x, &w, 4, &columns).is_err());
        assert!(widen(&mut tape, &x, &odd, 2, &columns).is_err());
        assert!(absorb(&mut tape, &x, &w, 2, &columns).is_err());
    }
}
