//! What features of edges are multiplied by.

use std::rc::Rc;

use graphweft_tensor::ops::combine::columns;
use graphweft_tensor::ops::edge_values::{EdgeColumns, widen};
use graphweft_tensor::ops::reshape::reshape;
use graphweft_tensor::{Parameter, Result, Tape, Var};

use crate::graph_ops::EdgeValues;
use crate::init::Init;

/// A linear function of features of edges.
pub struct EdgeLinear {
    weight: Rc<Parameter>,
    columns: EdgeColumns,
}

impl EdgeLinear {
    /// `{name}.weight`, drawn as for `torch.nn.Linear`; nothing where edges have no features.
    pub fn new(init: &Init<'_>, name: &str, columns: &EdgeColumns, outputs: usize) -> Result<Option<Self>> {
        let bound = (columns.width() as f64).sqrt().recip();
        let weight = || init.uniform(&format!("{name}.weight"), outputs, columns.width(), bound);
        Self::of(columns, weight)
    }

    /// The same with Glorot's numbers.
    pub fn glorot(init: &Init<'_>, name: &str, columns: &EdgeColumns, outputs: usize) -> Result<Option<Self>> {
        Self::of(columns, || init.glorot(&format!("{name}.weight"), outputs, columns.width()))
    }

    fn of(columns: &EdgeColumns, weight: impl FnOnce() -> Result<Rc<Parameter>>) -> Result<Option<Self>> {
        let made = || Ok(Self { weight: weight()?, columns: *columns });
        (!columns.is_empty()).then(made).transpose()
    }

    /// The weight: a row per output, a column per feature.
    pub fn weight(&self) -> &Rc<Parameter> {
        &self.weight
    }

    /// What the graph's columns are.
    pub fn columns(&self) -> &EdgeColumns {
        &self.columns
    }

    /// The function with `weight`, which is the parameter on the tape or was made of it.
    pub fn with<'a>(&'a self, weight: &'a Var) -> EdgeValues<'a> {
        EdgeValues { weight, columns: &self.columns }
    }

    /// a_h·W_h for the rows a_h of `vectors`: a row per head, of as many numbers as there are features.
    pub fn times(&self, tape: &mut Tape, vectors: &Var) -> Result<Var> {
        let weight = tape.parameter(&self.weight);
        let (heads, width) = vectors.value().shape();
        let row = reshape(tape, vectors, 1, heads * width)?;
        let wide = widen(tape, &row, &weight, heads, &self.columns)?;
        let rows = reshape(tape, &wide, heads, width + self.columns.tail())?;
        columns(tape, &rows, width..width + self.columns.width())
    }
}
