//! A run: what to train on, which model, how; then train it, or plan to.

mod settings;
mod train;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_graph::partition::Existing;
use graphweft_parallel::{Spread, Strategy};
use graphweft_train::config::Draft;
use graphweft_train::run::Start;
use graphweft_train::task::Task;

use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::graph::SelfLoops;
use crate::input::{Input, Kind, from_anywhere};
use crate::observe::{EachEpoch, Epoch, Observer, Watched};
use crate::place::Device;
use crate::setters::setters;
use crate::setting::Setting;
use crate::stop::Stop;

/// A training run in the making: what to train on, which model, and every setting that a configuration file has.
/// [`train`](Run::train) runs it, [`plan`](Run::plan) says what that would take. A run is a function of its settings:
/// the same settings give the same bytes, for any number of threads.
///
/// ```
/// use graphweft::Run;
/// # let dir = tempfile::tempdir().unwrap();
/// let report = Run::new("sbm:200:3:6:f=8")
///     .model("gcn")
///     .ranks(2)
///     .set("train.lr", 1e-2)
///     .epochs(5)
///     .output(dir.path().join("run"))
///     .train()?;
/// assert_eq!(report.seeds[0].losses.len(), 5);
/// assert_eq!(report.plan.ranks, 2);
/// # Ok::<(), graphweft::Error>(())
/// ```
///
/// A setting that does not exist, or cannot have its value, is an error of [`train`](Run::train) and
/// [`plan`](Run::plan), which names the nearest one.
#[derive(Clone)]
pub struct Run {
    /// What a file says.
    pub(crate) file: Draft,
    /// What was set, in place of that.
    pub(crate) given: Draft,
    /// `section.key=value`, in place of that.
    pub(crate) assigned: Vec<String>,
    pub(crate) memory: Option<Dataset>,
    /// The first thing that went wrong.
    problem: Option<Error>,
    /// Whether a guard was asked for, which only pipelines have.
    pub(crate) guarded: bool,
    pub(crate) emulated: Option<PathBuf>,
    pub(crate) device: Device,
    pub(crate) threads: Option<usize>,
    pub(crate) start: Start,
    pub(crate) output: Option<PathBuf>,
    pub(crate) existing: Existing,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stop: Stop,
    /// Columns of features and classes that a plan is made for, whatever the data have.
    pub(crate) features: Option<usize>,
    pub(crate) classes: Option<usize>,
    /// From outside.
    pub(crate) task: Option<&'static dyn Task>,
    pub(crate) own_strategy: Option<&'static dyn Spread>,
}

impl Default for Run {
    /// A first run: a small graph transformer on a generated graph, beside a model that does not see its edges.
    fn default() -> Self {
        Self {
            file: Draft::default(),
            given: Draft::default(),
            assigned: Vec::new(),
            memory: None,
            problem: None,
            guarded: false,
            emulated: None,
            device: Device::default(),
            threads: None,
            start: Start::New,
            output: None,
            existing: Existing::Keep,
            observer: Arc::new(()),
            stop: Stop::default(),
            features: None,
            classes: None,
            task: None,
            own_strategy: None,
        }
    }
}

/// Methods for the settings that are changed most: `name: Type => "section.key"`.
macro_rules! short_forms {
    ($($(#[$doc:meta])* $name:ident: $kind:ty => $key:literal,)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(self, $name: $kind) -> Self {
            self.set($key, $name)
        })*
    };
}

impl Run {
    /// A run on a dataset folder, a generated graph or a [`Dataset`].
    pub fn new(data: impl Into<Input>) -> Self {
        Self::default().data(data)
    }

    /// A run as a TOML file says; what is set later takes the place of what the file has.
    ///
    /// ```
    /// use graphweft::Run;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let file = dir.path().join("run.toml");
    /// std::fs::write(&file, "[data]\ngraph = \"sbm:60:3:4:f=8\"\n[train]\nepochs = 3\n").unwrap();
    /// assert!(Run::from_file(&file)?.config()?.contains("epochs = 3"));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or has a key that does not exist.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { file: Draft::read(path.as_ref())?, ..Self::default() })
    }

    /// What to train on, in place of what was said before.
    #[must_use]
    pub fn data(mut self, data: impl Into<Input>) -> Self {
        for draft in [&mut self.file, &mut self.given] {
            draft.unset("data", "path");
            draft.unset("data", "graph");
        }
        self.memory = None;
        let Input { kind, seed, symmetrised, self_loops } = data.into();
        let mut run = match kind {
            Kind::Folder(path) => self.set("data.path", from_anywhere(&path)),
            Kind::Spec(spec) => self.set("data.graph", spec),
            Kind::Memory(dataset) => Self { memory: Some(dataset), ..self },
        };
        if seed != 0 {
            run = run.set("data.graph_seed", seed);
        }
        if symmetrised {
            run = run.set("data.symmetrise", true);
        }
        match self_loops {
            SelfLoops::Keep => run,
            SelfLoops::Add => run.set("data.self_loops", "add"),
            SelfLoops::Remove => run.set("data.self_loops", "remove"),
        }
    }

    /// Any setting by its key; `graphweft config` lists them.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Setting>) -> Self {
        let set = match key.split_once('.') {
            Some((section, key)) => self.given.set(section, key, value.into().0).map_err(Error::from),
            None => Err(Error::request(format!("{key:?} has no section"), "write section.key, as train.lr")),
        };
        self.note_problem(set);
        self
    }

    /// A setting as the command line takes it, `train.lr=0.01`. It takes the place of what [`set`](Run::set) says.
    #[must_use]
    pub fn assign(mut self, setting: &str) -> Self {
        self.assigned.push(setting.into());
        self
    }

    fn note_problem<T>(&mut self, result: Result<T>) {
        if let Err(problem) = result {
            self.problem.get_or_insert(problem);
        }
    }

    short_forms! {
        /// The model, by name: `model.name`.
        model: &str => "model.name",

        /// How often to go through the data: `train.epochs`.
        epochs: u64 => "train.epochs",

        /// Which split, or `random:60/20/20` to draw one: `data.split`.
        split: &str => "data.split",

        /// How many ranks share the work: `parallel.ranks`.
        ranks: u64 => "parallel.ranks",

        /// How they share it: `parallel.strategy`, which is `auto` unless something is said.
        strategy: &str => "parallel.strategy",
    }

    /// The first seed, and how many: `run.seed` and `run.seeds`.
    #[must_use]
    pub fn seeds(self, first: u64, count: u64) -> Self {
        self.set("run.seed", first).set("run.seeds", count)
    }

    /// What to do where a pipeline diverges from exact training, `warn` or `stop`: `pipeline.guard`. An error for
    /// other strategies.
    #[must_use]
    pub fn guard(mut self, name: &str) -> Self {
        self.guarded = true;
        self.set("pipeline.guard", name)
    }

    setters! {
        /// For [`calibrate`](Run::calibrate): replaces the profile, if the file is there already.
        replace => existing = Existing::Replace,

        /// Where to compute, in place of the best that there is.
        ///
        /// ```
        /// let run = graphweft::Run::new("sbm:60:3:4").device("cpu".parse()?);
        /// # Ok::<(), graphweft::Error>(())
        /// ```
        device: Device,

        /// Threads to compute with, in place of all that there are.
        threads: usize => Some,

        /// Who watches.
        observer: Arc<dyn Observer>,
    }

    /// Times epochs as if ranks were elsewhere: on a shipped profile, such as `16-cpu-10g`, or in a file.
    #[must_use]
    pub fn emulate(self, profile: impl Into<PathBuf>) -> Self {
        Self { emulated: Some(profile.into()), ..self }
    }

    /// The folder that the run writes, in place of `runs/DATA-MODEL`, numbered.
    #[must_use]
    pub fn output(self, dir: impl Into<PathBuf>) -> Self {
        Self { output: Some(dir.into()), ..self }
    }

    /// Goes on with the run in the output folder, from its newest whole checkpoint.
    ///
    /// ```
    /// use graphweft::Run;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("run");
    /// let run = Run::new("sbm:60:3:4:f=8").output(&dir);
    /// run.clone().epochs(2).train()?;
    /// assert_eq!(run.epochs(5).resume().train()?.seeds[0].losses.len(), 5);
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn resume(self) -> Self {
        Self { start: Start::Newest, ..self }
    }

    /// Goes on from this checkpoint, of this run, or of any other where the output folder is new.
    #[must_use]
    pub fn resume_from(self, checkpoint: impl Into<PathBuf>) -> Self {
        Self { start: Start::At(checkpoint.into()), ..self }
    }

    /// The names of all models.
    ///
    /// ```
    /// assert!(graphweft::Run::models().contains(&"gt"));
    /// ```
    pub fn models() -> Vec<&'static str> {
        graphweft_model::Models::default().names()
    }

    /// Every way to spread work over ranks: how it is written, and what moves between them.
    ///
    /// ```
    /// assert!(graphweft::Run::strategies().iter().any(|(name, _)| *name == "halo"));
    /// ```
    pub fn strategies() -> Vec<(&'static str, &'static str)> {
        Strategy::TABLE.iter().map(|listed| (listed.forms[0], listed.about)).collect()
    }

    /// Those of them that compute what one rank would.
    ///
    /// ```
    /// let exact = graphweft::Run::exact_strategies();
    /// assert!(exact.contains(&"halo") && !exact.contains(&"isolated"));
    /// ```
    pub fn exact_strategies() -> Vec<&'static str> {
        Strategy::TABLE.iter().filter(|listed| listed.is_exact()).map(|listed| listed.forms[0]).collect()
    }

    /// Calls this after every epoch, beside whoever watches.
    #[must_use]
    pub fn on_epoch(self, call: impl Fn(&Epoch) + Send + Sync + 'static) -> Self {
        let others = Arc::clone(&self.observer);
        self.observer(Arc::new(EachEpoch { call, others }))
    }

    /// Who may stop it.
    #[must_use]
    pub fn stop(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// For [`plan`](Run::plan): columns of dense features, and classes, whatever the data have.
    ///
    /// ```
    /// let run = graphweft::Run::new("grid:20:20").set("parallel.profile", "16-cpu-10g").assume(Some(16), Some(3));
    /// let plan = run.plan()?;
    /// assert_eq!((plan.features, plan.classes), (Some(16), Some(3)));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    #[must_use]
    pub fn assume(self, features: Option<usize>, classes: Option<usize>) -> Self {
        Self { features, classes, ..self }
    }

    /// The configuration, with every key: the TOML file that reproduces the run.
    ///
    /// ```
    /// let config = graphweft::Run::new("sbm:60:3:4").model("gcn").config()?;
    /// assert!(config.contains("name = \"gcn\"") && config.contains("[train]"));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a setting does not exist or cannot have its value.
    pub fn config(&self) -> Result<String> {
        Ok(self.finished()?.to_toml()?)
    }

    pub(crate) fn watched(&self) -> Watched {
        Watched::by(&self.observer)
    }

    /// Runs `work` with as many threads as were asked for.
    pub(crate) fn in_threads<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let Some(threads) = self.threads else { return work() };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| Error::request(format!("{threads} threads: {e}"), "ask for fewer"))?;
        pool.install(work)
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.given.keys();
        f.debug_struct("Run").field("given", &keys).field("assigned", &self.assigned).finish_non_exhaustive()
    }
}
