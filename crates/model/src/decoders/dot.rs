//! The product of both rows: s(i, j) = z_i·z_j, whatever the relation.

use graphweft_tensor::{Result, Tape, Var};

use super::{Asked, Decoder, HostDecoder, Missing, add_products};

pub(super) struct Dot;

impl Decoder for Dot {
    fn query(&self, _: &mut Tape, asked: Asked<'_>) -> Result<Var> {
        Ok(asked.given.clone())
    }

    fn on_host(&self) -> Result<Box<dyn HostDecoder>> {
        Ok(Box::new(Self))
    }
}

impl HostDecoder for Dot {
    fn is_product(&self) -> bool {
        true
    }

    fn query(&self, given: &[f64], _: u32, _: Missing) -> Vec<f64> {
        given.to_vec()
    }

    fn add(&self, score: f64, query: &[f64], partner: &[f64]) -> f64 {
        add_products(score, query, partner)
    }

    fn by_columns(&self) -> bool {
        true
    }
}
