//! The time of an epoch by the number of ranks, as a figure.

use std::collections::BTreeMap;
use std::path::Path;

use graphweft_base::progress::Silent;
use graphweft_figure::{self as figure, Area, COOL, Drawn, FAINT, INK, Room, STRONG, axes, legend, mesh};
use graphweft_plan::explain::counted;
use graphweft_plan::simulate::Description;
use graphweft_plan::{Found, Profile};
use graphweft_train::config::Config;
use graphweft_train::planning::Planner;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use serde_json::{Value, json};

use crate::error::Result;

/// Letters of a title and of a caption that are as long as a figure is wide.
const TITLE: usize = 70;
const CAPTION: usize = 110;
/// Colours of lines. When they are used up they come again, with other dashes: pixels of a dash, and of a gap.
const COLOURS: [RGBColor; 6] = [STRONG, COOL, INK, FAINT, RGBColor(60, 130, 120), RGBColor(150, 120, 190)];
const SOLID: (u32, u32) = (1 << 20, 0);
const DASHED: (u32, u32) = (7, 4);
const DOTTED: (u32, u32) = (2, 4);
/// More ticks of an axis than this are too many.
const MOST_TICKS: usize = 14;

/// Seconds of an epoch of the fastest of every family that fits, by the number of ranks.
#[derive(Clone, Debug)]
pub(super) struct Curves {
    title: String,
    caption: String,
    lines: BTreeMap<&'static str, Vec<(f64, f64)>>,
}

/// Simulates 1, 2, 4, … ranks, `most` at most.
pub(super) fn find(config: &Config, graph: &Description, profile: &Profile, most: usize) -> Curves {
    let mut lines: BTreeMap<&'static str, Vec<(f64, f64)>> = BTreeMap::new();
    for ranks in std::iter::successors(Some(1), |p| Some(2 * p)).take_while(|p| *p <= most) {
        // Where nothing fits there is no point.
        let Ok(found) = Planner::simulate(config, ranks, graph, profile, &Silent) else { continue };
        for (family, seconds) in fastest(&found) {
            lines.entry(family).or_default().push((ranks as f64, seconds));
        }
    }
    let (title, caption) = headings(config.model_name(), graph, most, profile);
    Curves { title, caption, lines }
}

impl Curves {
    /// Draws them as SVG.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let panel: figure::Panel<'_> = Box::new(|area| draw(area, &self.caption, &self.lines));
        Ok(figure::write(path, &self.title, &[panel])?)
    }

    /// As `graphweft plan --json` prints them.
    pub(super) fn to_json(&self) -> Value {
        let point = |(ranks, seconds): &(f64, f64)| json!({"ranks": *ranks as u64, "seconds": seconds});
        let line = |(family, points): (&&str, &Vec<(f64, f64)>)| json!({"family": family, "points": points.iter().map(point).collect::<Vec<_>>()});
        self.lines.iter().map(line).collect()
    }
}

/// The title of a curve, and what is below it.
fn headings(model: &str, graph: &Description, ranks: usize, profile: &Profile) -> (String, String) {
    let size = format!("{:.2e} nodes, {:.2e} edges", graph.nodes, graph.edges);
    let alpha = format!("α = {:.2} on {}", graph.alpha(ranks), counted(ranks, "rank"));
    let title = format!("{model} on {size}; simulated");
    let caption = format!("the fastest of each kind that fits; {alpha}; {}", profile.about);
    (shortened(&title, TITLE), shortened(&caption, CAPTION))
}

fn fastest(found: &Found) -> BTreeMap<&'static str, f64> {
    let mut all = BTreeMap::new();
    for a in found.candidates.iter().filter(|a| a.feasible) {
        if let Some(p) = &a.prediction {
            // The fastest comes first.
            all.entry(a.candidate.strategy.family()).or_insert(p.seconds);
        }
    }
    all
}

/// The ticks are chosen here: by itself a logarithmic axis has none below 0.1.
fn draw(area: &Area<'_>, caption: &str, lines: &BTreeMap<&'static str, Vec<(f64, f64)>>) -> Drawn {
    let all = || lines.values().flatten();
    let bounds = |of: fn(&(f64, f64)) -> f64| {
        let (low, high) = all().map(of).fold((f64::INFINITY, f64::MIN_POSITIVE), |(l, h), x| (l.min(x), h.max(x)));
        (low.min(high), high)
    };
    let ((x0, x1), (y0, y1)) = (bounds(|p| p.0), bounds(|p| p.1));
    let y = (y0 * 0.7, y1 * 3.0);
    let doubled = std::iter::successors(Some(1.0_f64), |p| Some(2.0 * p)).take_while(|p| *p <= x1);
    let x_axis = (x0 * 0.9..x1 * 1.1).log_scale().with_key_points(doubled.collect());
    let y_axis = (y.0..y.1).log_scale().with_key_points(ticks(y.0, y.1));
    let mut chart = axes(area, caption, Room::left(84), x_axis, y_axis)?;
    mesh(&mut chart, "ranks (log scale)", "seconds per epoch (log scale)")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| tick(*y))
        .draw()?;
    let styles = [SOLID, DASHED, DOTTED].into_iter().flat_map(|dashes| COLOURS.map(|colour| (colour, dashes))).cycle();
    for ((name, points), (colour, (dash, gap))) in lines.iter().zip(styles) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(DashedLineSeries::new(points.iter().copied(), dash, gap, style))?
            .label(*name)
            .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 20, y)], dash, gap, style));
        chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

/// 1, 2 and 5 times the powers of ten between two numbers; the powers alone where that would be many.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let of = |steps: &[f64]| -> Vec<f64> {
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all = powers.flat_map(|k| steps.iter().map(move |step| step * 10_f64.powi(k)));
        all.filter(|x| (low..=high).contains(x)).collect()
    };
    let fine = of(&[1.0, 2.0, 5.0]);
    if fine.len() > MOST_TICKS { of(&[1.0]) } else { fine }
}

/// One digit that counts.
fn tick(x: f64) -> String {
    // A power may be a little less than it is.
    let digits = (-(x * (1.0 + 1e-9)).log10().floor()).clamp(0.0, 9.0) as usize;
    if x >= 1e6 { format!("{x:.0e}") } else { format!("{x:.digits$}") }
}

/// As much as there is room for.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written in a figure.
    fn words(title: &str, caption: &str, points: &[(f64, f64)]) -> Vec<String> {
        let svg = drawn(title, caption, &BTreeMap::from([("halo", points.to_vec())]));
        let texts = svg.split("<text").skip(1).filter_map(|t| Some(t.split_once('>')?.1.split_once('<')?.0.trim()));
        texts.map(String::from).collect()
    }

    #[test]
    fn a_curve_has_ticks_that_can_be_read_at_any_scale() {
        let words = words("title", "caption", &[(1.0, 0.093), (2.0, 0.0317), (4.0, 0.0168), (8.0, 0.0093)]);
        for tick in ["1", "2", "4", "8", "0.01", "0.02", "0.05", "0.1", "0.2"] {
            assert!(words.iter().any(|w| w == tick), "{tick}: {words:?}");
        }
        assert!(words.iter().all(|w| w.len() < 40), "{words:?}");
        assert_eq!(ticks(1e-4, 1e4).len(), 9);
        assert_eq!([3600.0, 0.7, 0.05].map(tick), ["3600", "0.7", "0.05"]);
    }

    fn drawn(title: &str, caption: &str, lines: &BTreeMap<&'static str, Vec<(f64, f64)>>) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scaling.svg");
        let panel: figure::Panel<'_> = Box::new(|area| draw(area, caption, lines));
        figure::write(&path, title, &[panel]).unwrap();
        std::fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn every_family_has_a_line_that_can_be_told_from_the_others() {
        let names = ["gather", "grid", "halo", "heads", "isolated", "local", "pipeline", "ring"];
        let points = |k: usize| vec![(1.0, 1.0 + k as f64), (8.0, 0.1 + k as f64)];
        let lines: BTreeMap<_, _> = names.into_iter().enumerate().map(|(k, name)| (name, points(k))).collect();
        let svg = drawn("title", "caption", &lines);
        assert!(names.iter().all(|name| svg.contains(name)), "{svg}");
        let strokes = |n: usize| {
            let some: BTreeMap<_, _> = lines.clone().into_iter().take(n).collect();
            drawn("title", "caption", &some).matches("<polyline").count()
        };
        // Of the seventh on, every line is many dashes.
        assert!(strokes(7) - strokes(6) > 4 && strokes(8) - strokes(7) > 4);
    }

    #[test]
    fn titles_end_where_the_figure_does() {
        let graph = "nodes=111059956,edges=3.23e9,features=128,classes=172".parse().unwrap();
        let profile = Profile::find("2x4-gpu-100g").unwrap();
        let (title, caption) = headings("polynormer", &graph, 4096, &profile);
        assert!(title.chars().count() <= TITLE && caption.chars().count() <= CAPTION, "{title}\n{caption}");
        assert!(caption.contains("α = ") && caption.contains(&profile.about), "{caption}");
    }
}
