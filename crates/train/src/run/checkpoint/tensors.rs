//! Named tensors as safetensors files, with PyTorch's names and shapes.
//!
//! In memory everything is a matrix; PyTorch has vectors, and some tensors with three dimensions. On the way in only
//! the number of elements must fit, so that files from elsewhere load as well.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use graphweft_base::Error as Bad;
use graphweft_tensor::{DType, Device, Matrix, Tag};
use safetensors::tensor::{Dtype, SafeTensors, View, serialize};

use crate::error::Result;

/// A tensor on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for &Tensor {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Tensors by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors(BTreeMap<String, Tensor>);

impl Tensors {
    /// Adds a matrix under the shape that PyTorch gives it.
    pub fn add(&mut self, name: &str, shape: &[usize], m: &Matrix) -> Result<()> {
        let (dtype, bytes) = match m.dtype() {
            DType::F64 => (Dtype::F64, bytemuck::cast_slice(&m.to_vec::<f64>()?).to_vec()),
            DType::F32 => (Dtype::F32, bytemuck::cast_slice(&m.to_vec::<f32>()?).to_vec()),
            DType::Bf16 => (Dtype::BF16, bytemuck::cast_slice(&m.to_vec::<half::bf16>()?).to_vec()),
        };
        self.0.insert(name.into(), Tensor { dtype, shape: shape.to_vec(), bytes });
        Ok(())
    }

    /// How many numbers a tensor has.
    pub fn length(&self, name: &str) -> Option<usize> {
        self.0.get(name).map(|tensor| tensor.shape.iter().product())
    }

    /// Adds a vector of f64.
    pub fn add_vector(&mut self, name: &str, values: &[f64]) {
        let bytes = bytemuck::cast_slice(values).to_vec();
        self.0.insert(name.into(), Tensor { dtype: Dtype::F64, shape: vec![values.len()], bytes });
    }

    /// Adds a single integer.
    pub fn add_count(&mut self, name: &str, value: i64) {
        let bytes = value.to_le_bytes().to_vec();
        self.0.insert(name.into(), Tensor { dtype: Dtype::I64, shape: Vec::new(), bytes });
    }

    /// Adds a list of ids, in as few bytes as they need.
    pub fn add_ids(&mut self, name: &str, ids: &[u64]) {
        let narrow: std::result::Result<Vec<u32>, _> = ids.iter().map(|id| u32::try_from(*id)).collect();
        let (dtype, bytes) = match narrow {
            Ok(ids) => (Dtype::U32, bytemuck::cast_slice(&ids).to_vec()),
            Err(_) => (Dtype::U64, bytemuck::cast_slice(ids).to_vec()),
        };
        self.0.insert(name.into(), Tensor { dtype, shape: vec![ids.len()], bytes });
    }

    /// A list of ids, if there is one under this name.
    pub fn ids(&self, name: &str) -> Option<Vec<u64>> {
        let tensor = self.0.get(name)?;
        match tensor.dtype {
            Dtype::U32 => {
                Some(bytemuck::pod_collect_to_vec::<u8, u32>(&tensor.bytes).iter().map(|id| (*id).into()).collect())
            }
            Dtype::U64 => Some(bytemuck::pod_collect_to_vec(&tensor.bytes)),
            _ => None,
        }
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Takes those of `other` over.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The same tensors with `prefix` before their names.
    pub fn prefixed(&self, prefix: &str) -> Self {
        Self(self.0.iter().map(|(name, tensor)| (format!("{prefix}{name}"), tensor.clone())).collect())
    }

    /// The tensors whose names begin with `prefix`, without it.
    pub fn below(&self, prefix: &str) -> Self {
        let own = |(name, tensor): (&String, &Tensor)| Some((name.strip_prefix(prefix)?.to_string(), tensor.clone()));
        Self(self.0.iter().filter_map(own).collect())
    }

    /// The same, where a matrix of `total` rows whose name begins with `prefix` has the listed rows alone.
    pub(crate) fn with_rows(&self, prefix: &str, rows: &[u64], total: usize) -> Self {
        let mut all = self.clone();
        let whole = |tensor: &&mut Tensor| tensor.shape.first() == Some(&total) && total > 0;
        let tables = all.0.iter_mut().filter(|(name, _)| name.starts_with(prefix)).map(|(_, tensor)| tensor);
        for tensor in tables.filter(whole) {
            let width = tensor.bytes.len() / total;
            tensor.shape[0] = rows.len();
            tensor.bytes =
                rows.iter().flat_map(|row| &tensor.bytes[*row as usize * width..][..width]).copied().collect();
        }
        all
    }

    /// The bytes of a matrix that has less than `total` rows, with its name: one whose name begins with `prefix`.
    pub(crate) fn parts(&self, prefix: &str, total: usize) -> Vec<(String, Vec<u8>)> {
        let is_part = |tensor: &Tensor| tensor.shape.first().is_some_and(|rows| *rows < total);
        let found = self.0.iter().filter(|(name, tensor)| name.starts_with(prefix) && is_part(tensor));
        found.map(|(name, tensor)| (name.clone(), tensor.bytes.clone())).collect()
    }

    /// Replaces a matrix by one that has the row of each of `ids` at that place, from their bytes.
    pub(crate) fn put_rows(&mut self, name: &str, ids: &[u64], bytes: &[u8]) {
        let Some(tensor) = self.0.get_mut(name) else { return };
        let width = bytes.len() / ids.len().max(1);
        let mut all = vec![0; bytes.len()];
        for (row, id) in bytes.chunks_exact(width.max(1)).zip(ids) {
            all[*id as usize * width..][..width].copy_from_slice(row);
        }
        tensor.shape[0] = ids.len();
        tensor.bytes = all;
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of a safetensors file.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let about = HashMap::from([("format".to_string(), "pt".to_string())]);
        serialize(&self.0, Some(about))
            .map_err(|e| Bad::request(format!("cannot write tensors: {e}"), "report this as a bug").into())
    }

    /// Reads the bytes of the file `path`.
    pub fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let remedy = "it must be a safetensors file; copy or create it again";
        let file = SafeTensors::deserialize(bytes).map_err(|e| Bad::bad(path, "header", e.to_string(), remedy))?;
        let tensor = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| {
            let tensor = Tensor { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
            (name.to_string(), tensor)
        };
        Ok(Self(file.iter().map(tensor).collect()))
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Bad::unreadable(path, "file", &e))?;
        Self::decode(path, &bytes)
    }

    /// Fails if a number of the file `path`, which these are from, is not finite.
    pub fn check_finite(&self, path: &Path) -> Result<()> {
        for name in self.0.keys() {
            // What is of another type is refused where it is used.
            let Some(values) = self.wide(name) else { continue };
            if let Some(at) = values.iter().position(|x| !x.is_finite()) {
                let problem = format!("number {at} is not finite");
                let remedy = "the file is damaged, or training diverged: name an earlier checkpoint, or train again";
                return Err(Bad::bad(path, name, problem, remedy).into());
            }
        }
        Ok(())
    }

    /// The numbers of a tensor, if they are floating-point.
    fn wide(&self, name: &str) -> Option<Vec<f64>> {
        let tensor = self.0.get(name)?;
        Some(match tensor.dtype {
            Dtype::F64 => bytemuck::pod_collect_to_vec(&tensor.bytes),
            Dtype::F32 => bytemuck::pod_collect_to_vec::<u8, f32>(&tensor.bytes).into_iter().map(f64::from).collect(),
            Dtype::BF16 => {
                let values = bytemuck::pod_collect_to_vec::<u8, half::bf16>(&tensor.bytes);
                values.into_iter().map(f64::from).collect()
            }
            Dtype::F16 => {
                let values = bytemuck::pod_collect_to_vec::<u8, half::f16>(&tensor.bytes);
                values.into_iter().map(f64::from).collect()
            }
            _ => return None,
        })
    }

    /// The numbers of a tensor that must have `len` of them.
    pub fn numbers(&self, name: &str, len: usize) -> Result<Vec<f64>> {
        let remedy = "the file belongs to another model: check [model] and the dataset";
        let missing = || Bad::request(format!("there is no tensor {name:?}"), remedy);
        let tensor = self.0.get(name).ok_or_else(missing)?;
        let Some(values) = self.wide(name) else {
            let what = format!("tensor {name:?} is of type {:?}", tensor.dtype);
            return Err(Bad::request(what, "save it as float32").into());
        };
        if values.len() != len {
            let what = format!("tensor {name:?} has shape {:?}, the model needs {len} numbers", tensor.shape);
            return Err(Bad::request(what, remedy).into());
        }
        Ok(values)
    }

    /// A tensor as a matrix of this shape and type.
    pub fn matrix(&self, device: &Device, name: &str, like: &Matrix) -> Result<Matrix> {
        let values = self.numbers(name, like.rows() * like.cols())?;
        let wide = device.upload(like.rows(), like.cols(), &values, Tag::Workspace)?;
        Ok(device.convert("checkpoint", &wide, like.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(device: &Device) -> Tensors {
        let mut all = Tensors::default();
        for (name, (rows, cols), shape) in
            [("lin.weight", (4, 3), &[4, 3][..]), ("lin.bias", (1, 4), &[4]), ("conv.att_src", (2, 3), &[1, 2, 3])]
        {
            let values: Vec<f32> = (0..rows * cols).map(|k| k as f32 / 3.0).collect();
            all.add(name, shape, &device.upload(rows, cols, &values, Tag::Parameters).unwrap()).unwrap();
        }
        all
    }

    #[test]
    fn what_is_written_is_read_and_the_bytes_are_always_the_same() {
        let device = Device::cpu();
        let mut all = tensors(&device);
        all.add_vector("norm.running_mean", &[0.1, 0.2]);
        all.add_count("norm.num_batches_tracked", 7);
        let bytes = all.encode().unwrap();
        assert_eq!(bytes, all.encode().unwrap());
        let read = Tensors::decode(Path::new("x"), &bytes).unwrap();
        assert_eq!(read, all);
        assert_eq!(read.0["conv.att_src"].shape, [1, 2, 3]);
        assert_eq!(read.numbers("norm.running_mean", 2).unwrap(), [0.1, 0.2]);
        let like = device.zeros("test", 4, 3, DType::F32, Tag::Parameters).unwrap();
        let m = read.matrix(&device, "lin.weight", &like).unwrap();
        assert_eq!(m.to_vec::<f32>().unwrap()[1], 1.0 / 3.0);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let all = tensors(&Device::cpu());
        for (name, len, part) in [("x", 1, "no tensor \"x\""), ("lin.bias", 5, "the model needs 5")] {
            let message = all.numbers(name, len).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
        let bytes = all.encode().unwrap();
        for cut in [0, 7, 100, bytes.len() - 1] {
            let message = Tensors::decode(Path::new("m.safetensors"), &bytes[..cut]).unwrap_err().to_string();
            assert!(message.contains("m.safetensors"), "{message}");
        }
    }
}
