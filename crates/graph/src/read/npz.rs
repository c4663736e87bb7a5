//! NumPy archives: zip files of `.npy` members.
//!
//! A member is decompressed as a stream into a [`Spool`], so that large ones lie in a mapped temporary file and a
//! header that claims more than there is costs nothing. Arrays of two dimensions in Fortran order are turned on the
//! way.

use std::io::Read;

use graphweft_base::progress::Unit;
use graphweft_base::{Error, Position, Problem, Result};
use half::f16;
use rayon::prelude::*;
use zip::ZipArchive;
use zip::result::ZipError;

use super::input::ReadSeek;
use super::{Context, Input};
use crate::buf::Buf;
use crate::build::{EdgeSorter, Scratch, Spool};
use crate::npy::{Element, Header, NpyType};

/// Elements moved at a time.
const CHUNK: usize = 1 << 16;
/// Names listed in a message.
const MOST_NAMES: usize = 20;
const CORRUPT: &str = "the file is cut short or corrupt; copy or download it again";

/// An open archive.
pub(super) struct Npz<'a> {
    input: &'a Input,
    cx: Context<'a>,
    archive: ZipArchive<Box<dyn ReadSeek>>,
    /// Arrays, sorted.
    names: Vec<String>,
}

/// An array in C order, with its name for messages.
pub(super) struct Array {
    input: Input,
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    /// As it is stored: truth values are told from bytes by this only.
    pub(super) dtype: NpyType,
    pub(super) values: Values,
}

/// The elements of an array, as they are stored; truth values are bytes.
pub(super) enum Values {
    I8(Buf<i8>),
    U8(Buf<u8>),
    I16(Buf<i16>),
    U16(Buf<u16>),
    I32(Buf<i32>),
    U32(Buf<u32>),
    I64(Buf<i64>),
    U64(Buf<u64>),
    F16(Buf<f16>),
    F32(Buf<f32>),
    F64(Buf<f64>),
}

impl<'a> Npz<'a> {
    pub(super) fn open(input: &'a Input, cx: &Context<'a>) -> Result<Self> {
        let archive = ZipArchive::new(input.open()?).map_err(|e| zip_error(input, "archive", &e))?;
        // What has no readable name is no array of ours.
        let names = archive.file_names().flatten().filter_map(|n| n.strip_suffix(".npy").map(str::to_string));
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(Self { input, cx: *cx, archive, names })
    }

    /// The names of the arrays, sorted.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The names of the arrays, for messages.
    pub(super) fn listed(&self) -> String {
        self.names[..self.names.len().min(MOST_NAMES)].join(", ")
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name)
    }

    /// The array `name`, or an error that lists the arrays there are.
    pub(super) fn need(&mut self, name: &str) -> Result<Array> {
        if !self.has(name) {
            let problem = format!("there is no such array; the archive has: {}", self.listed());
            return Err(self.input.bad(name, problem, "check that the format is the right one for this file"));
        }
        let (input, cx) = (self.input, self.cx);
        let mut member = self.archive.by_name(&format!("{name}.npy")).map_err(|e| zip_error(input, name, &e))?;
        Array::read(input, name, &mut member, &cx)
    }

    /// The text in the array `name`, such as the `format` of a SciPy matrix, without the zeros that fill it up.
    pub(super) fn word(&mut self, name: &str) -> Result<String> {
        /// Headers and the words of interest are short.
        const MOST: u64 = 1 << 10;
        let input = self.input;
        let mut member = self.archive.by_name(&format!("{name}.npy")).map_err(|e| zip_error(input, name, &e))?;
        let mut bytes = Vec::new();
        let read = member.by_ref().take(MOST).read_to_end(&mut bytes);
        read.map_err(|e| Error::unreadable(input.path(), name, &e))?;
        // A header ends with a line end; what follows is the text, in one or four bytes per letter.
        let start = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |at| at + 1);
        let letters = bytes[start..].iter().filter(|&&b| b != 0).map(|&b| char::from(b));
        Ok(letters.collect())
    }

    /// The array `name`, if there is one.
    pub(super) fn get(&mut self, name: &str) -> Result<Option<Array>> {
        if self.has(name) { self.need(name).map(Some) } else { Ok(None) }
    }
}

fn zip_error(input: &Input, field: &str, e: &ZipError) -> Error {
    match e {
        ZipError::Io(e) => Error::unreadable(input.path(), field, e),
        e => input.bad(field, format!("this is no readable .npz archive: {e}"), CORRUPT),
    }
}

/// A member whose header has been read.
struct Stored<'a> {
    input: &'a Input,
    cx: Context<'a>,
    name: &'a str,
    header: Header,
}

impl Stored<'_> {
    fn read<T: Element>(&self, member: &mut impl Read) -> Result<Buf<T>> {
        let claimed = format!("{} {:?}", self.header.dtype, self.header.shape);
        let Some(len) = self.header.num_elements().filter(|n| n.checked_mul(size_of::<T>()).is_some()) else {
            return Err(self.input.bad(self.name, format!("the header claims shape {claimed}"), CORRUPT));
        };
        let bytes = len as u64 * size_of::<T>() as u64;
        let task = self.cx.progress.start(&format!("read {}", self.name), bytes, Unit::Bytes);
        let mut values = Spool::new(self.cx.scratch);
        let mut chunk = vec![T::zeroed(); len.min(CHUNK)];
        while values.len() < len {
            let n = (len - values.len()).min(CHUNK);
            member.read_exact(bytemuck::cast_slice_mut(&mut chunk[..n])).map_err(|e| {
                let problem =
                    format!("shape {claimed}, but the data ends or breaks near element {}: {e}", values.len());
                self.input.bad(self.name, problem, CORRUPT)
            })?;
            values.push(&chunk[..n])?;
            task.add((n * size_of::<T>()) as u64);
        }
        // Reading on to the end also makes the archive compare its checksum.
        let extra = member.read(&mut [0u8]).map_err(|e| Error::unreadable(self.input.path(), self.name, &e))?;
        if extra > 0 {
            let problem = format!("there is more data than shape {claimed} needs");
            return Err(self.input.bad(self.name, problem, CORRUPT));
        }
        match (&self.header.shape[..], self.header.fortran_order) {
            // An array without elements may claim any number of rows.
            (&[rows, columns], true) if len > 0 => self.turn(&values.finish()?, rows, columns),
            _ => values.finish(),
        }
    }

    /// From column by column to row by row.
    fn turn<T: Element>(&self, stored: &[T], rows: usize, columns: usize) -> Result<Buf<T>> {
        let mut turned = Spool::new(self.cx.scratch);
        let mut row = Vec::with_capacity(columns);
        for i in 0..rows {
            row.clear();
            row.extend((0..columns).map(|j| stored[j * rows + i]));
            turned.push(&row)?;
        }
        turned.finish()
    }
}

macro_rules! each {
    ($values:expr, $x:ident => $body:expr) => {
        match $values {
            Values::I8($x) => $body,
            Values::U8($x) => $body,
            Values::I16($x) => $body,
            Values::U16($x) => $body,
            Values::I32($x) => $body,
            Values::U32($x) => $body,
            Values::I64($x) => $body,
            Values::U64($x) => $body,
            Values::F16($x) => $body,
            Values::F32($x) => $body,
            Values::F64($x) => $body,
        }
    };
}

/// An element as what it stands for.
trait Elementary: Copy {
    fn number(self) -> f64;
    fn integer(self) -> Option<i128>;
}

macro_rules! elementary {
    ($integer:expr, $($kind:ty => $number:expr),+) => {$(
        impl Elementary for $kind {
            #[inline]
            fn number(self) -> f64 {
                $number(self)
            }

            #[inline]
            fn integer(self) -> Option<i128> {
                $integer(self)
            }
        }
    )+};
}

elementary!(integer, i8 => f64::from, u8 => f64::from, i16 => f64::from, u16 => f64::from);
elementary!(integer, i32 => f64::from, u32 => f64::from, i64 => |x| x as f64, u64 => |x| x as f64);
elementary!(|_| None, f16 => f64::from, f32 => f64::from, f64 => f64::from);

fn integer(x: impl Into<i128>) -> Option<i128> {
    Some(x.into())
}

impl Array {
    /// Reads an array from the bytes of an `.npy` file, called `name` in messages.
    pub(super) fn read(input: &Input, name: &str, bytes: &mut impl Read, cx: &Context<'_>) -> Result<Self> {
        let header = Header::read(bytes);
        let (header, _) = header.map_err(|problem| input.bad(name, problem, "save the array as plain numbers"))?;
        if header.fortran_order && header.shape.len() > 2 {
            let problem = "the array is stored column by column";
            return Err(input.bad(name, problem, "write numpy.ascontiguousarray(x) instead of x"));
        }
        let dtype = header.dtype;
        let stored = Stored { input, cx: *cx, name, header };
        let values = match dtype {
            NpyType::Bool | NpyType::U8 => Values::U8(stored.read(bytes)?),
            NpyType::I8 => Values::I8(stored.read(bytes)?),
            NpyType::I16 => Values::I16(stored.read(bytes)?),
            NpyType::U16 => Values::U16(stored.read(bytes)?),
            NpyType::I32 => Values::I32(stored.read(bytes)?),
            NpyType::U32 => Values::U32(stored.read(bytes)?),
            NpyType::I64 => Values::I64(stored.read(bytes)?),
            NpyType::U64 => Values::U64(stored.read(bytes)?),
            NpyType::F16 => Values::F16(stored.read(bytes)?),
            NpyType::F32 => Values::F32(stored.read(bytes)?),
            NpyType::F64 => Values::F64(stored.read(bytes)?),
        };
        Ok(Self { input: input.clone(), name: name.to_string(), shape: stored.header.shape, dtype, values })
    }

    pub(super) fn len(&self) -> usize {
        each!(&self.values, x => x.len())
    }

    /// Element `at` as a number. Integers beyond 2⁵³ are rounded.
    #[inline]
    pub(super) fn number(&self, at: usize) -> f64 {
        each!(&self.values, x => x[at].number())
    }

    /// Element `at` as an integer; `None` in an array of fractions.
    #[inline]
    pub(super) fn integer(&self, at: usize) -> Option<i128> {
        each!(&self.values, x => x[at].integer())
    }

    /// Element `at` as an id or offset below `limit`.
    #[inline]
    pub(super) fn below(&self, at: usize, limit: u64) -> Result<u64> {
        let value = self.integer(at);
        value.and_then(|v| u64::try_from(v).ok()).filter(|&v| v < limit).ok_or_else(|| {
            let Some(value) = value else { return self.bad("the elements are fractions, expected integers") };
            self.bad(self.at(at, &format!(" is {value}, expected 0 to {}", i128::from(limit) - 1)))
        })
    }

    /// Pushes `count` edges between nodes below `n`; `ends(k)` says which elements are the source and the destination
    /// of edge k.
    pub(super) fn push_edges(
        &self,
        count: usize,
        n: u64,
        ends: impl Fn(usize) -> [usize; 2],
        edges: &mut EdgeSorter,
    ) -> Result<()> {
        let mut chunk = Vec::with_capacity(count.min(CHUNK));
        for start in (0..count).step_by(CHUNK) {
            chunk.clear();
            for k in start..count.min(start + CHUNK) {
                let [source, destination] = ends(k);
                chunk.push([self.below(source, n)?, self.below(destination, n)?]);
            }
            edges.push(&chunk)?;
        }
        Ok(())
    }

    /// All elements as ids or offsets below `limit`.
    pub(super) fn all_below(&self, limit: u64) -> Result<Vec<u64>> {
        // Sequential per piece and pieces in order, so the first error is the one reported.
        let starts: Vec<usize> = (0..self.len()).step_by(CHUNK).collect();
        let pieces: Vec<Result<Vec<u64>>> = starts
            .into_par_iter()
            .map(|start| (start..self.len().min(start + CHUNK)).map(|at| self.below(at, limit)).collect())
            .collect();
        let mut all = Vec::with_capacity(self.len());
        for piece in pieces {
            all.append(&mut piece?);
        }
        Ok(all)
    }

    /// The elements as float32. Nothing is copied where they are float32 already.
    pub(super) fn into_f32(self, scratch: &Scratch) -> Result<Buf<f32>> {
        if let Values::F32(values) = self.values {
            return Ok(values);
        }
        let mut values = Spool::new(scratch);
        let mut chunk = Vec::with_capacity(CHUNK);
        for start in (0..self.len()).step_by(CHUNK) {
            chunk.clear();
            chunk.extend((start..self.len().min(start + CHUNK)).map(|at| self.number(at) as f32));
            values.push(&chunk)?;
        }
        values.finish()
    }

    /// What is wrong with element `at`: `edges[3, 1]` and what follows.
    pub(super) fn at(&self, at: usize, wrong: &str) -> Problem {
        let name = &self.name;
        match &self.shape[..] {
            &[_, columns] if columns > 0 => {
                let text = format!("{name}[{}, {}]{wrong}", at / columns, at % columns);
                Problem::at(Position::in_matrix(at, columns), text)
            }
            _ => Problem::at(Position::element(at), format!("{name}[{at}]{wrong}")),
        }
    }

    /// The extents, if there are as many as asked for.
    pub(super) fn dimensions<const D: usize>(&self, expected: &str) -> Result<[usize; D]> {
        <[usize; D]>::try_from(&self.shape[..]).map_err(|_| self.wrong_shape(expected))
    }

    /// An error about this array.
    pub(super) fn bad(&self, problem: impl Into<Problem>) -> Error {
        self.input.bad(&self.name, problem, "correct the array and save the file again, or check the format")
    }

    /// An error about this array's shape.
    pub(super) fn wrong_shape(&self, expected: &str) -> Error {
        self.bad(format!("shape is {:?}, expected {expected}", self.shape))
    }

    /// The file this array is from.
    pub(super) fn input(&self) -> &Input {
        &self.input
    }
}
