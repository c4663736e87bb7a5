//! Raw folders of OGB graph-property datasets (ogbg-molhiv and its kin), in text.
//!
//! As those of [node-property datasets](super::ogb), with a line per graph in `num-node-list`, `num-edge-list` and
//! `graph-label`; `edge.csv.gz` has ids inside the graph, graph after graph, and splits are ids of graphs. Molecules
//! list a bond once, and OGB's loader adds the reverse: here that is asked for with `--symmetrise`. Features of nodes,
//! and of edges, that are whole numbers from 0 on are categories.

use graphweft_base::{Error, Position, Problem, Result};

use super::edge_list::{Options, Scan};
use super::imported::{EdgeFeatures, ImportedGraphs};
use super::ogb::{INCOMPLETE, check_edges, need, splits, table_of_edges};
use super::table::{self, Table};
use super::text::Integer;
use super::{Context, Folder, Imported, Input, features, labels, many};
use crate::build::{EdgeSorter, Expected};
use crate::dataset::{Categories, Graphs, Task};

/// Its labels.
pub(super) const LABELS: &str = "raw/graph-label.csv.gz";

/// Reads a dataset folder.
///
/// # Errors
/// [`Error::BadInput`] naming the file and the line.
pub(super) fn read(folder: &dyn Folder, cx: &Context<'_>) -> Result<Imported> {
    let input = need(folder, "raw/num-node-list.csv.gz")?;
    let ptr = many::ends(&input, &table::column(&input, cx)?)?;
    let (graphs, nodes) = (ptr.len() - 1, ptr.last().copied().unwrap_or(0) as usize);
    let input = need(folder, LABELS)?;
    let y = Table::read(&input, cx, |x| !x.is_infinite())?;
    // OGB says what a dataset is for in its program alone; classes are whole numbers.
    let whole = y.values.iter().all(|x| x.is_nan() || x.fract() == 0.0);
    let task = if whole { Task::GraphClassification } else { Task::GraphRegression };
    let (found, classes) =
        labels::from_numbers(task, &input, "label", &[y.rows, y.width], graphs, |at| y.values[at].into())?;
    let edges = edges(folder, &ptr, cx)?;
    let Edges { sorter, features, categories } = edges;
    let mut imported =
        Imported { edge_features: features, edge_categories: categories, ..Imported::new(nodes, sorter) };
    if let Some(input) = folder.input("raw/node-feat.csv.gz")? {
        let table = Table::read(&input, cx, f32::is_finite)?;
        match many::categories(&table).filter(|_| table.rows == nodes) {
            Some(categories) => imported.categories = Some(categories?),
            // Whatever is wrong with its size is said there.
            None => imported.features = Some(features::from_table(table, nodes, &input, cx)?),
        }
    }
    if task == Task::GraphRegression {
        imported.notes.push("labels are not whole numbers: they are numbers to predict".into());
    }
    imported.graphs = Some(ImportedGraphs { graphs: Graphs { ptr: ptr.into(), labels: Some(found) }, classes });
    imported.splits = splits(folder, "graph", graphs, cx)?;
    Ok(imported)
}

struct Edges {
    sorter: EdgeSorter,
    features: Option<EdgeFeatures>,
    categories: Option<Categories>,
}

fn edges(folder: &dyn Folder, ptr: &[u64], cx: &Context<'_>) -> Result<Edges> {
    let input = need(folder, "raw/num-edge-list.csv.gz")?;
    let counts = table::column(&input, cx)?;
    if counts.len() + 1 != ptr.len() {
        let problem = format!("{} graphs, num-node-list.csv.gz has {}", counts.len(), ptr.len() - 1);
        return Err(input.bad("lines", problem, INCOMPLETE));
    }
    let all = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
    let edge_feat = folder.input("raw/edge-feat.csv.gz")?;
    let nodes = ptr.last().copied().unwrap_or(0);
    let expected = Expected { num_nodes: nodes, origins: edge_feat.is_some() };
    let mut sorter = EdgeSorter::new(expected, cx.rules, cx.scratch)?;
    let input = need(folder, "raw/edge.csv.gz")?;
    let id = |at: Integer| match at {
        Integer { negative: false, magnitude } => Ok(magnitude),
        Integer { magnitude, .. } => Err((format!("node −{magnitude}: nodes run from 0"), INCOMPLETE.to_string())),
    };
    let mut place = Place { ptr, counts: &counts, graph: 0, left: counts.first().copied().unwrap_or(0), line: 0 };
    Scan::begin(&input, &Options::default(), cx)?.run(id, |mut piece| {
        piece.edges.iter_mut().try_for_each(|edge| place.put(edge, &input))?;
        sorter.push(&piece.edges)
    })?;
    check_edges(&input, sorter.pushed(), all)?;
    let table = edge_feat.map(|input| table_of_edges(&input, all, cx)).transpose()?;
    let categories = table.as_ref().and_then(many::categories).transpose()?;
    let table = table.filter(|_| categories.is_none());
    let features = table.map(|table| EdgeFeatures { values: table.values, width: table.width });
    Ok(Edges { sorter, features, categories })
}

/// Where in the list of edges we are.
struct Place<'a> {
    ptr: &'a [u64],
    counts: &'a [u64],
    graph: usize,
    /// Edges of this graph that are still to come.
    left: u64,
    line: u64,
}

impl Place<'_> {
    /// Turns ids inside the graph into ids of nodes.
    fn put(&mut self, edge: &mut [u64; 2], input: &Input) -> Result<()> {
        self.line += 1;
        while self.left == 0 && self.graph + 1 < self.counts.len() {
            self.graph += 1;
            self.left = self.counts[self.graph];
        }
        let wrong = |line: u64, problem: String| -> Error {
            input.bad(format!("edge {line}"), Problem::at(Position::Line(line), problem), INCOMPLETE)
        };
        if self.left == 0 {
            return Err(wrong(self.line, "more edges than num-edge-list.csv.gz says".into()));
        }
        self.left -= 1;
        let (first, nodes) = (self.ptr[self.graph], self.ptr[self.graph + 1] - self.ptr[self.graph]);
        for id in edge {
            if *id >= nodes {
                return Err(wrong(self.line, format!("node {id}: graph {} has {nodes} nodes", self.graph)));
            }
            *id += first;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Labels;
    use crate::read::ogb;
    use crate::read::testing::{assert_refused, edges, read_folder, with_other};

    type Files = Vec<(&'static str, &'static str)>;

    fn read_files(files: &[(&str, &str)]) -> Result<Imported> {
        read_folder(files, |folder, cx| ogb::read(folder, cx))
    }

    fn good() -> Files {
        vec![
            ("raw/num-node-list.csv.gz", "3\n1\n2\n"),
            ("raw/num-edge-list.csv.gz", "2\n0\n1\n"),
            ("raw/edge.csv.gz", "0,1\n1,2\n1,0\n"),
            ("raw/edge-feat.csv.gz", "7.5\n8\n9\n"),
            ("raw/node-feat.csv.gz", "5,0\n4,1\n5,0\n1,1\n0,0\n2,0\n"),
            (LABELS, "1\nnan\n0\n"),
            ("split/s/train.csv.gz", "2\n"),
            ("split/s/valid.csv.gz", "0\n"),
            ("split/s/test.csv.gz", "1\n"),
        ]
    }

    fn with(name: &'static str, text: &'static str) -> Result<Imported> {
        read_files(&with_other(good(), name, text))
    }

    #[test]
    fn graphs_are_laid_one_after_the_other() {
        let imported = read_files(&good()).unwrap();
        let found = imported.graphs.clone().unwrap();
        assert_eq!((&found.graphs.ptr[..], found.classes), (&[0, 3, 4, 6][..], 2));
        assert_eq!(found.graphs.labels, Some(Labels::Single(vec![1, -1, 0].into())));
        let categories = imported.categories.clone().unwrap();
        assert_eq!((categories.sizes(), categories.get(3, 1)), (&[6, 2][..], 1));
        assert_eq!(&imported.splits[0].train[..], &[2]);
        assert_eq!(edges(imported), [(0, 1, 7.5), (1, 2, 8.0), (5, 4, 9.0)]);
    }

    #[test]
    fn whole_numbers_of_edges_are_categories() {
        let imported = with("raw/edge-feat.csv.gz", "0,2\n1,0\n3,0\n").unwrap();
        let categories = imported.edge_categories.unwrap();
        assert_eq!((categories.sizes(), categories.get(2, 0), categories.get(0, 1)), (&[4, 3][..], 3, 2));
        assert!(imported.edge_features.is_none());
    }

    #[test]
    fn numbers_and_several_labels_are_told_apart() {
        let labels = |text| with(LABELS, text).unwrap().graphs.unwrap();
        let values = labels("0.5\n-1.25\nnan\n");
        assert!(matches!(values.graphs.labels, Some(Labels::Values(y)) if y[1] == -1.25 && y[2].is_nan()));
        assert_eq!(labels("0,1\n1,1\n0,0\n").graphs.labels, Some(Labels::MultiU8(vec![0, 1, 1, 1, 0, 0].into())));
        let dense = with("raw/node-feat.csv.gz", "0.5\n1\n1\n1\n1\n-2\n").unwrap();
        assert!(dense.categories.is_none() && dense.features.is_some());
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_refused(with("raw/edge.csv.gz", "0,1\n1,3\n1,0\n"), &["edge.csv.gz", "edge 2", "graph 0 has 3 nodes"]);
        assert_refused(with("raw/edge.csv.gz", "0,1\n1,2\n2,0\n"), &["edge 3", "graph 2 has 2 nodes"]);
        assert_refused(with("raw/edge.csv.gz", "0,1\n1,2\n1,0\n0,1\n"), &["edge 4", "more edges"]);
        assert_refused(with("raw/edge.csv.gz", "0,1\n"), &["1 edges", "says 3"]);
        assert_refused(with("raw/edge.csv.gz", "0,-1\n"), &["line 1, column 2", "−1"]);
        assert_refused(
            with("raw/num-node-list.csv.gz", "3\n0\n2\n"),
            &["num-node-list", "line 2", "graph 1 has no node"],
        );
        assert_refused(with("raw/num-edge-list.csv.gz", "2\n1\n"), &["2 graphs", "has 3"]);
        assert_refused(with(LABELS, "1\n0\n"), &["shape is [2, 1]"]);
        assert_refused(with("raw/node-feat.csv.gz", "1\n2\n"), &["2 lines of features for 6 nodes"]);
        assert_refused(with("raw/edge-feat.csv.gz", "1\n2\n"), &["2 lines for 3 edges"]);
        assert_refused(with("split/s/train.csv.gz", "3\n"), &["train[0] = 3", "3 graphs"]);
        let files: Files = good().into_iter().filter(|(name, _)| *name != "raw/edge.csv.gz").collect();
        assert_refused(read_files(&files), &["edge.csv.gz", "no such file"]);
    }
}
