//! Planning a run, or one on a graph that is only described.

use std::sync::Arc;

use graphweft_base::progress::Progress;
use graphweft_graph::dataset::Features;
use graphweft_parallel::{Strategy, settings};
use graphweft_plan::explain::{self, bytes, counted};
use graphweft_plan::search::{Assessed, Prediction as Rehearsed};
use graphweft_plan::simulate::Description;
use graphweft_plan::{Candidate as Way, Found, Profile};
use graphweft_train::config::Config;
use graphweft_train::data::{AssumedColumns, Data};
use graphweft_train::planning::{Listener, Planner};
use graphweft_train::ranks::World;
use serde_json::{Value, json};

use super::{Candidate, Plan, error_of, scaling};
use crate::amount::count;
use crate::error::{Error, Result};
use crate::observe::Watched;
use crate::place::Ranks;
use crate::run::Run;

impl Run {
    /// What every way to spread the run would take, and which one is best. Nothing is trained.
    ///
    /// # Errors
    /// If a setting or the data are wrong, or if nothing fits. Under a launcher only the first process has the plan:
    /// the others [learn that](Error::has_result_elsewhere).
    pub fn plan(&self) -> Result<Plan> {
        self.plan_by(|config, world, watched| self.plan_on(config, world, watched))
    }

    /// The same for a graph that is only described, as in `nodes=2.4e6,edges=1.2e8,features=100,classes=47`.
    ///
    /// # Errors
    /// As [`plan`](Run::plan).
    pub fn simulate(&self, graph: &Description) -> Result<Plan> {
        self.plan_by(|config, world, watched| simulated(config, graph, Scaling::Skip, world, watched))
    }

    /// The same with the time of an epoch on 1, 2, 4, … ranks.
    ///
    /// ```
    /// let run = graphweft::Run::default().model("gcn").ranks(4).set("parallel.profile", "16-cpu-10g");
    /// let plan = run.simulate_scaling(&"nodes=1e6,edges=2e7,features=64,classes=10".parse()?)?;
    /// assert!(plan.assumed.is_some());
    /// // One line for each kind of strategy, from the first number of ranks that it can have.
    /// let first = &plan.to_json()["scaling"][0]["points"];
    /// assert_eq!(first.as_array().and_then(|points| points.last()).map(|p| &p["ranks"]), Some(&4.into()));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`plan`](Run::plan).
    pub fn simulate_scaling(&self, graph: &Description) -> Result<Plan> {
        self.plan_by(|config, world, watched| simulated(config, graph, Scaling::Find, world, watched))
    }

    pub(super) fn plan_by<T: Send>(
        &self,
        work: impl FnOnce(&Config, &World, &Watched) -> Result<T> + Send,
    ) -> Result<T> {
        self.in_threads(|| {
            let (config, watched) = (self.finish(self.draft()?)?, self.watched());
            let place = self.device.place_of(&config.parallel, &watched);
            let (wanted, precision) = (config.parallel.ranks, config.compute.precision);
            let ranks = Ranks { config: &config.parallel, wanted, place, precision, watched: &watched };
            ranks.enter(|world, watched| work(&config, &world, &watched))
        })
    }

    fn plan_on(&self, config: &Config, world: &World, watched: &Watched) -> Result<Plan> {
        let progress: Arc<dyn Progress> = Arc::new(watched.clone());
        let data = Arc::new(self.unread(config, watched)?);
        let graph = data.graph_for(&config.model, config.run.seed)?;
        let ranks = world.ranks();
        let (data, graph) = (&data, &graph);
        let seconds = |profile: &Profile| Planner { config, ranks, data, graph, profile }.run_seconds();
        let tell = |line: &str| watched.note(line);
        let listener = Listener { progress: &progress, tell: &tell };
        let profile = listener.profile_for_run(config, world, &seconds)?;
        let profile = profile.ok_or_else(Error::follows)?;
        let planner = Planner { config, ranks, data, graph, profile: &profile };
        let planned = planner.plan(watched)?;
        let (plan, found, memory) = (planned.plan, planned.found, planned.memory);
        // To compare with; what cannot be rehearsed so is not shown.
        let one_rank = if ranks > 1 { planner.on_one_rank().ok() } else { None };
        let (nodes, edges) = (data.graph.num_dst() as u64, data.graph.num_edges() as u64);
        let chunks =
            plan.partition.filter(|_| matches!(plan.strategy, Strategy::Isolated(_))).map(|division| division.parts);
        let in_chunks = chunks.map_or(String::new(), |chunks| format!(" in {}", counted(chunks, "chunk")));
        let size = format!("{} nodes, {} edges", count(nodes), count(edges));
        let title = format!("{} on {}: {size}{in_chunks}", config.model_name(), data.name);
        let columns = Some(self.columns(data));
        let made = Made { found: &found, title, graph: &data.name, columns, one_rank, config, ranks, memory };
        let mut plan = made.plan(&profile);
        if let Some(chunks) = chunks {
            plan.json["chunks"] = chunks.into();
        }
        Ok(plan)
    }

    /// The data without their numbers, which no rehearsal reads.
    fn unread(&self, config: &Config, watched: &Watched) -> Result<Data> {
        let columns = AssumedColumns { features: self.features, classes: self.classes };
        Ok(match &self.memory {
            Some(dataset) => Data::of_unread(&dataset.0, &config.data, &config.encoding, columns)?,
            None => Data::open_unread(&config.data, &config.encoding, columns, watched)?,
        })
    }

    fn columns(&self, data: &Data) -> Columns {
        // What will only be rehearsed has a width and no numbers.
        let unread = matches!(&data.features, Features::Dense(dense) if dense.len() < data.graph.num_dst());
        let origin = match (self.features, unread) {
            (Some(_), _) => "as --features says",
            (None, true) => "assumed: the graph has none (--features says otherwise)",
            (None, false) => "those of the graph",
        };
        Columns { features: data.features.width(), classes: data.classes, origin }
    }
}

/// The features that a plan is made with, and where the numbers come from.
struct Columns {
    features: usize,
    classes: usize,
    origin: &'static str,
}

/// Whether a simulation is repeated for 1, 2, 4, … ranks.
#[derive(Clone, Copy, PartialEq)]
enum Scaling {
    Skip,
    Find,
}

fn simulated(config: &Config, graph: &Description, scaling: Scaling, world: &World, watched: &Watched) -> Result<Plan> {
    let progress: Arc<dyn Progress> = Arc::new(watched.clone());
    let (tell, ranks) = (|line: &str| watched.note(line), world.ranks());
    let listener = Listener { progress: &progress, tell: &tell };
    // How long a run is that nobody will start is no reason to measure.
    let profile = listener.profile_for_run(config, world, &|_| None)?;
    let profile = profile.ok_or_else(Error::follows)?;
    let found = Planner::simulate(config, ranks, graph, &profile, watched)?;
    let assumed = graph.assumed(ranks);
    let size = format!("{:.2e} nodes, {:.2e} edges, {assumed}", graph.nodes, graph.edges);
    let title = format!("{} on {size}; simulated", config.model_name());
    let memory = profile.memory.unwrap_or(f64::MAX) as u64;
    let (columns, one_rank) = (None, None);
    let made = Made { found: &found, title, graph: "simulated", columns, one_rank, config, ranks, memory };
    let mut plan = made.plan(&profile);
    plan.json["assumed"] = assumed.clone().into();
    plan.assumed = Some(assumed);
    if scaling == Scaling::Find {
        let curves = scaling::find(config, graph, &profile, ranks);
        plan.json["scaling"] = curves.to_json();
        plan.scaling = Some(curves);
    }
    Ok(plan)
}

/// What a plan is made of.
struct Made<'a> {
    found: &'a Found,
    title: String,
    graph: &'a str,
    columns: Option<Columns>,
    one_rank: Option<Rehearsed>,
    config: &'a Config,
    ranks: usize,
    memory: u64,
}

impl Made<'_> {
    fn plan(self, profile: &Profile) -> Plan {
        let all = Found { candidates: self.candidates(), ..self.found.clone() };
        let candidate = |a: &Assessed| Candidate::of(a, self.ranks_of(&a.candidate));
        let candidates: Vec<Candidate> = all.candidates.iter().map(candidate).collect();
        let (way, prediction) = self.found.choice;
        let chosen = Candidate { prediction: Some(prediction.into()), ..Candidate::new(&way, self.ranks) };
        let mut plan = Plan {
            title: self.title,
            graph: self.graph.into(),
            ranks: self.ranks,
            memory: self.memory,
            machine: profile.about.clone(),
            error: error_of(profile),
            profile_error: profile.error(),
            features: self.columns.as_ref().map(|columns| columns.features),
            classes: self.columns.as_ref().map(|columns| columns.classes),
            origin: self.columns.as_ref().map_or("", |columns| columns.origin),
            candidates,
            why: self.found.why.clone(),
            epochs: self.config.train.epochs,
            seeds: self.config.run.seeds,
            assumed: None,
            scaling: None,
            chosen,
            one_rank: self.one_rank.map(Into::into),
            json: explain::to_json(&all),
        };
        plan.complete_json(json!(profile.source));
        plan
    }

    /// All candidates; among them one rank, which is compared and not chosen: others are asked for.
    fn candidates(&self) -> Vec<Assessed> {
        let mut all = self.found.candidates.clone();
        if let Some(p) = self.one_rank {
            let candidate = Way { strategy: settings::Local.into(), partition: None, remat: self.config.compute.remat };
            let reason = match p.peak.total() > self.memory {
                true => format!("{} are more than a rank has", bytes(p.peak.total())),
                false => format!("one rank, to compare with: {} are asked for", self.ranks),
            };
            let place = all.iter().position(|a| !a.feasible).unwrap_or(all.len());
            all.insert(place, Assessed { candidate, prediction: Some(p), feasible: false, reason: Some(reason) });
        }
        all
    }

    fn ranks_of(&self, way: &Way) -> usize {
        if matches!(way.strategy, Strategy::Local(_)) { 1 } else { self.ranks }
    }
}

impl Plan {
    /// Adds what is known of the machine and the features to what was searched.
    fn complete_json(&mut self, source: Value) {
        let error = self.error;
        let with_error = |one: &mut Value| {
            let time = one["time_ms"].as_f64();
            one["time_error_ms"] = json!(time.zip(error).map(|(time, error)| time * error));
        };
        let run_seconds = error.map(|_| self.run_seconds());
        let json = &mut self.json;
        with_error(&mut json["choice"]);
        for (one, candidate) in json["candidates"].as_array_mut().into_iter().flatten().zip(&self.candidates) {
            with_error(one);
            one["ranks"] = json!(candidate.ranks);
        }
        let Value::Object(map) = json else { return };
        for (key, value) in [
            ("graph", json!(self.graph)),
            ("ranks", json!(self.ranks)),
            ("memory", json!(self.memory)),
            ("profile", json!(self.machine)),
            ("profile_source", source),
            ("error", json!(error)),
            ("run_seconds", json!(run_seconds)),
        ] {
            map.insert(key.into(), value);
        }
        if let (Some(features), Some(classes)) = (self.features, self.classes) {
            map.insert("features".into(), json!(features));
            map.insert("classes".into(), json!(classes));
            map.insert("features_are".into(), json!(self.origin));
        }
    }
}
