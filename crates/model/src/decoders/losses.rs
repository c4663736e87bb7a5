//! Losses of scores: how a decoder learns which links there are.
//!
//! * [`logistic`]: Σ log(1 + e^−s) over links plus the mean of log(1 + e^s) over the k pairs against each;
//! * [`self_adversarial`], of RotatE's paper: the same with weights softmax(τ·s) in place of 1/k, which are taken as
//!   constants: pairs that score high count more;
//! * [`one_of_all`]: cross-entropy of the softmax over all nodes, with the partner that was left out as class;
//! * [`some_of_all`] (KvsAll): binary cross-entropy over all nodes, each a partner or not; with a smoothing ε > 0 the
//!   targets are (1 − ε)·y + 1/N, as LibKGE and ConvE have them.
//!
//! All are divided by a given total, on which ranks agree.

use std::rc::Rc;

use graphweft_tensor::cpu::{host, host_mut};
use graphweft_tensor::ops::custom::{GpuKernel, Kernel, custom};
use graphweft_tensor::ops::loss::{LossRows, binary_cross_entropy, softmax_cross_entropy};
use graphweft_tensor::{DType, Element, Error, Matrix, Result, Tag, Tape, Var, one_output};

use super::OP;

/// The halves for GPUs of the kernels here.
const GPU: &str = include_str!("losses.cu");
/// Numbers below are exact in f32.
const EXACT: usize = 1 << 24;

/// Scores of links, then of the pairs against each, so many in a row.
#[derive(Clone, Copy)]
pub struct Against<'a> {
    /// A column: links, then pairs.
    pub scores: &'a Var,
    /// How many links.
    pub links: usize,
    /// Divides the sum.
    pub total: f64,
}

impl Against<'_> {
    /// Pairs against each link.
    fn negatives(&self) -> Result<usize> {
        let (rows, links) = (self.scores.value().rows(), self.links);
        match links {
            0 => Ok(0),
            _ if rows > links && (rows - links).is_multiple_of(links) => Ok((rows - links) / links),
            _ => Err(Error::Argument { op: OP, problem: format!("{rows} scores of {links} links and as many others") }),
        }
    }
}

/// The mean over the pairs against each link, plus that of the link.
pub fn logistic(tape: &mut Tape, a: Against<'_>) -> Result<Var> {
    let (device, k, rows) = (tape.device().clone(), a.negatives()?, a.scores.value().rows());
    let targets: Vec<f32> = (0..rows).map(|at| f32::from(u8::from(at < a.links))).collect();
    let weights: Vec<f32> = (0..rows).map(|at| if at < a.links { 1.0 } else { 1.0 / k as f32 }).collect();
    let counted = LossRows::weighted((0..rows as u32).collect::<Vec<_>>(), weights)?;
    let targets = device.upload_from(rows, 1, Tag::Workspace, || &targets[..])?;
    let dtype = a.scores.value().dtype().compute();
    let targets = if dtype == DType::F32 { targets } else { device.convert(OP, &targets, dtype)? };
    binary_cross_entropy(tape, a.scores, &targets, &counted, a.total)
}

/// Pairs that score high count more, by `temperature`.
pub fn self_adversarial(tape: &mut Tape, a: Against<'_>, temperature: f64) -> Result<Var> {
    a.negatives()?;
    let of = Weighed { links: a.links, total: a.total, temperature };
    let scores = a.scores.value();
    let loss = custom(&Loss(of), &[scores], 1, 1)?;
    let gradient = custom(&Slope(of), &[scores], scores.rows(), 1)?;
    Ok(tape.push(&[a.scores], loss, || {
        one_output(move |dy, grads| {
            let factor = grads.device().convert(OP, &dy, DType::F64)?.to_vec::<f64>()?[0];
            let mut gradient = grads.own(OP, gradient)?;
            grads.device().backend().scale(factor, &mut gradient)?;
            grads.put(0, gradient)
        })
    }))
}

/// The class of a row is the partner of its query.
pub fn one_of_all(tape: &mut Tape, scores: &Var, partners: &Rc<[i64]>, total: f64) -> Result<Var> {
    let rows = LossRows::new((0..partners.len() as u32).collect::<Vec<_>>())?;
    softmax_cross_entropy(tape, scores, partners, &rows, 0.0, total)
}

/// The partners of each query among all nodes.
#[derive(Clone, Copy)]
pub struct Partners<'a> {
    /// Those of each row.
    pub of: &'a [Vec<u32>],
    /// The part of a target that is taken away.
    pub smoothing: f64,
}

/// Every node is a partner or not.
pub fn some_of_all(tape: &mut Tape, scores: &Var, partners: Partners<'_>, total: f64) -> Result<Var> {
    let (device, (rows, nodes)) = (tape.device().clone(), scores.value().shape());
    let rest = if partners.smoothing > 0.0 { 1.0 / nodes as f64 } else { 0.0 };
    let (mut starts, mut all) = (vec![0], Vec::new());
    for of in partners.of {
        let mut of = of.clone();
        of.sort_unstable();
        all.extend(of.into_iter().map(f64::from));
        starts.push(all.len());
    }
    if nodes.max(all.len()) >= EXACT {
        let problem = format!("{nodes} nodes and {} partners are compared at once, at most {EXACT} can be", all.len());
        return Err(Error::Argument { op: OP, problem });
    }
    let dtype = scores.value().dtype().compute();
    let column = |all: Vec<f64>| -> Result<Matrix> {
        let wide = device.upload_from(all.len(), 1, Tag::Workspace, || &all[..])?;
        device.convert(OP, &wide, dtype)
    };
    let lists = [column(starts.into_iter().map(|start| start as f64).collect())?, column(all)?];
    let targets = Targets { right: 1.0 - partners.smoothing + rest, rest };
    let targets = custom(&targets, &[&lists[0], &lists[1]], rows, nodes)?;
    let counted = LossRows::new((0..rows as u32).collect::<Vec<_>>())?;
    binary_cross_entropy(tape, scores, &targets, &counted, total)
}

/// What each score should be: `right` at the partners of a row, `rest` elsewhere. Made where the scores are, of the
/// places at which each row's partners begin and the partners, in order.
struct Targets {
    right: f64,
    rest: f64,
}

impl Targets {
    fn write<T: Element>(
        &self,
        from: &[&Matrix],
        to: &mut Matrix,
        number: fn(f64) -> T,
        place: fn(T) -> usize,
    ) -> Result<()> {
        let (starts, all) = (host::<T>(OP, "starts", from[0])?, host::<T>(OP, "partners", from[1])?);
        let nodes = to.cols();
        let to = host_mut::<T>(OP, "targets", to)?;
        to.fill(number(self.rest));
        for (row, span) in to.chunks_mut(nodes.max(1)).zip(starts.windows(2)) {
            all[place(span[0])..place(span[1])].iter().for_each(|node| row[place(*node)] = number(self.right));
        }
        Ok(())
    }
}

impl Kernel for Targets {
    fn name(&self) -> &'static str {
        "targets"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        match to.dtype() {
            DType::F64 => self.write::<f64>(from, to, |x| x, |x| x as usize),
            _ => self.write::<f32>(from, to, |x| x as f32, |x| x as usize),
        }
    }

    fn gpu(&self) -> Option<GpuKernel> {
        // SAFETY: an element looks for its column among the partners of its row, which begin where the first operand
        // says; that has a number more than the result has rows.
        Some(unsafe { GpuKernel::new(GPU, "targets") }.number(self.right).number(self.rest))
    }
}

/// What a self-adversarial loss is of.
#[derive(Clone, Copy)]
struct Weighed {
    links: usize,
    total: f64,
    temperature: f64,
}

impl Weighed {
    /// The loss, and the slope of each score.
    fn of(self, s: &[f64]) -> (f64, Vec<f64>) {
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let logistic = |x: f64| (1.0 + (-x).exp()).recip();
        let (links, pairs) = s.split_at(self.links.min(s.len()));
        let k = pairs.len() / links.len().max(1);
        let mut slopes: Vec<f64> = links.iter().map(|s| -logistic(-s) / self.total).collect();
        let mut loss: f64 = links.iter().map(|s| softplus(-s)).sum();
        for against in pairs.chunks(k.max(1)) {
            let most = against.iter().fold(f64::NEG_INFINITY, |most, s| most.max(self.temperature * s));
            let weights: Vec<f64> = against.iter().map(|s| (self.temperature * s - most).exp()).collect();
            let all: f64 = weights.iter().sum();
            for (s, weight) in against.iter().zip(weights) {
                loss += weight / all * softplus(*s);
                slopes.push(weight / all * logistic(*s) / self.total);
            }
        }
        (loss / self.total, slopes)
    }

    /// Overwrites `to` with a part of what is found.
    fn write(
        self,
        op: &'static str,
        from: &Matrix,
        to: &mut Matrix,
        part: fn((f64, Vec<f64>)) -> Vec<f64>,
    ) -> Result<()> {
        if from.dtype() == DType::F64 {
            let found = part(self.of(host::<f64>(op, "scores", from)?));
            host_mut::<f64>(op, "to", to)?.copy_from_slice(&found);
            return Ok(());
        }
        let wide: Vec<f64> = host::<f32>(op, "scores", from)?.iter().map(|s| f64::from(*s)).collect();
        let found = part(self.of(&wide));
        host_mut::<f32>(op, "to", to)?.iter_mut().zip(found).for_each(|(to, x)| *to = x as f32);
        Ok(())
    }
}

struct Loss(Weighed);

impl Kernel for Loss {
    fn name(&self) -> &'static str {
        "self-adversarial loss"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        self.0.write(self.name(), from[0], to, |(loss, _)| vec![loss])
    }
}

struct Slope(Weighed);

impl Kernel for Slope {
    fn name(&self) -> &'static str {
        "self-adversarial loss backward"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        self.0.write(self.name(), from[0], to, |(_, slopes)| slopes)
    }
}
