//! The dataset folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

use super::npy_bytes;
use crate::dataset::{Dataset, Features};
use crate::with_csr;

/// A dataset folder in which some files are replaced: records of file number, length (two bytes) and contents; an empty
/// record removes a file.
pub fn dataset_folder(data: &[u8]) {
    thread_local! {
        // Kept from run to run, because making a folder takes longer than reading it.
        static FOLDER: Option<TempDir> = good_folder().ok();
    }
    FOLDER.with(|folder| {
        if let Some(folder) = folder {
            let replaced = replacements(data);
            // What cannot be written was not fuzzed; the next run tries again.
            let _ = replaced.iter().try_for_each(|(&at, bytes)| put(folder.path(), GOOD_FOLDER[at].0, bytes));
            open_folder(folder.path());
            let _ = replaced.keys().try_for_each(|&at| put(folder.path(), GOOD_FOLDER[at].0, &GOOD_FOLDER[at].1()));
            let _ = fs::remove_file(folder.path().join(".validated"));
        }
    });
}

fn good_folder() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    fs::create_dir_all(folder.path().join("split/s"))?;
    GOOD_FOLDER.iter().try_for_each(|(name, make)| put(folder.path(), name, &make()))?;
    Ok(folder)
}

fn put(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = dir.join(name);
    match bytes {
        [] if path.exists() => fs::remove_file(path),
        [] => Ok(()),
        bytes => fs::write(path, bytes),
    }
}

fn replacements(mut data: &[u8]) -> BTreeMap<usize, &[u8]> {
    let mut replaced = BTreeMap::new();
    while let [which, low, high, rest @ ..] = data {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (contents, rest) = rest.split_at(length);
        data = rest;
        replaced.insert(usize::from(*which) % GOOD_FOLDER.len(), contents);
    }
    replaced
}

fn open_folder(dir: &Path) {
    if let Ok(data) = Dataset::open(dir) {
        if let Ok(graph) = data.graph() {
            with_csr!(graph, g => {
                let edges: usize = (0..g.num_dst()).map(|i| g.row(i).len()).sum();
                assert_eq!(edges, data.meta().num_edges);
            });
        }
        let _ = data.features().map(Features::density);
        let _ = data.features_by_type().iter().flatten().map(Features::density).sum::<f64>();
        if let (Ok(Some(types)), Ok(names)) = (data.edge_types(), data.edge_type_names()) {
            assert_eq!(types.counts(names.len()).iter().sum::<u64>(), data.meta().num_edges as u64);
        }
        let nodes: usize = data.meta().type_ranges().iter().map(ExactSizeIterator::len).sum();
        assert!(nodes == data.meta().num_nodes || data.meta().node_types.is_empty());
        if let Some(graphs) = data.graphs() {
            let nodes: usize = (0..graphs.count()).map(|g| graphs.nodes(g).len()).sum();
            assert_eq!(nodes, data.meta().num_nodes);
        }
    }
}

type Made = (&'static str, fn() -> Vec<u8>);

/// Two nodes and an edge each way, with everything a folder can hold.
const GOOD_FOLDER: [Made; 22] = [
    ("meta.toml", || {
        b"name = \"f\"\nnum_nodes = 2\nnum_edges = 2\nnum_features = 3\nnum_classes = 2\nsymmetric = true\n".to_vec()
    }),
    ("indptr.npy", || npy_bytes("<u8", "(3,)", bytemuck::cast_slice(&[0u64, 1, 2]))),
    ("indices.npy", || npy_bytes("<u4", "(2,)", bytemuck::cast_slice(&[1u32, 0]))),
    ("label.npy", || npy_bytes("<i8", "(2,)", bytemuck::cast_slice(&[0i64, 1]))),
    ("split/s/train.npy", || npy_bytes("<i8", "(1,)", bytemuck::cast_slice(&[0i64]))),
    ("split/s/valid.npy", || npy_bytes("<i8", "(1,)", bytemuck::cast_slice(&[1i64]))),
    ("split/s/test.npy", || npy_bytes("<i8", "(0,)", &[])),
    ("feat_indptr.npy", || npy_bytes("<u8", "(3,)", bytemuck::cast_slice(&[0u64, 1, 2]))),
    ("feat_indices.npy", || npy_bytes("<u4", "(2,)", bytemuck::cast_slice(&[2u32, 0]))),
    ("edge_feat.npy", || npy_bytes("<f4", "(2, 1)", bytemuck::cast_slice(&[0.5f32, 1.5]))),
    ("feat_data.npy", Vec::new),
    ("feat.npy", Vec::new),
    ("graph_ptr.npy", Vec::new),
    ("graph_label.npy", Vec::new),
    ("cat.npy", Vec::new),
    ("edge_type.npy", || npy_bytes("|u1", "(2,)", &[1, 0])),
    ("edge_cat.npy", || npy_bytes("<u2", "(2, 1)", bytemuck::cast_slice(&[1u16, 500]))),
    ("feat-a.npy", Vec::new),
    ("feat-a_indptr.npy", Vec::new),
    ("feat-a_indices.npy", Vec::new),
    ("feat-a_data.npy", Vec::new),
    ("feat-b.npy", Vec::new),
];
