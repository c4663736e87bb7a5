//! Rows of nodes that are learned by themselves: each rank has those of its nodes.

use std::rc::Rc;

use graphweft_model::{Context, Init, Layer};
use graphweft_tensor::ops::dropout::dropout;
use graphweft_tensor::{Parameter, Result as Computed, Tape, Var};

use crate::config::Config;
use crate::epochs::sharded::Sharded;
use crate::error::Result;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Cut;

/// What the rows are called.
const NAME: &str = "table.weight";

struct Rows(Rc<Parameter>);

impl Layer for Rows {
    fn name(&self) -> String {
        "table".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        vec![Rc::clone(&self.0)]
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, _: &[Var]) -> Computed<Vec<Var>> {
        let rows = tape.parameter(&self.0);
        Ok(vec![match cx.rows(cx.rates.hidden, 0, 1) {
            Some(drop) => dropout(tape, &rows, &drop)?,
            None => rows,
        }])
    }
}

/// Rows of so many columns for the nodes of a rank, as a layer.
pub(super) fn rows(shard: &Shard, columns: usize, config: &Config) -> Result<(Rc<dyn Layer>, Sharded)> {
    let counts = shard.counts();
    let total = counts.iter().sum();
    let before: usize = counts[..shard.rank.index()].iter().sum();
    let ids: Rc<[u64]> = match shard.originals() {
        Some(originals) => originals[before..before + shard.outputs()].into(),
        None => (0..shard.outputs() as u64).collect(),
    };
    let init = Init::new(shard.device(), config.compute.dtype.compute(), config.run.seed);
    let parameter = init.rows_of(NAME, &ids, total, columns)?;
    Ok((
        Rc::new(Rows(Rc::clone(&parameter))),
        Sharded { parameters: vec![parameter], cut: Cut { axis: 0, shared: 0 }, ids, total },
    ))
}
