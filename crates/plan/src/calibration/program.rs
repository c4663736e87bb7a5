//! What a calibration runs: steps of training that use every kernel, at sizes that tell its rates apart.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use graphweft_base::progress::Silent;
use graphweft_comm::threads;
use graphweft_graph::Csr;
use graphweft_graph::generate::Spec;
use graphweft_graph::partition::{Method, Options, partition};
use graphweft_model::models::{gat, gatv2, gcn, gin, gt, sage, stack};
use graphweft_model::{Context, Features, GraphOps, Mode, ModelConfig, Network, Rates, Remat, Shape};
use graphweft_parallel::{Layout, Link, Local, Strategy, settings, spread};
use graphweft_tensor::dry::Work;
use graphweft_tensor::ops::loss::{LossRows, softmax_cross_entropy};
use graphweft_tensor::optim::{Optimizer, Rule, gradient_norm, side_by_side};
use graphweft_tensor::{DType, Device, DeviceName, Error as Computation, Ids, Matrix, Parameter, Tag, Tape};

use Measured::{Gat, Gatv2, Gcn, Gin, Gt, Sage};

use super::Detail;
use crate::error::{Error, Result};

const CLASSES: usize = 40;
/// The rate of learning, which takes no time.
const RATE: f64 = 1e-3;
/// Rehearsals compute nothing: whoever waits this long waits for ever.
const DEADLINE: Duration = Duration::from_secs(120);

/// Steps of a model on a graph.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// The graph.
    pub(super) graph: &'static str,
    model: Sizes,
    /// Columns of the features.
    features: usize,
    dtype: DType,
    dropout: f64,
    /// Between ranks; without one, each rank trains by itself.
    strategy: Option<Strategy>,
    /// Whether it is also run without a look at every call, and how long its calls are.
    pub(super) alone: Option<Length>,
}

/// What takes longer on a device whose calls are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// To call.
    Short,
    /// Now the one, now the other: where recorded steps save most.
    Middle,
    /// To compute.
    Long,
}

/// Graphs of several sizes.
struct Graphs {
    /// So small that calls themselves take time.
    tiny: &'static str,
    /// Whose rows fit into the second cache of a processor, or keep a GPU busy in part.
    small: &'static str,
    /// Whose rows fit into the last cache.
    medium: &'static str,
    /// Into none.
    large: &'static str,
    /// One whose neighbours are near one another.
    near: &'static str,
}

const FOR_A_PROCESSOR: Graphs =
    Graphs { tiny: TINY, small: "rmat:11:12", medium: "rmat:14:16", large: "rmat:18:2", near: "grid:150:150" };
/// A GPU computes on what a processor calls medium in the time that it takes to begin.
const FOR_A_GPU: Graphs =
    Graphs { tiny: TINY, small: "rmat:13:16", medium: "rmat:16:16", large: "rmat:18:16", near: "grid:500:500" };
const TINY: &str = "rmat:8:8";

/// A model, as large as it is measured.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    model: Measured,
    hidden: usize,
    /// None: 0.
    heads: usize,
}

/// Models that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    Gt,
    Gcn,
    Sage,
    Gin,
    Gat,
    Gatv2,
}

const fn sizes(model: Measured, hidden: usize, heads: usize) -> Sizes {
    Sizes { model, hidden, heads }
}

impl Sizes {
    fn config(self) -> ModelConfig {
        let Self { model, hidden, heads } = self;
        // What only aggregates ends in another width than it has inside.
        let stack = stack::Config { hidden, layers: 2, ..stack::Config::default() };
        match model {
            // One layer has all that it has.
            Gt => ModelConfig::new(gt::Config { hidden, layers: 1, heads, ..gt::Config::default() }),
            Gcn => ModelConfig::new(gcn::Config(stack)),
            Sage => ModelConfig::new(sage::Config { hidden, layers: 2, ..sage::Config::default() }),
            Gin => ModelConfig::new(gin::Config { hidden, layers: 2, ..gin::Config::default() }),
            Gat => ModelConfig::new(gat::Config { hidden, layers: 2, heads, ..gat::Config::default() }),
            Gatv2 => {
                ModelConfig::new(gatv2::Config(gat::Config { hidden, layers: 2, heads, ..gat::Config::default() }))
            }
        }
    }
}

/// A list of programs that grows.
struct List {
    programs: Vec<Program>,
    dtype: DType,
}

impl List {
    fn add(&mut self, graph: &'static str, model: Sizes, features: usize, dropout: f64, strategy: Option<Strategy>) {
        let alone = (graph == TINY && strategy.is_none()).then_some(Length::Short);
        self.programs.push(Program { graph, model, features, dtype: self.dtype, dropout, strategy, alone });
    }
}

/// All programs for `ranks` ranks at `place`, those of a graph in a row.
pub(super) fn programs(detail: Detail, place: DeviceName, ranks: usize, dtypes: &[DType]) -> Vec<Program> {
    let mut all = Vec::new();
    for dtype in dtypes {
        let mut list = List { programs: Vec::new(), dtype: *dtype };
        if detail == Detail::Rough {
            let Graphs { small, medium, .. } = if place == DeviceName::Cpu { FOR_A_PROCESSOR } else { FOR_A_GPU };
            list.add(small, sizes(Gt, 64, 4), 64, 0.1, None);
            list.add(small, sizes(Gcn, 64, 0), 64, 0.1, None);
            list.add(medium, sizes(Gt, 32, 4), 32, 0.1, None);
            all.extend(list.programs);
            continue;
        }
        let graphs = match place {
            DeviceName::Cpu => {
                for_a_processor(&mut list);
                FOR_A_PROCESSOR
            }
            DeviceName::Cuda(_) => {
                for_a_gpu(&mut list);
                FOR_A_GPU
            }
        };
        if ranks > 1 {
            between_ranks(&mut list, &graphs);
        }
        all.extend(list.programs);
    }
    all.sort_by_key(|program| (program.strategy.is_some(), program.graph));
    all
}

fn for_a_processor(list: &mut List) {
    let Graphs { tiny, small, medium, large, near } = FOR_A_PROCESSOR;
    // Of graph transformers: few and many heads, narrow and wide ones, which have kernels of their own, and tables in
    // and out of caches.
    for (hidden, heads) in [(8, 1), (16, 2), (32, 4), (16, 1), (32, 2), (64, 4), (32, 1), (64, 2)] {
        list.add(small, sizes(Gt, hidden, heads), 32, 0.1, None);
        list.add(medium, sizes(Gt, hidden, heads), 32, 0.1, None);
    }
    for (hidden, heads) in [(8, 1), (32, 4), (64, 4)] {
        list.add(tiny, sizes(Gt, hidden, heads), 32, 0.1, None);
        list.add(near, sizes(Gt, hidden, heads), 32, 0.1, None);
    }
    list.add(large, sizes(Gt, 16, 2), 16, 0.1, None);
    list.add(large, sizes(Gt, 32, 4), 32, 0.1, None);
    for dropout in [0.0, 0.1] {
        list.add(small, sizes(Gt, 128, 8), 64, dropout, None);
    }
    list.add(medium, sizes(Gt, 128, 8), 128, 0.0, None);
    list.add(medium, sizes(Gt, 64, 8), 256, 0.0, None);
    // Heads of four columns are no whole vectors.
    list.add(small, sizes(Gt, 32, 8), 32, 0.1, None);
    // Of networks that only aggregate, and of other scores.
    for model in [Gcn, Sage, Gin] {
        list.add(tiny, sizes(model, 32, 0), 32, 0.1, None);
        list.add(small, sizes(model, 64, 0), 64, 0.1, None);
        list.add(medium, sizes(model, 32, 0), 64, 0.0, None);
    }
    list.add(medium, sizes(Gcn, 128, 0), 64, 0.0, None);
    list.add(large, sizes(Gcn, 32, 0), 32, 0.1, None);
    for model in [Gat, Gatv2] {
        list.add(small, sizes(model, 32, 4), 64, 0.1, None);
        list.add(small, sizes(model, 128, 8), 64, 0.1, None);
        list.add(medium, sizes(model, 32, 4), 64, 0.0, None);
    }
}

/// Every kernel at every size, as it is not said in advance from which on a GPU is busy.
fn for_a_gpu(list: &mut List) {
    let Graphs { tiny, small, medium, large, near } = FOR_A_GPU;
    for graph in [tiny, small, medium] {
        for (hidden, heads) in [(32, 4), (64, 8), (32, 2), (64, 4), (128, 8), (64, 2), (128, 4), (64, 1), (128, 1)] {
            list.add(graph, sizes(Gt, hidden, heads), hidden, 0.1, None);
        }
        for (hidden, heads) in [(64, 4), (128, 8), (128, 4)] {
            list.add(graph, sizes(Gt, hidden, heads), 64, 0.0, None);
        }
        for (model, heads) in [(Gcn, 0), (Sage, 0), (Gin, 0), (Gat, 8), (Gatv2, 8)] {
            list.add(graph, sizes(model, 64, heads), 64, 0.1, None);
            list.add(graph, sizes(model, 128, heads), 128, 0.1, None);
        }
        list.add(graph, sizes(Gat, 32, 4), 64, 0.0, None);
    }
    for graph in [large, near] {
        for (hidden, heads) in [(32, 4), (64, 4), (128, 8), (128, 4), (128, 1)] {
            list.add(graph, sizes(Gt, hidden, heads), hidden, 0.1, None);
        }
        list.add(graph, sizes(Gt, 128, 8), 64, 0.0, None);
        for (model, heads) in [(Gcn, 0), (Sage, 0), (Gat, 8)] {
            list.add(graph, sizes(model, 128, heads), 128, 0.1, None);
        }
    }
    for graph in [small, medium] {
        list.add(graph, sizes(Gt, 256, 8), 256, 0.1, None);
        list.add(graph, sizes(Gt, 256, 16), 256, 0.1, None);
    }
    for program in &mut list.programs {
        if program.graph == medium && program.features > 64 && program.model.model == Gt {
            program.alone = Some(Length::Long);
        } else if program.graph == small {
            program.alone = Some(Length::Middle);
        }
    }
}

fn between_ranks(list: &mut List, graphs: &Graphs) {
    let Graphs { tiny, small, medium, near, .. } = *graphs;
    for strategy in [settings::Cover::Least.into(), settings::Heads.into(), settings::Ring { depth: 1 }.into()] {
        let mut add = |graph, model, features, dropout| list.add(graph, model, features, dropout, Some(strategy));
        add(tiny, sizes(Gt, 32, 4), 32, 0.1);
        add(small, sizes(Gt, 64, 8), 64, 0.1);
        add(medium, sizes(Gt, 32, 4), 64, 0.1);
        add(medium, sizes(Gt, 16, 2), 64, 0.1);
        add(near, sizes(Gt, 64, 4), 64, 0.1);
        add(medium, sizes(Gcn, 64, 0), 64, 0.0);
    }
}

impl Program {
    pub(super) fn graph(&self) -> Result<Csr<u32>> {
        let bug = |e: graphweft_base::Error| Computation::Argument { op: "calibration", problem: e.to_string() };
        let spec: Spec = self.graph.parse().map_err(bug)?;
        Ok(spec.graph(0, &Silent).map_err(bug)?)
    }
}

/// Those of `programs` that are run one after another on the same rows: of the same graph, each rank by itself.
pub(super) fn groups(programs: &[Program]) -> impl Iterator<Item = &[Program]> {
    programs.chunk_by(|a, b| a.graph == b.graph && a.strategy.is_none() && b.strategy.is_none())
}

/// The graph as this rank has it.
pub(super) fn rows_of(
    program: &Program,
    graph: &Csr<u32>,
    device: &Device,
    link: Option<&Link>,
) -> Result<Rc<dyn GraphOps>> {
    if let (Some(strategy), Some(link)) = (program.strategy, link) {
        let options = Options::new(Method::Contiguous, link.size());
        let parts = partition(graph, &options, &Silent).map_err(|e| bug(e.to_string()))?;
        return Ok(spread(&strategy, &Layout::new(graph, &parts, link.size(), link.rank())?, link, None)?);
    }
    // As where ranks share a graph: rows have original ids, which masks are made of.
    let ids = Ids::Listed((0..graph.num_dst() as u64).collect());
    let degrees: Vec<u32> = (0..graph.num_dst()).map(|row| graph.degree(row) as u32).collect();
    Ok(Rc::new(Local::cut(device, graph.clone(), None, ids, &degrees, None)?))
}

/// A program on this rank, about to be run.
struct Training<'a> {
    program: &'a Program,
    ops: Rc<dyn GraphOps>,
    device: &'a Device,
    x: Matrix,
    labels: Rc<[i64]>,
    learned: LossRows,
    network: Network,
    parameters: Vec<Rc<Parameter>>,
    optimizer: Optimizer,
}

impl<'a> Training<'a> {
    fn new(program: &'a Program, ops: &Rc<dyn GraphOps>, device: &'a Device) -> Result<Self> {
        let Program { features, dtype, .. } = *program;
        let rows = ops.rows();
        let values: Vec<f32> = (0..rows * features).map(|k| (k % 17) as f32 / 16.0 - 0.5).collect();
        let x = device.upload(rows, features, &values, Tag::Graph)?;
        let x = if dtype == DType::F32 { x } else { device.convert("features", &x, dtype)? };
        let labels: Rc<[i64]> = (0..rows as i64).map(|row| row % CLASSES as i64).collect();
        let learned = LossRows::new((0..rows as u32).collect::<Vec<u32>>())?;
        let shape = Shape::of_nodes(features, CLASSES);
        let network = program.model.config().build(device, shape, dtype.compute(), 1)?;
        let parameters = network.parameters();
        let optimizer = Optimizer::new(Rule::adam_w(0.01), &parameters)?;
        Ok(Self { program, ops: Rc::clone(ops), device, x, labels, learned, network, parameters, optimizer })
    }

    /// There and back; the loss.
    fn pass(&self, epoch: usize) -> Result<Matrix> {
        let Program { dtype, dropout, .. } = *self.program;
        let context = Context {
            ops: Rc::clone(&self.ops),
            features: Features::Dense(self.x.clone()),
            positional: None,
            graphs: None,
            types: None,
            mode: Mode::Train,
            seed: 1,
            epoch: epoch as u64,
            rates: Rates { input: 0.0, hidden: dropout, attention: dropout },
            remat: Remat::None,
            dtype,
        };
        let mut tape = Tape::new(self.device);
        let logits = self.network.forward(&mut tape, &context)?.ok_or_else(|| bug("a model without layers".into()))?;
        let total = self.ops.rows().max(1) as f64;
        let loss = softmax_cross_entropy(&mut tape, &logits, &self.labels, &self.learned, 0.0, total)?;
        drop(logits);
        let value = loss.value().clone();
        tape.start_from(&loss);
        drop(loss);
        tape.backward(Vec::new(), &[], |_| Ok(()))?;
        Ok(value)
    }

    fn run(&mut self, steps: usize, mut done: impl FnMut(usize)) -> Result<()> {
        for epoch in 0..steps {
            self.pass(epoch)?;
            self.update()?;
            done(epoch);
        }
        Ok(())
    }

    fn update(&mut self) -> Result<()> {
        if self.program.strategy.is_some() {
            let gradients: Vec<Matrix> = self.parameters.iter().filter_map(|p| p.grad()).collect();
            side_by_side(gradients.iter())?;
        }
        gradient_norm(&self.parameters)?;
        Ok(self.optimizer.step(RATE, 1.0)?)
    }
}

fn bug(problem: String) -> Error {
    Computation::Argument { op: "calibration", problem }.into()
}

/// Runs `steps` steps on this rank; `done` hears of the end of each.
pub(super) fn run(
    program: &Program,
    ops: &Rc<dyn GraphOps>,
    device: &Device,
    steps: usize,
    done: impl FnMut(usize),
) -> Result<()> {
    Training::new(program, ops, device)?.run(steps, done)
}

/// The same by a device that has [recorded](Device::record) the step, as training has it do. `done` hears nothing where
/// it cannot.
pub(super) fn run_recorded(
    program: &Program,
    ops: &Rc<dyn GraphOps>,
    device: &Device,
    steps: usize,
    mut done: impl FnMut(usize),
) -> Result<()> {
    let mut training = Training::new(program, ops, device)?;
    // After these, everything that a step needs is in the pool.
    training.run(2, |_| ())?;
    let mut loss = device.zeros("loss", 1, 1, DType::F64, Tag::Workspace)?;
    let recording = device.capture(|| -> Result<_> {
        let value = training.pass(0)?;
        device.backend().convert(&mut loss, &value)?;
        Ok(training.optimizer.capture(0.0, &loss)?)
    });
    // Nor of a model that needs the host on the way.
    let Ok(Some(recording)) = recording else { return Ok(()) };
    for epoch in 0..steps {
        recording.step(epoch as u64, &training.optimizer.next(RATE))?;
        training.optimizer.has_stepped();
        done(epoch);
    }
    Ok(())
}

/// By program of a [group](groups) and rank, the calls of one step, none of which computes anything.
pub(super) fn rehearse(group: &[Program], graph: &Csr<u32>, ranks: usize) -> Result<Vec<Vec<Vec<Work>>>> {
    let one = |link: Option<&dyn Fn(&Device) -> Link>| -> Result<Vec<Vec<Work>>> {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&heard);
        let device = Device::dry(None, Rc::new(move |work| sink.borrow_mut().push(work)));
        let link = link.map(|link| link(&device));
        let Some(first) = group.first() else { return Ok(Vec::new()) };
        let ops = rows_of(first, graph, &device, link.as_ref())?;
        let mut all = Vec::new();
        for program in group {
            let mut works = Vec::new();
            // The first step is like the others, but what was set up before it was heard too.
            run(program, &ops, &device, 2, |_| works = heard.take())?;
            all.push(works);
        }
        Ok(all)
    };
    let alone = group.iter().all(|program| program.strategy.is_none());
    let by_rank = if ranks == 1 || alone {
        vec![one(None)?; ranks]
    } else {
        threads::run(threads::Options { ranks, threads: 1, deadline: DEADLINE }, |comm| {
            one(Some(&|device: &Device| Link::new(Rc::clone(&comm), device)))
        })?
    };
    Ok((0..group.len()).map(|k| by_rank.iter().map(|programs| programs[k].clone()).collect()).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use graphweft_tensor::Precision;

    use super::*;

    #[test]
    fn a_device_makes_the_calls_that_were_rehearsed() {
        makes_the_calls_that_were_rehearsed(DeviceName::Cpu);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_makes_the_calls_that_were_rehearsed() {
        makes_the_calls_that_were_rehearsed(DeviceName::Cuda(0));
    }

    fn makes_the_calls_that_were_rehearsed(place: DeviceName) {
        let ranks = 2;
        for program in
            programs(Detail::Full, place, ranks, &[DType::F32, DType::Bf16]).iter().filter(|p| p.graph == TINY)
        {
            let graph = program.graph().unwrap();
            let works = rehearse(std::slice::from_ref(program), &graph, ranks).unwrap().remove(0);
            let options = threads::Options { ranks, threads: 1, deadline: DEADLINE };
            let calls = threads::run(options, |comm| {
                let (device, timings) = Device::timed(place.backend(Precision::default()).unwrap(), || Duration::ZERO);
                let mut ops = Vec::new();
                let link = Link::new(comm, &device);
                let rows = rows_of(program, &graph, &device, Some(&link))?;
                run(program, &rows, &device, 2, |_| ops = timings.take())?;
                Ok::<_, Error>(ops)
            });
            for (calls, works) in calls.unwrap().iter().zip(&works) {
                let names = |all: Vec<&str>| all.iter().map(|op| op.replace('_', " ")).collect::<Vec<_>>();
                let (calls, works) =
                    (names(calls.iter().map(|c| c.op).collect()), names(works.iter().map(|w| w.op).collect()));
                assert_eq!(calls.len(), works.len(), "{program:?}");
                // Both name what they do; a few by other words.
                for (call, work) in calls.iter().zip(&works) {
                    assert!(work.starts_with(call) || !works.contains(call), "{call} for {work}: {program:?}");
                }
            }
        }
    }
}
