//! Codecs: rows of numbers in fewer bytes, for the way between ranks.
//!
//! A coded row is some 32-bit words: a head, such as a scale, then the columns. Every row is coded by itself and every
//! element by its own random number, which is a function of a [`Draw`], the row's node and the column: the same bits
//! for any order and any number of threads. A row with an element that is no number, or that is infinite, comes out as
//! no numbers: a run that fails does so with a codec too.
//!
//! | codec | words of a row of d columns | what comes out |
//! |---|---|---|
//! | `bf16` | ⌈d/2⌉ | rounded to the nearest of 8 bits, within 2⁻⁸ of it |
//! | `f8` | 1 + ⌈d/4⌉ | the nearest E4M3 of the row over its scale, within 2⁻⁴ of it where it is not small |
//! | `int8`, `int4`, `int2`, `int1` | 2 + ⌈bd/32⌉ | one of the two nearest of 2ᵇ steps from minimum to maximum, unbiased |
//! | `columns:R` | ⌈d/R⌉ | a drawn subset of columns, d over their number larger; 0 elsewhere; unbiased |
//!
//! Kernels are those of the host: what is on a GPU is coded on a copy.

mod bf16;
mod bits;
mod blocks;
mod columns;
mod f8;

use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;

use crate::cpu::{Isa, host, host_mut};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::custom::Kernel;

const OP: &str = "codec";
/// Elements that a thread codes at a time.
const LOT: usize = 1 << 14;

/// How rows are written for other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// 16 bits a column.
    Bf16,
    /// 8 bits a column, as floating point, and a scale.
    F8,
    /// So many bits a column, 1, 2, 4 or 8, and a minimum and a step.
    Bits(u32),
    /// One of so many columns.
    Columns(u32),
}

impl Codec {
    /// Every way to write one.
    pub const FORMS: [&'static str; 7] = ["bf16", "f8", "int8", "int4", "int2", "int1", "columns:R"];

    /// 32-bit words of a row of `cols` columns.
    pub fn words(self, cols: usize) -> usize {
        match self {
            Self::Bf16 => bf16::words(cols),
            Self::F8 => f8::words(cols),
            Self::Bits(bits) => bits::words(cols, bits),
            Self::Columns(one_of) => columns::kept(cols, one_of),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bf16 => f.write_str("bf16"),
            Self::F8 => f.write_str("f8"),
            Self::Bits(bits) => write!(f, "int{bits}"),
            Self::Columns(one_of) => write!(f, "columns:{one_of}"),
        }
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let one_of = |text: &str| text.parse().ok().filter(|n| (1..=1 << 16).contains(n)).map(Self::Columns);
        let found = match name {
            "bf16" => Some(Self::Bf16),
            "f8" => Some(Self::F8),
            "int8" => Some(Self::Bits(8)),
            "int4" => Some(Self::Bits(4)),
            "int2" => Some(Self::Bits(2)),
            "int1" => Some(Self::Bits(1)),
            _ => name.strip_prefix("columns:").and_then(one_of),
        };
        let problem = || format!("there is no codec {name:?}; choose one of: {}", Self::FORMS.join(", "));
        found.ok_or_else(|| Error::Argument { op: OP, problem: problem() })
    }
}

/// What the random numbers of an exchange are keyed by, beside node and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    /// Those of one exchange: `stream` tells exchanges of a layer apart.
    pub fn new(seed: u64, epoch: u64, layer: u32, stream: u32) -> Self {
        Self([seed, epoch, u64::from(layer) << 32 | u64::from(stream)].into_iter().fold(0, |key, x| mixed(key ^ x)))
    }

    /// Of the row of a node.
    #[inline(always)]
    fn row(self, node: u64) -> u32 {
        (mixed(self.0 ^ node) >> 32) as u32
    }
}

/// A step of splitmix64.
#[inline(always)]
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number for columns of a row: mixed by two products, as vectors can.
#[inline(always)]
fn number(row: u32, column: u32) -> u32 {
    let x = row ^ column.wrapping_mul(0x9e37_79b9);
    let x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
    let x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
    x ^ (x >> 15)
}

/// A codec made ready for rows of some width.
trait Rows: Sync {
    fn encode(&self, row: u32, x: &[f32], to: &mut [u32]);

    fn decode(&self, from: &[u32], to: &mut [f32]);
}

/// What is done with every row.
enum Coding<'a> {
    Encode { ids: &'a [u64], draw: Draw },
    Decode,
}

impl Coding<'_> {
    /// Codes all rows of `words` words and `cols` columns.
    fn run(&self, rows: &impl Rows, plain: Plain<'_>, coded: Coded<'_>, shape: [usize; 2]) {
        let [words, cols] = shape;
        let (isa, lot) = (Isa::detect(), (LOT / cols.max(1)).max(1));
        match (self, plain, coded) {
            (Self::Encode { ids, draw }, Plain::From(x), Coded::To(to)) => {
                let lots = to.par_chunks_mut(lot * words).zip(x.par_chunks(lot * cols)).zip(ids.par_chunks(lot));
                lots.for_each(|((to, x), ids)| {
                    isa.run(
                        #[inline(always)]
                        || {
                            let both = to.chunks_exact_mut(words).zip(x.chunks_exact(cols));
                            both.zip(ids).for_each(|((to, x), id)| rows.encode(draw.row(*id), x, to));
                        },
                    );
                });
            }
            (_, Plain::To(x), Coded::From(from)) => {
                x.par_chunks_mut(lot * cols).zip(from.par_chunks(lot * words)).for_each(|(x, from)| {
                    isa.run(
                        #[inline(always)]
                        || {
                            let both = x.chunks_exact_mut(cols).zip(from.chunks_exact(words));
                            both.for_each(|(x, from)| rows.decode(from, x));
                        },
                    );
                });
            }
            _ => {}
        }
    }

    fn code(&self, codec: Codec, draw: Draw, plain: Plain<'_>, coded: Coded<'_>, cols: usize) {
        let shape = [codec.words(cols), cols];
        if cols == 0 {
            return;
        }
        match codec {
            Codec::Bf16 => self.run(&bf16::Bf16, plain, coded, shape),
            Codec::F8 => self.run(&f8::F8, plain, coded, shape),
            Codec::Bits(1) => self.run(&bits::Bits::<1>, plain, coded, shape),
            Codec::Bits(2) => self.run(&bits::Bits::<2>, plain, coded, shape),
            Codec::Bits(4) => self.run(&bits::Bits::<4>, plain, coded, shape),
            Codec::Bits(_) => self.run(&bits::Bits::<8>, plain, coded, shape),
            Codec::Columns(one_of) => self.run(&columns::Columns::new(cols, one_of, draw), plain, coded, shape),
        }
    }
}

/// Rows as they are computed with.
enum Plain<'a> {
    From(&'a [f32]),
    To(&'a mut [f32]),
}

/// Rows as they are sent.
enum Coded<'a> {
    From(&'a [u32]),
    To(&'a mut [u32]),
}

struct Encode<'a> {
    codec: Codec,
    draw: Draw,
    ids: &'a [u64],
}

impl Kernel for Encode<'_> {
    fn name(&self) -> &'static str {
        "encode rows"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        let x = from[0];
        let to: &mut [u32] = bytemuck::cast_slice_mut(host_mut::<f32>(OP, "coded rows", to)?);
        let copied;
        let plain = match x.dtype() {
            DType::F32 => host::<f32>(OP, "rows", x)?,
            DType::F64 => {
                copied = host::<f64>(OP, "rows", x)?.iter().map(|x| *x as f32).collect::<Vec<f32>>();
                &copied
            }
            DType::Bf16 => {
                copied = host::<half::bf16>(OP, "rows", x)?.iter().map(|x| x.to_f32()).collect::<Vec<f32>>();
                &copied
            }
        };
        let coding = Coding::Encode { ids: self.ids, draw: self.draw };
        coding.code(self.codec, self.draw, Plain::From(plain), Coded::To(to), x.cols());
        Ok(())
    }
}

struct Decode {
    codec: Codec,
    draw: Draw,
}

impl Kernel for Decode {
    fn name(&self) -> &'static str {
        "decode rows"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        let (rows, cols, dtype) = (from[0].rows(), to.cols(), to.dtype());
        let words = Coded::From(bytemuck::cast_slice(host::<f32>(OP, "coded rows", from[0])?));
        let count = rows * cols;
        let decode = |x: &mut [f32]| Coding::Decode.code(self.codec, self.draw, Plain::To(x), words, cols);
        if dtype == DType::F32 {
            decode(&mut host_mut::<f32>(OP, "rows", to)?[..count]);
            return Ok(());
        }
        let mut plain = vec![0.0f32; count];
        decode(&mut plain);
        match dtype {
            DType::Bf16 => {
                let to = &mut host_mut::<half::bf16>(OP, "rows", to)?[..count];
                to.iter_mut().zip(plain).for_each(|(to, x)| *to = half::bf16::from_f32(x));
            }
            _ => {
                let to = &mut host_mut::<f64>(OP, "rows", to)?[..count];
                to.iter_mut().zip(plain).for_each(|(to, x)| *to = f64::from(x));
            }
        }
        Ok(())
    }
}

/// The rows of `x`, which are those of the nodes `ids`, as `codec` writes them.
///
/// # Errors
/// If there is not an id for every row.
pub fn encode(codec: Codec, draw: Draw, x: &Matrix, ids: &[u64]) -> Result<Matrix> {
    if ids.len() != x.rows() {
        let problem = format!("{} ids for {x:?}", ids.len());
        return Err(Error::Argument { op: OP, problem });
    }
    let device = x.device().clone();
    let mut to = device.uninit(OP, x.rows(), codec.words(x.cols()), DType::F32, Tag::Exchange)?;
    device.backend().custom(&Encode { codec, draw, ids }, &[x], &mut to)?;
    Ok(to)
}

/// Overwrites the first rows of `to` with what [`encode`] wrote by the same draw.
///
/// # Errors
/// If the words are not those of rows as wide, or there are too many.
pub fn decode(codec: Codec, draw: Draw, coded: &Matrix, to: &mut Matrix) -> Result<()> {
    if coded.cols() != codec.words(to.cols()) || coded.rows() > to.rows() || coded.dtype() != DType::F32 {
        let problem = format!("{coded:?} are no rows of {to:?} by {codec}");
        return Err(Error::Argument { op: OP, problem });
    }
    let device = coded.device().clone();
    device.backend().custom(&Decode { codec, draw }, &[coded], to)
}

#[cfg(test)]
mod tests;
