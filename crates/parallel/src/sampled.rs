//! Operations on a graph some of whose sources were drawn from many, and stand for those that were not.
//!
//! A source that was kept with probability p stands for 1/p nodes. In sums its row is multiplied by that, and means
//! divide by the in-degree in the whole graph: both have the operation over all in-edges as their mean over draws. In
//! attention ln(1/p) is added to its score, so that its weight in the softmax is that of 1/p nodes; a ratio of two
//! unbiased sums. A maximum is that of the sources which are here.

use std::cell::OnceCell;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, EdgeBias, EdgeWeight};
use graphweft_tensor::ops::combine::concat;
use graphweft_tensor::ops::spmm::WeightVar;
use graphweft_tensor::{DType, Device, Error, Matrix, Result, Tag, Tape, Var};

use crate::degrees::{Factors, inverse_root};

/// A term of scores that says what sources stand for: features of edges with their weight.
pub(crate) struct SampledBias {
    pub(crate) terms: Matrix,
    pub(crate) weight: Var,
}

/// What the operations need to know of the draw.
pub(crate) struct Sampled {
    ones: Factors,
    inverse_degrees: Factors,
    inverse_roots: Factors,
    /// Of sources.
    scales: Factors,
    scaled_roots: Factors,
    logarithms: Vec<f32>,
    /// Features of edges, if there are any, and ln(1/p) beside them, a row per edge; made when attention first asks for
    /// it.
    terms: OnceCell<Matrix>,
}

impl Sampled {
    pub(crate) fn new(device: &Device, degrees: &[u32], scales: &[f32]) -> Result<Self> {
        let column = |f: &dyn Fn(usize) -> f64| Factors::new(device, &(0..degrees.len()).map(f).collect::<Vec<_>>());
        let inverse = |degree: u32| if degree > 0 { f64::from(degree).recip() } else { 0.0 };
        Ok(Self {
            ones: column(&|_| 1.0)?,
            inverse_degrees: column(&|k| inverse(degrees[k]))?,
            inverse_roots: column(&|k| inverse_root(degrees[k]))?,
            scales: column(&|k| f64::from(scales[k]))?,
            scaled_roots: column(&|k| inverse_root(degrees[k]) * f64::from(scales[k]))?,
            logarithms: scales.iter().map(|scale| scale.ln()).collect(),
            terms: OnceCell::new(),
        })
    }

    /// The weights with which a sum gives the sum or the mean that was asked for.
    pub(crate) fn factors(&self, how: Aggregation, weight: EdgeWeight<'_>, dtype: DType) -> Result<WeightVar<'_>> {
        let (dst, src) = match (how, weight) {
            (Aggregation::Sum, EdgeWeight::None) => (&self.ones, &self.scales),
            (Aggregation::Mean, EdgeWeight::None) => (&self.inverse_degrees, &self.scales),
            (Aggregation::Sum, EdgeWeight::Symmetric) => (&self.inverse_roots, &self.scaled_roots),
            _ => return Err(refused("aggregate", "these weights")),
        };
        Ok(WeightVar::Factors { dst: dst.of(dtype), src: src.of(dtype) })
    }

    /// A bias of attention over the edges of `csr`, for rows of type `dtype`: features, and a weight for every head
    /// that has those of a bias that was asked for, and 1 for the draw.
    pub(crate) fn bias(
        &self,
        tape: &mut Tape,
        csr: &Csr<u32>,
        edge_features: Option<&Matrix>,
        heads: usize,
        bias: EdgeBias<'_>,
        dtype: DType,
    ) -> Result<SampledBias> {
        let (device, dtype) = (tape.device().clone(), dtype.compute());
        let terms = match self.terms.get() {
            Some(terms) => terms.clone(),
            None => {
                let made = self.make_terms(&device, csr, edge_features)?;
                self.terms.get_or_init(|| made).clone()
            }
        };
        let terms = if dtype == DType::F32 { terms } else { device.convert("draw", &terms, dtype)? };
        let ones = device.upload(heads, 1, &vec![1.0f64; heads], Tag::Workspace)?;
        let ones = tape.constant(device.convert("draw", &ones, dtype)?);
        let weight = match bias {
            EdgeBias::None if terms.cols() == 1 => ones,
            EdgeBias::None => {
                let zeros = tape.constant(device.zeros("draw", heads, terms.cols() - 1, dtype, Tag::Workspace)?);
                concat(tape, &[&zeros, &ones])?
            }
            EdgeBias::Features { weight, .. } => concat(tape, &[weight, &ones])?,
            EdgeBias::PerEdge(_) => return Err(refused("attend", "a number per edge")),
        };
        Ok(SampledBias { terms, weight })
    }

    fn make_terms(&self, device: &Device, csr: &Csr<u32>, edge_features: Option<&Matrix>) -> Result<Matrix> {
        let width = edge_features.map_or(0, Matrix::cols);
        let features = match edge_features {
            Some(m) => device.convert("edge features", m, DType::F32)?.to_vec::<f32>()?,
            None => Vec::new(),
        };
        let mut terms = Vec::with_capacity(csr.num_edges() * (width + 1));
        for (edge, source) in csr.indices().iter().enumerate() {
            terms.extend_from_slice(&features[edge * width..][..width]);
            terms.push(self.logarithms[*source as usize]);
        }
        device.upload(csr.num_edges(), width + 1, &terms, Tag::Graph)
    }
}

fn refused(op: &'static str, what: &str) -> Error {
    Error::Argument { op, problem: format!("{what} cannot be used on a graph whose sources were drawn") }
}
