//! Where temporary data goes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_base::{Error, Result};

/// A folder for temporary files. The files have no name: they are gone when the process ends, however it ends.
#[derive(Clone, Debug)]
pub struct Scratch(Arc<PathBuf>);

impl Scratch {
    /// Temporary files in `dir`; nothing is created before it is needed.
    pub fn new(dir: impl AsRef<Path>) -> Self {
        Self(Arc::new(dir.as_ref().to_path_buf()))
    }

    pub(crate) fn file(&self) -> Result<File> {
        tempfile::tempfile_in(self.0.as_path()).map_err(Error::write("create a temporary file in", self.0.as_path()))
    }

    /// A failed write to a temporary file.
    pub(crate) fn failed(&self, source: std::io::Error) -> Error {
        Error::write("write a temporary file in", self.0.as_path())(source)
    }
}
