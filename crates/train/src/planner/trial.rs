//! `parallel.measure`: the best few candidates run for a few steps, and time decides.

use std::sync::Arc;
use std::time::Instant;

use graphweft_model::{Prepared, Total};
use graphweft_plan::explain;

use crate::config::Config;
use crate::data::Data;
use crate::error::Result;
use crate::learner::Learner;
use crate::plan::{Plan, Trial};
use crate::shard::{Lesson, Shard};
use crate::world::World;

/// Steps of each; the first, which agrees on who sends what, is not counted.
const STEPS: u64 = 4;

/// `plan`, or that of its trials which is the fastest here. All processes ask together, and find the same.
///
/// # Errors
/// Of a run.
pub(crate) fn decide_by_measuring(
    mut plan: Plan,
    config: &Config,
    world: &World,
    data: &Arc<Data>,
    graph: &Prepared,
) -> Result<Plan> {
    let trials = std::mem::take(&mut plan.trials);
    if trials.len() < 2 {
        return Ok(plan);
    }
    let scene = (plan.clone(), trials.clone(), config.clone(), Arc::clone(data), graph.clone());
    let seconds = world.run(move |rank| {
        let (plan, trials, config, data, graph) = &scene;
        let split = data.split(&data.split_name(config.data.split.as_deref())?, config.run.seed)?;
        let mut all = Vec::new();
        for Trial { strategy, remat, .. } in trials {
            let (mut plan, mut config) = (plan.clone(), config.clone());
            (plan.strategy, plan.remat, config.compute.remat) = (*strategy, *remat, *remat);
            let shard = Shard::new(rank, data, graph, &plan, &config)?;
            let lesson = Lesson::new(&shard, data.target()?, split)?;
            let mut learner = Learner::new(rank, shard.shape, &config)?;
            let mut best = f64::INFINITY;
            for step in 1..=STEPS {
                let start = Instant::now();
                learner.learn(&shard, &lesson, step, config.train.lr, &mut |_, _| ())?;
                if step > 1 {
                    best = best.min(start.elapsed().as_secs_f64());
                }
            }
            // The same number on every rank.
            all.push(rank.sum(Total::Setup, &[best])?[0] / rank.count() as f64);
        }
        Ok(all)
    })?;
    let measured = |k: &usize| seconds.get(*k).copied().unwrap_or(f64::INFINITY);
    let order = |a: &usize, b: &usize| measured(a).total_cmp(&measured(b));
    let Some(best) = (0..trials.len()).min_by(order) else { return Ok(plan) };
    let told = |(k, trial): (usize, &Trial)| format!("{} {}", trial.strategy, explain::ms(measured(&k)));
    let told: Vec<String> = trials.iter().enumerate().map(told).collect();
    // The first is what would have been chosen without measuring, for the reason that is known.
    let before = if best == 0 { String::new() } else { format!("it would have been {}: ", plan.strategy) };
    plan.why = format!("measured: {}; {before}{}", told.join(", "), plan.why);
    let Trial { strategy, remat, predicted } = trials[best];
    (plan.strategy, plan.remat, plan.predicted) = (strategy, remat, Some(predicted));
    Ok(plan)
}
