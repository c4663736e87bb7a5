//! An array of unknown length that moves to a file when it grows large.

use std::fs::File;
use std::io::Write;

use bytemuck::Pod;
use graphweft_base::Result;

use super::Scratch;
use crate::buf::{Buf, map_file};

/// Bytes held in memory before an array moves to a file.
const IN_MEMORY: usize = 64 << 20;

/// Appends elements; what exceeds 64 MiB lies in a temporary file that is mapped when complete.
///
/// Sizes claimed by a header are never allocated: the array grows with what was really read.
pub struct Spool<T> {
    scratch: Scratch,
    memory: Vec<T>,
    file: Option<File>,
    in_file: usize,
}

impl<T: Pod> Spool<T> {
    /// An empty array; its file, if it needs one, will be in `scratch`.
    pub fn new(scratch: &Scratch) -> Self {
        Self { scratch: scratch.clone(), memory: Vec::new(), file: None, in_file: 0 }
    }

    /// Appends elements.
    pub fn push(&mut self, elements: &[T]) -> Result<()> {
        self.memory.extend_from_slice(elements);
        if self.memory.len() * size_of::<T>() > IN_MEMORY { self.spill() } else { Ok(()) }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_file + self.memory.len()
    }

    fn spill(&mut self) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.scratch.file()?),
        };
        file.write_all(bytemuck::cast_slice(&self.memory)).map_err(|e| self.scratch.failed(e))?;
        self.in_file += self.memory.len();
        self.memory.clear();
        Ok(())
    }

    /// The whole array, owned if it is small and mapped if not.
    pub fn finish(mut self) -> Result<Buf<T>> {
        if self.file.is_none() {
            return Ok(self.memory.into());
        }
        self.spill()?;
        let cut = || self.scratch.failed(std::io::ErrorKind::UnexpectedEof.into());
        let file = self.file.as_ref().ok_or_else(cut)?;
        let map = map_file(file).map_err(|e| self.scratch.failed(e))?;
        Buf::from_map(&map, 0, self.in_file).ok_or_else(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_array_moves_to_a_file_and_keeps_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::<u64>::new(&Scratch::new(dir.path()));
        let chunk: Vec<u64> = (0..3 << 20).collect();
        for k in 0..4u64 {
            spool.push(&chunk.iter().map(|x| x + k * (3 << 20)).collect::<Vec<_>>()).unwrap();
        }
        let all = spool.finish().unwrap();
        assert!(all.is_mapped());
        assert_eq!(all.len(), 12 << 20);
        assert!(all.iter().enumerate().all(|(i, &x)| x == i as u64));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "temporary files have no name");
    }
}
