//! From rehearsals on small graphs to one on a large graph: everything is a constant, plus something per row, plus
//! something per edge.

use graphweft_comm::{Event, Transfer};
use graphweft_tensor::Usage;
use graphweft_tensor::dry::{Work, WorkKind};

use super::{Peak, RankRehearsed};

/// How many times as many rows a rank has, and edges into each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) rows: f64,
    pub(super) degree: f64,
}

impl Scale {
    /// The amount of which there is `base`, `more_rows` with twice the rows and `more_edges` with twice the edges per
    /// row.
    fn of(self, [base, more_rows, more_edges]: [f64; 3]) -> f64 {
        let per_edge = more_edges - base;
        let per_row = more_rows - base - per_edge;
        let constant = base - per_row - per_edge;
        (constant + per_row * self.rows + per_edge * self.rows * self.degree).max(0.0)
    }

    fn count(self, points: [usize; 3]) -> usize {
        self.of(points.map(|x| x as f64)).round() as usize
    }
}

/// What every rank does, at `scale`, from what it did as the proxy was, with more rows, and with more edges.
pub(super) fn magnified(points: &[Vec<RankRehearsed>; 3], scale: Scale) -> Result<Vec<RankRehearsed>, String> {
    let [base, more_rows, more_edges] = points;
    let ranks = base.iter().zip(more_rows).zip(more_edges);
    ranks.map(|((a, b), c)| of_rank([a, b, c], scale)).collect()
}

fn of_rank(points: [&RankRehearsed; 3], scale: Scale) -> Result<RankRehearsed, String> {
    let unlike = || "rehearsals of different sizes went different ways".to_string();
    let [a, b, c] = points.map(|p| &p.log);
    if a.len() != b.len() || a.len() != c.len() {
        return Err(unlike());
    }
    let mut log = Vec::with_capacity(a.len());
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        log.push(match (a, b, c) {
            (Event::Compute(a), Event::Compute(b), Event::Compute(c)) if a.op == b.op && a.op == c.op => {
                Event::Compute(work([a, b, c], scale).ok_or_else(unlike)?)
            }
            (
                Event::Post { exchange, sends, receives },
                Event::Post { sends: sends_b, receives: receives_b, .. },
                Event::Post { sends: sends_c, receives: receives_c, .. },
            ) => Event::Post {
                exchange: *exchange,
                sends: transfers([sends, sends_b, sends_c], scale).ok_or_else(unlike)?,
                receives: transfers([receives, receives_b, receives_c], scale).ok_or_else(unlike)?,
            },
            (Event::Wait { exchange }, Event::Wait { .. }, Event::Wait { .. }) => Event::Wait { exchange: *exchange },
            _ => return Err(unlike()),
        });
    }
    let peak = peak(points.map(|p| &p.peak.at_kernels[..]), scale).ok_or_else(unlike)?;
    Ok(RankRehearsed { log, peak, sent: scale.of(points.map(|p| p.sent as f64)) as u64 })
}

/// Moment by moment: where a small graph needs most, a large one may not. What is taken and given back before a kernel
/// runs is little.
fn peak(points: [&[Usage]; 3], scale: Scale) -> Option<Peak> {
    let [a, b, c] = points;
    let same = a.len() == b.len() && a.len() == c.len();
    let one = |((a, b), c): ((&Usage, &Usage), &Usage)| {
        Usage::new(|tag| scale.of([a, b, c].map(|usage| usage.of(tag) as f64)) as u64)
    };
    let at_kernels: Vec<Usage> = a.iter().zip(b).zip(c).map(one).collect();
    let most = at_kernels.iter().copied().max_by_key(Usage::total).unwrap_or_default();
    same.then_some(Peak { most, at_kernels })
}

fn transfers(points: [&Vec<Transfer>; 3], scale: Scale) -> Option<Vec<Transfer>> {
    let [a, b, c] = points;
    let same = a.len() == b.len() && a.len() == c.len();
    let one = |((a, b), c): ((&Transfer, &Transfer), &Transfer)| Transfer {
        bytes: scale.count([a.bytes, b.bytes, c.bytes]),
        ..*a
    };
    same.then(|| a.iter().zip(b).zip(c).map(one).collect())
}

fn work(points: [&Work; 3], scale: Scale) -> Option<Work> {
    let kind = match points.map(|p| p.kind) {
        [
            WorkKind::Gemm { m, n, k },
            WorkKind::Gemm { m: m1, n: n1, k: k1 },
            WorkKind::Gemm { m: m2, n: n2, k: k2 },
        ] => WorkKind::Gemm { m: scale.count([m, m1, m2]), n: scale.count([n, n1, n2]), k: scale.count([k, k1, k2]) },
        [
            WorkKind::Edges { pass, edges, rows, fours, sources, row, width, heads, .. },
            WorkKind::Edges { edges: e1, rows: r1, fours: f1, sources: s1, .. },
            WorkKind::Edges { edges: e2, rows: r2, fours: f2, sources: s2, .. },
        ] => WorkKind::Edges {
            pass,
            edges: scale.count([edges, e1, e2]),
            rows: scale.count([rows, r1, r2]),
            fours: scale.count([fours, f1, f2]),
            sources: scale.count([sources, s1, s2]),
            row,
            // The proxy's neighbours are nearer to one another than those of the graph, of which the description says
            // how often caches hit.
            reuse: None,
            width,
            heads,
        },
        [
            WorkKind::Stream { read, written, rows },
            WorkKind::Stream { read: r1, written: w1, rows: n1 },
            WorkKind::Stream { read: r2, written: w2, rows: n2 },
        ] => WorkKind::Stream {
            read: scale.count([read, r1, r2]),
            written: scale.count([written, w1, w2]),
            rows: scale.count([rows, n1, n2]),
        },
        _ => return None,
    };
    Some(Work { kind, ..*points[0] })
}

/// Exchanges that a rank posts.
pub(super) fn posts(log: &[Event<Work>]) -> usize {
    log.iter().filter(|event| matches!(event, Event::Post { .. })).count()
}

#[cfg(test)]
mod tests {
    use graphweft_tensor::Tag;

    use super::*;

    #[test]
    fn three_points_tell_a_constant_rows_and_edges() {
        let truth = |rows: f64, degree: f64| 5.0 + 3.0 * rows + 2.0 * rows * degree;
        let scale = Scale { rows: 1000.0, degree: 6.5 };
        let found = scale.of([truth(1.0, 1.0), truth(2.0, 1.0), truth(1.0, 2.0)]);
        assert!((found - truth(1000.0, 6.5)).abs() < 1e-6, "{found}");
        assert_eq!(scale.count([7, 7, 7]), 7);
    }

    #[test]
    fn a_large_graph_may_need_most_at_another_moment_than_a_small_one() {
        // Parameters first, then rows: the small graph has its peak with the parameters, all others with the rows.
        let moments = |rows: u64| {
            let usage = |parameters, activations| {
                Usage::new(|tag| match tag {
                    Tag::Parameters => parameters,
                    Tag::Activations => activations,
                    _ => 0,
                })
            };
            [usage(900, rows), usage(100, 5 * rows)]
        };
        let [small, larger] = [moments(100), moments(200)];
        assert!(small[0].total() > small[1].total() && larger[0].total() == larger[1].total());
        let found = peak([&small, &larger, &small], Scale { rows: 1000.0, degree: 3.0 }).unwrap();
        assert_eq!(found.most, moments(100_000)[1]);
        assert!(peak([&small, &larger[..1], &small], Scale { rows: 2.0, degree: 1.0 }).is_none());
    }
}
