//! Raw folders of OGB datasets with several types of nodes and edges, such as ogbn-mag.
//!
//! ```text
//! raw/num-node-dict.csv.gz             the types of nodes, and in the next line how many there are of each
//! raw/triplet-type-list.csv.gz         a line "source,relation,destination" for each type of edges
//! raw/relations/S___R___D/edge.csv.gz  its edges, numbered inside of their types; num-edge-list.csv.gz: how many
//! raw/node-feat/T/node-feat.csv.gz     features of a type, where it has some
//! raw/node-label/T/node-label.csv.gz   labels of the one type that has some
//! split/NAME/T/{train,valid,test}.csv.gz
//! ```
//!
//! A relation keeps its name; where two have the same, the types of nodes stand around it. Each is stored in one
//! direction, unless the graph is to be symmetrised.

use graphweft_base::{Error, Result};

use super::edge_list::{Options, Scan, check_nodes};
use super::ogb::{INCOMPLETE, check_edges, need};
use super::relations::Relations;
use super::table::{self, Table};
use super::text::{Integer, Text, Wrong};
use super::{Context, Folder, Imported, Input, features, labels};
use crate::dataset::{Features, NodeType, Split, Task, Types, is_plain_name};

/// What tells such a folder.
pub(super) const TRIPLETS: &str = "raw/triplet-type-list.csv.gz";
const NODES: &str = "raw/num-node-dict.csv.gz";

/// Nodes of a type among all.
struct Place {
    name: String,
    start: u64,
    count: u64,
}

/// Edges of a type.
struct Triplet {
    source: usize,
    relation: String,
    destination: usize,
    folder: String,
}

/// Reads such a folder.
pub(super) fn read(folder: &dyn Folder, cx: &Context<'_>) -> Result<Imported> {
    let places = places(&need(folder, NODES)?, cx)?;
    let triplets = triplets(&need(folder, TRIPLETS)?, &places, cx)?;
    let nodes = places.iter().map(|place| place.count).sum::<u64>();
    let names = triplets.iter().map(|t| name_of(t, &triplets, &places)).collect();
    let mut edges = Relations::new(nodes, names, cx)?;
    let mut pushed = 0;
    for (number, triplet) in triplets.iter().enumerate() {
        pushed += relation(folder, triplet, &places, number as u16, &mut edges, cx)?;
    }
    // Before anything is made of what is said to be there.
    check_nodes(&need(folder, NODES)?, nodes, pushed)?;
    let (edges, types, edge_names) = edges.finish();
    let mut all = Types { edges: Some(types), edge_names, ..Types::default() };
    for place in &places {
        let own = folder.input(&format!("raw/node-feat/{}/node-feat.csv.gz", place.name))?;
        let read = |input: Input| {
            features::from_table(Table::read(&input, cx, f32::is_finite)?, place.count as usize, &input, cx)
        };
        let own = own.map(read).transpose()?;
        let num_features = own.as_ref().map_or(0, Features::width);
        all.nodes.push(NodeType { name: place.name.clone(), num_nodes: place.count as usize, num_features });
        all.features.push(own);
    }
    if all.features.iter().all(Option::is_none) {
        all.features.clear();
    }
    let mut imported = Imported { types: all, ..Imported::new(nodes as usize, edges) };
    let mut labelled = Vec::new();
    for place in &places {
        let input = folder.input(&format!("raw/node-label/{}/node-label.csv.gz", place.name))?;
        labelled.extend(input.map(|input| (place, input)));
    }
    if let [_, (_, input), ..] = &labelled[..] {
        let problem = "nodes of another type have labels too";
        return Err(input.bad("label", problem, "remove the labels of all types but one"));
    }
    for (place, input) in labelled {
        let y = Table::read(&input, cx, |x| !x.is_infinite())?;
        let (shape, n) = ([y.rows, y.width], place.count as usize);
        let number = |at: usize| y.values[at].into();
        let (found, classes) = labels::from_numbers(Task::NodeClassification, &input, "label", &shape, n, number)?;
        imported.labels = Some((labels::among(found, place.start as usize, nodes as usize, classes), classes));
        imported.splits = splits(folder, place, nodes as usize, cx)?;
    }
    Ok(imported)
}

/// The types of nodes, in the order of the file.
fn places(input: &Input, cx: &Context<'_>) -> Result<Vec<Place>> {
    let mut text = Text::open(input, cx)?;
    let names = words(&text.line()?.unwrap_or_default());
    let counts = words(&text.line()?.unwrap_or_default());
    if names.len() != counts.len() {
        let problem = format!("{} names and {} counts", names.len(), counts.len());
        return Err(text.bad_line(&Wrong::new(0, problem, INCOMPLETE)));
    }
    let (mut places, mut start): (Vec<Place>, u64) = (Vec::new(), 0);
    for (column, (name, count)) in names.into_iter().zip(counts).enumerate() {
        let wrong = |problem: String| text.bad_line(&Wrong::new(column + 1, problem, INCOMPLETE));
        if !is_plain_name(&name) || places.iter().any(|other| other.name == name) {
            return Err(wrong(format!("{name:?} is no name of a type, or there is another of that name")));
        }
        let number = count.parse().ok().filter(|&count: &u64| count < 1 << 40);
        let count = number.ok_or_else(|| wrong(format!("{count:?} is no number of nodes")))?;
        places.push(Place { name, start, count });
        start += count;
    }
    Ok(places)
}

fn triplets(input: &Input, places: &[Place], cx: &Context<'_>) -> Result<Vec<Triplet>> {
    let mut text = Text::open(input, cx)?;
    let mut all: Vec<Triplet> = Vec::new();
    while let Some(line) = text.line()? {
        let words = words(&line);
        let place = |name: &String| places.iter().position(|place| place.name == *name);
        let found = match &words[..] {
            [empty] if empty.is_empty() => continue,
            [source, relation, destination] if is_plain_name(relation) => {
                place(source).zip(place(destination)).map(|(source, destination)| Triplet {
                    source,
                    relation: relation.clone(),
                    destination,
                    folder: format!("raw/relations/{}", words.join("___")),
                })
            }
            _ => None,
        };
        let known = |t: &Triplet| !all.iter().any(|other| other.folder == t.folder);
        let Some(triplet) = found.filter(known) else {
            let problem = format!("{:?} is no relation between two of the types of {NODES}, once", words.join(","));
            return Err(text.bad_line(&Wrong::new(0, problem, INCOMPLETE)));
        };
        all.push(triplet);
    }
    Ok(all)
}

fn words(line: &[u8]) -> Vec<String> {
    let word = |field: &[u8]| String::from_utf8_lossy(field.trim_ascii()).into_owned();
    line.split(|&b| b == b',').map(word).collect()
}

fn name_of(triplet: &Triplet, all: &[Triplet], places: &[Place]) -> String {
    let alike = all.iter().filter(|other| other.relation == triplet.relation).count();
    let (source, destination) = (&places[triplet.source].name, &places[triplet.destination].name);
    if alike == 1 { triplet.relation.clone() } else { format!("{source}-{}-{destination}", triplet.relation) }
}

/// Pushes the edges of a type; gives how many there are.
fn relation(
    folder: &dyn Folder,
    triplet: &Triplet,
    places: &[Place],
    number: u16,
    edges: &mut Relations,
    cx: &Context<'_>,
) -> Result<u64> {
    let (source, destination) = (&places[triplet.source], &places[triplet.destination]);
    let input = need(folder, &format!("{}/edge.csv.gz", triplet.folder))?;
    let most = source.count.max(destination.count);
    let refused = |at: Integer, count: u64| {
        let sign = if at.negative { "−" } else { "" };
        (format!("node {sign}{}: there are {count} of its type", at.magnitude), INCOMPLETE.to_string())
    };
    let id = |at: Integer| match at {
        Integer { negative: false, magnitude } if magnitude < most => Ok(magnitude),
        at => Err(refused(at, most)),
    };
    let mut pushed = 0;
    Scan::begin(&input, &Options::default(), cx)?.run(id, |mut piece| {
        // Where the types differ in size, the ends are looked at once more.
        let outside = piece.edges.iter().find(|e| e[0] >= source.count || e[1] >= destination.count);
        if let Some(&[from, to]) = outside {
            let (end, place) = if from >= source.count { (from, source) } else { (to, destination) };
            let problem = format!("node {end}: there are {} of type {}", place.count, place.name);
            return Err(input.bad("edges", problem, INCOMPLETE));
        }
        piece.edges.iter_mut().for_each(|e| *e = [e[0] + source.start, e[1] + destination.start]);
        pushed += piece.edges.len() as u64;
        edges.push(number, &piece.edges)
    })?;
    if let Some(counts) = folder.input(&format!("{}/num-edge-list.csv.gz", triplet.folder))? {
        check_edges(&input, pushed, table::column(&counts, cx)?.into_iter().fold(0, u64::saturating_add))?;
    }
    Ok(pushed)
}

/// The splits of the nodes of a type.
fn splits(folder: &dyn Folder, place: &Place, nodes: usize, cx: &Context<'_>) -> Result<Vec<Split>> {
    let mut splits = Vec::new();
    for name in folder.folders("split")? {
        let file = |part: &str| format!("split/{name}/{}/{part}.csv.gz", place.name);
        let part = |part: &str| -> Result<Vec<i64>> {
            let input = need(folder, &file(part))?;
            let ids = table::column(&input, cx)?;
            if let Some(id) = ids.iter().find(|&&id| id >= place.count) {
                let problem = format!("node {id}: there are {} of type {}", place.count, place.name);
                return Err(input.bad("nodes", problem, INCOMPLETE));
            }
            Ok(ids.into_iter().map(|id| (place.start + id) as i64).collect())
        };
        let (train, valid, test) = (part("train")?, part("valid")?, part("test")?);
        let split = Split { name: name.clone(), train: train.into(), valid: valid.into(), test: test.into() };
        split.check(nodes).map_err(|(at, problem)| {
            let path = folder.path().join(file(["train", "valid", "test"][at]));
            Error::bad(path, "nodes", problem.to_string(), INCOMPLETE)
        })?;
        splits.push(split);
    }
    Ok(splits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Labels;
    use crate::read::ogb;
    use crate::read::testing::{assert_refused, edges, read_folder, with_other};

    fn files() -> Vec<(&'static str, &'static str)> {
        vec![
            (NODES, "author,paper\n2,3\n"),
            (TRIPLETS, "author,writes,paper\npaper,cites,paper\n"),
            ("raw/relations/author___writes___paper/edge.csv.gz", "0,2\n1,0\n"),
            ("raw/relations/author___writes___paper/num-edge-list.csv.gz", "2\n"),
            ("raw/relations/paper___cites___paper/edge.csv.gz", "2,1\n"),
            ("raw/node-feat/paper/node-feat.csv.gz", "1,2\n3,4\n5,6\n"),
            ("raw/node-label/paper/node-label.csv.gz", "1\n0\nnan\n"),
            ("split/time/paper/train.csv.gz", "0\n"),
            ("split/time/paper/valid.csv.gz", "1\n"),
            ("split/time/paper/test.csv.gz", "2\n"),
        ]
    }

    fn refused(name: &'static str, text: &'static str, words: &[&str]) {
        assert_refused(read_folder(&with_other(files(), name, text), |folder, cx| ogb::read(folder, cx)), words);
    }

    #[test]
    fn types_follow_one_another() {
        let imported = read_folder(&files(), |folder, cx| ogb::read(folder, cx)).unwrap();
        let types: Vec<_> =
            imported.types.nodes.iter().map(|t| (t.name.as_str(), t.num_nodes, t.num_features)).collect();
        assert_eq!(types, [("author", 2, 0), ("paper", 3, 2)]);
        assert_eq!(imported.types.edge_names, ["writes", "cites"]);
        assert_eq!(imported.types.edges.as_ref().unwrap().to_vec(), [0, 0, 1]);
        assert_eq!(imported.labels, Some((Labels::Single(vec![-1, -1, 1, 0, -1].into()), 2)));
        assert_eq!((imported.splits[0].name.as_str(), &imported.splits[0].test[..]), ("time", &[4][..]));
        assert_eq!(edges(imported), [(1, 2, 0.0), (4, 3, 0.0), (0, 4, 0.0)]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        refused(NODES, "author,paper\n2\n", &["num-node-dict", "2 names and 1 counts"]);
        refused(NODES, "author,author\n2,3\n", &["num-node-dict", "another of that name"]);
        refused(NODES, "author,paper\n2,x\n", &["\"x\" is no number of nodes"]);
        refused(TRIPLETS, "author,writes,book\n", &["triplet-type-list", "line 1", "author,writes,book"]);
        refused("raw/relations/paper___cites___paper/edge.csv.gz", "3,0\n", &["line 1, column 1", "there are 3"]);
        refused("raw/relations/author___writes___paper/edge.csv.gz", "2,0\n1,1\n", &["there are 2 of type author"]);
        refused(
            "raw/relations/author___writes___paper/edge.csv.gz",
            "0,0\n",
            &["1 edges, num-edge-list.csv.gz says 2"],
        );
        refused("raw/node-feat/paper/node-feat.csv.gz", "1,2\n", &["1 lines of features for 3 nodes"]);
        refused("raw/node-label/author/node-label.csv.gz", "1\n0\n", &["another type have labels"]);
        refused("split/time/paper/test.csv.gz", "3\n", &["there are 3 of type paper"]);
        refused("split/time/paper/test.csv.gz", "1\n", &["already in valid"]);
    }
}
