//! NumPy's `.npy` format: mapped for reading, streamed for writing.
//!
//! One header parser serves mapped files here and archive members in the `.npz` readers. Only what a dataset needs is
//! accepted: plain little-endian numbers in C order.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use graphweft_base::{Error, Result, plain};
use half::f16;
use memmap2::Mmap;

use crate::buf::{Buf, map_file};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Every header we write fills this many bytes, so that the shape can be filled in when the length is known.
const HEADER_BYTES: usize = 128;
/// NumPy's own headers are under 200 bytes; a longer one is no array of numbers.
const LONGEST_HEADER: usize = 1 << 16;

/// The element types that datasets use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NpyType {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
}

impl NpyType {
    const ALL: [(Self, &'static str); 12] = [
        (Self::Bool, "|b1"),
        (Self::I8, "|i1"),
        (Self::U8, "|u1"),
        (Self::I16, "<i2"),
        (Self::U16, "<u2"),
        (Self::I32, "<i4"),
        (Self::U32, "<u4"),
        (Self::I64, "<i8"),
        (Self::U64, "<u8"),
        (Self::F16, "<f2"),
        (Self::F32, "<f4"),
        (Self::F64, "<f8"),
    ];

    fn descr(self) -> &'static str {
        Self::ALL.iter().find(|(d, _)| *d == self).map_or("", |(_, s)| s)
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

impl fmt::Display for NpyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
        })
    }
}

/// A Rust type that has a [`NpyType`].
pub trait Element: Pod + Send + Sync {
    /// Its NumPy type.
    const DTYPE: NpyType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: NpyType = NpyType::$d; })* };
}
element!(i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f16 => F16, f32 => F32, f64 => F64);

/// What the header of an `.npy` file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub dtype: NpyType,
    /// Column-major order: only one-dimensional arrays may have it in a dataset folder.
    pub fortran_order: bool,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
}

impl Header {
    /// Number of elements, or `None` if the product overflows.
    pub fn num_elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, &x| n.checked_mul(x))
    }

    /// Parses the header at the start of `input` and leaves `input` at the first element. Returns the header and its
    /// bytes.
    ///
    /// The message of a failure says what is wrong; the caller adds the file.
    pub fn read(input: &mut impl Read) -> std::result::Result<(Self, usize), String> {
        let cut = |e: std::io::Error| format!("the header is cut short ({e})");
        let mut start = [0u8; 8];
        input.read_exact(&mut start).map_err(cut)?;
        if &start[..6] != MAGIC {
            return Err("this is not a NumPy array: the first bytes are not \\x93NUMPY".into());
        }
        let (length, prefix) = match start[6] {
            1 => {
                let mut b = [0u8; 2];
                input.read_exact(&mut b).map_err(cut)?;
                (usize::from(u16::from_le_bytes(b)), 10)
            }
            2 | 3 => {
                let mut b = [0u8; 4];
                input.read_exact(&mut b).map_err(cut)?;
                (u32::from_le_bytes(b) as usize, 12)
            }
            v => return Err(format!("unknown .npy version {v}")),
        };
        if length > LONGEST_HEADER {
            return Err(format!("the header claims {length} bytes: not an array of numbers"));
        }
        let mut text = vec![0u8; length];
        input.read_exact(&mut text).map_err(cut)?;
        let text = std::str::from_utf8(&text).map_err(|_| "the header is not text".to_string())?;
        Ok((Self::parse(text)?, prefix + length))
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let value = |key: &str| {
            let quoted = [format!("'{key}'"), format!("\"{key}\"")];
            let at = quoted.iter().find_map(|q| text.find(q.as_str()).map(|i| i + q.len()));
            at.and_then(|i| text[i..].trim_start().strip_prefix(':'))
                .map(str::trim_start)
                .ok_or_else(|| format!("the header has no '{key}'"))
        };

        let descr = value("descr")?;
        if descr.starts_with('[') {
            return Err("structured elements: expected plain numbers".into());
        }
        let quote =
            descr.chars().next().filter(|c| matches!(c, '\'' | '"')).ok_or("the header's 'descr' is no string")?;
        let descr = descr[1..].split(quote).next().unwrap_or_default();
        let dtype = NpyType::ALL.iter().find(|(_, s)| *s == descr || s.strip_prefix('|') == Some(descr));
        let dtype = match dtype {
            Some((d, _)) => *d,
            None if descr.starts_with('>') => return Err(format!("big-endian elements ({descr})")),
            None if descr.contains('O') => return Err("pickled Python objects, which are never read".into()),
            None => return Err(format!("elements of type {descr}: expected numbers")),
        };

        let order = value("fortran_order")?;
        let fortran_order = if order.starts_with("True") {
            true
        } else if order.starts_with("False") {
            false
        } else {
            return Err("the header's 'fortran_order' is neither True nor False".into());
        };

        let shape = value("shape")?
            .strip_prefix('(')
            .and_then(|s| s.split_once(')'))
            .ok_or("the header's 'shape' is no tuple")?;
        let shape = shape
            .0
            .split(',')
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .map(|s| s.parse().map_err(|_| format!("the header's 'shape' has {s:?}: expected a count")))
            .collect::<std::result::Result<Vec<usize>, _>>()?;
        Ok(Self { dtype, fortran_order, shape })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let shape: String = self.shape.iter().map(|n| format!("{n},")).collect();
        // NumPy writes (3,) for one dimension and (3, 4) for more.
        let shape = match self.shape.len() {
            1 => shape,
            _ => shape.trim_end_matches(',').replace(',', ", "),
        };
        let order = if self.fortran_order { "True" } else { "False" };
        let dict = format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': ({shape}), }}", self.dtype.descr());
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[1, 0]);
        out.extend_from_slice(&((HEADER_BYTES - 10) as u16).to_le_bytes());
        out.extend_from_slice(dict.as_bytes());
        out.resize(HEADER_BYTES - 1, b' ');
        out.push(b'\n');
        out
    }
}

/// A mapped `.npy` file whose header agrees with its length; the elements are not yet looked at.
#[derive(Clone, Debug)]
pub struct NpyFile {
    path: PathBuf,
    map: Arc<Mmap>,
    header: Header,
    data: usize,
}

impl NpyFile {
    /// Maps `path` and checks its header against its length.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the file is missing, no `.npy`, in Fortran order, or shorter or longer than its header
    /// says.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let unreadable = |e: std::io::Error| Error::unreadable(path, "file", &e);
        let file = plain::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        let save_again = "write it again with numpy.save";
        if about.len() == 0 {
            return Err(Error::bad(path, "header", "the file is empty", save_again));
        }
        let map = map_file(&file).map_err(unreadable)?;
        let (header, data) =
            Header::read(&mut &map[..]).map_err(|problem| Error::bad(path, "header", problem, save_again))?;
        if header.fortran_order && header.shape.len() > 1 {
            let remedy = "write numpy.ascontiguousarray(x) instead of x";
            return Err(Error::bad(path, "fortran_order", "the array is stored column by column", remedy));
        }
        let bytes = header.num_elements().and_then(|n| n.checked_mul(header.dtype.size()));
        let stored = map.len() - data;
        match bytes {
            Some(bytes) if bytes == stored => Ok(Self { path: path.to_path_buf(), map, header, data }),
            _ => {
                let shape = format!("{} {:?}", header.dtype, header.shape);
                let expected = bytes.map_or("more than the address space".into(), |b| format!("{b} bytes"));
                let problem = format!("shape {shape} needs {expected}, the file holds {stored} after its header");
                Err(Error::bad(path, "length", problem, "the file is cut short or corrupt; copy or create it again"))
            }
        }
    }

    /// Element type.
    pub fn dtype(&self) -> NpyType {
        self.header.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The elements, if they are of type `T`: a window into the file, nothing is read.
    pub fn elements<T: Element>(&self) -> Option<Buf<T>> {
        let len = self.header.num_elements().filter(|_| self.header.dtype == T::DTYPE)?;
        Buf::from_map(&self.map, self.data, len)
    }

    /// An error about this file's dtype.
    pub fn wrong_dtype(&self, field: &str, expected: &str) -> Error {
        let remedy = format!("convert it with numpy's astype to {expected} and save it again");
        Error::bad(&self.path, field, format!("dtype is {}, expected {expected}", self.dtype()), remedy)
    }

    /// An error about this file's shape.
    pub fn wrong_shape(&self, field: &str, expected: &str) -> Error {
        let problem = format!("shape is {:?}, expected {expected}", self.shape());
        Error::bad(
            &self.path,
            field,
            problem,
            "the arrays of a dataset must agree with num_nodes and num_edges in meta.toml",
        )
    }
}

/// Writes an `.npy` file piece by piece; the number of rows is filled in at the end.
pub struct NpyWriter<T> {
    path: PathBuf,
    file: BufWriter<File>,
    row: Vec<usize>,
    elements: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Element> NpyWriter<T> {
    /// Creates `path` for rows of shape `row` (`&[]` for a plain vector). A file of that name is replaced, not
    /// overwritten: whoever has it mapped keeps the old bytes.
    pub fn create(path: impl AsRef<Path>, row: &[usize]) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::write("replace", &path)(e)),
            _ => {}
        }
        let file = File::create_new(&path).map_err(Error::write("create", &path))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&[0u8; HEADER_BYTES]).map_err(Error::write("write", &path))?;
        Ok(Self { path, file, row: row.to_vec(), elements: 0, element: std::marker::PhantomData })
    }

    /// Appends elements.
    pub fn push(&mut self, elements: &[T]) -> Result<()> {
        self.elements += elements.len();
        self.file.write_all(bytemuck::cast_slice(elements)).map_err(Error::write("write", &self.path))
    }

    /// Writes the header and hands the bytes to the disk. Returns the number of rows.
    pub fn finish(mut self) -> Result<usize> {
        let width: usize = self.row.iter().product();
        let rows = self.elements.checked_div(width).unwrap_or(0);
        let mut shape = vec![rows];
        shape.append(&mut self.row);
        let header = Header { dtype: T::DTYPE, fortran_order: false, shape };
        let write = || Error::write("write", &self.path);
        self.file.seek(SeekFrom::Start(0)).map_err(write())?;
        self.file.write_all(&header.bytes()).map_err(write())?;
        let file = self.file.into_inner().map_err(|e| write()(e.into_error()))?;
        file.sync_all().map_err(write())?;
        Ok(rows)
    }
}

/// Writes a whole array with rows of shape `row`.
pub fn write_npy<T: Element>(path: impl AsRef<Path>, row: &[usize], elements: &[T]) -> Result<()> {
    let mut w = NpyWriter::create(path, row)?;
    w.push(elements)?;
    w.finish().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numpys_own_header_is_reproduced_byte_for_byte() {
        // numpy.save of np.zeros((3, 4), '<f4'), first 128 bytes.
        let mut numpy = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }".to_vec();
        numpy.resize(127, b' ');
        numpy.push(b'\n');
        let header = Header { dtype: NpyType::F32, fortran_order: false, shape: vec![3, 4] };
        assert_eq!(header.bytes(), numpy);
        assert_eq!(Header::read(&mut &numpy[..]), Ok((header, 128)));
    }

    #[test]
    fn a_written_file_is_mapped_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write_npy(&path, &[2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let file = NpyFile::open(&path).unwrap();
        assert_eq!((file.dtype(), file.shape()), (NpyType::F32, &[2usize, 2][..]));
        assert_eq!(&file.elements::<f32>().unwrap()[..], &[1.0, 2.0, 3.0, 4.0]);
        assert!(file.elements::<u32>().is_none());
    }

    #[test]
    fn what_is_not_an_array_of_numbers_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bad.npy");
        let mut good = Header { dtype: NpyType::U32, fortran_order: false, shape: vec![2] }.bytes();
        good.extend_from_slice(&[0; 8]);
        let with = |from: &str, to: &str| {
            let at = good.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            let mut bad = good.clone();
            bad[at..at + to.len()].copy_from_slice(to.as_bytes());
            bad
        };
        let cases: Vec<(Vec<u8>, &str)> = vec![
            (vec![], "empty"),
            (b"\x93NUM".to_vec(), "cut short"),
            (b"not numpy at all".to_vec(), "not a NumPy array"),
            (good[..good.len() - 1].to_vec(), "the file holds 7"),
            ([&good[..], &[0]].concat(), "the file holds 9"),
            (with("<u4", ">u4"), "big-endian"),
            (with("<u4", "|O8"), "pickled"),
            (with("(2,)", "(-2)"), "expected a count"),
            (with("False", "Maybe"), "fortran_order"),
            (with("shape", "shade"), "no 'shape'"),
        ];
        for (bytes, expected) in cases {
            fs::write(&path, &bytes).unwrap();
            let message = NpyFile::open(&path).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains("bad.npy"), "{message}");
        }
        assert!(NpyFile::open(dir.path()).unwrap_err().to_string().contains("folder"));
    }
}
