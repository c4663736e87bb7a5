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

/// How a tensor is divided among ranks: its entries along an axis, but for the first ones, which all ranks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) axis: usize,
    pub(crate) shared: usize,
}

impl Tensor {
    /// How many times an entry along the axis of a cut comes, and its bytes each time.
    fn lots(&self, cut: Cut) -> (usize, usize) {
        let after: usize = self.shape[cut.axis + 1..].iter().product();
        (self.shape[..cut.axis].iter().product(), after * self.dtype.bitsize() / 8)
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

    /// Leaves of a whole tensor the entries with these ids, of `total`, along the axis of a cut.
    pub(crate) fn cut(&mut self, name: &str, cut: Cut, ids: &[u64], total: usize) {
        let Some(tensor) = self.0.get_mut(name) else { return };
        if tensor.shape.get(cut.axis) != Some(&(cut.shared + total)) {
            // It is refused where its size is looked at.
            return;
        }
        let (_, item) = tensor.lots(cut);
        let mut bytes = Vec::new();
        for lot in tensor.bytes.chunks_exact(((cut.shared + total) * item).max(1)) {
            let (shared, own) = lot.split_at(cut.shared * item);
            bytes.extend_from_slice(shared);
            ids.iter().for_each(|id| bytes.extend_from_slice(&own[*id as usize * item..][..item]));
        }
        tensor.shape[cut.axis] = cut.shared + ids.len();
        tensor.bytes = bytes;
    }

    /// The bytes of what a rank alone has of a tensor.
    pub(crate) fn own_bytes(&self, name: &str, cut: Cut) -> Vec<u8> {
        let Some(tensor) = self.0.get(name) else { return Vec::new() };
        let (_, item) = tensor.lots(cut);
        let lot = (tensor.shape[cut.axis] * item).max(1);
        tensor.bytes.chunks_exact(lot).flat_map(|lot| &lot[cut.shared * item..]).copied().collect()
    }

    /// Makes a rank's tensor whole: `parts` are the [bytes](Self::own_bytes) of all ranks, which have these ids.
    pub(crate) fn put_together(&mut self, name: &str, cut: Cut, ids: &[Vec<u64>], parts: &[Vec<u8>]) {
        let Some(tensor) = self.0.get_mut(name) else { return };
        let (lots, item) = tensor.lots(cut);
        let total: usize = ids.iter().map(Vec::len).sum();
        let (old, new) = (tensor.shape[cut.axis] * item, (cut.shared + total) * item);
        let mut all = vec![0; lots * new];
        for (lot, to) in all.chunks_exact_mut(new.max(1)).enumerate() {
            let (shared, own) = to.split_at_mut(cut.shared * item);
            shared.copy_from_slice(&tensor.bytes[lot * old..][..cut.shared * item]);
            for (ids, part) in ids.iter().zip(parts) {
                let from = &part[lot * ids.len() * item..][..ids.len() * item];
                for (id, from) in ids.iter().zip(from.chunks_exact(item.max(1))) {
                    own[*id as usize * item..][..item].copy_from_slice(from);
                }
            }
        }
        tensor.shape[cut.axis] = cut.shared + total;
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
    fn what_ranks_have_makes_the_whole_again() {
        let device = Device::cpu();
        let values: Vec<f32> = (0..30).map(|k| k as f32).collect();
        let mut whole = Tensors::default();
        whole.add("w", &[5, 6], &device.upload(5, 6, &values, Tag::Parameters).unwrap()).unwrap();
        for (cut, total) in [(Cut { axis: 0, shared: 0 }, 5), (Cut { axis: 1, shared: 2 }, 4)] {
            let ids = [vec![3u64, 1], vec![], (0..total as u64).filter(|id| ![3, 1].contains(id)).collect()];
            let own = ids.clone().map(|ids| {
                let mut own = whole.clone();
                own.cut("w", cut, &ids, total);
                assert_eq!(own.0["w"].shape[cut.axis], cut.shared + ids.len());
                own
            });
            let parts: Vec<Vec<u8>> = own.iter().map(|own| own.own_bytes("w", cut)).collect();
            for mut one in own {
                one.put_together("w", cut, &ids, &parts);
                assert_eq!(one, whole, "{cut:?}");
            }
        }
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
