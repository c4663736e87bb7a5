//! Attention that is computed again in backward, with the products of its operands, instead of being kept: also inside
//! a layer that is computed again as a whole, where asked for, so that its operands do not lie beside what the
//! feed-forward network needs.

use graphweft_tensor::{Result, Tape, Var};

use crate::network::Context;
use crate::parts::input::Input;

/// Runs `attention` on `x`; its inside is kept for backward, or computed again, as the context says.
pub fn attention_again(
    tape: &mut Tape,
    cx: &Context,
    x: &Input,
    attention: impl Fn(&mut Tape, &Context, &Input) -> Result<Var> + 'static,
) -> Result<Var> {
    if !cx.remat.of_attention() {
        return attention(tape, cx, x);
    }
    let again = cx.clone();
    let mut out = match x {
        Input::Dense(x) => {
            tape.checkpoint(&[x], move |tape, x| Ok(vec![attention(tape, &again, &Input::Dense(x[0].clone()))?]))?
        }
        Input::Sparse(bag, drop) => {
            let x = Input::Sparse(bag.clone(), drop.clone());
            tape.checkpoint(&[], move |tape, _| Ok(vec![attention(tape, &again, &x)?]))?
        }
    };
    Ok(out.swap_remove(0))
}
