//! The strategies by name: one table, and what each says of itself.
//!
//! A strategy is its file and its line in the table below. The file has its settings, such as the depth of `ring:2`.
//! They say how they are written ([`Family`]), why they are a good choice, how a simulation has them on fewer ranks,
//! and they make the operations of a rank ([`Spread`]). Names, help texts, candidates of the planner, explanations and
//! tests all go through the table; nothing else lists strategies.
//!
//! A strategy of one's own needs no change of this crate: whatever implements [`Spread`] is one, as [`Strategy::own`].
//! It has no name that could be read, so it is handed over where others are named.
//!
//! All but those that are called approximate compute the same function.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::str::FromStr;

use graphweft_model::GraphOps;
use graphweft_tensor::{Error, Matrix, Result};
use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::link::Link;
use crate::{batches, gather, grid, halo, heads, isolated, local, pipeline, ring};

/// The rows of one rank, of which a strategy makes operations.
#[derive(Clone)]
pub struct Rows<'a> {
    /// Who has which rows.
    pub layout: &'a Layout,
    /// The other ranks.
    pub link: &'a Link,
    /// A row per edge into this rank's rows, in the order of the layout.
    pub edge_features: Option<Matrix>,
}

/// What a strategy is chosen for.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Ranks.
    pub ranks: usize,
    /// Rows of others that are needed over the number of nodes, where that is known.
    pub alpha: Option<f64>,
    /// What ranks can share without moving nodes, and what it is called.
    pub shares: usize,
    /// Heads or columns.
    pub shares_are: &'static str,
}

impl Situation {
    /// The beginning of a sentence that goes on with what follows from α.
    pub fn alpha_so(&self, is: &str) -> String {
        self.alpha.map_or(String::new(), |alpha| format!("α = {alpha:.2}{is}, so "))
    }
}

/// More ranks than a simulation rehearses.
pub struct Many<'a> {
    /// How many.
    pub ranks: usize,
    /// How many it rehearses where α asks for no more.
    pub most: usize,
    /// α if the nodes are in so many groups.
    pub alpha: &'a dyn Fn(usize) -> f64,
}

impl Many<'_> {
    /// Groups that stand for `of` groups: at most `most`, unless α needs more of them. A group cannot need more than
    /// all rows of all others, nor does it need all of any.
    pub fn groups(&self, of: usize, most: usize) -> usize {
        of.min(most.max((self.alpha)(of).ceil() as usize + 2))
    }
}

/// How a strategy on many ranks is rehearsed by few.
pub struct Fewer {
    /// What they do.
    pub strategy: Strategy,
    /// How many they are.
    pub ranks: usize,
    /// Of these, groups that have nodes of their own.
    pub groups: usize,
    /// Of those in the real thing.
    pub of: usize,
    /// Whether a rank has the rows of all: what is large goes in several rounds, whose number depends on it.
    pub gathers: bool,
    /// Whether there is a step for each other rank.
    pub in_turn: bool,
}

impl Fewer {
    /// `groups` ranks with rows of their own for `of`.
    pub fn groups(strategy: impl Into<Strategy>, groups: usize, of: usize) -> Self {
        Self { strategy: strategy.into(), ranks: groups, groups, of, gathers: false, in_turn: false }
    }

    /// As many ranks as there are, all of which work on all nodes.
    pub fn whole(strategy: impl Into<Strategy>, ranks: usize) -> Self {
        Self { ranks, ..Self::groups(strategy, 1, 1) }
    }
}

/// A strategy with its settings.
pub trait Spread: fmt::Debug + Send + Sync {
    /// What all have that differ in settings alone.
    fn family(&self) -> &'static str;

    /// As users write it: the family, and settings behind a colon where these are not the usual ones.
    fn name(&self) -> String {
        self.family().into()
    }

    /// Whether it computes the same function as one rank would.
    fn is_exact(&self) -> bool {
        true
    }

    /// This rank's operations.
    ///
    /// # Errors
    /// If it is not for this number of ranks, or ranks could not agree.
    fn ops(&self, rows: Rows<'_>) -> Result<Rc<dyn GraphOps>>;

    /// Why it is the best choice, where it is: what moves, and why that is little.
    fn reason(&self, on: &Situation) -> String;

    /// How it is simulated.
    ///
    /// # Errors
    /// Why it is not, in words.
    fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        let _ = many;
        Err(format!("{} is not simulated", self.family()))
    }

    /// Whether it makes use of structure that a graph made for a simulation does not have.
    fn needs_structure(&self) -> bool {
        false
    }
}

/// The family of a strategy without settings: its name, what moves between ranks, and what the planner tries on so
/// many ranks if that is not this strategy on any.
macro_rules! no_settings {
    ($name:literal, $about:literal $(, $candidates:expr)?) => {
        #[doc = concat!("`", $name, "` has no settings.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct Settings;

        impl $crate::strategy::Family for Settings {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const USUAL: Option<Self> = Some(Self);

            $(fn candidates(ranks: usize, _: usize) -> Vec<Self> {
                $candidates(ranks)
            })?
        }
    };
}
pub(crate) use no_settings;

/// How users write a strategy, and which of its settings are worth trying.
pub trait Family: Spread + Copy + Into<Strategy> {
    /// Its name, without settings.
    const NAME: &'static str;

    /// Every way to write it.
    const FORMS: &'static [&'static str] = &[Self::NAME];

    /// What moves between ranks, in one sentence.
    const ABOUT: &'static str;

    /// What the name alone means, if that means anything.
    const USUAL: Option<Self>;

    /// The settings behind the name and a colon, if these can be read.
    fn parse(settings: &str) -> Option<Self> {
        let _ = settings;
        None
    }

    /// What the planner tries on so many ranks, for a model whose operations over the graph can be shared by `shares`
    /// of them: heads of attention, or columns of a sum.
    fn candidates(ranks: usize, shares: usize) -> Vec<Self> {
        let _ = shares;
        Self::USUAL.into_iter().filter(|_| ranks > 1).collect()
    }
}

/// A line of the table.
#[derive(Clone, Copy)]
pub struct Listed {
    /// Its name, without settings.
    pub name: &'static str,
    /// Every way to write it.
    pub forms: &'static [&'static str],
    /// What moves between ranks, in one sentence.
    pub about: &'static str,
    is_exact: fn() -> bool,
    parse: fn(Option<&str>) -> Option<Strategy>,
    candidates: fn(usize, usize) -> Vec<Strategy>,
}

impl Listed {
    const fn of<F: Family>() -> Self {
        Self {
            name: F::NAME,
            forms: F::FORMS,
            about: F::ABOUT,
            is_exact: || F::USUAL.is_none_or(|usual| usual.is_exact()),
            parse: |settings| settings.map_or(F::USUAL, F::parse).map(Into::into),
            candidates: |ranks, shares| F::candidates(ranks, shares).into_iter().map(Into::into).collect(),
        }
    }

    /// Whether it computes the same function as one rank would, whatever the settings.
    pub fn is_exact(&self) -> bool {
        (self.is_exact)()
    }

    /// What the planner tries: see [`Family::candidates`].
    pub fn candidates(&self, ranks: usize, shares: usize) -> Vec<Strategy> {
        (self.candidates)(ranks, shares)
    }
}

/// Makes the type of all strategies and the table.
macro_rules! strategies {
    ($($(#[$doc:meta])* $variant:ident($settings:ty),)*) => {
        /// How operations over the graph are spread over ranks.
        ///
        /// ```
        /// use graphweft_parallel::Strategy;
        /// let strategy: Strategy = "grid:2x4:gather".parse()?;
        /// assert_eq!(strategy.to_string(), "grid:2x4:gather");
        /// # Ok::<(), graphweft_tensor::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum Strategy {
            $($(#[$doc])* $variant($settings),)*
            /// One from outside.
            Own(Own),
        }

        $(impl From<$settings> for Strategy {
            fn from(settings: $settings) -> Self {
                Self::$variant(settings)
            }
        })*

        impl Strategy {
            /// All that have a name, in the order in which users see them.
            pub const TABLE: &'static [Listed] = &[$(Listed::of::<$settings>(),)*];

            fn spread(&self) -> &dyn Spread {
                match self {
                    $(Self::$variant(settings) => settings,)*
                    Self::Own(own) => own.0,
                }
            }
        }
    };
}

strategies! {
    /// One rank that has every row.
    Local(local::Settings),
    /// All rows of the sources' operand on every rank.
    Gather(gather::Settings),
    /// What cut edges need, and nothing else.
    Halo(halo::Cover),
    /// All rows on every rank, for some of the heads.
    Heads(heads::Settings),
    /// One rank's rows at a time.
    Ring(ring::Settings),
    /// Nodes × heads.
    Grid(grid::Settings),
    /// Approximate: layers in stages, the graph in [chunks](crate::Pipeline) that pass through them.
    Pipeline(pipeline::Settings),
    /// Approximate: each rank learns from pieces of its own, and only gradients move.
    Isolated(isolated::Settings),
    /// Whole graphs, some of every batch on each rank.
    Batches(batches::Settings),
}

/// A strategy from outside. Two are the same if they have the same name.
#[derive(Clone, Copy, Debug)]
pub struct Own(&'static dyn Spread);

impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for Own {}

impl Hash for Own {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

impl Strategy {
    /// One from outside: a static, so that it can be handed to every rank.
    pub fn own(strategy: &'static dyn Spread) -> Self {
        Self::Own(Own(strategy))
    }

    /// What may be asked for.
    pub fn names() -> String {
        Self::TABLE.iter().flat_map(|listed| listed.forms).copied().collect::<Vec<_>>().join(", ")
    }

    /// What all have that differ in settings alone: `ring` of `ring:2`.
    pub fn family(&self) -> &'static str {
        self.spread().family()
    }

    /// Whether it computes the same function as one rank would.
    pub fn is_exact(&self) -> bool {
        self.spread().is_exact()
    }

    /// Why it is the best choice, where it is.
    pub fn reason(&self, on: &Situation) -> String {
        self.spread().reason(on)
    }

    /// How it is simulated.
    ///
    /// # Errors
    /// Why it is not, in words.
    pub fn on_fewer(&self, many: &Many<'_>) -> std::result::Result<Fewer, String> {
        self.spread().on_fewer(many)
    }

    /// Whether it makes use of structure that a graph made for a simulation does not have.
    pub fn needs_structure(&self) -> bool {
        self.spread().needs_structure()
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spread().name())
    }
}

impl FromStr for Strategy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let (family, settings) = name.split_once(':').map_or((name, None), |(first, rest)| (first, Some(rest)));
        let listed = Self::TABLE.iter().find(|listed| listed.name == family);
        listed.and_then(|listed| (listed.parse)(settings)).ok_or_else(|| {
            let problem = format!("there is no strategy {name:?}; choose one of: {}", Self::names());
            Error::Argument { op: "strategy", problem }
        })
    }
}

/// A count behind a name.
pub(crate) fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|n| *n > 0)
}

/// Two counts, such as `2x4`, and what follows them.
pub(crate) fn shape(text: &str) -> Option<([usize; 2], Option<&str>)> {
    let (shape, rest) = text.split_once(':').map_or((text, None), |(shape, rest)| (shape, Some(rest)));
    let (first, second) = shape.split_once('x')?;
    Some(([number(first)?, number(second)?], rest))
}

impl TryFrom<String> for Strategy {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<Strategy> for String {
    fn from(strategy: Strategy) -> Self {
        strategy.to_string()
    }
}

/// This rank's operations over the rows of `layout`, where `edge_features` have a row per edge into them, in its order.
///
/// # Errors
/// If the strategy is not for this number of ranks, or ranks could not agree.
pub fn spread(
    strategy: &Strategy,
    layout: &Layout,
    link: &Link,
    edge_features: Option<Matrix>,
) -> Result<Rc<dyn GraphOps>> {
    let refused = |problem: String| Err(Error::Argument { op: "strategy", problem });
    if (layout.rank(), layout.ranks()) != (link.rank(), link.size()) {
        let (rank, ranks) = (layout.rank(), layout.ranks());
        return refused(format!("rows of rank {rank} of {ranks} are on rank {} of {}", link.rank(), link.size()));
    }
    if let Some(features) = edge_features.as_ref().filter(|m| m.rows() != layout.csr().num_edges()) {
        return refused(format!("{} edge features for {} edges", features.rows(), layout.csr().num_edges()));
    }
    strategy.spread().ops(Rows { layout, link, edge_features })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in [
            "local",
            "gather",
            "halo",
            "halo:plain",
            "halo:machines",
            "halo:machines:8",
            "heads",
            "ring",
            "ring:3",
            "grid:2x4",
            "grid:2x4:gather",
            "grid:1x3:halo:plain",
            "pipeline",
            "pipeline:4x2",
            "pipeline:4x2:gather",
            "pipeline:2x3:ring:2",
            "isolated",
            "batches",
        ] {
            assert_eq!(name.parse::<Strategy>().unwrap().to_string(), name);
        }
        assert_eq!("ring:1".parse::<Strategy>().unwrap().to_string(), "ring");
        assert_eq!("grid:2x2:halo".parse::<Strategy>().unwrap().to_string(), "grid:2x2");
    }

    #[test]
    fn every_form_of_the_table_is_read_displayed_and_explained() {
        let on = Situation { ranks: 8, alpha: Some(0.25), shares: 8, shares_are: "heads" };
        for listed in Strategy::TABLE {
            assert!(!listed.about.is_empty() && !listed.about.ends_with('.'), "{}", listed.name);
            for form in listed.forms {
                let written = form
                    .replace("DEPTH", "2")
                    .replace(":RANKS", ":4")
                    .replace("NODESxHEADS", "2x4")
                    .replace("STAGESxWAYS", "4x2");
                let strategy: Strategy = written.parse().unwrap();
                assert_eq!((strategy.to_string(), strategy.family()), (written, listed.name));
                assert_eq!(strategy.is_exact(), listed.is_exact(), "{strategy}");
                // Of one rank there is nothing to say.
                assert_eq!(strategy.reason(&on).is_empty(), listed.name == "local", "{strategy}");
            }
            for ranks in 1..=8 {
                for strategy in listed.candidates(ranks, 4) {
                    assert_eq!(strategy.to_string().parse::<Strategy>().unwrap(), strategy);
                    assert_eq!(strategy.family(), listed.name);
                }
            }
        }
        assert_eq!(
            Strategy::names(),
            "local, gather, halo, halo:plain, halo:machines, halo:machines:RANKS, heads, ring, ring:DEPTH, \
             grid:NODESxHEADS, grid:NODESxHEADS:gather, pipeline, pipeline:STAGESxWAYS, pipeline:STAGESxWAYS:gather, isolated, batches"
        );
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "halos",
            "ring:0",
            "ring:x",
            "grid",
            "grid:2",
            "grid:0x2",
            "grid:2x2:ring",
            "heads:2",
            "halo:machines:0",
            "halo:2",
            "local:",
            "pipeline:2",
            "pipeline:2x2:local",
            "pipeline:2x2:pipeline",
        ] {
            let e = name.parse::<Strategy>().unwrap_err().to_string();
            assert!(e.contains("halo:plain"), "{name:?}: {e}");
        }
    }
}
