//! How fast this machine is: measured, not looked up.
//!
//! A calibration trains. Small models go through a few steps on graphs of several sizes, on a device that times every
//! kernel, while all ranks of the machine do the same at once; and the same steps on a dry device say what each of
//! those calls had to do. From the two lists, call beside call, come the [rates](crate::kernels::Kernel) of every
//! kernel that training uses. Messages are timed between the ranks that will talk.

mod busy;
mod messages;
mod off;
mod program;
mod rough;
mod sums;

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use graphweft_base::progress::{Progress, Unit};
use graphweft_comm::{Communicator, Label, Traffic, cpu_time};
use graphweft_graph::Csr;
use graphweft_parallel::Link;
use graphweft_tensor::dry::{Pass, Work};
use graphweft_tensor::{DType, Device, DeviceName, Precision, wall_time};

use crate::error::{Error, Result};
use crate::fit;
use crate::kernels::{Amounts, Caches, Class, Kernel, RATES, columns_of, pass_of};
use busy::Watch;
use off::{differ, explained};
use program::{Length, Program, groups, programs, rehearse, rows_of, run, run_recorded};

/// Steps of each program; the first, which meets cold caches and a new pool, is not counted. Of the others the shortest
/// counts: what disturbs a kernel only makes it longer.
const STEPS: usize = 3;
/// The same on a GPU, where steps are short, and a call that is waited for takes now less, now more.
const STEPS_ON_A_GPU: usize = 6;
/// Seconds that are added to every time before it is weighed: below, clocks and caches say more than kernels.
const GRAIN: f64 = 5e-6;
/// What is done once in a step: the host asks for the length of all gradients, and nothing is queued until it knows.
const ONCE: &str = Work::SQUARE_SUMS;
/// A kernel is fitted by itself if it was seen doing this many different amounts of work, else it follows its kind.
const ENOUGH: usize = 12;

const LABEL: Label = Label { op: "calibration", traffic: Traffic::Setup, layer: 0 };

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A few models: how much faster or slower every kind of kernel is than those of a machine that is known. It takes
    /// a few tenths of a second.
    Rough,
    /// Every kernel at several sizes. It takes from some seconds to a minute.
    Full,
}

/// What is run, and what every rank will have to do in it.
pub struct Calibration {
    detail: Detail,
    programs: Vec<Program>,
    graphs: Vec<Arc<Csr<u32>>>,
    /// By program and rank, the calls of one step.
    works: Vec<Vec<Vec<Work>>>,
    dtypes: Vec<DType>,
}

/// What a rank measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Rates of all kernels that were seen.
    pub kernels: Vec<Kernel>,
    /// Bytes of cache that a rank has for itself.
    pub caches: Caches,
    /// Seconds of a message: of an empty one, and of each byte.
    pub message: Option<(f64, f64)>,
    /// How far the rates are off, as a share of the time of a step: nine programs of ten are explained as well.
    pub error: f64,
    /// By how much steps that are the same differed, as a share of their time, in the middle of the programs.
    pub spread: f64,
    /// The share of the machine's processors that other programs used meanwhile, where the operating system tells.
    pub others: Option<f64>,
}

/// The device of a rank that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Measuring {
    /// Which one.
    pub device: DeviceName,
    /// How it multiplies.
    pub precision: Precision,
    /// Ranks of this machine: they share its caches, and those of other machines do not.
    pub sharing: usize,
}

impl Calibration {
    /// Prepares to measure `ranks` ranks at `place` that store rows in `dtypes`.
    pub fn prepare(detail: Detail, place: DeviceName, ranks: usize, dtypes: &[DType]) -> Result<Self> {
        let programs = programs(detail, place, ranks, dtypes);
        let mut graphs: Vec<Arc<Csr<u32>>> = Vec::new();
        let mut works = Vec::new();
        for group in groups(&programs) {
            let same = programs[..graphs.len()].iter().position(|other| other.graph == group[0].graph);
            let graph = match same {
                Some(other) => Arc::clone(&graphs[other]),
                None => Arc::new(group[0].graph()?),
            };
            works.extend(rehearse(group, &graph, ranks)?);
            graphs.extend(group.iter().map(|_| Arc::clone(&graph)));
        }
        Ok(Self { detail, programs, graphs, works, dtypes: dtypes.to_vec() })
    }

    /// Measures on this rank, one of those that `comm` connects, while the others do the same; `rounds` times, of which
    /// the least time of every call counts.
    pub fn measure(
        &self,
        on: Measuring,
        comm: Option<&Rc<dyn Communicator>>,
        rounds: usize,
        progress: &dyn Progress,
    ) -> Result<Measured> {
        let place = on.device;
        let rank = comm.map_or(0, |comm| comm.rank());
        let caches = caches(place, on.sharing.max(1));
        let watch = Watch::start();
        // A thread's own time is not disturbed by what else the machine does.
        let alone =
            place == DeviceName::Cpu && rayon::current_num_threads() == 1 && rayon::current_thread_index().is_some();
        let clock = if alone { cpu_time } else { wall_time };
        let least = self.run(on, clock, comm, rounds, progress)?;
        // Where a device makes other calls than a dry one, nobody knows which is which.
        let known = self
            .works
            .iter()
            .map(|works| &works[rank])
            .zip(&least)
            .filter(|(works, least)| works.len() == least.calls.len());
        let mut samples: Vec<(Work, f64)> =
            known.flat_map(|(works, least)| works.iter().copied().zip(least.calls.iter().copied())).collect();
        if samples.is_empty() {
            return Err(Error::NotTimed { device: place.to_string() });
        }
        let message = comm.map(messages::measure).transpose()?;
        let spread = middle(least.iter().filter_map(|least| differ(&least.steps)).collect()).unwrap_or(0.0);
        let others = watch.others();
        if self.detail == Detail::Rough {
            let kernels = rough::rates(&samples, caches, place)?;
            let error = explained(&kernels, caches, &self.works_of(rank), &least);
            return Ok(Measured { kernels, caches, message, error, spread, others });
        }
        if let Some(comm) = comm.filter(|_| alone) {
            samples.extend(sums::measure(comm, &self.dtypes)?);
        }
        let mut kernels = rates(&samples, caches);
        let error = explained(&kernels, caches, &self.works_of(rank), &least);
        self.delay(&mut kernels, &least, place);
        Ok(Measured { kernels, caches, message, error, spread, others })
    }

    /// Runs all programs, and gives the least times of each.
    fn run(
        &self,
        on: Measuring,
        clock: fn() -> Duration,
        comm: Option<&Rc<dyn Communicator>>,
        rounds: usize,
        progress: &dyn Progress,
    ) -> Result<Vec<Least>> {
        let Measuring { device: place, precision, .. } = on;
        let phase = match self.detail {
            Detail::Rough => "timing this machine",
            Detail::Full => "timing this machine, once",
        };
        let task = progress.start(phase, (rounds * self.programs.len()) as u64, Unit::Items);
        let steps = if place == DeviceName::Cpu { STEPS } else { STEPS_ON_A_GPU };
        let none = Least { calls: Vec::new(), whole: f64::INFINITY, recorded: f64::INFINITY, steps: Vec::new() };
        let mut least = vec![none; self.programs.len()];
        for _ in 0..rounds {
            let mut running = self.graphs.iter().zip(&mut least);
            for group in groups(&self.programs) {
                let (device, timings) = Device::timed(place.backend(precision)?, clock);
                let link = comm.map(|comm| Link::new(Rc::clone(comm), &device));
                let mut rows = None;
                for (program, (graph, least)) in group.iter().zip(&mut running) {
                    let rows = match &mut rows {
                        Some(rows) => rows,
                        none => none.insert(rows_of(program, graph, &device, link.as_ref())?),
                    };
                    if let Some(comm) = comm {
                        comm.barrier(LABEL)?;
                    }
                    run(program, rows, &device, steps, |step| {
                        let times = timings.take();
                        if step > 0 {
                            least.steps.push(times.iter().map(|t| t.seconds).sum());
                            shorten(&mut least.calls, times.iter().map(|t| t.seconds));
                        }
                    })?;
                    if program.alone.is_some() {
                        let device = place.open(precision)?;
                        let rows = rows_of(program, graph, &device, None)?;
                        let whole = untimed(&device, clock, |done| run(program, &rows, &device, 2 * steps, done))?;
                        let again =
                            untimed(&device, clock, |done| run_recorded(program, &rows, &device, 2 * steps, done))?;
                        (least.whole, least.recorded) = (least.whole.min(whole), least.recorded.min(again));
                    }
                    task.add(1);
                }
            }
        }
        Ok(least)
    }

    /// Adds to `kernels` what a step takes beside its calls.
    fn delay(&self, kernels: &mut [Kernel], least: &[Least], place: DeviceName) {
        // Of every program of some length, its calls and what it takes beside them: more than nothing where the
        // processor computes; less where a device need not be waited for.
        let beside = |length: Length, all: fn(&Least) -> f64| -> Vec<(f64, f64)> {
            let of_length = self.programs.iter().zip(least).filter(|(program, _)| program.alone == Some(length));
            let timed = of_length.map(|(_, least)| (all(least), &least.calls));
            let timed = timed.filter(|(whole, calls)| whole.is_finite() && !calls.is_empty());
            timed.map(|(whole, calls)| (calls.len() as f64, whole - calls.iter().sum::<f64>())).collect()
        };
        let between = |points: Vec<(f64, f64)>| middle(points.iter().map(|(calls, seconds)| seconds / calls).collect());
        let whole = |least: &Least| least.whole;
        let short = beside(Length::Short, whole);
        if place == DeviceName::Cpu {
            let called = between(short).unwrap_or(0.0);
            kernels.iter_mut().for_each(|kernel| kernel.delay(called, None, None));
        } else {
            // A host that tells every call has nothing to gain from a step.
            let (called, step) =
                line(&short).filter(|(_, step)| *step > 0.0).unwrap_or((between(short).unwrap_or(0.0), 0.0));
            let queued = between(beside(Length::Long, whole));
            // Recorded steps are small: what counts is how much less their calls take than such that are waited for,
            // and what it takes to begin and to end one.
            let again = [Length::Short, Length::Middle].map(|length| beside(length, |least| least.recorded)).concat();
            let recorded = line(&again).or_else(|| between(again).map(|each| (each, 0.0)));
            for kernel in kernels {
                kernel.delay(called, queued, recorded.map(|(each, _)| each));
                if kernel.op.as_deref() == Some(ONCE) {
                    kernel.wait(step, recorded.map_or(0.0, |(_, step)| step));
                }
            }
        }
    }

    /// By program, the calls of one step of a rank.
    fn works_of(&self, rank: usize) -> Vec<&[Work]> {
        self.works.iter().map(|works| &works[rank][..]).collect()
    }
}

/// Of one program, the least times that were met, in seconds: of the calls of a step, of a whole one, and of one that
/// was recorded.
#[derive(Clone)]
struct Least {
    calls: Vec<f64>,
    whole: f64,
    recorded: f64,
    /// Of all calls of every step that counts.
    steps: Vec<f64>,
}

/// Keeps the lesser of two times of each call.
fn shorten(calls: &mut Vec<f64>, times: impl ExactSizeIterator<Item = f64>) {
    if calls.is_empty() {
        calls.extend(times);
    } else {
        calls.truncate(times.len());
        calls.iter_mut().zip(times).for_each(|(least, t)| *least = least.min(t));
    }
}

/// Seconds of a step on a device that is left alone between kernels, as in training; endless if `run` has none.
fn untimed(
    device: &Device,
    clock: fn() -> Duration,
    run: impl FnOnce(&mut dyn FnMut(usize)) -> Result<()>,
) -> Result<f64> {
    let (mut least, mut before, mut waited) = (f64::INFINITY, clock(), Ok(()));
    run(&mut |step| {
        if let Err(e) = device.backend().wait() {
            waited = Err(e);
        }
        let now = clock();
        if step > 0 {
            least = least.min(now.saturating_sub(before).as_secs_f64());
        }
        before = now;
    })?;
    Ok(waited.map(|()| least)?)
}

/// The line through `points` that half of them are above: how fast it rises, and from where. (The median of the slopes
/// between any two points, and of what that leaves.) Nothing if all are above one another.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let pairs = points.iter().enumerate().flat_map(|(k, a)| points[k + 1..].iter().map(move |b| (a, b)));
    let slopes = pairs.filter(|(a, b)| a.0 != b.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0));
    let slope = middle(slopes.collect())?;
    Some((slope, middle(points.iter().map(|(x, y)| y - slope * x).collect())?))
}

fn middle(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// What tells kernels apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    kind: Class,
    op: &'static str,
    pass: Option<Pass>,
    dtype: DType,
    dropout: bool,
    /// Columns of a head; nothing where those of all widths are meant.
    columns: Option<usize>,
}

impl Key {
    fn of(work: &Work) -> Self {
        Self {
            kind: Class::of(work),
            op: work.op,
            pass: pass_of(work),
            dtype: work.dtype,
            dropout: work.dropout,
            columns: columns_of(work),
        }
    }

    /// The same for heads of any width.
    fn of_any_width(work: &Work) -> Self {
        Self { columns: None, ..Self::of(work) }
    }
}

/// Samples by key, in the order in which keys were met.
fn grouped<K: Eq + Hash + Copy>(samples: &[(Work, f64)], key: impl Fn(&Work) -> K) -> Vec<(K, Vec<(Work, f64)>)> {
    let (mut places, mut groups) = (HashMap::new(), Vec::new());
    for (work, t) in samples {
        let place = *places.entry(key(work)).or_insert_with(|| {
            groups.push((key(work), Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push((*work, *t));
    }
    groups
}

/// The rates that explain `samples`: of every kernel, and of every kind for those that were not seen.
fn rates(samples: &[(Work, f64)], caches: Caches) -> Vec<Kernel> {
    let fitted = |samples: &[(Work, f64)]| {
        let listed: Vec<([f64; RATES], f64)> =
            samples.iter().map(|(work, t)| (Amounts::of(work, caches).list(), t + GRAIN)).collect();
        let mut found = fit::rates(&listed);
        found[0] = (found[0] - GRAIN).max(0.0);
        found
    };
    let mut kernels = Vec::new();
    for ((kind, dtype), samples) in grouped(samples, |work| (Class::of(work), work.dtype)) {
        let mut kernel = Kernel { dtype: Some(dtype), ..Kernel::of(kind) };
        kernel.set_rates(fitted(&samples));
        kernels.push(kernel);
    }
    // What is not said of a type holds for all.
    for (kind, samples) in grouped(samples, Class::of) {
        let mut kernel = Kernel::of(kind);
        kernel.set_rates(fitted(&samples));
        kernels.push(kernel);
    }
    let of_any_width = grouped(samples, Key::of_any_width);
    let of_one_width = grouped(samples, Key::of).into_iter().filter(|(key, _)| key.columns.is_some());
    for (key, samples) in of_any_width.into_iter().chain(of_one_width) {
        let Key { kind, op, pass, dtype, dropout, columns } = key;
        // What is known more generally: of heads of any width, or of the kind.
        let any = |k: &&Kernel| k.kind == kind && k.dtype == Some(dtype) && k.columns.is_none();
        let same = |k: &&Kernel| k.op.as_deref() == Some(op) && k.pass == pass && k.dropout == Some(dropout);
        let wider = kernels.iter().filter(any).find(same);
        let general = wider.or_else(|| kernels.iter().filter(any).find(|k| k.op.is_none())).cloned();
        let mut kernel = Kernel {
            op: Some(op.into()),
            pass,
            dtype: Some(dtype),
            dropout: Some(dropout),
            columns,
            ..general.unwrap_or(Kernel::of(kind))
        };
        let amounts = |work: &Work| Amounts::of(work, caches);
        let mut different: Vec<u64> =
            samples.iter().map(|(work, _)| amounts(work).list()[1..].iter().sum::<f64>() as u64).collect();
        different.sort_unstable();
        different.dedup();
        if different.len() >= ENOUGH {
            kernel.set_rates(fitted(&samples));
        } else {
            let ratio = |(work, t): &(Work, f64)| (t + GRAIN) / (kernel.seconds(&amounts(work)) + GRAIN);
            let factor = middle(samples.iter().map(ratio).collect());
            kernel.scale(factor.unwrap_or(1.0));
        }
        kernels.push(kernel);
    }
    kernels
}

/// The caches of the machine, as a rank of so many on it has them, or what is usual where nobody tells.
fn caches(place: DeviceName, ranks: usize) -> Caches {
    if place != DeviceName::Cpu {
        // Between an A100's 40 MB and an H200's 50; what is nearer is not shared by rows.
        let last = 45e6 / ranks as f64;
        return Caches { near: 0.0, last, kept: last };
    }
    let folder = |index: usize| Path::new("/sys/devices/system/cpu/cpu0/cache").join(format!("index{index}"));
    let read = |index: usize, file: &str| std::fs::read_to_string(folder(index).join(file)).ok();
    let size = |index: usize| {
        let text = read(index, "size")?;
        let text = text.trim();
        let (digits, factor) = match text.strip_suffix('K') {
            Some(digits) => (digits, 1024.0),
            None => (text.strip_suffix('M').unwrap_or(text), 1_048_576.0),
        };
        Some(digits.parse::<f64>().ok()? * factor)
    };
    let of_level = |level: &str| {
        let index = (0..8).find(|index| read(*index, "level").is_some_and(|text| text.trim() == level))?;
        size(index)
    };
    let near = of_level("2").unwrap_or((1 << 20) as f64);
    let last = (of_level("3").unwrap_or((32 << 20) as f64) / ranks as f64).max(near);
    Caches { near, last, kept: last }
}

#[cfg(test)]
mod tests {
    use graphweft_tensor::dry::WorkKind;

    use super::*;

    const ALL: Caches = Caches { near: 1e9, last: 1e9, kept: 1e9 };

    #[test]
    fn a_line_is_found_whatever_a_few_points_say() {
        let points = [(10.0, 25.0), (20.0, 45.0), (21.0, 47.0), (30.0, 900.0), (40.0, 85.0)];
        assert_eq!(line(&points), Some((2.0, 5.0)));
        // Less than nothing is not waited for.
        assert_eq!(line(&[(10.0, -20.0), (20.0, -60.0)]), Some((-4.0, 20.0)));
        assert_eq!(line(&[(10.0, -20.0), (20.0, -30.0)]), Some((-1.0, -10.0)));
        assert_eq!(line(&[(10.0, 30.0), (10.0, 30.0)]), None);
        assert_eq!(line(&[]), None);
    }

    #[test]
    fn rates_of_kernels_come_out_of_their_times() {
        // A machine on which a product takes 2 µs and 5 ps per flop, and a copy 1 µs and 40 ps per byte.
        let product = |m: usize| Work {
            op: "linear",
            dtype: DType::F32,
            dropout: false,
            kind: WorkKind::Gemm { m, n: 64, k: 128 },
        };
        let copy = |bytes: usize| Work {
            op: "convert",
            dtype: DType::F32,
            dropout: false,

            kind: WorkKind::Stream { read: bytes, written: bytes, rows: 1 },
        };
        let time = |work: &Work| {
            let a = Amounts::of(work, ALL);
            match work.kind {
                WorkKind::Gemm { .. } => 2e-6 + 5e-12 * a.flops,
                _ => 1e-6 + 40e-12 * a.bytes,
            }
        };
        let works: Vec<Work> =
            [100, 1000, 5000, 20_000].into_iter().flat_map(|x| [product(x), copy(300 * x)]).collect();
        let samples: Vec<(Work, f64)> = works.iter().map(|w| (*w, time(w))).collect();
        let kernels = rates(&samples, ALL);
        for work in [product(3000), copy(123_456)] {
            let found = crate::kernels::kernel_for(&kernels, &work).unwrap();
            assert_eq!(found.op.as_deref(), Some(work.op));
            let (found, truth) = (found.seconds(&Amounts::of(&work, ALL)), time(&work));
            assert!((found / truth - 1.0).abs() < 0.02, "{work:?}: {found} for {truth}");
        }
        // What was never seen is like its kind.
        let other = Work { op: "other", ..copy(200_000) };
        let found = crate::kernels::kernel_for(&kernels, &other).unwrap();
        assert!(found.op.is_none() && (found.ps_per_byte / 40.0 - 1.0).abs() < 0.05);
    }
}
