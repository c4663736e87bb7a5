//! A dataset that was not read from a folder, checked as one that was; and a dataset as a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_base::{Error, Result};

use super::{
    Categories, Dataset, DatasetWriter, Dense, Features, Graphs, Labels, LinkSplit, Meta, Split, Task, Types, validate,
};
use crate::csr::AnyCsr;
use crate::npy::write_npy;
use crate::with_csr;

const REMEDY: &str = "give a row for every node";

/// What a dataset is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What people call it.
    pub name: String,
    /// The graph.
    pub graph: AnyCsr,
    /// Node features, if there are any.
    pub features: Option<Features>,
    /// Node labels, if there are any.
    pub labels: Option<Labels>,
    /// Classes, or labels per node; 0 where there are no labels.
    pub classes: usize,
    /// All splits.
    pub splits: Vec<Split>,
    /// Types of nodes and edges, if there are any.
    pub types: Types,
    /// Category columns of nodes, if there are any.
    pub categories: Option<Categories>,
    /// Where one graph ends and the next begins, with their labels, if there are many; `labels` is then empty.
    pub graphs: Option<Graphs>,
    /// Features of edges in the order of the graph's indices, if there are any.
    pub edge_features: Option<Dense>,
    /// All splits of links, where links are predicted; there are then no other splits and no labels.
    pub links: Vec<LinkSplit>,
}

impl Dataset {
    /// A dataset of arrays that are in memory, with every check that a folder goes through.
    ///
    /// # Errors
    /// [`Error::BadInput`] that names the array, as the file that would hold it, and the position.
    pub fn in_memory(parts: Parts) -> Result<Self> {
        parts.check_shapes()?;
        let Parts { name, graph, features, labels, classes, splits, types, .. } = parts;
        let Parts { categories, graphs, edge_features, links, .. } = parts;
        let meta = Meta {
            name,
            num_nodes: graph.num_nodes(),
            num_edges: graph.num_edges(),
            num_features: features.as_ref().map_or(0, Features::width),
            num_classes: classes,
            symmetric: with_csr!(&graph, g => g.is_symmetric()),
            task: if links.is_empty() { task(labels.as_ref(), graphs.as_ref()) } else { Task::Link },
            node_categories: categories.as_ref().map_or_else(Vec::new, |c| c.sizes().to_vec()),
            edge_types: types.edge_names,
            node_types: types.nodes,
        };
        meta.check_types(Path::new("meta.toml"))?;
        let data = Self {
            dir: PathBuf::new(),
            meta,
            graph,
            looked_at: Arc::default(),
            labels_looked_at: Arc::default(),
            features,
            features_by_type: types.features,
            labels,
            edge_features,
            edge_types: types.edges,
            edge_categories: None,
            categories,
            graphs,
            splits,
            links,
        };
        validate::validate(&data)?;
        data.looked_at.get_or_init(|| ());
        data.labels_looked_at.get_or_init(|| ());
        Ok(data)
    }

    /// Whether it lies in a folder.
    pub fn is_stored(&self) -> bool {
        !self.dir.as_os_str().is_empty()
    }

    /// Writes it as a folder.
    ///
    /// # Errors
    /// [`Error::Request`] if `dir` exists; [`Error::Write`] if it cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let out = DatasetWriter::create(dir)?;
        out.graph(self.graph()?)?;
        self.features.as_ref().map_or(Ok(()), |features| out.features(features))?;
        self.checked_labels()?.map_or(Ok(()), |labels| out.labels(labels, self.meta.num_classes))?;
        self.categories.as_ref().map_or(Ok(()), |categories| out.categories(categories))?;
        self.graphs.as_ref().map_or(Ok(()), |graphs| out.graphs(graphs, self.meta.num_classes))?;
        match &self.edge_features {
            Some(Dense::F32 { values, width }) => write_npy(out.path("edge_feat.npy"), &[*width], values)?,
            Some(Dense::F16 { values, width }) => write_npy(out.path("edge_feat.npy"), &[*width], values)?,
            None => {}
        }
        for (t, features) in self.meta.node_types.iter().zip(&self.features_by_type) {
            features.as_ref().map_or(Ok(()), |features| out.features_of_type(&t.name, features))?;
        }
        self.edge_types.as_ref().map_or(Ok(()), |types| out.edge_types(types))?;
        self.edge_categories.as_ref().map_or(Ok(()), |categories| out.edge_categories(categories))?;
        self.splits.iter().try_for_each(|split| out.split(split))?;
        self.links.iter().try_for_each(|links| out.links(links))?;
        out.finish(&self.meta)
    }
}

/// What data with these labels are for.
fn task(labels: Option<&Labels>, graphs: Option<&Graphs>) -> Task {
    match graphs {
        None => labels.map_or_else(Task::default, Labels::task),
        Some(graphs) if graphs.labels.as_ref().is_some_and(Labels::are_numbers) => Task::GraphRegression,
        Some(_) => Task::GraphClassification,
    }
}

/// How many labels there are.
fn count(labels: &Labels) -> usize {
    match labels {
        Labels::Single(labels) => labels.len(),
        Labels::MultiU8(labels) => labels.len(),
        Labels::MultiF32(labels) | Labels::Values(labels) => labels.len(),
    }
}

impl Parts {
    /// A graph of which nothing else is known yet.
    pub fn new(name: impl Into<String>, graph: AnyCsr) -> Self {
        Self {
            name: name.into(),
            graph,
            features: None,
            labels: None,
            classes: 0,
            splits: Vec::new(),
            types: Types::default(),
            categories: None,
            graphs: None,
            edge_features: None,
            links: Vec::new(),
        }
    }

    /// What a file's header says, and arrays in memory do not.
    fn check_shapes(&self) -> Result<()> {
        let nodes = self.graph.num_nodes();
        self.features.as_ref().map_or(Ok(()), |features| check_rows("feat", features, nodes))?;
        self.check_types()?;
        if let Some(c) = self.categories.as_ref().filter(|c| c.len() != nodes * c.sizes().len()) {
            let problem = format!("there are {} rows of categories, expected {nodes}", c.rows());
            return Err(Error::bad("cat.npy", "cat", problem, REMEDY));
        }
        let edges = self.graph.num_edges();
        if let Some(m) = self.edge_features.as_ref().filter(|m| m.width() == 0 || m.len() != edges * m.width()) {
            let problem = format!("{} numbers are not {edges} rows of {}", m.len(), m.width());
            return Err(Error::bad("edge_feat.npy", "edge_feat", problem, "give a row for every edge"));
        }
        self.check_links()?;
        let columns = |labels: &Labels| if let Labels::Single(_) = labels { 1 } else { self.classes };
        if let Some(graphs) = &self.graphs {
            let (of, found) = (graphs.count(), graphs.labels.as_ref());
            if self.labels.is_some() {
                let problem = "there are labels of nodes, but what is predicted is of whole graphs";
                return Err(Error::bad("label.npy", "label", problem, "give labels of graphs alone"));
            }
            if let Some(labels) = found.filter(|labels| count(labels) != of * columns(labels)) {
                let problem = format!("there are {} labels for {of} graphs", count(labels));
                return Err(Error::bad("graph_label.npy", "graph_label", problem, "give a row for every graph"));
            }
        }
        if let Some(labels) = self.labels.as_ref().filter(|labels| count(labels) != nodes * columns(labels)) {
            let (found, expected) = (count(labels), nodes * columns(labels));
            let problem = format!("there are {found} labels, expected {expected} for {nodes} nodes");
            return Err(Error::bad("label.npy", "label", problem, REMEDY));
        }
        Ok(())
    }

    fn check_types(&self) -> Result<()> {
        let Types { edges, nodes, features, .. } = &self.types;
        let count = self.graph.num_edges();
        if let Some(types) = edges.as_ref().filter(|types| types.width() != 1 || types.len() != count) {
            let problem = format!("there are {} types, expected {count} (edges)", types.len());
            return Err(Error::bad("edge_type.npy", "edge_type", problem, "give a type for every edge"));
        }
        if !features.is_empty() && (features.len() != nodes.len() || self.features.is_some()) {
            let problem = "features are given by type, but not for the types that nodes have, or for all nodes as well";
            return Err(Error::bad("meta.toml", "node_types", problem, "give one entry for each type, or feat alone"));
        }
        for (t, features) in nodes.iter().zip(features) {
            let stem = format!("feat-{}", t.name);
            if let Some(features) = features {
                check_rows(&stem, features, t.num_nodes)?;
            }
            let columns = features.as_ref().map_or(0, Features::width);
            if columns != t.num_features {
                let problem = format!("there are {columns} columns, the type is said to have {}", t.num_features);
                return Err(Error::bad(format!("{stem}.npy"), stem, problem, "correct the type, or its features"));
            }
        }
        Ok(())
    }

    /// Where links are predicted, nothing else is, and pairs have two ends.
    fn check_links(&self) -> Result<()> {
        if self.links.is_empty() {
            return Ok(());
        }
        if self.labels.is_some() || self.graphs.is_some() || !self.splits.is_empty() {
            let problem = "there are splits of links, and labels or splits of nodes or graphs as well";
            return Err(Error::bad("meta.toml", "task", problem, "give pairs of nodes, or what is predicted of each"));
        }
        let odd = |links: &LinkSplit| {
            links.parts().find(|(_, all)| !all.len().is_multiple_of(links.width)).map(|(part, _)| part)
        };
        self.links.iter().find_map(|links| Some((links, odd(links)?))).map_or(Ok(()), |(links, part)| {
            let file = Path::new("split").join(&links.name).join(format!("{part}.npy"));
            let (problem, remedy) = match links.width {
                2 => ("the last pair has one end", "give two nodes for each link"),
                _ => ("the last triple is not whole", "give head, relation and tail for each link"),
            };
            Err(Error::bad(file, part, problem, remedy))
        })
    }
}

/// As many rows as nodes.
fn check_rows(stem: &str, features: &Features, nodes: usize) -> Result<()> {
    let bad = |part: &str, problem: &str, remedy: &str| {
        Err(Error::bad(format!("{stem}{part}.npy"), format!("{stem}{part}"), problem, remedy))
    };
    match features {
        Features::Dense(m) if m.width() == 0 || m.len() != nodes * m.width() => {
            bad("", &format!("{} numbers are not {nodes} rows of {}", m.len(), m.width()), REMEDY)
        }
        Features::Sparse(m) if m.indptr.len() != nodes + 1 => {
            let problem = format!("there are {} offsets, expected {} (nodes + 1)", m.indptr.len(), nodes + 1);
            bad("_indptr", &problem, REMEDY)
        }
        Features::Sparse(m) if m.data.as_ref().is_some_and(|data| data.len() != m.indices.len()) => {
            bad("_data", "there is not a value for every index", "give as many as there are indices")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;

    fn parts() -> Parts {
        let graph = Csr::from_edges(3, &[0, 1, 1, 2], &[1, 0, 2, 1]).unwrap().into();
        let features = Features::Dense(Dense::F32 { values: vec![0.5; 6].into(), width: 2 });
        let split = Split { name: "own".into(), train: vec![0].into(), valid: vec![1].into(), test: vec![2].into() };
        Parts {
            features: Some(features),
            labels: Some(Labels::Single(vec![0, 1, -1].into())),
            classes: 2,
            splits: vec![split],
            ..Parts::new("three", graph)
        }
    }

    /// Pairs to learn from, with features of the edges that messages go along.
    fn links() -> Parts {
        let split = LinkSplit {
            width: 2,
            name: "own".into(),
            train: vec![0, 1].into(),
            valid: vec![1, 2].into(),
            test: vec![2, 0].into(),
            valid_neg: None,
            test_neg: Some(vec![0, 0].into()),
        };
        let edge_features = Some(Dense::F32 { values: (0..8u8).map(f32::from).collect::<Vec<_>>().into(), width: 2 });
        Parts { labels: None, classes: 0, splits: Vec::new(), links: vec![split], edge_features, ..parts() }
    }

    /// Two graphs, of two nodes and of one.
    fn two_graphs() -> Parts {
        let labels = Some(Labels::Single(vec![1, -1].into()));
        let split = Split { name: "own".into(), train: vec![0].into(), valid: vec![1].into(), test: vec![].into() };
        Parts {
            graph: Csr::from_edges(3, &[0, 1], &[1, 0]).unwrap().into(),
            labels: None,
            splits: vec![split],
            categories: Some(Categories::new(vec![0, 3, 1, 0, 0, 300], 2, &[]).unwrap()),
            graphs: Some(Graphs { ptr: vec![0, 2, 3].into(), labels }),
            ..parts()
        }
    }

    #[test]
    fn what_was_saved_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let data = Dataset::in_memory(parts()).unwrap();
        assert!(data.meta().symmetric && !data.is_stored());
        let folder = dir.path().join("three");
        data.save(&folder).unwrap();
        let again = Dataset::open(&folder).unwrap();
        assert_eq!((again.meta(), again.graph().unwrap()), (data.meta(), data.graph().unwrap()));
        assert_eq!((again.features(), again.labels()), (data.features(), data.labels()));
        assert_eq!(again.splits(), data.splits());
        assert!(data.save(&folder).unwrap_err().to_string().contains("exists already"));
    }

    /// Where graphs begin, and the bits of their labels: NaN is not equal to itself.
    fn stored(data: &Dataset) -> (Vec<u64>, Vec<u64>) {
        let graphs = data.graphs().unwrap();
        let bits = match graphs.labels.as_ref().unwrap() {
            Labels::Single(labels) => labels.iter().map(|label| *label as u64).collect(),
            Labels::Values(labels) => labels.iter().map(|label| label.to_bits().into()).collect(),
            other => panic!("{other:?}"),
        };
        (graphs.ptr.to_vec(), bits)
    }

    #[test]
    fn many_graphs_with_categories_are_saved_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        for values in [None, Some(Labels::Values(vec![0.5, f32::NAN, -1.0, 2.0].into()))] {
            let mut parts = two_graphs();
            if let Some(values) = &values {
                parts.graphs.as_mut().unwrap().labels = Some(values.clone());
            }
            let data = Dataset::in_memory(parts).unwrap();
            let folder = dir.path().join(if values.is_some() { "numbers" } else { "classes" });
            data.save(&folder).unwrap();
            for again in [Dataset::open(&folder).unwrap(), Dataset::open(&folder).unwrap()] {
                assert_eq!(again.meta(), data.meta());
                assert_eq!(again.meta().task.is_regression(), values.is_some());
                assert_eq!(stored(&again), stored(&data));
                assert_eq!((again.categories(), again.split_among()), (data.categories(), ("graph", 2)));
                let categories = again.categories().unwrap();
                assert_eq!((categories.sizes(), categories.get(2, 1)), (&[2, 301][..], 300));
                assert_eq!(again.graphs().unwrap().nodes(1), 2..3);
            }
        }
    }

    #[test]
    fn links_and_features_of_edges_are_saved_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let data = Dataset::in_memory(links()).unwrap();
        assert_eq!(data.meta().task, Task::Link);
        let folder = dir.path().join("links");
        data.save(&folder).unwrap();
        let again = Dataset::open(&folder).unwrap();
        assert_eq!((again.meta(), again.links()), (data.meta(), data.links()));
        assert_eq!(again.edge_features(), data.edge_features());
        let message = |change: fn(&mut Parts)| {
            let mut parts = links();
            change(&mut parts);
            Dataset::in_memory(parts).unwrap_err().to_string()
        };
        let short: fn(&mut Parts) = |p| p.edge_features = Some(Dense::F32 { values: vec![0.0; 6].into(), width: 2 });
        let odd: fn(&mut Parts) =
            |p| p.edge_features = Some(Dense::F32 { values: vec![f32::INFINITY; 4].into(), width: 1 });
        type Case = (fn(&mut Parts), &'static str);
        let cases: [Case; 6] = [
            (short, "6 numbers are not 4 rows of 2"),
            (odd, "edge_feat[0, 0]"),
            (|p| p.links[0].test = vec![0, 3].into(), "test[0, 1] = 3"),
            (|p| p.links[0].test_neg = Some(vec![0].into()), "test_neg: the last pair has one end"),
            (|p| p.labels = parts().labels, "splits of links, and labels"),
            (|p| p.splits = parts().splits, "splits of links, and labels"),
        ];
        for (change, part) in cases {
            let message = message(change);
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn what_is_wrong_with_graphs_is_named() {
        let message = |change: fn(&mut Parts)| {
            let mut parts = two_graphs();
            change(&mut parts);
            Dataset::in_memory(parts).unwrap_err().to_string()
        };
        fn ptr(p: &mut Parts, ptr: Vec<u64>) {
            p.graphs.as_mut().unwrap().ptr = ptr.into();
        }
        let across: fn(&mut Parts) = |p| p.graph = Csr::from_edges(3, &[0, 2], &[2, 0]).unwrap().into();
        type Case = (fn(&mut Parts), &'static str);
        let cases: [Case; 11] = [
            (|p| ptr(p, vec![0, 1, 3]), "node 0 is of another graph"),
            (across, "indices[0] = 2"),
            (|p| ptr(p, vec![1, 2, 3]), "graph_ptr[0] = 1"),
            (|p| ptr(p, vec![0, 2, 4]), "graph_ptr ends with 4"),
            (|p| ptr(p, vec![0, 0, 3]), "graph 0 has no node"),
            (|p| ptr(p, vec![0, 3]), "2 labels for 1 graphs"),
            (|p| p.splits[0].test = vec![2].into(), "test[0] = 2: there are only 2 graphs"),
            (|p| p.splits[0].test = vec![1].into(), "the graph is already in valid"),
            (|p| p.labels = Some(Labels::Single(vec![0, 0, 0].into())), "labels of nodes"),
            (|p| p.graphs.as_mut().unwrap().labels = Some(Labels::Single(vec![0, 7].into())), "graph_label[1] = 7"),
            (|p| p.categories = Some(Categories::new(vec![0, 1], 1, &[]).unwrap()), "2 rows of categories"),
        ];
        for (change, part) in cases {
            let message = message(change);
            assert!(message.contains(part), "{message}");
        }
        let ends: fn(&mut Parts) = |p| {
            p.graphs = Some(Graphs { ptr: vec![].into(), labels: None });
            p.splits = Vec::new();
        };
        assert!(message(ends).contains("no entry"));
        assert!(Categories::new(vec![0, 5], 1, &[5]).unwrap_err().to_string().contains("cat[1, 0] = 5"));
        assert!(Categories::new(vec![0, 5], 1, &[6, 7]).unwrap_err().to_string().contains("2 numbers"));
    }

    #[test]
    fn arrays_are_checked_as_files_are() {
        let message = |change: fn(&mut Parts)| {
            let mut parts = parts();
            change(&mut parts);
            Dataset::in_memory(parts).unwrap_err().to_string()
        };
        assert!(message(|p| p.labels = Some(Labels::Single(vec![0, 1].into()))).contains("2 labels, expected 3"));
        assert!(message(|p| p.labels = Some(Labels::Single(vec![0, 1, 7].into()))).contains("label"));
        assert!(message(|p| p.splits[0].test = vec![9].into()).contains("test[0] = 9"));
        let odd = |p: &mut Parts| {
            p.features = Some(Features::Dense(Dense::F32 { values: vec![f32::NAN; 6].into(), width: 2 }));
        };
        assert!(message(odd).contains("feat[0, 0]"));
        let short =
            |p: &mut Parts| p.features = Some(Features::Dense(Dense::F32 { values: vec![1.0; 5].into(), width: 2 }));
        assert!(message(short).contains("5 numbers are not 3 rows of 2"));
    }
}
