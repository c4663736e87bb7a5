//! What must cross between machines, from the edges alone: rows and queries count once for each pair of machines.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use graphweft_comm::{Metered, threads};
use graphweft_graph::Csr;
use graphweft_graph::partition::{Weights, cover_from};
use graphweft_parallel::settings::Cover;
use graphweft_parallel::{Layout, Link, Strategy, spread};
use graphweft_tensor::{DType, Device, DeviceName};

use super::bytes::columns;
use super::graphs::cases;
use super::ops::{self, edge_features};
use super::{Call, Failure, Own, UNEVEN, bytes, open, run};

/// Elements one way, over all ranks.
pub(crate) struct Crossing {
    pub(crate) between: usize,
    pub(crate) inside: usize,
}

/// Rows and columns of edges: where they go, and where they come from.
type Edge = (usize, usize);

/// `each` ranks to a machine.
pub(crate) fn crossing(layouts: &[Layout], each: usize, pull: usize, push: Option<usize>) -> Crossing {
    let ranks = layouts.len();
    let mut edges: BTreeMap<(usize, usize), Vec<Edge>> = BTreeMap::new();
    for l in layouts {
        for row in 0..l.csr().num_dst() {
            for j in l.csr().row(row) {
                let pair = (l.rank(), l.owner(*j as usize));
                // Between ranks of a machine: those of the pair; of two machines: the machines, after all ranks.
                let machines = (pair.0 / each, pair.1 / each);
                let key = match machines.0 == machines.1 {
                    true => pair,
                    false => (ranks + machines.0, ranks + machines.1),
                };
                if pair.0 != pair.1 {
                    edges.entry(key).or_default().push((l.own().start + row, *j as usize));
                }
            }
        }
    }
    let mut crossing = Crossing { between: 0, inside: 0 };
    for ((to, _), edges) in &edges {
        let (pulled, pushed) = cover(layouts, edges, pull, push);
        let weight = pulled.len() * pull + pushed.len() * push.unwrap_or(0);
        if *to < ranks {
            crossing.inside += weight;
            continue;
        }
        crossing.between += weight;
        // Ranks that want a row, beyond the one that gets it.
        let mut wants = BTreeSet::new();
        for (i, j) in edges {
            let owner = |row: usize| layouts[0].owner(row);
            match pulled.contains(j) {
                true => wants.insert((0, *j, owner(*i))),
                false => wants.insert((1, *i, owner(*j))),
            };
        }
        let passed = |kind: usize, rows: usize| wants.iter().filter(|want| want.0 == kind).count() - rows;
        crossing.inside += passed(0, pulled.len()) * pull + passed(1, pushed.len()) * push.unwrap_or(0);
    }
    crossing
}

fn cover(layouts: &[Layout], edges: &[Edge], pull: usize, push: Option<usize>) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let total = layouts[0].total_rows();
    let Some(push) = push else { return (edges.iter().map(|(_, j)| *j).collect(), BTreeSet::new()) };
    let mut rows = vec![Vec::new(); total];
    edges.iter().for_each(|(i, j)| rows[*i].push(*j as u32));
    let found =
        cover_from(&Csr::from_rows(rows, total).unwrap(), 0..total, Weights { pull: pull as u32, push: push as u32 });
    let set = |rows: Vec<u32>| rows.into_iter().map(|row| row as usize).collect();
    (set(found.pulled), set(found.pushed))
}

/// Elements that every op sends to other machines, forward and backward, over all ranks.
fn metered(case: &super::Case, ranks: usize, each: usize) -> Vec<usize> {
    let partition = (case.partition)(&case.graph, ranks);
    let options = threads::Options { ranks, threads: 1, deadline: Duration::from_secs(60) };
    let strategy = Strategy::Halo(Cover::Machines { ranks: Some(each) });
    let found = threads::run(options, |comm| -> Result<Vec<usize>, Failure> {
        let (device, rank) = (open(DeviceName::Cpu)?, comm.rank());
        let metered = Metered::new(comm);
        let account = metered.account();
        let link = Link::new(Rc::new(metered), &device);
        let layout = Layout::new(&case.graph, &partition, ranks, rank)?;
        let features = edge_features(&device, case.graph.num_edges(), Some(layout.edges()), DType::F64);
        let spread = spread(&strategy, &layout, &link, Some(features))?;
        let own = Own { nodes: &layout.originals()[layout.own()], edges: layout.edges() };
        let sent = |op: &ops::Op| {
            let call = Call {
                ops: &*spread,
                device: &device,
                op: *op,
                size: UNEVEN,
                dtype: DType::F64,
                own: Some(own),
                part: 1.0,
            };
            // Once, so that all is agreed.
            run(call, case, bytes::Traffic::default)?;
            account.reset();
            run(call, case, bytes::Traffic::default)?;
            let away = account.sent_to().into_iter().filter(|(peer, _)| peer / each != rank / each);
            Ok(away.map(|(_, bytes)| bytes as usize / 8).sum())
        };
        rows_only().iter().map(sent).collect()
    });
    let found = found.unwrap_or_else(|e| panic!("{} on {ranks} ranks: {}", case.name, e.0));
    (0..rows_only().len()).map(|op| found.iter().map(|rank| rank[op]).sum()).collect()
}

/// Operations that send rows and nothing else.
fn rows_only() -> Vec<ops::Op> {
    let sums = |op: &ops::Op| matches!(op, ops::Op::WithTokens(_) | ops::Op::EdgesWithTokens(_));
    ops::all().into_iter().filter(|op| columns(*op, UNEVEN).is_some() && !sums(op)).collect()
}

#[test]
fn the_least_crosses_between_machines() {
    for (ranks, each) in [(4, 2), (8, 2), (8, 4), (8, 3), (5, 4)] {
        for case in cases() {
            let partition = (case.partition)(&case.graph, ranks);
            let layouts: Vec<Layout> =
                (0..ranks).map(|rank| Layout::new(&case.graph, &partition, ranks, rank).unwrap()).collect();
            let found = metered(&case, ranks, each);
            for (op, sent) in rows_only().iter().zip(found) {
                let c = columns(*op, UNEVEN).unwrap();
                let least = crossing(&layouts, each, c.pull, c.push).between;
                assert_eq!(sent, 2 * least, "{}, {ranks} ranks, {each} to a machine: {op:?}", case.name);
            }
        }
    }
}

#[test]
fn nobody_guesses_how_many_ranks_share_a_machine() {
    let case = &cases()[0];
    let partition = (case.partition)(&case.graph, 2);
    let options = threads::Options { ranks: 2, threads: 1, deadline: Duration::from_secs(20) };
    let problems = threads::run(options, |comm| -> Result<String, Failure> {
        let device = Device::cpu();
        let layout = Layout::new(&case.graph, &partition, 2, comm.rank())?;
        let spread = spread(&"halo:machines".parse()?, &layout, &Link::new(comm, &device), None)?;
        let own = Own { nodes: &layout.originals()[layout.own()], edges: layout.edges() };
        let op = rows_only()[0];
        let call =
            Call { ops: &*spread, device: &device, op, size: UNEVEN, dtype: DType::F64, own: Some(own), part: 1.0 };
        Ok(run(call, case, bytes::Traffic::default).err().map(|e| e.0).unwrap_or_default())
    });
    for problem in problems.unwrap_or_else(|e| panic!("{}", e.0)) {
        assert!(problem.contains("halo:machines:RANKS"), "{problem}");
    }
}
