//! What is known of a model before it has seen a row: the states between its layers and what these cost, from a chunk
//! of usual size that passes through it on a [device that computes nothing](graphweft_tensor::dry). What kernels would
//! have to do there costs what a profile of the machine says. A model that cannot go in chunks is found out here.

use std::cell::Cell;
use std::rc::Rc;

use graphweft_graph::partition::Partition;
use graphweft_graph::{Csr, Permutation};
use graphweft_model::{Context, Mode, Network, Shape};
use graphweft_parallel::{Across, Pipeline};
use graphweft_plan::Profile;
use graphweft_tensor::{DType, Device, Error as Computation, Matrix, Tag, Tape, Var};

use super::State;
use crate::epochs::network::network;
use crate::epochs::source::EpochInputs;
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::ranks::shard::{ListedRows, Seen, Shard};

/// What kernels cost where nobody has named a machine: only how layers compare matters.
const USUAL: &str = "16-cpu-10g";

/// Layer by layer.
pub(super) struct Survey {
    /// The state after each.
    states: Vec<State>,
    /// Seconds of each, forward, forward again and backward.
    costs: Vec<f64>,
}

impl Survey {
    /// A part of a chunk, where `ways` ranks share one.
    pub(super) fn new(inputs: &EpochInputs<'_>, shape: Shape, ways: usize) -> Result<Self> {
        let EpochInputs { config, plan, data, graph, .. } = *inputs;
        let named = config.parallel.profile.as_deref().map(Profile::find).transpose()?;
        let profile = match named.filter(|profile| !profile.kernels.is_empty()) {
            Some(profile) => profile,
            None => Profile::find(USUAL)?,
        };
        let spent = Rc::new(Cell::new(0.0));
        let counted = Rc::clone(&spent);
        let device = Device::dry(None, Rc::new(move |work| counted.set(counted.get() + profile.seconds(&work))));
        let (rank, dtype) = (Rank::alone(&device), config.compute.dtype);

        let parts = plan.parts.as_ref().map_or(1, |parts| parts.num_parts().max(ways));
        let (nodes, edges) = (graph.csr.num_dst(), graph.csr.num_edges());
        let rows = nodes.div_ceil(parts);
        let ids: Vec<u64> = (0..rows as u64).collect();
        let graph = chunk(&device, rows, edges.div_ceil(parts), shape.edge_features.stored(), dtype.compute())?;
        let rows_of =
            ListedRows { ops: graph.chunk(0), ids: &ids, model: &config.model, shape, dtype, seen: Seen::Features };
        let chunk = Shard::of_rows(&rank, data, &rows_of)?;
        let context = Context {
            ops: chunk.ops,
            features: chunk.features,
            positional: chunk.positional,
            graphs: None,
            types: chunk.types,
            mode: Mode::Train,
            seed: 0,
            epoch: 0,
            rates: config.train.rates(),
            remat: config.compute.remat.with_attention(),
            dtype,
        };
        let mut survey = Self { states: Vec::new(), costs: Vec::new() };
        for layer in network(&rank, shape, config)?.layers() {
            spent.set(0.0);
            let before = survey.states.last().cloned().unwrap_or_default();
            let state =
                passed(&device, &context, &Network::new(vec![Rc::clone(layer)]), rows, &before).map_err(refused)?;
            survey.states.push(state);
            survey.costs.push(spent.get());
        }
        Ok(survey)
    }

    /// The state after a layer.
    pub(super) fn state_after(&self, layer: usize) -> State {
        self.states[layer].clone()
    }

    /// What each layer costs.
    pub(super) fn costs(&self) -> &[f64] {
        &self.costs
    }
}

/// A graph of so many rows and edges, in one chunk.
fn chunk(device: &Device, rows: usize, edges: usize, features: usize, dtype: DType) -> Result<Pipeline> {
    let bug = |problem: String| Computation::Argument { op: "survey", problem };
    let indptr: Vec<u64> = (0..=rows).map(|row| (row * edges / rows.max(1)) as u64).collect();
    let ends = indptr.windows(2).map(|ends| (ends[1] - ends[0]) as usize);
    let indices: Vec<u32> = ends.flat_map(|degree| (0..degree).map(move |k| (k * rows / degree) as u32)).collect();
    let graph = Csr::from_valid(indptr, indices, rows);
    let same = Permutation::from_old_of_new((0..rows as u64).collect()).map_err(|e| bug(e.to_string()))?;
    let one = Partition::new(same, vec![0, rows as u64]).map_err(bug)?;
    let features = |edges: &[u64]| {
        let some = || device.zeros("survey", edges.len(), features, dtype, Tag::Graph);
        (features > 0).then(some).transpose()
    };
    let graph = Pipeline::new(device, &graph, &one, None, None, features)?;
    graph.begin(&[0], Across::Once);
    Ok(graph)
}

/// The state after some layers, which are passed forward and back.
fn passed(
    device: &Device,
    context: &Context,
    layers: &Network,
    rows: usize,
    before: &State,
) -> std::result::Result<State, Computation> {
    let mut tape = Tape::new(device);
    let leaf = |(cols, dtype): &(usize, DType)| device.zeros("survey", rows, *cols, *dtype, Tag::Activations);
    let state: Vec<Var> =
        before.iter().map(|m| Ok(tape.leaf(leaf(m)?))).collect::<std::result::Result<_, Computation>>()?;
    let after = layers.forward_from(&mut tape, context, state.clone(), |_, _| Ok(()))?;
    let found = after.iter().map(|var| (var.value().cols(), var.value().dtype())).collect();
    let gradient = |var: Var| -> std::result::Result<(Var, Matrix), Computation> {
        let m = var.value();
        let zeros = device.zeros("survey", m.rows(), m.cols(), m.dtype(), Tag::Activations)?;
        Ok((var, zeros))
    };
    let outputs = after.into_iter().map(gradient).collect::<std::result::Result<Vec<_>, Computation>>()?;
    tape.backward(outputs, &state.iter().collect::<Vec<_>>(), |_| Ok(()))?;
    Ok(found)
}

/// What people can do about a model that cannot go in chunks.
fn refused(e: Computation) -> Error {
    match e {
        Computation::Argument { op: "pipeline", problem } => {
            let remedy = "choose an exact strategy, or a model without it (instead of batch norm, model.norm=layer)";
            Error::setting("parallel.strategy", problem, remedy)
        }
        other => other.into(),
    }
}
