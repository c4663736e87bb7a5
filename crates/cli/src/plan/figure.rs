//! Candidates beside one another as stacked bars: what their time is spent on, and what their memory is for.

use std::path::Path;

use graphweft_plan::Found;
use graphweft_plan::search::{Assessed, Prediction};
use graphweft_tensor::Tag;
use graphweft_train::figure::{self, Area, COOL, Drawn, FAINT, INK, STRONG, axes, legend, mesh, text};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Bars fill this share of their places.
const BAR: f64 = 0.7;
/// The legend lies above everything drawn: the vertical axis is longer than needed by this factor.
const LEGEND_ROOM: f64 = 1.4;
/// More bars than this cannot be told apart.
const MOST: usize = 14;
const MIB: f64 = (1 << 20) as f64;

/// One thing that bars are stacked of: its name, its colour, and how much a candidate has of it.
type Part<'a> = (&'static str, RGBColor, Box<dyn Fn(&Prediction) -> f64 + 'a>);

/// Draws the candidates that were rehearsed; `memory` is what a rank may use.
pub(super) fn write(path: &Path, title: &str, found: &Found, memory: u64) -> anyhow::Result<()> {
    let drawn = |a: &Assessed| Some((a.candidate.to_string(), a.prediction?));
    let bars: Vec<(String, Prediction)> = found.candidates.iter().filter_map(drawn).take(MOST).collect();
    let times: [Part<'_>; 3] = [
        ("kernels of the mean rank", STRONG, Box::new(|p| p.compute * 1e3)),
        ("kernels of the busiest beyond that", FAINT, Box::new(|p| p.imbalance * 1e3)),
        ("waiting for messages", COOL, Box::new(|p| p.exposed * 1e3)),
    ];
    let colours = [
        RGBColor(90, 60, 130),
        RGBColor(150, 120, 190),
        RGBColor(60, 130, 120),
        STRONG,
        RGBColor(120, 150, 60),
        COOL,
        FAINT,
    ];
    let tags: Vec<Part<'_>> = (Tag::ALL.into_iter().zip(colours))
        .map(|(tag, colour)| -> Part<'_> { (tag.name(), colour, Box::new(move |p| p.peak.of(tag) as f64 / MIB)) })
        .collect();
    let limit = memory as f64 / MIB;
    let panels: [figure::Panel<'_>; 2] = [
        Box::new(|area| stack(area, "time of an epoch, the fastest first", "ms", &bars, &times, None)),
        Box::new(|area| stack(area, "peak of the rank that needs most", "MiB", &bars, &tags, Some(limit))),
    ];
    Ok(figure::write(path, title, &panels)?)
}

fn stack(
    area: &Area<'_>,
    caption: &str,
    unit: &str,
    bars: &[(String, Prediction)],
    parts: &[Part<'_>],
    limit: Option<f64>,
) -> Drawn {
    let total = |p: &Prediction| parts.iter().map(|(_, _, of)| of(p)).sum::<f64>();
    let top = bars.iter().map(|(_, p)| total(p)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let mut chart = axes(area, caption, 84, (0.0..bars.len().max(1) as f64, 0.0..top * LEGEND_ROOM))?;
    mesh(&mut chart, ("", unit)).disable_x_mesh().x_labels(0).draw()?;
    let mut ends = vec![0.0; bars.len()];
    for (name, colour, of) in parts {
        let (name, colour) = (*name, *colour);
        let mut pieces = Vec::new();
        for (k, (_, p)) in bars.iter().enumerate() {
            let (from, to) = (ends[k], ends[k] + of(p));
            ends[k] = to;
            let left = k as f64 + (1.0 - BAR) / 2.0;
            pieces.push(Rectangle::new([(left, from), (left + BAR, to)], colour.mix(0.85).filled()));
        }
        chart
            .draw_series(pieces)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x + 4, y - 5), (x + 16, y + 5)], colour.mix(0.85).filled()));
    }
    if let Some(limit) = limit.filter(|limit| *limit < top * LEGEND_ROOM) {
        chart
            .draw_series(LineSeries::new([(0.0, limit), (bars.len() as f64, limit)], INK.stroke_width(2)))?
            .label("memory of a rank")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], INK.stroke_width(2)));
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    let style = text(12).pos(Pos::new(HPos::Center, VPos::Top));
    let (x0, y0) = area.get_base_pixel();
    for (k, (name, _)) in bars.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(k as f64 + 0.5, 0.0));
        for (line, part) in name.split(", ").enumerate() {
            area.draw_text(part, &style, (x - x0, y - y0 + 6 + 15 * line as i32))?;
        }
    }
    Ok(())
}
