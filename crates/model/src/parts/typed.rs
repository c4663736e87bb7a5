//! Linear maps of nodes by their type, as `torch_geometric.nn.HeteroLinear`.

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::grouped::{GroupedMap, RowTypes, by_type};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{DType, Result, Tape, Var};

use crate::network::Context;

/// Applies to each row of `x` the maps of its type, several with their outputs side by side. A weight has the maps of
/// all types one below the other, a bias has a row for each.
pub(crate) fn typed_linear(tape: &mut Tape, cx: &Context, x: &Var, layers: &[Affine], dtype: DType) -> Result<Var> {
    let Some(types) = cx.types.as_ref().filter(|types| types.count() > 1) else {
        return linear(tape, x, layers, Activation::None, dtype);
    };
    let vars: Vec<(Var, Option<Var>)> = layers
        .iter()
        .map(|layer| (tape.parameter(&layer.weight), layer.bias.as_ref().map(|bias| tape.parameter(bias))))
        .collect();
    let maps: Vec<GroupedMap<&Var>> =
        vars.iter().map(|(weight, bias)| GroupedMap { weight, bias: bias.as_ref() }).collect();
    by_type(tape, x, types, &maps, dtype)
}

/// The same with a weight and a bias that are themselves computed.
pub(crate) fn typed_product(tape: &mut Tape, cx: &Context, x: &Var, map: GroupedMap<&Var>) -> Result<Var> {
    match &cx.types {
        Some(types) => by_type(tape, x, types, &[map], cx.dtype),
        None => by_type(tape, x, &RowTypes::one(x.value().rows()), &[map], cx.dtype),
    }
}
