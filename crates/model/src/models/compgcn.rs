//! CompGCN of Vashishth et al.: a [stack] of convolutions in which types of edges have rows that are
//! learned along with those of nodes, composed by differences. It tells edges from their reverses:
//! `data.symmetrise=true` adds these, as types of their own after all others.
//!
//! A linear layer comes first, because columns of a node without features are learnt rows there.

use std::cell::RefCell;

use graphweft_graph::{Csr, TypedCsr};
use graphweft_tensor::{Error, Result};

use super::stack::{self, Shell, keys_of_a_stack};
use crate::convs::compgcn::{CompGcnConv, DIRECTIONS, TypeRows};
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Network, Shape};
use crate::prepare::Prepared;

keys_of_a_stack! {
    /// Keys of the `[model]` section: those of a [stack](stack::Config).
    {}
}

impl Default for Config {
    fn default() -> Self {
        Self::beside(stack::Config { layers: 1, stack: Shell::Tuned, input_linear: true, ..stack::Config::default() })
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo::new(Reach::Edges, self.hidden, self.layers)
    }

    fn prepare(&self, csr: Csr<u32>, _: u64) -> Result<Prepared> {
        // Edges without types are all of one, and nothing is a reverse.
        let types = vec![0; csr.num_edges()];
        Prepared::directions(&TypedCsr::new(&csr, &types), DIRECTIONS)
    }

    fn reads_types(&self) -> bool {
        true
    }

    fn prepare_typed(&self, graph: &TypedCsr, types: usize, _: u64) -> Result<Prepared> {
        if !types.is_multiple_of(DIRECTIONS) {
            let problem = format!(
                "compgcn tells edges from their reverses, and {types} types are no pairs of these: set data.symmetrise=true, without self-loops"
            );
            return Err(Error::Argument { op: Self::NAME, problem });
        }
        Prepared::directions(graph, types)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let types = shape.edge_features.categories().first().copied().unwrap_or(DIRECTIONS);
        let so_far: RefCell<Option<TypeRows>> = RefCell::new(None);
        stack::build(Self::NAME, &self.of_stack(), init, shape, |spec| {
            let mut rows = so_far.borrow_mut();
            let before = rows.take();
            let now = match before {
                None => TypeRows { rows: init.glorot("relations", types, spec.inputs.width)?, through: Vec::new() },
                Some(mut before) => {
                    let width = before.through.last().unwrap_or(&before.rows).value().cols();
                    before.through.push(init.glorot(&format!("{}.relation", spec.name), width, spec.inputs.width)?);
                    before
                }
            };
            *rows = Some(now.clone());
            Ok(Box::new(CompGcnConv::new(init, spec.name, spec.inputs.width, spec.outputs, now)?))
        })
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "compgcn";
    const ABOUT: &'static str = "CompGCN: learned rows for types of edges, subtracted from those of nodes";
}
