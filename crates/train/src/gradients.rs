//! Gradients of parameters, summed over ranks while backward is still under way.
//!
//! Backward says when the gradient of a parameter is complete. Complete ones are collected in a bucket; a full bucket is sent
//! off at once and its sum is picked up when backward is over. Buckets are cut by the order of the tape, which is the same on
//! every rank, and sums are made in the order of ranks: same bits every time.

use std::rc::Rc;

use graphweft_comm::{Label, Traffic};
use graphweft_parallel::Summing;
use graphweft_tensor::{DType, Device, Matrix, Parameter, Result, Tag};

use crate::shard::Shard;

/// Bytes after which a bucket is sent: enough to make up for the latency of a message.
const FULL: usize = 1 << 20;

const LABEL: Label = Label { op: "gradients", traffic: Traffic::Gradients, layer: 0 };

/// Whose gradient is somewhere in a row, and its rows and columns.
type Place = (Rc<Parameter>, (usize, usize));

/// Collects gradients and sums them.
pub(crate) struct Buckets<'a> {
    shard: &'a Shard,
    /// Complete gradients that wait for company.
    open: Vec<(Rc<Parameter>, Matrix)>,
    bytes: usize,
    /// What is in each bucket under way.
    parameters: Vec<Vec<Place>>,
    sums: Vec<Summing>,
}

impl<'a> Buckets<'a> {
    pub(crate) fn new(shard: &'a Shard) -> Self {
        Self { shard, open: Vec::new(), bytes: 0, parameters: Vec::new(), sums: Vec::new() }
    }

    /// The gradient of `parameter` is complete.
    pub(crate) fn add(&mut self, parameter: &Rc<Parameter>) -> Result<()> {
        if self.shard.rank.link().is_none() {
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
        let Some(dtype) = gradients.first().map(|(_, g)| g.dtype()) else { return Ok(()) };
        let Some(link) = self.shard.rank.link() else { return Ok(()) };
        let row = side_by_side(self.shard.device(), &gradients, dtype)?;
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

/// All gradients in one row, on their device.
fn side_by_side(device: &Device, gradients: &[(Rc<Parameter>, Matrix)], dtype: DType) -> Result<Matrix> {
    let size = |g: &Matrix| g.rows() * g.cols();
    let total = gradients.iter().map(|(_, g)| size(g)).sum();
    let mut row = device.uninit("gradients", 1, total, dtype, Tag::Gradients)?;
    let mut at = 0;
    for (_, g) in gradients {
        device.backend().copy_part(g, 0, &mut row, at, size(g))?;
        at += size(g);
    }
    Ok(row)
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
