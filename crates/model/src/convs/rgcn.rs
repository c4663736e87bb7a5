//! R-GCN: x'_i = x_i·W_0 + b + Σ_r mean over the edges of type r of x_j·W_r: `torch_geometric.nn.RGCNConv`.
//!
//! One pass over the edges makes weighted sums of the sources' rows, and one product follows, whatever the number of
//! types is. With *bases*, W_r = Σ_b a_rb·V_b: y_i^b = Σ_j (a_rb / c_ir)·x_j for each base, where r is the type of the
//! edge and c_ir the number of such edges into i; then Σ_b y_i^b·V_b. Otherwise y_i^r is the mean over the edges of
//! type r, and W_r is a matrix of its own, or one of square blocks on its diagonal. A row of x travels once, however
//! many sums it goes into; y has bases·d, or types·d, numbers per node.

use std::rc::Rc;

use graphweft_tensor::ops::combine::concat;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::matmul::{matmul, times};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::related::Table;
use graphweft_tensor::{DType, Error, Parameter, Result, Tag, Tape, Var};

use super::{Conv, End};
use crate::graph_ops::{Aggregation, EdgeWeight};
use crate::init::Init;
use crate::network::Context;
use crate::parts::input::Input;

const OP: &str = "rgcn";

/// What the matrices of the types have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decomposition {
    /// Nothing.
    None,
    /// Each is a sum of so many, with coefficients of its own.
    Bases(usize),
    /// Each has so many blocks on its diagonal, and zeros elsewhere.
    Blocks(usize),
}

/// `{name}.weight`, `{name}.root`, `{name}.bias`, and with bases `{name}.comp`.
pub struct RgcnConv {
    weight: Rc<Parameter>,
    /// A row of coefficients for each type.
    coefficients: Option<Rc<Parameter>>,
    blocks: usize,
    types: usize,
    root: Rc<Parameter>,
    bias: Rc<Parameter>,
}

impl RgcnConv {
    /// A convolution called `name` over edges of so many `types`.
    pub fn new(
        init: &Init<'_>,
        name: &str,
        inputs: usize,
        outputs: usize,
        types: usize,
        decomposition: Decomposition,
    ) -> Result<Self> {
        let called = |part: &str| format!("{name}.{part}");
        let (dims, blocks) = match decomposition {
            Decomposition::None => (vec![types, inputs, outputs], 1),
            Decomposition::Bases(bases) => (vec![bases, inputs, outputs], 1),
            Decomposition::Blocks(blocks) => {
                if blocks == 0 || !inputs.is_multiple_of(blocks) || !outputs.is_multiple_of(blocks) {
                    let problem = format!(
                        "model.blocks = {blocks} must divide the columns of every layer, here {inputs} and {outputs}"
                    );
                    return Err(Error::Argument { op: OP, problem });
                }
                (vec![types, blocks, inputs / blocks, outputs / blocks], blocks)
            }
        };
        let coefficients = match decomposition {
            Decomposition::Bases(bases) => Some(init.glorot(&called("comp"), types, bases)?),
            _ => None,
        };
        Ok(Self {
            weight: init.stacked(&called("weight"), dims)?,
            coefficients,
            blocks,
            types,
            root: init.glorot(&called("root"), inputs, outputs)?,
            bias: init.vector(&called("bias"), outputs, 0.0)?,
        })
    }

    /// The matrices one below the other, those of blocks with zeros beside these.
    fn matrices(&self, tape: &mut Tape) -> Result<Var> {
        let weight = tape.parameter(&self.weight);
        let (rows, cols) = weight.value().shape();
        let per_block = self.root.value().rows() / self.blocks;
        if self.blocks == 1 {
            return Ok(weight);
        }
        let device = tape.device().clone();
        let part = |tape: &mut Tape, block: usize| -> Result<Var> {
            let is_of = |row: usize| f64::from(u8::from(row / per_block % self.blocks == block));
            let mask: Vec<f64> = (0..rows).flat_map(|row| std::iter::repeat_n(is_of(row), cols)).collect();
            let mask = device.upload(rows, cols, &mask, Tag::Workspace)?;
            let mask = tape.constant(device.convert(OP, &mask, weight.value().dtype())?);
            product(tape, &weight, 0.0, &mask)
        };
        let parts = (0..self.blocks).map(|block| part(tape, block)).collect::<Result<Vec<_>>>()?;
        concat(tape, &parts.iter().collect::<Vec<_>>())
    }
}

impl Conv for RgcnConv {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let all = [Some(&self.weight), self.coefficients.as_ref(), Some(&self.root), Some(&self.bias)];
        all.into_iter().flatten().cloned().collect()
    }

    fn bias(&self) -> Option<&Rc<Parameter>> {
        Some(&self.bias)
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input, end: End<'_>, dtype: DType) -> Result<Var> {
        let x = x.dense(OP)?;
        let coefficients = self.coefficients.as_ref().map(|a| tape.parameter(a));
        let table = coefficients.as_ref().map_or(Table::Each(self.types), Table::Rows);
        let weight = EdgeWeight::Relations(table);
        let sums = cx.ops.aggregate(tape, layer, x, Aggregation::Sum, weight)?;
        let matrices = self.matrices(tape)?;
        let neighbours = times(tape, &sums, &matrices)?;
        drop((sums, matrices));
        let own = matmul(tape, x, &self.root)?;
        let sum = match end.plus {
            None => neighbours,
            Some(plus) => epilogue(tape, &neighbours, Epilogue { plus: Some(plus), ..Epilogue::default() }, cx.dtype)?,
        };
        epilogue(tape, &sum, End { plus: Some(&own), ..end }.after(1, Some(&self.bias)), dtype)
    }
}
