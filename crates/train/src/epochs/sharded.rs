//! A table of which every rank has the rows of its nodes, with their gradients and what the optimizer remembers of
//! them.
//!
//! Its gradients are complete where they are: they are not summed over ranks, and each rank moves its own rows. The
//! length of all gradients is that of the other parameters, which all ranks have, and of the rows of all. A checkpoint
//! has the whole table, by original ids: so it fits any ranks.

use std::borrow::Cow;
use std::rc::Rc;

use graphweft_model::Total;
use graphweft_tensor::optim::gradient_norm;
use graphweft_tensor::{Error as Computation, Parameter, Result};

use crate::ranks::rank::Rank;
use crate::run::checkpoint::Tensors;

/// The epoch of a step: above it there may be the number of the step, so that what is drawn differs.
pub(crate) const EPOCH: u64 = (1 << 32) - 1;

/// Some rows of a table.
pub(crate) struct Sharded {
    pub(crate) parameter: Rc<Parameter>,
    /// The original ids of its rows.
    pub(crate) ids: Rc<[u64]>,
    /// Rows on all ranks.
    pub(crate) total: usize,
}

impl Sharded {
    /// Whether this parameter is the table.
    pub(crate) fn is(&self, parameter: &Rc<Parameter>) -> bool {
        Rc::ptr_eq(&self.parameter, parameter)
    }

    /// The length of all gradients, the same on all ranks.
    ///
    /// # Errors
    /// [`Computation::NotFinite`], on all ranks, names the parameter.
    pub(crate) fn gradient_norm(&self, rank: &Rank, all: &[Rc<Parameter>]) -> Result<f64> {
        let others: Vec<Rc<Parameter>> = all.iter().filter(|p| !self.is(p)).cloned().collect();
        let [own, others] = [std::slice::from_ref(&self.parameter), &others].map(gradient_norm);
        let own = own.map_or(f64::NAN, |norm| norm * norm);
        let table = rank.sum(Total::Gradients, &[own]).map_err(|e| Computation::Ranks(Box::new(e)))?[0];
        if !table.is_finite() {
            return Err(Computation::NotFinite { what: format!("the gradient of {}", self.parameter.name()) });
        }
        Ok((table + others?.powi(2)).sqrt())
    }

    /// The same tensors with the rows of this rank alone.
    pub(crate) fn own_rows<'t>(this: Option<&Self>, from: &'t Tensors) -> Cow<'t, Tensors> {
        let rows = |own: &Self| Cow::Owned(from.with_rows(own.parameter.name(), &own.ids, own.total));
        this.map_or(Cow::Borrowed(from), rows)
    }
}

/// Tensors with whole tables, where the rank that leads is, from those of all ranks; `originals` are the ids of all
/// ranks' rows, rank after rank.
pub(crate) fn together(
    rank: &Rank,
    name: &str,
    originals: &[u64],
    own: Tensors,
) -> crate::error::Result<Option<Tensors>> {
    let mut all = own;
    for (name, bytes) in all.parts(name, originals.len()) {
        let parts = rank.gather("checkpoint", bytes)?;
        if rank.leads() {
            all.put_rows(&name, originals, &parts.concat());
        }
    }
    Ok(rank.leads().then_some(all))
}
