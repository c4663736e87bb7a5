//! Splits of links: pairs of nodes to learn from, to choose by and to report on.
//!
//! A part is an array of two columns, as are pairs that are no links, where the source names them. The graph of the
//! folder is what messages go along.

use std::path::Path;

use graphweft_base::{Error, Position, Problem, Result, durable};

use super::no_ids;
use crate::buf::Buf;
use crate::npy::{NpyFile, write_npy};

/// The three sets of pairs that a split names; each array has a pair after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSplit {
    /// The split's folder name.
    pub name: String,
    /// Links to learn from.
    pub train: Buf<i64>,
    /// Links to choose by.
    pub valid: Buf<i64>,
    /// Links to report on.
    pub test: Buf<i64>,
    /// Pairs that are no links, to choose by.
    pub valid_neg: Option<Buf<i64>>,
    /// The same to report on.
    pub test_neg: Option<Buf<i64>>,
}

impl LinkSplit {
    /// The parts with their file names.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &Buf<i64>)> {
        let all = [
            ("train", Some(&self.train)),
            ("valid", Some(&self.valid)),
            ("test", Some(&self.test)),
            ("valid_neg", self.valid_neg.as_ref()),
            ("test_neg", self.test_neg.as_ref()),
        ];
        all.into_iter().filter_map(|(name, pairs)| Some((name, pairs?)))
    }

    /// Maps the split called `name` in `root`.
    pub(super) fn map(root: &Path, name: &str) -> Result<Self> {
        let folder = root.join(name);
        let part = |part: &str| {
            let file = NpyFile::open(folder.join(format!("{part}.npy")))?;
            if !matches!(file.shape(), [_, 2]) {
                return Err(file.wrong_shape(part, "[links, 2]: a pair of nodes in each row"));
            }
            file.elements::<i64>().ok_or_else(|| no_ids(&file, part))
        };
        let given = |name: &str| folder.join(format!("{name}.npy")).exists().then(|| part(name)).transpose();
        Ok(Self {
            name: name.into(),
            train: part("train")?,
            valid: part("valid")?,
            test: part("test")?,
            valid_neg: given("valid_neg")?,
            test_neg: given("test_neg")?,
        })
    }

    /// Ids in range. A failure names the part and the position.
    pub(super) fn check(&self, num_nodes: usize) -> std::result::Result<(), (&'static str, Problem)> {
        for (part, pairs) in self.parts() {
            let out = pairs.iter().position(|id| usize::try_from(*id).map_or(true, |id| id >= num_nodes));
            if let Some(at) = out {
                let text = format!("{part}[{}, {}] = {}: there are only {num_nodes} nodes", at / 2, at % 2, pairs[at]);
                return Err((part, Problem::at(Position::in_matrix(at, 2), text)));
            }
        }
        Ok(())
    }

    /// Writes it into `root`.
    pub(super) fn save(&self, root: &Path) -> Result<()> {
        let folder = root.join(&self.name);
        durable::create_folder(&folder)?;
        self.parts().try_for_each(|(part, pairs)| write_npy(folder.join(format!("{part}.npy")), &[2], pairs))
    }

    pub(super) fn validate(&self, dir: &Path, num_nodes: usize) -> Result<()> {
        self.check(num_nodes).map_err(|(part, problem)| {
            let file = dir.join("split").join(&self.name).join(format!("{part}.npy"));
            Error::bad(file, part, problem, "name nodes of this graph, from 0")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
    use crate::dataset::{Dataset, DatasetWriter, Meta, Task};

    fn split() -> LinkSplit {
        LinkSplit {
            name: "own".into(),
            train: vec![0, 1, 1, 2].into(),
            valid: vec![2, 0].into(),
            test: vec![0, 2].into(),
            valid_neg: Some(vec![1, 1].into()),
            test_neg: None,
        }
    }

    fn write(dir: &Path, split: &LinkSplit) {
        let graph = Csr::from_edges(3, &[0, 1, 1, 2], &[1, 0, 2, 1]).unwrap();
        let out = DatasetWriter::create(dir).unwrap();
        out.graph(&graph.clone().into()).unwrap();
        out.links(split).unwrap();
        out.finish(&Meta { task: Task::Link, ..Meta::of("three", &graph, true) }).unwrap();
    }

    #[test]
    fn what_was_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("three");
        write(&folder, &split());
        let data = Dataset::open(&folder).unwrap();
        assert_eq!((data.links(), data.splits()), (&[split()][..], &[][..]));
        let copy = dir.path().join("copy");
        data.save(&copy).unwrap();
        assert_eq!(Dataset::open(&copy).unwrap().links(), data.links());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = |name: &str, shape: &[usize], pairs: &[i64]| {
            let folder = dir.path().join("wrong");
            write(&folder, &split());
            write_npy(folder.join("split/own").join(name), shape, pairs).unwrap();
            let message = Dataset::open(&folder).unwrap_err().to_string();
            std::fs::remove_dir_all(&folder).unwrap();
            message
        };
        let out = message("test.npy", &[2], &[0, 1, 3, 0]);
        assert!(out.contains("test[1, 0] = 3") && out.contains("test.npy"), "{out}");
        assert!(message("valid_neg.npy", &[2], &[0, -1]).contains("valid_neg[0, 1] = -1"));
        assert!(message("train.npy", &[3], &[0, 1, 2]).contains("[links, 2]"));
        assert!(message("train.npy", &[], &[0, 1, 2]).contains("[links, 2]"));
    }
}
