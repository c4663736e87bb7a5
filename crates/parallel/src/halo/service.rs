//! How cut edges are served: which rows of whom are pulled, which are pushed to whom, and by way of which rank.
//!
//! Without machines every pair of ranks has its cover. With machines, pairs of machines have covers: the edges between
//! all rows of both, where a row counts once, however many ranks of a machine want it. That is the least that can cross
//! between them. Of the ranks that want a row, one gets it for all; the others' turn comes with other rows. Inside a
//! machine, pairs of ranks have their covers as without. What is found is a function of the graph alone.

use std::ops::Range;

use graphweft_graph::Csr;
use graphweft_graph::partition::{Cover, Weights, cover_from, covers};
use graphweft_tensor::Result;

use super::exchange_list::malformed;
use crate::layout::Layout;
use crate::link::Link;
use crate::member::SETUP;

/// How this rank's cut edges are served.
pub(super) struct Service {
    /// By rank.
    pub(super) covers: Vec<Cover>,
    /// Which rank gets each row of `covers[rank].pulled` for this machine.
    pub(super) pulled_by: Vec<Vec<u32>>,
    /// Which rank gets each row of `covers[rank].pushed` for that one's machine.
    pub(super) pushed_by: Vec<Vec<u32>>,
}

impl Service {
    /// Between pairs of ranks; without weights, everything is pulled.
    pub(super) fn by_rank(cut: &Layout, weights: Option<Weights>) -> Self {
        let covers = match weights {
            Some(weights) => covers(cut.csr(), cut.ranges(), cut.rank(), weights),
            None => (0..cut.ranks()).map(|peer| pulled(cut.needed_of(peer))).collect(),
        };
        let rank = cut.rank() as u32;
        let pulled_by = covers.iter().map(|cover| vec![rank; cover.pulled.len()]).collect();
        let pushed_by = (0..).zip(&covers).map(|(peer, cover)| vec![peer; cover.pushed.len()]).collect();
        Self { covers, pulled_by, pushed_by }
    }

    /// Of the rows that are pushed, those that go to each rank first.
    pub(super) fn first_pushed(&self) -> Vec<Vec<u32>> {
        let mut all = Vec::with_capacity(self.covers.len());
        for (peer, (cover, by)) in (0..).zip(self.covers.iter().zip(&self.pushed_by)) {
            all.push(cover.pushed.iter().zip(by).filter(|(_, by)| **by == peer).map(|(row, _)| *row).collect());
        }
        all
    }

    /// Between pairs of machines that have `each` ranks, the last one perhaps fewer.
    pub(super) fn by_machine(cut: &Layout, link: &Link, weights: Option<Weights>, each: usize) -> Result<Self> {
        let machine = Machine::new(cut, link, each)?;
        let between = machine.agree(link, weights)?;
        let mut covers = Vec::with_capacity(cut.ranks());
        for peer in 0..cut.ranks() {
            let cover = match (between.get(machine.of(peer)), weights) {
                _ if peer == cut.rank() => Cover::default(),
                (Some(Some(between)), _) => machine.part(between, peer),
                (_, Some(weights)) => cover_from(cut.csr(), cut.rows_of(peer), weights),
                (_, None) => pulled(cut.needed_of(peer)),
            };
            covers.push(cover);
        }
        let pulled_by = machine.pulled_by(&between, &covers);
        let pushed_by = machine.pushed_by(&covers);
        Ok(Self { covers, pulled_by, pushed_by })
    }
}

fn pulled(pulled: Vec<u32>) -> Cover {
    Cover { pulled, pushed: Vec::new() }
}

/// Whose turn it is of those that want a row.
fn turn(row: u32, who: &[u32]) -> u32 {
    who[row as usize % who.len()]
}

/// This rank's machine, and the edges into all of its rows from others.
struct Machine<'a> {
    cut: &'a Layout,
    each: usize,
    /// Its ranks and its rows.
    members: Range<usize>,
    rows: Range<usize>,
    csr: Csr<u32>,
}

impl<'a> Machine<'a> {
    /// Brings together what the ranks of a machine know.
    fn new(cut: &'a Layout, link: &Link, each: usize) -> Result<Self> {
        let first = cut.rank() / each * each;
        let members = first..cut.ranks().min(first + each);
        let csr = cut.csr();
        let mut own: Vec<u64> = (0..csr.num_dst()).map(|row| csr.degree(row) as u64).collect();
        own.extend(csr.indices().iter().map(|j| u64::from(*j)));
        let to = |rank: usize| if members.contains(&rank) { own.clone() } else { Vec::new() };
        let all = link.all_to_all_ids(SETUP, &(0..cut.ranks()).map(to).collect::<Vec<_>>())?;
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for rank in members.clone() {
            let known = all[rank].split_at_checked(cut.rows_of(rank).len());
            let (degrees, sources) = known.ok_or_else(|| malformed("a list of edges ends early"))?;
            for degree in degrees {
                indptr.push(indptr.last().copied().unwrap_or(0) + degree);
            }
            indices.extend(sources.iter().map(|j| *j as u32));
        }
        let rows = cut.ranges()[members.start]..cut.ranges()[members.end];
        let csr = Csr::new(indptr, indices, cut.total_rows()).map_err(|e| malformed(&e.to_string()))?;
        Ok(Self { cut, each, members, rows, csr })
    }

    fn of(&self, rank: usize) -> usize {
        rank / self.each
    }

    /// The covers of the edges from every other machine: each rank finds some of them.
    fn agree(&self, link: &Link, weights: Option<Weights>) -> Result<Vec<Option<Cover>>> {
        let (ranks, own) = (self.cut.ranks(), self.of(self.cut.rank()));
        let mut found = Vec::new();
        for machine in (0..ranks.div_ceil(self.each)).filter(|machine| *machine != own) {
            if machine % self.members.len() != self.cut.rank() - self.members.start {
                continue;
            }
            let ranges = self.cut.ranges();
            let there = ranges[machine * self.each]..ranges[ranks.min((machine + 1) * self.each)];
            let Cover { pulled, pushed } = match weights {
                Some(weights) => cover_from(&self.csr, there, weights),
                None => self.all_of(there),
            };
            found.extend([machine as u64, pulled.len() as u64, pushed.len() as u64]);
            found.extend(pulled.iter().chain(&pushed).map(|row| u64::from(*row)));
        }
        let to = |rank: usize| if self.members.contains(&rank) { found.clone() } else { Vec::new() };
        let lists = link.all_to_all_ids(SETUP, &(0..ranks).map(to).collect::<Vec<_>>())?;
        let mut covers = vec![None; ranks.div_ceil(self.each)];
        for list in &lists {
            let mut rest = &list[..];
            while let [machine, pulled, pushed, after @ ..] = rest {
                let (pulled, pushed) = (*pulled as usize, *pushed as usize);
                let short = || malformed("a cover ends early");
                let place = covers.get_mut(*machine as usize).ok_or_else(short)?;
                let rows = after.get(..pulled + pushed).ok_or_else(short)?;
                let rows: Vec<u32> = rows.iter().map(|row| *row as u32).collect();
                *place = Some(Cover { pulled: rows[..pulled].to_vec(), pushed: rows[pulled..].to_vec() });
                rest = &after[pulled + pushed..];
            }
        }
        Ok(covers)
    }

    /// Every source among these rows.
    fn all_of(&self, there: Range<usize>) -> Cover {
        let mut sources: Vec<u32> =
            self.csr.indices().iter().copied().filter(|j| there.contains(&(*j as usize))).collect();
        sources.sort_unstable();
        sources.dedup();
        pulled(sources)
    }

    /// What this rank has of the edges from `peer`, a rank of another machine.
    fn part(&self, between: &Cover, peer: usize) -> Cover {
        let (csr, there) = (self.cut.csr(), self.cut.rows_of(peer));
        let is_pulled = |j: &u32| between.pulled.binary_search(j).is_ok();
        let first = self.cut.own().start - self.rows.start;
        let own = |row: &u32| (first..first + csr.num_dst()).contains(&(*row as usize));
        let pushes = |row: &u32| {
            let sources = csr.row(*row as usize);
            let from = sources.partition_point(|j| (*j as usize) < there.start);
            sources[from..].iter().take_while(|j| (**j as usize) < there.end).any(|j| !is_pulled(j))
        };
        let pushed = between.pushed.iter().filter(|row| own(row)).map(|row| *row - first as u32);
        Cover {
            pulled: self.cut.needed_of(peer).into_iter().filter(is_pulled).collect(),
            pushed: pushed.filter(pushes).collect(),
        }
    }

    /// Which ranks of this machine get the rows that this rank pulls.
    fn pulled_by(&self, between: &[Option<Cover>], covers: &[Cover]) -> Vec<Vec<u32>> {
        let mut wants = Vec::new();
        for member in self.members.clone() {
            let rows = self.cut.rows_of(member);
            for row in rows.start - self.rows.start..rows.end - self.rows.start {
                wants.extend(self.csr.row(row).iter().map(|j| (*j, member as u32)));
            }
        }
        wants.sort_unstable();
        wants.dedup();
        let mut who: Vec<u32> = Vec::with_capacity(self.members.len());
        let mut by = |row: u32| {
            let first = wants.partition_point(|(j, _)| *j < row);
            who.clear();
            who.extend(wants[first..].iter().take_while(|(j, _)| *j == row).map(|(_, member)| *member));
            turn(row, &who)
        };
        let rank = self.cut.rank() as u32;
        (0..)
            .zip(covers)
            .map(|(peer, cover)| match between[self.of(peer)] {
                None => vec![rank; cover.pulled.len()],
                Some(_) => cover.pulled.iter().map(|row| by(*row)).collect(),
            })
            .collect()
    }

    /// Which ranks of other machines get the rows that this rank pushes there.
    fn pushed_by(&self, covers: &[Cover]) -> Vec<Vec<u32>> {
        let mut by = Vec::with_capacity(covers.len());
        for (machine, there) in covers.chunks(self.each).enumerate() {
            let first = (machine * self.each) as u32;
            let mut wants: Vec<(u32, u32)> = (first..)
                .zip(there)
                .flat_map(|(peer, cover)| cover.pushed.iter().map(move |row| (*row, peer)))
                .collect();
            wants.sort_unstable();
            for (peer, cover) in (first..).zip(there) {
                let one = |row: &u32| {
                    if self.members.contains(&(peer as usize)) {
                        return peer;
                    }
                    let at = wants.partition_point(|(other, _)| other < row)
                        ..wants.partition_point(|(other, _)| other <= row);
                    let who: Vec<u32> = wants[at].iter().map(|(_, peer)| *peer).collect();
                    turn(*row, &who)
                };
                by.push(cover.pushed.iter().map(one).collect());
            }
        }
        by
    }
}
