//! A file that is read in places, as the crate `parquet` wants it; and its pages, checked.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ::parquet::column::page::{Page, PageMetadata, PageReader};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;

use crate::read::Input;

/// Bytes of a file by their places; several threads may read at once.
#[derive(Clone)]
pub(super) struct Blocks {
    store: Store,
    len: u64,
}

#[derive(Clone)]
enum Store {
    Memory(Arc<[u8]>),
    File(Arc<File>),
}

impl Blocks {
    pub(super) fn open(input: &Input) -> graphweft_base::Result<Self> {
        let store = match input.bytes() {
            Some(bytes) => Store::Memory(bytes),
            None => Store::File(Arc::new(File::open(input.path()).map_err(|e| input.unreadable(&e))?)),
        };
        Ok(Self { store, len: input.len() })
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        match &self.store {
            Store::File(file) => file.read_at(buffer, at),
            Store::Memory(bytes) => {
                let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let n = rest.len().min(buffer.len());
                buffer[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            }
        }
    }
}

impl Length for Blocks {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Blocks {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        // Headers of pages are that long.
        Ok(BufReader::with_capacity(512, From { blocks: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are beyond the end of the file")));
        }
        let mut all = vec![0; length];
        let mut read = 0;
        while read < length {
            match self.read_at(&mut all[read..], start + read as u64)? {
                0 => return Err(ParquetError::EOF("the file was cut short while it was read".into())),
                n => read += n,
            }
        }
        Ok(all.into())
    }
}

/// A file from a place on.
pub(super) struct From {
    blocks: Blocks,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.blocks.read_at(buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// The pages of a column that has so many values: what they claim is compared with that before it is believed.
pub(super) struct Checked {
    pages: Box<dyn PageReader>,
    left: u64,
}

impl Checked {
    pub(super) fn new(pages: Box<dyn PageReader>, values: u64) -> Self {
        Self { pages, left: values }
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = page.as_ref().filter(|page| !matches!(page, Page::DictionaryPage { .. })) {
            let claimed = u64::from(page.num_values());
            self.left = self.left.checked_sub(claimed).ok_or_else(|| {
                ParquetError::General(format!("a page of {claimed} values, but only {} are left", self.left))
            })?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
