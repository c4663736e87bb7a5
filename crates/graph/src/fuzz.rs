//! Bodies of the fuzz targets in `fuzz/`, one function per target.
//!
//! They live here so that `tests/fuzz_corpus.rs` replays the committed corpus as ordinary tests. A target must not
//! panic, hang or allocate what a header claims; what a reader accepts must be a valid graph.
//!
//! Formats that consist of several arrays or files are decoded from the input rather than taken from it, because a
//! fuzzer that has to keep zip checksums right finds nothing else.

mod folder;

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use graphweft_base::Result;
use graphweft_base::progress::Silent;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::build::{EdgeRules, Scratch};
use crate::csr::{Csr, SelfLoops};
use crate::dataset::{Features, Labels};
use crate::npy::Header;
use crate::read::{
    Context, Imported, Input, Memory, arrays, edge_list, gnn_benchmark, heterophilous, links, matrix_market, metis,
    n_triples, ogb, tables, triples, tu, types_json,
};

pub use folder::dataset_folder;

/// Larger graphs are read but not built: a run must stay short.
const MOST_NODES: usize = 1 << 12;

/// Makes parallel code run on the calling thread: a fuzzer is parallel by itself. For the `init` of a target.
pub fn single_thread() {
    // A second call finds the pool in place.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
}

/// An `.npy` header.
pub fn npy(data: &[u8]) {
    if let Ok((header, bytes)) = Header::read(&mut &data[..]) {
        assert!(bytes <= data.len());
        let _ = header.num_elements();
    }
}

/// An `.npz` of the heterophilous-graphs collection.
pub fn heterophilous(data: &[u8]) {
    let names = ["node_features", "node_labels", "edges", "train_masks", "val_masks", "test_masks"];
    with_archive(data, &names, heterophilous::read);
}

/// An `.npz` of links between eight nodes.
pub fn links(data: &[u8]) {
    let names = ["train", "valid", "test", "valid_neg", "test_neg"];
    let nodes = || links::Nodes { count: 8, features: None, categories: None, ids: None };
    with_archive(data, &names, |input, cx| links::read(input, nodes(), cx));
}

/// An `.npz` of gnn-benchmark.
pub fn gnn_benchmark(data: &[u8]) {
    let names = [
        "adj_data",
        "adj_indices",
        "adj_indptr",
        "adj_shape",
        "attr_data",
        "attr_indices",
        "attr_indptr",
        "attr_shape",
        "attr_matrix",
        "labels",
        "adj_matrix.data",
        "adj_matrix.indices",
        "adj_matrix.indptr",
        "adj_matrix.shape",
    ];
    with_archive(data, &names, gnn_benchmark::read);
}

/// An OGB folder of text files: pieces between zero bytes, the first byte of each names its file.
pub fn ogb_csv(data: &[u8]) {
    const NAMES: [&str; 10] = [
        "raw/edge.csv.gz",
        "raw/num-node-list.csv.gz",
        "raw/num-edge-list.csv.gz",
        "raw/node-label.csv.gz",
        "raw/node-feat.csv.gz",
        "raw/edge-feat.csv.gz",
        "raw/triplet-type-list.csv.gz",
        "split/time/train.csv.gz",
        "split/time/valid.csv.gz",
        "split/time/test.csv.gz",
    ];
    with_files(data, &NAMES, |folder, cx| ogb::read(folder, cx));
}

/// An OGB folder of many graphs, decoded as [`ogb_csv`].
pub fn ogb_graphs(data: &[u8]) {
    const NAMES: [&str; 9] = [
        "raw/edge.csv.gz",
        "raw/num-node-list.csv.gz",
        "raw/num-edge-list.csv.gz",
        "raw/graph-label.csv.gz",
        "raw/node-feat.csv.gz",
        "raw/edge-feat.csv.gz",
        "split/s/train.csv.gz",
        "split/s/valid.csv.gz",
        "split/s/test.csv.gz",
    ];
    with_files(data, &NAMES, |folder, cx| ogb::read(folder, cx));
}

/// A folder of the TU collection, decoded as [`ogb_csv`].
pub fn tu(data: &[u8]) {
    const NAMES: [&str; 10] = [
        "M_A.txt",
        "M_graph_indicator.txt",
        "M_graph_labels.txt",
        "M_graph_attributes.txt",
        "M_node_labels.txt",
        "M_node_attributes.txt",
        "M_edge_labels.txt",
        "M_edge_attributes.txt",
        "splits-10fold.json",
        "N_A.txt",
    ];
    with_files(data, &NAMES, |folder, cx| tu::read(folder, cx));
}

/// An OGB folder of archives.
pub fn ogb_binary(data: &[u8]) {
    let Some((&flags, data)) = data.split_first() else { return };
    let data_names = ["edge_index", "num_nodes_list", "num_edges_list", "node_feat", "edge_feat", "node_year"];
    let mut members = members(data, &[&data_names[..], &["node_label"]].concat());
    let label = members.iter().position(|(name, _)| name == "node_label").map(|at| members.remove(at));
    let mut files = BTreeMap::from([("raw/data.npz".to_string(), archive(&members))]);
    files.insert("raw/node-label.npz".to_string(), archive(label.as_slice()));
    read(flags, |cx| ogb::read(&Memory(files), cx));
}

/// An edge list; the first byte holds options.
pub fn edge_list(data: &[u8]) {
    let Some((&flags, text)) = data.split_first() else { return };
    let options = edge_list::Options {
        ids: if flags & 16 == 0 { edge_list::Ids::Keep } else { edge_list::Ids::Relabel },
        num_nodes: (flags & 32 != 0).then_some(100),
        edge_features: flags & 64 != 0,
        places: false,
    };
    let Ok(input) = Input::memory("fuzz", text) else { return };
    read(flags, |cx| edge_list::read(&input, &options, cx));
}

/// Files for `import arrays`: arrays, texts and archives, as `members` decodes them; what stands before a slash is the
/// archive.
pub fn arrays(data: &[u8]) {
    const NAMES: [&str; 30] = [
        "edges",
        "nodes",
        "features",
        "labels",
        "train",
        "valid",
        "test",
        "edge_features",
        "edges/indptr",
        "edges/indices",
        "edges/data",
        "edges/shape",
        "edges/format",
        "edges/row",
        "edges/col",
        "edges/edge_index",
        "features/indptr",
        "features/indices",
        "features/data",
        "features/shape",
        "features/format",
        "features/x",
        "labels/y",
        "splits/train_mask",
        "splits/val_mask",
        "splits/test_mask",
        "splits/train_idx",
        "splits/other",
        "edge_features/w",
        "edges.graph",
    ];
    let [flags, options, data @ ..] = data else { return };
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut archives: BTreeMap<String, Vec<(String, Vec<u8>)>> = BTreeMap::new();
    for (name, bytes) in members(data, &NAMES) {
        match name.split_once('/') {
            Some((file, array)) => archives.entry(file.into()).or_default().push((array.into(), bytes)),
            None => drop(files.insert(name, bytes)),
        }
    }
    archives.into_iter().for_each(|(name, members)| drop(files.insert(name, archive(&members))));
    let file = |name: &str| {
        let input = Input::memory(name, files.get(name)?.as_slice()).ok()?;
        // An archive of one array needs no name for it; some are given one all the same.
        let array = (options & 16 != 0 && name == "features").then(|| "x".to_string());
        Some(arrays::File { input, array })
    };
    let Some(edges) = file("edges").or_else(|| file("edges.graph")) else { return };
    let column = |name: &str, bit: u8| (options & bit != 0).then(|| name.to_string());
    let given = arrays::Given {
        edges,
        nodes: file("nodes").map(|f| f.input),
        columns: arrays::Columns {
            id: column("a", 1),
            labels: column("b", 2).into_iter().chain(column("c", 4)).collect(),
            split: column("d", 8),
            skip: Vec::new(),
        },
        features: file("features"),
        labels: file("labels"),
        // The highest bit is free, and inputs of before rarely have it.
        task: if options & 128 != 0 { crate::dataset::Task::NodeRegression } else { Default::default() },
        splits: file("splits"),
        parts: ["train", "valid", "test"].map(file),
        edge_features: match file("edge_features") {
            Some(file) => arrays::EdgeNumbers::File(file),
            None if options & 32 != 0 => arrays::EdgeNumbers::Columns,
            None => arrays::EdgeNumbers::None,
        },
        num_nodes: (options & 64 != 0).then_some(7),
    };
    read(*flags, |cx| arrays::read(&given, cx));
}

/// Tables: a schema up to the first zero byte, then files, each up to a zero byte; the first byte names it. A file may
/// be anything that is told by its first bytes, but for Parquet, which has zero bytes in it.
pub fn table(data: &[u8]) {
    let Some((&flags, data)) = data.split_first() else { return };
    let mut parts = data.split(|&b| b == 0);
    let Some(schema) = parts.next().and_then(|text| std::str::from_utf8(text).ok()) else { return };
    let files: BTreeMap<String, Vec<u8>> = parts
        .filter_map(|part| part.split_first())
        .map(|(&name, bytes)| (char::from(name).to_string(), bytes.to_vec()))
        .collect();
    read_tables(flags, schema, &files);
}

/// A Parquet file, whose columns are told by a schema: one byte of flags, two of its length, the schema, the file. It
/// holds the nodes and the edges.
pub fn parquet(data: &[u8]) {
    let [flags, low, high, data @ ..] = data else { return };
    let (schema, file) = data.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(data.len()));
    let Ok(schema) = std::str::from_utf8(schema) else { return };
    read_tables(*flags, schema, &BTreeMap::from([("p".to_string(), file.to_vec())]));
}

fn read_tables(flags: u8, schema: &str, files: &BTreeMap<String, Vec<u8>>) {
    let Ok(schema) = toml::from_str(schema) else { return };
    let open = |name: &str| Input::memory(name, files.get(name).map(Vec::as_slice).unwrap_or_default());
    let task = if flags & 128 != 0 { crate::dataset::Task::NodeRegression } else { Default::default() };
    let Ok(given) = tables::Given::open(schema, task, &open) else { return };
    read(flags, |cx| {
        // What is guessed is a schema, and shown without harm.
        let guess = tables::guess(&given, cx)?;
        assert!(toml::to_string(&guess.schema).is_ok(), "a guess is not a schema");
        tables::read(&given, cx)
    });
}

/// A Matrix Market file.
pub fn matrix_market(data: &[u8]) {
    with_text(data, matrix_market::read);
}

/// N-Triples, and after two zero bytes the tables of labelled nodes, if there are any.
pub fn n_triples(data: &[u8]) {
    let Some((&flags, text)) = data.split_first() else { return };
    let mut parts = text.splitn(3, |&b| b == 0).map(|part| Input::memory("fuzz", part));
    let Some(Ok(triples)) = parts.next() else { return };
    let sets = match (parts.next(), parts.next()) {
        (Some(Ok(train)), Some(Ok(test))) => Some(n_triples::Sets { train, test }),
        _ => None,
    };
    read(flags, |cx| n_triples::read(&triples, sets.as_ref(), cx));
}

/// A folder of triples to predict, decoded as [`ogb_csv`].
pub fn triples(data: &[u8]) {
    with_files(data, &["train.txt", "valid.txt", "test.txt"], |folder, cx| triples::read(folder, cx));
}

/// A folder with a `types.json`, the text up to the first zero byte, and arrays as `members` decodes them.
pub fn types_json(data: &[u8]) {
    const NAMES: [&str; 13] = [
        "edge_r",
        "edge_s",
        "feat_a",
        "feat_a_indptr",
        "feat_a_indices",
        "feat_a_data",
        "feat_b",
        "feat_b_indptr",
        "feat_b_indices",
        "label",
        "split/x/train",
        "split/x/valid",
        "split/x/test",
    ];
    let [flags, data @ ..] = data else { return };
    let at = data.iter().position(|&b| b == 0).unwrap_or(data.len());
    let arrays = members(data.get(at + 1..).unwrap_or_default(), &NAMES);
    let mut files: BTreeMap<String, Vec<u8>> =
        arrays.into_iter().map(|(name, bytes)| (format!("{name}.npy"), bytes)).collect();
    files.insert("types.json".into(), data[..at].to_vec());
    read(*flags, |cx| types_json::read(&Memory(files), cx));
}

/// A METIS file.
pub fn metis(data: &[u8]) {
    with_text(data, metis::read);
}

/// An `.npy` file from its parts.
pub(crate) fn npy_bytes(descr: &str, shape: &str, payload: &[u8]) -> Vec<u8> {
    npy_ordered(descr, "False", shape, payload)
}

fn npy_ordered(descr: &str, fortran: &str, shape: &str, payload: &[u8]) -> Vec<u8> {
    let dict = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&(dict.len() as u16).to_le_bytes());
    out.extend_from_slice(dict.as_bytes());
    out.extend_from_slice(payload);
    out
}

/// A zip archive of members, uncompressed. Members that the format cannot hold are left out.
pub(crate) fn archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, bytes) in members {
        if zip.start_file(format!("{name}.npy"), stored).is_ok() {
            let _ = zip.write_all(bytes);
        }
    }
    zip.finish().map(Cursor::into_inner).unwrap_or_default()
}

/// Decodes arrays: a byte for the name, then a byte for the dtype, one for dimensions and order, one per extent, and
/// the elements; or, for a dtype that does not exist, a length in two bytes and the whole `.npy` file.
fn members(mut data: &[u8], names: &[&str]) -> Vec<(String, Vec<u8>)> {
    const DTYPES: [(&str, usize); 12] = [
        ("|b1", 1),
        ("|i1", 1),
        ("|u1", 1),
        ("<i2", 2),
        ("<u2", 2),
        ("<i4", 4),
        ("<u4", 4),
        ("<i8", 8),
        ("<u8", 8),
        ("<f2", 2),
        ("<f4", 4),
        ("<f8", 8),
    ];
    let mut members: Vec<(String, Vec<u8>)> = Vec::new();
    while let [name, dtype, layout, rest @ ..] = data {
        let take = |n: usize| rest.split_at(n.min(rest.len()));
        let bytes = match DTYPES.get(usize::from(*dtype)) {
            Some((descr, size)) => {
                let (extents, rest) = take(usize::from(layout & 3));
                let fortran = if layout & 4 == 0 { "False" } else { "True" };
                let shape: String = extents.iter().map(|x| format!("{x},")).collect();
                let elements = extents.iter().fold(1, |n, &x| n * usize::from(x));
                let (payload, rest) = rest.split_at((elements * size).min(rest.len()));
                data = rest;
                npy_ordered(descr, fortran, &format!("({shape})"), payload)
            }
            None => {
                let (length, rest) = take(1);
                let length = usize::from(u16::from_le_bytes([*layout, length.first().copied().unwrap_or(0)]));
                let (whole, rest) = rest.split_at(length.min(rest.len()));
                data = rest;
                whole.to_vec()
            }
        };
        let name = names[usize::from(*name) % names.len()];
        if !members.iter().any(|(n, _)| n == name) {
            members.push((name.to_string(), bytes));
        }
    }
    members
}

/// Reads an archive: the input itself where bit 7 of its first byte is set, else one made from the arrays in it.
fn with_archive(data: &[u8], names: &[&str], reader: impl FnOnce(&Input, &Context<'_>) -> Result<Imported>) {
    let Some((&flags, data)) = data.split_first() else { return };
    let bytes = if flags & 128 == 0 { archive(&members(data, names)) } else { data.to_vec() };
    if let Ok(input) = Input::memory("fuzz.npz", bytes) {
        read(flags, |cx| reader(&input, cx));
    }
}

/// Reads a folder of files: pieces between zero bytes, the first byte of each names its file.
fn with_files(data: &[u8], names: &[&str], reader: impl FnOnce(&Memory, &Context<'_>) -> Result<Imported>) {
    let Some((&flags, data)) = data.split_first() else { return };
    let named = |piece: &[u8]| {
        let (&name, text) = piece.split_first()?;
        let name = names.get(usize::from(name.wrapping_sub(b'a')))?;
        Some((name.to_string(), text.to_vec()))
    };
    let folder = Memory(data.split(|&b| b == 0).filter_map(named).collect());
    read(flags, |cx| reader(&folder, cx));
}

fn with_text(data: &[u8], reader: impl FnOnce(&Input, &Context<'_>) -> Result<Imported>) {
    let Some((&flags, text)) = data.split_first() else { return };
    if let Ok(input) = Input::memory("fuzz", text) {
        read(flags, |cx| reader(&input, cx));
    }
}

/// Runs a reader with the rules that `flags` name, and builds what it accepts.
fn read(flags: u8, reader: impl FnOnce(&Context<'_>) -> Result<Imported>) {
    let rules = EdgeRules {
        symmetrise: flags & 1 != 0,
        merge_parallel: flags & 2 != 0,
        self_loops: match flags >> 2 & 3 {
            0 | 3 => SelfLoops::Keep,
            1 => SelfLoops::Add,
            _ => SelfLoops::Remove,
        },
        memory: 0,
    };
    let scratch = Scratch::new(std::env::temp_dir());
    let cx = Context { rules, scratch: &scratch, progress: &Silent };
    if let Ok(imported) = reader(&cx).and_then(|imported| check(imported, rules)) {
        assert!(imported, "an accepted graph is not valid");
    }
}

/// Whether everything that a reader returned fits together.
fn check(imported: Imported, rules: EdgeRules) -> Result<bool> {
    let n = imported.num_nodes;
    let (features, edge_features) = (imported.features, imported.edge_features);
    let of = imported.graphs.as_ref().map_or(n, |found| found.graphs.count());
    let labels = match imported.graphs {
        None => imported.labels,
        Some(found) => {
            let ptr = &found.graphs.ptr;
            let whole = ptr.first() == Some(&0) && ptr.last() == Some(&(n as u64));
            if !whole || !ptr.windows(2).all(|ends| ends[0] < ends[1]) || imported.labels.is_some() {
                return Ok(false);
            }
            found.graphs.labels.map(|labels| (labels, found.classes))
        }
    };
    let edges = imported.edges.pushed() as usize;
    let types = imported.types;
    let typed = types
        .edges
        .is_none_or(|t| t.len() == edges && (types.edge_names.is_empty() || t.count() <= types.edge_names.len()))
        && (types.nodes.is_empty() || types.nodes.iter().map(|t| t.num_nodes).sum::<usize>() == n)
        && types.nodes.iter().zip(&types.features).all(|(t, features)| {
            t.num_features == features.as_ref().map_or(0, Features::width)
                && features.as_ref().is_none_or(|features| is_matrix(features, t.num_nodes))
        });
    let edge_categories = imported.edge_categories.is_none_or(|c| c.rows() == edges && !c.sizes().is_empty());
    let fits = typed
        && edge_categories
        && labels.is_none_or(|(labels, classes)| match labels {
            Labels::Single(y) => y.len() == of && y.iter().all(|&c| c >= -1 && c < classes as i64),
            Labels::MultiU8(y) => y.len() == of * classes && y.iter().all(|&y| y < 2),
            Labels::MultiF32(y) => y.len() == of * classes && y.iter().all(|&y| y.is_nan() || y == 0.0 || y == 1.0),
            Labels::Values(y) => y.len() == of * classes && y.iter().all(|&y| !y.is_infinite()),
        })
        && features.is_none_or(|features| is_matrix(&features, n))
        && edge_features.is_none_or(|f| f.values.len() == edges * f.width)
        && imported.categories.is_none_or(|c| c.rows() == n && !c.sizes().contains(&0))
        && imported.splits.iter().all(|s| s.check(of).is_ok());
    if n > MOST_NODES {
        return Ok(fits);
    }
    let (mut indptr, mut indices) = (vec![0], Vec::new());
    imported.edges.stream(n as u64, &Silent, |block| {
        indptr.extend_from_slice(&block.ends);
        indices.extend(block.sources.iter().map(|&j| j as u32));
        Ok(())
    })?;
    let graph = Csr::<u32>::new(indptr, indices, n);
    Ok(fits && graph.is_ok_and(|g| g.num_dst() == n && (!rules.symmetrise || g.is_symmetric())))
}

/// Whether features have a row for each of `n` nodes, and columns that are there.
fn is_matrix(features: &Features, n: usize) -> bool {
    match features {
        Features::Dense(m) => m.width() > 0 && m.len() == n * m.width(),
        Features::Sparse(m) if m.width == 0 || m.indptr.len() != n + 1 => false,
        Features::Sparse(m) => Csr::new(m.indptr.clone(), m.indices.clone(), m.width).is_ok(),
    }
}
