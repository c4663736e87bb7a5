//! Memory of a rank, as communicators see it.

use graphweft_base::DType;

/// Type of the elements, for sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Numbers that can be added up.
    Number(DType),
    /// Never summed.
    Bytes,
}

#[allow(missing_docs)]
impl Type {
    pub const F32: Self = Self::Number(DType::F32);
    pub const F64: Self = Self::Number(DType::F64);
    pub const BF16: Self = Self::Number(DType::Bf16);
}

impl Type {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::Number(dtype) => dtype.size(),
            Self::Bytes => 1,
        }
    }
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this process.
    Host,
    /// On a GPU, in the order of a stream: what was enqueued there before an exchange is posted comes first, and what
    /// is enqueued after it was waited for comes later. Nobody waits for the GPU itself.
    Cuda(Gpu),
    /// Nowhere: what is moved or summed has a size and no contents.
    Nowhere,
}

/// What moves and adds up memory of a GPU: handles of the CUDA driver, which whoever owns the memory keeps as long as
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number.
    pub device: usize,
    /// A `CUcontext` of it.
    pub context: usize,
    /// The `CUstream` in whose order the memory is used.
    pub stream: usize,
    /// Another `CUstream`, for copies beside computations.
    pub aside: usize,
    /// The `CUfunction` that adds up elements of the type of the view, `void (T *to, const T *own, const T *others, int
    /// rank, int ranks, long long n)`: element k of `to` becomes the sum over ranks, in their order, of `own[k]` for
    /// `rank` and `others[p·n + k]` for the p-th of the others. A thread per element.
    pub add_up: usize,
}

/// A contiguous piece of memory that its owner keeps valid while an exchange uses it.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Where it is.
    pub place: Place,
    /// Its first byte.
    pub pointer: *mut u8,
    /// How many bytes.
    pub bytes: usize,
    /// What they are.
    pub dtype: Type,
}

// SAFETY: a view is an address; whoever reads or writes through it vouches for the memory (see `Communicator::post`).
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// A view of host memory. It is for writing only if `elements` came from a mutable borrow.
    pub fn host<T: bytemuck::Pod>(elements: &[T], dtype: Type) -> Self {
        let (pointer, bytes) = (elements.as_ptr().cast::<u8>().cast_mut(), size_of_val(elements));
        Self { place: Place::Host, pointer, bytes, dtype }
    }

    /// A view of host memory for writing.
    pub fn host_mut<T: bytemuck::Pod>(elements: &mut [T], dtype: Type) -> Self {
        Self { pointer: elements.as_mut_ptr().cast(), ..Self::host(elements, dtype) }
    }

    /// A view of what has a size and no contents.
    pub fn nowhere(bytes: usize, dtype: Type) -> Self {
        Self { place: Place::Nowhere, pointer: std::ptr::null_mut(), bytes, dtype }
    }

    /// Where element `k` of type `T` is.
    pub(crate) fn element<T>(&self, k: usize) -> *mut T {
        self.pointer.cast::<T>().wrapping_add(k)
    }

    /// `bytes` bytes from `start`.
    ///
    /// # Panics
    /// If the view has no such part: that is a mistake in a list of lengths, which must not become a wild pointer.
    #[allow(clippy::panic)]
    pub fn part(self, start: usize, bytes: usize) -> Self {
        match start.checked_add(bytes) {
            Some(end) if end <= self.bytes => Self { pointer: self.pointer.wrapping_add(start), bytes, ..self },
            _ => panic!("bytes {start}..{start}+{bytes} of a view of {} bytes", self.bytes),
        }
    }
}
