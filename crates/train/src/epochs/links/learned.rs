//! What links are learned by: the loss of a step, for some of the links.
//!
//! With several ranks each has all rows for the loss and takes an equal share of the links, or of what is asked: pairs
//! that are drawn from everywhere name nearly every node on every rank. Forward moves N·(P − 1) rows in all, backward
//! as many.

use std::rc::Rc;

use graphweft_base::random::Philox;
use graphweft_model::decoders::losses::{Against, Partners, logistic, one_of_all, self_adversarial, some_of_all};
use graphweft_model::decoders::variational::{Drawn, draw};
use graphweft_model::decoders::{Asked, Decoder, Missing};
use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::ops::convert::convert;
use graphweft_tensor::ops::head_dot::head_dot;
use graphweft_tensor::ops::loss::sum_of_losses;
use graphweft_tensor::ops::reshape::reshape;
use graphweft_tensor::ops::rows::{RowIndex, gather};
use graphweft_tensor::{DType, Dropout, Matrix, Tag, Tape, Var};
use rayon::prelude::*;

use super::Links;
use super::all_pairs::all_pairs;
use super::corrupted::Corrupted;
use super::known::{Link, Question};
use super::others::Key;
use crate::config::{DrawFrom, LinkLoss};
use crate::epochs::learner::{Draw, Fixed, Objective};
use crate::epochs::sharded::EPOCH;
use crate::error::Result;

/// Dropout of relations is that of a layer with this number.
const LAYER: u32 = 1 << 20;
/// Keeps noise apart from other draws of the same seed.
const NOISE: u64 = 0x11_4d << 48;

/// A step: some of the links, or of what is asked.
pub(super) struct Step<'a> {
    pub(super) links: &'a Links,
    pub(super) decoder: &'a dyn Decoder,
    /// Their numbers.
    pub(super) lot: &'a [u32],
}

/// A pass over a step.
struct Pass<'a> {
    step: &'a Step<'a>,
    /// The rows of all ranks.
    all: Var,
    draw: Draw,
}

impl Objective for Step<'_> {
    fn loss(&self, tape: &mut Tape, outputs: &Var, draw: Draw) -> Result<Var> {
        let links = self.links;
        let plain = match outputs.value().dtype() {
            DType::Bf16 => convert(tape, outputs, DType::F32)?,
            _ => outputs.clone(),
        };
        let (rows, divergence) = match links.config.variational {
            false => (plain, None),
            true => {
                let noise = links.noise(&plain, draw)?;
                let Drawn { rows, divergence } = self::draw(tape, &plain, &noise)?;
                (rows, Some(divergence))
            }
        };
        let pass = Pass { step: self, all: links.gathered(tape, &rows)?, draw };
        let loss = match links.config.loss {
            LinkLoss::Logistic | LinkLoss::Adversarial => pass.drawn(tape)?,
            LinkLoss::OneOfAll => pass.one(tape)?,
            LinkLoss::SomeOfAll => pass.some(tape)?,
            LinkLoss::AllPairs => all_pairs(tape, links, &rows, &pass.all)?,
        };
        Ok(match divergence {
            None => sum_of_losses(tape, &[1.0], &[&loss])?,
            Some(divergence) => {
                // The mean over nodes, divided by their number, as Kipf and Welling have it.
                let nodes = links.nodes as f64;
                let sum = total(tape, &divergence)?;
                sum_of_losses(tape, &[1.0, 1.0 / (nodes * nodes)], &[&loss, &sum])?
            }
        })
    }

    fn fixed(&self) -> Option<Fixed<'_>> {
        None
    }
}

/// The sum of a column.
fn total(tape: &mut Tape, column: &Var) -> Result<Var> {
    let rows = column.value().rows();
    if rows == 0 {
        let zero = tape.device().zeros("links", 1, 1, column.value().dtype(), Tag::Workspace)?;
        return Ok(tape.constant(zero));
    }
    let row = reshape(tape, column, 1, rows)?;
    let ones = tape.device().upload(1, rows, &vec![1.0f64; rows], Tag::Workspace)?;
    let ones = tape.constant(tape.device().convert("links", &ones, column.value().dtype())?);
    let [sum] = head_dot(tape, &row, [&ones])?;
    Ok(sum)
}

impl Links {
    /// Normal numbers for the rows of this rank, by their original ids.
    fn noise(&self, outputs: &Var, draw: Draw) -> Result<Matrix> {
        let (device, columns) = (self.rank.device(), outputs.value().cols() / 2);
        let random = Philox::new(draw.seed, NOISE ^ draw.epoch);
        let lots = columns.div_ceil(4) as u64;
        let of =
            |id: &u64| (0..lots).flat_map(|lot| random.normals(id * lots + lot)).take(columns).collect::<Vec<f32>>();
        let values = || self.own_ids.par_iter().flat_map_iter(of).collect::<Vec<f32>>();
        let m = device.upload_from(self.own_ids.len(), columns, Tag::Workspace, values)?;
        let dtype = outputs.value().dtype();
        Ok(if dtype == DType::F32 { m } else { device.convert("links", &m, dtype)? })
    }

    /// The relations of the data, where each has a second row.
    pub(super) fn reciprocal(&self) -> Option<u32> {
        (self.config.reciprocal && self.relations > 0).then_some(self.relations as u32)
    }
}

impl Pass<'_> {
    fn links(&self) -> &Links {
        self.step.links
    }

    /// This rank's share of the numbers.
    fn own(&self) -> &[u32] {
        &self.step.lot[self.links().own(self.step.lot.len())]
    }

    /// The rows of nodes.
    fn rows(&self, tape: &mut Tape, nodes: impl Iterator<Item = u64>) -> Result<Var> {
        let index: Vec<u32> = nodes.map(|node| self.links().places.of(node)).collect();
        let index = Rc::new(RowIndex::drawn(&tape.device().clone(), self.all.value().rows(), index)?);
        Ok(gather(tape, &self.all, &index)?)
    }

    /// What partners are compared with: of questions that are for the same end.
    fn query(&self, tape: &mut Tape, questions: &[Question]) -> Result<Var> {
        let links = self.links();
        let asked: Vec<(u32, Missing)> = questions.iter().map(|q| q.of_decoder(links.reciprocal())).collect();
        let relations: Vec<u32> = match links.relations {
            0 => Vec::new(),
            _ => asked.iter().map(|(relation, _)| *relation).collect(),
        };
        let missing = asked.first().map_or(Missing::Tail, |(_, missing)| *missing);
        let given = self.rows(tape, questions.iter().map(|question| question.given))?;
        let dropout = Dropout::new(links.dropout, self.draw.seed, self.draw.epoch, LAYER, 0);
        let dropout = Some(dropout).filter(Dropout::is_active);
        Ok(self.step.decoder.query(tape, Asked { given: &given, relations: &relations, missing, dropout })?)
    }

    /// Links beside those that are drawn against them.
    fn drawn(&self, tape: &mut Tape) -> Result<Var> {
        let (links, own) = (self.links(), self.own());
        let (k, width, train) = (links.negatives as usize, links.split.width, &links.split.train[..]);
        // The numbers of steps are no part of what is drawn: a link comes once in an epoch.
        let draw = Draw { epoch: self.draw.epoch & EPOCH, ..self.draw };
        let local = Some(&links.own_ids[..]).filter(|_| links.config.draw == DrawFrom::Local);
        let corrupted = Corrupted { known: &links.trained, nodes: links.nodes, local };
        let others = &links.others;
        let against = |at: usize| {
            let number = own[at / k];
            let key = Key { draw, link: u64::from(number), k: (at % k) as u64 };
            if width == 3 {
                return corrupted.drawn(key, Link::of(train, 3, number as usize));
            }
            let [head, tail] = others.drawn_from(key, local);
            Link { head, relation: 0, tail }
        };
        let positive = own.iter().map(|number| Link::of(train, width, *number as usize));
        let drawn: Vec<Link> = (0..own.len() * k).into_par_iter().map(against).collect();
        let all: Vec<Link> = positive.chain(drawn).collect();
        let score = |tape: &mut Tape, missing: Missing| -> Result<Var> {
            let questions: Vec<Question> = all.iter().map(|link| link.ask(missing)).collect();
            let query = self.query(tape, &questions)?;
            let partners = self.rows(tape, questions.iter().map(|question| question.partner))?;
            let scores = self.step.decoder.pairs(tape, &query, &partners)?;
            let a = Against { scores: &scores, links: own.len(), total: self.step.lot.len() as f64 };
            Ok(match links.config.loss {
                LinkLoss::Adversarial => self_adversarial(tape, a, links.config.temperature)?,
                _ => logistic(tape, a)?,
            })
        };
        let tails = score(tape, Missing::Tail)?;
        // A triple has one score, unless the way back has rows of its own.
        match links.reciprocal() {
            None => Ok(tails),
            Some(_) => {
                let heads = score(tape, Missing::Head)?;
                Ok(combine(tape, 0.5, &tails, 0.5, &heads)?)
            }
        }
    }

    /// Both ends of each link, among all nodes.
    fn one(&self, tape: &mut Tape) -> Result<Var> {
        let (links, total) = (self.links(), 2.0 * self.step.lot.len() as f64);
        let of = |number: &u32| Link::of(&links.split.train, links.split.width, *number as usize);
        let own: Vec<Link> = self.own().iter().map(of).collect();
        let mut loss = |missing: Missing| -> Result<Var> {
            let questions: Vec<Question> = own.iter().map(|link| link.ask(missing)).collect();
            let query = self.query(tape, &questions)?;
            let scores = self.step.decoder.all(tape, &query, &self.all)?;
            let class = |question: &Question| i64::from(links.places.of(question.partner));
            Ok(one_of_all(tape, &scores, &questions.iter().map(class).collect(), total)?)
        };
        let [tails, heads] = [loss(Missing::Tail)?, loss(Missing::Head)?];
        Ok(combine(tape, 1.0, &tails, 1.0, &heads)?)
    }

    /// All partners of what is asked, among all nodes.
    fn some(&self, tape: &mut Tape) -> Result<Var> {
        let links = self.links();
        let total = self.step.lot.len() as f64 * links.nodes as f64;
        let mut loss = |missing: Missing| -> Result<Var> {
            let own = self.own().iter().map(|number| links.questions[*number as usize]);
            let questions: Vec<Question> = own.filter(|question| question.missing == missing).collect();
            let known = |q: &Question| links.trained.partners(q.given, q.relation, q.missing);
            let of: Vec<Vec<u32>> = questions
                .iter()
                .map(|q| known(q).iter().map(|[.., node]| links.places.of(u64::from(*node))).collect())
                .collect();
            let query = self.query(tape, &questions)?;
            let scores = self.step.decoder.all(tape, &query, &self.all)?;
            let partners = Partners { of: &of, smoothing: links.config.smoothing };
            Ok(some_of_all(tape, &scores, partners, total)?)
        };
        let [tails, heads] = [loss(Missing::Tail)?, loss(Missing::Head)?];
        Ok(combine(tape, 1.0, &tails, 1.0, &heads)?)
    }
}
