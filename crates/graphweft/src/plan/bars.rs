//! Candidates beside one another as stacked bars: what their time is spent on, and what their memory is for.

use std::path::Path;

use graphweft_figure::{self as figure, Area, COOL, Drawn, FAINT, INK, Room, STRONG, axes, legend, mesh};
use graphweft_plan::explain::{counted, within};
use graphweft_tensor::Tag;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Candidate, Plan, Prediction};
use crate::error::Result;

/// Bars fill this share of their places.
const BAR: f64 = 0.7;
/// Room below bars for their names, which are written upwards; and in which a letter has so much.
const NAMES: u32 = 140;
const LETTER: f64 = 6.6;
/// The legend lies above everything drawn: pixels of one of its lines and of what is around them, of those that a panel
/// has.
const LEGEND_LINE: f64 = 20.0;
const LEGEND_FRAME: f64 = 40.0;
const PANEL: f64 = 330.0;
/// More bars than this cannot be told apart.
const MOST: usize = 14;
/// Pixels between the lines of a name.
const LINE: f64 = 13.0;
/// The memory of a rank is drawn if it is less than so many times what is needed.
const NEAR: f64 = 1.4;
const MIB: f64 = (1 << 20) as f64;
/// Letters of the heading of a picture that is two panels wide.
const HEADING: usize = 110;
/// What is chosen is marked by this.
const MARK: &str = "→ ";

/// One thing that bars are stacked of: its name, its colour, and how much a candidate has of it.
type Part<'a> = (&'static str, RGBColor, Box<dyn Fn(&Prediction) -> f64 + 'a>);

/// Draws the candidates that were rehearsed.
pub(super) fn write(path: &Path, plan: &Plan) -> Result<()> {
    let drawn = |c: &Candidate| {
        let mark = if c.name == plan.chosen.name { MARK } else { "" };
        Some((format!("{mark}{}", c.name), c.prediction?))
    };
    // One rank, which is only compared, comes last.
    let searched = plan.candidates.iter().filter(|c| plan.one_rank.is_none() || c.ranks == plan.ranks);
    let mut bars: Vec<(String, Prediction)> = searched.filter_map(drawn).take(MOST - 1).collect();
    bars.extend(plan.one_rank.map(|p| ("one rank".to_string(), p)));
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
        .map(|(tag, colour)| -> Part<'_> {
            (tag.name(), colour, Box::new(move |p| p.peak.of(tag.name()) as f64 / MIB))
        })
        .collect();
    let limit = plan.memory as f64 / MIB;
    let error = within(plan.profile_error);
    let times_caption = format!("time of an epoch, {error}, the fastest first");
    let panels: [figure::Panel<'_>; 2] = [
        Box::new(|area| stack(area, &times_caption, "ms", &bars, &times, None)),
        Box::new(|area| stack(area, "peak of the rank that needs most", "MiB", &bars, &tags, Some(limit))),
    ];
    Ok(figure::write(path, &heading(plan), &panels)?)
}

/// For whom, and made of what.
fn heading(plan: &Plan) -> String {
    let whole = format!("{}; {}; {}", plan.title, counted(plan.ranks, "rank"), plan.machine);
    match whole.char_indices().nth(HEADING) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
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
    let limit = limit.filter(|limit| *limit < top * NEAR);
    let lines = parts.len() + usize::from(limit.is_some());
    let above = top.max(limit.unwrap_or(0.0)) / (1.0 - (LEGEND_FRAME + LEGEND_LINE * lines as f64) / PANEL);
    let mut chart = axes(area, caption, Room::left(84).below(NAMES), 0.0..bars.len().max(1) as f64, 0.0..above)?;
    mesh(&mut chart, "", unit).disable_x_mesh().x_labels(0).draw()?;
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
    if let Some(limit) = limit {
        chart
            .draw_series(LineSeries::new([(0.0, limit), (bars.len() as f64, limit)], INK.stroke_width(2)))?
            .label("memory of a rank")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], INK.stroke_width(2)));
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    let upwards = FontTransform::Rotate270;
    let style = ("sans-serif", 12).into_font().transform(upwards).color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
    let (x0, y0) = area.get_base_pixel();
    for (k, (name, _)) in bars.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(k as f64 + 0.5, 0.0));
        let lines = lines_of(name, ((f64::from(NAMES) - 10.0) / LETTER) as usize);
        for (line, part) in lines.iter().enumerate() {
            let across = (LINE * (line as f64 - (lines.len() - 1) as f64 / 2.0)) as i32;
            area.draw_text(part, &style, (x - x0 + across, y - y0 + 6))?;
        }
    }
    Ok(())
}

/// A name in lines of at most so many letters, of which there are few: after commas, where that is enough.
fn lines_of(name: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in name.split(", ") {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 2 + part.chars().count() <= most => {
                last.push_str(", ");
                last.push_str(part);
            }
            _ => lines.push(part.chars().take(most).collect()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lines_that_have_room() {
        assert_eq!(lines_of("→ halo, contiguous", 19), ["→ halo, contiguous"]);
        let long = "grid:16x16:gather, contiguous, layers, attention twice recomputed";
        let lines = lines_of(long, 19);
        assert_eq!(lines, ["grid:16x16:gather", "contiguous, layers", "attention twice rec"]);
    }
}
