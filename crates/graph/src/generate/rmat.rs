//! R-MAT: a graph with hubs and communities, by recursive choice of quadrants (Chakrabarti, Zhan and Faloutsos, SDM
//! 2004).
//!
//! A draw starts with the whole adjacency matrix and chooses one of its quadrants with probabilities (a, b, c, d), then
//! a quadrant of that, and so on for as many levels as ids have bits. Hubs would all have low ids, so ids are permuted.

use std::fmt;
use std::ops::Range;

use graphweft_base::Result;
use graphweft_base::random::{Bijection, Philox};

use super::block_model::BlockModel;
use super::counting::{Draws, PIECE};
use super::fields::Fields;
use super::{MOST_DEGREE, MOST_NODES, Stream};

/// Probabilities of the quadrants: (source, destination) in the (low, low), (low, high), (high, low), (high, high)
/// halves.
const QUADRANTS: [f64; 4] = [0.57, 0.19, 0.19, 0.05];
/// Levels that one table look-up decides.
const LEVELS: u32 = 4;
/// Draws that share the words of whole Philox blocks, and the most words they may need.
const GROUP: u64 = 4;
const MOST_BLOCKS: usize = MOST_NODES.ilog2().div_ceil(LEVELS) as usize;

/// Classes where features are asked for and their number is not given.
const CLASSES: u64 = 8;

/// `rmat:S:D[:f=…][:c=…]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rmat {
    scale: u32,
    degree: u64,
    /// Classes with features, which edges know nothing of.
    task: Option<BlockModel>,
}

impl Rmat {
    pub(super) fn parse(mut fields: Fields<'_>) -> Result<Self> {
        let scale = fields.integer("S", 1..=MOST_NODES.ilog2().into())? as u32;
        let degree = fields.integer("D", 1..=MOST_DEGREE)?;
        let (mut width, mut classes) = (None, None);
        while let Some((key, value)) = fields.setting()? {
            match key {
                "f" => width = Some(fields.number(key, value, 1..=1 << 16)?),
                "c" => classes = Some(fields.number(key, value, 1..=1 << scale.min(16))?),
                _ => return Err(fields.error(format_args!("there is no key {key:?}, only f and c"))),
            }
        }
        if width.is_none() && classes.is_some() {
            return Err(fields.error("c, the number of classes, needs f, the number of features"));
        }
        let classes = classes.unwrap_or(CLASSES.min(1 << scale));
        Ok(Self { scale, degree, task: width.map(|width| BlockModel::of_nodes(1 << scale, classes, width)) })
    }

    /// What can be learned about its nodes.
    pub(super) fn task(&self) -> Option<&BlockModel> {
        self.task.as_ref()
    }

    pub(super) fn draws(&self, seed: u64) -> impl Draws {
        RmatDraws {
            scale: self.scale,
            len: self.degree << (self.scale - 1),
            random: Philox::new(seed, Stream::Edges.number()),
            ids: Bijection::new(1 << self.scale, &Philox::new(seed, Stream::Order.number())),
            quadrants: AliasTable::new(),
        }
    }
}

impl fmt::Display for Rmat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rmat:{}:{}", self.scale, self.degree)?;
        let keys = self.task.as_ref().map(|task| write!(f, ":f={}:c={}", task.width(), task.classes()));
        keys.unwrap_or(Ok(()))
    }
}

struct RmatDraws {
    scale: u32,
    len: u64,
    random: Philox,
    ids: Bijection,
    quadrants: AliasTable,
}

impl Draws for RmatDraws {
    fn num_nodes(&self) -> u64 {
        1 << self.scale
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn list(&self, draws: Range<u64>, mut edge: impl FnMut(u32, u32)) {
        debug_assert_eq!(draws.start % PIECE, 0);
        // A draw needs one word per look-up; four draws use up whole blocks of four words, so that none is wasted.
        let words = self.scale.div_ceil(LEVELS) as usize;
        // The last look-up may decide more levels than there are. They are independent: drop the excess.
        let excess = words as u32 * LEVELS - self.scale;
        let mut buffer = [[0u32; 4]; MOST_BLOCKS];
        for group in draws.start / GROUP..draws.end.div_ceil(GROUP) {
            for (block, out) in buffer[..words].iter_mut().enumerate() {
                *out = self.random.words(group * words as u64 + block as u64);
            }
            let wanted = GROUP.min(draws.end - group * GROUP) as usize;
            for chosen in buffer.as_flattened().chunks_exact(words).take(wanted) {
                let (mut u, mut v) = (0u64, 0u64);
                for &word in chosen {
                    let quadrant = u64::from(self.quadrants.choose(word));
                    u = u << LEVELS | quadrant >> LEVELS;
                    v = v << LEVELS | quadrant & ((1 << LEVELS) - 1);
                }
                let id = |x: u64| self.ids.forward(x >> excess) as u32;
                edge(id(u), id(v));
            }
        }
    }
}

const OUTCOMES: usize = 1 << (2 * LEVELS);

/// Walker's alias method: any distribution over 256 outcomes with one word and one look-up.
///
/// A word's low 8 bits choose a slot evenly; its high 24 bits decide between the slot's own outcome and one other, the
/// alias. A slot is the 24-bit threshold and the 8-bit alias.
struct AliasTable([u32; OUTCOMES]);

impl AliasTable {
    /// The table for [`LEVELS`] levels at once. An outcome has the bits of the source above those of the destination.
    fn new() -> Self {
        let probability = |outcome: usize| {
            let bit = |x: usize, level: u32| x >> level & 1;
            (0..LEVELS).map(|l| QUADRANTS[2 * bit(outcome, l + LEVELS) + bit(outcome, l)]).product::<f64>()
        };
        // Each slot has room for 1: what is below 1 is filled up from what is above.
        let mut room: [f64; OUTCOMES] = std::array::from_fn(|outcome| probability(outcome) * OUTCOMES as f64);
        let mut table: [u32; OUTCOMES] = std::array::from_fn(|outcome| outcome as u32);
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..OUTCOMES).partition(|&o| room[o] < 1.0);
        while let (Some(slot), Some(&donor)) = (small.pop(), large.last()) {
            table[slot] = ((room[slot] * f64::from(1u32 << 24)).round() as u32) << 8 | donor as u32;
            room[donor] -= 1.0 - room[slot];
            if room[donor] < 1.0 {
                large.pop();
                small.push(donor);
            }
        }
        // What is left over is full up to rounding: it is its own alias, whatever the threshold.
        Self(table)
    }

    #[inline]
    fn choose(&self, word: u32) -> u32 {
        let slot = word & (OUTCOMES as u32 - 1);
        let entry = self.0[slot as usize];
        if word >> 8 < entry >> 8 { slot } else { entry & 0xff }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alias_table_has_the_probabilities_of_four_levels() {
        let table = AliasTable::new();
        let mut mass = [0.0; OUTCOMES];
        for (slot, &entry) in table.0.iter().enumerate() {
            let own = f64::from(entry >> 8) / f64::from(1 << 24);
            mass[slot] += own / OUTCOMES as f64;
            mass[(entry & 0xff) as usize] += (1.0 - own) / OUTCOMES as f64;
        }
        for (outcome, mass) in mass.iter().enumerate() {
            let expected: f64 =
                (0..LEVELS).map(|l| QUADRANTS[(outcome >> (l + 4) & 1) * 2 + (outcome >> l & 1)]).product();
            assert!((mass - expected).abs() < 1e-8, "{outcome}: {mass} against {expected}");
        }
        assert_eq!((table.choose(0), table.choose(0xff) & 0xff), (0, table.choose(0xff)));
    }

    #[test]
    fn quadrants_are_chosen_as_often_as_they_should_be_at_every_level() {
        // Without the permutation the bits of the ids are the choices.
        let rmat = Rmat { scale: 6, degree: 1 << 12, task: None };
        let random = Philox::new(3, Stream::Edges.number());
        let table = AliasTable::new();
        let len = rmat.degree << 5;
        let draws = RmatDraws { scale: 6, len, random, ids: Bijection::new(64, &random), quadrants: table };
        let mut counts = [[0u32; 4]; 6];
        draws.list(0..len, |u, v| {
            let (u, v) = (draws.ids.inverse(u.into()), draws.ids.inverse(v.into()));
            for (level, counts) in counts.iter_mut().enumerate() {
                counts[((u >> level & 1) * 2 + (v >> level & 1)) as usize] += 1;
            }
        });
        for counts in counts {
            for (count, p) in counts.iter().zip(QUADRANTS) {
                let share = f64::from(*count) / len as f64;
                assert!((share - p).abs() < 5.0 * (p / len as f64).sqrt(), "{share} against {p}");
            }
        }
    }
}
