//! How much of the halo a piece has: all of it, or what is asked for, or what fits.

use std::ops::Range;

use graphweft_base::random::Philox;
use graphweft_graph::chunks::{Chunks, Halo};

use super::memory::Demand;
use crate::config::{Config, IsolatedConfig};
use crate::data::Data;
use crate::error::Result;

/// Keeps draws of the halo apart from others of the same seed.
const HALO: u64 = 0x4a10_0000_0000;

/// What a run allows its pieces.
#[derive(Clone)]
pub(crate) struct Allowance {
    settings: IsolatedConfig,
    /// Where memory is given.
    demand: Option<Demand>,
    seed: u64,
}

impl Allowance {
    pub(crate) fn new(data: &Data, config: &Config) -> Result<Self> {
        let demand = config.isolated.memory.map(|_| Demand::of_training(data, config)).transpose()?;
        Ok(Self { settings: config.isolated.clone(), demand, seed: config.run.seed })
    }

    /// As much as there may be around the rows of a visit; draws are told apart by `draw`.
    pub(super) fn halo(&self, chunks: &Chunks, base: &Range<usize>, other: Option<&Range<usize>>, draw: u64) -> Halo {
        let own = base.len() + other.map_or(0, ExactSizeIterator::len);
        let edges = |rows: &Range<usize>| {
            let indptr = chunks.graph().indptr();
            indptr[rows.end] - indptr[rows.start]
        };
        let asked = self.settings.halo_rows(own);
        let room = self.demand.as_ref().zip(self.settings.memory).map(|(demand, memory)| {
            let edges = edges(base) + other.map_or(0, edges);
            usize::try_from(rounded(demand.rows_in(memory, edges))).unwrap_or(usize::MAX).saturating_sub(own)
        });
        let rows = asked.into_iter().chain(room).min();
        rows.map_or(Halo::All, |rows| Halo::Drawn { rows, random: Philox::new(self.seed, HALO ^ draw) })
    }
}

/// A little less, so that pieces with about as many edges have as many rows: what one gives back suits the next.
fn rounded(rows: u64) -> u64 {
    let dropped = rows.checked_ilog2().unwrap_or(0).saturating_sub(5);
    rows >> dropped << dropped
}
