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
    let mut out = match x {
        Input::Dense(x) => rows_again(tape, cx, std::slice::from_ref(x), move |tape, cx, x| {
            Ok(vec![attention(tape, cx, &Input::Dense(x[0].clone()))?])
        })?,
        Input::Sparse(bag, drop) => {
            let x = Input::Sparse(bag.clone(), drop.clone());
            rows_again(tape, cx, &[], move |tape, cx, _| Ok(vec![attention(tape, cx, &x)?]))?
        }
    };
    Ok(out.swap_remove(0))
}

/// The same of any matrices, in and out.
pub(crate) fn rows_again(
    tape: &mut Tape,
    cx: &Context,
    state: &[Var],
    attention: impl Fn(&mut Tape, &Context, &[Var]) -> Result<Vec<Var>> + 'static,
) -> Result<Vec<Var>> {
    if !cx.remat.of_attention() {
        return attention(tape, cx, state);
    }
    let (inputs, again) = (state.iter().collect::<Vec<_>>(), cx.clone());
    tape.checkpoint(&inputs, move |tape, state| attention(tape, &again, state))
}
