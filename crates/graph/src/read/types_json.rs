//! Folders of typed graphs that a `types.json` describes.
//!
//! ```text
//! types.json                     target, classes, nodes: [{name, count, features}],
//!                                relations: [{name, source, destination, count}]
//! edge_<relation>.npy            [2, count]: sources, then destinations, numbered inside their types
//! feat_<type>.npy                dense features; or feat_<type>_indptr, _indices and, unless all are 1, _data
//! label.npy                      one label, or a row of them, for each node of the target type
//! split/<name>/{train,valid,test}.npy   nodes of the target type
//! ```
//!
//! Types keep their order: the first one's nodes come first. Only nodes of the target type have labels. Each relation
//! is stored as it is listed, in one direction, unless the graph is to be symmetrised.

use std::io::BufReader;

use graphweft_base::{Error, Problem, Result};
use serde::Deserialize;

use super::edge_list::check_nodes;
use super::features::{self, Compressed};
use super::npz::Array;
use super::relations::Relations;
use super::{Context, Folder, Imported, Input, labels};
use crate::dataset::{Features, Labels, NodeType, Split, Task, Types, is_plain_name};

const FILE: &str = "types.json";
/// Nodes or edges of all types together; no real graph comes near.
const MOST: u64 = 1 << 48;
/// More than any dataset has.
const MOST_CLASSES: usize = 1 << 24;

#[derive(Deserialize)]
struct Description {
    target: String,
    #[serde(default)]
    classes: usize,
    nodes: Vec<NodesOf>,
    relations: Vec<Relation>,
}

#[derive(Deserialize)]
struct NodesOf {
    name: String,
    count: u64,
    #[serde(default)]
    features: usize,
}

#[derive(Deserialize)]
struct Relation {
    name: String,
    source: String,
    destination: String,
    count: u64,
}

/// Nodes of a type among all.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    count: u64,
}

/// Reads such a folder.
///
/// # Errors
/// [`Error::BadInput`] naming the file, the array and the element.
pub fn read(folder: &dyn Folder, cx: &Context<'_>) -> Result<Imported> {
    let input = need(folder, FILE)?;
    let reader = BufReader::new(input.text(cx.progress)?);
    let told: Description = serde_json::from_reader(reader).map_err(|e| {
        let remedy = "it needs target, nodes (name, count, features) and relations (name, source, destination, count)";
        input.bad("types", Problem::from(e.to_string()), remedy)
    })?;
    let nodes = told.check(&input)?;
    let mut edges = Relations::new(nodes, told.relations.iter().map(|r| r.name.clone()).collect(), cx)?;
    for (number, relation) in told.relations.iter().enumerate() {
        read_relation(folder, &told, relation, number as u16, &mut edges, cx)?;
    }
    let (edges, types, edge_names) = edges.finish();
    let mut all = Types { edges: Some(types), edge_names, ..Types::default() };
    for t in &told.nodes {
        let features = features_of(folder, t, cx)?;
        let num_features = features.as_ref().map_or(0, Features::width);
        all.nodes.push(NodeType { name: t.name.clone(), num_nodes: t.count as usize, num_features });
        all.features.push(features);
    }
    if all.features.iter().all(Option::is_none) {
        all.features.clear();
    }
    let target = told.place(&input, "target", &told.target)?;
    if target.count == 0 {
        let problem = format!("there are no nodes of type {:?}, which have the labels", told.target);
        return Err(input.bad("target", problem, "name a type that has nodes"));
    }
    let labels = labels_of(folder, &told, target, nodes as usize, cx)?;
    let splits = splits_of(folder, target, nodes as usize, cx)?;
    Ok(Imported { types: all, labels, splits, ..Imported::new(nodes as usize, edges) })
}

fn need(folder: &dyn Folder, name: &str) -> Result<Input> {
    folder.input(name)?.ok_or_else(|| {
        let problem = "the file is missing";
        Error::bad(folder.path().join(name), "file", problem, "check that the folder is complete")
    })
}

fn array(folder: &dyn Folder, name: &str, cx: &Context<'_>) -> Result<Option<Array>> {
    let Some(input) = folder.input(&format!("{name}.npy"))? else { return Ok(None) };
    let name = name.rsplit('/').next().unwrap_or(name);
    Array::read(&input, name, &mut input.open()?, cx).map(Some)
}

impl Description {
    /// Names and counts that make sense; how many nodes there are.
    fn check(&self, input: &Input) -> Result<u64> {
        for name in self.nodes.iter().map(|t| &t.name).chain(self.relations.iter().map(|r| &r.name)) {
            if !is_plain_name(name) {
                let problem = format!("{name:?} is no name of a type, which is a part of the names of files");
                return Err(input.bad("name", problem, "use up to 64 of the letters a–z, digits, and _ - ."));
            }
        }
        for (field, mut names) in [
            ("nodes", self.nodes.iter().map(|t| t.name.as_str()).collect::<Vec<_>>()),
            ("relations", self.relations.iter().map(|r| r.name.as_str()).collect()),
        ] {
            names.sort_unstable();
            if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                let problem = format!("{:?} is there twice", twice[0]);
                return Err(input.bad(field, problem, "give each type a name of its own"));
            }
        }
        let counts = self.nodes.iter().map(|t| t.count).chain(self.relations.iter().map(|r| r.count));
        let total = |sum: u64, count: u64| sum.checked_add(count).filter(|sum| *sum < MOST);
        if counts.clone().try_fold(0, total).is_none() {
            return Err(input.bad("count", "the counts are beyond any graph", "correct them"));
        }
        let nodes = self.nodes.iter().map(|t| t.count).sum();
        if nodes == 0 {
            return Err(input.bad("nodes", "the graph has no nodes", "check that the file is complete"));
        }
        check_nodes(input, nodes, self.relations.iter().map(|r| r.count).sum())?;
        Ok(nodes)
    }

    fn place(&self, input: &Input, field: &str, name: &str) -> Result<Place> {
        let mut start = 0;
        for t in &self.nodes {
            if t.name == name {
                return Ok(Place { start, count: t.count });
            }
            start += t.count;
        }
        Err(input.bad(field, format!("there are no nodes of type {name:?}"), "name one of the types in nodes"))
    }
}

fn read_relation(
    folder: &dyn Folder,
    told: &Description,
    relation: &Relation,
    number: u16,
    edges: &mut Relations,
    cx: &Context<'_>,
) -> Result<()> {
    let (input, name) = (need(folder, FILE)?, format!("edge_{}", relation.name));
    let source = told.place(&input, "source", &relation.source)?;
    let destination = told.place(&input, "destination", &relation.destination)?;
    let file = need(folder, &format!("{name}.npy"))?;
    let ends = Array::read(&file, &name, &mut file.open()?, cx)?;
    let expected = format!("[2, {}] (its count in {FILE})", relation.count);
    let [two, count] = ends.dimensions(&expected)?;
    if (two, count as u64) != (2, relation.count) {
        return Err(ends.wrong_shape(&expected));
    }
    const PIECE: usize = 1 << 16;
    let mut piece = Vec::with_capacity(count.min(PIECE));
    for start in (0..count).step_by(PIECE) {
        piece.clear();
        for k in start..count.min(start + PIECE) {
            let (from, to) = (ends.below(k, source.count)?, ends.below(count + k, destination.count)?);
            piece.push([source.start + from, destination.start + to]);
        }
        edges.push(number, &piece)?;
    }
    Ok(())
}

/// The features of a type, with as many columns as it is said to have.
fn features_of(folder: &dyn Folder, t: &NodesOf, cx: &Context<'_>) -> Result<Option<Features>> {
    let (stem, n) = (format!("feat_{}", t.name), t.count as usize);
    let features = match (array(folder, &stem, cx)?, array(folder, &format!("{stem}_indptr"), cx)?) {
        (Some(dense), None) => {
            let given = (dense.input().clone(), dense.name.clone());
            (features::from_array(dense, n, cx)?, given)
        }
        (None, Some(indptr)) => {
            let name = format!("{stem}_indices");
            let file = need(folder, &format!("{name}.npy"))?;
            let indices = Array::read(&file, &name, &mut file.open()?, cx)?;
            let given = (indices.input().clone(), indices.name.clone());
            let data = array(folder, &format!("{stem}_data"), cx)?;
            let matrix = Compressed { indptr, indices, data, shape: [n, t.features] };
            (matrix.into_features(n, cx)?, given)
        }
        (Some(both), Some(_)) => {
            return Err(both.bad("there are dense features, and sparse ones as well"));
        }
        (None, None) if t.features > 0 => {
            let problem = format!("type {} is said to have {} features, but this file is missing", t.name, t.features);
            let remedy = format!("add it, or {stem}_indptr.npy and {stem}_indices.npy, or set its features to 0");
            return Err(Error::bad(folder.path().join(format!("{stem}.npy")), "file", problem, remedy));
        }
        (None, None) => return Ok(None),
    };
    let (features, (input, name)) = features;
    if features.width() != t.features {
        let problem = format!("{} columns, {FILE} says {}", features.width(), t.features);
        return Err(input.bad(name, problem, "correct one of the two"));
    }
    Ok(Some(features))
}

/// Labels of all nodes: those of the target type from the file, none for others.
fn labels_of(
    folder: &dyn Folder,
    told: &Description,
    target: Place,
    nodes: usize,
    cx: &Context<'_>,
) -> Result<Option<(Labels, usize)>> {
    let Some(y) = array(folder, "label", cx)? else { return Ok(None) };
    let (input, own) = (y.input().clone(), target.count as usize);
    let (found, classes) =
        labels::from_numbers(Task::NodeClassification, &input, "label", &y.shape, own, |at| y.number(at))?;
    if told.classes != 0 && classes > told.classes {
        let problem = format!("there are {classes} classes, {FILE} says {}", told.classes);
        return Err(input.bad("label", problem, "correct one of the two"));
    }
    let classes =
        if matches!(found, Labels::Single(_)) { classes.max(told.classes.min(MOST_CLASSES)) } else { classes };
    Ok(Some((labels::among(found, target.start as usize, nodes, classes), classes)))
}

fn splits_of(folder: &dyn Folder, target: Place, nodes: usize, cx: &Context<'_>) -> Result<Vec<Split>> {
    let mut splits = Vec::new();
    for name in folder.folders("split")? {
        let part = |part: &str| -> Result<(Array, Vec<i64>)> {
            let path = format!("split/{name}/{part}.npy");
            let file = need(folder, &path)?;
            let ids = Array::read(&file, part, &mut file.open()?, cx)?;
            ids.dimensions::<1>("one dimension")?;
            let all = ids.all_below(target.count)?;
            Ok((ids, all.into_iter().map(|id| (target.start + id) as i64).collect()))
        };
        let parts = [part("train")?, part("valid")?, part("test")?];
        let [train, valid, test] = [0, 1, 2].map(|k| parts[k].1.clone().into());
        let split = Split { name: name.clone(), train, valid, test };
        split.check(nodes).map_err(|(part, problem)| parts[part].0.bad(problem))?;
        splits.push(split);
    }
    Ok(splits)
}

#[cfg(test)]
mod tests;
