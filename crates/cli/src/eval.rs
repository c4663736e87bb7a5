//! `graphweft eval`: how good a trained model is, or those of all seeds of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_train::checkpoint::Scores;
use graphweft_train::data::Data;
use graphweft_train::inference::Trained;
use graphweft_train::metrics::Metric;
use graphweft_train::session::Spread;
use graphweft_train::world::World;
use serde_json::{Value, json};

use crate::device::Choice;
use crate::ranks::{self, Ranks};
use crate::train::Origin;
use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A run directory (the best epoch, of each seed if it has several), a checkpoint, or a safetensors file
    model: PathBuf,

    /// Configuration, for a safetensors file without config.toml beside it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    origin: Origin,

    /// Split [default: the one it was trained with]
    #[arg(long, value_name = "NAME")]
    split: Option<String>,

    #[command(flatten)]
    ranks: Ranks,

    #[command(flatten)]
    device: Choice,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut all = Trained::open_all(&args.model, args.config.as_deref())?;
    for trained in &mut all {
        args.origin.apply(&mut trained.config);
        if args.split.is_some() {
            trained.config.data.split.clone_from(&args.split);
        }
        args.ranks.apply(&mut trained.config.parallel)?;
    }
    let Some(first) = all.first() else { return Ok(()) };
    let config = first.config.parallel.clone();
    let place = (args.device.place_of(&config, ui), first.config.compute.precision.into());
    ranks::enter(&config, None, place, ui, |world, ui| {
        let all: Vec<Arc<Trained>> = all.into_iter().map(Arc::new).collect();
        let Some(first) = all.first() else { return Ok(()) };
        let data = Arc::new(Data::open(&first.config.data, &first.config.encoding, ui)?);
        let exams =
            all.iter().map(|trained| Exam::hold(trained, &world, &data, ui)).collect::<anyhow::Result<Vec<_>>>()?;
        match &exams[..] {
            [only] => one(only, &data, &world, ui),
            _ => several(&exams, &args.model, &data, &world, ui),
        }
    })
}

/// A model, and what came out.
struct Exam {
    trained: Arc<Trained>,
    metric: Metric,
    split: String,
    scores: Scores,
}

impl Exam {
    fn hold(trained: &Arc<Trained>, world: &World, data: &Arc<Data>, ui: &Ui) -> anyhow::Result<Self> {
        let (metric, split, scores) = trained.evaluate(world, data, ui)?;
        Ok(Self { trained: Arc::clone(trained), metric, split, scores })
    }

    /// What there is to say of the model alone.
    fn json(&self) -> Value {
        let Scores { train, valid, test, valid_loss, .. } = self.scores;
        json!({
            "split": self.split, "train": train, "valid": valid, "test": test, "valid_loss": valid_loss,
            "source": self.trained.source,
        })
    }
}

fn one(exam: &Exam, data: &Data, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let Exam { trained, metric, split, scores } = exam;
    let name = trained.config.model_name();
    let mut json = exam.json();
    add(&mut json, json!({ "metric": metric.name(), "graph": data.name, "model": name, "ranks": world.ranks() }));
    ui.result(&json, || {
        let rows = [("train", scores.train), ("valid", scores.valid), ("test", scores.test)];
        let rows = rows.map(|(part, score)| [part.to_string(), ui::score(score)]);
        let title = format!("{name} on {}, split {split}, {} in per cent", data.name, metric.name());
        format!("{title}\n\n{}\n\nfrom {}", ui::table(["part", "score"], rows), trained.source.display())
    })
}

/// Mean and deviation, and each seed.
fn several(exams: &[Exam], run: &Path, data: &Data, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let Some(Exam { trained, metric, .. }) = exams.first() else { return Ok(()) };
    let name = trained.config.model_name();
    let of = |part: fn(&Scores) -> f64| Spread::of(exams.iter().map(move |exam| part(&exam.scores)));
    let [train, valid, test] = [of(|s| s.train), of(|s| s.valid), of(|s| s.test)];
    let seeds = exams.iter().map(|exam| {
        let mut json = exam.json();
        add(&mut json, json!({ "seed": exam.trained.config.run.seed }));
        json
    });
    let json = json!({
        "metric": metric.name(), "graph": data.name, "model": name, "ranks": world.ranks(), "source": run,
        "train": train.mean, "valid": valid.mean, "test": test.mean,
        "train_std": train.std, "valid_std": valid.std, "test_std": test.std,
        "valid_loss": of(|s| s.valid_loss).mean, "seeds": seeds.collect::<Vec<_>>(),
    });
    ui.result(&json, || {
        let row = |exam: &Exam| {
            let Scores { train, valid, test, .. } = exam.scores;
            let seed = exam.trained.config.run.seed.to_string();
            [seed, exam.split.clone(), ui::score(train), ui::score(valid), ui::score(test)]
        };
        let spread =
            |s: Spread| if s.mean.is_nan() { ui::score(s.mean) } else { format!("{:.2} ± {:.2}", s.mean, s.std) };
        let mean = ["mean".to_string(), String::new(), spread(train), spread(valid), spread(test)];
        let rows = exams.iter().map(row).chain([mean]);
        let title = format!("{name} on {}, {} in per cent, {} seeds", data.name, metric.name(), exams.len());
        format!("{title}\n\n{}\n\nfrom {}", ui::table(["seed", "split", "train", "valid", "test"], rows), run.display())
    })
}

/// Adds the keys of one object to another.
fn add(to: &mut Value, more: Value) {
    if let (Value::Object(to), Value::Object(more)) = (to, more) {
        to.extend(more);
    }
}
