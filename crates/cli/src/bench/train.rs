//! `graphweft bench train`: one epoch of a model: forward, loss, backward and update.
//!
//! The model is the one that `graphweft train` trains, input and output layers included, on random features and labels.

use clap::ValueEnum;
use graphweft_graph::Csr;
use graphweft_graph::dataset::{Dense, Features, Split};
use graphweft_tensor::{DType, Usage};
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::{Data, Target};
use graphweft_train::handout::Handout;
use graphweft_train::learner::Learner;
use graphweft_train::plan::Plan;
use graphweft_train::rank::Toll;
use graphweft_train::shard::{Lesson, Shard};
use graphweft_train::world::World;
use serde_json::json;

use super::{Common, median, normals, open};
use crate::ranks::{self, Ranks};
use crate::source::Source;
use crate::ui::{Ui, bytes, table, usage};

/// What is computed again in backward instead of being kept.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Remat {
    /// Nothing
    None,
    /// Attention, with the projections of its operands
    Attention,
    /// Everything inside a layer
    Layer,
    /// The same, and in that again its attention
    Both,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    common: Common,

    /// Model: gt, gcn, sage, gat, …, mlp
    #[arg(long, default_value = "gt", value_name = "NAME")]
    model: String,

    /// Layers
    #[arg(long, default_value_t = 4, value_name = "L")]
    layers: u32,

    /// Columns of the features [default: as --hidden]
    #[arg(long, value_name = "F")]
    features: Option<usize>,

    /// Classes
    #[arg(long, default_value_t = 40, value_name = "C")]
    classes: usize,

    /// Share of elements that dropout drops
    #[arg(long, default_value_t = 0.1, value_name = "RATE")]
    dropout: f64,

    /// What to compute again instead of keeping it
    #[arg(long, value_enum, default_value_t = Remat::None)]
    remat: Remat,

    #[command(flatten)]
    ranks: Ranks,

    /// Other keys of the model and of training, e.g. model.heads=4
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl Args {
    fn config(&self) -> anyhow::Result<Config> {
        let mut draft = Draft::default();
        draft.set("model", "name", self.model.as_str())?;
        draft.set("model", "hidden", self.common.hidden as i64)?;
        draft.set("model", "layers", i64::from(self.layers))?;
        draft.set("train", "dropout", self.dropout)?;
        draft.set("train", "attention_dropout", self.dropout)?;
        draft.set("compute", "dtype", DType::from(self.common.dtype).to_string())?;
        if let Some(remat) = self.remat.to_possible_value() {
            draft.set("compute", "remat", remat.get_name())?;
        }
        self.ranks.set(&mut draft)?;
        self.settings.iter().try_for_each(|s| draft.assign(s))?;
        Ok(draft.finish()?)
    }

    /// Random features and labels; every node is learned from.
    fn data(&self, name: String, graph: Csr<u32>) -> (Data, Split) {
        let (nodes, width) = (graph.num_dst(), self.features.unwrap_or(self.common.hidden));
        let features = Dense::F32 { values: normals(nodes * width, 1).into(), width };
        let labels = (0..nodes as i64).map(|node| node * 7919 % self.classes.max(1) as i64).collect();
        let all: Vec<i64> = (0..nodes as i64).collect();
        let valid = all.iter().copied().take(1).collect::<Vec<_>>().into();
        let split = Split { name: "all".into(), train: all.into(), valid, test: Vec::new().into() };
        let data = Data {
            name,
            graph,
            features: Features::Dense(features),
            edge_features: None,
            encodings: Vec::new(),
            target: Some(Target::Class(labels)),
            classes: self.classes,
            splits: Vec::new(),
        };
        (data, split)
    }
}

/// What one rank measured.
struct Measured {
    /// Forward, backward and update of each epoch.
    times: [Vec<f64>; 3],
    parameters: usize,
    /// Of all ranks, on the first.
    tolls: Vec<Toll>,
}

pub(super) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let config = args.config()?;
    let place = (args.common.device.place_of(&config.parallel, ui), config.compute.precision.into());
    ranks::enter(&config.parallel, config.parallel.ranks, place, ui, |world, ui| time(args, &config, world, ui))
}

fn time(args: &Args, config: &Config, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let (name, csr) = open(&args.source, &args.common, ui)?;
    let (data, split) = args.data(name, csr);
    let plan = Plan::shared(config, world, &data.graph, ui)?;
    let graph = config.model.prepare(data.graph.clone(), config.run.seed)?;
    let (name, nodes, edges) = (data.name.clone(), data.graph.num_dst(), data.graph.num_edges());
    let whole = Handout::new((data, graph, split), world.ranks_here());
    let task = (config.clone(), plan.clone(), args.common.runs);
    let Measured { times, parameters, tolls } = world.run(move |rank| {
        let (whole, (config, plan, runs)) = (whole.take()?, &task);
        let (data, graph, split) = &*whole;
        let shard = Shard::new(rank, data, graph, plan, config)?;
        let lesson = Lesson::new(&shard, data.target()?, split)?;
        drop(whole);
        measure(&shard, &lesson, config, *runs)
    })?;
    let dtype = DType::from(config.compute.dtype);
    let steps = (0..times[0].len()).map(|k| times.iter().map(|phase| phase[k]).sum()).collect();
    let (step, [forward, backward, update]) = (median(steps), times.map(median));
    let peak = tolls.iter().map(|t| t.peak).max_by_key(Usage::total).unwrap_or_default();
    let peaks: Vec<u64> = tolls.iter().map(|t| t.peak.total()).collect();
    let sent: Vec<u64> = tolls.iter().map(Toll::bytes_sent).collect();
    let json = json!({
        "op": "train", "model": config.model_name(), "graph": name, "nodes": nodes,
        "edges": edges, "threads": world.threads_of_rank(), "device": world.place().to_string(), "dtype": dtype.to_string(),
        "hidden": args.common.hidden, "layers": args.layers, "parameters": parameters, "dropout": args.dropout,
        "forward_ms": forward, "backward_ms": backward, "update_ms": update, "step_ms": step, "floor_ms": null,
        "peak_bytes": peak.total(), "peak": usage(peak), "peak_bytes_by_rank": peaks,
        "bytes_sent": sent.iter().sum::<u64>(), "bytes_sent_by_rank": sent,
        "strategy": plan.strategy, "ranks": plan.ranks,
    });
    ui.result(&json, || {
        let row = |name: &str, ms: f64| [name.to_string(), format!("{ms:.1}")];
        let rows = [row("forward", forward), row("backward", backward), row("update", update), row("epoch", step)];
        let title = format!(
            "{} with {} layers on {}, {} × {} threads, {}, {dtype}",
            config.model_name(),
            args.layers,
            name,
            plan.ranks,
            world.threads_of_rank(),
            plan.strategy,
        );
        let (peak, sent) = (bytes(peak.total()), bytes(sent.iter().sum()));
        let whose = if plan.ranks > 1 { format!(" of the largest rank, {sent} sent by all") } else { String::new() };
        format!("{title}\n\n{}\n\n{peak} at the peak{whose}", table(["", "ms"], rows))
    })
}

/// Runs epochs on one rank.
fn measure(shard: &Shard, lesson: &Lesson, config: &Config, runs: u32) -> graphweft_train::Result<Measured> {
    let (rank, ledger) = (&shard.rank, shard.device().ledger());
    let mut learner = Learner::new(rank, shard.shape, config)?;
    let mut times: [Vec<f64>; 3] = Default::default();
    ledger.reset_peak();
    for epoch in 1..=u64::from(runs) + 1 {
        rank.reset_sent();
        learner.learn(shard, lesson, epoch, config.train.lr, &mut |phase, start| {
            let ms = start.elapsed().as_secs_f64() * 1e3;
            let which = ["forward", "backward", "update"].iter().position(|name| *name == phase);
            if let Some(times) = which.and_then(|k| times.get_mut(k)) {
                times.push(ms);
            }
        })?;
    }
    let toll = Toll { peak: ledger.peak(), sent: rank.sent() };
    Ok(Measured { times, parameters: learner.size(), tolls: toll.gather(rank)? })
}
