//! What follows attention in a layer of a transformer: o = W·z + b, x = norm(x + dropout(o)); then a network of twice
//! the width, h = W₂·gelu(W₁·x + b₁) + b₂, and x = norm(x + dropout(h)).

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{Parameter, Result, Tape, Var};

use crate::init::Init;
use crate::network::{Buffer, Context, Rates};
use crate::parts::norm::{NormKind, Normalisation};
use crate::parts::typed::typed_linear;

/// The output of attention, a feed-forward network, and the normalisation of each.
pub(crate) struct Block {
    o: Affine,
    ffn: [Affine; 2],
    norms: [Normalisation; 2],
}

impl Block {
    /// `{name}.o`, `{name}.ffn1`, `{name}.ffn2`, `{name}.norm1` and `{name}.norm2`, `d` columns wide; the first is a
    /// map for each of so many `types` of nodes.
    pub(crate) fn new(init: &Init<'_>, name: &str, norm: NormKind, d: usize, types: usize) -> Result<Self> {
        let linear = |part: &str, inputs, outputs| init.linear(&format!("{name}.{part}"), inputs, outputs);
        let normal = |part: &str| Normalisation::new(norm, init, &format!("{name}.{part}"), d);
        Ok(Self {
            o: init.typed_linear(&format!("{name}.o"), types, d, d)?,
            ffn: [linear("ffn1", d, 2 * d)?, linear("ffn2", 2 * d, d)?],
            norms: [normal("norm1")?, normal("norm2")?],
        })
    }

    /// Its linear maps.
    pub(crate) fn linear(&self) -> impl Iterator<Item = &Affine> {
        [&self.o, &self.ffn[0], &self.ffn[1]].into_iter()
    }

    /// What its normalisations train.
    pub(crate) fn norms(&self) -> impl Iterator<Item = Rc<Parameter>> {
        self.norms.iter().flat_map(Normalisation::parameters)
    }

    /// What else is saved.
    pub(crate) fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.norms.iter().flat_map(Normalisation::buffers).collect()
    }

    /// Biases that its normalisations subtract again.
    pub(crate) fn without_effect(&self, rates: Rates) -> impl Iterator<Item = Rc<Parameter>> {
        let after = [&self.o, &self.ffn[1]].into_iter().zip(&self.norms);
        after.flat_map(move |(affine, norm)| norm.hidden_in_residual(rates, affine.bias.as_ref()))
    }

    /// Row by row: `x` came into layer `number`, attention found `z`.
    pub(crate) fn forward(&self, tape: &mut Tape, cx: &Context, number: u32, x: &Var, z: &Var) -> Result<Var> {
        let one = std::slice::from_ref::<Affine>;
        let z = typed_linear(tape, cx, z, one(&self.o), cx.dtype)?;
        let x = self.norms[0].forward_residual(tape, cx, number, 1, x, &z)?;
        drop(z);
        let h = linear(tape, &x, one(&self.ffn[0]), Activation::Gelu, cx.dtype)?;
        let z = linear(tape, &h, one(&self.ffn[1]), Activation::None, cx.dtype)?;
        drop(h);
        self.norms[1].forward_residual(tape, cx, number, 2, &x, &z)
    }
}
