//! A labelled stochastic block model with features: a node classification task made to order.
//!
//! Nodes belong to classes of equal size, in random order. Draw k starts at node k mod N and ends at a random node of
//! the same class with probability h, of another class otherwise. A node's features are its class's mean plus noise.
//!
//! The defaults are chosen so that features alone are not enough: noise hides the class of a single node, but not that
//! of its neighbourhood, since averaging over neighbours removes more noise than signal. `snr` is the length of a class
//! mean in standard deviations of the noise along one direction, so difficulty does not change with the width.

use std::fmt;
use std::ops::Range;

use graphweft_base::Result;
use graphweft_base::random::{Bijection, Philox, join, scale};
use rayon::prelude::*;

use super::counting::Draws;
use super::fields::Fields;
use super::{MOST_DEGREE, MOST_NODES, Stream};
use crate::buf::Buf;
use crate::dataset::{DatasetWriter, Dense, Split};

const HOMOPHILY: f64 = 0.7;
const WIDTH: u64 = 64;
const SNR: f64 = 1.5;

/// Nodes to learn from and to choose by, of every ten; the rest is to report on.
const TRAIN: u64 = 6;
const VALID: u64 = 2;

/// `sbm:N:C:D[:h=…][:f=…][:snr=…]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BlockModel {
    nodes: u64,
    classes: u64,
    degree: u64,
    homophily: f64,
    width: u64,
    snr: f64,
}

impl BlockModel {
    pub(super) fn parse(mut fields: Fields<'_>) -> Result<Self> {
        let nodes = fields.integer("N", 1..=MOST_NODES)?;
        let classes = fields.integer("C", 1..=nodes)?;
        let degree = fields.integer("D", 1..=MOST_DEGREE)?;
        let mut spec = Self { nodes, classes, degree, homophily: HOMOPHILY, width: WIDTH, snr: SNR };
        while let Some((key, value)) = fields.setting()? {
            match key {
                "h" => spec.homophily = fields.number(key, value, 0.0..=1.0)?,
                "f" => spec.width = fields.number(key, value, 1..=1 << 16)?,
                "snr" => spec.snr = fields.number(key, value, 0.0..=1e6)?,
                _ => return Err(fields.error(format_args!("there is no key {key:?}, only h, f and snr"))),
            }
        }
        Ok(spec)
    }

    /// Classes and features for nodes whose edges come from elsewhere.
    pub(super) fn of_nodes(nodes: u64, classes: u64, width: u64) -> Self {
        Self { nodes, classes, degree: 1, homophily: HOMOPHILY, width, snr: SNR }
    }

    pub(super) fn classes(&self) -> usize {
        self.classes as usize
    }

    pub(super) fn num_nodes(&self) -> u128 {
        self.nodes.into()
    }

    pub(super) fn width(&self) -> usize {
        self.width as usize
    }

    pub(super) fn draws(&self, seed: u64) -> impl Draws {
        Pairs {
            classes: self.members(seed),
            len: self.nodes * self.degree / 2,
            stay: (self.homophily * 2f64.powi(32)) as u64,
            random: Philox::new(seed, Stream::Edges.number()),
        }
    }

    fn members(&self, seed: u64) -> Classes {
        let order = Bijection::new(self.nodes, &Philox::new(seed, Stream::Order.number()));
        Classes { order, nodes: self.nodes, count: self.classes }
    }

    /// The class of each node.
    pub(super) fn labels(&self, seed: u64) -> Vec<i64> {
        let classes = self.members(seed);
        (0..self.nodes).into_par_iter().map(|node| classes.of(node).0 as i64).collect()
    }

    /// The features of each node, row by row.
    pub(super) fn features(&self, seed: u64) -> Dense {
        let (classes, features, width) = (self.members(seed), FeatureModel::new(self, seed), self.width());
        let mut values = vec![0.0f32; self.nodes as usize * width];
        values.par_chunks_mut(width).enumerate().for_each(|(node, row)| {
            features.fill(node as u64, classes.of(node as u64).0, row);
        });
        Dense::F32 { values: values.into(), width }
    }

    /// Writes features, labels and the split.
    pub(super) fn write(&self, seed: u64, out: &DatasetWriter) -> Result<()> {
        let (nodes, classes) = (self.nodes as usize, self.members(seed));
        let features = FeatureModel::new(self, seed);
        out.rows("feat", nodes, &[self.width()], |node, row: &mut [f32]| {
            features.fill(node as u64, classes.of(node as u64).0, row);
        })?;
        out.rows("label", nodes, &[], |node, row| row[0] = classes.of(node as u64).0 as i64)?;
        out.split(&self.split(seed))
    }

    /// The nodes in a random order, cut in three; ids ascend within each part.
    pub(super) fn split(&self, seed: u64) -> Split {
        let order = Bijection::new(self.nodes, &Philox::new(seed, Stream::Split.number()));
        let cut = |tenths: u64| (u128::from(self.nodes) * u128::from(tenths) / 10) as u64;
        let part = |places: Range<u64>| -> Buf<i64> {
            let inside = |node: &u64| places.contains(&order.forward(*node));
            (0..self.nodes).into_par_iter().filter(inside).map(|node| node as i64).collect::<Vec<_>>().into()
        };
        Split {
            name: "default".into(),
            train: part(0..cut(TRAIN)),
            valid: part(cut(TRAIN)..cut(TRAIN + VALID)),
            test: part(cut(TRAIN + VALID)..self.nodes),
        }
    }
}

impl fmt::Display for BlockModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sbm:{}:{}:{}", self.nodes, self.classes, self.degree)?;
        if self.homophily != HOMOPHILY {
            write!(f, ":h={}", self.homophily)?;
        }
        if self.width != WIDTH {
            write!(f, ":f={}", self.width)?;
        }
        if self.snr != SNR {
            write!(f, ":snr={}", self.snr)?;
        }
        Ok(())
    }
}

/// Who is in which class: the node at place p of a random order is member p / C of class p mod C.
struct Classes {
    order: Bijection,
    nodes: u64,
    count: u64,
}

impl Classes {
    /// A node's class, and its number among the members.
    fn of(&self, node: u64) -> (u64, u64) {
        let place = self.order.forward(node);
        (place % self.count, place / self.count)
    }

    fn size(&self, class: u64) -> u64 {
        (self.nodes - class).div_ceil(self.count)
    }

    fn member(&self, class: u64, number: u64) -> u64 {
        self.order.inverse(number * self.count + class)
    }
}

struct Pairs {
    classes: Classes,
    len: u64,
    /// Homophily in steps of 2⁻³².
    stay: u64,
    random: Philox,
}

impl Draws for Pairs {
    fn num_nodes(&self) -> u64 {
        self.classes.nodes
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn list(&self, draws: Range<u64>, mut edge: impl FnMut(u32, u32)) {
        let classes = &self.classes;
        for draw in draws {
            let [stay, step, low, high] = self.random.words(draw);
            let (node, bits) = (draw % classes.nodes, join(low, high));
            let (class, own) = classes.of(node);
            let other = if u64::from(stay) < self.stay || classes.count == 1 {
                // Any member but the node itself; a class of one gives no edge.
                let others = classes.size(class) - 1;
                if others == 0 {
                    continue;
                }
                let number = scale(bits, others);
                classes.member(class, number + u64::from(number >= own))
            } else {
                let step = 1 + scale(u64::from(step) << 32, classes.count - 1);
                let class = (class + step) % classes.count;
                classes.member(class, scale(bits, classes.size(class)))
            };
            edge(node as u32, other as u32);
        }
    }
}

/// Features: the mean of the class plus standard normal noise.
struct FeatureModel {
    means: Vec<f32>,
    width: usize,
    noise: Philox,
}

impl FeatureModel {
    fn new(spec: &BlockModel, seed: u64) -> Self {
        let random = Philox::new(seed, Stream::Means.number());
        let mut means = vec![0.0; spec.classes() * spec.width()];
        // Entries of this size give means of length snr, on average.
        let size = (spec.snr / (spec.width as f64).sqrt()) as f32;
        for (class, mean) in means.chunks_mut(spec.width()).enumerate() {
            normals(&random, class as u64, mean);
            mean.iter_mut().for_each(|x| *x *= size);
        }
        Self { means, width: spec.width(), noise: Philox::new(seed, Stream::Noise.number()) }
    }

    fn fill(&self, node: u64, class: u64, row: &mut [f32]) {
        normals(&self.noise, node, row);
        let mean = &self.means[class as usize * self.width..][..self.width];
        row.iter_mut().zip(mean).for_each(|(x, m)| *x += m);
    }
}

/// Fills row number `row` of a matrix with standard normal numbers.
fn normals(random: &Philox, row: u64, out: &mut [f32]) {
    let first = row * out.len().div_ceil(4) as u64;
    for (block, out) in out.chunks_mut(4).enumerate() {
        out.copy_from_slice(&random.normals(first + block as u64)[..out.len()]);
    }
}
