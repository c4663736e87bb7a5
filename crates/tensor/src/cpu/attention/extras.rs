//! What edges bring of their own: a bias on the score, features for keys and values, a dropout on the weight.

use super::edges::{EdgeSlices, FourEdges};
use crate::cpu::host;
use crate::cpu::neighbours::{AHEAD, FOUR, prefetch};
use crate::cpu::share::Shared;
use crate::dtype::Element;
use crate::error::Result;
use crate::ops::attention::{Attention, Bias};
use crate::random::{Dropout, GROUP, IdsView};

/// The bias of edges, as slices.
#[derive(Clone, Copy)]
enum BiasSlices<'a, C> {
    None,
    /// E × H.
    PerEdge(&'a [C]),
    /// E × F and H × F.
    Features {
        feat: &'a [C],
        weight: &'a [C],
        width: usize,
    },
}

/// All extras of one attention, for kernels.
pub(super) struct Extras<'a, C> {
    heads: usize,
    bias: BiasSlices<'a, C>,
    edges: Option<EdgeSlices<'a, C>>,
    /// From positions in the transpose to edges; `None` in the pass by destination.
    map: Option<&'a [u64]>,
    dropout: Option<(Dropout, IdsView<'a>, IdsView<'a>)>,
}

impl<'a, C: Element + num_traits::Float> Extras<'a, C> {
    /// The extras of `a`; `map` leads from positions to edges in the pass by source.
    pub(super) fn new(a: &Attention<'a>, map: Option<&'a [u64]>) -> Result<Self> {
        let op = super::OP;
        let bias = match a.bias {
            Bias::None => BiasSlices::None,
            Bias::PerEdge(b) => BiasSlices::PerEdge(host(op, "bias", b)?),
            Bias::Features { feat, weight } => BiasSlices::Features {
                feat: host(op, "edge features", feat)?,
                weight: host(op, "edge weight", weight)?,
                width: feat.cols(),
            },
        };
        let dropout = a.dropout.filter(|d| d.dropout.is_active());
        let dropout = dropout.map(|d| (d.dropout, d.src.view(), d.dst.view()));
        let edges = a.edges.map_or(Ok(None), EdgeSlices::new)?;
        Ok(Self { heads: a.heads, bias, edges, map, dropout })
    }

    /// Whether there is nothing to do for a score or a weight.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.bias, BiasSlices::None) && self.dropout.is_none()
    }

    /// The features of edges.
    pub(super) fn edges(&self) -> Option<&EdgeSlices<'a, C>> {
        self.edges.as_ref()
    }

    pub(super) fn has_dropout(&self) -> bool {
        self.dropout.is_some()
    }

    /// The edge at a position of the CSR that is walked.
    #[inline(always)]
    pub(super) fn edge(&self, at: usize) -> usize {
        self.map.map_or(at, |map| map[at] as usize)
    }

    /// The bias of an edge for a head.
    #[inline(always)]
    pub(super) fn bias(&self, edge: usize, h: usize) -> C {
        match self.bias {
            BiasSlices::None => C::zero(),
            BiasSlices::PerEdge(b) => b[edge * self.heads + h],
            BiasSlices::Features { feat, weight, width } => {
                let (x, w) = (&feat[edge * width..][..width], &weight[h * width..][..width]);
                x.iter().zip(w).fold(C::zero(), |sum, (x, w)| sum + *x * *w)
            }
        }
    }

    /// The dropout factor of an edge for one head.
    pub(super) fn factor(&self, src: usize, dst: usize, h: usize) -> C {
        let Some((dropout, src_ids, dst_ids)) = self.dropout else { return C::one() };
        let factors = dropout.edge(src_ids.of(src), dst_ids.of(dst), (h / GROUP) as u32, h % GROUP + 1);
        C::from(factors[h % GROUP]).unwrap_or_else(C::nan)
    }

    /// The dropout factors of an edge for heads 8·`group` to 8·`group` + 7; left alone where there is no dropout.
    #[inline(always)]
    pub(super) fn factors_of_group(&self, src: usize, dst: usize, group: usize, to: &mut [f32]) {
        if let Some((dropout, src_ids, dst_ids)) = self.dropout {
            to.copy_from_slice(&dropout.edge(src_ids.of(src), dst_ids.of(dst), group as u32, GROUP));
        }
    }

    /// The dropout factors of an edge, handed to `set(h, factor)`.
    #[inline(always)]
    pub(super) fn factors(&self, src: usize, dst: usize, mut set: impl FnMut(usize, f32)) {
        let Some((dropout, src_ids, dst_ids)) = self.dropout else { return };
        let (src, dst) = (src_ids.of(src), dst_ids.of(dst));
        for group in 0..self.heads.div_ceil(GROUP) {
            let wanted = GROUP.min(self.heads - group * GROUP);
            let factors = dropout.edge(src, dst, group as u32, wanted);
            for (k, x) in factors.into_iter().take(wanted).enumerate() {
                set(group * GROUP + k, x);
            }
        }
    }
}

impl Extras<'_, f32> {
    /// Adds the biases of a block's edges to the raw scores `[4h + e]`, which are multiplied by the scale later.
    #[inline(always)]
    pub(super) fn add_biases(&self, scale: f32, at: usize, count: usize, scores: &mut [f32]) {
        for e in 0..count {
            let edge = self.edge(at + e);
            for h in 0..self.heads {
                scores[FOUR * h + e] += self.bias(edge, h) / scale;
            }
        }
    }

    /// The dropout factors of a block's edges, whose ends are `ends(e)` = (src, dst).
    #[inline(always)]
    pub(super) fn set_factors(&self, count: usize, ends: impl Fn(usize) -> (usize, usize), mask: &mut [f32]) {
        for e in 0..count {
            let (src, dst) = ends(e);
            self.factors(src, dst, |h, factor| mask[FOUR * h + e] = factor);
        }
    }

    /// Asks for the features of the edges that come some edges after a position, where these lie at random.
    #[inline(always)]
    pub(super) fn prefetch_features(&self, at: usize) {
        let (Some(edges), Some(map)) = (&self.edges, self.map) else { return };
        for edge in map.iter().skip(at + AHEAD).take(FOUR) {
            let (features, count) = edges.at(*edge as usize);
            prefetch(features, count);
        }
    }

    /// The features of up to four edges from a position on; missing ones repeat the last.
    #[inline(always)]
    pub(super) fn four(&self, at: usize, count: usize) -> Option<FourEdges<'_>> {
        let edges = self.edges.as_ref()?;
        Some(edges.four(std::array::from_fn::<_, FOUR, _>(|e| self.edge(at + e.min(count - 1)))))
    }
}

/// Where the gradient of the bias goes.
pub(super) enum BiasGrad<'a, C> {
    /// Nobody wants it.
    None,
    /// E × H.
    PerEdge(Shared<'a, C>),
    /// For each task H × F, to be summed in order.
    Features { partial: Shared<'a, C>, feat: &'a [C], width: usize },
}

/// Where what all edges share gets its gradient: for each task, to be summed.
pub(super) struct Places<'a, C> {
    pub(super) bias: BiasGrad<'a, C>,
    /// Of the parameter of scores.
    pub(super) shared: Shared<'a, C>,
    /// Of the weight of features of edges.
    pub(super) weight: Shared<'a, C>,
}

impl<C: Element + num_traits::Float> BiasGrad<'_, C> {
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Adds the gradient of one edge's bias for one head, found by task `task`.
    ///
    /// # Safety
    /// An edge belongs to one task, and a task runs on one thread.
    #[inline(always)]
    pub(super) unsafe fn add(&self, task: usize, heads: usize, edge: usize, h: usize, db: C) {
        match self {
            Self::None => {}
            Self::PerEdge(to) => {
                let at = edge * heads + h;
                // SAFETY: by the caller's promise no other thread has this edge.
                let to = unsafe { to.part(at..at + 1) };
                to[0] = db;
            }
            Self::Features { partial, feat, width } => {
                let at = (task * heads + h) * width;
                // SAFETY: by the caller's promise no other thread has this task.
                let to = unsafe { partial.part(at..at + width) };
                for (to, x) in to.iter_mut().zip(&feat[edge * width..][..*width]) {
                    *to = *to + db * *x;
                }
            }
        }
    }
}
