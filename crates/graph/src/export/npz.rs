//! A file of NumPy arrays, as PyTorch Geometric names them: edge_index, x, y, train_mask, val_mask, test_mask,
//! edge_attr, edge_type, node_type.

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

use graphweft_base::{Error, Result};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::columns::{dense_row, row_of};
use crate::Dataset;
use crate::dataset::{Labels, Split};
use crate::npy::{Element, Header, NpyType};
use crate::with_csr;

/// Elements written at a time.
const PIECE: usize = 1 << 16;

/// Writes it.
pub(super) fn write(data: &Dataset, path: &Path, split: Option<&Split>) -> Result<()> {
    if !data.features_by_type().is_empty() {
        let what = "an .npz has one array of features, and types of nodes here have features of their own";
        return Err(Error::request(what, "export csv or parquet"));
    }
    let file = File::create(path).map_err(Error::write("create", path))?;
    let mut archive = Archive { path, zip: ZipWriter::new(BufWriter::with_capacity(1 << 20, file)) };
    let meta = data.meta();
    let (n, e) = (meta.num_nodes, meta.num_edges);
    let graph = data.graph()?;
    archive.begin("edge_index", NpyType::I64, &[2, e])?;
    with_csr!(graph, g => {
        archive.all(e, |at| Into::<u64>::into(g.indices()[at]) as i64)?;
        (0..n).try_for_each(|i| archive.put(&vec![i as i64; g.edges_of(i).len()]))?;
    });
    if let Some(features) = data.features() {
        archive.begin("x", NpyType::F32, &[n, features.width()])?;
        archive.rows(n, |row, out| row_of(features, row, out))?;
    }
    if let Some(features) = data.edge_features() {
        archive.begin("edge_attr", NpyType::F32, &[e, features.width()])?;
        archive.rows(e, |row, out| dense_row(features, row, out))?;
    }
    if let Some(types) = data.edge_types()? {
        archive.begin("edge_type", NpyType::I64, &[e])?;
        archive.all(e, |at| i64::from(types.get(at)))?;
    }
    for (name, ends) in [("node_type", meta.type_ranges())].into_iter().filter(|(_, ends)| !ends.is_empty()) {
        archive.begin(name, NpyType::I64, &[n])?;
        (0..).zip(ends).try_for_each(|(number, nodes)| archive.put(&vec![number as i64; nodes.len()]))?;
    }
    match data.checked_labels()? {
        Some(Labels::Single(y)) => {
            archive.begin("y", NpyType::I64, &[n])?;
            archive.put(y)?;
        }
        Some(Labels::MultiU8(y)) => {
            archive.begin("y", NpyType::F32, &[n, meta.num_classes])?;
            archive.all(y.len(), |at| f32::from(y[at]))?;
        }
        Some(Labels::MultiF32(y) | Labels::Values(y)) => {
            archive.begin("y", NpyType::F32, &[n, meta.num_classes])?;
            archive.put(y)?;
        }
        None => {}
    }
    for ((_, ids), name) in split.iter().flat_map(|s| s.parts()).zip(["train_mask", "val_mask", "test_mask"]) {
        let mut mask = vec![0u8; n];
        ids.iter().for_each(|&id| mask[id as usize] = 1);
        archive.begin(name, NpyType::Bool, &[n])?;
        archive.put(&mask)?;
    }
    archive.finish()
}

/// An archive in the making.
struct Archive<'a, W: Write + Seek> {
    path: &'a Path,
    zip: ZipWriter<W>,
}

impl<W: Write + Seek> Archive<'_, W> {
    fn begin(&mut self, name: &str, dtype: NpyType, shape: &[usize]) -> Result<()> {
        let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored).large_file(true);
        let begun = self.zip.start_file(format!("{name}.npy"), options).map_err(std::io::Error::other);
        begun.map_err(Error::write("write", self.path))?;
        let header = Header { dtype, fortran_order: false, shape: shape.to_vec() };
        self.zip.write_all(&header.bytes()).map_err(Error::write("write", self.path))
    }

    fn put<T: Element>(&mut self, elements: &[T]) -> Result<()> {
        self.zip.write_all(bytemuck::cast_slice(elements)).map_err(Error::write("write", self.path))
    }

    fn all<T: Element>(&mut self, count: usize, of: impl Fn(usize) -> T) -> Result<()> {
        let piece = |at: usize| (at..count.min(at + PIECE)).map(&of).collect::<Vec<T>>();
        (0..count).step_by(PIECE).try_for_each(|at| self.put(&piece(at)))
    }

    fn rows(&mut self, count: usize, fill: impl Fn(usize, &mut Vec<f32>)) -> Result<()> {
        let mut row = Vec::new();
        (0..count).try_for_each(|at| {
            row.clear();
            fill(at, &mut row);
            self.put(&row)
        })
    }

    fn finish(self) -> Result<()> {
        let failed = |e| Error::write("write", self.path)(e);
        self.zip.finish().map_err(std::io::Error::other).map_err(failed)?.flush().map_err(failed)
    }
}
