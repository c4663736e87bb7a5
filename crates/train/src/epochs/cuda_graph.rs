//! When a step is recorded by the device, and what is done again.
//!
//! A step of the same rows is the same work in every epoch, but for dropout and the rate of learning. On a small graph
//! a GPU waits for the host, which tells it a few hundred kernels; so there, after steps of the usual kind, one is
//! [recorded](graphweft_tensor::Device::capture) and done again from then on. It takes memory that nobody else can use
//! meanwhile: large graphs, whose kernels take longer than telling them does, are left alone.

use std::rc::{Rc, Weak};

use graphweft_model::GraphOps;
use graphweft_tensor::ops::loss::LossRows;
use graphweft_tensor::{Captured, Device, Parameter};

use crate::epochs::learner::Fixed;
use crate::ranks::shard::Shard;

/// Steps before one is recorded: the first compiles kernels, the second finds all memory in the pool.
const BEFORE: u32 = 2;
/// A step that needs more bytes is not recorded.
pub(crate) const MOST: u64 = 1 << 30;
/// Recordings that may fail (for want of idle memory, say) before none is tried again.
const ATTEMPTS: u32 = 3;

/// What a step depends on, beside parameters and the epoch.
struct CapturedFor {
    ops: Weak<dyn GraphOps>,
    rows: LossRows,
    total: f64,
    phase: u64,
}

impl CapturedFor {
    fn is(&self, shard: &Shard, fixed: Fixed<'_>, phase: u64) -> bool {
        Weak::ptr_eq(&self.ops, &Rc::downgrade(&shard.ops))
            && self.rows.is(fixed.rows)
            && self.total == fixed.total
            && self.phase == phase
    }
}

/// A whole step as the device has it, forward, back and down, and the parameters that it moves.
pub(crate) type CapturedStep = Captured<Vec<Rc<Parameter>>>;

/// What was recorded, or is about to be.
#[derive(Default)]
pub(crate) struct CudaGraph {
    captured_for: Option<CapturedFor>,
    steps: u32,
    failures: u32,
    /// Why the last recording failed, until somebody was told.
    failure: Option<String>,
    captured: Option<CapturedStep>,
}

impl CudaGraph {
    /// Notes that a step is next. `true` if it should be recorded first.
    pub(crate) fn expects(&mut self, device: &Device, shard: &Shard, fixed: Fixed<'_>, phase: u64) -> bool {
        if !self.captured_for.as_ref().is_some_and(|captured_for| captured_for.is(shard, fixed, phase)) {
            let (ops, rows, total) = (Rc::downgrade(&shard.ops), fixed.rows.clone(), fixed.total);
            *self = Self {
                captured_for: Some(CapturedFor { ops, rows, total, phase }),
                failures: self.failures,
                ..Self::default()
            };
        }
        self.steps += 1;
        self.captured.is_none() && self.steps > BEFORE && self.hopes(device)
    }

    fn hopes(&self, device: &Device) -> bool {
        self.failures < ATTEMPTS && device.can_capture() && device.ledger().peak().total() <= MOST
    }

    /// What [was expected](CudaGraph::expects) to be recorded, or why it could not be.
    pub(crate) fn keep(&mut self, captured: Result<Option<CapturedStep>, String>) {
        self.failures += u32::from(!matches!(captured, Ok(Some(_))));
        match captured {
            Ok(captured) => self.captured = captured,
            Err(why) => self.failure = Some(why),
        }
    }

    /// Why steps are not recorded, once, when no more attempts are made.
    pub(crate) fn refusal(&mut self) -> Option<String> {
        if self.failures < ATTEMPTS { None } else { self.failure.take() }
    }

    pub(crate) fn captured(&self) -> Option<&CapturedStep> {
        self.captured.as_ref()
    }

    /// Whether the next step is done as the last one was.
    pub(crate) fn is_settled(&self, device: &Device) -> bool {
        (self.captured.is_some() && self.steps > BEFORE + 1) || !self.hopes(device)
    }
}
