//! Figures as SVG: one or more panels side by side under a title, in one style.

use std::error::Error as StdError;
use std::path::Path;

use graphweft_base::{Error, durable};
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

const PANEL: (u32, u32) = (760, 500);
const TITLE_HEIGHT: u32 = 56;
const FONT: &str = "sans-serif";

/// Text and axes.
pub const INK: RGBColor = RGBColor(40, 44, 52);
/// What is beside the point.
pub const FAINT: RGBColor = RGBColor(120, 128, 140);
/// The point.
pub const STRONG: RGBColor = RGBColor(206, 84, 20);
/// What is compared with it.
pub const COOL: RGBColor = RGBColor(31, 111, 180);

/// Where a panel is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Whether drawing worked.
pub type Drawn = Result<(), Box<dyn StdError>>;
/// A chart with two axes.
pub type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;
/// What draws one panel.
pub type Panel<'a> = Box<dyn Fn(&Area<'_>) -> Drawn + 'a>;

/// Draws the panels side by side and writes them to `path`, in full or not at all.
pub fn write(path: &Path, title: &str, panels: &[Panel<'_>]) -> Result<(), Error> {
    let svg = draw(title, panels)
        .map_err(|e| Error::request(format!("cannot draw {}: {e}", path.display()), "report this as a bug"))?;
    durable::replace(path, svg.as_bytes())
}

fn draw(title: &str, panels: &[Panel<'_>]) -> Result<String, Box<dyn StdError>> {
    let mut svg = String::new();
    let size = (PANEL.0 * panels.len() as u32, PANEL.1 + TITLE_HEIGHT);
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let body = root.margin(12, 0, 0, 0).titled(title, text(24))?;
        for (panel, area) in panels.iter().zip(body.split_evenly((1, panels.len()))) {
            panel(&area)?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// Text of this size.
pub fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// Room around axes: for labels to the left of the vertical one and below the horizontal one.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    left: u32,
    below: u32,
}

impl Room {
    /// For a line of numbers and a description.
    const BELOW: u32 = 56;

    /// So much to the left, and enough for a line of numbers below.
    pub const fn left(left: u32) -> Self {
        Self { left, below: Self::BELOW }
    }

    /// With so much below.
    #[must_use]
    pub const fn below(self, below: u32) -> Self {
        Self { below, ..self }
    }
}

/// Axes under a caption.
pub fn axes<'a, 'b, X, Y>(
    area: &'a Area<'b>,
    caption: &str,
    room: Room,
    x: X,
    y: Y,
) -> Result<Chart<'a, 'b, X::CoordDescType, Y::CoordDescType>, Box<dyn StdError>>
where
    X: AsRangedCoord,
    Y: AsRangedCoord,
{
    Ok(ChartBuilder::on(area)
        .caption(caption, text(16))
        .margin(16)
        .margin_right(28)
        .x_label_area_size(room.below)
        .y_label_area_size(room.left)
        .build_cartesian_2d(x, y)?)
}

/// Grid lines, ticks and descriptions, to be drawn after what is particular to a chart is set.
pub fn mesh<'a, 'b, 's: 'a, X, Y>(
    chart: &'b mut Chart<'a, 's, X, Y>,
    x: &str,
    y: &str,
) -> MeshStyle<'a, 'b, X, Y, SVGBackend<'s>>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
{
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(x)
        .y_desc(y)
        .axis_desc_style(text(18))
        .label_style(text(15))
        .axis_style(INK)
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(BLACK.mix(0.04));
    mesh
}

/// The legend.
pub fn legend<'a, 's: 'a, X, Y>(chart: &mut Chart<'a, 's, X, Y>, position: SeriesLabelPosition) -> Drawn
where
    X: Ranged,
    Y: Ranged,
{
    chart
        .configure_series_labels()
        .position(position)
        .margin(12)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.2))
        .label_font(text(15))
        .draw()?;
    Ok(())
}
