//! The loss of Kipf and Welling's GAE: of all pairs of nodes, and of each node with itself, which counts as a link.
//!
//! Of N² pairs E are links, which count w = (N² − E)/E each, so that both kinds count alike; the sum is divided by 2(N²
//! − E). A rank takes its own rows as one end, some after others, and computes with them the scores of a block and
//! their slopes at once: what is kept are the slopes of rows. Σ log(1 + e^s) goes over all pairs; what links differ by
//! is added from their list.

use std::rc::Rc;

use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::ops::head_dot::head_dot;
use graphweft_tensor::ops::loss::{LossRows, binary_cross_entropy};
use graphweft_tensor::ops::matmul::times_rows;
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::rows::{RowIndex, gather};
use graphweft_tensor::{DType, Matrix, Tag, Tape, Var, one_output};

use super::Links;
use crate::error::Result;

/// Bytes of the scores of a block.
const BLOCK: usize = 1 << 26;

/// The part of the loss that this rank has: `own` are its rows, `all` those of all ranks.
pub(super) fn all_pairs(tape: &mut Tape, links: &Links, own: &Var, all: &Var) -> Result<Var> {
    let nodes = links.nodes as f64;
    let count = links.trained.count() as f64 + nodes;
    let (rest, scaled) = (nodes * nodes - count, 2.0 * (nodes * nodes - count));
    let everything = over_all(tape, own, all, scaled)?;
    let [as_links, as_others] = over_links(tape, links, own, all, scaled)?;
    let links = combine(tape, rest / count, &as_links, -1.0, &as_others)?;
    Ok(combine(tape, 1.0, &everything, 1.0, &links)?)
}

/// Σ log(1 + e^−s) and Σ log(1 + e^s) over the links that lead from this rank's nodes, and these with themselves.
fn over_links(tape: &mut Tape, links: &Links, own: &Var, all: &Var, total: f64) -> Result<[Var; 2]> {
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for (row, id) in (0..).zip(&*links.own_ids) {
        let partners = links.trained.partners(*id, 0, graphweft_model::decoders::Missing::Tail);
        let partners = partners.iter().map(|[.., node]| u64::from(*node)).filter(|node| node != id).chain([*id]);
        partners.for_each(|node| {
            from.push(row);
            to.push(links.places.of(node));
        });
    }
    let (device, pairs) = (tape.device().clone(), from.len());
    let mut rows = |x: &Var, index: Vec<u32>| -> Result<Var> {
        let index = Rc::new(RowIndex::new(&device, x.value().rows(), index)?);
        Ok(gather(tape, x, &index)?)
    };
    let (from, to) = (rows(own, from)?, rows(all, to)?);
    let both = product(tape, &from, 0.0, &to)?;
    let dtype = own.value().dtype();
    let constant = |rows, cols, value: f64| -> Result<Matrix> {
        Ok(device.convert("links", &device.upload(rows, cols, &vec![value; rows * cols], Tag::Workspace)?, dtype)?)
    };
    let ones = tape.constant(constant(1, own.value().cols(), 1.0)?);
    let [scores] = head_dot(tape, &both, [&ones])?;
    let counted = LossRows::new((0..pairs as u32).collect::<Vec<_>>())?;
    let mut loss = |target| -> Result<Var> {
        Ok(binary_cross_entropy(tape, &scores, &constant(pairs, 1, target)?, &counted, total)?)
    };
    Ok([loss(1.0)?, loss(0.0)?])
}

/// Σ log(1 + e^s) of each of this rank's rows with each of all, divided by `total`.
fn over_all(tape: &mut Tape, own: &Var, all: &Var, total: f64) -> Result<Var> {
    let device = tape.device().clone();
    let ((rows, cols), dtype) = (own.value().shape(), own.value().dtype());
    let lot = (BLOCK / (dtype.size() * all.value().rows().max(1))).clamp(1, rows.max(1));
    let mut slopes = device.zeros("links", rows, cols, dtype, Tag::Activations)?;
    let mut of_all = device.zeros("links", all.value().rows(), cols, dtype, Tag::Activations)?;
    let mut loss = device.zeros("links", 1, 1, dtype, Tag::Activations)?;
    for first in (0..rows).step_by(lot) {
        let count = lot.min(rows - first);
        let mut block = device.uninit("links", count, cols, dtype, Tag::Activations)?;
        device.backend().copy_part(own.value(), first * cols, &mut block, 0, count * cols)?;
        let mut inner = Tape::new(&device);
        let (block, others) = (inner.leaf(block), inner.leaf(all.value().clone()));
        let scores = times_rows(&mut inner, &block, &others)?;
        let none = device.zeros("links", count, all.value().rows(), dtype, Tag::Workspace)?;
        let counted = LossRows::new((0..count as u32).collect::<Vec<_>>())?;
        let part = binary_cross_entropy(&mut inner, &scores, &none, &counted, total)?;
        drop((scores, none));
        device.backend().add(&mut loss, part.value())?;
        inner.start_from(&part);
        drop(part);
        let found = inner.backward(Vec::new(), &[&block, &others], |_| Ok(()))?;
        let [Some(slope), Some(of_others)] = &found[..] else { continue };
        device.backend().copy_part(slope, 0, &mut slopes, first * cols, count * cols)?;
        device.backend().add(&mut of_all, of_others)?;
    }
    Ok(tape.push(&[own, all], loss, || {
        one_output(move |dy, grads| {
            let device = grads.device().clone();
            let factor = device.convert("links", &dy, DType::F64)?.to_vec::<f64>()?[0];
            for (k, mut slopes) in [slopes, of_all].into_iter().enumerate() {
                device.backend().scale(factor, &mut slopes)?;
                grads.put(k, slopes)?;
            }
            Ok(())
        })
    }))
}
