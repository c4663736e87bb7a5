//! Parameters of which every rank has the rows or columns of its nodes, with their gradients and what the optimizer
//! remembers of them: a table of rows, or the weights of features that are each of one node.
//!
//! Gradients of what is a rank's own are complete where they are: they are not summed over ranks, and each rank moves
//! its own. The length of all gradients is that of the parameters, and columns, which all ranks have, and of the own
//! ones of all. A checkpoint has everything, by the nodes' original order: so it fits any ranks.

use std::borrow::Cow;
use std::rc::Rc;

use graphweft_model::{Network, OwnColumns, Total};
use graphweft_tensor::ops::combine::first_columns;
use graphweft_tensor::optim::gradient_norm;
use graphweft_tensor::{Error as Computation, Matrix, Parameter, Result};

use crate::error::Result as Done;
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::{Cut, Tensors};

/// The epoch of a step: above it there may be the number of the step, so that what is drawn differs.
pub(crate) const EPOCH: u64 = (1 << 32) - 1;

/// What a rank has of some parameters.
pub(crate) struct Sharded {
    pub(crate) parameters: Vec<Rc<Parameter>>,
    /// Rows of them, or columns after those that all ranks have.
    pub(crate) cut: Cut,
    /// Which of all rows or columns they are.
    pub(crate) ids: Rc<[u64]>,
    /// How many all ranks have.
    pub(crate) total: usize,
}

impl Sharded {
    /// The columns that a shard has to itself, where it has some.
    pub(crate) fn of_columns(shard: &Shard, network: &Network) -> Option<Self> {
        let OwnColumns { shared, ids, total } = shard.own_columns.clone()?;
        let parameters = network.parameters().into_iter().filter(|p| p.shared_columns().is_some()).collect();
        Some(Self { parameters, cut: Cut { axis: 1, shared }, ids, total })
    }

    /// Whether this parameter is one of them.
    pub(crate) fn has(&self, parameter: &Rc<Parameter>) -> bool {
        self.parameters.iter().any(|own| Rc::ptr_eq(own, parameter))
    }

    /// Numbers that other ranks have.
    pub(crate) fn elsewhere(&self) -> usize {
        let each = |p: &Rc<Parameter>| if self.cut.axis == 0 { p.value().cols() } else { p.value().rows() };
        (self.total - self.ids.len()) * self.parameters.iter().map(each).sum::<usize>()
    }

    /// The length of all gradients, the same on all ranks.
    ///
    /// # Errors
    /// [`Computation::NotFinite`], on all ranks, names the parameter.
    pub(crate) fn gradient_norm(&self, rank: &Rank, all: &[Rc<Parameter>]) -> Result<f64> {
        let (mut own, mut shared) = (0.0, 0.0);
        for gradient in self.parameters.iter().filter_map(|p| p.grad()) {
            let all = square_sum(&gradient)?;
            let common = match self.cut.shared {
                0 => 0.0,
                count => square_sum(&first_columns(&gradient, count)?)?,
            };
            // What is not finite stays so.
            let rest = all - common;
            own += if rest < 0.0 { 0.0 } else { rest };
            shared += common;
        }
        let own = rank.sum(Total::Gradients, &[own]).map_err(|e| Computation::Ranks(Box::new(e)))?[0];
        if !(own + shared).is_finite() {
            let names: Vec<&str> = self.parameters.iter().map(|p| p.name()).collect();
            return Err(Computation::NotFinite { what: format!("the gradient of {}", names.join(" or ")) });
        }
        let others: Vec<Rc<Parameter>> = all.iter().filter(|p| !self.has(p)).cloned().collect();
        Ok((own + shared + gradient_norm(&others)?.powi(2)).sqrt())
    }

    /// Of whole tensors what this rank has.
    pub(crate) fn own<'t>(this: Option<&Self>, from: &'t Tensors) -> Cow<'t, Tensors> {
        let Some(this) = this else { return Cow::Borrowed(from) };
        let mut own = from.clone();
        for name in this.names(from) {
            own.cut(&name, this.cut, &this.ids, this.total);
        }
        Cow::Owned(own)
    }

    /// Whole tensors, where the rank that leads is, from those of all ranks.
    pub(crate) fn whole(&self, rank: &Rank, own: Tensors) -> Done<Option<Tensors>> {
        let ids = rank.gather("checkpoint", bytemuck::cast_slice(&self.ids).to_vec())?;
        let ids: Vec<Vec<u64>> = ids.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect();
        let mut all = own;
        for name in self.names(&all) {
            let parts = rank.gather("checkpoint", all.own_bytes(&name, self.cut))?;
            if rank.leads() {
                all.put_together(&name, self.cut, &ids, &parts);
            }
        }
        Ok(rank.leads().then_some(all))
    }

    /// Names of tensors that are the parameters, or what the optimizer remembers of them.
    fn names(&self, of: &Tensors) -> Vec<String> {
        let is_one = |name: &&str| {
            let after = |p: &Rc<Parameter>| name.strip_prefix(p.name()).map(str::to_string);
            self.parameters.iter().filter_map(after).any(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        of.names().filter(is_one).map(str::to_string).collect()
    }
}

fn square_sum(m: &Matrix) -> Result<f64> {
    Ok(m.device().backend().square_sums(&[m])?.iter().sum())
}
