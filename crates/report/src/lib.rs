//! Run folders as one page: did it learn, how well, why this plan, where did time and memory go, what travelled, is
//! anything wrong.
//!
//! * [`RunFiles`] reads one run folder. Files that are missing, cut short or of an older version become remarks on the
//!   page; only a folder that no run has left is an error.
//! * [`Page`] makes one HTML file of one or several runs. It asks nothing of a network: scripts, styles and data are
//!   inside. The data are compressed and encoded, so that no name in them can become markup, and scripts put them on
//!   the page as text alone.
//! * [`list`] finds runs below a folder, for the table of `graphweft runs`.
//!
//! The page itself is in `assets/`: one file per section, joined here in the order in which they are shown.

mod columns;
mod growing;
mod list;
mod locks;
mod page;
mod run;
mod settings;
mod trace;

pub use growing::Growing;
pub use list::{ListedRun, list};
pub use page::{Page, Renewals};
pub use run::{Analyse, Context, RunFiles, State};
