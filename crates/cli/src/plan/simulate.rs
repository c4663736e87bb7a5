//! `graphweft plan --simulate`: a graph that is only described.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use graphweft_graph::progress::{Progress, Silent};
use graphweft_parallel::Strategy;
use graphweft_plan::simulate::Description;
use graphweft_plan::{Found, Profile};
use graphweft_train::config::Config;
use graphweft_train::figure::{self, Area, COOL, Drawn, FAINT, INK, STRONG, axes, legend, mesh};
use graphweft_train::planner;
use graphweft_train::world::World;
use plotters::prelude::*;

use super::{Args, figure as bars, text, title, to_json};
use crate::ui::Ui;

pub(super) fn run(args: &Args, config: &Config, graph: &Description, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let progress: Arc<dyn Progress> = Arc::new(ui.clone());
    let Some(profile) = planner::profile(config, world, world.leads(), &progress)? else { return Ok(()) };
    let ranks = world.ranks();
    let found = planner::simulate(config, ranks, graph, &profile, ui)?;
    let size = format!("{:.2e} nodes, {:.2e} edges, α = {:.2}", graph.nodes, graph.edges, graph.alpha(ranks));
    let title = format!("{}; simulated", title(config, &size, ranks, &profile));
    let memory = profile.memory.unwrap_or(f64::MAX) as u64;
    if let Some(path) = &args.plot {
        bars::write(path, &title, &found, memory)?;
    }
    if let Some(path) = &args.scaling {
        scaling(path, &title, config, graph, &profile, ranks)?;
    }
    ui.result(&to_json(&found, "simulated", ranks, memory, &profile), || text(&found, &title, &profile))
}

/// The fastest of every family that fits, by the number of ranks.
fn scaling(
    path: &Path,
    title: &str,
    config: &Config,
    graph: &Description,
    profile: &Profile,
    most: usize,
) -> anyhow::Result<()> {
    let mut lines: BTreeMap<&'static str, Vec<(f64, f64)>> = BTreeMap::new();
    for ranks in std::iter::successors(Some(1), |p| Some(2 * p)).take_while(|p| *p <= most) {
        // Where nothing fits there is no point.
        let Ok(found) = planner::simulate(config, ranks, graph, profile, &Silent) else { continue };
        for (family, seconds) in fastest(&found) {
            lines.entry(family).or_default().push((ranks as f64, seconds));
        }
    }
    let panel: figure::Panel<'_> = Box::new(|area| draw(area, &lines));
    Ok(figure::write(path, title, &[panel])?)
}

fn fastest(found: &Found) -> BTreeMap<&'static str, f64> {
    let mut all = BTreeMap::new();
    for a in found.candidates.iter().filter(|a| a.feasible) {
        let family = match a.candidate.strategy {
            Strategy::Local => "local",
            Strategy::Gather => "gather",
            Strategy::Halo(_) => "halo",
            Strategy::Heads => "heads",
            Strategy::Ring { .. } => "ring",
            Strategy::Grid { .. } => "grid",
        };
        if let Some(p) = &a.prediction {
            // The fastest comes first.
            all.entry(family).or_insert(p.seconds);
        }
    }
    all
}

fn draw(area: &Area<'_>, lines: &BTreeMap<&'static str, Vec<(f64, f64)>>) -> Drawn {
    let all = || lines.values().flatten();
    let bounds = |of: fn(&(f64, f64)) -> f64| {
        all().map(of).fold((f64::INFINITY, f64::MIN_POSITIVE), |(low, high), x| (low.min(x), high.max(x)))
    };
    let ((x0, x1), (y0, y1)) = (bounds(|p| p.0), bounds(|p| p.1));
    let (x0, y0) = (x0.min(x1), y0.min(y1));
    let (x, y) = ((x0 * 0.9..x1 * 1.1).log_scale(), (y0 * 0.7..y1 * 3.0).log_scale());
    let mut chart = axes(area, "the fastest of each kind that fits", 84, (x, y))?;
    mesh(&mut chart, ("ranks (log scale)", "seconds per epoch (log scale)")).draw()?;
    let colours = [STRONG, COOL, INK, FAINT, RGBColor(60, 130, 120), RGBColor(150, 120, 190)];
    for ((name, points), colour) in lines.iter().zip(colours) {
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}
