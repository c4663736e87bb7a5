//! Figures as SVG: one or more panels side by side under a title.

use std::fmt::Write as _;
use std::path::Path;

use graphweft_figure::{self as figure, Area, Drawn, FAINT, INK, Room, STRONG, axes, legend, mesh, text};
use graphweft_graph::stats::Degrees;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Trial;
use crate::amount::count;
use crate::error::Result;

/// Where logarithmic axes of counts start, just below 1, and how much room they leave above the largest.
const LEAST: f64 = 0.75;
const ROOM: f64 = 1.6;
/// The legend lies above everything drawn: the vertical axis is longer than needed by this factor.
const LEGEND_ROOM: f64 = 1.25;

/// One part of a figure.
pub(super) enum Panel<'a> {
    /// The degree distribution, both axes logarithmic.
    Degrees {
        /// What to draw.
        degrees: &'a Degrees,
        /// What a degree is called: of a directed graph, an in-degree.
        name: &'static str,
    },
    /// The parts of several partitions: edges as bars, rows as dots, both relative to the mean.
    Parts(Vec<&'a Trial>),
}

/// Draws the panels side by side and writes them to `path`.
pub(super) fn write(path: &Path, title: &str, panels: &[Panel<'_>]) -> Result<()> {
    let draw = |panel| -> figure::Panel<'_> {
        match panel {
            &Panel::Degrees { degrees, name } => Box::new(move |area| draw_degrees(area, degrees, name)),
            Panel::Parts(trials) => Box::new(move |area| draw_parts(area, trials)),
        }
    };
    Ok(figure::write(path, title, &panels.iter().map(draw).collect::<Vec<_>>())?)
}

/// Each degree that occurs as a faint dot, and the number of nodes of at least that degree as a line: single degrees
/// scatter where few nodes have them, the sum from the right shows the shape without bins.
fn draw_degrees(area: &Area<'_>, degrees: &Degrees, name: &'static str) -> Drawn {
    let mut caption = format!(
        "mean {:.2}, median {}, 99 % at most {}, largest {}",
        degrees.mean(),
        count(degrees.quantile(0.5)),
        count(degrees.quantile(0.99)),
        count(degrees.max()),
    );
    if degrees.zero() > 0 {
        // Zero has no place on a logarithmic axis.
        let _ = write!(caption, "; {} nodes of {name} 0 are not drawn", count(degrees.zero()));
    }
    let exactly: Vec<(f64, f64)> =
        degrees.counts().iter().filter(|(d, _)| *d > 0).map(|&(d, nodes)| (d as f64, nodes as f64)).collect();
    let mut sum = 0.0;
    let at_least: Vec<(f64, f64)> = (exactly.iter().rev())
        .map(|&(degree, nodes)| {
            sum += nodes;
            (degree, sum)
        })
        .collect();

    let x = LEAST..degrees.max().max(2) as f64 * ROOM;
    let y = LEAST..sum.max(2.0).powf(LEGEND_ROOM) * ROOM;
    let mut chart = axes(area, &caption, Room::left(84), x.log_scale(), y.log_scale())?;
    mesh(&mut chart, &format!("{name} (log scale)"), "nodes (log scale)")
        .x_label_formatter(&power)
        .y_label_formatter(&power)
        .draw()?;

    chart
        .draw_series(LineSeries::new(at_least, STRONG.stroke_width(2)))?
        .label(format!("of at least this {name}"))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], STRONG.stroke_width(2)));
    chart
        .draw_series(exactly.iter().map(|&p| Circle::new(p, 3, FAINT.mix(0.7).filled())))?
        .label(format!("of exactly this {name}"))
        .legend(|(x, y)| Circle::new((x + 10, y), 4, FAINT.filled()));
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

/// A group of bars per partitioner, a bar per part, the largest first: what one rank has to do more than the mean, all
/// wait for.
fn draw_parts(area: &Area<'_>, trials: &[&Trial]) -> Drawn {
    let parts = trials.first().map_or(0, |t| t.stats.rows.len());
    let relative = |sizes: &[u64]| -> Vec<f64> {
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len().max(1) as f64;
        sizes.iter().map(|&x| if mean > 0.0 { x as f64 / mean } else { 0.0 }).collect()
    };
    let groups: Vec<Vec<(f64, f64)>> = (trials.iter())
        .map(|t| {
            let mut sizes: Vec<_> = relative(&t.stats.edges).into_iter().zip(relative(&t.stats.rows)).collect();
            sizes.sort_by(|a, b| b.0.total_cmp(&a.0));
            sizes
        })
        .collect();
    let top = groups.iter().flatten().map(|(e, r)| e.max(*r)).fold(1.0, f64::max);
    // Groups are one unit apart, bars fill four fifths of it.
    let bar = 0.8 / parts.max(1) as f64;
    let left = |group: usize, k: usize| group as f64 + 0.1 + k as f64 * bar;

    let caption = format!("{parts} parts: edges and rows of each");
    let mut chart = axes(area, &caption, Room::left(64), 0.0..trials.len() as f64, 0.0..top * LEGEND_ROOM)?;
    mesh(&mut chart, "", "relative to the mean").disable_x_mesh().x_labels(0).draw()?;
    let bars = groups.iter().enumerate().flat_map(|(g, sizes)| {
        let one = move |(k, (edges, _)): (usize, &(f64, f64))| {
            Rectangle::new([(left(g, k), 0.0), (left(g, k) + 0.85 * bar, *edges)], STRONG.mix(0.75).filled())
        };
        sizes.iter().enumerate().map(one)
    });
    chart
        .draw_series(bars)?
        .label("edges")
        .legend(|(x, y)| Rectangle::new([(x + 4, y - 5), (x + 16, y + 5)], STRONG.mix(0.75).filled()));
    let dots = groups.iter().enumerate().flat_map(|(g, sizes)| {
        let one =
            move |(k, (_, rows)): (usize, &(f64, f64))| Circle::new((left(g, k) + 0.42 * bar, *rows), 3, INK.filled());
        sizes.iter().enumerate().map(one)
    });
    chart.draw_series(dots)?.label("rows").legend(|(x, y)| Circle::new((x + 10, y), 4, INK.filled()));
    legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    let style = text(15).pos(Pos::new(HPos::Center, VPos::Top));
    for (g, trial) in trials.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(g as f64 + 0.5, 0.0));
        let (x0, y0) = area.get_base_pixel();
        for (line, text) in [trial.method.clone(), format!("α = {:.3}", trial.stats.alpha)].iter().enumerate() {
            area.draw_text(text, &style, (x - x0, y - y0 + 8 + 20 * line as i32))?;
        }
    }
    Ok(())
}

/// Labels of a logarithmic axis.
fn power(x: &f64) -> String {
    let exponent = x.log10().round() as i32;
    match exponent {
        0..=3 => format!("{x:.0}"),
        _ => format!("10{}", superscript(exponent)),
    }
}

fn superscript(exponent: i32) -> String {
    let digit = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    };
    exponent.to_string().chars().map(digit).collect()
}
