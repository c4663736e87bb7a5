//! What is rehearsed is what happens: memory by purpose and messages of every rank, to the byte. And emulated runs are
//! real ones, with times of elsewhere.

use std::sync::Arc;

use crate::config::{Config, Draft};
use crate::data::{Data, EdgeFeatures, Types};
use crate::epochs::learner::Learner;
use crate::planning::planner::kernels;
use crate::planning::rehearsal::{Rehearsal, Rehearser};
use crate::planning::{Emulation, Plan};
use crate::ranks::RankUsage;
use crate::ranks::World;
use crate::ranks::shard::Shard;
use crate::run::Start;
use crate::task::Supervision;
use crate::whole::{Watch, fresh, link_folder, on_world, rings, same};
use graphweft_base::progress::Silent;
use graphweft_comm::{Event, Network, Wire};
use graphweft_model::Models;
use graphweft_plan::Profile;
use graphweft_tensor::dry::WorkKind;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::{Timings, Work};

fn config(settings: &[&str]) -> Config {
    let mut draft = Draft::default();
    let usual = [
        "data.graph=sbm:300:3:6:f=8",
        "data.self_loops=add",
        "model.hidden=16",
        "model.layers=2",
        "train.epochs=2",
        "train.dropout=0.2",
    ];
    usual.iter().chain(settings).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

fn on(strategy: &str, ranks: usize, more: &[&str]) -> Config {
    let settings = [format!("parallel.ranks={ranks}"), format!("parallel.strategy={strategy}")];
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    config(&settings)
}

fn open(config: &Config) -> Data {
    Data::open(&config.data, &config.encoding, &Silent).unwrap()
}

fn rehearse(config: &Config) -> Rehearsal {
    rehearse_on(config, open(config))
}

fn rehearse_on(config: &Config, data: Data) -> Rehearsal {
    let data = Arc::new(data);
    let plan = Plan::for_data(config, config.parallel.ranks.unwrap_or(1) as usize, &data, &Silent).unwrap();
    let graph = data.graph_for(&config.model, config.run.seed).unwrap();
    Rehearser::new(&data, &graph).rehearse(config, &plan).unwrap()
}

/// A run takes what its rehearsal says.
fn comes_true(config: &Config, what: &str) {
    comes_true_on(config, &open(config), what);
}

fn comes_true_on(config: &Config, data: &Data, what: &str) {
    let (dir, found) = (tempfile::tempdir().unwrap(), rehearse_on(config, data.clone()));
    let world = World::threads(&config.parallel);
    let run = on_world(&world, data.clone(), config, dir.path(), &Start::New, Watch::default());
    let run = run.unwrap().runs.remove(0);
    assert_eq!(found.ranks.len(), run.cost.usages.len());
    for (rank, (found, usage)) in found.ranks.iter().zip(&run.cost.usages).enumerate() {
        assert_eq!(found.sent, usage.sent, "{what}: sent by rank {rank}");
        assert_eq!(found.peak, usage.peak, "{what}: peak of rank {rank}");
    }
}

#[test]
fn batches_of_graphs_take_what_was_rehearsed() {
    let root = tempfile::tempdir().unwrap();
    let path = rings::folder(root.path(), rings::Nodes::Both, rings::Known::Class);
    let folder = format!("data.path={}", path.display());
    let of = |more: &[&str]| {
        let strategy = "parallel.strategy=batches";
        let usual = [&*folder, strategy, "data.self_loops=add", "model.hidden=16", "model.layers=2", "train.epochs=2"];
        let mut draft = Draft::default();
        usual.iter().chain(more).for_each(|s| draft.assign(s).unwrap());
        draft.finish().unwrap()
    };
    for model in [
        &["model.name=gin", "model.norm=batch", "model.readout_from=all", "train.dropout=0.2"][..],
        &["model.name=gt", "model.heads=2", "model.readout=attention", "compute.remat=layer"],
        &["model.name=gps", "train.attention_dropout=0.2", "encoding.random_walk=3"],
        &["model.name=sage", "model.norm=graph", "model.readout=set"],
    ] {
        // All graphs in one batch: that is the largest.
        let all: Vec<&str> = model.iter().copied().chain(["train.batch=1000"]).collect();
        comes_true(&of(&all), model[0]);
        assert!(!rehearse(&of(&all)).is_recorded(), "{}: another batch has other graphs", model[0]);
        // Who has which of them is drawn in every epoch: messages are as rehearsed, and memory nearly.
        let all: Vec<&str> = all.into_iter().chain(["parallel.ranks=3"]).collect();
        let (config, dir) = (of(&all), tempfile::tempdir().unwrap());
        let (found, run) = (rehearse(&config), fresh(&config, dir.path()).runs.remove(0));
        for (found, usage) in found.ranks.iter().zip(&run.cost.usages) {
            assert_eq!(found.sent, usage.sent, "{}", model[0]);
            let [planned, taken] = [found.peak.most.total(), usage.peak.total()].map(|bytes| bytes as f64);
            assert!((planned / taken - 1.0).abs() < 0.25, "{}: {planned} were planned, {taken} taken", model[0]);
        }
        // Of smaller ones, none takes more than those with most nodes and edges.
        let some: Vec<&str> = model.iter().copied().chain(["train.batch=10"]).collect();
        let (config, dir) = (of(&some), tempfile::tempdir().unwrap());
        let (found, run) = (rehearse(&config), fresh(&config, dir.path()).runs.remove(0));
        let [planned, taken] = [found.ranks[0].peak.most.total(), run.cost.usages[0].peak.total()];
        assert!(taken <= planned && planned < 2 * taken, "{planned} were planned, {taken} taken");
    }
}

#[test]
fn coded_rows_take_what_was_rehearsed() {
    for (strategy, ranks, codec) in
        [("gather", 3, "int8"), ("halo", 3, "int4"), ("halo:machines:2", 4, "bf16"), ("ring", 3, "columns:4")]
    {
        let falls = if codec.starts_with("columns") { "wire.schedule=falling" } else { "wire.schedule=fixed" };
        for model in [&["model.name=gt", "model.heads=2", falls][..], &["model.name=gcn", falls]] {
            let codec = format!("wire.codec={codec}");
            let settings: Vec<&str> = [&*codec].into_iter().chain(model.iter().copied()).collect();
            comes_true(&on(strategy, ranks, &settings), &format!("{} with {strategy}, {codec}", model[0]));
        }
    }
}

#[test]
fn what_needs_the_host_within_a_step_is_not_recorded() {
    for (settings, recorded) in [
        (&["model.name=gt", "model.heads=2"][..], true),
        (&["model.name=gcn", "compute.remat=layer"], true),
        (&["model.name=gcn", "model.norm=batch"], true),
        (&["model.name=exphormer", "model.heads=2"], false),
    ] {
        assert_eq!(rehearse(&config(settings)).is_recorded(), recorded, "{settings:?}");
    }
    assert!(!rehearse(&on("halo", 2, &[])).is_recorded(), "nor what ranks send each other");
}

#[test]
fn pipelines_take_what_was_rehearsed() {
    let deep = ["model.layers=4", "train.epochs=3", "train.dropout=0.2"];
    for model in [&["model.name=gcnii"][..], &["model.name=gt", "model.heads=2"], &["model.name=sage"]] {
        for (strategy, ranks, remat) in [("pipeline", 1, "both"), ("pipeline", 3, "none"), ("pipeline:2x2", 4, "layer")]
        {
            let remat = &*format!("compute.remat={remat}");
            let settings: Vec<&str> = model.iter().chain(&deep).chain(&[remat]).copied().collect();
            comes_true(&on(strategy, ranks, &settings), &format!("{} with {strategy}, {remat}", model[0]));
        }
    }
}

#[test]
fn every_strategy_takes_what_was_rehearsed() {
    let models = [
        &["model.name=gt", "model.heads=4", "train.attention_dropout=0.1"][..],
        &["model.name=gcn", "model.norm=batch"],
        &["model.name=gatv2", "model.heads=2"],
        &["model.name=sage", "model.aggregation=max"],
        &["model.name=appnp", "model.steps=3"],
        &["model.name=rgcn", "model.bases=2"],
        &["model.name=hgt", "model.heads=4"],
    ];
    for model in models {
        for (strategy, ranks) in [
            ("local", 1),
            ("gather", 3),
            ("halo", 3),
            ("halo:plain", 3),
            ("halo:machines:2", 4),
            ("heads", 3),
            ("ring", 3),
            ("ring:2", 3),
            ("grid:2x2", 4),
            ("grid:2x2:gather", 4),
            ("isolated", 3),
        ] {
            comes_true(&on(strategy, ranks, model), &format!("{} with {strategy}", model[0]));
        }
    }
}

/// One strategy of each kind that takes all data, with ranks.
const ONE_OF_EACH: [(&str, usize); 7] =
    [("local", 1), ("gather", 3), ("halo", 3), ("heads", 3), ("ring", 3), ("grid:2x2", 4), ("pipeline", 2)];

#[test]
fn features_of_edges_take_what_was_rehearsed() {
    let take = |model: &str, strategy: &str, ranks: usize| {
        let model = format!("model.name={model}");
        // The first exact epoch of a pipeline is its second, which the third needs.
        let epochs = if strategy == "pipeline" { "train.epochs=3" } else { "train.epochs=2" };
        let attention: &[&str] = match &*model {
            "model.name=gin" => &[],
            _ => &["model.heads=4", "train.attention_dropout=0.1"],
        };
        let config = on(strategy, ranks, &[&[&*model, epochs][..], attention].concat());
        let data = open(&config);
        let row = |edge: usize| [edge as f32 % 5.0 - 2.0, (edge % 3) as f32];
        let rows = (0..data.graph.num_edges()).flat_map(row).collect();
        let edges = Some(EdgeFeatures { columns: EdgeColumns::new(1, &[3]).unwrap(), rows });
        comes_true_on(&config, &Data { edges, ..data }, &format!("{model}, features of edges with {strategy}"));
    };
    let others = ONE_OF_EACH.into_iter().filter(|(strategy, _)| *strategy != "pipeline");
    for (strategy, ranks) in others.chain([("isolated", 3)]) {
        ["gt", "gat", "gatv2", "exphormer", "gin"].into_iter().for_each(|model| take(model, strategy, ranks));
    }
    ["gt", "gat", "gatv2", "gin"].into_iter().for_each(|model| take(model, "pipeline", 2));
}

#[test]
fn types_take_what_was_rehearsed() {
    let models = [
        &["model.name=hgt", "model.heads=4", "train.attention_dropout=0.1"][..],
        &["model.name=gt", "model.heads=4"],
        &["model.name=rgcn"],
        &["model.name=simple-hgn", "model.heads=4", "train.attention_dropout=0.1"],
    ];
    for (model, (strategy, ranks)) in models.iter().flat_map(|model| ONE_OF_EACH.map(|strategy| (model, strategy))) {
        let epochs = if strategy == "pipeline" { "train.epochs=3" } else { "train.epochs=2" };
        let settings: Vec<&str> = model.iter().copied().chain([epochs]).collect();
        let config = on(strategy, ranks, &settings);
        let data = open(&config);
        let types = Types::of_each(&data.graph, 3);
        comes_true_on(&config, &Data { types, ..data }, &format!("types in {} with {strategy}", model[0]));
    }
}

#[test]
fn rows_that_are_learned_take_what_was_rehearsed() {
    let models = [
        &["model.name=rgcn"][..],
        &["model.name=hgt", "model.heads=4"],
        &["model.name=sgformer"],
        &["model.name=sage", "compute.dtype=bf16"],
    ];
    for (model, (strategy, ranks)) in models.iter().flat_map(|model| ONE_OF_EACH.map(|strategy| (model, strategy))) {
        if (model[0], strategy) == ("model.name=sgformer", "pipeline") {
            continue;
        }
        let epochs = if strategy == "pipeline" { "train.epochs=3" } else { "train.epochs=2" };
        let settings: Vec<&str> = model.iter().copied().chain([epochs, "data.features=learned"]).collect();
        comes_true(&on(strategy, ranks, &settings), &format!("learned rows in {} with {strategy}", model[0]));
    }
}

#[test]
fn links_take_what_was_rehearsed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = format!("data.path=\"{}\"", link_folder(dir.path(), Some(20)).display());
    let of = |strategy: &str, ranks: usize| {
        let mut draft = Draft::default();
        let settings = [format!("parallel.ranks={ranks}"), format!("parallel.strategy={strategy}"), folder.clone()];
        let usual = ["model.name=gcn", "model.hidden=8", "model.layers=2", "train.epochs=3", "train.negatives=3"];
        usual.iter().copied().chain(settings.iter().map(String::as_str)).for_each(|s| draft.assign(s).unwrap());
        draft.finish().unwrap()
    };
    for (strategy, ranks) in [("local", 1), ("gather", 3), ("halo", 3), ("heads", 2), ("ring", 3), ("grid:2x2", 4)] {
        comes_true(&of(strategy, ranks), &format!("links with {strategy}"));
    }
}

#[test]
fn every_model_takes_what_was_rehearsed() {
    for model in Models::default().names() {
        let model = format!("model.name={model}");
        for (dtype, remat) in [("f32", "none"), ("bf16", "attention"), ("bf16", "layer")] {
            let more = [model.as_str(), &format!("compute.dtype={dtype}"), &format!("compute.remat={remat}")];
            comes_true(&config(&more), &format!("{more:?}"));
        }
        let more = [model.as_str(), "compute.dtype=bf16", "compute.remat=layer"];
        comes_true(&on("halo", 2, &more), &format!("{more:?} on two ranks"));
    }
}

#[test]
fn devices_make_the_calls_that_were_rehearsed() {
    let profile = Profile::find("16-cpu-10g").unwrap();
    for (strategy, ranks) in [("local", 1), ("halo", 3), ("heads", 3), ("ring", 3), ("grid:2x2:gather", 4)] {
        let config = on(strategy, ranks, &["model.name=gt", "model.heads=4", "train.attention_dropout=0.1"]);
        let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
        let graph = config.model.prepare(data.graph.clone(), 0).unwrap();
        let plan = Plan::unplanned(&config, ranks, &data, &Silent).unwrap();
        let rehearsed = Rehearser::new(&data, &graph).rehearse(&config, &plan).unwrap();
        let world = World::threads(&config.parallel).timing_kernels();
        let measured = world.run(move |rank| {
            let shard = Shard::new(rank, &data, &graph, &plan, &config)?;
            let supervision = {
                let split = data.split(&data.split_name(None)?, 0)?;
                Supervision::new(&shard, &data, &split, &config.train)?
            };
            let mut learner = Learner::new(rank, shard.shape, &config)?;
            let mut epochs = Vec::new();
            for epoch in 1..=3 {
                rank.kernels().map(Timings::take);
                learner.learn(&shard, &supervision, epoch, 0.01, &mut |_, _| ())?;
                epochs.push(rank.kernels().unwrap().take().iter().map(|t| t.seconds).collect());
            }
            kernels::gather(rank, &kernels::least(&epochs[1..]))
        });
        // Nothing is compared unless every rank made as many calls as in its rehearsal.
        let compared = kernels::compare(&rehearsed, &measured.unwrap(), &profile);
        let compared = compared.unwrap_or_else(|| panic!("{strategy}: other calls"));
        assert!(compared.iter().all(|c| c.predicted_ms > 0.0 && c.measured_ms >= 0.0 && c.calls > 0.0), "{compared:?}");
        let attention = compared.iter().find(|c| c.op == "attention by source").unwrap();
        assert!(attention.shape.unwrap().0 <= 4, "{attention:?}");
    }
}

/// A nanosecond per edge and column, per product of a thousand numbers, per byte.
fn cost(work: &Work) -> f64 {
    1e-9 * match work.kind {
        WorkKind::Gemm { m, n, k } => (m * n * k) as f64 * 1e-3,
        WorkKind::Edges { edges, width, .. } => (edges * width) as f64,
        WorkKind::Stream { read, written, .. } => (read + written) as f64,
    }
}

fn network(bandwidth: f64) -> Network {
    Network { ranks_per_node: 1, inside: None, between: Wire { latency: 1e-6, bandwidth } }
}

#[test]
fn times_follow_from_costs_and_the_network() {
    let gt = &["model.name=gt", "model.heads=4"];
    let alone = rehearse(&on("local", 1, gt)).times(&network(1e9), cost).unwrap();
    assert!(alone[0].computing > 0.0 && alone[0].waiting == 0.0);
    for strategy in ["gather", "halo", "ring"] {
        let found = rehearse(&on(strategy, 3, gt));
        let times = |bandwidth| found.times(&network(bandwidth), cost).unwrap();
        assert_eq!(times(1e9), rehearse(&on(strategy, 3, gt)).times(&network(1e9), cost).unwrap(), "the same again");
        for (rank, (slow, fast)) in times(1e6).iter().zip(times(1e9)).enumerate() {
            let rehearsed = &found.ranks[rank];
            let sent: u64 = rehearsed.sent.iter().map(|s| s.bytes).sum();
            assert!(slow.end >= sent as f64 / 1e6 && slow.end > fast.end, "{strategy} {rank}: {slow:?} {fast:?}");
            assert_eq!(slow.computing, fast.computing);
            assert!(fast.computing < alone[0].computing, "a share of the work");
            let logged: usize = rehearsed
                .log
                .iter()
                .filter_map(|e| if let Event::Post { sends, .. } = e { Some(sends) } else { None })
                .flatten()
                .map(|transfer| transfer.bytes)
                .sum();
            assert_eq!(logged as u64, sent);
        }
    }
}

#[test]
fn an_average_over_faster_and_slower_ranks_is_about_what_even_ranks_take() {
    let gt = &["model.name=gt", "model.heads=4"];
    let alone = rehearse(&on("local", 1, gt));
    assert_eq!(alone.times_on_average(&network(1e9), cost).unwrap(), alone.times(&network(1e9), cost).unwrap());
    for (strategy, bandwidth) in [("gather", 1e9), ("halo", 1e7), ("heads", 1e7), ("ring", 1e8)] {
        let found = rehearse(&on(strategy, 3, gt));
        let (once, average) =
            (found.times(&network(bandwidth), cost), found.times_on_average(&network(bandwidth), cost));
        let (once, average) = (once.unwrap(), average.unwrap());
        assert_eq!(average, found.times_on_average(&network(bandwidth), cost).unwrap(), "the same again");
        for (once, average) in once.iter().zip(&average) {
            assert_eq!(once.computing, average.computing);
            assert!((average.end / once.end - 1.0).abs() < 0.03, "{strategy}: {average:?} for {once:?}");
            assert!(average.end >= average.computing);
        }
    }
}

#[test]
fn an_emulated_run_is_the_same_run_with_other_times() {
    let dir = tempfile::tempdir().unwrap();
    for ranks in [1, 3] {
        let config = on(if ranks == 1 { "local" } else { "gather" }, ranks, &["model.name=gt", "model.heads=4"]);
        let [here, there] = ["here", "there"].map(|name| dir.path().join(format!("{name}-{ranks}")));
        let real = fresh(&config, &here);
        let slow = Emulation { name: "slow".into(), network: network(1e4), compute: 2.0 };
        let world = World::emulated(&config.parallel, vec![slow]).unwrap();
        let data = Data::open(&config.data, &config.encoding, &Silent).unwrap();
        let found = on_world(&world, data, &config, &there, &Start::New, Watch::default()).unwrap();
        same(&here, &there, "an emulation");
        let sent = real.runs[0].cost.usages.iter().map(RankUsage::bytes_sent).max().unwrap_or(0);
        for ms in &found.runs[0].cost.epoch_ms {
            assert!(*ms > sent as f64 / 1e4 * 1e3 && *ms < 60_000.0 + sent as f64, "{ms} ms for {sent} bytes");
        }
    }
    let mpi = config(&["model.name=gt", "parallel.comm=mpi"]);
    assert!(World::emulated(&mpi.parallel, Vec::new()).is_err_and(|e| e.to_string().contains("parallel.comm")));
}
