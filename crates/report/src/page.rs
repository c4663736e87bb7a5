//! One HTML file of one or several runs.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use graphweft_base::{Error, Result, durable};
use serde_json::{Value, json};

use crate::run::{Context, RunFiles, State, with_choice};

const FRAME: &str = include_str!("../assets/page.html");
const CHARTS_STYLE: &str = include_str!("../assets/vendor/uPlot.min.css");
const CHARTS: &str = include_str!("../assets/vendor/uPlot.iife.min.js");
const CHARTS_LICENCE: &str = include_str!("../assets/vendor/uPlot-LICENSE.txt");
const STYLE: &str = include_str!("../assets/page.css");
/// Sections in the order of the page, between what they share and what starts them.
const SCRIPTS: [&str; 13] = [
    include_str!("../assets/elements.js"),
    include_str!("../assets/numbers.js"),
    include_str!("../assets/summary.js"),
    include_str!("../assets/compare.js"),
    include_str!("../assets/curves.js"),
    include_str!("../assets/plan.js"),
    include_str!("../assets/memory.js"),
    include_str!("../assets/messages.js"),
    include_str!("../assets/kernels.js"),
    include_str!("../assets/timeline.js"),
    include_str!("../assets/classes.js"),
    include_str!("../assets/remarks.js"),
    include_str!("../assets/main.js"),
];

/// What pages of a run that is still going have taken.
#[derive(Clone, Copy, Debug)]
pub struct Renewals {
    /// How many there were before this one.
    pub pages: u64,
    /// How long they took.
    pub spent: Duration,
    /// How long the run has been going.
    pub run: Duration,
    /// After how long the next one is there at the latest, if the run goes on as before; nothing if there will be none.
    pub next: Option<Duration>,
}

/// The page: what it shows, before it is written.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    data: Value,
}

impl Page {
    /// The page of these runs; of several, they stand beside each other.
    ///
    /// # Errors
    /// If one of the folders is not a run's.
    pub fn of_runs<P: AsRef<Path>>(folders: &[P], context: &Context<'_>) -> Result<Self> {
        let open = |folder: &P| RunFiles::open_again(folder.as_ref(), &context.before);
        let runs = folders.iter().map(open).collect::<Result<Vec<_>>>()?;
        let title = match runs.as_slice() {
            [one] => format!("{} · {}", one.name, one.dataset()),
            several => format!("{} runs", several.len()),
        };
        let live = runs.iter().any(|run| run.state == State::Running);
        let runs: Vec<Value> = runs.iter().map(|run| run.to_json(context)).collect();
        Ok(Self { title, data: json!({"live": live, "version": context.version, "made": now(), "runs": runs}) })
    }

    /// The same with what renewing it has taken so far.
    #[must_use]
    pub fn renewed(mut self, renewals: &Renewals) -> Self {
        let ms = |time: Duration| 1000.0 * time.as_secs_f64();
        self.data["renewals"] = json!({
            "pages": renewals.pages, "spent_ms": ms(renewals.spent), "run_ms": ms(renewals.run),
            "next_ms": renewals.next.map(ms),
        });
        self
    }

    /// The same of runs that have ended, whatever the locks on their folders say.
    #[must_use]
    pub fn over(mut self) -> Self {
        self.data["live"] = false.into();
        for run in self.data["runs"].as_array_mut().into_iter().flatten() {
            if run["state"] == State::Running.name() {
                run["state"] = State::Stopped.name().into();
            }
        }
        self
    }

    /// The page of a plan alone: the choice and all candidates, as `plan --json` prints them.
    pub fn of_plan(title: &str, plan: &Value, context: &Context<'_>) -> Self {
        let mut plan = plan.clone();
        if plan.is_object() {
            plan["candidates"] = with_choice(&plan);
        }
        let data =
            json!({"live": false, "version": context.version, "made": now(), "runs": [], "plan": plan, "title": title});
        Self { title: title.into(), data }
    }

    /// The whole file.
    ///
    /// # Errors
    /// If the data cannot be compressed, for which there is no reason but a lack of memory.
    pub fn to_html(&self) -> Result<String> {
        let failed =
            |e: std::io::Error| Error::request(format!("cannot compress the page: {e}"), "report this as a bug");
        let text = serde_json::to_vec(&self.data).map_err(|e| failed(e.into()))?;
        // A page that will soon be replaced should cost little; one that stays should be small.
        let effort = if self.data["live"] == true { Compression::fast() } else { Compression::best() };
        let mut encoder = GzEncoder::new(Vec::new(), effort);
        encoder.write_all(&text).map_err(failed)?;
        let data = STANDARD.encode(encoder.finish().map_err(failed)?);
        let scripts = SCRIPTS.join("\n");
        // Each mark stands once in the frame, and is looked for there alone: data cannot bring in another.
        let parts = [
            ("@title@", escape(&self.title)),
            ("@charts-licence@", escape(CHARTS_LICENCE)),
            ("@charts-style@", CHARTS_STYLE.to_string()),
            ("@style@", STYLE.to_string()),
            ("@data@", data),
            ("@charts@", CHARTS.to_string()),
            ("@scripts@", scripts),
        ];
        let mut page = String::with_capacity(parts.iter().map(|(_, text)| text.len()).sum::<usize>() + FRAME.len());
        let mut rest = FRAME;
        while let Some((place, (mark, text))) = next(rest, &parts) {
            page.push_str(&rest[..place]);
            page.push_str(text);
            rest = &rest[place + mark.len()..];
        }
        page.push_str(rest);
        Ok(page)
    }

    /// Writes it, whole or not at all: who looks at the old file meanwhile sees that.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        durable::replace(path, self.to_html()?.as_bytes())
    }
}

/// The first mark in `text`.
fn next<'p>(text: &str, parts: &'p [(&'p str, String)]) -> Option<(usize, (&'p str, &'p str))> {
    let found = parts.iter().filter_map(|(mark, part)| Some((text.find(mark)?, (*mark, part.as_str()))));
    found.min_by_key(|(place, _)| *place)
}

/// Text between tags.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
