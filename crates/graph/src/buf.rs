//! [`Buf`]: an immutable array that is either owned or a window into a memory-mapped file.

use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

/// An immutable, cheaply cloned array: a `Vec` that lives here, or typed bytes of a mapped file.
///
/// Graph code reads `&[T]` through `Deref` and cannot tell the two apart.
///
/// ```
/// use graphweft_graph::Buf;
/// let b: Buf<u32> = vec![1, 2, 3].into();
/// assert_eq!(b.iter().sum::<u32>(), 6);
/// ```
#[derive(Clone)]
pub struct Buf<T>(Repr<T>);

#[derive(Clone)]
enum Repr<T> {
    Owned(Arc<Vec<T>>),
    Mapped { map: Arc<Mmap>, start: usize, end: usize, element: PhantomData<T> },
}

impl<T: Pod> Buf<T> {
    /// A typed window of `len` elements at byte `start` of a mapped file.
    ///
    /// Returns `None` if the window leaves the file. Bytes that are not aligned for `T` are copied.
    pub fn from_map(map: &Arc<Mmap>, start: usize, len: usize) -> Option<Self> {
        let end = len.checked_mul(size_of::<T>())?.checked_add(start)?;
        let bytes = map.get(start..end)?;
        Some(match bytemuck::try_cast_slice::<u8, T>(bytes) {
            Ok(_) => Self(Repr::Mapped { map: Arc::clone(map), start, end, element: PhantomData }),
            Err(_) => bytemuck::pod_collect_to_vec::<u8, T>(bytes).into(),
        })
    }

    /// The same bits as another type of the same size and alignment (`u64` for a checked `i64`).
    pub fn cast<U: Pod>(self) -> Buf<U> {
        assert_eq!((size_of::<T>(), align_of::<T>()), (size_of::<U>(), align_of::<U>()));
        match self.0 {
            Repr::Mapped { map, start, end, .. } => Buf(Repr::Mapped { map, start, end, element: PhantomData }),
            Repr::Owned(v) => {
                let v = Arc::try_unwrap(v).unwrap_or_else(|shared| shared.as_ref().clone());
                bytemuck::cast_vec(v).into()
            }
        }
    }
}

impl<T: Pod> Buf<T> {
    /// The same elements in memory of this process's own, where nobody else can change them.
    pub fn into_owned(self) -> Self {
        match self.0 {
            Repr::Owned(_) => self,
            Repr::Mapped { .. } => self.to_vec().into(),
        }
    }
}

impl<T> Buf<T> {
    /// Whether its bytes are those of a file, whose pages belong to the page cache.
    #[cfg(test)]
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.0, Repr::Mapped { .. })
    }
}

impl<T> Buf<T> {
    /// Gives the pages of a mapped file back: they no longer count as this process's memory, and are mapped again, from
    /// the page cache or the disk, when they are next looked at.
    #[allow(unsafe_code)]
    pub fn release(&self) {
        if let Repr::Mapped { map, .. } = &self.0 {
            // SAFETY: the map is a read-only view of a file; pages that are dropped are read from the file again, with
            // the same bytes. Where the system does not want to, nothing happens.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }
}

impl<T> From<Vec<T>> for Buf<T> {
    fn from(v: Vec<T>) -> Self {
        Self(Repr::Owned(Arc::new(v)))
    }
}

impl<T: Pod> Deref for Buf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Repr::Owned(v) => v,
            Repr::Mapped { map, start, end, .. } => bytemuck::cast_slice(&map[*start..*end]),
        }
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Buf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self.0, Repr::Owned(_)) { "owned" } else { "mapped" };
        write!(f, "Buf({kind}, len {}, {:?}…)", self.len(), &self[..self.len().min(4)])
    }
}

impl<T: Pod + PartialEq> PartialEq for Buf<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

/// Maps a whole file for reading.
#[allow(unsafe_code)]
pub(crate) fn map_file(file: &File) -> io::Result<Arc<Mmap>> {
    // SAFETY: the map is read-only and everything read through it is plain old data, so no bit pattern is invalid.
    // Another process that truncates the file while we read ends this one with SIGBUS, as for every program that maps
    // files; our own writers never modify a file in place: they write a new one and rename. One that changes the bytes
    // while we read can make results wrong, or end us with a panic where an id was in range when it was checked; but
    // whatever is looked up without a check (the ids of edges in kernels) was copied and checked in the copy: see
    // `Csr::into_bounded`.
    Ok(Arc::new(unsafe { Mmap::map(file)? }))
}
