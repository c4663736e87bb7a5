//! What must travel, in elements over all ranks, forward and backward: the tables of the design, written once more.

use graphweft_graph::partition::{Weights, covers};
use graphweft_model::Aggregation;
use graphweft_parallel::settings::{Cover, Gather, Grid, Inside, Ring};
use graphweft_parallel::{Layout, Strategy};
use graphweft_tensor::ops::global::Scale;

use crate::machines;
use crate::ops::{Bias, Op, ScoreKind, Size, TOKENS, Weight};

/// What one direction moves: rows of nodes, and what is summed or gathered of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) rows: usize,
    pub(crate) global: usize,
}

/// Columns that travel per row, by how the row is served.
pub(crate) struct Columns {
    /// Of the sources' operand, one way.
    pub(crate) pull: usize,
    /// Of a destination that is served where its sources are, there and back; none for the maximum.
    pub(crate) push: Option<usize>,
    /// Of all operands and the output.
    heads: usize,
    /// Whether ring needs the sources once more in backward.
    pub(crate) again: bool,
}

pub(crate) fn columns(op: Op, s: Size) -> Option<Columns> {
    let (d, h) = (s.d(), s.heads);
    // Values on edges are with the destinations, and so are these edges.
    let per_edge = matches!(op, Op::Attend(_, Bias::PerEdge) | Op::WithTokens(Bias::PerEdge));
    let columns = match op {
        Op::Attend(ScoreKind::Dot, _) | Op::WithTokens(_) | Op::Relations => {
            Columns { pull: 2 * d, push: Some(2 * d + 2 * h), heads: 4 * d, again: true }
        }
        // u and s, then t and du.
        Op::Edges(ScoreKind::Dot, features) | Op::EdgesWithTokens(features) => {
            let push = Some(2 * d + 2 * h + 2 * h * features.columns().tail());
            Columns { pull: 2 * d, push, heads: 4 * d, again: true }
        }
        // Weights are everywhere, and features where their edges are.
        Op::Attend(ScoreKind::Gat, _) | Op::Edges(ScoreKind::Gat, _) => {
            Columns { pull: d, push: Some(d + 3 * h), heads: 2 * d, again: true }
        }
        Op::Attend(ScoreKind::Gatv2, _) | Op::Edges(ScoreKind::Gatv2, _) => {
            Columns { pull: d, push: Some(2 * d + 2 * h), heads: 3 * d, again: true }
        }
        Op::Aggregate(how, weight) => {
            let per_edge = matches!(weight, Weight::PerEdge | Weight::Bases | Weight::Each | Weight::Messages(_));
            let push = (how != Aggregation::Max && !per_edge).then_some(d);
            // The gradient of a weight, and of a message, needs the source's row. A row travels once, however many sums
            // it is for.
            let again = matches!(weight, Weight::PerEdge | Weight::Bases | Weight::Messages(_));
            Columns { pull: d, push, heads: (1 + weight.sums()) * d, again }
        }
        Op::TokensAttend | Op::Global(_) | Op::Moments => return None,
    };
    Some(if per_edge { Columns { push: None, ..columns } } else { columns })
}

/// Forward and backward.
pub(crate) fn expected(strategy: Strategy, layouts: &[Layout], op: Op, s: Size) -> [Traffic; 2] {
    let ranks = layouts.len();
    // A sum over ranks is short here: everyone sends all of it to everyone else.
    let pairs = ranks * (ranks - 1);
    let (d, h) = (s.d(), s.heads);
    let global = |numbers: usize| Traffic { rows: 0, global: numbers * pairs };
    match op {
        Op::TokensAttend => return [global(TOKENS * (2 * h + d)), global(TOKENS * d)],
        Op::Global(scale) => {
            let sums = d * (s.width + 1);
            return [global(sums + if scale == Scale::Norms { 2 } else { 0 }), global(sums)];
        }
        // In f64, whatever the rows are: see `elements`.
        Op::Moments => return [global(2 * d + 1), global(2 * d)],
        _ => {}
    }
    let rows = rows(strategy, layouts, op, s);
    rows.map(|rows| Traffic { rows, global: 0 })
}

fn rows(strategy: Strategy, layouts: &[Layout], op: Op, s: Size) -> [usize; 2] {
    let Some(c) = columns(op, s) else { return [0, 0] };
    let (n, ranks) = (layouts[0].total_rows(), layouts.len());
    match strategy {
        Strategy::Local(_) | Strategy::Batches(_) => [0, 0],
        Strategy::Gather(_) => [n * (ranks - 1) * c.pull; 2],
        Strategy::Heads(_) => [across(layouts, ranks, op, s, &c); 2],
        Strategy::Grid(Grid { nodes, heads, inside }) => {
            let inner = match inside {
                Inside::Gather => n * (nodes - 1) * c.pull,
                // With the columns of all ranks that have the same heads together.
                Inside::Halo(cover) => inner_halo(cover, layouts, heads, op, s),
            };
            [across(layouts, heads, op, s, &c) + inner; 2]
        }
        // See `own.rs`.
        Strategy::Own(_) => match op {
            Op::Aggregate(..) => rows(Ring { depth: 1 }.into(), layouts, op, s),
            _ => rows(Gather.into(), layouts, op, s),
        },
        Strategy::Halo(Cover::Machines { ranks: Some(each) }) if each < ranks => {
            let crossing = machines::crossing(layouts, each, c.pull, c.push);
            [crossing.between + crossing.inside; 2]
        }
        Strategy::Halo(cover) => {
            let ranges: Vec<usize> = (0..=ranks).map(|r| if r == ranks { n } else { layouts[r].own().start }).collect();
            let served = layouts.iter().map(|l| halo(cover, l.csr(), &ranges, l.rank(), &c));
            [served.sum(); 2]
        }
        // Where all rows are needed at once, the approximate ones are a ring.
        Strategy::Ring(_) | Strategy::Pipeline(_) | Strategy::Isolated(_) => {
            let needed: usize = layouts.iter().map(|l| remote(l.csr(), &l.own())).sum();
            [needed * c.pull, needed * c.pull * if c.again { 2 } else { 1 }]
        }
    }
}

/// Rows for heads inside groups of `size` ranks.
fn across(layouts: &[Layout], size: usize, op: Op, s: Size, c: &Columns) -> usize {
    let aggregates = matches!(op, Op::Aggregate(..));
    let (shares, width) = if aggregates { (s.d(), 1) } else { (s.heads, s.width) };
    let share = |p: usize| (p + 1) * shares / size - p * shares / size;
    let elsewhere = |l: &Layout| l.own().len() * (shares - share(l.rank() % size));
    layouts.iter().map(elsewhere).sum::<usize>() * width * c.heads / s.d()
}

/// Sources outside `own`.
fn remote(csr: &graphweft_graph::Csr<u32>, own: &std::ops::Range<usize>) -> usize {
    let mut sources: Vec<u32> = csr.indices().iter().copied().filter(|j| !own.contains(&(*j as usize))).collect();
    sources.sort_unstable();
    sources.dedup();
    sources.len()
}

fn halo(cover: Cover, csr: &graphweft_graph::Csr<u32>, ranges: &[usize], rank: usize, c: &Columns) -> usize {
    match (cover, c.push) {
        (Cover::Least | Cover::Machines { .. }, Some(push)) => {
            let weights = Weights { pull: c.pull as u32, push: push as u32 };
            let found = covers(csr, ranges, rank, weights);
            found.iter().map(|cover| cover.pulled.len() * c.pull + cover.pushed.len() * push).sum()
        }
        _ => remote(csr, &(ranges[rank]..ranges[rank + 1])) * c.pull,
    }
}

/// Halo between groups of `size` ranks, each rank with its heads only.
fn inner_halo(cover: Cover, layouts: &[Layout], size: usize, op: Op, s: Size) -> usize {
    let ranges: Vec<usize> =
        layouts.iter().step_by(size).map(|l| l.own().start).chain([layouts[0].total_rows()]).collect();
    let mut total = 0;
    for group in 0..layouts.len() / size {
        let mut rows = (vec![0u64], Vec::new());
        for l in &layouts[group * size..(group + 1) * size] {
            for row in 0..l.csr().num_dst() {
                rows.1.extend_from_slice(l.csr().row(row));
                rows.0.push(rows.1.len() as u64);
            }
        }
        let csr = graphweft_graph::Csr::from_valid(rows.0, rows.1, layouts[0].total_rows());
        for p in 0..size {
            let of = |all: usize| (p + 1) * all / size - p * all / size;
            let share = match op {
                Op::Aggregate(..) => Size { heads: 1, width: of(s.d()) },
                _ => Size { heads: of(s.heads), width: s.width },
            };
            if let Some(c) = columns(op, share).filter(|_| share.d() > 0) {
                total += halo(cover, &csr, &ranges, group, &c);
            }
        }
    }
    total
}
