//! Types of nodes and edges: as features that every model takes, and as a graph for models that tell edges apart. For a
//! model that takes features of edges, the type is one more category of an edge, before others.
//!
//! Where types of nodes have features of their own, one sparse matrix has all of them: the columns of each type side by
//! side, then a column of ones for each such type, then a column for each node that has no features. So the first
//! linear layer of any model is a linear layer for each type, with a bias of its own, and a learnt row for each node
//! without features. Where ranks share a whole graph, each has the rows of its nodes, with their gradients and what the
//! optimizer remembers of them ([sharded](crate::epochs::sharded)); otherwise every rank has all.

use std::rc::Rc;

use graphweft_graph::dataset::{Codes, Dense, Features, SparseFeatures};
use graphweft_graph::{Csr, Dataset, SelfLoops, TypedCsr};
use graphweft_model::{ModelConfig, Prepared, TypeCounts};
use graphweft_tensor::Device;
use graphweft_tensor::ops::grouped::RowTypes;

use super::edges::{EdgeFeatures, Sources};
use super::normalise::normalised;
use super::rows::Which;
use super::{Data, learned, narrow};
use crate::config::{DataConfig, Normalise};
use crate::error::Result;

/// What types a dataset has.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// Of edges.
    pub(crate) edges: Option<EdgeTypes>,
    /// The parts of features that are made of several.
    parts: Option<Vec<Part>>,
    /// Where the nodes of each type end, in the order of ids; nothing where they have none.
    ends: Vec<u64>,
    /// What they are called.
    names: Vec<String>,
    /// Columns of features, after all others, that are each of one node.
    of_nodes: usize,
}

/// Types of edges.
#[derive(Clone, Debug)]
pub(crate) struct EdgeTypes {
    /// The graph of the dataset, whose order the types have.
    given: Csr<u32>,
    types: Codes,
    /// Features, in the same order.
    features: EdgeFeatures,
    /// How many there are.
    count: usize,
    /// What is done to the graph: each edge gets a reverse, of a type of its own, or not,
    reverses: Reverses,
    /// and self-loops are added or not.
    loops: SelfLoops,
}

/// Whether edges got reverses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reverses {
    None,
    Added,
}

/// Nodes of one type.
#[derive(Clone, Debug)]
struct Part {
    nodes: usize,
    features: Option<Features>,
}

impl Types {
    /// Those of a dataset, and its features, if there are any or if types make some.
    pub(super) fn of(dataset: &Dataset, config: &DataConfig) -> Result<(Self, Option<Features>)> {
        let ends = dataset.meta().type_ranges().into_iter().map(|range| range.end as u64).collect();
        let names = dataset.meta().node_types.iter().map(|of| of.name.clone()).collect();
        let of_nodes = learned::columns_of_nodes(dataset, config);
        let mut types = Self { edges: EdgeTypes::of(dataset)?, parts: None, ends, names, of_nodes };
        if let Some(features) = learned::features_of(dataset, config) {
            return Ok((types, Some(features)));
        }
        let meta = dataset.meta();
        let by_type = dataset.features_by_type();
        let of_type = |(k, t): (usize, &graphweft_graph::dataset::NodeType)| Part {
            nodes: t.num_nodes,
            features: by_type.get(k).cloned().flatten(),
        };
        types.parts = match meta.node_types.is_empty() {
            false => Some(meta.node_types.iter().enumerate().map(of_type).collect()),
            true if types.edges.is_some() => Some(vec![Part { nodes: meta.num_nodes, features: None }]),
            true => None,
        };
        let of_nodes = |part: &Part| if part.features.is_none() { part.nodes } else { 0 };
        types.of_nodes = types.parts.iter().flatten().map(of_nodes).sum();
        let features = types.parts.as_ref().map(|parts| Features::Sparse(together(parts)));
        Ok((types, features))
    }

    /// Those of a graph without any, whose features end with so many columns that are each of one node.
    pub(super) fn none(of_nodes: usize) -> Self {
        Self { of_nodes, ..Self::default() }
    }

    /// Where the nodes of each type end.
    pub(super) fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// What types of nodes are called.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Columns of features, after all others, that are each of one node.
    pub(crate) fn columns_of_nodes(&self) -> usize {
        self.of_nodes
    }

    /// Changes the graph, and `features`, as the configuration says.
    pub(super) fn prepare(&mut self, config: &DataConfig, reverses: Reverses, features: &mut Features) {
        if let Some(edges) = &mut self.edges {
            (edges.reverses, edges.loops) = (reverses, config.self_loops.into());
        }
        if config.normalise == Normalise::Row {
            *features = match &mut self.parts {
                None => normalised(features),
                Some(parts) => {
                    parts.iter_mut().for_each(|part| part.features = part.features.as_ref().map(normalised));
                    Features::Sparse(together(parts))
                }
            };
        }
    }
}

#[cfg(test)]
impl Types {
    /// As many types of nodes, in ranges, and of edges, in turn, on a graph that stays as it is.
    pub(crate) fn of_each(graph: &Csr<u32>, count: usize) -> Self {
        let ends = (1..=count).map(|k| (k * graph.num_dst() / count) as u64).collect();
        let types = Codes::of((0..graph.num_edges()).map(|edge| (edge % count) as u16).collect());
        let (reverses, loops) = (Reverses::None, SelfLoops::Keep);
        let names = (0..count).map(|k| format!("type {k}")).collect();
        let edges =
            EdgeTypes { given: graph.clone(), types, features: EdgeFeatures::default(), count, reverses, loops };
        Self { edges: Some(edges), parts: None, ends, names, of_nodes: 0 }
    }
}

impl Data {
    /// How many types `model` tells apart, on its `graph`.
    pub(crate) fn type_counts(&self, model: &ModelConfig, graph: &Prepared) -> TypeCounts {
        let nodes = if model.reads_node_types() { self.types.ends.len().max(1) } else { 1 };
        TypeCounts { nodes, relations: graph.num_relations }
    }

    /// The type of each of `count` rows, which are the nodes with these original ids, or all: where `model` tells apart
    /// several.
    pub(crate) fn row_types(
        &self,
        device: &Device,
        model: &ModelConfig,
        ids: Which<'_>,
        count: usize,
    ) -> Result<Option<Rc<RowTypes>>> {
        let ends = &self.types.ends;
        if !model.reads_node_types() || ends.len() < 2 {
            return Ok(None);
        }
        let id = |row: usize| ids.map_or(row as u64, |ids| ids[row]);
        let types: Vec<u32> = (0..count).map(|row| ends.partition_point(|end| *end <= id(row)) as u32).collect();
        Ok(Some(Rc::new(RowTypes::new(device, &types, ends.len())?)))
    }

    /// The same of the nodes with these original ids.
    pub(crate) fn types_of(&self, device: &Device, model: &ModelConfig, ids: &[u64]) -> Result<Option<Rc<RowTypes>>> {
        self.row_types(device, model, Some(ids), ids.len())
    }

    /// The types of edges that `model` tells apart. Batches of graphs have none yet.
    pub(crate) fn types_for(&self, model: &ModelConfig) -> Option<&EdgeTypes> {
        let reads = model.reads_types() || model.uses_edge_features();
        self.types.edges.as_ref().filter(|_| reads && self.graphs.is_none())
    }
}

/// Whether a model can be told of nodes: features, or types that stand for some.
pub(super) fn has_features(dataset: &Dataset) -> bool {
    let meta = dataset.meta();
    dataset.features().is_some()
        || dataset.categories().is_some()
        || !meta.node_types.is_empty()
        || matches!(dataset.edge_types(), Ok(Some(_)))
}

impl EdgeTypes {
    /// Types, twice as many with reverses and one more for self-loops, have room in two bytes.
    const MOST: usize = (u16::MAX as usize - 1) / 2;

    fn of(dataset: &Dataset) -> Result<Option<Self>> {
        let Some(types) = dataset.edge_types()? else { return Ok(None) };
        let count = dataset.edge_type_names()?.len();
        if count > Self::MOST {
            let what = format!("{} has {count} types of edges", dataset.meta().name);
            let remedy = format!("models take up to {}", Self::MOST);
            return Err(graphweft_base::Error::request(what, remedy).into());
        }
        let (given, types, features) =
            (narrow(dataset)?, types.clone(), EdgeFeatures::of(dataset)?.unwrap_or_default());
        Ok(Some(Self { given, types, features, count, reverses: Reverses::None, loops: SelfLoops::Keep }))
    }

    /// The graph that `model` works on. The reverse of a type is a type of its own, and so are self-loops that were
    /// added.
    pub(super) fn prepared(&self, model: &ModelConfig, seed: u64) -> Result<Prepared> {
        let (mut graph, mut count) = (TypedCsr::new(&self.given, &self.types.to_vec()), self.count);
        if self.reverses == Reverses::Added {
            graph = graph.with_reverses(count as u16);
            count *= 2;
        }
        if self.loops != SelfLoops::Keep {
            graph = graph.with_self_loops(self.loops, count as u16);
            count += usize::from(self.loops == SelfLoops::Add);
        }
        if model.reads_types() {
            return Ok(model.prepare_typed(&graph, count, seed)?);
        }
        let found = self.features.with_types(self, &graph, count)?;
        Ok(model.prepare(graph.graph, seed)?.with_features(found.columns, found.rows)?)
    }

    /// Whether self-loops were added.
    pub(super) fn adds(&self) -> bool {
        self.loops == SelfLoops::Add
    }

    /// Where the edge j → i of type `of` stands in the dataset, or that whose reverse it is; of several, the one after
    /// `k` others. `None` if it was added.
    pub(super) fn origin(&self, i: usize, [j, of]: [usize; 2], k: usize) -> Option<usize> {
        let ([to, from], of) = match of.checked_sub(self.count) {
            None => ([i, j], of),
            Some(reversed) if self.reverses == Reverses::Added && reversed < self.count => ([j, i], reversed),
            Some(_) => return None,
        };
        let parallel = Sources { of: &self.given }.all(to, from as u32);
        parallel.filter(|edge| usize::from(self.types.get(*edge)) == of).nth(k)
    }

    /// Numbers that change where the types do.
    pub(crate) fn to_vec(&self) -> Vec<u16> {
        self.types.to_vec()
    }
}

/// One matrix of all types' features, as the top of this file says.
fn together(parts: &[Part]) -> SparseFeatures {
    let with = parts.iter().filter(|part| part.features.is_some()).count();
    let own: usize = parts.iter().filter_map(|part| part.features.as_ref()).map(Features::width).sum();
    // One type's bias is that of the layer.
    let ones = if with > 1 { with } else { 0 };
    let (mut indptr, mut indices, mut data) = (vec![0u64], Vec::new(), Vec::new());
    let (mut first, mut one, mut learnt) = (0, own, own + ones);
    for part in parts {
        let Some(features) = &part.features else {
            for _ in 0..part.nodes {
                indices.push(learnt as u32);
                data.push(1.0f32);
                learnt += 1;
                indptr.push(indices.len() as u64);
            }
            continue;
        };
        for row in 0..part.nodes {
            push_row(features, row, |column, value| {
                indices.push((first + column) as u32);
                data.push(value);
            });
            if ones > 0 {
                indices.push(one as u32);
                data.push(1.0);
            }
            indptr.push(indices.len() as u64);
        }
        first += features.width();
        one += usize::from(ones > 0);
    }
    SparseFeatures { indptr: indptr.into(), indices: indices.into(), data: Some(data.into()), width: learnt }
}

/// The entries of a row that are not zero, by column.
fn push_row(features: &Features, row: usize, mut push: impl FnMut(usize, f32)) {
    match features {
        Features::Dense(m) => {
            let width = m.width();
            for column in 0..width {
                let value = match m {
                    Dense::F32 { values, .. } => values[row * width + column],
                    Dense::F16 { values, .. } => values[row * width + column].to_f32(),
                };
                if value != 0.0 {
                    push(column, value);
                }
            }
        }
        Features::Sparse(m) => {
            for at in m.indptr[row] as usize..m.indptr[row + 1] as usize {
                push(m.indices[at] as usize, m.data.as_ref().map_or(1.0, |values| values[at]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graphweft_tensor::ops::edge_values::EdgeColumns;

    use super::*;

    /// 1 → 0 of types 1 and 0, 2 → 0 of type 0, each with its number and a category.
    fn typed(reverses: Reverses, loops: SelfLoops) -> EdgeTypes {
        let columns = EdgeColumns::new(1, &[2]).unwrap();
        let rows = Arc::from([0.5, 1.0, 1.5, 0.0, 2.5, 1.0]);
        let given = Csr::new(vec![0u64, 3, 3, 3], vec![1u32, 1, 2], 3).unwrap();
        let types = Codes::of(vec![1, 0, 0]);
        EdgeTypes { given, types, features: EdgeFeatures { columns, rows }, count: 2, reverses, loops }
    }

    fn gt() -> ModelConfig {
        ModelConfig::default()
    }

    #[test]
    fn a_type_is_a_category_before_others_and_features_stay_with_their_edges() {
        let found = typed(Reverses::None, SelfLoops::Keep).prepared(&gt(), 0).unwrap();
        assert_eq!(found.csr.indices()[..], [1, 1, 2]);
        assert_eq!((found.columns.dense(), found.columns.categories()), (1, &[2, 2][..]));
        // Parallel edges are in the order of their types.
        assert_eq!(found.edge_rows(), [1.5, 0.0, 0.0, 0.5, 1.0, 1.0, 2.5, 0.0, 1.0]);
    }

    #[test]
    fn reverses_and_added_loops_have_types_of_their_own() {
        let found = typed(Reverses::Added, SelfLoops::Add).prepared(&gt(), 0).unwrap();
        assert_eq!(found.columns.categories(), [5, 3]);
        let row = |i: usize| -> Vec<(u32, &[f32])> {
            found.csr.edges_of(i).map(|e| (found.csr.indices()[e], &found.edge_rows()[3 * e..][..3])).collect()
        };
        let looped = &[0.0, 4.0, 2.0][..];
        assert_eq!(row(0), [(0, looped), (1, &[1.5, 0.0, 0.0][..]), (1, &[0.5, 1.0, 1.0]), (2, &[2.5, 0.0, 1.0])]);
        assert_eq!(row(1), [(0, &[1.5, 2.0, 0.0][..]), (0, &[0.5, 3.0, 1.0]), (1, looped)]);
        assert_eq!(row(2), [(0, &[2.5, 2.0, 1.0][..]), (2, looped)]);
    }

    #[test]
    fn types_stand_side_by_side_and_nodes_without_features_have_columns_of_their_own() {
        let dense = Dense::F32 { values: vec![0.5, 0.0, -1.0, 2.0].into(), width: 2 };
        let sparse = SparseFeatures { indptr: vec![0, 1].into(), indices: vec![2].into(), data: None, width: 3 };
        let parts = [
            Part { nodes: 2, features: Some(Features::Dense(dense)) },
            Part { nodes: 2, features: None },
            Part { nodes: 1, features: Some(Features::Sparse(sparse)) },
        ];
        let m = together(&parts);
        assert_eq!(m.width, 2 + 3 + 2 + 2);
        let row = |k: usize| -> Vec<(u32, f32)> {
            let at = m.indptr[k] as usize..m.indptr[k + 1] as usize;
            at.map(|e| (m.indices[e], m.data.as_ref().unwrap()[e])).collect()
        };
        assert_eq!(row(0), [(0, 0.5), (5, 1.0)]);
        assert_eq!(row(1), [(0, -1.0), (1, 2.0), (5, 1.0)]);
        assert_eq!((row(2), row(3)), (vec![(7, 1.0)], vec![(8, 1.0)]));
        assert_eq!(row(4), [(4, 1.0), (6, 1.0)]);
        let one = together(&parts[..2]);
        assert_eq!((one.width, one.indptr.to_vec()), (2 + 2, vec![0, 1, 3, 4, 5]), "one type needs no ones");
    }
}
