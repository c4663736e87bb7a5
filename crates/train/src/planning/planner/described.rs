//! Plans for graphs that are only described.

use std::sync::Arc;

use graphweft_base::progress::{Progress, Silent};
use graphweft_graph::Csr;
use graphweft_graph::partition::{Method, Options, partition};
use graphweft_plan::explain::Facts;
use graphweft_plan::search::Space;
use graphweft_plan::simulate::{Description, RankRehearsed, RehearseProxy, Simulation, simulated};
use graphweft_plan::{Candidate, Found, Profile, search};
use graphweft_tensor::DType;

use super::{Planner, memory_of, shares};
use crate::config::{Choice, Config};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::planning::machines;
use crate::planning::plan::Plan;
use crate::planning::rehearsal::Rehearser;

impl Planner<'_> {
    /// What every way to spread `config` over `ranks` ranks would take for a graph that is described, and the best of
    /// them.
    ///
    /// # Errors
    /// If nothing fits, or memory is given, by which a graph can be cut only where it is.
    pub fn simulate(
        config: &Config,
        ranks: usize,
        graph: &Description,
        profile: &Profile,
        progress: &dyn Progress,
    ) -> Result<Found> {
        if config.isolated.memory.is_some() {
            let problem = "a graph that is only described is not cut into chunks by memory";
            return Err(Error::setting("isolated.memory", problem, "leave it out, or name the graph itself"));
        }
        let (shares, heads) = shares(config);
        let strategies = match config.parallel.strategy {
            Choice::Auto => simulated(ranks, shares),
            Choice::Named(strategy) => vec![machines::known(strategy, &config.parallel, Some(profile))?],
        };
        let mut space = Space { strategies, ..Space::exact(ranks, shares, Vec::new(), config.compute.remat) };
        if config.parallel.allow_approximate {
            space = space.with_approximate();
        }
        space.strategies.retain(|strategy| config.wire.is_for(strategy));
        let wire = profile.network.wire(0, ranks - 1);
        let facts = Facts {
            ranks,
            memory: memory_of(profile),
            shares,
            heads,
            wide: config.compute.dtype != DType::Bf16,
            alphas: vec![(None, graph.alpha(ranks))],
            latency: wire.latency,
            bandwidth: wire.bandwidth,
        };
        let rehearser = Proxies { config, graph };
        let simulation = Simulation { graph, ranks, profile, rehearser: &rehearser };
        Ok(search(&space, &simulation, &facts, progress)?)
    }
}

/// Rehearses on proxies.
struct Proxies<'a> {
    config: &'a Config,
    graph: &'a Description,
}

impl Proxies<'_> {
    fn rehearse(&self, graph: Csr<u32>, ranks: usize, candidate: &Candidate) -> Result<Vec<RankRehearsed>> {
        let data = Arc::new(Data::unread("a proxy".into(), graph, self.graph.features, self.graph.classes));
        let prepared = data.graph_for(&self.config.model, self.config.run.seed)?;
        let parts = match ranks {
            1 => None,
            _ => Some(Arc::new(partition(&data.graph, &Options::new(Method::Contiguous, ranks), &Silent)?)),
        };
        let mut config = self.config.clone();
        config.compute.remat = candidate.remat;
        let plan = Plan { strategy: candidate.strategy, ranks, parts, ..Plan::local(candidate.remat) };
        let rehearsal = Rehearser::new(&data, &prepared).rehearse(&config, &plan)?;
        let played = |rank: crate::planning::rehearsal::Rehearsed| RankRehearsed {
            log: rank.log,
            peak: rank.peak,
            sent: rank.sent.iter().map(|s| s.bytes).sum(),
        };
        Ok(rehearsal.ranks.into_iter().map(played).collect())
    }
}

impl RehearseProxy for Proxies<'_> {
    fn rehearse_proxy(
        &self,
        graph: Csr<u32>,
        ranks: usize,
        candidate: &Candidate,
    ) -> std::result::Result<Vec<RankRehearsed>, String> {
        self.rehearse(graph, ranks, candidate).map_err(|e| super::in_words(&e))
    }
}
