//! A graph as tables.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use graphweft_base::{Error, Result};

use crate::Dataset;
use crate::dataset::{Categories, Codes, Dense, Features, Labels, Split};
use crate::read::NodeIds;
use crate::read::tables::{Names, Table as Schema};
use crate::with_csr;

/// A column, value by value.
pub(super) struct Column<'a> {
    pub(super) name: String,
    pub(super) values: Values<'a>,
}

type Of<'a, T> = Box<dyn Fn(usize) -> T + 'a>;

/// Adds the numbers of a row.
type Fill<'a> = Box<dyn Fn(usize, &mut Vec<f32>) + 'a>;

/// What a column holds, by row.
pub(super) enum Values<'a> {
    Text(Of<'a, Cow<'a, str>>),
    Integers(Of<'a, i64>),
    /// `None` where a value is not known.
    Numbers(Of<'a, Option<f32>>),
    /// Rows of so many numbers.
    Lists(usize, Fill<'a>),
}

/// A table to be written.
pub(super) struct Table<'a> {
    /// The name of its file, but for the ending.
    pub(super) name: String,
    pub(super) rows: usize,
    pub(super) columns: Vec<Column<'a>>,
    pub(super) schema: Schema,
    pub(super) of_edges: bool,
}

/// Nodes of a type: all, where there are no types.
struct Type {
    name: Option<String>,
    nodes: Range<usize>,
}

/// What the tables of a dataset are made of.
pub(super) struct Tables<'a> {
    data: &'a Dataset,
    types: Vec<Type>,
    ids: Ids,
    classes: Option<Vec<String>>,
    /// The part of the split that each node is in: 0 for none.
    parts: Vec<u8>,
}

/// What nodes are called.
enum Ids {
    /// Their numbers inside of their types.
    Rows,
    Numbers(NodeIds),
    Names(Vec<String>),
}

impl<'a> Tables<'a> {
    pub(super) fn of(data: &'a Dataset, split: Option<&Split>) -> Result<Self> {
        let n = data.meta().num_nodes;
        let ranges = data.meta().type_ranges();
        let named = data.meta().node_types.iter().zip(ranges);
        let mut types: Vec<Type> = named.map(|(t, nodes)| Type { name: Some(t.name.clone()), nodes }).collect();
        if types.is_empty() {
            types.push(Type { name: None, nodes: 0..n });
        }
        let numbered = if data.is_stored() { NodeIds::of(data.dir(), n)? } else { None };
        let ids = match (numbered, lines(data, "nodes.txt", n)?) {
            (Some(ids), _) => Ids::Numbers(ids),
            (None, Some(names)) => Ids::Names(names),
            (None, None) => Ids::Rows,
        };
        let mut parts = vec![0u8; if split.is_some() { n } else { 0 }];
        for (part, (_, ids)) in (1..).zip(split.iter().flat_map(|split| split.parts())) {
            ids.iter().for_each(|&id| parts[id as usize] = part);
        }
        let classes = lines(data, "classes.txt", data.meta().num_classes)?;
        data.checked_labels()?;
        Ok(Self { data, types, ids, classes, parts })
    }

    /// The ids of the nodes that `node` gives for each row, of a type that begins at `start`.
    fn ids_by<'s>(&'s self, name: &str, node: impl Fn(usize) -> usize + 's, start: usize) -> Column<'s> {
        let values = match &self.ids {
            Ids::Rows => Values::Integers(Box::new(move |row| (node(row) - start) as i64)),
            Ids::Numbers(NodeIds::Signed(ids)) => Values::Integers(Box::new(move |row| ids[node(row)])),
            Ids::Numbers(NodeIds::Unsigned(ids)) => {
                Values::Text(Box::new(move |row| ids[node(row)].to_string().into()))
            }
            Ids::Names(names) => Values::Text(Box::new(move |row| names[node(row)].as_str().into())),
        };
        Column { name: name.into(), values }
    }

    /// The tables of nodes; one without rows has none.
    pub(super) fn nodes(&self) -> Vec<Table<'_>> {
        let features = |at: usize| match self.data.features_by_type() {
            [] => self.data.features(),
            types => types[at].as_ref(),
        };
        let table = |(at, of): (usize, &'_ Type)| {
            let own = !self.data.features_by_type().is_empty();
            let start = of.nodes.start;
            let mut schema = Schema { of_type: of.name.clone(), id: one("id"), ..Schema::default() };
            let mut columns = Vec::new();
            columns.push(self.ids_by("id", move |row| start + row, start));
            if let Some(features) = features(at) {
                let first = if own { 0 } else { start };
                let fill = move |row: usize, out: &mut Vec<f32>| row_of(features, first + row, out);
                columns
                    .push(Column { name: "features".into(), values: Values::Lists(features.width(), Box::new(fill)) });
                schema.features = one("features");
            }
            if let Some(categories) = self.data.categories() {
                schema.categories = Names(categories_of(categories, start, &mut columns));
            }
            if let Some(labels) = self.data.labels().filter(|labels| self.has_labels(labels, of)) {
                schema.label = Names(self.labels(labels, start, &mut columns));
            }
            if self.parts[of.nodes.clone().start.min(self.parts.len())..].iter().take(of.nodes.len()).any(|p| *p > 0) {
                let word =
                    move |row: usize| ["", "train", "valid", "test"][usize::from(self.parts[start + row])].into();
                columns.push(Column { name: "split".into(), values: Values::Text(Box::new(word)) });
                schema.split = one("split");
            }
            let name = of.name.as_ref().map_or("nodes".to_string(), |name| format!("nodes-{name}"));
            Table { name, rows: of.nodes.len(), columns, schema, of_edges: false }
        };
        self.types.iter().enumerate().filter(|(_, of)| !of.nodes.is_empty()).map(table).collect()
    }

    /// Whether some node of a type has a label: of several types, one has them.
    fn has_labels(&self, labels: &Labels, of: &Type) -> bool {
        let c = self.data.meta().num_classes.max(1);
        let places = of.nodes.start * c..of.nodes.end * c;
        self.types.len() == 1
            || match labels {
                Labels::Single(y) => y[of.nodes.clone()].iter().any(|&class| class >= 0),
                Labels::MultiU8(y) => !y[places].is_empty(),
                Labels::MultiF32(y) | Labels::Values(y) => y[places].iter().any(|x| !x.is_nan()),
            }
    }

    fn labels<'s>(&'s self, labels: &'s Labels, start: usize, columns: &mut Vec<Column<'s>>) -> Vec<String> {
        let c = self.data.meta().num_classes.max(1);
        if let Labels::Single(y) = labels {
            let word = move |row: usize| match (y[start + row], &self.classes) {
                (..0, _) => "".into(),
                (class, Some(words)) => words[class as usize].as_str().into(),
                (class, None) => class.to_string().into(),
            };
            columns.push(Column { name: "label".into(), values: Values::Text(Box::new(word)) });
            return vec!["label".into()];
        }
        let name = |k: usize| if c == 1 { "label".to_string() } else { format!("label{k}") };
        for k in 0..c {
            let number = move |row: usize| {
                let at = (start + row) * c + k;
                match labels {
                    Labels::MultiU8(y) => Some(y[at].into()),
                    Labels::MultiF32(y) | Labels::Values(y) => Some(y[at]).filter(|x| !x.is_nan()),
                    Labels::Single(_) => None,
                }
            };
            columns.push(Column { name: name(k), values: Values::Numbers(Box::new(number)) });
        }
        (0..c).map(name).collect()
    }

    /// The tables of edges: one for each type, and for each two types of nodes that its edges connect.
    pub(super) fn edges(&self) -> Result<Vec<Table<'_>>> {
        let (graph, types) = (self.data.graph()?, self.data.edge_types()?);
        let names = self.data.edge_type_names()?;
        let indptr = with_csr!(graph, g => &g.indptr()[..]);
        let source = move |e: usize| with_csr!(graph, g => Into::<u64>::into(g.indices()[e]) as usize);
        let destination = move |e: usize| indptr.partition_point(|&end| end <= e as u64) - 1;
        let of_node = |node: usize| self.types.iter().position(|t| t.nodes.contains(&node)).unwrap_or(0);
        let plain = types.is_none() && self.types.len() == 1;
        let mut groups: Vec<Group> = Vec::new();
        if !plain {
            let mut places: BTreeMap<[usize; 3], Vec<u64>> = BTreeMap::new();
            for row in 0..graph.num_nodes() {
                for e in indptr[row] as usize..indptr[row + 1] as usize {
                    let key = [types.map_or(0, |t| t.get(e).into()), of_node(source(e)), of_node(row)];
                    places.entry(key).or_default().push(e as u64);
                }
            }
            groups.extend(places.into_iter().map(|([of_type, source, destination], edges)| Group {
                of_type,
                source,
                destination,
                edges: Some(edges),
            }));
        } else {
            groups.push(Group { of_type: 0, source: 0, destination: 0, edges: None });
        }
        let table = |(number, group): (usize, Group)| {
            let rows = group.edges.as_ref().map_or(graph.num_edges(), Vec::len);
            let edges = std::rc::Rc::new(group.edges);
            let at = move |edges: &Option<Vec<u64>>, row: usize| edges.as_ref().map_or(row, |all| all[row] as usize);
            let mut schema = Schema { source: one("source"), destination: one("target"), ..Schema::default() };
            if types.is_some() {
                schema.of_type = names.get(group.of_type).cloned();
            }
            if self.types.len() > 1 {
                schema.source_type = self.types[group.source].name.clone();
                schema.destination_type = self.types[group.destination].name.clone();
            }
            let (of, to) = (std::rc::Rc::clone(&edges), std::rc::Rc::clone(&edges));
            let mut columns = vec![
                self.ids_by("source", move |row| source(at(&of, row)), self.types[group.source].nodes.start),
                self.ids_by("target", move |row| destination(at(&to, row)), self.types[group.destination].nodes.start),
            ];
            if let Some(features) = self.data.edge_features() {
                let edges = std::rc::Rc::clone(&edges);
                let fill = move |row: usize, out: &mut Vec<f32>| dense_row(features, at(&edges, row), out);
                columns
                    .push(Column { name: "features".into(), values: Values::Lists(features.width(), Box::new(fill)) });
                schema.features = one("features");
            }
            if let Some(codes) = self.data.edge_categories() {
                schema.categories = Names((0..codes.width()).map(|k| format!("category{k}")).collect());
                for k in 0..codes.width() {
                    let edges = std::rc::Rc::clone(&edges);
                    let code = move |row: usize| code(codes, at(&edges, row), k);
                    columns.push(Column { name: format!("category{k}"), values: Values::Integers(Box::new(code)) });
                }
            }
            let name = if plain { "edges".to_string() } else { format!("edges-{number}") };
            Table { name, rows, columns, schema, of_edges: true }
        };
        Ok(groups.into_iter().enumerate().map(table).collect())
    }
}

/// Edges of a type between nodes of two types.
struct Group {
    of_type: usize,
    source: usize,
    destination: usize,
    /// Their numbers; `None` for all.
    edges: Option<Vec<u64>>,
}

fn one(name: &str) -> Names {
    Names(vec![name.into()])
}

fn code(codes: &Codes, row: usize, column: usize) -> i64 {
    codes.get(row * codes.width() + column).into()
}

fn categories_of<'a>(categories: &'a Categories, start: usize, columns: &mut Vec<Column<'a>>) -> Vec<String> {
    for k in 0..categories.sizes().len() {
        let of = move |row: usize| categories.get(start + row, k).into();
        columns.push(Column { name: format!("category{k}"), values: Values::Integers(Box::new(of)) });
    }
    (0..categories.sizes().len()).map(|k| format!("category{k}")).collect()
}

/// A row of dense numbers.
pub(super) fn dense_row(matrix: &Dense, row: usize, out: &mut Vec<f32>) {
    match matrix {
        Dense::F32 { values, width } => out.extend_from_slice(&values[row * width..(row + 1) * width]),
        Dense::F16 { values, width } => out.extend(values[row * width..(row + 1) * width].iter().map(|x| x.to_f32())),
    }
}

/// A row of features, zeros and all.
pub(super) fn row_of(features: &Features, row: usize, out: &mut Vec<f32>) {
    match features {
        Features::Dense(matrix) => dense_row(matrix, row, out),
        Features::Sparse(m) => {
            let first = out.len();
            out.resize(first + m.width, 0.0);
            for at in m.indptr[row] as usize..m.indptr[row + 1] as usize {
                out[first + m.indices[at] as usize] = m.data.as_ref().map_or(1.0, |data| data[at]);
            }
        }
    }
}

/// The lines of a text of the folder, which are to be `count`; `None` if it is not there.
fn lines(data: &Dataset, name: &str, count: usize) -> Result<Option<Vec<String>>> {
    let path = data.dir().join(name);
    if !data.is_stored() || !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path).map_err(|e| Error::unreadable(&path, "file", &e))?;
    let lines: Vec<String> = text.lines().map(str::to_string).collect();
    if lines.len() != count {
        let problem = format!("{} lines, expected {count}", lines.len());
        return Err(Error::bad(&path, "lines", problem, "write a line for each, or remove the file"));
    }
    Ok(Some(lines))
}
