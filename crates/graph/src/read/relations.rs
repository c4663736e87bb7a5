//! What the readers of typed edges share: both directions of every relation, and what cannot be done to these.

use graphweft_base::{Error, Result};

use super::Context;
use crate::build::{EdgeRules, EdgeSorter, Expected};
use crate::csr::SelfLoops;
use crate::dataset::Codes;

/// As many as a type in two bytes can name.
const MOST: usize = 1 << 16;

/// Edges with their types, on their way into a folder.
pub(super) struct Relations {
    sorter: EdgeSorter,
    types: Vec<u16>,
    /// Set where every edge is stored in both directions: how many types there are in one.
    reversed: Option<u16>,
    names: Vec<String>,
}

impl Relations {
    /// Edges of relations of these names among `nodes` nodes. Where they are to be symmetrised, the reverse of each
    /// relation is one of its own, called `rev_…`: two edges of different types are never merged.
    pub(super) fn new(nodes: u64, mut names: Vec<String>, cx: &Context<'_>) -> Result<Self> {
        check(&cx.rules)?;
        let directions = if cx.rules.symmetrise { 2 } else { 1 };
        if directions * names.len() > MOST {
            let what = format!("{} relations in {directions} directions: at most {MOST} are supported", names.len());
            return Err(Error::request(what, "leave some out"));
        }
        let reversed = cx.rules.symmetrise.then_some(names.len() as u16);
        if reversed.is_some() {
            names.extend(names.clone().iter().map(|name| format!("rev_{name}")));
            let mut seen = std::collections::BTreeSet::new();
            if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
                let what = format!("{twice} is a relation, and the reverse of another one would be called so");
                return Err(Error::request(what, "leave --symmetrise out, or rename it"));
            }
        }
        let rules = EdgeRules { symmetrise: false, ..cx.rules };
        let sorter = EdgeSorter::new(Expected { num_nodes: nodes, origins: true }, rules, cx.scratch)?;
        Ok(Self { sorter, types: Vec::new(), reversed, names })
    }

    /// Adds edges `[source, destination]` of the relation of this number.
    pub(super) fn push(&mut self, relation: u16, edges: &[[u64; 2]]) -> Result<()> {
        self.push_each(&vec![relation; edges.len()], edges).map(|_| ())
    }

    /// Adds edges of a relation each, and after them the reverses where these are wanted. Says how often the edges
    /// were added: once or twice.
    pub(super) fn push_each(&mut self, relations: &[u16], edges: &[[u64; 2]]) -> Result<usize> {
        self.sorter.push(edges)?;
        self.types.extend_from_slice(relations);
        let Some(forward) = self.reversed else { return Ok(1) };
        let back: Vec<[u64; 2]> = edges.iter().map(|&[source, destination]| [destination, source]).collect();
        self.sorter.push(&back)?;
        self.types.extend(relations.iter().map(|relation| relation + forward));
        Ok(2)
    }

    /// The edges, their types, and what these are called.
    pub(super) fn finish(self) -> (EdgeSorter, Codes, Vec<String>) {
        (self.sorter, Codes::of(self.types), self.names)
    }
}

/// Parallel edges differ by their types, and an added self-loop would have none.
fn check(rules: &EdgeRules) -> Result<()> {
    if rules.merge_parallel {
        let what = "edges with types are not merged: parallel edges may differ by their types";
        return Err(Error::request(what, "leave --merge-parallel out"));
    }
    if rules.self_loops == SelfLoops::Add {
        let what = "no self-loops are added to edges with types: they would have none";
        return Err(Error::request(what, "leave --self-loops out"));
    }
    Ok(())
}
