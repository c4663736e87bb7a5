//! What is known of a model before it has seen a row: the states between its layers and what these will cost, from a pass over a
//! graph without nodes. A model that cannot go in chunks is found out here.

use graphweft_graph::dataset::Features;
use graphweft_graph::partition::Partition;
use graphweft_graph::{Csr, Permutation};
use graphweft_model::{Mode, Rates, Remat, Shape, Step};
use graphweft_parallel::{Across, Pipeline};
use graphweft_tensor::{DType, Error as Computation, Tag, Tape};

use super::State;
use crate::config::Config;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::learner::network;
use crate::rank::Rank;
use crate::shard::Shard;

/// A number that travels along an edge costs as much as this many products of a dense layer: it is loaded from anywhere, for one
/// product.
const EDGE: f64 = 8.0;

/// Layer by layer.
pub(super) struct Survey {
    layers: Vec<Surveyed>,
}

struct Surveyed {
    /// The state after it.
    state: State,
    /// Parameters.
    numbers: usize,
    /// Columns that go along edges.
    width: usize,
}

impl Survey {
    pub(super) fn new(rank: &Rank, data: &Data, shape: Shape, config: &Config) -> Result<Self> {
        let (device, dtype) = (rank.device(), DType::from(config.compute.dtype));
        let bug = |problem: String| Computation::Argument { op: "survey", problem };
        let nobody = Permutation::from_old_of_new(Vec::new()).map_err(|e| bug(e.to_string()))?;
        let nobody = Partition::new(nobody, vec![0, 0]).map_err(bug)?;
        let edges = |_: &[u64]| {
            let width = shape.edge_features;
            let none = || device.zeros("survey", 0, width, dtype.compute(), Tag::Graph);
            (width > 0).then(none).transpose()
        };
        let graph = Pipeline::new(device, &Csr::from_valid(vec![0], Vec::new(), 0), &nobody, edges)?;
        graph.begin(&[0], Across::Once);
        let rows = Shard::of_rows(&Rank::alone(device), data, (graph.chunk(0), &[]), (shape, dtype, true))?;
        let step = Step {
            ops: rows.ops,
            features: rows.features,
            positional: rows.positional,
            mode: Mode::Train,
            seed: 0,
            epoch: 0,
            rates: Rates::default(),
            remat: Remat::None,
            dtype,
        };
        let (mut layers, mut before) = (Vec::new(), 0);
        let passed = network(rank, shape, config)?.forward_watched(
            &mut Tape::without_gradients(device),
            &step,
            |layer, state| {
                let elements = |p: &std::rc::Rc<graphweft_tensor::Parameter>| p.value().rows() * p.value().cols();
                let width = graph.operand_width();
                layers.push(Surveyed {
                    state: state.iter().map(|v| (v.value().cols(), v.value().dtype())).collect(),
                    numbers: layer.parameters().iter().map(elements).sum(),
                    width: width - before,
                });
                before = width;
                Ok(())
            },
        );
        match passed {
            Err(Computation::Argument { op: "pipeline", problem }) => {
                let remedy = "choose an exact strategy, or a model without it, e.g. model.norm=layer";
                Err(Error::setting("parallel.strategy", problem, remedy))
            }
            Err(other) => Err(other.into()),
            Ok(_) => Ok(Self { layers }),
        }
    }

    /// The state after a layer.
    pub(super) fn state_after(&self, layer: usize) -> State {
        self.layers[layer].state.clone()
    }

    /// What each layer costs on a graph of this size: products of its parameters with all rows, and what goes along edges. Of
    /// sparse features only what is there is multiplied.
    pub(super) fn costs(&self, features: &Features, nodes: usize, edges: usize) -> Vec<f64> {
        let density = match features {
            Features::Sparse(m) => m.indices.len() as f64 / (nodes * m.width).max(1) as f64,
            Features::Dense(_) => 1.0,
        };
        let cost = |(k, layer): (usize, &Surveyed)| {
            let density = if k == 0 { density } else { 1.0 };
            density * (layer.numbers * nodes) as f64 + EDGE * (layer.width * edges) as f64
        };
        self.layers.iter().enumerate().map(cost).collect()
    }
}
