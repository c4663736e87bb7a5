//! Whether stored chunks are still of their dataset.
//!
//! A dataset folder may get other features or edges after its chunks were made, of the same shape. Some rows are
//! compared every time chunks are taken, which finds what was replaced as a whole. All rows are compared where a file
//! of the dataset is newer than the chunks, which finds everything, once: `about.toml` then gets the time of that file.
//!
//! Rows are compared one by one in mapped files, so little memory is used however large the graph is.

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use graphweft_base::progress::{Progress, Unit};
use graphweft_base::{Error, Result};
use rayon::prelude::*;

use super::Chunks;
use super::store::{ABOUT, REMEDY};
use crate::csr::Csr;
use crate::dataset::Dense;

/// Rows that are compared every time.
const SOME: usize = 1000;
/// Rows that are compared before their pages are given back.
const LOT: usize = 1 << 16;
/// What chunks are made of.
const SOURCES: [&str; 3] = ["indptr.npy", "indices.npy", "feat.npy"];

impl Chunks {
    /// Compares these chunks, which lie in `dir`, with the dataset in the folder `data`. `graph` is its graph in
    /// original ids, after what the recipe does to edges: it must have as many nodes as the chunks.
    ///
    /// # Errors
    /// [`Error::BadInput`] with the first row that was found to differ.
    pub fn check(&self, dir: &Path, data: &Path, graph: &Csr<u32>, progress: &dyn Progress) -> Result<()> {
        let n = self.num_nodes();
        // Sparse features are not stored with chunks.
        let sparse = data.join("feat_indptr.npy").exists();
        let features = if sparse { None } else { Dense::map(&data.join("feat.npy"), "feat", n)? };
        let pair = match (&self.features, &features) {
            (None, _) => None,
            (Some(stored), Some(now)) if is_alike(stored, now) => Some((stored, now)),
            (Some(_), _) => {
                let problem = format!("{} has features of another shape or type, or none", data.display());
                return Err(Error::bad(dir.join("feat.npy"), "feat", problem, REMEDY));
            }
        };
        let comparison = Comparison { chunks: self, dir, data, graph, features: pair };
        let some = n.min(SOME);
        comparison.compare((0..some).map(|k| (k as u128 * n as u128 / some as u128) as usize).collect())?;
        let Some(newest) = newer(dir, data) else { return Ok(()) };
        let phase = progress.start("compare chunks", n as u64, Unit::Items);
        for first in (0..n).step_by(LOT) {
            let lot = first..n.min(first + LOT);
            phase.add(lot.len() as u64);
            comparison.compare(lot.collect())?;
        }
        touch(dir, newest);
        Ok(())
    }
}

/// What is compared.
struct Comparison<'a> {
    chunks: &'a Chunks,
    dir: &'a Path,
    data: &'a Path,
    graph: &'a Csr<u32>,
    /// As they are stored, and as they are now.
    features: Option<(&'a Dense, &'a Dense)>,
}

impl Comparison<'_> {
    /// Compares some rows, in the order in which they lie in the dataset, and gives the pages back.
    fn compare(&self, mut rows: Vec<usize>) -> Result<()> {
        rows.sort_unstable_by_key(|new| self.chunks.original(*new));
        let wrong = rows.par_iter().find_map_first(|new| self.difference(*new));
        self.chunks.release();
        self.graph.indptr().release();
        self.graph.indices().release();
        self.features.iter().for_each(|(_, now)| now.release());
        wrong.map_or(Ok(()), Err)
    }

    /// What is wrong with a row.
    fn difference(&self, new: usize) -> Option<Error> {
        let old = self.chunks.original(new) as usize;
        let bad = |file: &str, field: &str, what: &str| {
            let problem = format!(
                "row {new} has other {what} than node {old}, which it was made of, now has in {}",
                self.data.display()
            );
            Some(Error::bad(self.dir.join(file), field, problem, REMEDY))
        };
        if self.features.is_some_and(|(stored, now)| bytes(stored, new) != bytes(now, old)) {
            return bad("feat.npy", "feat", "features");
        }
        let (row, expected) = (self.chunks.graph.row(new), self.graph.row(old));
        // Few rows of another graph are as long, and the others need not be sorted.
        if row.len() != expected.len() {
            return bad("indices.npy", "indices", "edges");
        }
        let mut sources: Vec<u32> = row.iter().map(|j| self.chunks.original(*j as usize) as u32).collect();
        sources.sort_unstable();
        if sources == expected { None } else { bad("indices.npy", "indices", "edges") }
    }
}

/// Whether rows can be compared at all.
fn is_alike(a: &Dense, b: &Dense) -> bool {
    a.width() == b.width() && std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// A row as it is stored: by its bits, numbers that are no numbers are equal too.
fn bytes(m: &Dense, row: usize) -> &[u8] {
    match m {
        Dense::F32 { values, width } => bytemuck::cast_slice(&values[row * width..][..*width]),
        Dense::F16 { values, width } => bytemuck::cast_slice(&values[row * width..][..*width]),
    }
}

/// The time of the newest file of the dataset, if that is after the chunks were made or last compared.
fn newer(dir: &Path, data: &Path) -> Option<SystemTime> {
    let time = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    let newest = SOURCES.iter().filter_map(|name| time(&data.join(name))).max()?;
    Some(newest).filter(|newest| time(&dir.join(ABOUT)).is_none_or(|made| made < *newest))
}

/// Remembers that all was compared with files up to `newest`. Where that cannot be written, it is compared again the
/// next time.
fn touch(dir: &Path, newest: SystemTime) {
    // Root may write anywhere, but a folder that is marked read-only is meant to stay as it is.
    if fs::metadata(dir).is_ok_and(|about| about.permissions().readonly()) {
        return;
    }
    let _ = File::options().append(true).open(dir.join(ABOUT)).and_then(|about| about.set_modified(newest));
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::super::{Recipe, folder, prepare};
    use super::*;
    use crate::csr::{AnyCsr, SelfLoops};
    use crate::dataset::Dataset;
    use crate::generate::Spec;
    use crate::partition::{Method, Options, Order};
    use graphweft_base::progress::{Phase, Silent};

    const NODES: usize = 1 << 12;
    const WIDTH: usize = 4;
    /// Bytes before the elements of a small file.
    const HEADER: usize = 128;

    /// Counts what is reported.
    #[derive(Clone, Default)]
    struct Counted(Arc<AtomicU64>);

    impl Progress for Counted {
        fn start(&self, _: &str, _: u64, _: Unit) -> Box<dyn Phase> {
            Box::new(self.clone())
        }
    }

    impl Phase for Counted {
        fn add(&self, n: u64) {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// What became of the edges of the dataset in its chunks.
    #[derive(Clone, Copy, Debug)]
    struct Edges {
        symmetrise: bool,
        loops: SelfLoops,
    }

    const SAME: Edges = Edges { symmetrise: false, loops: SelfLoops::Keep };

    /// When a file was changed.
    #[derive(Clone, Copy, PartialEq)]
    enum When {
        /// As its time says: nobody notices by that.
        Before,
        /// After the chunks were made.
        After,
    }

    struct Prepared {
        _dir: tempfile::TempDir,
        data: PathBuf,
        chunks: PathBuf,
        edges: Edges,
    }

    impl Prepared {
        fn new(edges: Edges) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let data = dir.path().join("data");
            let spec: Spec = format!("rmat:12:8:f={WIDTH}:c=3").parse().unwrap();
            spec.write(1, &data, &Silent).unwrap();
            // One edge of it will be another one.
            let meta = fs::read_to_string(data.join("meta.toml")).unwrap();
            fs::write(data.join("meta.toml"), meta.replace("symmetric = true", "symmetric = false")).unwrap();
            let Options { parts: chunks, balance, seed, .. } = Options::new(Method::Random, 4);
            let Edges { symmetrise, loops: self_loops } = edges;
            let (method, order) = (Method::Random, Order::None);
            let recipe = Recipe { method, chunks, balance, order, seed, symmetrise, self_loops };
            let target = folder(&data, method, chunks);
            prepare(&Dataset::open(&data).unwrap(), &recipe, &target, 1 << 20, &Silent).unwrap();
            Self { _dir: dir, data, chunks: target, edges }
        }

        /// Checks, and gives how many rows were compared and reported, beside those that always are.
        fn check(&self) -> Result<u64> {
            let opened = Dataset::open(&self.data).unwrap();
            let AnyCsr::Narrow(graph) = opened.graph().unwrap() else { panic!("a small graph") };
            let graph = if self.edges.symmetrise { graph.symmetrise() } else { graph.clone() };
            let counted = Counted::default();
            let chunks = Chunks::open(&self.chunks)?.0;
            chunks.check(&self.chunks, &self.data, &graph.with_self_loops(self.edges.loops), &counted)?;
            Ok(counted.0.load(Ordering::Relaxed))
        }

        fn time(&self, name: &str) -> SystemTime {
            fs::metadata(self.data.join(name)).unwrap().modified().unwrap()
        }

        /// Changes bytes of a file of the dataset.
        fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>), when: When) {
            let (path, before) = (self.data.join(name), self.time(name));
            let mut bytes = fs::read(&path).unwrap();
            change(&mut bytes);
            // A new file, as our own writers make it: the old one may be mapped.
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
            let made = fs::metadata(self.chunks.join(ABOUT)).unwrap().modified().unwrap();
            let time = if when == When::After { made + Duration::from_secs(5) } else { before };
            File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
        }

        /// The node that a row was made of.
        fn original(&self, new: usize) -> usize {
            Chunks::open(&self.chunks).unwrap().0.original(new) as usize
        }

        /// Another number in the features of a node.
        fn other_feature(&self, node: usize, when: When) {
            self.change("feat.npy", |bytes| bytes[HEADER + node * WIDTH * 4 + 1] ^= 1, when);
        }

        /// Another source of the last edge of a node, in order.
        fn other_edge(&self, node: usize, when: When) {
            let opened = Dataset::open(&self.data).unwrap();
            let AnyCsr::Narrow(graph) = opened.graph().unwrap() else { panic!("a small graph") };
            let last = graph.edges_of(node).end - 1;
            let other = graph.indices()[last] + 1;
            assert!((other as usize) < NODES);
            let to = HEADER + 4 * last..HEADER + 4 * last + 4;
            self.change("indices.npy", |bytes| bytes[to].copy_from_slice(&other.to_le_bytes()), when);
        }

        fn message(&self) -> String {
            let error = self.check().unwrap_err();
            assert!(matches!(error, Error::BadInput { .. }), "{error}");
            assert!(error.to_string().contains(REMEDY), "{error}");
            error.to_string()
        }
    }

    #[test]
    fn what_nobody_changed_is_taken() {
        let looped = [SelfLoops::Add, SelfLoops::Remove].map(|loops| Edges { loops, ..SAME });
        let both_ways = Edges { symmetrise: true, loops: SelfLoops::Add };
        for edges in [SAME, looped[0], looped[1], both_ways] {
            assert_eq!(Prepared::new(edges).check().unwrap(), 0, "{edges:?}");
        }
    }

    #[test]
    fn features_that_were_replaced_are_found_whatever_their_time() {
        let prepared = Prepared::new(SAME);
        prepared.change("feat.npy", |bytes| bytes[HEADER..].iter_mut().step_by(4).for_each(|b| *b ^= 1), When::Before);
        let message = prepared.message();
        let part = prepared.chunks.join("feat.npy").display().to_string();
        assert!(message.contains(&part) && message.contains("row ") && message.contains("features"), "{message}");
        fs::remove_file(prepared.data.join("feat.npy")).unwrap();
        assert!(prepared.message().contains("or none"));
    }

    #[test]
    fn edges_that_were_replaced_are_found_whatever_their_time() {
        let (looped, both_ways) = (Edges { loops: SelfLoops::Add, ..SAME }, Edges { symmetrise: true, ..SAME });
        for edges in [SAME, looped, both_ways] {
            let prepared = Prepared::new(edges);
            // Of the rows that are always compared, one with few neighbours: a hub's last is the last node.
            let rows = Chunks::open(&prepared.chunks).unwrap().0;
            let suits = |new: &usize| (3..9).contains(&rows.graph().degree(*new)) && rows.original(*new) < 2000;
            let new = (0..SOME).map(|k| k * NODES / SOME).find(suits).unwrap();
            prepared.other_edge(rows.original(new) as usize, When::Before);
            let message = prepared.message();
            let part = prepared.chunks.join("indices.npy").display().to_string();
            assert!(message.contains(&part) && message.contains("edges"), "{message}");
        }
    }

    #[test]
    fn of_a_file_that_is_newer_every_row_is_compared_once() {
        let prepared = Prepared::new(SAME);
        for _ in 0..2 {
            // The same again.
            prepared.change("feat.npy", |_| {}, When::After);
            assert_eq!([prepared.check().unwrap(), prepared.check().unwrap()], [NODES as u64, 0]);
        }
        // A row that is not among those that are always compared.
        let node = prepared.original(1);
        prepared.other_feature(node, When::Before);
        assert_eq!(prepared.check().unwrap(), 0);
        prepared.change("feat.npy", |_| {}, When::After);
        let message = prepared.message();
        assert!(message.contains(&format!("row 1 has other features than node {node}")), "{message}");
        assert_eq!(prepared.message(), message, "it is not forgotten");
    }

    #[test]
    fn where_nothing_can_be_written_rows_are_compared_again() {
        let prepared = Prepared::new(SAME);
        prepared.change("indices.npy", |_| {}, When::After);
        let permissions = fs::metadata(&prepared.chunks).unwrap().permissions();
        let mut fixed = permissions.clone();
        fixed.set_readonly(true);
        fs::set_permissions(&prepared.chunks, fixed).unwrap();
        let compared = [prepared.check(), prepared.check()];
        fs::set_permissions(&prepared.chunks, permissions).unwrap();
        assert_eq!(compared.map(Result::unwrap), [NODES as u64; 2]);
    }
}
