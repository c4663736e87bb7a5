//! Chunks on disk: made with little memory, resumed where it was interrupted, mapped when used.
//!
//! Work goes on in `chunks/.<method>-<K>.partial`. Every array is written under another name and gets its own when its
//! bytes are on the disk, so an array that has its name is complete and is not made again. The folder itself is renamed
//! last.
//!
//! Memory: the partition (some 30 bytes per node), and the given budget, for sorting edges and for the rows of features
//! that are put in order at a time.

use std::fs;
use std::path::{Path, PathBuf};

use graphweft_base::durable::{self, Unfinished};
use graphweft_base::progress::{Progress, Unit};
use graphweft_base::{Error, Position, Problem, Result, plain, room};
use serde::{Deserialize, Serialize};

use super::Chunks;
use crate::build::{EdgeRules, EdgeSorter, Expected, Scratch};
use crate::csr::{AnyCsr, Csr, Permutation, SelfLoops};
use crate::dataset::{Dataset, Dense, Features};
use crate::npy::{Element, NpyFile, NpyWriter};
use crate::partition::{self, Balance, Method, Options, Order, Partition};

pub(super) const ABOUT: &str = "about.toml";
pub(super) const REMEDY: &str = "remove the folder and create it again with `graphweft partition --chunks`";
/// Edges handed to the sorter at a time.
const EDGES: usize = 1 << 16;

/// What chunks are made of: `about.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// How nodes are chosen.
    pub method: Method,
    /// How many chunks.
    pub chunks: usize,
    /// What is shared out evenly.
    pub balance: Balance,
    /// How the nodes of a chunk are arranged.
    pub order: Order,
    /// Of the partition.
    pub seed: u64,
    /// Whether the reverse of every edge is added.
    pub symmetrise: bool,
    /// What is done to self-loops.
    pub self_loops: SelfLoops,
}

impl Recipe {
    /// The partition's part of it.
    pub fn options(&self) -> Options {
        let Self { method, chunks, balance, order, seed, .. } = *self;
        Options { method, parts: chunks, balance, order, seed }
    }
}

/// Where a dataset folder keeps its chunks by this method.
pub fn folder(data: &Path, method: Method, chunks: usize) -> PathBuf {
    data.join("chunks").join(format!("{method}-{chunks}"))
}

/// Writes the chunks of a dataset to `dir`, usually its [`folder`], with about `memory` bytes; goes on with what an
/// interrupted call with the same recipe has left there.
///
/// # Errors
/// [`Error::Request`] if `dir` exists, or the graph cannot be divided so; [`Error::Write`] if the disk refuses.
pub fn prepare(data: &Dataset, recipe: &Recipe, dir: &Path, memory: usize, progress: &dyn Progress) -> Result<()> {
    if dir.exists() {
        let what = format!("{} exists already", dir.display());
        return Err(Error::request(what, "use it as it is, or remove it first"));
    }
    let AnyCsr::Narrow(graph) = data.graph()? else {
        return Err(Error::request("chunks of more than 2³² nodes are not supported", "divide the graph first"));
    };
    let features = match data.features() {
        Some(Features::Dense(Dense::F32 { values, .. })) => 4 * values.len() as u128,
        Some(Features::Dense(Dense::F16 { values, .. })) => 2 * values.len() as u128,
        _ => 0,
    };
    // Beside the arrays themselves, edges may lie there once more while they are sorted.
    let graph_bytes = u128::from(graph.bytes());
    room::check_disk("storing chunks", dir, graph_bytes + features + 8 * graph.num_dst() as u128)?;
    let work = begin(dir, recipe)?;
    let partition = assign(&work, graph, recipe, progress)?;
    let permutation = partition.permutation();
    sort_edges(&work, graph, permutation, recipe, memory, progress)?;
    if let Some(Features::Dense(features)) = data.features() {
        complete(&work.join("feat.npy"), |path| match features {
            Dense::F32 { values, width } => in_order(path, values, *width, permutation, memory, progress),
            Dense::F16 { values, width } => in_order(path, values, *width, permutation, memory, progress),
        })?;
    }
    durable::rename(&work, dir)
}

/// The folder to work in, with what an earlier call has left of the same recipe.
fn begin(dir: &Path, recipe: &Recipe) -> Result<PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let work = dir.with_file_name(format!(".{name}.partial"));
    let about = work.join(ABOUT);
    let text = toml::to_string(recipe)
        .map_err(|e| Error::request(format!("cannot describe the chunks: {e}"), "report this as a bug"))?;
    if work.exists() && fs::read_to_string(&about).ok().as_ref() != Some(&text) {
        fs::remove_dir_all(&work).map_err(Error::write("remove", &work))?;
    }
    durable::create_folder(&work)?;
    if !about.exists() {
        durable::write_new(&about, text.as_bytes())?;
    }
    Ok(work)
}

/// Makes the file `path` by `make`, unless it is there.
fn complete(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    // What is complete stays for the next call; what is not would only take space.
    let unfinished = Unfinished::new(&path.with_extension("tmp"));
    make(unfinished.path())?;
    unfinished.publish(path)
}

/// Which chunk has which nodes.
fn assign(work: &Path, graph: &Csr<u32>, recipe: &Recipe, progress: &dyn Progress) -> Result<Partition> {
    let (perm, ranges) = (work.join("perm.npy"), work.join("ranges.npy"));
    // Ranges come last: with them, both are complete.
    if !ranges.exists() {
        let made = partition::partition(graph, &recipe.options(), progress)?;
        let ids = |ids: &[u64], path: &Path| {
            let mut out = NpyWriter::<i64>::create(path, &[])?;
            out.push(bytemuck::cast_slice(ids))?;
            out.finish().map(|_| ())
        };
        complete(&perm, |path| ids(made.permutation().old_of_new(), path))?;
        complete(&ranges, |path| ids(made.ranges(), path))?;
        return Ok(made);
    }
    let (perm_ids, range_ids) = (read_ids(&perm, "perm")?, read_ids(&ranges, "ranges")?);
    let permutation =
        Permutation::from_old_of_new(perm_ids.to_vec()).map_err(|e| Error::bad(&perm, "perm", e, REMEDY))?;
    Partition::new(permutation, range_ids.to_vec()).map_err(|problem| Error::bad(&ranges, "ranges", problem, REMEDY))
}

/// The graph in new ids, by an external sort.
fn sort_edges(
    work: &Path,
    graph: &Csr<u32>,
    permutation: &Permutation,
    recipe: &Recipe,
    memory: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let (indptr, indices) = (work.join("indptr.npy"), work.join("indices.npy"));
    // Offsets come last: with them, both are complete.
    if indptr.exists() {
        return Ok(());
    }
    let n = graph.num_dst() as u64;
    let Recipe { symmetrise, self_loops, .. } = *recipe;
    let rules = EdgeRules { symmetrise, merge_parallel: false, self_loops, memory };
    let mut sorter = EdgeSorter::new(Expected::bare(n), rules, &Scratch::new(work))?;
    let task = progress.start("renumber edges", graph.num_edges() as u64, Unit::Items);
    let mut edges = Vec::with_capacity(EDGES);
    for row in 0..graph.num_dst() {
        let to = permutation.new_of(row) as u64;
        for piece in graph.row(row).chunks(EDGES) {
            edges.extend(piece.iter().map(|j| [permutation.new_of(*j as usize) as u64, to]));
            if edges.len() >= EDGES {
                sorter.push(&edges)?;
                task.add(edges.len() as u64);
                edges.clear();
            }
        }
    }
    sorter.push(&edges)?;
    drop(task);
    let [unfinished, offsets] = [&indices, &indptr].map(|path| Unfinished::new(&path.with_extension("tmp")));
    let mut sources = NpyWriter::<u32>::create(unfinished.path(), &[])?;
    let mut ends = NpyWriter::<u64>::create(offsets.path(), &[])?;
    ends.push(&[0])?;
    let mut ids: Vec<u32> = Vec::new();
    sorter.stream(n, progress, |block| {
        ends.push(&block.ends)?;
        ids.clear();
        ids.extend(block.sources.iter().map(|s| *s as u32));
        sources.push(&ids)
    })?;
    sources.finish()?;
    ends.finish()?;
    unfinished.publish(&indices)?;
    offsets.publish(&indptr)
}

/// Rows of `values` in new order: as many at a time as fit, each lot read in the order in which it lies on the disk.
fn in_order<T: Element>(
    path: &Path,
    values: &[T],
    width: usize,
    permutation: &Permutation,
    memory: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let mut out = NpyWriter::<T>::create(path, &[width])?;
    let task = progress.start("order features", permutation.len() as u64, Unit::Items);
    let at_a_time = (memory / (width * size_of::<T>() + size_of::<(u32, u32)>())).max(1);
    for lot in permutation.old_of_new().chunks(at_a_time) {
        let mut order: Vec<(u32, u32)> = lot.iter().zip(0..).map(|(old, place)| (*old as u32, place)).collect();
        order.sort_unstable();
        let mut rows = vec![T::zeroed(); lot.len() * width];
        for (old, place) in order {
            rows[place as usize * width..][..width].copy_from_slice(&values[old as usize * width..][..width]);
        }
        out.push(&rows)?;
        task.add(lot.len() as u64);
    }
    out.finish().map(|_| ())
}

impl Chunks {
    /// Maps the chunks in `dir`, with what they were made of. They are looked through the first time.
    ///
    /// # Errors
    /// [`Error::BadInput`] naming the file and the position of what is wrong with it.
    pub fn open(dir: &Path) -> Result<(Self, Recipe)> {
        let path = dir.join(ABOUT);
        let text = plain::open(&path).and_then(plain::text).map_err(|e| Error::unreadable(&path, "file", &e))?;
        let recipe: Recipe =
            toml::from_str(&text).map_err(|e| Error::bad(&path, "about", e.to_string().trim_end(), REMEDY))?;
        let originals = read_ids(&dir.join("perm.npy"), "perm")?;
        let ranges = read_ids(&dir.join("ranges.npy"), "ranges")?;
        let n = originals.len();
        let (path, offsets) = (dir.join("indptr.npy"), NpyFile::open(dir.join("indptr.npy"))?);
        let indptr = offsets.elements::<u64>().ok_or_else(|| offsets.wrong_dtype("indptr", "uint64"))?;
        let sources = NpyFile::open(dir.join("indices.npy"))?;
        let indices = sources.elements::<u32>().ok_or_else(|| sources.wrong_dtype("indices", "uint32"))?;
        if indptr.len() != n + 1 || indptr.last().copied() != Some(indices.len() as u64) {
            let problem = format!("{} offsets for {n} nodes and {} edges do not fit", indptr.len(), indices.len());
            return Err(Error::bad(&path, "indptr", problem, REMEDY));
        }
        let fits = ranges.len() == recipe.chunks + 1
            && (ranges.first(), ranges.last()) == (Some(&0), Some(&(n as u64)))
            && ranges.windows(2).all(|w| w[0] <= w[1]);
        if !fits {
            let problem = format!("they do not cut {n} nodes into {} chunks", recipe.chunks);
            return Err(Error::bad(dir.join("ranges.npy"), "ranges", problem, REMEDY));
        }
        // Everything that is used as an index, every time: pieces are cut by these numbers.
        let graph = Csr::new(indptr, indices, n).map_err(|e| Error::bad(&path, "indptr", e, REMEDY))?;
        check_permutation(&originals).map_err(|problem| Error::bad(dir.join("perm.npy"), "perm", problem, REMEDY))?;
        let features = Dense::map(&dir.join("feat.npy"), "feat", n)?;
        Ok((Self { ranges: ranges.to_vec(), originals: Some(originals), graph, features }, recipe))
    }
}

/// Whether every id below their number is there once; a bit each is enough to know.
fn check_permutation(ids: &[u64]) -> std::result::Result<(), Problem> {
    let mut seen = vec![0u64; ids.len().div_ceil(64)];
    for (at, id) in ids.iter().enumerate() {
        let bit = 1 << (id % 64);
        let word = if *id < ids.len() as u64 { seen.get_mut((id / 64) as usize) } else { None };
        let problem = match word {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                continue;
            }
            Some(_) => format!("perm[{at}] = {id} is there twice"),
            None => format!("perm[{at}] = {id}: there are only {} nodes", ids.len()),
        };
        return Err(Problem::at(Position::element(at), problem));
    }
    Ok(())
}

fn read_ids(path: &Path, field: &str) -> Result<crate::buf::Buf<u64>> {
    let file = NpyFile::open(path)?;
    let ids = file.elements::<i64>().ok_or_else(|| file.wrong_dtype(field, "int64"))?;
    // Negative ones become too large, which is found when they are looked at.
    Ok(ids.cast())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Spec;
    use graphweft_base::progress::Silent;

    fn dataset(dir: &Path) -> Dataset {
        let spec: Spec = "sbm:600:4:8:f=12".parse().unwrap();
        spec.write(1, dir.join("data"), &Silent).unwrap();
        Dataset::open(dir.join("data")).unwrap()
    }

    fn recipe(method: Method, self_loops: SelfLoops) -> Recipe {
        let Options { parts: chunks, balance, seed, .. } = Options::new(method, 4);
        Recipe { method, chunks, balance, order: Order::None, seed, symmetrise: false, self_loops }
    }

    #[test]
    fn the_same_is_on_disk_as_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let data = dataset(dir.path());
        let AnyCsr::Narrow(graph) = data.graph().unwrap() else { panic!("a small graph") };
        for (method, loops) in [(Method::Random, SelfLoops::Add), (Method::Streaming, SelfLoops::Keep)] {
            let (recipe, target) = (recipe(method, loops), folder(data.dir(), method, 4));
            // So little memory that runs are merged and features come in many lots.
            prepare(&data, &recipe, &target, 1 << 12, &Silent).unwrap();
            let (found, about) = Chunks::open(&target).unwrap();
            let parts = partition::partition(graph, &recipe.options(), &Silent).unwrap();
            let expected = Chunks::divided(&graph.with_self_loops(loops), &parts);
            assert_eq!(about, recipe);
            assert_eq!((found.graph(), &found.ranges), (expected.graph(), &expected.ranges));
            assert_eq!(found.originals, expected.originals);
            let Some(Features::Dense(Dense::F32 { values, width })) = data.features() else { panic!("dense") };
            let Some(Dense::F32 { values: ordered, .. }) = found.features() else { panic!("features") };
            for new in 0..600 {
                let old = found.original(new) as usize;
                assert_eq!(ordered[new * width..][..*width], values[old * width..][..*width]);
            }
            assert_eq!(found.new_ids(&[found.original(17) as i64]), [17]);
            let message = prepare(&data, &recipe, &target, 1 << 12, &Silent).unwrap_err().to_string();
            assert!(message.contains("exists already"), "{message}");
        }
    }

    /// A dataset, and where its random chunks are.
    fn prepared() -> (tempfile::TempDir, Dataset, Recipe, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let data = dataset(dir.path());
        let (recipe, target) = (recipe(Method::Random, SelfLoops::Keep), folder(data.dir(), Method::Random, 4));
        prepare(&data, &recipe, &target, 1 << 20, &Silent).unwrap();
        (dir, data, recipe, target)
    }

    #[test]
    fn interrupted_chunks_go_on_unless_they_were_for_another_recipe() {
        let (_dir, data, recipe, target) = prepared();
        let whole = Chunks::open(&target).unwrap().0;
        let partial = target.with_file_name(".random-4.partial");
        // Killed while features were written.
        fs::rename(&target, &partial).unwrap();
        fs::rename(partial.join("feat.npy"), partial.join("feat.tmp")).unwrap();
        let kept = fs::metadata(partial.join("indices.npy")).unwrap().modified().unwrap();
        prepare(&data, &recipe, &target, 1 << 20, &Silent).unwrap();
        assert_eq!(fs::metadata(target.join("indices.npy")).unwrap().modified().unwrap(), kept);
        let again = Chunks::open(&target).unwrap().0;
        assert_eq!((again.graph(), again.features()), (whole.graph(), whole.features()));
        assert!(!partial.exists() && !target.join("feat.tmp").exists());

        fs::rename(&target, &partial).unwrap();
        prepare(&data, &Recipe { seed: 9, ..recipe }, &target, 1 << 20, &Silent).unwrap();
        assert_ne!(Chunks::open(&target).unwrap().0.originals, whole.originals);
    }

    #[test]
    fn damage_is_named() {
        let (_dir, .., target) = prepared();
        for (file, at, byte, part) in
            [("perm.npy", 128, 0xffu8, "perm"), ("indices.npy", 131, 0xff, "indices"), ("ranges.npy", 136, 0xff, "cut")]
        {
            let path = target.join(file);
            let good = fs::read(&path).unwrap();
            let mut bad = good.clone();
            bad[at] = byte;
            bad[at + 1] = byte;
            fs::write(&path, &bad).unwrap();
            let message = Chunks::open(&target).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("remedy"), "{file}: {message}");
            fs::write(&path, &good).unwrap();
        }
        Chunks::open(&target).unwrap();
    }
}
