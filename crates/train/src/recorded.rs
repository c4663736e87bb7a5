//! When a step is recorded by the device, and what is done again.
//!
//! A step of the same rows is the same work in every epoch, but for dropout and the rate of learning. On a small graph a GPU waits for the host, which tells
//! it a few hundred kernels; so there, after steps of the usual kind, one is [recorded](graphweft_tensor::Device::record) and done
//! again from then on. It takes memory that nobody else can use meanwhile: large graphs, whose kernels take longer than telling
//! them does, are left alone.

use std::rc::{Rc, Weak};

use graphweft_model::GraphOps;
use graphweft_tensor::ops::loss::LossRows;
use graphweft_tensor::{Device, Parameter, Recording};

use crate::shard::{Lesson, Shard};

/// Steps before one is recorded: the first compiles kernels, the second finds all memory in the pool.
const BEFORE: u32 = 2;
/// A step that needs more bytes is not recorded.
pub(crate) const MOST: u64 = 1 << 30;
/// Recordings that may fail (for want of idle memory, say) before none is tried again.
const ATTEMPTS: u32 = 3;

/// What a step depends on, beside parameters and the epoch.
struct Scene {
    ops: Weak<dyn GraphOps>,
    rows: LossRows,
    total: f64,
    phase: u64,
}

impl Scene {
    fn is(&self, shard: &Shard, lesson: &Lesson, phase: u64) -> bool {
        Weak::ptr_eq(&self.ops, &Rc::downgrade(&shard.ops))
            && self.rows.is(lesson.rows())
            && self.total == lesson.total()
            && self.phase == phase
    }
}

/// A whole step as the device has it, forward, back and down, and the parameters that it moves.
pub(crate) type Whole = Recording<Vec<Rc<Parameter>>>;

/// What was recorded, or is about to be.
#[derive(Default)]
pub(crate) struct Recorded {
    scene: Option<Scene>,
    steps: u32,
    failures: u32,
    /// Why the last recording failed, until somebody was told.
    failure: Option<String>,
    whole: Option<Whole>,
}

impl Recorded {
    /// Notes that a step is next. `true` if it should be recorded first.
    pub(crate) fn expects(&mut self, device: &Device, shard: &Shard, lesson: &Lesson, phase: u64) -> bool {
        if !self.scene.as_ref().is_some_and(|scene| scene.is(shard, lesson, phase)) {
            let (ops, rows, total) = (Rc::downgrade(&shard.ops), lesson.rows().clone(), lesson.total());
            *self = Self { scene: Some(Scene { ops, rows, total, phase }), failures: self.failures, ..Self::default() };
        }
        self.steps += 1;
        self.whole.is_none() && self.steps > BEFORE && self.hopes(device)
    }

    fn hopes(&self, device: &Device) -> bool {
        self.failures < ATTEMPTS && device.records() && device.ledger().peak().total() <= MOST
    }

    /// What [was expected](Recorded::expects) to be recorded, or why it could not be.
    pub(crate) fn keep(&mut self, whole: Result<Option<Whole>, String>) {
        self.failures += u32::from(!matches!(whole, Ok(Some(_))));
        match whole {
            Ok(whole) => self.whole = whole,
            Err(why) => self.failure = Some(why),
        }
    }

    /// Why steps are not recorded, once, when no more attempts are made.
    pub(crate) fn refusal(&mut self) -> Option<String> {
        if self.failures < ATTEMPTS { None } else { self.failure.take() }
    }

    pub(crate) fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    /// Whether the next step is done as the last one was.
    pub(crate) fn is_settled(&self, device: &Device) -> bool {
        (self.whole.is_some() && self.steps > BEFORE + 1) || !self.hopes(device)
    }
}
