//! DistMult of Yang et al.: s(h, r, t) = Σ h∘r∘t. It cannot tell a relation from its reverse.

use std::rc::Rc;

use graphweft_tensor::ops::product::product;
use graphweft_tensor::{Parameter, Result, Tape, Var};

use super::{Asked, Decoder, DecoderShape, HostDecoder, Missing, Numbers, Relations, add_products};
use crate::init::Init;

pub(super) struct DistMult(Relations);

impl DistMult {
    pub(super) fn new(init: &Init<'_>, shape: &DecoderShape) -> Result<Self> {
        Ok(Self(Relations::glorot(init, shape)?))
    }
}

impl Decoder for DistMult {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        vec![Rc::clone(&self.0.0)]
    }

    fn query(&self, tape: &mut Tape, asked: Asked<'_>) -> Result<Var> {
        let relations = self.0.of(tape, &asked)?;
        product(tape, asked.given, 0.0, &relations)
    }

    fn on_host(&self) -> Result<Box<dyn HostDecoder>> {
        Ok(Box::new(Host(self.0.numbers()?)))
    }
}

struct Host(Numbers);

impl HostDecoder for Host {
    fn is_product(&self) -> bool {
        true
    }

    fn query(&self, given: &[f64], relation: u32, _: Missing) -> Vec<f64> {
        given.iter().zip(self.0.row(relation)).map(|(x, r)| x * r).collect()
    }

    fn add(&self, score: f64, query: &[f64], partner: &[f64]) -> f64 {
        add_products(score, query, partner)
    }
}
