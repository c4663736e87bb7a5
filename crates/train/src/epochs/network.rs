//! The model of a configuration, as a rank has it.

use graphweft_model::{Init, Network, Shape};
use graphweft_tensor::Error as Computation;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;

/// The model of a configuration, for data of this shape.
pub(crate) fn network(rank: &Rank, shape: Shape, config: &Config) -> Result<Network> {
    network_with(&Init::new(rank.device(), config.compute.dtype.compute(), config.run.seed), shape, config)
}

/// The same, what a rank has of it.
pub(crate) fn network_of(shard: &Shard, config: &Config) -> Result<Network> {
    let init = Init::new(shard.device(), config.compute.dtype.compute(), config.run.seed);
    network_with(&init.with_own_columns(shard.own_columns.as_ref()), shard.shape, config)
}

fn network_with(init: &Init<'_>, shape: Shape, config: &Config) -> Result<Network> {
    let build = |shape| config.model.build_with(init, shape);
    let network = build(shape).map_err(|e| match e {
        Computation::Argument { problem, .. } => {
            let encoded = shape.positional > 0 && build(Shape { positional: 0, ..shape }).is_ok();
            match encoded.then(|| config.encoding_key()).flatten() {
                Some(key) => Error::setting(key, problem, "leave it out, or choose a model that takes encodings"),
                None => Error::setting("model", problem, "change the keys of [model]"),
            }
        }
        other => other.into(),
    })?;
    config.train.choose_decayed(&network);
    Ok(network)
}
