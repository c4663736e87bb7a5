//! Initial weights: functions of (seed, parameter name, element), the same on every rank.

use std::rc::Rc;

use graphweft_base::random::Philox;
use graphweft_base::room;
use graphweft_tensor::ops::batch_norm::Running;
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::ops::norm::Norm;
use graphweft_tensor::{DType, Device, Error, Parameter, Result, Tag};

/// Makes parameters on a device.
pub struct Init<'a> {
    device: &'a Device,
    dtype: DType,
    seed: u64,
    own: Option<&'a OwnColumns>,
}

/// Columns of features of which each is of one node, at the end of all columns: those of a rank's nodes.
#[derive(Clone, Debug)]
pub struct OwnColumns {
    /// Columns before them, which all ranks have.
    pub shared: usize,
    /// Which of the columns of nodes the rank has, in its order.
    pub ids: Rc<[u64]>,
    /// Columns of nodes on all ranks.
    pub total: usize,
}

/// Columns of what a layer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// How many there are.
    pub width: usize,
    of: InputsOf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputsOf {
    Layers,
    Features,
}

impl Inputs {
    /// So many columns of features.
    pub fn of_features(width: usize) -> Self {
        Self { width, of: InputsOf::Features }
    }
}

impl From<usize> for Inputs {
    /// Columns that other layers have made.
    fn from(width: usize) -> Self {
        Self { width, of: InputsOf::Layers }
    }
}

impl<'a> Init<'a> {
    /// Parameters of type `dtype` (f32, or f64 in tests) drawn from `seed`.
    pub fn new(device: &'a Device, dtype: DType, seed: u64) -> Self {
        Self { device, dtype, seed, own: None }
    }

    /// The same where columns of features are those of a rank's nodes: their weights are those of the whole.
    pub fn with_own_columns(self, own: Option<&'a OwnColumns>) -> Self {
        Self { own, ..self }
    }

    /// Numbers between −`bound` and `bound`.
    pub fn uniform(&self, name: &str, rows: usize, cols: usize, bound: f64) -> Result<Rc<Parameter>> {
        self.values(name, rows, cols, &self.drawn(name, rows.saturating_mul(cols), bound)?)
    }

    /// Running moments of so many columns.
    pub fn running(&self, cols: usize, momentum: f64) -> Result<Running> {
        Running::new(self.device, cols, momentum)
    }

    /// Room for so many numbers, unless the host has none.
    fn room(&self, count: usize) -> Result<Vec<f64>> {
        let requested = 8u64.saturating_mul(count as u64);
        let mut all = Vec::new();
        let is_there = room::memory().is_none_or(|available| requested <= available);
        match is_there && all.try_reserve_exact(count).is_ok() {
            true => Ok(all),
            false => Err(Error::OutOfMemory {
                op: "parameters",
                device: "the host".into(),
                requested,
                usage: self.device.ledger().now(),
            }),
        }
    }

    /// Glorot's numbers for some rows of a table that has `total`, which are those of the whole table.
    pub fn rows_of(&self, name: &str, rows: &[u64], total: usize, cols: usize) -> Result<Rc<Parameter>> {
        let bound = (6.0 / (total as f64 + cols as f64)).sqrt();
        let of = rows.iter().flat_map(|row| row * cols as u64..(row + 1) * cols as u64);
        let values = self.some(name, rows.len().saturating_mul(cols), bound, of)?;
        self.values(name, rows.len(), cols, &values)
    }

    /// So many numbers.
    fn drawn(&self, name: &str, count: usize, bound: f64) -> Result<Vec<f64>> {
        self.some(name, count, bound, 0..count as u64)
    }

    /// `count` numbers, which have these places among all of that name.
    fn some(&self, name: &str, count: usize, bound: f64, places: impl Iterator<Item = u64>) -> Result<Vec<f64>> {
        let mut all = self.room(count)?;
        if !self.device.backend().keeps_contents() {
            all.resize(count, 0.0);
            return Ok(all);
        }
        let random = self.stream(name);
        all.extend(places.map(|k| (2.0 * random.uniform(k) - 1.0) * bound));
        Ok(all)
    }

    /// The columns that all ranks have together.
    fn whole(&self, inputs: Inputs) -> usize {
        match (inputs.of, self.own) {
            (InputsOf::Features, Some(own)) => own.shared + own.total,
            _ => inputs.width,
        }
    }

    /// The weight of a linear layer, numbers between −`bound` and `bound`: of features the rank's columns.
    fn weight(&self, name: &str, inputs: Inputs, outputs: usize, bound: f64) -> Result<Rc<Parameter>> {
        let Some(own) = self.own.filter(|_| inputs.of == InputsOf::Features) else {
            return self.uniform(name, outputs, inputs.width, bound);
        };
        let (whole, shared) = (self.whole(inputs) as u64, own.shared as u64);
        let columns = || (0..shared).chain(own.ids.iter().map(move |id| shared + id));
        let places = (0..outputs as u64).flat_map(|row| columns().map(move |column| row * whole + column));
        let values = self.some(name, outputs.saturating_mul(inputs.width), bound, places)?;
        let weight = self.values(name, outputs, inputs.width, &values)?;
        weight.set_shared_columns(own.shared);
        Ok(weight)
    }

    /// FNV-1a: the name as a stream of its own, stable across versions of Rust.
    fn stream(&self, name: &str) -> Philox {
        let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
        Philox::new(self.seed, name.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
    }

    /// Glorot's uniform numbers, as PyTorch Geometric's convolutions draw them.
    pub fn glorot(&self, name: &str, rows: usize, cols: usize) -> Result<Rc<Parameter>> {
        self.uniform(name, rows, cols, (6.0 / (rows as f64 + cols as f64)).sqrt())
    }

    /// Matrices one below the other, with Glorot's numbers; the last two of `dims` are the extents of each.
    pub fn stacked(&self, name: &str, dims: Vec<usize>) -> Result<Rc<Parameter>> {
        let [rows, cols] = dims.last_chunk().copied().unwrap_or([1, 1]);
        let all = dims.iter().fold(1, |all: usize, n| all.saturating_mul(*n));
        let values = self.drawn(name, all, (6.0 / (rows as f64 + cols as f64)).sqrt())?;
        self.shaped(name, dims, [all / cols.max(1), cols], &values)
    }

    /// A vector of the same number: a bias, or half of a normalisation.
    pub fn vector(&self, name: &str, width: usize, value: f64) -> Result<Rc<Parameter>> {
        let mut values = self.room(width)?;
        values.resize(width, value);
        self.shaped(name, vec![width], [1, width], &values)
    }

    /// A vector per head, with Glorot's numbers: H × C here, [1, H, C] in PyTorch Geometric.
    pub fn attention(&self, name: &str, heads: usize, width: usize) -> Result<Rc<Parameter>> {
        let bound = (6.0 / (heads as f64 + width as f64)).sqrt();
        let values = self.drawn(name, heads.saturating_mul(width), bound)?;
        self.shaped(name, vec![1, heads, width], [heads, width], &values)
    }

    /// A tensor of the same number, as a matrix of so many rows and columns.
    pub fn filled(&self, name: &str, dims: Vec<usize>, rows: usize, value: f64) -> Result<Rc<Parameter>> {
        let all = dims.iter().fold(1, |all: usize, n| all.saturating_mul(*n));
        let mut values = self.room(all)?;
        values.resize(all, value);
        self.shaped(name, dims, [rows, all / rows.max(1)], &values)
    }

    /// Linear layers of so many types, `{name}.weight` of [types, out, in] and `{name}.bias`, each drawn as
    /// [`Init::linear`] draws one; just that for one type.
    pub fn typed_linear(&self, name: &str, types: usize, inputs: usize, outputs: usize) -> Result<Affine> {
        if types < 2 {
            return self.linear(name, inputs, outputs);
        }
        let bound = (inputs.max(1) as f64).sqrt().recip();
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let rows = types.saturating_mul(outputs);
        let values = self.drawn(&weight, rows.saturating_mul(inputs), bound)?;
        let weight = self.shaped(&weight, vec![types, outputs, inputs], [rows, inputs], &values)?;
        let values = self.drawn(&bias, rows, bound)?;
        Ok(Affine { weight, bias: Some(self.shaped(&bias, vec![types, outputs], [types, outputs], &values)?) })
    }

    /// Given numbers.
    pub fn values(&self, name: &str, rows: usize, cols: usize, values: &[f64]) -> Result<Rc<Parameter>> {
        self.shaped(name, vec![rows, cols], [rows, cols], values)
    }

    fn shaped(&self, name: &str, dims: Vec<usize>, [rows, cols]: [usize; 2], values: &[f64]) -> Result<Rc<Parameter>> {
        let value = match self.dtype {
            DType::F64 => self.device.upload(rows, cols, values, Tag::Parameters)?,
            _ => {
                let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
                self.device.upload(rows, cols, &narrow, Tag::Parameters)?
            }
        };
        Ok(Parameter::shaped(name, dims, value))
    }

    /// A linear layer `{name}.weight`, `{name}.bias` as `torch.nn.Linear` draws it: ±1/√inputs.
    pub fn linear(&self, name: &str, inputs: impl Into<Inputs>, outputs: usize) -> Result<Affine> {
        let inputs = inputs.into();
        let bound = (self.whole(inputs).max(1) as f64).sqrt().recip();
        Ok(Affine {
            weight: self.weight(&format!("{name}.weight"), inputs, outputs, bound)?,
            bias: Some(self.bias(&format!("{name}.bias"), outputs, bound)?),
        })
    }

    /// A vector of numbers between −`bound` and `bound`.
    pub(crate) fn bias(&self, name: &str, width: usize, bound: f64) -> Result<Rc<Parameter>> {
        self.shaped(name, vec![width], [1, width], &self.drawn(name, width, bound)?)
    }

    /// A linear layer `{name}.weight` without bias, with Glorot's numbers.
    pub fn projection(&self, name: &str, inputs: impl Into<Inputs>, outputs: usize) -> Result<Affine> {
        let inputs = inputs.into();
        let bound = (6.0 / (outputs as f64 + self.whole(inputs) as f64)).sqrt();
        Ok(Affine { weight: self.weight(&format!("{name}.weight"), inputs, outputs, bound)?, bias: None })
    }

    /// Scale 1 and shift 0 of a normalisation: `{name}.weight`, `{name}.bias`.
    pub fn norm(&self, name: &str, width: usize) -> Result<Norm> {
        let weight = self.vector(&format!("{name}.weight"), width, 1.0)?;
        Ok(Norm::new(weight, self.vector(&format!("{name}.bias"), width, 0.0)?))
    }
}
