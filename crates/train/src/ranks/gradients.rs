//! Gradients of parameters, summed over ranks while backward is still under way.
//!
//! Backward says when the gradient of a parameter is complete. Complete ones are collected in a bucket; a full bucket
//! is sent off at once and its sum is picked up when backward is over. Buckets are cut by the order of the tape, which
//! is the same on every rank, and sums are made in the order of ranks: same bits every time.

use std::rc::Rc;

use graphweft_comm::{Label, Traffic};
use graphweft_parallel::Summing;
use graphweft_tensor::optim::side_by_side;
use graphweft_tensor::{Matrix, Parameter, Result, Tag};

use crate::ranks::rank::Rank;

/// Bytes after which a bucket is sent: enough to make up for the latency of a message.
const FULL: usize = 1 << 20;

const LABEL: Label = Label { op: "gradients", traffic: Traffic::Gradients, layer: 0 };

/// Whose gradient is somewhere in a row, and its rows and columns.
type Place = (Rc<Parameter>, (usize, usize));

/// Collects gradients and sums them.
pub(crate) struct Buckets<'a> {
    rank: &'a Rank,
    /// Complete gradients that wait for company.
    open: Vec<(Rc<Parameter>, Matrix)>,
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
        if let Some(gradient) = parameter.take_grad() {
            self.bytes += gradient.bytes();
            self.open.push((Rc::clone(parameter), gradient));
        }
        if self.bytes >= FULL { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<()> {
        let gradients = std::mem::take(&mut self.open);
        self.bytes = 0;
        let Some(link) = self.rank.link() else { return Ok(()) };
        let Some(row) = side_by_side(gradients.iter().map(|(_, g)| g))? else { return Ok(()) };
        self.sums.push(link.start_sum(LABEL, row)?);
        let shape = |(p, g): (Rc<Parameter>, Matrix)| (p, (g.rows(), g.cols()));
        self.parameters.push(gradients.into_iter().map(shape).collect());
        Ok(())
    }

    /// Puts the sums where the optimizer looks for them.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.send()?;
        let rows = Summing::wait_all(self.sums)?;
        self.parameters.iter().zip(rows).try_for_each(|(parameters, row)| hand_out(parameters, &row))
    }
}

fn hand_out(parameters: &[Place], row: &Matrix) -> Result<()> {
    let device = row.device();
    let mut at = 0;
    for (parameter, (rows, cols)) in parameters {
        let mut sum = device.uninit("gradients", *rows, *cols, row.dtype(), Tag::Gradients)?;
        device.backend().copy_part(row, at, &mut sum, 0, rows * cols)?;
        at += rows * cols;
        // A parameter that was used twice comes twice.
        if let Some(earlier) = parameter.take_grad() {
            device.backend().add(&mut sum, &earlier)?;
        }
        parameter.set_grad(Some(sum));
    }
    Ok(())
}
