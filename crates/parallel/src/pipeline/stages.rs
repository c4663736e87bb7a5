//! `pipeline` by name: how many stages, and what the ranks of one do together.

use std::rc::Rc;

use graphweft_model::GraphOps;
use graphweft_tensor::Result;

use crate::halo::Cover;
use crate::isolated::all_rows;
use crate::strategy::{Family, Fewer, Many, Rows, Situation, Spread, Strategy, shape};
use crate::{gather, heads, ring};

/// The shape of a pipeline that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Unset: a stage for every rank.
    pub shape: Option<Stages>,
}

/// The shape of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stages {
    /// How many.
    pub count: usize,
    /// Ranks that share one.
    pub ways: usize,
    /// What these do together.
    pub within: Within,
}

impl Stages {
    /// Those of a pipeline on so many ranks.
    pub fn of(shape: Option<Self>, ranks: usize) -> Self {
        shape.unwrap_or(Self { count: ranks, ways: 1, within: Within::default() })
    }
}

/// What the ranks of a stage do together: one of the exact strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Within {
    /// As `gather`.
    Gather,
    /// As `halo`.
    Halo(Cover),
    /// As `heads`.
    Heads,
    /// As `ring`.
    Ring(ring::Settings),
}

impl Default for Within {
    fn default() -> Self {
        Self::Halo(Cover::Least)
    }
}

impl From<Within> for Strategy {
    fn from(within: Within) -> Self {
        match within {
            Within::Gather => gather::Settings.into(),
            Within::Halo(cover) => cover.into(),
            Within::Heads => heads::Settings.into(),
            Within::Ring(ring) => ring.into(),
        }
    }
}

impl TryFrom<Strategy> for Within {
    type Error = Strategy;

    fn try_from(strategy: Strategy) -> std::result::Result<Self, Strategy> {
        match strategy {
            Strategy::Gather(_) => Ok(Self::Gather),
            Strategy::Halo(cover) => Ok(Self::Halo(cover)),
            Strategy::Heads(_) => Ok(Self::Heads),
            Strategy::Ring(ring) => Ok(Self::Ring(ring)),
            other => Err(other),
        }
    }
}

impl Family for Settings {
    const NAME: &'static str = "pipeline";
    const FORMS: &'static [&'static str] = &["pipeline", "pipeline:STAGESxWAYS", "pipeline:STAGESxWAYS:gather"];
    const ABOUT: &'static str = "approximate: ranks share layers, and chunks of the graph pass through them";
    const USUAL: Option<Self> = Some(Self { shape: None });

    fn parse(settings: &str) -> Option<Self> {
        let ([count, ways], within) = shape(settings)?;
        let within = match within {
            Some(name) => Within::try_from(name.parse::<Strategy>().ok()?).ok()?,
            None => Within::default(),
        };
        Some(Self { shape: Some(Stages { count, ways, within }) })
    }

    /// A stage for each rank, and stages that several share.
    ///
    /// Bubbles, rows that chunks look at beside their own, and states between stages need no formula: a rehearsal has
    /// them.
    fn candidates(ranks: usize, _: usize) -> Vec<Self> {
        let shared = (2..=ranks / 2).filter(|ways| ranks.is_multiple_of(*ways));
        let shared = shared.map(|ways| Some(Stages { count: ranks / ways, ways, within: Within::default() }));
        std::iter::once(None).chain(shared).filter(|_| ranks > 1).map(|shape| Self { shape }).collect()
    }
}

impl Spread for Settings {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn name(&self) -> String {
        let Some(Stages { count, ways, within }) = self.shape else { return Self::NAME.into() };
        let within = if within == Within::default() { String::new() } else { format!(":{}", Strategy::from(within)) };
        format!("{}:{count}x{ways}{within}", Self::NAME)
    }

    fn is_exact(&self) -> bool {
        false
    }

    /// All rows at once, for scores of a model that was trained.
    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        all_rows(rows)
    }

    fn reason(&self, _: &Situation) -> String {
        "ranks share layers, and chunks of the graph pass through them".into()
    }

    fn on_fewer(&self, _: &Many<'_>) -> std::result::Result<Fewer, String> {
        Err("pipelines are not simulated".into())
    }
}
