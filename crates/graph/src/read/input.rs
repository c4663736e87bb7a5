//! Where bytes come from: a file, a folder, or memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Chain, Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use graphweft_base::progress::{Phase, Progress, Unit};
use graphweft_base::{Error, Problem, Result};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A file to read, on disk or in memory. It can be opened more than once.
#[derive(Clone, Debug)]
pub struct Input {
    path: PathBuf,
    bytes: Option<Arc<[u8]>>,
    len: u64,
}

/// A stream that can be moved in.
pub(super) trait ReadSeek: Read + Seek + Send {}

impl<T: Read + Seek + Send> ReadSeek for T {}

impl Input {
    /// A file on disk.
    ///
    /// # Errors
    /// [`Error::BadInput`] if it is missing, a folder, or empty.
    pub fn file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let unreadable = |e: io::Error| Error::unreadable(path, "file", &e);
        let about = fs::metadata(path).map_err(unreadable)?;
        if about.is_dir() {
            return Err(unreadable(io::ErrorKind::IsADirectory.into()));
        }
        Self::non_empty(Self { path: path.to_path_buf(), bytes: None, len: about.len() })
    }

    /// Bytes in memory, called `name` in messages.
    ///
    /// # Errors
    /// [`Error::BadInput`] if there are none.
    pub fn memory(name: impl Into<PathBuf>, bytes: impl Into<Arc<[u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        Self::non_empty(Self { path: name.into(), len: bytes.len() as u64, bytes: Some(bytes) })
    }

    fn non_empty(self) -> Result<Self> {
        if self.len > 0 {
            return Ok(self);
        }
        Err(Error::bad(&self.path, "file", "the file is empty", "copy or download it again"))
    }

    /// The name for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it, where it is in memory.
    pub(super) fn bytes(&self) -> Option<Arc<[u8]>> {
        self.bytes.clone()
    }

    /// How long it is.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn open(&self) -> Result<Box<dyn ReadSeek>> {
        Ok(match &self.bytes {
            Some(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
            None => Box::new(File::open(&self.path).map_err(|e| self.unreadable(&e))?),
        })
    }

    /// The first bytes of the file, at most `count`.
    pub(super) fn start(&self, count: usize) -> Result<Vec<u8>> {
        let mut start = Vec::with_capacity(count);
        self.open()?.take(count as u64).read_to_end(&mut start).map_err(|e| self.unreadable(&e))?;
        Ok(start)
    }

    /// The text of the file, decompressed if it begins like a file of gzip or zstd, whatever its name. Progress counts
    /// stored bytes.
    pub(super) fn text(&self, progress: &dyn Progress) -> Result<Box<dyn Read + Send>> {
        let mut raw = self.open()?;
        let mut start = Vec::with_capacity(ZSTD.len());
        raw.by_ref().take(ZSTD.len() as u64).read_to_end(&mut start).map_err(|e| self.unreadable(&e))?;
        let (gzip, zstd) = (start.starts_with(&GZIP), start == ZSTD);
        let name = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy();
        let phase = progress.start(&format!("read {name}"), self.len, Unit::Bytes);
        let raw: Chain<Cursor<Vec<u8>>, Box<dyn ReadSeek>> = Cursor::new(start).chain(raw);
        let counted = Counted { raw, phase };
        Ok(if gzip {
            Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(1 << 17, counted)))
        } else if zstd {
            let mut decoder = zstd::Decoder::new(counted).map_err(|e| self.unreadable(&e))?;
            // What a window may take of memory: 2²⁷ bytes, the most that zstd writes unless it is told to.
            decoder.window_log_max(27).map_err(|e| self.unreadable(&e))?;
            Box::new(decoder)
        } else {
            Box::new(counted)
        })
    }

    /// A read that failed.
    pub(super) fn unreadable(&self, e: &io::Error) -> Error {
        Error::unreadable(&self.path, "file", e)
    }

    /// An error at `field` of this file.
    pub(super) fn bad(
        &self,
        field: impl Into<String>,
        problem: impl Into<Problem>,
        remedy: impl Into<String>,
    ) -> Error {
        Error::bad(&self.path, field, problem, remedy)
    }
}

struct Counted<R> {
    raw: R,
    phase: Box<dyn Phase>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.raw.read(buffer)?;
        self.phase.add(n as u64);
        Ok(n)
    }
}

/// A folder of inputs, for formats that consist of several files. Names are relative, with `/`.
pub trait Folder {
    /// The folder, for messages.
    fn path(&self) -> &Path;

    /// The file `name`, or `None` if there is no such file.
    fn input(&self, name: &str) -> Result<Option<Input>>;

    /// The names of the folders in folder `name`, sorted; none if it does not exist.
    fn folders(&self, name: &str) -> Result<Vec<String>>;

    /// The names of the files in it, sorted.
    fn files(&self) -> Result<Vec<String>>;
}

/// A folder on disk.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// The folder at `path`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if it is missing or a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let unreadable = |e: io::Error| Error::unreadable(path, "folder", &e);
        if !fs::metadata(path).map_err(unreadable)?.is_dir() {
            return Err(unreadable(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self(path.to_path_buf()))
    }
}

impl Folder for Directory {
    fn path(&self) -> &Path {
        &self.0
    }

    fn input(&self, name: &str) -> Result<Option<Input>> {
        let path = self.0.join(name);
        if path.exists() { Input::file(path).map(Some) } else { Ok(None) }
    }

    fn folders(&self, name: &str) -> Result<Vec<String>> {
        let path = self.0.join(name);
        if path.exists() { names_in(&path, Path::is_dir) } else { Ok(Vec::new()) }
    }

    fn files(&self) -> Result<Vec<String>> {
        names_in(&self.0, Path::is_file)
    }
}

/// The names of what is in a folder and such, sorted.
fn names_in(folder: &Path, such: fn(&Path) -> bool) -> Result<Vec<String>> {
    let unreadable = |e: io::Error| Error::unreadable(folder, "folder", &e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if such(&entry.path()) {
            let name = entry.file_name().into_string();
            names.push(name.map_err(|name| {
                Error::bad(folder, "folder", format!("the name {name:?} is not UTF-8"), "rename it")
            })?);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// A folder in memory: contents by relative name.
#[derive(Clone, Debug, Default)]
pub struct Memory(pub BTreeMap<String, Vec<u8>>);

impl Folder for Memory {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn input(&self, name: &str) -> Result<Option<Input>> {
        self.0.get(name).map(|bytes| Input::memory(Path::new("memory").join(name), bytes.as_slice())).transpose()
    }

    fn folders(&self, name: &str) -> Result<Vec<String>> {
        let inside = self.0.keys().filter_map(|k| k.strip_prefix(name)?.strip_prefix('/')?.split_once('/'));
        let mut names: Vec<String> = inside.map(|(folder, _)| folder.to_string()).collect();
        names.dedup();
        Ok(names)
    }

    fn files(&self) -> Result<Vec<String>> {
        Ok(self.0.keys().filter(|name| !name.contains('/')).cloned().collect())
    }
}
