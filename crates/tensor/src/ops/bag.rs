//! A linear layer over sparse features, e.g. a bag of words: y = X·Wᵀ + b with X constant, in CSR.
//!
//! X is a graph from columns to rows whose edges weigh what its entries are, so this is an
//! [aggregation](crate::ops::spmm) of the columns of W: forward adds up, for each row of X, the columns of W at its
//! entries; dW is the same over the transposed X, which is made once, and so has a fixed order of summation. The
//! columns of W are made rows beforehand: that is one pass over W, where X·Wᵀ has one over W for every row or so.
//!
//! Dropout of X drops entries, keyed as everywhere by original node id and column; the entries that are left are kept
//! for backward.

use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_graph::dataset::SparseFeatures;

use crate::adjacency::Adjacency;
use crate::cpu::scratch;
use crate::device::Device;
use crate::dry::{Work, WorkKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::dropout::RowDropout;
use crate::ops::linear::Affine;
use crate::ops::spmm::{Along, EdgeWeights, Spmm};
use crate::tape::{Tape, Var, one_output};

const OP: &str = "bag";

/// Sparse features made ready for kernels: by row and by column.
#[derive(Clone, Debug)]
pub struct Bag {
    graph: Adjacency,
    /// The entries, E × 1; absent where all are 1.
    values: Option<Matrix>,
    device: Device,
}

impl Bag {
    /// Prepares `features` on `device`, with values in `dtype`: f32, or f64 in tests.
    ///
    /// # Errors
    /// If columns are out of range or not ascending, or if there are not as many values as columns.
    pub fn new(device: &Device, features: &SparseFeatures, dtype: DType) -> Result<Self> {
        let csr = Csr::new(features.indptr.clone(), features.indices.clone(), features.width)
            .map_err(|e| Error::Argument { op: OP, problem: e.to_string() })?;
        let Some(data) = &features.data else {
            return Ok(Self { graph: Adjacency::new(device, csr)?, values: None, device: device.clone() });
        };
        let values = device.upload(csr.num_edges(), 1, &data[..], Tag::Graph)?;
        let values = if dtype == DType::F32 { values } else { device.convert(OP, &values, dtype)? };
        Ok(Self { graph: Adjacency::new(device, csr)?, values: Some(values), device: device.clone() })
    }

    /// Features of the same columns, one below the other.
    ///
    /// # Errors
    /// If there are none, or some have values and others do not.
    pub fn stack(all: &[&Self]) -> Result<Self> {
        let problem = |problem: &str| Error::Argument { op: OP, problem: problem.into() };
        let device = all.first().ok_or_else(|| problem("nothing to stack"))?.device.clone();
        let (mut indptr, mut indices, mut values) = (vec![0u64], Vec::new(), Vec::new());
        for bag in all {
            let (csr, before) = (&bag.graph.forward.csr, indices.len() as u64);
            indptr.extend(csr.indptr()[1..].iter().map(|end| before + end));
            indices.extend_from_slice(csr.indices());
            values.extend(bag.values.as_ref());
        }
        if !values.is_empty() && values.len() < all.len() {
            return Err(problem("some have values and others do not"));
        }
        let csr = Csr::new(indptr, indices, all[0].cols()).map_err(|e| problem(&e.to_string()))?;
        let values = match values.first() {
            None => None,
            Some(first) => {
                let (mut stacked, mut at) = (device.uninit(OP, csr.num_edges(), 1, first.dtype(), Tag::Graph)?, 0);
                for m in values {
                    device.backend().copy_part(m, 0, &mut stacked, at, m.rows())?;
                    at += m.rows();
                }
                Some(stacked)
            }
        };
        Ok(Self { graph: Adjacency::new(&device, csr)?, values, device })
    }

    /// Copies where entries are to where the kernels are: see [`Adjacency::bring`].
    pub fn bring(&self) -> Result<()> {
        self.graph.bring()
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.graph.num_dst()
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.graph.num_src()
    }

    /// The same with all zeros, in `dtype`.
    pub fn dense(&self, dtype: DType) -> Result<Matrix> {
        let (csr, cols) = (&self.graph.forward.csr, self.cols());
        let entries = match &self.values {
            Some(values) if self.device.backend().keeps_contents() => {
                self.device.convert(OP, values, DType::F32)?.to_vec::<f32>()?
            }
            _ => Vec::new(),
        };
        let all = || {
            let mut all = vec![0.0f32; self.rows() * cols];
            for row in 0..self.rows() {
                let range = csr.indptr()[row] as usize..csr.indptr()[row + 1] as usize;
                for at in range {
                    all[row * cols + csr.indices()[at] as usize] += entries.get(at).copied().unwrap_or(1.0);
                }
            }
            all
        };
        let m = self.device.upload_from(self.rows(), cols, Tag::Graph, all)?;
        if dtype == DType::F32 { Ok(m) } else { self.device.convert(OP, &m, dtype) }
    }

    /// Where entries are, and what they are; 1 where that is absent.
    pub(crate) fn parts(&self) -> (&Adjacency, Option<&Matrix>) {
        (&self.graph, self.values.as_ref())
    }

    /// The entries after dropout, if anything is dropped: in f32, or f64 where `dtype` is.
    fn entries(&self, drop: Option<&RowDropout>, dtype: DType) -> Result<Option<Matrix>> {
        let Some(drop) = drop.filter(|d| d.dropout.is_active()) else { return Ok(self.values.clone()) };
        drop.ids.expect(OP, self.rows())?;
        let device = &self.device;
        let mut entries = device.uninit(OP, self.graph.num_edges(), 1, dtype, Tag::Activations)?;
        device.backend().drop_entries(self, drop, &mut entries)?;
        Ok(Some(entries))
    }
}

fn weights(entries: Option<&Matrix>) -> EdgeWeights<'_> {
    EdgeWeights { edge: entries, ..EdgeWeights::default() }
}

kernels! {
    /// What a backend does beside aggregation.
    pub trait BagKernels {
        /// `to = fromᵀ`, of the same type.
        fn transpose(from: &Matrix, to: &mut Matrix) -> Result<()> {
            |dry| dry.stream("transpose", &[from], &[to])
        }

        /// Overwrites every row of `to` with the only row of `row`.
        fn spread_row(row: &Matrix, to: &mut Matrix) -> Result<()> {
            |dry| dry.stream("spread row", &[row], &[to])
        }

        /// Overwrites the only row of `to` with the sum of the rows of `from`.
        fn sum_rows(from: &Matrix, to: &mut Matrix) -> Result<()> {
            |dry|
            let _parts = dry.within(|| scratch::sum_rows(from))?;
            dry.stream("sum rows", &[from], &[to])
        }

        /// Overwrites `to` (E × 1) with the entries of sparse rows (1 where there are none) after dropout.
        fn drop_entries(x: &Bag, drop: &RowDropout, to: &mut Matrix) -> Result<()> {
            |dry|
            let (graph, entries) = x.parts();
            let read = 4 * graph.num_edges() + entries.map_or(0, Matrix::bytes);
            let kind = WorkKind::Stream { read, written: to.bytes(), rows: graph.num_dst() };
            dry.tell(Work { op: "drop entries", dtype: to.dtype(), dropout: drop.dropout.is_active(), kind })
        }
    }
}

/// Applies `layer` to `x`, after dropout of its entries; the output's elements are of type `dtype`.
pub fn bag(tape: &mut Tape, x: &Rc<Bag>, drop: Option<&RowDropout>, layer: &Affine, dtype: DType) -> Result<Var> {
    let weight = tape.parameter(&layer.weight);
    let bias = layer.bias.as_ref().map(|b| tape.parameter(b));
    let ((out, cols), parameters) = (weight.value().shape(), weight.value().dtype());
    weight.value().expect(OP, "weight", out, x.cols())?;
    let device = tape.device().clone();
    let mut y = device.uninit(OP, x.rows(), out, dtype, Tag::Activations)?;
    let mut write = Write::Set;
    if let Some(bias) = &bias {
        bias.value().expect(OP, "bias", 1, out)?;
        device.backend().spread_row(bias.value(), &mut y)?;
        write = Write::Add;
    }
    let mut columns = device.uninit(OP, cols, out, weight.value().dtype(), Tag::Workspace)?;
    device.backend().transpose(weight.value(), &mut columns)?;
    let entries = x.entries(drop, parameters)?;
    let sum = Spmm { graph: &x.graph, weights: weights(entries.as_ref()), along: Along::Edges, x: &columns };
    device.backend().spmm(&sum, &mut y, write)?;
    let inputs: Vec<&Var> = std::iter::once(&weight).chain(&bias).collect();
    Ok(tape.push(&inputs, y, || {
        let (x, has_bias) = (Rc::clone(x), layer.bias.is_some());
        one_output(move |dy, grads| {
            let device = grads.device().clone();
            let (cols, dtype) = (x.cols(), parameters);
            let mut dw = device.uninit(OP, out, cols, dtype, Tag::Gradients)?;
            {
                let mut columns = device.uninit(OP, cols, out, dtype, Tag::Workspace)?;
                let (graph, weights) = (&x.graph, weights(entries.as_ref()));
                let sum = Spmm { graph, weights, along: Along::Transpose, x: &dy };
                device.backend().spmm(&sum, &mut columns, Write::Set)?;
                device.backend().transpose(&columns, &mut dw)?;
            }
            grads.put(0, dw)?;
            if has_bias && grads.wants(1) {
                let mut db = device.uninit(OP, 1, out, dtype, Tag::Gradients)?;
                device.backend().sum_rows(&dy, &mut db)?;
                grads.put(1, db)?;
            }
            Ok(())
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::dry::tests::takes_as_much;
    use crate::gradcheck::check;
    use crate::ops::dropout::dropout;
    use crate::ops::graphs::{f64s, near, same_bits_for_any_number_of_threads, upload};
    use crate::ops::linear::linear;
    use crate::ops::tests::{half, on_every_device};
    use crate::parameter::Parameter;
    use crate::random::Ids;

    on_every_device!(gradients, equals_a_dense_product_in_f64, dropout_of_entries_is_dropout_of_the_dense_matrix);

    /// Rows of entries; one row is empty, one column occurs in every other row (a hub from 8192 rows on).
    fn features(rows: usize, width: usize, values: Values) -> SparseFeatures {
        let mut indptr = vec![0u64];
        let mut indices = Vec::new();
        for i in 0..rows {
            if i != 1 {
                let mut row: Vec<u32> = (0..i % 5 + 1).map(|k| ((i * 7 + k * 3) % width) as u32).chain([0]).collect();
                row.sort_unstable();
                row.dedup();
                indices.extend(row);
            }
            indptr.push(indices.len() as u64);
        }
        let data = match values {
            Ones => None,
            Given => Some((0..indices.len()).map(|k| (k % 7) as f32 / 4.0 - 0.5).collect::<Vec<_>>().into()),
        };
        SparseFeatures { indptr: indptr.into(), indices: indices.into(), data, width }
    }

    /// What the entries are.
    #[derive(Clone, Copy)]
    enum Values {
        Ones,
        Given,
    }
    use Values::{Given, Ones};

    fn layer(device: &Device, out: usize, width: usize, dtype: DType) -> Affine {
        let parameter = |name: &str, seed, shape| Parameter::new(name, upload(device, seed, shape, dtype));
        Affine { weight: parameter("weight", 1, (out, width)), bias: Some(parameter("bias", 2, (1, out))) }
    }

    fn gradients(device: &Device) {
        for (rows, values) in [(6, Given), (6, Ones), (1, Given), (0, Given)] {
            let x = Rc::new(Bag::new(device, &features(rows, 4, values), DType::F64).unwrap());
            let mut layer = layer(device, 3, 4, DType::F64);
            if let Ones = values {
                layer.bias = None;
            }
            let parameters: Vec<_> = std::iter::once(layer.weight.clone()).chain(layer.bias.clone()).collect();
            for drop in [None, Some(half())] {
                check(device, &[], &parameters, |tape, _| bag(tape, &x, drop.as_ref(), &layer, DType::F64)).unwrap();
            }
        }
    }

    /// y, dW and db.
    fn run(device: &Device, shape: [usize; 3], dtype: DType, values: Values) -> Vec<Vec<f64>> {
        run_dropped(device, shape, dtype, values, None)
    }

    fn run_dropped(
        device: &Device,
        [rows, width, out]: [usize; 3],
        dtype: DType,
        values: Values,
        drop: Option<&RowDropout>,
    ) -> Vec<Vec<f64>> {
        let compute = dtype.compute();
        let x = Rc::new(Bag::new(device, &features(rows, width, values), compute).unwrap());
        let layer = layer(device, out, width, compute);
        let mut tape = Tape::new(device);
        let y = bag(&mut tape, &x, drop, &layer, dtype).unwrap();
        let value = y.value().clone();
        let g = upload(device, 3, value.shape(), dtype);
        tape.backward(vec![(y, g)], &[], |_| Ok(())).unwrap();
        let (dw, db) = (layer.weight.take_grad().unwrap(), layer.bias.unwrap().take_grad().unwrap());
        assert_eq!((dw.dtype(), db.dtype()), (compute, compute), "gradients of parameters are not rounded");
        [value, dw, db].iter().map(f64s).collect()
    }

    /// The same entries among zeros.
    fn dense(x: &SparseFeatures) -> Vec<f64> {
        let (rows, width) = (x.indptr.len() - 1, x.width);
        let mut dense = vec![0.0; rows * width];
        for i in 0..rows {
            for e in x.indptr[i] as usize..x.indptr[i + 1] as usize {
                dense[i * width + x.indices[e] as usize] = x.data.as_ref().map_or(1.0, |d| f64::from(d[e]));
            }
        }
        dense
    }

    fn equals_a_dense_product_in_f64(device: &Device) {
        let (rows, width, out) = (40, 9, 5);
        for values in [Ones, Given] {
            let x = features(rows, width, values);
            let dense = dense(&x);
            let w = f64s(&upload(device, 1, (out, width), DType::F64));
            let b = f64s(&upload(device, 2, (1, out), DType::F64));
            let g = f64s(&upload(device, 3, (rows, out), DType::F64));
            let product =
                |i: usize, o: usize| b[o] + (0..width).map(|c| dense[i * width + c] * w[o * width + c]).sum::<f64>();
            let y: Vec<f64> = (0..rows * out).map(|k| product(k / out, k % out)).collect();
            let entry = |o: usize, c: usize| (0..rows).map(|i| g[i * out + o] * dense[i * width + c]).sum();
            let dw: Vec<f64> = (0..out * width).map(|k| entry(k / width, k % width)).collect();
            let db: Vec<f64> = (0..out).map(|o| (0..rows).map(|i| g[i * out + o]).sum()).collect();
            let found = run(device, [rows, width, out], DType::F64, values);
            for (found, expected) in found.iter().zip([y, dw, db]) {
                near(found, &expected, 1e-12, "bag");
            }
        }
    }

    fn dropout_of_entries_is_dropout_of_the_dense_matrix(device: &Device) {
        let (rows, width, out) = (60, 70, 5);
        let ids = Ids::Listed((0..rows as u64).rev().map(|k| 7 * k).collect());
        let drop = RowDropout { ids, ..half() };
        for values in [Ones, Given] {
            let x = features(rows, width, values);
            let dense = dense(&x);
            let layer = layer(device, out, width, DType::F64);
            let mut tape = Tape::new(device);
            let dense = tape.constant(device.upload(rows, width, &dense, Tag::Activations).unwrap());
            let dense = dropout(&mut tape, &dense, &drop).unwrap();
            let layers = std::slice::from_ref(&layer);
            let y = linear(&mut tape, &dense, layers, Default::default(), DType::F64).unwrap();
            let expected = f64s(y.value());
            let g = upload(device, 3, (rows, out), DType::F64);
            tape.backward(vec![(y, g)], &[], |_| Ok(())).unwrap();
            let dw = f64s(&layer.weight.take_grad().unwrap());
            let found = run_dropped(device, [rows, width, out], DType::F64, values, Some(&drop));
            near(&found[0], &expected, 1e-12, "y");
            near(&found[1], &dw, 1e-12, "dW");
        }
    }

    #[test]
    fn stacked_bags_are_one() {
        let device = Device::cpu();
        let part = |f: &SparseFeatures, rows: std::ops::Range<usize>| {
            let (start, end) = (f.indptr[rows.start], f.indptr[rows.end]);
            let indptr: Vec<u64> = f.indptr[rows.start..=rows.end].iter().map(|k| k - start).collect();
            let entries = start as usize..end as usize;
            let data = f.data.as_ref().map(|data| data[entries.clone()].to_vec().into());
            let indices = f.indices[entries].to_vec().into();
            SparseFeatures { indptr: indptr.into(), indices, data, width: f.width }
        };
        for values in [Ones, Given] {
            let all = features(9, 6, values);
            let bag = |f: &SparseFeatures| Bag::new(&device, f, DType::F32).unwrap();
            let parts = [0..2, 2..2, 2..9].map(|rows| bag(&part(&all, rows)));
            let (stacked, whole) = (Bag::stack(&parts.iter().collect::<Vec<_>>()).unwrap(), bag(&all));
            assert_eq!(stacked.graph.forward.csr, whole.graph.forward.csr);
            let numbers = |bag: &Bag| bag.values.as_ref().map(|m| m.to_vec::<f32>().unwrap());
            assert_eq!(numbers(&stacked), numbers(&whole));
        }
        let (with, without) = (features(3, 2, Given), features(3, 2, Ones));
        let [with, without] = [with, without].map(|f| Bag::new(&device, &f, DType::F32).unwrap());
        assert!(Bag::stack(&[&with, &without]).is_err() && Bag::stack(&[]).is_err());
    }

    #[test]
    fn every_instruction_set_and_type_agrees_with_f64() {
        for (shape, values) in [([9000, 50, 24], Given), ([9000, 50, 16], Ones), ([33, 200, 3], Given)] {
            takes_as_much(&format!("{shape:?}"), |device| run(device, shape, DType::F32, values));
            let exact = run(&Device::cpu(), shape, DType::F64, values);
            for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
                let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
                for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::Bf16, 1e-2)] {
                    for (found, exact) in run(&device, shape, dtype, values).iter().zip(&exact) {
                        near(found, exact, tolerance, &format!("{shape:?} {isa} {dtype}"));
                    }
                }
            }
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_agrees_with_f64() {
        let device = crate::ops::tests::gpu();
        for (shape, values) in [([9000, 50, 24], Given), ([9000, 50, 16], Ones), ([33, 200, 3], Given)] {
            let exact = run(&Device::cpu(), shape, DType::F64, values);
            for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 2e-5), (DType::Bf16, 1e-2)] {
                let found = run(&device, shape, dtype, values);
                for (found, exact) in found.iter().zip(&exact) {
                    near(found, exact, tolerance, &format!("{shape:?} {dtype}"));
                }
                assert!(found == run(&device, shape, dtype, values), "other bits the second time");
            }
        }
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        same_bits_for_any_number_of_threads(
            || run_dropped(&Device::cpu(), [9000, 50, 24], DType::F32, Given, Some(&half())),
            "bag",
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let device = Device::cpu();
        let mut x = features(6, 4, Ones);
        let bad = layer(&device, 3, 5, DType::F32);
        let good = Rc::new(Bag::new(&device, &x, DType::F32).unwrap());
        assert!(bag(&mut Tape::new(&device), &good, None, &bad, DType::F32).is_err());
        x.width = 2;
        assert!(Bag::new(&device, &x, DType::F32).is_err());
        let mut x = features(6, 4, Given);
        x.data = Some(vec![1.0].into());
        assert!(Bag::new(&device, &x, DType::F32).is_err());
    }
}
