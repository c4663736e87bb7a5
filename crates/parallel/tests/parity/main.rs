//! Every strategy computes what one rank computes, the same bits every time, and moves what the design says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests.

#[macro_use]
mod places;

mod bytes;
mod coded;
mod graphs;
mod machines;
mod models;
mod ops;
mod own;

use std::rc::Rc;
use std::time::Duration;

use graphweft_comm::{Communicator, Metered, Traffic, threads};
use graphweft_graph::partition::Partition;
use graphweft_model::GraphOps;
use graphweft_parallel::{Layout, Link, Local, Strategy, spread};
use graphweft_tensor::{DType, Device, DeviceName, Precision, Tape, Var};

use bytes::expected;
use graphs::{Case, cases, mixed_case};
use ops::{Op, RowsOf, Size, edge_features, f64s, operand};

/// What a rank says when it fails.
#[derive(Debug)]
struct Failure(String);

impl From<graphweft_comm::Error> for Failure {
    fn from(e: graphweft_comm::Error) -> Self {
        Self(e.to_string())
    }
}

impl From<graphweft_tensor::Error> for Failure {
    fn from(e: graphweft_tensor::Error) -> Self {
        Self(e.to_string())
    }
}

/// All that are for so many ranks.
fn strategies(ranks: usize) -> Vec<Strategy> {
    let mut names: Vec<String> = ["gather", "heads", "halo", "halo:plain", "ring", "ring:3"].map(Into::into).into();
    if ranks == 1 {
        names.push("local".into());
    }
    names.extend([2, 3, 4].into_iter().filter(|each| *each <= ranks).map(|each| format!("halo:machines:{each}")));
    for nodes in (2..ranks).filter(|n| ranks.is_multiple_of(*n)) {
        let heads = ranks / nodes;
        names.extend([format!("grid:{nodes}x{heads}:gather"), format!("grid:{nodes}x{heads}")]);
    }
    names.iter().map(|name| name.parse().unwrap()).chain([own::mixed()]).collect()
}

/// What one rank found for one operation: the output and the gradients of all operands, and the bytes of rows and of
/// sums that it sent, forward and backward.
struct Found {
    values: Vec<Vec<f64>>,
    sent: [bytes::Traffic; 2],
}

/// An operation on one rank.
#[derive(Clone, Copy)]
struct Call<'a> {
    ops: &'a dyn GraphOps,
    device: &'a Device,
    op: Op,
    size: Size,
    dtype: DType,
    /// This rank's nodes and edges; otherwise all.
    own: Option<Own<'a>>,
    /// This rank's part of gradients of what all have.
    part: f64,
}

/// What a rank has of a graph, in original numbers.
#[derive(Clone, Copy)]
struct Own<'a> {
    nodes: &'a [u64],
    edges: &'a [u64],
}

/// Runs an operation forward and back.
fn run(call: Call<'_>, case: &Case, mut sent: impl FnMut() -> bytes::Traffic) -> Result<Found, Failure> {
    let Call { ops, device, op, size, dtype, own, part } = call;
    let (nodes, edges) = (own.map(|own| own.nodes), own.map(|own| own.edges));
    let (n, e) = (case.graph.num_dst(), case.graph.num_edges());
    let make = |k: u64, place: RowsOf, cols: usize| match place {
        RowsOf::Nodes => operand(device, k, n, cols, nodes, dtype),
        RowsOf::Edges => operand(device, k, e, cols, edges, dtype),
        RowsOf::Everywhere(rows) => operand(device, k, rows, cols, None, dtype),
    };
    let mut tape = Tape::new(device);
    let inputs = op.inputs(size);
    let x: Vec<Var> = inputs.iter().zip(0..).map(|((place, cols), k)| tape.leaf(make(k, *place, *cols))).collect();
    let out = op.run(ops, &mut tape, size, &x)?;
    let forward = sent();
    let mut g = make(99, op.output(), op.columns(size));
    if op.output() != RowsOf::Nodes {
        device.backend().scale(part, &mut g)?;
    }
    let mut values = vec![f64s(out.value())];
    let found = tape.backward(vec![(out, g)], &x.iter().collect::<Vec<_>>(), |_| Ok(()))?;
    values.extend(found.into_iter().map(|g| f64s(&g.expect("every operand gets a gradient"))));
    Ok(Found { values, sent: [forward, sent()] })
}

/// A device for one rank.
fn open(at: DeviceName) -> Result<Device, Failure> {
    Ok(at.open(Precision::default())?)
}

/// Every op under every strategy on `ranks` ranks: what each rank found, and the layouts.
fn on_ranks(
    at: DeviceName,
    case: &Case,
    partition: &Partition,
    ranks: usize,
    ops: &[Op],
    size: Size,
    dtype: DType,
) -> Vec<Vec<Vec<Found>>> {
    let options = threads::Options { ranks, threads: 1, deadline: Duration::from_secs(60) };
    let weights: f64 = (1..=ranks).map(|r| r as f64).sum();
    let body = |comm: Rc<dyn Communicator>| -> Result<Vec<Vec<Found>>, Failure> {
        let (device, rank) = (open(at)?, comm.rank());
        let metered = Metered::new(comm);
        let account = metered.account();
        let link = Link::new(Rc::new(metered), &device);
        let layout = Layout::new(&case.graph, partition, ranks, rank)?;
        let layout = layout.with_relations(Some(&ops::relations(case.graph.num_edges())));
        let nodes = &layout.originals()[layout.own()];
        let features = || edge_features(&device, case.graph.num_edges(), Some(layout.edges()), dtype);
        let sent = || {
            let counts = account.snapshot();
            account.reset();
            let of = |traffics: &[Traffic]| counts.total(|l| traffics.contains(&l.traffic)).bytes as usize;
            bytes::Traffic { rows: of(&[Traffic::Rows]), global: of(&[Traffic::Global, Traffic::Moments]) }
        };
        let mut found = Vec::new();
        for strategy in strategies(ranks) {
            let spread = spread(&strategy, &layout, &link, Some(features()))?;
            account.reset();
            let part = (rank + 1) as f64 / weights;
            let one = |op: &Op| {
                let own = Some(Own { nodes, edges: layout.edges() });
                run(Call { ops: &*spread, device: &device, op: *op, size, dtype, own, part }, case, sent)
                    .map_err(|e| Failure(format!("{strategy}, {op:?}: {}", e.0)))
            };
            found.push(ops.iter().map(one).collect::<Result<_, _>>()?);
        }
        Ok(found)
    };
    threads::run(options, body).unwrap_or_else(|e| panic!("{} on {ranks} ranks: {}", case.name, e.0))
}

/// The rows of all ranks in original order; `of_all` makes one of what all ranks have.
fn together(
    case: &Case,
    layouts: &[Layout],
    place: RowsOf,
    cols: usize,
    parts: &[&Vec<f64>],
    of_all: fn(&[&Vec<f64>]) -> Vec<f64>,
) -> Vec<f64> {
    let at = |all: &mut [f64], ids: &[u64], rows: &[f64]| {
        assert_eq!(ids.len() * cols, rows.len());
        for (id, row) in ids.iter().zip(rows.chunks_exact(cols)) {
            all[*id as usize * cols..][..cols].copy_from_slice(row);
        }
    };
    match place {
        RowsOf::Nodes => {
            let mut all = vec![f64::NAN; case.graph.num_dst() * cols];
            layouts.iter().zip(parts).for_each(|(l, rows)| at(&mut all, &l.originals()[l.own()], rows));
            all
        }
        RowsOf::Edges => {
            let mut all = vec![f64::NAN; case.graph.num_edges() * cols];
            layouts.iter().zip(parts).for_each(|(l, rows)| at(&mut all, l.edges(), rows));
            all
        }
        RowsOf::Everywhere(_) => of_all(parts),
    }
}

/// Gradients of what all ranks have are sums of their parts.
fn summed(parts: &[&Vec<f64>]) -> Vec<f64> {
    (0..parts[0].len()).map(|k| parts.iter().map(|part| part[k]).sum()).collect()
}

fn the_same(parts: &[&Vec<f64>]) -> Vec<f64> {
    assert!(parts.iter().all(|part| *part == parts[0]), "the same on all ranks");
    parts[0].clone()
}

fn near(found: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (k, (a, b)) in found.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= tolerance * scale, "{what}: element {k} is {a}, expected {b}");
    }
}

fn check(at: DeviceName, case: &Case, ranks: usize, ops: &[Op], size: Size, dtype: DType) {
    let partition = (case.partition)(&case.graph, ranks);
    let layouts: Vec<Layout> =
        (0..ranks).map(|rank| Layout::new(&case.graph, &partition, ranks, rank).unwrap()).collect();
    let device = Device::cpu();
    let features = edge_features(&device, case.graph.num_edges(), None, dtype);
    let relations = ops::relations(case.graph.num_edges()).into();
    let local = Local::new(&device, case.graph.clone(), Some(features)).unwrap().with_relations(Some(relations));
    let none = bytes::Traffic::default;
    let wanted: Vec<Found> = ops
        .iter()
        .map(|op| Call { ops: &local, device: &device, op: *op, size, dtype, own: None, part: 1.0 })
        .map(|call| run(call, case, none).unwrap())
        .collect();
    let runs = [(); 2].map(|()| on_ranks(at, case, &partition, ranks, ops, size, dtype));
    let tolerance = if dtype == DType::F64 { 1e-11 } else { 5e-5 };
    for (s, strategy) in strategies(ranks).into_iter().enumerate() {
        for (o, op) in ops.iter().enumerate() {
            let what = format!("{}, {strategy} on {ranks} ranks, {dtype}: {op:?}", case.name);
            let found: Vec<&Found> = runs[0].iter().map(|rank| &rank[s][o]).collect();
            for (rank, again) in runs[1].iter().map(|rank| &rank[s][o]).enumerate() {
                let bits = |f: &Found| f.values.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert!(bits(found[rank]) == bits(again), "{what}: not the same bits twice on rank {rank}");
            }
            let places = std::iter::once((op.output(), op.columns(size))).chain(op.inputs(size));
            for (k, (place, cols)) in places.enumerate() {
                let parts: Vec<&Vec<f64>> = found.iter().map(|f| &f.values[k]).collect();
                let of_all = if k == 0 { the_same } else { summed };
                let all = together(case, &layouts, place, cols, &parts, of_all);
                let which = if k == 0 { "output".into() } else { format!("gradient of operand {}", k - 1) };
                near(&all, &wanted[o].values[k], tolerance, &format!("{what}: {which}"));
            }
            let bytes = expected(strategy, &layouts, *op, size);
            for (direction, (k, wanted)) in ["forward", "backward"].into_iter().zip(bytes.into_iter().enumerate()) {
                let element = |op: Op| if op == Op::Moments { 8 } else { dtype.size() };
                let sum = |f: fn(&bytes::Traffic) -> usize| found.iter().map(|x| f(&x.sent[k])).sum::<usize>();
                let sent = bytes::Traffic { rows: sum(|t| t.rows), global: sum(|t| t.global) };
                let wanted = bytes::Traffic { rows: wanted.rows * dtype.size(), global: wanted.global * element(*op) };
                assert_eq!(sent, wanted, "{what}: bytes {direction}");
            }
        }
    }
}

/// Heads that no number of ranks but 1 and 3 divides.
const UNEVEN: Size = Size { heads: 3, width: 4 };

fn cross(at: DeviceName, ranks: usize) {
    for case in cases() {
        for dtype in [DType::F64, DType::F32] {
            check(at, &case, ranks, &ops::all(), UNEVEN, dtype);
        }
    }
}

/// Many heads, of the widths that kernels are made for: a rank's heads begin anywhere in a group of eight.
fn wide(at: DeviceName) {
    let attends: Vec<Op> = ops::all()
        .into_iter()
        .filter(|op| {
            matches!(op, Op::Attend(..) | Op::WithTokens(_) | Op::Edges(..) | Op::EdgesWithTokens(_) | Op::Relations)
        })
        .collect();
    check(at, &mixed_case(), 3, &attends, Size { heads: 20, width: 16 }, DType::F32);
}

/// What each place has.
macro_rules! cross_at {
    ($name:ident, $place:expr, $attributes:tt) => {
        mod $name {
            use super::*;

            at!($place, $attributes, {
                on_1_rank => |at| cross(at, 1),
                on_2_ranks => |at| cross(at, 2),
                on_3_ranks => |at| cross(at, 3),
                on_4_ranks => |at| cross(at, 4),
                on_8_ranks => |at| cross(at, 8),
                with_heads_as_wide_as_vectors => wide,
            });
        }
    };
}

cross_at!(on_the_cpu, DeviceName::Cpu, []);
#[cfg(feature = "cuda")]
cross_at!(on_a_gpu, DeviceName::Cuda(0), [ignore = "needs a GPU"]);
