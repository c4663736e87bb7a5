//! RotatE of Sun et al.: s(h, r, t) = γ − ‖h∘e^{iθ} − t‖, with complex numbers as in
//! [ComplEx](super::complex) and an angle θ of the relation for each. Asked for heads the query is t∘e^{−iθ}: turning
//! both back does not change how far they are apart.

use std::f64::consts::PI;
use std::rc::Rc;

use graphweft_tensor::cpu::{host, host_mut};
use graphweft_tensor::ops::custom::{GpuKernel, Kernel, custom};
use graphweft_tensor::{DType, Matrix, Parameter, Result, Tape, Var, one_output};

use super::complex::{turned, turned_on_host};
use super::distance::{Distance, no_scores_of_all};
use super::{Asked, Decoder, DecoderShape, HostDecoder, LANES, Missing, Numbers, Relations, half};
use crate::init::Init;

/// The halves for GPUs of the kernels here.
const GPU: &str = include_str!("rotate.cu");

pub(super) struct RotatE {
    /// Angles.
    relations: Relations,
    distance: Distance,
}

impl RotatE {
    pub(super) fn new(init: &Init<'_>, shape: &DecoderShape) -> Result<Self> {
        let angles = Relations::new(init, shape.relations, half("rotate", shape.columns)?, PI)?;
        Ok(Self { relations: angles, distance: Distance { margin: shape.margin } })
    }
}

impl Decoder for RotatE {
    fn all(&self, _: &mut Tape, _: &Var, _: &Var) -> Result<Var> {
        no_scores_of_all()
    }

    fn query(&self, tape: &mut Tape, asked: Asked<'_>) -> Result<Var> {
        let angles = tape.parameter(&self.relations.0);
        let turns = cos_sin(tape, &angles)?;
        // Angles are not dropped: a part of a turn is none.
        let turns = self.relations.listed(tape, &turns, &Asked { dropout: None, ..asked })?;
        turned(tape, asked.given, &turns, asked.missing)
    }

    fn on_host(&self) -> Result<Box<dyn HostDecoder>> {
        Ok(Box::new(Host { angles: self.relations.numbers()?, distance: self.distance }))
    }

    fn pairs(&self, tape: &mut Tape, query: &Var, partners: &Var) -> Result<Var> {
        self.distance.scores(tape, query, partners)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        vec![Rc::clone(&self.relations.0)]
    }
}

/// cos θ and sin θ side by side.
fn cos_sin(tape: &mut Tape, angles: &Var) -> Result<Var> {
    let x = angles.value().clone();
    let y = custom(&Turn, &[&x], x.rows(), 2 * x.cols())?;
    let turns = y.clone();
    Ok(tape.push(&[angles], y, || {
        one_output(move |dy, grads| {
            let dx = custom(&TurnBackward, &[&turns, &dy], x.rows(), x.cols())?;
            grads.put(0, dx)
        })
    }))
}

struct Turn;

impl Kernel for Turn {
    fn name(&self) -> &'static str {
        "turn"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        rows(self.name(), from, to, |[x, _], to| {
            let half = x.len();
            for (k, angle) in x.iter().enumerate() {
                (to[k], to[half + k]) = (angle.cos(), angle.sin());
            }
        })
    }

    fn gpu(&self) -> Option<GpuKernel> {
        // SAFETY: an operand of half the result's columns.
        Some(unsafe { GpuKernel::new(GPU, "turn") })
    }
}

/// dθ = cos θ·dsin − sin θ·dcos.
struct TurnBackward;

impl Kernel for TurnBackward {
    fn name(&self) -> &'static str {
        "turn backward"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        rows(self.name(), from, to, |[turns, dy], to| {
            let half = to.len();
            for (k, to) in to.iter_mut().enumerate() {
                *to = turns[k] * dy[half + k] - turns[half + k] * dy[k];
            }
        })
    }

    fn gpu(&self) -> Option<GpuKernel> {
        // SAFETY: two operands of twice the result's columns.
        Some(unsafe { GpuKernel::new(GPU, "turn_backward") })
    }
}

/// Overwrites each row of `to` with what `f` makes of those of one or two matrices.
fn rows(op: &'static str, from: &[&Matrix], to: &mut Matrix, f: impl Fn([&[f64]; 2], &mut [f64])) -> Result<()> {
    let wide = |m: &Matrix| -> Result<Vec<f64>> {
        Ok(match m.dtype() {
            DType::F64 => host::<f64>(op, "x", m)?.to_vec(),
            _ => host::<f32>(op, "x", m)?.iter().map(|x| f64::from(*x)).collect(),
        })
    };
    let (first, second) = (from[0], from[from.len() - 1]);
    let (x, y) = (wide(first)?, wide(second)?);
    let mut all = vec![0.0; to.rows() * to.cols()];
    let given = x.chunks(first.cols().max(1)).zip(y.chunks(second.cols().max(1)));
    all.chunks_mut(to.cols().max(1)).zip(given).for_each(|(to, (x, y))| f([x, y], to));
    match to.dtype() {
        DType::F64 => host_mut::<f64>(op, "to", to)?.copy_from_slice(&all),
        _ => host_mut::<f32>(op, "to", to)?.iter_mut().zip(all).for_each(|(to, x)| *to = x as f32),
    }
    Ok(())
}

struct Host {
    angles: Numbers,
    distance: Distance,
}

impl HostDecoder for Host {
    fn finish(&self, sum: f64) -> f64 {
        self.distance.finish(sum)
    }

    fn query(&self, given: &[f64], relation: u32, missing: Missing) -> Vec<f64> {
        let angles = self.angles.row(relation);
        let turns: Vec<f64> = angles.iter().map(|x| x.cos()).chain(angles.iter().map(|x| x.sin())).collect();
        turned_on_host(given, &turns, missing)
    }

    fn add_lanes(&self, scores: &mut [f64; LANES], queries: &[[f64; LANES]], partner: &[f64]) {
        Distance::add_lanes(scores, queries, partner);
    }

    fn add(&self, score: f64, query: &[f64], partner: &[f64]) -> f64 {
        Distance::add(score, query, partner)
    }
}
