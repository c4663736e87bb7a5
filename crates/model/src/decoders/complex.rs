//! ComplEx of Trouillon et al.: s(h, r, t) = Re Σ h∘r∘t̄, with complex numbers: the first half of the columns of a row
//! is real, the second imaginary. Asked for tails the query is h∘r, asked for heads it is t∘r̄: either way the score is
//! the plain product of the query's columns with the partner's.

use std::rc::Rc;

use graphweft_tensor::ops::combine::{columns, combine, concat};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::{Parameter, Result, Tape, Var};

use super::{Asked, Decoder, DecoderShape, HostDecoder, Missing, Numbers, Relations, add_products, half};
use crate::init::Init;

pub(super) struct ComplEx(Relations);

impl ComplEx {
    pub(super) fn new(init: &Init<'_>, shape: &DecoderShape) -> Result<Self> {
        half("complex", shape.columns)?;
        Ok(Self(Relations::glorot(init, shape)?))
    }
}

impl Decoder for ComplEx {
    fn on_host(&self) -> Result<Box<dyn HostDecoder>> {
        Ok(Box::new(Host(self.0.numbers()?)))
    }

    fn query(&self, tape: &mut Tape, asked: Asked<'_>) -> Result<Var> {
        let relations = self.0.of(tape, &asked)?;
        turned(tape, asked.given, &relations, asked.missing)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        vec![Rc::clone(&self.0.0)]
    }
}

/// The complex products x∘r, or x∘r̄ where heads are asked for.
pub(super) fn turned(tape: &mut Tape, x: &Var, r: &Var, missing: Missing) -> Result<Var> {
    let cols = x.value().cols();
    let parts = |tape: &mut Tape, of: &Var| -> Result<[Var; 2]> {
        Ok([columns(tape, of, 0..cols / 2)?, columns(tape, of, cols / 2..cols)?])
    };
    let ([x_re, x_im], [r_re, r_im]) = (parts(tape, x)?, parts(tape, r)?);
    let sign = sign(missing);
    let mut sum = |a: [&Var; 2], sign: f64, b: [&Var; 2]| -> Result<Var> {
        let (a, b) = (product(tape, a[0], 0.0, a[1])?, product(tape, b[0], 0.0, b[1])?);
        combine(tape, 1.0, &a, sign, &b)
    };
    let real = sum([&x_re, &r_re], -sign, [&x_im, &r_im])?;
    let imaginary = sum([&x_im, &r_re], sign, [&x_re, &r_im])?;
    concat(tape, &[&real, &imaginary])
}

/// Of the imaginary part of a relation.
fn sign(missing: Missing) -> f64 {
    match missing {
        Missing::Tail => 1.0,
        Missing::Head => -1.0,
    }
}

/// The same of one row on the host.
pub(super) fn turned_on_host(x: &[f64], r: &[f64], missing: Missing) -> Vec<f64> {
    let (half, sign) = (x.len() / 2, sign(missing));
    let real = (0..half).map(|k| x[k] * r[k] - sign * x[half + k] * r[half + k]);
    let imaginary = (0..half).map(|k| x[half + k] * r[k] + sign * x[k] * r[half + k]);
    real.chain(imaginary).collect()
}

struct Host(Numbers);

impl HostDecoder for Host {
    fn is_product(&self) -> bool {
        true
    }

    fn query(&self, given: &[f64], relation: u32, missing: Missing) -> Vec<f64> {
        turned_on_host(given, self.0.row(relation), missing)
    }

    fn add(&self, score: f64, query: &[f64], partner: &[f64]) -> f64 {
        add_products(score, query, partner)
    }
}
