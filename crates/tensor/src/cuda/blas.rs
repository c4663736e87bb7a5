//! Dense products by cuBLASLt, of matrices that are stored row by row.
//!
//! cuBLASLt counts columns first, so it is given the transposed product: toᵀ = bᵀ·aᵀ, for which nothing has to be
//! moved. What it has to find out about a shape (which of its kernels is fastest) is found once and kept. Shapes that
//! it does not take go to a plain kernel of our own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayoutAttribute_t as LayoutAttribute,
    cudaDataType_t,
};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};

use super::compile::{Defines, Source};
use super::launch::THREADS;
use super::{Cuda, source};
use crate::backend::Memory;
use crate::device_name::Precision;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::Write;

pub(super) static SOURCE: Source = source!("multiply", ["numbers"]);
/// What NVIDIA recommends for Hopper.
const WORKSPACE: usize = 32 << 20;
/// Rows and columns of a block's tile in our own kernel.
const TILE: usize = 64;

/// What is done to a product before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    Plain,
    Bias,
    Relu,
    BiasRelu,
}

/// A matrix as a product sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Operand {
    /// Where its first element is.
    pub(super) at: u64,
    pub(super) dtype: DType,
    /// Elements from one row to the next, as stored.
    pub(super) row: usize,
    /// Elements from one matrix of a batch to the next.
    pub(super) next: usize,
    /// Whether what is stored is the transpose of what is meant.
    pub(super) transposed: bool,
}

impl Operand {
    /// The same elements, as the transpose of what is meant.
    pub(super) fn transposed(self) -> Self {
        Self { transposed: true, ..self }
    }
}

/// `to = a·b`, of which a is m × k and b is k × n, for each of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) shape: [usize; 3],
    pub(super) batch: usize,
    pub(super) a: Operand,
    pub(super) b: Operand,
    pub(super) to: Operand,
    /// How it is written to `to`.
    pub(super) write: Write,
    pub(super) ending: Ending,
    /// A bias of the type of `to`, where the ending has one.
    pub(super) bias: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    shape: [usize; 3],
    batch: usize,
    operands: [Operand; 3],
    write: Write,
    ending: Ending,
}

/// cuBLASLt, with what it found out about shapes.
pub(super) struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: CudaSlice<u8>,
    precision: Precision,
    /// `None` where it has no kernel.
    matmuls: RefCell<HashMap<Key, Option<Arc<Matmul>>>>,
}

struct Matmul {
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Drop for Matmul {
    fn drop(&mut self) {
        // SAFETY: they were created with the matmul, and only it has them.
        unsafe {
            let _ = lt::destroy_matmul_desc(self.description);
            for layout in self.layouts {
                let _ = lt::destroy_matrix_layout(layout);
            }
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        self.matmuls.borrow_mut().clear();
        // SAFETY: it was created, and nobody has destroyed it.
        let _ = unsafe { lt::destroy_handle(self.handle) };
    }
}

fn element(dtype: DType) -> cudaDataType_t {
    match dtype {
        DType::F32 => cudaDataType_t::CUDA_R_32F,
        DType::F64 => cudaDataType_t::CUDA_R_64F,
        DType::Bf16 => cudaDataType_t::CUDA_R_16BF,
    }
}

/// The largest power of two, up to 256, that divides the place of an operand.
fn alignment(at: u64) -> u32 {
    1 << (at | 256).trailing_zeros()
}

impl Blas {
    pub(super) fn new(stream: &Arc<CudaStream>, precision: Precision) -> std::result::Result<Self, String> {
        // SAFETY: contents are not read before they are written.
        let workspace = unsafe { stream.alloc::<u8>(WORKSPACE) }.map_err(|e| format!("no memory for cuBLASLt: {e}"))?;
        let handle = lt::create_handle().map_err(|e| format!("cannot start cuBLASLt: {e}"))?;
        Ok(Self { handle, workspace, precision, matmuls: RefCell::default() })
    }

    /// How to compute a product, from what is known or by asking.
    fn matmul(&self, p: &Product) -> Option<Arc<Matmul>> {
        let place = |o: Operand| Operand { at: alignment(o.at).into(), ..o };
        let operands = [place(p.a), place(p.b), place(p.to)];
        let key = Key { shape: p.shape, batch: p.batch, operands, write: p.write, ending: p.ending };
        if let Some(matmul) = self.matmuls.borrow().get(&key) {
            return matmul.clone();
        }
        let matmul = self.search(p).ok().map(Arc::new);
        self.matmuls.borrow_mut().insert(key, matmul.clone());
        matmul
    }

    fn search(&self, p: &Product) -> std::result::Result<Matmul, lt::CublasError> {
        let [m, n, k] = p.shape.map(|x| x as u64);
        let (compute, scale) = match (p.a.dtype, self.precision) {
            (DType::F64, _) => (cublasComputeType_t::CUBLAS_COMPUTE_64F, cudaDataType_t::CUDA_R_64F),
            (DType::F32, Precision::Tf32) => {
                (cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, cudaDataType_t::CUDA_R_32F)
            }
            _ => (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F),
        };
        let layout = |o: Operand, rows: u64, cols: u64| -> std::result::Result<_, lt::CublasError> {
            let (rows, cols) = if o.transposed { (cols, rows) } else { (rows, cols) };
            // Rows of ours are its columns.
            let layout = lt::create_matrix_layout(element(o.dtype), cols, rows, o.row as i64)?;
            if p.batch > 1 {
                let (count, next) = (p.batch as i32, o.next as i64);
                // SAFETY: the layout was just made; the attributes have these types.
                unsafe {
                    set_layout(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count)?;
                    set_layout(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &next)?;
                }
            }
            Ok(layout)
        };
        // b comes first in the transposed product.
        let layouts = [layout(p.b, k, n)?, layout(p.a, m, k)?, layout(p.to, m, n)?];
        let description = lt::create_matmul_desc(compute, scale)?;
        let mut matmul = Matmul { description, layouts, algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] } };
        let ending = match p.ending {
            Ending::Plain => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            Ending::Bias => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            Ending::Relu => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
            Ending::BiasRelu => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
        };
        let [first, second] = [p.b, p.a].map(|o| i32::from(o.transposed));
        let preference = Wishes(lt::create_matmul_pref()?);
        // SAFETY: descriptions live here; each attribute is given a number of its type.
        unsafe {
            set(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &first)?;
            set(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &second)?;
            set(description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &ending)?;
            if matches!(p.ending, Ending::Bias | Ending::BiasRelu) {
                set(description, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias)?;
            }
            preference.set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
            for (attribute, o) in [
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.b),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.a),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.to),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.to),
            ] {
                preference.set(attribute, &alignment(o.at))?;
            }
            let [a, b, c] = matmul.layouts;
            let found = lt::get_matmul_algo_heuristic(self.handle, description, a, b, c, c, preference.0)?;
            matmul.algorithm = found.algo;
        }
        Ok(matmul)
    }

    /// Computes a product; `false` if there is no kernel for it.
    fn run(&self, stream: &CudaStream, p: &Product) -> std::result::Result<bool, lt::CublasError> {
        let Some(matmul) = self.matmul(p) else { return Ok(false) };
        let wide = p.a.dtype == DType::F64;
        let added = u8::from(p.write == Write::Add);
        let (one, add) = (1.0f64, f64::from(added));
        let (one_single, add_single) = (1.0f32, f32::from(added));
        let number = |wide_one: &f64, single: &f32| -> *const c_void {
            if wide { std::ptr::from_ref(wide_one).cast() } else { std::ptr::from_ref(single).cast() }
        };
        let [a, b, c] = matmul.layouts;
        let (workspace, _guard) = self.workspace.device_ptr(stream);
        // SAFETY: the matmul is for operands of these shapes, whose memory is freed in the order of the stream.
        unsafe {
            if matches!(p.ending, Ending::Bias | Ending::BiasRelu) {
                set(matmul.description, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias)?;
            }
            lt::matmul(
                self.handle,
                matmul.description,
                number(&one, &one_single),
                number(&add, &add_single),
                p.b.at as *const c_void,
                a,
                p.a.at as *const c_void,
                b,
                p.to.at as *const c_void,
                c,
                p.to.at as *mut c_void,
                c,
                &matmul.algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                stream.cu_stream().cast(),
            )?;
        }
        Ok(true)
    }
}

/// What a search looks for.
struct Wishes(sys::cublasLtMatmulPreference_t);

impl Wishes {
    /// # Safety
    /// The attribute has the type `V`.
    unsafe fn set<V>(&self, attribute: Preference, value: &V) -> std::result::Result<(), lt::CublasError> {
        // SAFETY: passed on.
        unsafe { lt::set_matmul_pref_attribute(self.0, attribute, std::ptr::from_ref(value).cast(), size_of::<V>()) }
    }
}

impl Drop for Wishes {
    fn drop(&mut self) {
        // SAFETY: it was created, and nobody has destroyed it.
        let _ = unsafe { lt::destroy_matmul_pref(self.0) };
    }
}

/// # Safety
/// The attribute has the type `V`.
unsafe fn set<V>(
    description: sys::cublasLtMatmulDesc_t,
    attribute: Attribute,
    value: &V,
) -> std::result::Result<(), lt::CublasError> {
    // SAFETY: passed on.
    unsafe { lt::set_matmul_desc_attribute(description, attribute, std::ptr::from_ref(value).cast(), size_of::<V>()) }
}

/// # Safety
/// The attribute has the type `V`.
unsafe fn set_layout<V>(
    layout: sys::cublasLtMatrixLayout_t,
    attribute: LayoutAttribute,
    value: &V,
) -> std::result::Result<(), lt::CublasError> {
    // SAFETY: passed on.
    unsafe { lt::set_matrix_layout_attribute(layout, attribute, std::ptr::from_ref(value).cast(), size_of::<V>()) }
}

impl Cuda {
    /// Computes a product that has elements; whether its ending was applied too.
    ///
    /// # Safety
    /// The operands must be where and as large as the product says.
    pub(super) unsafe fn multiply(&self, op: &'static str, p: &Product) -> Result<bool> {
        let failed = |e: lt::CublasError| Error::Device { device: self.name(), problem: format!("{op}: {e}") };
        self.context.bind_to_thread().map_err(self.fail("multiply"))?;
        let Some(blas) = &self.blas else { return Err(self.elsewhere("this product")) };
        if blas.run(&self.stream, p).map_err(failed)? {
            return Ok(true);
        }
        if p.ending != Ending::Plain {
            let plain = Product { ending: Ending::Plain, ..*p };
            // SAFETY: passed on.
            unsafe { self.multiply(op, &plain) }?;
            return Ok(false);
        }
        let wide = p.to.dtype != p.a.dtype;
        let strides = |o: Operand| if o.transposed { [1, o.row as i64] } else { [o.row as i64, 1] };
        let [m, n, k] = p.shape;
        for number in 0..p.batch {
            let place = |o: Operand| o.at + (number * o.next * o.dtype.size()) as u64;
            let (a, b) = (strides(p.a), strides(p.b));
            let launch = self
                .kernel(op, &SOURCE, Defines::of(p.a.dtype).with("WIDE", usize::from(wide)), "multiply")?
                .arg(place(p.a))
                .arg(a[0])
                .arg(a[1])
                .arg(place(p.b))
                .arg(b[0])
                .arg(b[1])
                .arg(place(p.to))
                .arg(p.to.row as i64)
                .arg(m as i64)
                .arg(n as i64)
                .arg(k as i64)
                .arg(i32::from(p.write == Write::Add));
            // SAFETY: passed on.
            unsafe { launch.run([m.div_ceil(TILE), n.div_ceil(TILE)], THREADS, 0) }?;
        }
        Ok(true)
    }
}
