//! Rows that are coded on their way: bytes by the formula, near what they were, the same bits every time, and exact
//! wherever nobody learns.

use std::rc::Rc;
use std::time::Duration;

use graphweft_comm::{Metered, Traffic, threads};
use graphweft_graph::partition::{Weights, covers};
use graphweft_model::Aggregation;
use graphweft_parallel::{Coding, Layout, Link, Strategy, spread};
use graphweft_tensor::codec::Codec;
use graphweft_tensor::{DType, DeviceName};

use super::bytes::columns;
use super::graphs::{Case, cases};
use super::ops::{Bias, Op, ScoreKind, Weight};
use super::{Call, Failure, Own, UNEVEN, bytes, open, run};

const RANKS: usize = 3;
const OPS: [Op; 3] = [
    Op::Aggregate(Aggregation::Sum, Weight::Symmetric),
    Op::Aggregate(Aggregation::Max, Weight::None),
    Op::Attend(ScoreKind::Dot, Bias::None),
];
const STRATEGIES: [&str; 5] = ["gather", "halo", "halo:plain", "halo:machines:2", "ring"];

fn coding(codec: Codec) -> Coding {
    Coding { codec, falling: None, seed: 5 }
}

/// What all ranks found for an op, and the bytes of rows that they sent forward and backward.
struct All {
    values: Vec<Vec<f64>>,
    sent: [usize; 2],
}

/// The same of one rank.
struct One {
    values: Vec<f64>,
    sent: [usize; 2],
}

/// Every op under every strategy: exact, then coded in two epochs, the first of them twice.
fn all_ways(case: &Case, codec: Codec) -> Vec<Vec<[All; 4]>> {
    let partition = (case.partition)(&case.graph, RANKS);
    let options = threads::Options { ranks: RANKS, threads: 1, deadline: Duration::from_secs(60) };
    let ranks = threads::run(options, |comm| -> Result<Vec<Vec<[One; 4]>>, Failure> {
        let (device, rank) = (open(DeviceName::Cpu)?, comm.rank());
        let metered = Metered::new(comm);
        let account = metered.account();
        let link = Link::new(Rc::new(metered), &device).coded(coding(codec));
        let layout = Layout::new(&case.graph, &partition, RANKS, rank)?;
        let sent = || {
            let counts = account.snapshot();
            account.reset();
            let rows = counts.total(|l| l.traffic == Traffic::Rows).bytes as usize;
            bytes::Traffic { rows, global: 0 }
        };
        let mut found = Vec::new();
        for name in STRATEGIES {
            let ops = spread(&name.parse::<Strategy>()?, &layout, &link, None)?;
            let own = Some(Own { nodes: &layout.originals()[layout.own()], edges: layout.edges() });
            let mut of_ops = Vec::new();
            for op in OPS {
                let call = Call { ops: &*ops, device: &device, op, size: UNEVEN, dtype: DType::F32, own, part: 1.0 };
                let one = |epoch: Option<u64>| -> Result<One, Failure> {
                    account.reset();
                    let _learning = epoch.map(|epoch| link.learning(epoch));
                    let found = run(call, case, sent).map_err(|e| Failure(format!("{name}, {op:?}: {}", e.0)))?;
                    Ok(One { values: found.values.concat(), sent: found.sent.map(|sent| sent.rows) })
                };
                // Once, so that all is agreed on.
                one(None)?;
                of_ops.push([one(None)?, one(Some(1))?, one(Some(1))?, one(Some(2))?]);
            }
            found.push(of_ops);
        }
        Ok(found)
    });
    let ranks = ranks.unwrap_or_else(|e| panic!("{}: {}", case.name, e.0));
    let together = |s: usize, o: usize, k: usize| All {
        values: ranks.iter().map(|rank| rank[s][o][k].values.clone()).collect(),
        sent: [0, 1].map(|way| ranks.iter().map(|rank| rank[s][o][k].sent[way]).sum()),
    };
    let ops = |s: usize| (0..OPS.len()).map(|o| [0, 1, 2, 3].map(|k| together(s, o, k))).collect();
    (0..STRATEGIES.len()).map(ops).collect()
}

/// Bytes of rows forward and backward, by the counts of rows that the partition says.
fn formula(case: &Case, name: &str, op: Op, codec: Codec) -> Option<[usize; 2]> {
    let partition = (case.partition)(&case.graph, RANKS);
    let layouts: Vec<Layout> =
        (0..RANKS).map(|rank| Layout::new(&case.graph, &partition, RANKS, rank).unwrap()).collect();
    let ranges: Vec<usize> = layouts.iter().map(|l| l.own().start).chain([layouts[0].total_rows()]).collect();
    let c = columns(op, UNEVEN)?;
    let coded = |cols: usize| 4 * codec.words(cols);
    let (mut pulled, mut pushed) = (0, 0);
    for l in &layouts {
        let weights = match (name, c.push) {
            ("halo", Some(push)) => Weights { pull: c.pull as u32, push: push as u32 },
            // A push that nobody would choose.
            ("halo" | "halo:plain" | "ring", _) => Weights { pull: 1, push: 1 << 20 },
            ("gather", _) => {
                pulled += l.own().len() * (RANKS - 1);
                continue;
            }
            _ => return None,
        };
        let found = covers(l.csr(), &ranges, l.rank(), weights);
        pulled += found.iter().map(|cover| cover.pulled.len()).sum::<usize>();
        pushed += found.iter().map(|cover| cover.pushed.len()).sum::<usize>();
    }
    let (d, h) = (UNEVEN.d(), UNEVEN.heads);
    let [there, back] = match op {
        // Queries go coded and states come as they are; then gradients of both, with LSE and D as they are.
        Op::Attend(..) => [coded(d) + 4 * (d + 2 * h), 2 * coded(d) + 4 * 2 * h],
        _ => [coded(d); 2],
    };
    let again = if name == "ring" && c.again && !matches!(op, Op::Aggregate(..)) { 2 } else { 1 };
    Some([pulled * coded(c.pull) + pushed * there, again * pulled * coded(c.pull) + pushed * back])
}

fn distance(a: &All, b: &All) -> f64 {
    let pairs = || a.values.iter().flatten().zip(b.values.iter().flatten());
    let sum = |f: &dyn Fn((&f64, &f64)) -> f64| pairs().map(f).sum::<f64>();
    (sum(&|(a, b)| (a - b).powi(2)) / sum(&|(_, b)| b * b).max(1e-300)).sqrt()
}

#[test]
fn coded_rows_take_the_bytes_of_the_formula_and_come_near() {
    let near = [(Codec::Bf16, 0.02), (Codec::F8, 0.2), (Codec::Bits(8), 0.05)];
    let far = [Codec::Bits(2), Codec::Columns(4)].map(|codec| (codec, f64::INFINITY));
    for case in cases() {
        for (codec, most) in near.into_iter().chain(far) {
            let found = all_ways(&case, codec);
            for (name, of_ops) in STRATEGIES.iter().zip(&found) {
                for (op, [exact, first, again, second]) in OPS.iter().zip(of_ops) {
                    let what = format!("{}, {name}, {op:?}, {codec}", case.name);
                    let bits = |all: &All| all.values.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert!(bits(first) == bits(again), "{what}: not the same bits twice");
                    let (moves, is_maximum) = (exact.sent != [0, 0], matches!(op, Op::Aggregate(Aggregation::Max, _)));
                    // Of a maximum the rows that moved may be no part, and of a graph without edges they are none.
                    let matters = moves && !is_maximum && case.graph.num_edges() > 0;
                    if matters && matches!(codec, Codec::Bits(2) | Codec::Columns(_)) {
                        assert!(bits(first) != bits(second), "{what}: the same in another epoch");
                    }
                    // A maximum may be another one.
                    if !is_maximum {
                        let off = distance(first, exact);
                        assert!(off <= most, "{what}: off by {off}");
                    }
                    if let Some(wanted) = formula(&case, name, *op, codec) {
                        assert_eq!(first.sent, wanted, "{what}: bytes");
                    }
                    if moves && codec != Codec::Bf16 {
                        assert!(first.sent.iter().sum::<usize>() < exact.sent.iter().sum(), "{what}: more bytes");
                    }
                }
            }
        }
    }
}

#[test]
fn what_nobody_learns_from_is_exact() {
    for case in cases() {
        let partition = (case.partition)(&case.graph, RANKS);
        let options = threads::Options { ranks: RANKS, threads: 1, deadline: Duration::from_secs(60) };
        let same = threads::run(options, |comm| -> Result<bool, Failure> {
            let (device, rank) = (open(DeviceName::Cpu)?, comm.rank());
            let plain = Link::new(comm, &device);
            let layout = Layout::new(&case.graph, &partition, RANKS, rank)?;
            let mut same = true;
            for name in STRATEGIES {
                let of = |link: &Link, op: Op| -> Result<Vec<u64>, Failure> {
                    let ops = spread(&name.parse::<Strategy>()?, &layout, link, None)?;
                    let own = Some(Own { nodes: &layout.originals()[layout.own()], edges: layout.edges() });
                    let call =
                        Call { ops: &*ops, device: &device, op, size: UNEVEN, dtype: DType::F32, own, part: 1.0 };
                    let found = run(call, &case, bytes::Traffic::default)?;
                    Ok(found.values.concat().into_iter().map(f64::to_bits).collect())
                };
                let coded = plain.coded(coding(Codec::Bits(1)));
                // It ends with what it is bound to.
                drop(coded.learning(3));
                for op in OPS {
                    same &= of(&plain, op)? == of(&coded, op)?;
                }
            }
            Ok(same)
        });
        assert!(same.unwrap_or_else(|e| panic!("{}: {}", case.name, e.0)).iter().all(|same| *same), "{}", case.name);
    }
}
