//! How many features a model takes and how many classes it tells apart: its tensors say so, and no file beside them
//! need.
//!
//! The model of the configuration is built without numbers, for sizes that differ by one. A tensor that has more of
//! them then grows with that size, and how long it is in the file says what the size was.

use std::collections::BTreeMap;
use std::rc::Rc;

use graphweft_model::{Shape, Target};
use graphweft_tensor::{Device, Matrix};

use crate::config::Config;
use crate::epochs::network::network;
use crate::error::Result;
use crate::ranks::rank::Rank;
use crate::run::checkpoint::Tensors;

/// What a model was made for; nothing where its tensors are not those of its configuration.
pub(super) struct Made {
    pub(super) features: Option<usize>,
    pub(super) classes: Option<usize>,
}

impl Made {
    /// Looks at the tensors of a model whose nodes have encodings of so many columns.
    pub(super) fn of(model: &Tensors, config: &Config, positional: usize, target: Target) -> Result<Self> {
        let rank = Rank::alone(&Device::dry(None, Rc::new(|_| {})));
        let lengths = |features, classes| -> Result<BTreeMap<String, usize>> {
            let network = network(&rank, Shape { positional, target, ..Shape::of_nodes(features, classes) }, config)?;
            let length = |value: &Matrix| value.rows() * value.cols();
            Ok(network.parameters().iter().map(|p| (p.name().to_string(), length(&p.value()))).collect())
        };
        // A model of one layer has a tensor that grows with both; another one, that of its bias, tells classes alone.
        let (one, wide) = (lengths(1, 1)?, lengths(2, 1)?);
        let narrow = |name: &String| wide.get(name) == one.get(name);
        let classes = size(model, &one, &lengths(1, 2)?, narrow);
        let features = match classes {
            Some(classes) => size(model, &lengths(1, classes)?, &lengths(2, classes)?, |_| true),
            None => None,
        };
        Ok(Self { features, classes })
    }
}

/// The size for which a tensor has its length in `model`, from the lengths for 1 and 2. Of those that grow, one that
/// `counts`.
fn size(
    model: &Tensors,
    one: &BTreeMap<String, usize>,
    two: &BTreeMap<String, usize>,
    counts: impl Fn(&String) -> bool,
) -> Option<usize> {
    let mut counted = one.iter().filter(|(name, _)| counts(name));
    let (name, first, step) = counted.find_map(|(name, first)| {
        let step = two.get(name)?.checked_sub(*first)?;
        (step > 0).then_some((name, *first, step))
    })?;
    let more = model.length(name)?.checked_sub(first)?;
    more.is_multiple_of(step).then_some(1 + more / step)
}
