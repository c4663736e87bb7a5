//! What is done to rows on their way: codecs, while a rank learns, and only then.
//!
//! A [`Link`](crate::Link) that was given a codec uses it between [`Learning`]'s beginning and end. Outside of that, as
//! when a model is scored, rows travel as they are, and so do always the states of a softmax, log-sum-exps and whatever
//! is agreed on. Which random numbers a row is coded with follows from seed, epoch, layer, operation, direction and its
//! original id.

use std::cell::Cell;
use std::rc::Rc;

use graphweft_comm::Label;
use graphweft_tensor::codec::{Codec, Draw, decode, encode};
use graphweft_tensor::{DType, Matrix, Result, Tag};

/// How rows are coded in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    /// At first, or always.
    pub codec: Codec,
    /// If columns are drawn, one of so many as falls evenly until it is 1, which is all, in this epoch.
    pub falling: Option<u64>,
    /// What random numbers are drawn with.
    pub seed: u64,
}

impl Coding {
    /// The codec of an epoch, from 1.
    fn of(&self, epoch: u64) -> Codec {
        match (self.codec, self.falling) {
            (Codec::Columns(one_of), Some(last)) => {
                let left = last.saturating_sub(epoch) as f64 / last.saturating_sub(1).max(1) as f64;
                Codec::Columns(1 + (f64::from(one_of - 1) * left).round() as u32)
            }
            (codec, _) => codec,
        }
    }
}

/// How rows are coded, and the epoch if they are now.
pub(crate) struct Wire {
    coding: Coding,
    epoch: Cell<Option<u64>>,
}

/// An epoch in which a rank learns; it ends when this is dropped.
pub struct Learning(Option<Rc<Wire>>);

impl Drop for Learning {
    fn drop(&mut self) {
        if let Some(wire) = &self.0 {
            wire.epoch.set(None);
        }
    }
}

impl Learning {
    pub(crate) fn begin(wire: Option<&Rc<Wire>>, epoch: u64) -> Self {
        if let Some(wire) = wire {
            wire.epoch.set(Some(epoch));
        }
        Self(wire.cloned())
    }
}

/// Which way rows go: what they are coded with differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To those that compute with them.
    There,
    /// What was made of them, to those that have them.
    Back,
}

/// Rows for other ranks, with the original ids of their nodes.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) rows: &'a Matrix,
    pub(crate) ids: &'a [u64],
    pub(crate) way: Way,
}

impl Wire {
    pub(crate) fn new(coding: Coding) -> Self {
        Self { coding, epoch: Cell::new(None) }
    }

    /// How rows are coded now, if they are.
    pub(crate) fn coder(&self, label: Label, way: Way, rank: usize) -> Option<Coder> {
        let epoch = self.epoch.get()?;
        let codec = self.coding.of(epoch);
        let op = label.op.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        // Gradients of a row that several ranks have are coded by each with numbers of its own; columns are drawn for
        // all alike, as those who receive them do not ask who sent them.
        let stream = match (way, codec) {
            (Way::There, _) => op << 1,
            (Way::Back, Codec::Columns(_)) => op << 1 | 1,
            (Way::Back, _) => (op ^ (rank as u32).wrapping_mul(0x9e37_79b9)) << 1 | 1,
        };
        Some(Coder { codec, draw: Draw::new(self.coding.seed, epoch, label.layer, stream) })
    }
}

/// A codec with the numbers of an exchange.
#[derive(Clone, Copy)]
pub(crate) struct Coder {
    codec: Codec,
    draw: Draw,
}

/// What coded rows were before.
#[derive(Clone, Copy)]
pub(crate) struct Decoding {
    pub(crate) coder: Coder,
    pub(crate) op: &'static str,
    pub(crate) cols: usize,
    pub(crate) dtype: DType,
    /// Rows behind those that come.
    pub(crate) more: usize,
}

impl Coder {
    pub(crate) fn encode(&self, out: Outgoing<'_>) -> Result<Matrix> {
        encode(self.codec, self.draw, out.rows, out.ids)
    }
}

impl Decoding {
    pub(crate) fn decode(&self, coded: &Matrix) -> Result<Matrix> {
        let rows = coded.rows() + self.more;
        let mut plain = coded.device().uninit(self.op, rows, self.cols, self.dtype, Tag::Exchange)?;
        decode(self.coder.codec, self.coder.draw, coded, &mut plain)?;
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fall_to_all_of_them() {
        let coding = Coding { codec: Codec::Columns(9), falling: Some(5), seed: 0 };
        let of = |epoch| coding.of(epoch);
        assert_eq!([1, 2, 3, 4, 5, 6].map(of), [9, 7, 5, 3, 1, 1].map(Codec::Columns));
        assert_eq!(Coding { falling: None, ..coding }.of(4), Codec::Columns(9));
        assert_eq!(Coding { falling: Some(1), ..coding }.of(1), Codec::Columns(1));
        assert_eq!(Coding { codec: Codec::Bf16, ..coding }.of(4), Codec::Bf16);
    }
}
