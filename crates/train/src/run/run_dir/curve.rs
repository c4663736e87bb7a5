//! The training curve: loss on the left, scores on the right.

use std::ops::Range;
use std::path::Path;

use graphweft_base::Result;
use plotters::prelude::*;

use super::Line;
use crate::task::metrics::{Metric, Scale};
use graphweft_figure::{self as figure, Area, COOL, Drawn, FAINT, Panel, Room, STRONG, axes, legend, mesh};

/// Draws `curve.svg` in `folder`; `best` is the epoch that is reported.
pub(crate) fn write(folder: &Path, title: &str, metric: &Metric, lines: &[Line], best: u64) -> Result<()> {
    let panels: [Panel<'_>; 2] =
        [Box::new(|area| draw_loss(area, lines)), Box::new(|area| draw_scores(area, metric, lines, best))];
    figure::write(&folder.join("curve.svg"), title, &panels)
}

/// Whole numbers, so that ticks are.
fn epochs(lines: &[Line]) -> Range<u64> {
    1..lines.last().map_or(2, |l| l.epoch.max(2))
}

fn draw_loss(area: &Area<'_>, lines: &[Line]) -> Drawn {
    let top = lines.iter().map(|l| l.loss).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = axes(area, "training loss", Room::left(76), epochs(lines), 0.0..top * 1.05)?;
    mesh(&mut chart, "epoch", "loss").draw()?;
    chart.draw_series(LineSeries::new(lines.iter().map(|l| (l.epoch, l.loss)), STRONG.stroke_width(2)))?;
    Ok(())
}

fn draw_scores(area: &Area<'_>, metric: &Metric, lines: &[Line], best: u64) -> Drawn {
    let scored: Vec<_> = lines.iter().filter_map(|l| Some((l.epoch, l.scores?))).collect();
    let all = scored.iter().flat_map(|(_, s)| [s.train, s.valid, s.test]).filter(|x| x.is_finite());
    let (widest, unit) = match metric.scale {
        Scale::PerCent => (100.0, "per cent"),
        Scale::Plain => (f64::MAX, "score"),
    };
    let (low, high) = all.fold((widest, 0.0), |(low, high): (f64, f64), x| (low.min(x), high.max(x)));
    let (low, high) = if low < high { (low, high) } else { (0.0, 100.0) };
    let room = 0.05 * (high - low);
    let caption = format!("{}; reported at epoch {best}", metric.name);
    let mut chart = axes(area, &caption, Room::left(76), epochs(lines), low - room..high + room)?;
    mesh(&mut chart, "epoch", unit).draw()?;
    chart.draw_series(LineSeries::new([(best, low - room), (best, high + room)], FAINT.mix(0.5)))?;
    let series: [(&str, RGBColor, Vec<f64>); 3] = [
        ("train", FAINT, scored.iter().map(|(_, s)| s.train).collect()),
        ("valid", COOL, scored.iter().map(|(_, s)| s.valid).collect()),
        ("test", STRONG, scored.iter().map(|(_, s)| s.test).collect()),
    ];
    for (name, colour, values) in series {
        let points = scored.iter().map(|(epoch, _)| *epoch).zip(values).filter(|(_, y)| y.is_finite());
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
    }
    legend(&mut chart, SeriesLabelPosition::LowerRight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::run_dir::Evaluated;
    use crate::task::{NodeClass, Task};

    fn line(epoch: u64, scores: Option<Evaluated>) -> Line {
        Line { epoch, loss: 1.0 / epoch as f64, lr: 0.1, gradient_norm: 1.0, scores, guard: None }
    }

    #[test]
    fn ticks_of_epochs_are_different_whole_numbers() {
        let dir = tempfile::tempdir().unwrap();
        for last in [1, 2, 3, 7, 30, 1000] {
            let lines: Vec<Line> = (1..=last).map(|epoch| line(epoch, None)).collect();
            write(dir.path(), "cora, gcn", &NodeClass.metrics()[0], &lines, 1).unwrap();
            let svg = std::fs::read_to_string(dir.path().join("curve.svg")).unwrap();
            let text: Vec<&str> = svg.lines().collect();
            // Those below hang from the axis; the panels have the same.
            let below = |tag: &str| tag.contains(r#"dy="0.76em" text-anchor="middle""#);
            let numbers = text.windows(2).filter(|w| below(w[0])).map(|w| w[1]).filter(|t| t.parse::<f64>().is_ok());
            let ticks: Vec<u64> = numbers.map(|t| t.parse().unwrap()).collect();
            let (left, right) = ticks.split_at(ticks.len() / 2);
            assert_eq!(left, right);
            assert!(left.len() > 1 && left.is_sorted_by(|a, b| a < b), "{left:?} of {last}");
            assert!(left.iter().all(|tick| (1..=last.max(2)).contains(tick)), "{left:?} of {last}");
        }
    }

    #[test]
    fn every_series_is_drawn_and_odd_runs_do_not_fail() {
        let dir = tempfile::tempdir().unwrap();
        let scores = |x: f64| Some(Evaluated { train: 50.0 + x, valid: 45.0 + x, test: f64::NAN, valid_loss: 1.0 });
        let runs: [Vec<Line>; 4] = [
            (1..50).map(|e| line(e, scores(e as f64 / 2.0))).collect(),
            vec![line(1, scores(0.0))],
            vec![line(1, None)],
            vec![],
        ];
        for (k, lines) in runs.iter().enumerate() {
            write(dir.path(), "cora, gcn", &NodeClass.metrics()[0], lines, 3).unwrap();
            let svg = std::fs::read_to_string(dir.path().join("curve.svg")).unwrap();
            for part in ["cora, gcn", "training loss", "accuracy; reported at epoch 3", "valid", "test"] {
                assert!(svg.contains(part), "{part} in run {k}");
            }
        }
    }
}
