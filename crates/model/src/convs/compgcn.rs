//! CompGCN of Vashishth et al. with differences as composition: x'_i = ⅓(Σ (x_j − r_e)·W_λ / √(d_i·d_j) + x_i·W_loop) +
//! b, over the edges e = j → i, where λ says whether e is one of the data or a reverse, r_e is the row of its type, and
//! d counts edges of that direction: into i, and out of j. Rows of types are learned, and each layer but the first
//! takes them times a matrix: r' = r·W.
//!
//! No message is made for an edge: what comes of sources is a sum for either direction, and what comes of types is a
//! sum over edges of rows of a table, in one pass each. A row of x travels once; a row of types does not.

use std::rc::Rc;

use graphweft_tensor::ops::combine::{combine, concat};
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::matmul::{matmul, times};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::related::Table;
use graphweft_tensor::{DType, Matrix, Parameter, Result, Tag, Tape, Var};

use super::{Conv, End};
use crate::graph_ops::{Aggregation, EdgeWeight};
use crate::init::Init;
use crate::network::Context;
use crate::parts::input::Input;

const OP: &str = "compgcn";
/// Edges of the data, and their reverses.
pub const DIRECTIONS: usize = 2;

/// Rows of types, and the matrices that they go through before a layer.
#[derive(Clone)]
pub struct TypeRows {
    /// A row per type.
    pub rows: Rc<Parameter>,
    /// First to last.
    pub through: Vec<Rc<Parameter>>,
}

impl TypeRows {
    fn at(&self, tape: &mut Tape) -> Result<Var> {
        let rows = tape.parameter(&self.rows);
        self.through.iter().try_fold(rows, |rows, matrix| matmul(tape, &rows, matrix))
    }
}

/// `{name}.weight`, `{name}.loop`, `{name}.bias`, and what is its own of the rows of types.
pub struct CompGcnConv {
    weight: Rc<Parameter>,
    own: Rc<Parameter>,
    bias: Rc<Parameter>,
    types: TypeRows,
}

impl CompGcnConv {
    /// A convolution called `name`.
    pub fn new(init: &Init<'_>, name: &str, inputs: usize, outputs: usize, types: TypeRows) -> Result<Self> {
        Ok(Self {
            weight: init.stacked(&format!("{name}.weight"), vec![DIRECTIONS, inputs, outputs])?,
            own: init.glorot(&format!("{name}.loop"), inputs, outputs)?,
            bias: init.vector(&format!("{name}.bias"), outputs, 0.0)?,
            types,
        })
    }

    /// What rows of types come to, those of either direction in columns of their own.
    fn by_direction(&self, tape: &mut Tape) -> Result<Var> {
        let rows = self.types.at(tape)?;
        let (types, cols) = rows.value().shape();
        let device = tape.device().clone();
        let mut part = |direction: usize| -> Result<Var> {
            let is_of = |t: usize| f64::from(u8::from(direction_of(t, types) == direction));
            let mask: Vec<f64> = (0..types).flat_map(|t| std::iter::repeat_n(is_of(t), cols)).collect();
            let mask = device.upload(types, cols, &mask, Tag::Workspace)?;
            let mask = tape.constant(device.convert(OP, &mask, rows.value().dtype())?);
            product(tape, &rows, 0.0, &mask)
        };
        let [forward, back] = [part(0)?, part(1)?];
        concat(tape, &[&forward, &back])
    }
}

/// The direction of a type: the second half are reverses.
pub fn direction_of(of: usize, types: usize) -> usize {
    usize::from(of >= types / DIRECTIONS)
}

impl Conv for CompGcnConv {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        // The rows belong to the first layer, and each matrix to the one that it leads to.
        let types = self.types.through.last().unwrap_or(&self.types.rows);
        vec![Rc::clone(&self.weight), Rc::clone(&self.own), Rc::clone(&self.bias), Rc::clone(types)]
    }

    fn bias(&self) -> Option<&Rc<Parameter>> {
        Some(&self.bias)
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input, end: End<'_>, dtype: DType) -> Result<Var> {
        let x = x.dense(OP)?;
        let (device, types) = (tape.device().clone(), self.types.rows.value().rows());
        let constant = |rows: usize, cols: usize, values: &[f64], dtype: DType| -> Result<Matrix> {
            device.convert(OP, &device.upload(rows, cols, values, Tag::Workspace)?, dtype)
        };
        let compute = x.value().dtype().compute();
        let is_of = |k: usize| f64::from(u8::from(direction_of(k / DIRECTIONS, types) == k % DIRECTIONS));
        let directions: Vec<f64> = (0..types * DIRECTIONS).map(is_of).collect();
        let directions = tape.constant(constant(types, DIRECTIONS, &directions, compute)?);
        let table = EdgeWeight::Relations(Table::Rows(&directions));
        let sources = cx.ops.aggregate(tape, layer, x, Aggregation::Sum, table)?;
        let rows = self.by_direction(tape)?;
        let ones = constant(x.value().rows(), 1, &vec![1.0; x.value().rows()], x.value().dtype())?;
        let ones = tape.constant(ones);
        let table = EdgeWeight::Relations(Table::Rows(&rows));
        let of_types = cx.ops.aggregate(tape, layer, &ones, Aggregation::Sum, table)?;
        let messages = combine(tape, 1.0, &sources, -1.0, &of_types)?;
        drop((sources, of_types));
        let weight = tape.parameter(&self.weight);
        let (neighbours, own) = (times(tape, &messages, &weight)?, matmul(tape, x, &self.own)?);
        let sum = combine(tape, 1.0 / 3.0, &neighbours, 1.0 / 3.0, &own)?;
        let sum = match end.plus {
            None => sum,
            Some(plus) => epilogue(tape, &sum, Epilogue { plus: Some(plus), ..Epilogue::default() }, cx.dtype)?,
        };
        epilogue(tape, &sum, End { plus: None, ..end }.after(1, Some(&self.bias)), dtype)
    }
}
