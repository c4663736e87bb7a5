//! TransE of Bordes et al.: s(h, r, t) = γ − ‖h + r − t‖. The query is h + r, or t − r where heads are asked for.

use std::rc::Rc;

use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::{Parameter, Result, Tape, Var};

use super::distance::{Distance, no_scores_of_all};
use super::{Asked, Decoder, DecoderShape, HostDecoder, LANES, Missing, Numbers, Relations};
use crate::init::Init;

pub(super) struct TransE {
    relations: Relations,
    distance: Distance,
}

impl TransE {
    pub(super) fn new(init: &Init<'_>, shape: &DecoderShape) -> Result<Self> {
        Ok(Self { relations: Relations::glorot(init, shape)?, distance: Distance { margin: shape.margin } })
    }
}

fn sign(missing: Missing) -> f64 {
    match missing {
        Missing::Tail => 1.0,
        Missing::Head => -1.0,
    }
}

impl Decoder for TransE {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        vec![Rc::clone(&self.relations.0)]
    }

    fn query(&self, tape: &mut Tape, asked: Asked<'_>) -> Result<Var> {
        let relations = self.relations.of(tape, &asked)?;
        combine(tape, 1.0, asked.given, sign(asked.missing), &relations)
    }

    fn pairs(&self, tape: &mut Tape, query: &Var, partners: &Var) -> Result<Var> {
        self.distance.scores(tape, query, partners)
    }

    fn all(&self, _: &mut Tape, _: &Var, _: &Var) -> Result<Var> {
        no_scores_of_all()
    }

    fn on_host(&self) -> Result<Box<dyn HostDecoder>> {
        Ok(Box::new(Host { relations: self.relations.numbers()?, distance: self.distance }))
    }
}

struct Host {
    relations: Numbers,
    distance: Distance,
}

impl HostDecoder for Host {
    fn query(&self, given: &[f64], relation: u32, missing: Missing) -> Vec<f64> {
        let sign = sign(missing);
        given.iter().zip(self.relations.row(relation)).map(|(x, r)| x + sign * r).collect()
    }

    fn add(&self, score: f64, query: &[f64], partner: &[f64]) -> f64 {
        Distance::add(score, query, partner)
    }

    fn add_lanes(&self, scores: &mut [f64; LANES], queries: &[[f64; LANES]], partner: &[f64]) {
        Distance::add_lanes(scores, queries, partner);
    }

    fn finish(&self, sum: f64) -> f64 {
        self.distance.finish(sum)
    }
}
