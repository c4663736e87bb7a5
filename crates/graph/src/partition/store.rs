//! Partitions on disk: `part/<method>-<P>/` in the dataset folder.
//!
//! ```text
//! perm.npy    i64 [N]    entry k is the original id of new node k: x_new = x[perm]
//! ranges.npy  i64 [P+1]  part p holds the new ids ranges[p] to ranges[p+1]
//! about.toml             how it was made, and what it costs
//! ```
//!
//! The three are written to a temporary folder that is renamed when complete.

use std::fs;
use std::path::{Path, PathBuf};

use graphweft_base::{Error, Position, Problem, Result, durable, plain, room};
use serde::{Deserialize, Serialize};

use super::{Balance, Method, Options, Order, Partition, PartitionStats};
use crate::csr::Permutation;
use crate::dataset::Dataset;
use crate::npy::{NpyFile, NpyWriter};

const REMEDY: &str = "create it again with `graphweft partition --replace`";

/// What `about.toml` says: how a partition was made, of which graph, and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// How parts were chosen.
    pub method: Method,
    /// How many.
    pub parts: usize,
    /// What was shared out evenly.
    pub balance: Balance,
    /// How the nodes of a part are arranged.
    pub order: Order,
    /// The seed.
    pub seed: u64,
    /// Whether the graph was made symmetric first.
    pub symmetrised: bool,
    /// Nodes of the graph.
    pub num_nodes: usize,
    /// Stored edges of the graph, after it was made symmetric.
    pub num_edges: usize,
    /// What it costs on that graph.
    pub stats: PartitionStats,
}

impl About {
    /// A description of what `options` made of a graph.
    pub fn new(options: &Options, symmetrised: bool, stats: PartitionStats) -> Self {
        let Options { method, parts, balance, order, seed } = *options;
        let (num_nodes, num_edges) =
            (stats.rows.iter().sum::<u64>() as usize, stats.edges.iter().sum::<u64>() as usize);
        Self { method, parts, balance, order, seed, symmetrised, num_nodes, num_edges, stats }
    }
}

/// A partition as it was stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The partition.
    pub partition: Partition,
    /// How it was made.
    pub about: About,
}

/// Where a dataset keeps its partition by this method into this many parts.
pub fn folder(data: &Dataset, method: Method, parts: usize) -> PathBuf {
    data.dir().join("part").join(format!("{method}-{parts}"))
}

/// What to do with a partition, or another result, that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse to write.
    Keep,
    /// Put the new one in its place.
    Replace,
}

/// Stores a partition in `dir`, the [`folder`] of its dataset or any other.
///
/// # Errors
/// As [`check_target`]; and [`Error::Write`] if the disk refuses, in which case what was there before is still there.
pub fn save(dir: &Path, partition: &Partition, about: &About, existing: Existing) -> Result<()> {
    check_target(dir, existing)?;
    // A link to a folder stays: what it leads to is replaced.
    let dir = &dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let bytes = 8 * (partition.permutation().len() as u128 + partition.ranges().len() as u128);
    room::check_disk("storing the partition", dir, bytes)?;
    let work = durable::folder_beside(dir)?;

    let fresh = work.path().join("new");
    durable::create_folder(&fresh)?;
    write_ids(&fresh.join("perm.npy"), partition.permutation().old_of_new())?;
    write_ids(&fresh.join("ranges.npy"), partition.ranges())?;
    let text = toml::to_string(about)
        .map_err(|e| Error::request(format!("cannot describe the partition: {e}"), "report this as a bug"))?;
    durable::write_new(&fresh.join("about.toml"), text.as_bytes())?;

    // What is replaced goes into the temporary folder, which takes it away at the end.
    let old = work.path().join("old");
    let replaced = dir.exists();
    if replaced {
        fs::rename(dir, &old).map_err(Error::write("replace", dir))?;
    }
    durable::rename(&fresh, dir).inspect_err(|_| {
        if replaced {
            let _ = fs::rename(&old, dir);
        }
    })
}

/// Whether a partition may be written to `dir`, to be asked before the work.
///
/// # Errors
/// [`Error::Request`] if `dir` holds a partition that is to be kept, or is something else.
pub fn check_target(dir: &Path, existing: Existing) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    if !dir.join("ranges.npy").is_file() {
        let what = format!("{} exists and is no stored partition", dir.display());
        return Err(Error::request(what, "name a folder that does not exist yet"));
    }
    if existing == Existing::Keep {
        let what = format!("{} holds a partition already", dir.display());
        return Err(Error::request(what, "replace it with --replace, or write elsewhere with -o DIR"));
    }
    Ok(())
}

/// Loads the partition of a graph of `num_nodes` nodes from `dir`.
///
/// # Errors
/// [`Error::BadInput`] naming the file and the position of what is wrong with it.
pub fn load(dir: &Path, num_nodes: usize) -> Result<Stored> {
    let path = dir.join("about.toml");
    let text = plain::open(&path).and_then(plain::text).map_err(|e| Error::unreadable(&path, "file", &e))?;
    let about: About =
        toml::from_str(&text).map_err(|e| Error::bad(&path, "about", e.to_string().trim_end(), REMEDY))?;

    let path = dir.join("perm.npy");
    let perm = read_ids(&path, "perm", num_nodes)?;
    let perm = Permutation::from_old_of_new(perm).map_err(|e| Error::bad(&path, "perm", e, REMEDY))?;

    let path = dir.join("ranges.npy");
    let ranges = read_ids(&path, "ranges", about.parts.saturating_add(1))?;
    let partition = Partition::new(perm, ranges).map_err(|problem| Error::bad(&path, "ranges", problem, REMEDY))?;
    Ok(Stored { partition, about })
}

fn write_ids(path: &Path, ids: &[u64]) -> Result<()> {
    // Node counts stay far below 2⁶³, so the bits of u64 and i64 are the same.
    let mut out = NpyWriter::<i64>::create(path, &[])?;
    out.push(bytemuck::cast_slice(ids))?;
    out.finish().map(|_| ())
}

fn read_ids(path: &Path, field: &str, len: usize) -> Result<Vec<u64>> {
    let file = NpyFile::open(path)?;
    if file.shape() != [len] {
        let problem = format!("shape is {:?}, expected [{len}]", file.shape());
        return Err(Error::bad(path, field, problem, REMEDY));
    }
    let ids = file.elements::<i64>().ok_or_else(|| file.wrong_dtype(field, "int64"))?;
    let checked = ids.iter().enumerate().map(|(at, &id)| {
        u64::try_from(id).map_err(|_| {
            let problem = format!("{field}[{at}] = {id}: expected no negative number");
            Error::bad(path, field, Problem::at(Position::element(at), problem), REMEDY)
        })
    });
    checked.collect()
}
