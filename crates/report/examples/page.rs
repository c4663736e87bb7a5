//! Makes a page of run folders with nothing but this crate: `page REPORT.html RUN…`.

use graphweft_base::Result;
use graphweft_report::{Context, Growing, Page};

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let to = arguments.next().unwrap_or_else(|| "report.html".into());
    let folders: Vec<_> = arguments.map(std::path::PathBuf::from).collect();
    let context = Context {
        defaults: &|_| toml::Table::new(),
        version: "example".into(),
        analyse: None,
        before: Growing::default(),
    };
    Page::of_runs(&folders, &context)?.write(to.as_ref())
}
