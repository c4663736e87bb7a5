//! A row of numbers for each node that is learned, and nothing else: what knowledge graphs are embedded by without
//! looking along edges. Where features of nodes are stored, it is a linear function of them.
//!
//! Where links are predicted, ranks share the rows with what the optimizer remembers of them; otherwise every rank has
//! all. Dropout drops elements of rows.

use std::rc::Rc;

use graphweft_tensor::Result;
use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::dropout::dropout;
use serde::{Deserialize, Serialize};

use super::no_encodings;
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Network, Shape};
use crate::parts::input::Input;
use crate::parts::linear::Linear;

/// There are no keys: rows are as wide as what is predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo::new(Reach::Row, 1, 1)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        no_encodings(Self::NAME, shape)?;
        let rows = init.projection("table", shape.features, shape.classes)?;
        let layer = Linear::layer("table", rows, |tape, cx, affine, _| {
            let x = Input::features(tape, cx)?.linear(tape, affine, Activation::None, cx.dtype.compute())?;
            Ok(vec![match cx.rows(cx.rates.hidden, 0, 1) {
                Some(drop) => dropout(tape, &x, &drop)?,
                None => x,
            }])
        });
        let layers: Vec<Rc<dyn crate::network::Layer>> = vec![layer];
        Ok(Network::new(layers))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "table";
    const ABOUT: &'static str = "a learned row for each node, without looking along edges";
}
