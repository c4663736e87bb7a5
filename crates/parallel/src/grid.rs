//! `grid`: nodes × heads. Ranks stand in `nodes` groups of `heads` ranks that follow one another. Between the ranks of
//! a group the group's rows are exchanged for heads ([`Heads`]); between the ranks that have the same heads of
//! different groups, `gather` or `halo` brings the sources. With one group this is `heads` itself, on as many ranks as
//! there are, and nothing else moves.
//!
//! Every rank of a group has the structure of all its rows, collected once.

use std::rc::Rc;

use graphweft_model::GraphOps;
use graphweft_tensor::{Error, Matrix, Result};

use crate::gather::{self, Gather};
use crate::halo::{Cover, Halo};
use crate::heads::{Group, Heads};
use crate::local::Local;
use crate::member::SETUP;
use crate::strategy::{Family, Fewer, Many, Rows, Situation, Spread, shape};

/// The shape of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Groups of ranks that have different nodes.
    pub nodes: usize,
    /// Ranks of a group, which have different heads of the group's nodes.
    pub heads: usize,
    /// What the ranks that have the same heads do.
    pub inside: Inside,
}

/// What is done between groups of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inside {
    /// As `gather`.
    Gather,
    /// As `halo`.
    Halo(Cover),
}

impl Default for Inside {
    fn default() -> Self {
        Self::Halo(Cover::Least)
    }
}

impl Inside {
    fn name(self) -> String {
        match self {
            Self::Gather => gather::Settings.name(),
            Self::Halo(cover) => cover.name(),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let all = [Self::Gather, Self::Halo(Cover::Least), Self::Halo(Cover::Plain)];
        all.into_iter().find(|inside| inside.name() == name)
    }
}

impl Family for Settings {
    const NAME: &'static str = "grid";
    const FORMS: &'static [&'static str] = &["grid:NODESxHEADS", "grid:NODESxHEADS:gather"];
    const ABOUT: &'static str = "groups of ranks exchange rows of nodes, the ranks of a group share heads";
    const USUAL: Option<Self> = None;

    fn parse(settings: &str) -> Option<Self> {
        let ([nodes, heads], inside) = shape(settings)?;
        Some(Self { nodes, heads, inside: inside.map_or(Some(Inside::default()), Inside::parse)? })
    }

    /// Ranks in both directions, and heads for all ranks of a row.
    fn candidates(ranks: usize, shares: usize) -> Vec<Self> {
        let heads = (2..=ranks / 2).filter(|heads| ranks.is_multiple_of(*heads) && *heads <= shares);
        let inside = [Inside::default(), Inside::Gather];
        heads.flat_map(|heads| inside.map(|inside| Self { nodes: ranks / heads, heads, inside })).collect()
    }
}

impl Spread for Settings {
    fn family(&self) -> &'static str {
        Self::NAME
    }

    fn name(&self) -> String {
        let Self { nodes, heads, inside } = self;
        let inside = if *inside == Inside::default() { String::new() } else { format!(":{}", inside.name()) };
        format!("{}:{nodes}x{heads}{inside}", Self::NAME)
    }

    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>> {
        let (&Self { nodes, heads, inside }, Rows { layout, link, edge_features }) = (self, rows);
        if nodes.checked_mul(heads) != Some(link.size()) {
            let problem = format!("a grid of {nodes} × {heads} is not for {} ranks", link.size());
            return Err(Error::Argument { op: "strategy", problem });
        }
        let (group, place) = (link.rank() / heads, link.rank() % heads);
        let across = link.split(&(group * heads..(group + 1) * heads).collect::<Vec<_>>())?;
        let (joined, edges) = layout.joined(&across, SETUP)?;
        let features = edge_features.map(|own| across.all_gather(SETUP, &own, &edges)?.wait_one()).transpose()?;
        let width = features.as_ref().map_or(0, Matrix::cols);
        let inner: Rc<dyn GraphOps> = if nodes == 1 {
            Rc::new(Local::renumbered(link.device(), &joined, features)?)
        } else {
            let along = link.split(&(0..nodes).map(|group| group * heads + place).collect::<Vec<_>>())?;
            match inside {
                Inside::Gather => Rc::new(Gather::new(&joined, &along, features)?),
                Inside::Halo(cover) => Rc::new(Halo::new(&joined, &along, features, cover)?),
            }
        };
        let rows = layout.counts()[group * heads..(group + 1) * heads].into();
        Ok(Rc::new(Heads::new(
            layout,
            link,
            Group { link: across, rows, edges: edges.into(), edge_features: width },
            inner,
        )))
    }

    fn reason(&self, on: &Situation) -> String {
        let inside = if self.inside == Inside::Gather { "all rows of a column" } else { "few rows" };
        let (so, Self { nodes, heads, .. }) = (on.alpha_so(""), self);
        format!("{so}{nodes} groups exchange {inside} and {heads} ranks of a group share {}", on.shares_are)
    }

    fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        if self.inside == Inside::Gather {
            // What was magnified came out up to 1.7 times as large as what a rank holds.
            return Err("what groups that gather would hold is not known".into());
        }
        let groups = many.groups(self.nodes, many.most / self.heads);
        let few = Fewer::groups(Self { nodes: groups, ..*self }, groups, self.nodes);
        Ok(Fewer { ranks: groups * self.heads, ..few })
    }
}
