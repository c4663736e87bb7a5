//! Splits of links: pairs of nodes to learn from, to choose by and to report on.
//!
//! A part is an array of two columns, as are pairs that are no links, where the source names them. Where links are of
//! several relations, it has three: head, relation, tail. Relations are the types of edges that `meta.toml` names. The
//! graph of the folder is what messages go along.

use std::path::Path;

use graphweft_base::{Error, Position, Problem, Result, durable};

use super::{Meta, no_ids};
use crate::buf::Buf;
use crate::npy::{NpyFile, write_npy};

/// The three sets of pairs that a split names; each array has a pair, or a triple, after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSplit {
    /// The split's folder name.
    pub name: String,
    /// Numbers of a link: 2, or 3 where it has a relation, which then stands between its ends.
    pub width: usize,
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
        let open = |part: &str| NpyFile::open(folder.join(format!("{part}.npy")));
        let width = match open("train")?.shape() {
            [_, 3] => 3,
            _ => 2,
        };
        let part = |part: &str| {
            let file = open(part)?;
            if !matches!(file.shape(), [_, columns] if *columns == width) {
                let expected = match width {
                    2 => "[links, 2]: a pair of nodes in each row",
                    _ => "[links, 3]: head, relation and tail in each row, as in train",
                };
                return Err(file.wrong_shape(part, expected));
            }
            file.elements::<i64>().ok_or_else(|| no_ids(&file, part))
        };
        let given = |name: &str| folder.join(format!("{name}.npy")).exists().then(|| part(name)).transpose();
        Ok(Self {
            name: name.into(),
            width,
            train: part("train")?,
            valid: part("valid")?,
            test: part("test")?,
            valid_neg: given("valid_neg")?,
            test_neg: given("test_neg")?,
        })
    }

    /// Ids in range, of nodes and of so many relations. A failure names the part and the position.
    pub(super) fn check(&self, nodes: usize, relations: usize) -> std::result::Result<(), (&'static str, Problem)> {
        let width = self.width;
        let is_relation = |at: usize| width == 3 && at % 3 == 1;
        let most = |at: usize| if is_relation(at) { relations } else { nodes };
        for (part, links) in self.parts() {
            let is_out = |at: &usize| usize::try_from(links[*at]).map_or(true, |id| id >= most(*at));
            if let Some(at) = (0..links.len()).find(is_out) {
                let noun = if is_relation(at) { "relations (edge_types in meta.toml)" } else { "nodes" };
                let [row, column] = [at / width, at % width];
                let text = format!("{part}[{row}, {column}] = {}: there are only {} {noun}", links[at], most(at));
                return Err((part, Problem::at(Position::in_matrix(at, width), text)));
            }
        }
        Ok(())
    }

    /// Writes it into `root`.
    pub(super) fn save(&self, root: &Path) -> Result<()> {
        let folder = root.join(&self.name);
        durable::create_folder(&folder)?;
        self.parts().try_for_each(|(part, pairs)| write_npy(folder.join(format!("{part}.npy")), &[self.width], pairs))
    }

    pub(super) fn validate(&self, dir: &Path, meta: &Meta) -> Result<()> {
        self.check(meta.num_nodes, meta.edge_types.len()).map_err(|(part, problem)| {
            let file = dir.join("split").join(&self.name).join(format!("{part}.npy"));
            Error::bad(file, part, problem, "name nodes and relations of this graph, from 0")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
    use crate::dataset::{Codes, Dataset, DatasetWriter, Task};

    fn split() -> LinkSplit {
        LinkSplit {
            name: "own".into(),
            width: 2,
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
        let edge_types = if split.width == 3 { vec!["a".into(), "b".into()] } else { Vec::new() };
        if split.width == 3 {
            out.edge_types(&Codes::U8 { values: vec![0, 1, 1, 0].into(), width: 1 }).unwrap();
        }
        out.finish(&Meta { task: Task::Link, edge_types, ..Meta::of("three", &graph, true) }).unwrap();
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

    fn triples(test: [i64; 3]) -> LinkSplit {
        let (train, valid) = (vec![0, 1, 1, 1, 0, 2].into(), vec![2, 0, 0].into());
        LinkSplit { width: 3, train, valid, test: test.to_vec().into(), valid_neg: None, ..split() }
    }

    #[test]
    fn triples_are_read_again_and_relations_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, test| {
            let folder = dir.path().join(name);
            write(&folder, &triples(test));
            Dataset::open(&folder).map(|data| data.links().to_vec()).map_err(|e| e.to_string())
        };
        assert_eq!(of("good", [2, 1, 0]).unwrap(), [triples([2, 1, 0])]);
        let relation = of("relation", [2, 2, 0]).unwrap_err();
        assert!(relation.contains("test[0, 1] = 2: there are only 2 relations"), "{relation}");
        let node = of("node", [2, 1, 3]).unwrap_err();
        assert!(node.contains("test[0, 2] = 3: there are only 3 nodes"), "{node}");
        let folder = dir.path().join("mixed");
        write(&folder, &triples([2, 1, 0]));
        write_npy(folder.join("split/own/valid.npy"), &[2], &[0i64, 1]).unwrap();
        let mixed = Dataset::open(&folder).unwrap_err().to_string();
        assert!(mixed.contains("valid") && mixed.contains("[links, 3]"), "{mixed}");
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
        assert!(message("train.npy", &[4], &[0, 1, 2, 0]).contains("[links, 2]"));
        assert!(message("train.npy", &[], &[0, 1, 2]).contains("[links, 2]"));
    }
}
