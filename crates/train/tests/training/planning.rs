//! The planner, asked: what decides on a strategy is what theory says, and what is predicted is what a run takes.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::sync::Arc;

use crate::whole::{config, fresh};
use graphweft_base::progress::Silent;
use graphweft_graph::partition::statistics;
use graphweft_parallel::{Strategy, settings};
use graphweft_plan::Profile;
use graphweft_plan::search::Assessed;
use graphweft_tensor::Tag;
use graphweft_train::Error;
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::{AssumedColumns, Data};
use graphweft_train::planning::{Planned, Planner};

const WIDTH: usize = 64;
const CLASSES: usize = 10;
const COLUMNS: AssumedColumns = AssumedColumns { features: Some(WIDTH), classes: Some(CLASSES) };

fn settings(graph: &str, more: &[&str]) -> Config {
    let mut draft = Draft::default();
    let all = [&format!("data.graph={graph}"), "model.layers=2", "model.hidden=64", "model.heads=8"];
    all.iter().chain(more).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

fn planned(config: &Config, ranks: usize, profile: &Profile) -> graphweft_train::Result<Planned> {
    let data = Arc::new(Data::open_unread(&config.data, &config.encoding, COLUMNS, &Silent)?);
    let graph = config.model.prepare(data.graph.clone(), 0)?;
    Planner { config, ranks, data: &data, graph: &graph, profile }.plan(&Silent)
}

fn chosen(graph: &str, ranks: usize, profile: &Profile) -> Strategy {
    planned(&settings(graph, &[]), ranks, profile).unwrap().plan.strategy
}

fn slow() -> Profile {
    Profile::find("16-cpu-10g").unwrap()
}

/// Links that are so slow that what moves decides.
fn slower() -> Profile {
    Profile { network: Profile::find("1g").unwrap().network, ..slow() }
}

#[test]
fn where_few_rows_are_needed_elsewhere_they_alone_move() {
    let strategy = chosen("grid:100:100", 4, &slow());
    assert!(matches!(strategy, Strategy::Halo(_)), "{strategy}");
}

#[test]
fn the_choice_is_the_first_that_is_tried_and_the_best_others_follow() {
    // On a fast network many are as fast as each other, and the choice need not be the fastest of them.
    for profile in [Profile::find("nvlink").unwrap().computing_as(&slow()), slow()] {
        let Planned { plan, found, .. } =
            planned(&settings("grid:60:60", &["parallel.measure=3"]), 4, &profile).unwrap();
        let first = plan.trials[0];
        assert_eq!(plan.trials.len(), 3);
        assert_eq!((first.strategy, first.remat, Some(first.predicted)), (plan.strategy, plan.remat, plan.predicted));
        let same = |a: &&Assessed| a.feasible && a.candidate.partition == found.choice.0.partition;
        let mut others = found.candidates.iter().filter(same).filter(|a| a.candidate != found.choice.0);
        for trial in &plan.trials[1..] {
            let (candidate, prediction) = others.next().map(|a| (a.candidate, a.prediction.unwrap())).unwrap();
            assert_eq!((trial.strategy, trial.predicted.peak_bytes), (candidate.strategy, prediction.peak.total()));
        }
    }
}

#[test]
fn where_rows_are_needed_everywhere_heads_are_shared() {
    // Every part needs nearly all rows of the others; 8 heads for 8 ranks.
    let found = planned(&settings("rmat:12:64", &[]), 8, &slower()).unwrap();
    assert_eq!(found.plan.strategy, settings::Heads.into(), "{}", found.plan.why);
    assert!(found.plan.why.contains("α = ") && found.plan.why.contains("8 heads"), "{}", found.plan.why);
}

#[test]
fn where_memory_is_short_one_ranks_rows_come_at_a_time() {
    let config = settings("rmat:11:64", &[]);
    let all = planned(&config, 4, &slow()).unwrap();
    let smallest = |ring: bool| {
        let is = |s: Strategy| matches!(s, Strategy::Ring { .. }) == ring;
        let peaks = all.found.candidates.iter().filter(|a| is(a.candidate.strategy)).filter_map(|a| a.prediction);
        peaks.map(|p| p.peak.total()).min().unwrap()
    };
    assert!(!matches!(all.plan.strategy, Strategy::Ring { .. }), "{}", all.plan.why);
    // Between what ring and the next need when everything is computed again.
    let layers = settings("rmat:11:64", &["compute.remat=layer"]);
    let all = planned(&layers, 4, &slow()).unwrap();
    let peak = |ring: bool| {
        let is = |s: Strategy| matches!(s, Strategy::Ring { .. }) == ring;
        let peaks = all.found.candidates.iter().filter(|a| is(a.candidate.strategy)).filter_map(|a| a.prediction);
        peaks.map(|p| p.peak.total()).min().unwrap()
    };
    let (ring, other) = (peak(true), peak(false));
    assert!(ring < other && other <= smallest(false), "{ring} {other}");
    let short = Profile { memory: Some((ring + other) as f64 / 2.0), ..slow() };
    let found = planned(&config, 4, &short).unwrap();
    assert!(matches!(found.plan.strategy, Strategy::Ring { .. }), "{}", found.plan.why);
    assert!(found.plan.why.contains("does not fit"), "{}", found.plan.why);
    // With less, nothing fits, and it says what would.
    let none = Profile { memory: Some(ring as f64 * 0.5), ..slow() };
    let Err(error) = planned(&config, 4, &none) else { panic!("it cannot fit") };
    assert!(matches!(error, Error::Plan(graphweft_plan::Error::DoesNotFit { .. })));
    for part in ["ring", "MiB more", "ranks instead of 4"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn deep_models_on_slow_links_are_faster_in_a_pipeline() {
    let mut crawling = slower();
    crawling.network.between.bandwidth /= 10.0;
    let planned = |graph: &str, more: &[&str], profile: &Profile| planned(&settings(graph, more), 4, profile).unwrap();
    let seconds = |all: &Planned, is: fn(&Strategy) -> bool| {
        let those = all.found.candidates.iter().filter(|a| a.feasible && is(&a.candidate.strategy));
        those.filter_map(|a| Some(a.prediction?.seconds)).fold(f64::INFINITY, f64::min)
    };
    let is_pipeline = |s: &Strategy| matches!(s, Strategy::Pipeline { .. });
    let (deep, allowed) = ("model.layers=12", "parallel.allow_approximate=true");
    let all = planned("rmat:9:64", &[deep, allowed], &crawling);
    assert!(seconds(&all, is_pipeline) < seconds(&all, Strategy::is_exact));
    let all = planned("rmat:9:64", &[deep], &crawling);
    assert!(all.plan.strategy.is_exact() && seconds(&all, is_pipeline).is_infinite(), "nobody has allowed it");
    // Fewer rows are cut off than pass from stage to stage, and gradients take no time.
    let all = planned("grid:40:40", &["model.layers=4", allowed], &slow());
    assert!(seconds(&all, is_pipeline) > seconds(&all, Strategy::is_exact));
    // Four chunks for every stage: what a run needs.
    let named = planned("grid:40:40", &["model.layers=4", "parallel.strategy=pipeline:2x2"], &slow()).plan;
    assert_eq!((named.parts.unwrap().num_parts(), named.partition.unwrap().parts), (16, 16));
}

#[test]
fn pieces_are_chosen_only_where_that_is_allowed() {
    // Where links are slow, what sends gradients alone is fastest; with a whole halo it would compute most rows on
    // every rank.
    let graph = "rmat:12:16";
    let [exact, allowed] = [false, true].map(|allow| {
        let allow = format!("parallel.allow_approximate={allow}");
        planned(&settings(graph, &[&allow, "isolated.halo=0.2"]), 8, &slower()).unwrap()
    });
    let is_pieces = |a: &&Assessed| a.candidate.strategy.family() == "isolated";
    assert!(exact.plan.strategy.is_exact() && exact.found.candidates.iter().find(is_pieces).is_none());
    assert_eq!(allowed.plan.strategy, settings::Isolated.into(), "{}", allowed.plan.why);
    assert!(allowed.plan.why.contains("approximate"), "{}", allowed.plan.why);
    let [whole, pieces] = [exact, allowed].map(|found| found.found.choice.1);
    assert!(pieces.sent < whole.sent / 4 && pieces.seconds < whole.seconds, "{pieces:?}\n{whole:?}");
    // A graph that is only described is treated the same.
    let graph = "nodes=1e7,edges=1e9,features=64,classes=10,alpha=1".parse().unwrap();
    let config = settings("grid:2:2", &["parallel.allow_approximate=true", "isolated.halo=0.2"]);
    let found = Planner::simulate(&config, 8, &graph, &slower(), &Silent).unwrap();
    assert_eq!(found.choice.0.strategy, settings::Isolated.into(), "{}", found.why);
    assert!(found.candidates.iter().any(|a| a.feasible && !is_pieces(&a)));
}

#[test]
fn memory_for_pieces_decides_the_chunks_that_are_planned() {
    let dir = tempfile::tempdir().unwrap();
    let graph = "sbm:6000:4:8:f=32";
    let limit = planned(&settings(graph, &[]), 1, &slow()).unwrap().found.choice.1.peak.total() / 3;
    let memory = format!("isolated.memory={limit}");
    let pieces = ["parallel.strategy=isolated", "parallel.partition=contiguous", "train.epochs=2", &memory];
    for ranks in [1, 2] {
        let in_ranks = format!("parallel.ranks={ranks}");
        let config = settings(graph, &[&pieces[..], &[&in_ranks]].concat());
        let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
        let prepared = config.model.prepare(data.graph.clone(), 0).unwrap();
        let (profile, config) = (&slow(), &config);
        let found = Planner { config, ranks, data: &data, graph: &prepared, profile }.plan(&Silent).unwrap();
        let run = fresh(config, &dir.path().join(&in_ranks));
        let [chunks, taken] = [&found.plan, &run.plan].map(|plan| plan.partition.as_ref().unwrap().parts);
        assert!(chunks == taken && chunks > 2, "{chunks} for {taken}");
        let peak = found.found.choice.1.peak.total();
        let taken = run.runs[0].cost.usages.iter().map(|usage| usage.peak.total()).max().unwrap();
        match ranks {
            // Scores are made some rows after others, which is not rehearsed.
            1 => assert!(peak <= limit && peak <= taken && peak > limit / 4, "{peak} of {limit}, {taken} in a run"),
            _ => assert_eq!(peak, taken),
        }
        // Without labels it is the same.
        let unread = planned(config, ranks, profile).unwrap().plan;
        assert!(unread.partition.unwrap().parts > 2);
    }
    let refused = |found: graphweft_train::Result<()>| {
        let message = found.unwrap_err().to_string();
        assert!(message.contains("isolated.memory") && message.contains("remedy"), "{message}");
    };
    refused(planned(&settings(graph, &[&memory]), 2, &slow()).map(|_| ()));
    let described = "nodes=1e7,edges=1e9,features=64,classes=10".parse().unwrap();
    refused(Planner::simulate(&settings(graph, &pieces), 2, &described, &slow(), &Silent).map(|_| ()));
}

#[test]
fn tiny_graphs_on_two_ranks_are_gathered() {
    let strategy = chosen("rmat:7:16", 2, &slow());
    assert_eq!(strategy, settings::Gather.into());
}

#[test]
fn what_is_predicted_is_what_a_run_takes() {
    let dir = tempfile::tempdir().unwrap();
    for (ranks, remat) in [(1, "none"), (1, "layer"), (3, "none")] {
        let ranks = format!("parallel.ranks={ranks}");
        let remat = format!("compute.remat={remat}");
        let config = config(&[&ranks, &remat, "parallel.profile=16-cpu-10g"]);
        let run = fresh(&config, &dir.path().join(format!("{ranks}-{remat}")));
        let (predicted, measured) = (run.plan.predicted.unwrap(), run.plan.measured.unwrap());
        assert_eq!(predicted.peak_bytes, measured.peak_bytes, "{ranks} {remat}");
        assert!(predicted.epoch_ms.is_some() && measured.epoch_ms.is_some(), "{ranks} {remat}");
    }
}

#[test]
fn a_rank_without_enough_memory_computes_again() {
    let config = settings("sbm:2000:4:8:f=64", &[]);
    let all = planned(&config, 1, &slow()).unwrap();
    let peak = all.found.choice.1.peak;
    assert!(peak.of(Tag::Activations) > 0);
    let short = Profile { memory: Some(peak.total() as f64 * 0.8), ..slow() };
    let found = planned(&config, 1, &short).unwrap();
    assert_ne!(found.plan.remat, all.plan.remat, "{}", found.plan.why);
    assert!(found.plan.why.contains("again"), "{}", found.plan.why);
}

#[test]
fn a_description_is_planned_like_the_graph_that_it_describes() {
    let profile = slow();
    let config = settings("sbm:12000:10:16:f=64", &["parallel.partition=contiguous"]);
    let data = Arc::new(Data::open_unread(&config.data, &config.encoding, COLUMNS, &Silent).unwrap());
    let graph = config.model.prepare(data.graph.clone(), 0).unwrap();
    let real =
        Planner { config: &config, ranks: 8, data: &data, graph: &graph, profile: &profile }.plan(&Silent).unwrap();
    let alpha = statistics(&data.graph, real.plan.parts.as_ref().unwrap()).alpha;
    let described = format!(
        "nodes={},edges={},features={WIDTH},classes={},alpha={alpha}",
        data.graph.num_dst(),
        data.graph.num_edges(),
        data.classes
    );
    let simulated = Planner::simulate(&config, 8, &described.parse().unwrap(), &profile, &Silent).unwrap();
    let mut compared = 0;
    for a in &simulated.candidates {
        let is = |b: &&Assessed| (b.candidate.strategy, b.candidate.remat) == (a.candidate.strategy, a.candidate.remat);
        let same = real.found.candidates.iter().find(is);
        let Some((p, q)) = same.and_then(|b| Some((a.prediction?, b.prediction?))) else { continue };
        let apart = p.peak.total() as f64 / q.peak.total() as f64 - 1.0;
        assert!(apart.abs() < 0.05, "{}: {} for {}", a.candidate, p.peak, q.peak);
        let sent = p.sent as f64 / q.sent as f64 - 1.0;
        assert!(sent.abs() < 0.05, "{}: {} bytes for {}", a.candidate, p.sent, q.sent);
        compared += 1;
    }
    assert!(compared >= 5, "{compared}");
}

#[test]
fn parts_with_many_rows_of_a_described_graph_hold_what_those_of_the_graph_hold() {
    let (profile, mut wrong) = (slow(), Vec::new());
    for (ranks, strategy, remat) in [
        (1, "local", "none"),
        (1, "local", "layer"),
        (1, "local", "both"),
        (4, "gather", "none"),
        (4, "halo:plain", "none"),
        (4, "halo:plain", "layer"),
        (4, "ring", "layer"),
        (4, "grid:2x2", "layer"),
    ] {
        let [strategy, remat] = [format!("parallel.strategy={strategy}"), format!("compute.remat={remat}")];
        let shape = ["model.hidden=128", "compute.dtype=bf16", "train.dropout=0.1", "parallel.partition=contiguous"];
        let more: Vec<&str> = shape.iter().copied().chain([strategy.as_str(), remat.as_str()]).collect();
        let config = settings("sbm:24000:10:16:f=64", &more);
        let data = Arc::new(Data::open_unread(&config.data, &config.encoding, COLUMNS, &Silent).unwrap());
        let graph = config.model.prepare(data.graph.clone(), 0).unwrap();
        let real = Planner { config: &config, ranks, data: &data, graph: &graph, profile: &profile };
        let real = real.plan(&Silent).unwrap();
        let alpha = real.plan.parts.as_ref().map_or(0.0, |parts| statistics(&data.graph, parts).alpha);
        let (nodes, edges) = (data.graph.num_dst(), data.graph.num_edges());
        let described =
            format!("nodes={nodes},edges={edges},features={WIDTH},classes={CLASSES},alpha={alpha},growth=0");
        let simulated = Planner::simulate(&config, ranks, &described.parse().unwrap(), &profile, &Silent).unwrap();
        let [p, q] = [&simulated, &real.found].map(|found| found.choice.1.peak);
        let apart = p.total() as f64 / q.total() as f64 - 1.0;
        if apart.abs() > 0.03 {
            wrong.push(format!("{strategy} {remat}: {apart:+.3}\n{p}\nfor\n{q}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
