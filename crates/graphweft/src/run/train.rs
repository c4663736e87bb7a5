//! Training.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_tensor::DeviceName;
use graphweft_train::config::Config;
use graphweft_train::planning::Emulation;
use graphweft_train::ranks::World;
use graphweft_train::run::Launch;
use graphweft_train::run::Session;

use super::Run;
use super::settings::{floor, of_floor};
use crate::VERSION;
use crate::error::Result;
use crate::input;
use crate::machine;
use crate::observe::Watched;
use crate::page::LivePage;
use crate::place::Ranks;
use crate::report::{Made, Report};

impl Run {
    /// Trains, from the first epoch to the last, every seed.
    ///
    /// Under a launcher (`mpirun`, `torchrun`, `srun`) every process calls this; all of them get a report.
    ///
    /// # Errors
    /// If a setting or the data are wrong, if it does not fit into memory, if a rank is lost, or if it was asked to
    /// stop: see [`ErrorKind`](crate::ErrorKind).
    pub fn train(&self) -> Result<Report> {
        self.in_threads(|| {
            let given = self.draft()?;
            let mut config = self.begun_or_resumed(&given)?;
            self.check_guard(&config)?;
            self.note_on_self_loops(&given, &config);
            let wanted = given.get("parallel", "ranks").and_then(|ranks| ranks.as_integer()?.try_into().ok());
            let watched = self.watched();
            let place = self.device.place_of(&config.parallel, &watched);
            let precision = config.compute.precision;
            let Some(path) = &self.emulated else {
                let ranks = Ranks { config: &config.parallel, wanted, place, precision, watched: &watched };
                return ranks
                    .enter(|world, watched| self.train_on(&config, None, &world.timing_kernels_if_cheap(), &watched));
            };
            // What is planned is planned for there.
            config.parallel.profile.get_or_insert_with(|| path.display().to_string());
            let elsewhere = Emulation::read(path)?;
            let name = elsewhere.name.clone();
            let ranks = Ranks { config: &config.parallel, wanted, place, precision, watched: &watched };
            ranks.emulate(vec![elsewhere], |world, watched| self.train_on(&config, Some(&name), &world, &watched))
        })
    }

    /// Trains on the ranks of `world`, which are as if on the machine called `emulated`.
    fn train_on(&self, config: &Config, emulated: Option<&str>, world: &World, watched: &Watched) -> Result<Report> {
        let data = Arc::new(input::open(self.memory.as_ref(), config, watched)?);
        let name = config.model_name();
        let new = || free_folder(Path::new("runs"), &format!("{}-{name}", data.name));
        let dir = self.output.clone().unwrap_or_else(new);
        let mut page = None;
        let watched = &watched.clone().through(|others| {
            let kept = LivePage::new(dir.clone(), others);
            let kept = Arc::new(if config.run.report { kept.with_page() } else { kept });
            page = Some(Arc::clone(&kept));
            kept
        });
        let session = Session {
            world,
            data: Arc::clone(&data),
            start: self.start.clone(),
            launch: Launch::of_this_process(VERSION, &machine(world)),
            observer: Arc::new(watched.clone().of_seeds(config.run.seeds)),
            stop: self.stop.inner(),
        };
        let trained = session.train(config.clone(), &dir);
        if let (Err(_), Some(page)) = (&trained, &page) {
            page.give_up();
        }
        let summary = trained?;
        let made = |config, dir| Made { config, data: &data, dir, world, emulated: emulated.map(String::from) };
        let mut report = Report::of(summary, made(config, &dir));
        if let Some(config) = floor(config)? {
            watched.note("the same features without the graph:");
            let session = Session { start: of_floor(&session.start), ..session };
            let dir = dir.join("floor");
            let summary = session.train(config.clone(), &dir)?;
            report.floor = Some(Box::new(Report::of(summary, made(&config, &dir))));
        }
        page.map_or(Ok(()), |page| page.finish(&data))?;
        Ok(report)
    }
}

/// The machine of the first rank, in words.
fn machine(world: &World) -> String {
    machine::in_words(match world.place() {
        DeviceName::Cpu => None,
        DeviceName::Cuda(place) => Some(place),
    })
}

/// The first of `name`, `name-2`, `name-3`, … that is not there.
fn free_folder(parent: &Path, name: &str) -> PathBuf {
    let name: String = name.chars().map(|c| if c == ':' || c == '/' { '_' } else { c }).collect();
    let numbered = |k: u32| parent.join(if k == 1 { name.clone() } else { format!("{name}-{k}") });
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    (1..u32::MAX).map(numbered).find(is_free).unwrap_or_else(|| numbered(u32::MAX))
}
