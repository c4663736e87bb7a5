//! Folders of the TU collection: many graphs as text.
//!
//! `NAME_A.txt` has a line `row, column` per edge, with nodes counted from 1; `NAME_graph_indicator.txt` the graph of
//! every node, counted from 1, those of a graph together; `NAME_graph_labels.txt` a class per graph, or
//! `NAME_graph_attributes.txt` numbers to predict. Optional are `NAME_node_labels.txt` and `NAME_edge_labels.txt`,
//! which become categories, `NAME_node_attributes.txt` and `NAME_edge_attributes.txt`, which become features. Where
//! nodes have nothing, their degree becomes their category, as is usual for such data.
//!
//! `splits-NAME.json` beside them, a list of folds, becomes the splits `NAME-0`, `NAME-1`, …: folds with `train` and
//! `test` are chosen by what they are tested on and have no test part; folds with `test` and `model_selection` have all
//! three.

use graphweft_base::{Error, Result};
use serde::Deserialize;

use super::edge_list::{Options, Scan};
use super::imported::{EdgeFeatures, ImportedGraphs};
use super::table::{self, Table};
use super::text::Integer;
use super::{Context, Folder, Imported, Input, features, labels, many};
use crate::build::{EdgeSorter, Expected};
use crate::dataset::{Categories, Graphs, Labels, Split, Task};

const INCOMPLETE: &str = "PATH is the folder with NAME_A.txt; extract the download again";

/// Reads a folder.
///
/// # Errors
/// [`Error::BadInput`] naming the file and the line.
pub fn read(folder: &dyn Folder, cx: &Context<'_>) -> Result<Imported> {
    let names = folder.files()?;
    let stems: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix("_A.txt")).collect();
    let &[stem] = &stems[..] else {
        let problem = format!("there are {} files NAME_A.txt, expected one", stems.len());
        return Err(Error::bad(folder.path(), "folder", problem, INCOMPLETE));
    };
    let files = Files { folder, stem, cx };
    let ptr = files.ends()?;
    let nodes = ptr.last().copied().unwrap_or(0) as usize;
    let (sorter, edge_features, degrees) = files.edges(&ptr)?;
    let mut imported = Imported { edge_features, ..Imported::new(nodes, sorter) };
    if let Some(input) = files.maybe("node_labels")? {
        let table = files.table(&input, nodes)?;
        imported.categories = Some(many::numbered(&input, &table)?);
    }
    if let Some(input) = files.maybe("node_attributes")? {
        imported.features = Some(features::from_table(files.table(&input, nodes)?, nodes, &input, cx)?);
    }
    if imported.categories.is_none() && imported.features.is_none() {
        imported.categories = Some(Categories::new(degrees, 1, &[])?);
        imported.notes.push("nodes have neither labels nor attributes: their degree is their category".into());
    }
    if let Some(input) = files.maybe("edge_labels")? {
        let table = files.table(&input, imported.edges.pushed() as usize)?;
        imported.edge_categories = Some(many::numbered(&input, &table)?);
    }
    let graphs = ptr.len() - 1;
    let (labels, classes, class_names) = files.labels(graphs)?;
    imported.class_names = class_names;
    imported.graphs = Some(ImportedGraphs { graphs: Graphs { ptr: ptr.into(), labels: Some(labels) }, classes });
    for name in names.iter().filter(|name| name.starts_with("splits-") && name.ends_with(".json")) {
        imported.splits.extend(files.splits(name, graphs)?);
    }
    Ok(imported)
}

/// The files of a dataset.
struct Files<'a> {
    folder: &'a dyn Folder,
    stem: &'a str,
    cx: &'a Context<'a>,
}

impl Files<'_> {
    fn maybe(&self, what: &str) -> Result<Option<Input>> {
        self.folder.input(&format!("{}_{what}.txt", self.stem))
    }

    fn need(&self, what: &str) -> Result<Input> {
        let path = self.folder.path().join(format!("{}_{what}.txt", self.stem));
        self.maybe(what)?.ok_or_else(|| Error::bad(path, "file", "there is no such file", INCOMPLETE))
    }

    /// A table with so many lines.
    fn table(&self, input: &Input, lines: usize) -> Result<Table> {
        let table = Table::read(input, self.cx, f32::is_finite)?;
        if table.rows != lines {
            let problem = format!("{} lines, expected {lines}", table.rows);
            return Err(input.bad("lines", problem, "the file is cut short; extract the download again"));
        }
        Ok(table)
    }

    /// Where graphs begin and end.
    fn ends(&self) -> Result<Vec<u64>> {
        let input = self.need("graph_indicator")?;
        let mut counts: Vec<u64> = Vec::new();
        for (line, graph) in (1u64..).zip(table::column(&input, self.cx)?) {
            match (graph, counts.len() as u64) {
                (0, _) => return Err(input.bad(format!("line {line}"), "graph 0: they count from 1", INCOMPLETE)),
                (graph, last) if graph == last => counts[last as usize - 1] += 1,
                (graph, last) if graph == last + 1 => counts.push(1),
                (graph, last) => {
                    let problem = format!("graph {graph} comes after graph {last}");
                    let remedy = "the nodes of a graph stand together, graphs in ascending order, and none is empty";
                    return Err(input.bad(format!("line {line}"), problem, remedy));
                }
            }
        }
        many::ends(&input, &counts)
    }

    /// The edges, their attributes, and the degrees of all nodes.
    fn edges(&self, ptr: &[u64]) -> Result<(EdgeSorter, Option<EdgeFeatures>, Vec<u16>)> {
        let (input, n) = (self.need("A")?, ptr.last().copied().unwrap_or(0));
        let attributes = self.maybe("edge_attributes")?;
        let expected = Expected { num_nodes: n, origins: attributes.is_some() || self.maybe("edge_labels")?.is_some() };
        let mut edges = EdgeSorter::new(expected, self.cx.rules, self.cx.scratch)?;
        let id = |at: Integer| match at {
            Integer { negative: false, magnitude: 1.. } if at.magnitude <= n => Ok(at.magnitude - 1),
            Integer { negative, magnitude } => {
                let sign = if negative { "−" } else { "" };
                Err((format!("node {sign}{magnitude}: nodes run from 1 to {n}"), INCOMPLETE.to_string()))
            }
        };
        let mut degrees = vec![0u16; n as usize];
        let mut before = 0;
        Scan::begin(&input, &Options::default(), self.cx)?.run(id, |piece| {
            for (k, [a, b]) in (before + 1..).zip(&piece.edges) {
                if many::graph_of(ptr, *a) != many::graph_of(ptr, *b) {
                    let problem = format!("nodes {} and {} are of different graphs", a + 1, b + 1);
                    return Err(input.bad(format!("edge {k}"), problem, "correct the edge or the graph indicator"));
                }
                degrees[*b as usize] = degrees[*b as usize].saturating_add(1);
            }
            before += piece.edges.len() as u64;
            edges.push(&piece.edges)
        })?;
        let features = match attributes {
            Some(input) => {
                let table = self.table(&input, edges.pushed() as usize)?;
                Some(EdgeFeatures { values: table.values, width: table.width })
            }
            None => None,
        };
        Ok((edges, features, degrees))
    }

    /// Labels, how many classes or columns there are, and what the classes were called.
    fn labels(&self, graphs: usize) -> Result<(Labels, usize, Option<Vec<String>>)> {
        let Some(input) = self.maybe("graph_labels")? else {
            let input = self.need("graph_attributes")?;
            let y = self.table(&input, graphs)?;
            let number = |at: usize| f64::from(y.values[at]);
            let (values, columns) =
                labels::from_numbers(Task::GraphRegression, &input, "label", &[y.rows, y.width], graphs, number)?;
            return Ok((values, columns, None));
        };
        let table = self.table(&input, graphs)?;
        if table.width != 1 {
            let problem = format!("{} columns, expected one class per graph", table.width);
            return Err(input.bad("columns", problem, "keep the column to predict"));
        }
        let (numbers, classes) = many::distinct(&input, &table, 0)?;
        let names = numbers.iter().map(ToString::to_string).collect();
        Ok((Labels::Single(classes.into()), numbers.len(), Some(names)))
    }

    fn splits(&self, file: &str, graphs: usize) -> Result<Vec<Split>> {
        let Some(input) = self.folder.input(file)? else { return Ok(Vec::new()) };
        let remedy = "it is a list of {\"train\": […], \"test\": […]}, or of {\"test\": […], \"model_selection\": \
                      [{\"train\": […], \"validation\": […]}]}";
        let text = input.text(self.cx.progress)?;
        let folds: Vec<Fold> = serde_json::from_reader(text).map_err(|e| input.bad("folds", e.to_string(), remedy))?;
        let stem = file.trim_start_matches("splits-").trim_end_matches(".json");
        let split = |(k, fold): (usize, Fold)| -> Result<Split> {
            let [train, valid, test] = match (fold.train, fold.model_selection) {
                (Some(train), None) => [train, fold.test, Vec::new()],
                (None, Some(inner)) => {
                    let first = inner.into_iter().next();
                    let inner =
                        first.ok_or_else(|| input.bad("folds", format!("fold {k} has no inner split"), remedy))?;
                    [inner.train, inner.validation, fold.test]
                }
                _ => return Err(input.bad("folds", format!("fold {k} has neither or both"), remedy)),
            };
            let name = format!("{stem}-{k}");
            let split = Split { name, train: train.into(), valid: valid.into(), test: test.into() };
            let wrong = |(_, problem)| input.bad(format!("fold {k}"), problem, "each graph belongs to one part");
            split.check_among(graphs, "graph").map_err(wrong)?;
            Ok(split)
        };
        folds.into_iter().enumerate().map(split).collect()
    }
}

/// A fold of a file of splits.
#[derive(Deserialize)]
struct Fold {
    test: Vec<i64>,
    train: Option<Vec<i64>>,
    model_selection: Option<Vec<Inner>>,
}

#[derive(Deserialize)]
struct Inner {
    train: Vec<i64>,
    validation: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::{assert_refused, edges, read_folder, with_other};

    type Files = Vec<(&'static str, &'static str)>;

    fn read_files(files: &[(&str, &str)]) -> Result<Imported> {
        read_folder(files, |folder, cx| read(folder, cx))
    }

    fn good() -> Files {
        vec![
            ("M_A.txt", "1, 2\n2, 1\n4, 5\n"),
            ("M_graph_indicator.txt", "1\n1\n1\n2\n2\n"),
            ("M_graph_labels.txt", "1\n-1\n"),
            ("M_node_labels.txt", "6\n6\n0\n3\n0\n"),
            ("splits-10fold.json", "[{\"test\": [1], \"train\": [0]}, {\"test\": [0], \"train\": [1]}]"),
        ]
    }

    fn with(name: &'static str, text: &'static str) -> Result<Imported> {
        read_files(&with_other(good(), name, text))
    }

    #[test]
    fn a_folder_is_read() {
        let imported = read_files(&good()).unwrap();
        let found = imported.graphs.clone().unwrap();
        assert_eq!((&found.graphs.ptr[..], found.classes), (&[0, 3, 5][..], 2));
        assert_eq!(found.graphs.labels, Some(Labels::Single(vec![1, 0].into())));
        assert_eq!(imported.class_names, Some(vec!["-1".into(), "1".into()]));
        let categories = imported.categories.clone().unwrap();
        assert_eq!((categories.sizes(), categories.get(0, 0), categories.get(3, 0)), (&[3][..], 2, 1));
        let names: Vec<&str> = imported.splits.iter().map(|s| s.name.as_str()).collect();
        assert_eq!((names, &imported.splits[1].valid[..]), (vec!["10fold-0", "10fold-1"], &[0i64][..]));
        assert!(imported.splits[1].test.is_empty());
        assert_eq!(edges(imported), [(1, 0, 0.0), (0, 1, 0.0), (3, 4, 0.0)]);
    }

    #[test]
    fn attributes_numbers_and_degrees() {
        let more = [
            ("M_edge_attributes.txt", "0.5\n0.25\n4\n"),
            ("M_node_attributes.txt", "1,2\n3,4\n5,6\n7,8\n9,0\n"),
            ("M_graph_attributes.txt", "0.5, 1\n2, 3\n"),
            ("M_edge_labels.txt", "0\n0\n1\n"),
        ];
        let without = |name: &'static str| good().into_iter().filter(move |(n, _)| *n != name);
        let files: Files = without("M_graph_labels.txt").chain(more).collect();
        let imported = read_files(&files).unwrap();
        assert_eq!(imported.features.as_ref().map(crate::dataset::Features::width), Some(2));
        let bonds = imported.edge_categories.as_ref().unwrap();
        assert_eq!((bonds.sizes(), [0, 1, 2].map(|edge| bonds.get(edge, 0))), (&[2][..], [0, 0, 1]));
        assert!(matches!(&imported.graphs.as_ref().unwrap().graphs.labels, Some(Labels::Values(y)) if y.len() == 4));
        assert_eq!(edges(imported), [(1, 0, 0.25), (0, 1, 0.5), (3, 4, 4.0)]);
        let plain = read_files(&without("M_node_labels.txt").collect::<Vec<_>>()).unwrap();
        let degrees = plain.categories.unwrap();
        assert_eq!((0..5).map(|node| degrees.get(node, 0)).collect::<Vec<_>>(), [1, 1, 0, 0, 1]);
    }

    #[test]
    fn folds_with_an_inner_split_have_three_parts() {
        let fair = "[{\"test\": [1], \"model_selection\": [{\"train\": [0], \"validation\": []}]}]";
        let split = with("splits-fair.json", fair).unwrap().splits.pop().unwrap();
        assert_eq!((split.name.as_str(), split.train.len(), split.test.len()), ("fair-0", 1, 1));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_refused(with("M_A.txt", "1, 2\n0, 1\n"), &["M_A.txt: line 2, column 1", "from 1 to 5"]);
        assert_refused(with("M_A.txt", "1, 2\n3, 4\n"), &["edge 2", "nodes 3 and 4 are of different graphs"]);
        assert_refused(with("M_graph_indicator.txt", "1\n1\n3\n"), &["line 3", "graph 3 comes after graph 1"]);
        assert_refused(with("M_graph_indicator.txt", "0\n"), &["line 1", "count from 1"]);
        assert_refused(with("M_graph_labels.txt", "1\n"), &["graph_labels", "1 lines, expected 2"]);
        assert_refused(with("M_graph_labels.txt", "1\n0.5\n"), &["line 2", "not a whole number"]);
        assert_refused(with("M_graph_labels.txt", "1,0\n1,1\n"), &["2 columns"]);
        assert_refused(with("M_node_labels.txt", "1\n"), &["node_labels", "expected 5"]);
        assert_refused(with("M_edge_labels.txt", "1\n0.5\n2\n"), &["edge_labels", "line 2", "whole number"]);
        assert_refused(with("M_edge_labels.txt", "1\n"), &["edge_labels", "expected 3"]);
        assert_refused(with("N_A.txt", "1, 2\n"), &["2 files NAME_A.txt"]);
        assert_refused(with("splits-10fold.json", "[{\"test\": [1]}]"), &["fold 0 has neither"]);
        assert_refused(with("splits-10fold.json", "[1"), &["splits-10fold.json", "folds"]);
        assert_refused(with("splits-10fold.json", "[{\"test\": [9], \"train\": []}]"), &["valid[0] = 9", "2 graphs"]);
        let files: Files = good().into_iter().filter(|(name, _)| *name != "M_graph_labels.txt").collect();
        assert_refused(read_files(&files), &["M_graph_attributes.txt", "no such file"]);
    }
}
