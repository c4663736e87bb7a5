//! Gradients of parameters, summed over ranks while backward is still under way.
//!
//! Backward says when the gradient of a parameter is complete. Complete ones are collected in a bucket; a full bucket
//! is sent off at once and its sum is picked up when backward is over. Buckets are cut by the order of the tape, which
//! is the same on every rank, and sums are made in the order of ranks: same bits every time.

use std::rc::Rc;

use graphweft_comm::{Label, Traffic};
use graphweft_parallel::Summing;
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::combine::{Patch, first_columns};
use graphweft_tensor::optim::side_by_side;
use graphweft_tensor::{Matrix, Parameter, Result, Tag};

use crate::ranks::rank::Rank;

/// Bytes after which a bucket is sent: enough to make up for the latency of a message.
const FULL: usize = 1 << 20;

const LABEL: Label = Label { op: "gradients", traffic: Traffic::Gradients, layer: 0 };

/// A gradient on its way to its sum.
struct Gradient {
    parameter: Rc<Parameter>,
    /// What is summed,
    part: Matrix,
    /// which is the first columns of this, where a rank has others to itself.
    whole: Option<Matrix>,
}

/// Where in a row a sum is: so many rows and columns.
struct Place {
    parameter: Rc<Parameter>,
    shape: [usize; 2],
    whole: Option<Matrix>,
}

/// Collects gradients and sums them.
pub(crate) struct Buckets<'a> {
    rank: &'a Rank,
    /// Complete gradients that wait for company.
    open: Vec<Gradient>,
    bytes: usize,
    /// What is in each bucket under way.
    parameters: Vec<Vec<Place>>,
    sums: Vec<Summing>,
}

impl<'a> Buckets<'a> {
    pub(crate) fn new(rank: &'a Rank) -> Self {
        Self { rank, open: Vec::new(), bytes: 0, parameters: Vec::new(), sums: Vec::new() }
    }

    /// The gradient of `parameter` is complete.
    pub(crate) fn add(&mut self, parameter: &Rc<Parameter>) -> Result<()> {
        if self.rank.link().is_none() {
            return Ok(());
        }
        match parameter.take_grad() {
            Some(part) => self.push(Gradient { parameter: Rc::clone(parameter), part, whole: None }),
            None => Ok(()),
        }
    }

    /// The gradient of `parameter` is complete, of which all ranks have the first `shared` columns: only these are
    /// summed.
    pub(crate) fn add_columns(&mut self, parameter: &Rc<Parameter>, shared: usize) -> Result<()> {
        if self.rank.link().is_none() || shared == 0 {
            return Ok(());
        }
        let Some(whole) = parameter.take_grad() else { return Ok(()) };
        let part = first_columns(&whole, shared)?;
        self.push(Gradient { parameter: Rc::clone(parameter), part, whole: Some(whole) })
    }

    fn push(&mut self, gradient: Gradient) -> Result<()> {
        self.bytes += gradient.part.bytes();
        self.open.push(gradient);
        if self.bytes >= FULL { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<()> {
        let gradients = std::mem::take(&mut self.open);
        self.bytes = 0;
        let Some(link) = self.rank.link() else { return Ok(()) };
        let Some(row) = side_by_side(gradients.iter().map(|g| &g.part))? else { return Ok(()) };
        self.sums.push(link.start_sum(LABEL, row)?);
        let place = |Gradient { parameter, part, whole }| {
            let (rows, cols) = part.shape();
            Place { parameter, shape: [rows, cols], whole }
        };
        self.parameters.push(gradients.into_iter().map(place).collect());
        Ok(())
    }

    /// Puts the sums where the optimizer looks for them.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.send()?;
        let rows = Summing::wait_all(self.sums)?;
        self.parameters.into_iter().zip(rows).try_for_each(|(places, row)| hand_out(places, &row))
    }
}

fn hand_out(places: Vec<Place>, row: &Matrix) -> Result<()> {
    let device = row.device();
    let mut at = 0;
    for Place { parameter, shape: [rows, cols], whole } in places {
        let mut sum = device.uninit("gradients", rows, cols, row.dtype(), Tag::Gradients)?;
        device.backend().copy_part(row, at, &mut sum, 0, rows * cols)?;
        at += rows * cols;
        if let Some(mut whole) = whole {
            device.backend().copy_patch(&sum, &mut whole, Patch::columns(rows, 0, 0, cols), Write::Set)?;
            sum = whole;
        }
        // A parameter that was used twice comes twice.
        if let Some(earlier) = parameter.take_grad() {
            device.backend().add(&mut sum, &earlier)?;
        }
        parameter.set_grad(Some(sum));
    }
    Ok(())
}
