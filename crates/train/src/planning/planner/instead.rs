//! What the planner would do where a run has run out of memory.

use std::sync::Arc;

use graphweft_base::progress::Silent;
use graphweft_model::Prepared;
use graphweft_plan::{Error as Planning, explain};
use graphweft_tensor::Error as Computation;

use super::{Planner, here};
use crate::config::{Choice, Config};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::ranks::world::World;

/// `error`; if memory was lacking, with the exact strategy and the level of re-materialisation that would fit. Only
/// what fits is looked for: a machine that has just failed is not measured, so on several ranks `--strategy auto` may
/// take another one that is faster.
pub(crate) fn instead(error: Error, config: &Config, world: &World, data: &Arc<Data>) -> Error {
    let (requested, held) = match &error {
        Error::Tensor(Computation::OutOfMemory { requested, usage, .. }) => (*requested, usage.total()),
        _ => return error,
    };
    let Error::Tensor(lacked) = error else { return error };
    // What did not fit, whatever the device has in all: others may use it too.
    let memory = requested.saturating_add(held).saturating_sub(1);
    let found =
        data.graph_for(&config.model, config.run.seed).and_then(|graph| what_fits(config, world, data, &graph, memory));
    match found {
        Ok(instead) => Error::OutOfMemory { lacked: Box::new(lacked), instead },
        // Nobody can say more than that it does not fit.
        Err(_) => Error::Tensor(lacked),
    }
}

fn what_fits(config: &Config, world: &World, data: &Arc<Data>, graph: &Prepared, memory: u64) -> Result<String> {
    let mut config = config.clone();
    (config.parallel.strategy, config.parallel.allow_approximate) = (Choice::Auto, false);
    let mut profile = here::unmeasured(world);
    profile.memory = Some(profile.memory.unwrap_or(f64::MAX).min(memory as f64));
    let planner = Planner { config: &config, ranks: world.ranks(), data, graph, profile: &profile };
    match planner.plan(&Silent) {
        Ok(planned) => {
            let (candidate, prediction) = planned.found.choice;
            Ok(format!(
                "the planner finds room for {candidate}, with {} on a rank: --strategy {} compute.remat={}",
                explain::bytes(prediction.peak.total()),
                candidate.strategy,
                candidate.remat,
            ))
        }
        Err(Error::Plan(Planning::DoesNotFit { short, remedy })) => {
            Ok(format!("the planner finds no room for any strategy: {short}; what would help: {remedy}"))
        }
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use graphweft_tensor::Usage;

    use super::*;
    use crate::config::Draft;

    /// What is said where `error` ends a run of 400 nodes on so many ranks.
    fn said(error: Error, ranks: usize) -> String {
        let mut draft = Draft::default();
        let graph = ["data.graph=sbm:400:3:6:f=8", "model.hidden=32", "model.layers=6", "model.heads=2"];
        let settings = [format!("parallel.ranks={ranks}"), "parallel.strategy=gather".into()];
        graph.iter().for_each(|s| draft.assign(s).unwrap());
        settings.iter().for_each(|s| draft.assign(s).unwrap());
        let config = draft.finish().unwrap();
        let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
        instead(error, &config, &World::threads(&config.parallel), &data).to_string()
    }

    fn lacking(bytes: u64) -> Error {
        let usage = Usage::default();
        Computation::OutOfMemory { op: "attend", device: "cpu".into(), requested: bytes, usage }.into()
    }

    #[test]
    fn what_fits_is_said_in_settings() {
        let text = said(lacking(2 << 20), 1);
        for part in ["out of memory", "finds room for local, layers", "--strategy local compute.remat="] {
            assert!(text.contains(part), "{text}");
        }
        let text = said(lacking(2 << 20), 3);
        assert!(text.contains("out of memory") && text.contains("--strategy "), "{text}");
    }

    #[test]
    fn where_nothing_fits_that_is_said() {
        let text = said(lacking(1 << 20), 1);
        for part in ["out of memory", "no room for any strategy", "ranks instead of 1"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        assert_eq!(said(Error::Refused, 1), Error::Refused.to_string());
    }
}
