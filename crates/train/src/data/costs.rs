//! What a row costs in layers that go row by row, where types of nodes differ in it, so that the parts of a graph can
//! have equally much of that instead of equally many rows.
//!
//! It is counted in columns of a dense layer's input. A layer multiplies a row by about four matrices of hidden ×
//! hidden (queries, keys, values and what comes after attention), forward and back, whatever its type; a first layer
//! that takes sparse features adds a row of `hidden` numbers for each entry. So types differ by their entries alone.
//! Edges are counted by the partitioner itself.

use graphweft_graph::dataset::Features;
use graphweft_model::ModelConfig;

use super::Data;

/// Matrices of hidden × hidden that a layer multiplies a row by.
const PER_LAYER: usize = 4;
/// Types that differ less than that cost the same.
const ALIKE: f64 = 1.05;
/// All costs together stay below, which METIS can count.
const MOST: usize = 1 << 30;

/// Costs of rows.
pub(crate) struct RowCosts {
    /// Of each node, in the order of ids.
    pub(crate) of_nodes: Vec<u32>,
    /// Of a node of each type, over the mean of all nodes.
    by_type: Vec<f64>,
}

impl Data {
    /// What rows cost in `model`; nothing where all cost about the same.
    pub(crate) fn row_costs(&self, model: &ModelConfig) -> Option<RowCosts> {
        let Features::Sparse(features) = &self.features else { return None };
        let ends = self.types.ends();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let dense = (PER_LAYER * model.layers() * model.hidden()) as f64;
        let of_type = |(start, end): (u64, u64)| {
            let entries = features.indptr[end as usize] - features.indptr[start as usize];
            dense + entries as f64 / (end - start).max(1) as f64
        };
        let costs: Vec<f64> = starts.clone().zip(ends.iter().copied()).map(of_type).collect();
        let count = |k: usize| (ends[k] - k.checked_sub(1).map_or(0, |before| ends[before])) as f64;
        let there: Vec<usize> = (0..ends.len()).filter(|k| count(*k) > 0.0).collect();
        let [least, most] = [f64::min, f64::max].map(|of| there.iter().map(|k| costs[*k]).reduce(of));
        if most? <= ALIKE * least? {
            return None;
        }
        let nodes: f64 = there.iter().map(|k| count(*k)).sum();
        let mean = there.iter().map(|k| count(*k) * costs[*k]).sum::<f64>() / nodes;
        let by_type: Vec<f64> = costs.iter().map(|cost| cost / mean).collect();
        let unit = (MOST as f64 / nodes).clamp(1.0, 64.0);
        let whole = |cost: &f64| (cost * unit).round().max(1.0) as u32;
        let of_nodes =
            by_type.iter().enumerate().flat_map(|(k, cost)| std::iter::repeat_n(whole(cost), count(k) as usize));
        Some(RowCosts { of_nodes: of_nodes.collect(), by_type })
    }

    /// What the plan says of it.
    pub(crate) fn tell_row_costs(&self, model: &ModelConfig) -> String {
        let Some(costs) = self.row_costs(model) else { return String::new() };
        let names = self.types.names().iter().zip(&costs.by_type);
        let each: Vec<String> = names.map(|(name, cost)| format!("{name} {cost:.2}")).collect();
        format!("; parts share the cost of rows by type ({})", each.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use graphweft_graph::dataset::SparseFeatures;
    use graphweft_graph::{Csr, generate};

    use super::*;
    use crate::data::Types;

    fn data(entries: [usize; 2]) -> Data {
        let spec: generate::Spec = "sbm:8:2:2".parse().unwrap();
        let graph: Csr<u32> = spec.graph(0, &graphweft_base::progress::Silent).unwrap();
        let (mut indptr, mut indices) = (vec![0u64], Vec::new());
        for node in 0..8 {
            indices.extend(0..entries[node / 4] as u32);
            indptr.push(indices.len() as u64);
        }
        let features = SparseFeatures { indptr: indptr.into(), indices: indices.into(), data: None, width: 4096 };
        let types = Types::of_each(&graph, 2);
        Data { features: Features::Sparse(features), types, ..Data::unread("typed".into(), graph, 1, 2) }
    }

    #[test]
    fn types_with_more_entries_cost_more_and_alike_ones_cost_the_same() {
        let model = ModelConfig::default();
        let dense = (PER_LAYER * model.layers() * model.hidden()) as f64;
        let costs = data([0, dense as usize]).row_costs(&model).unwrap();
        // One type costs twice the other: 2/3 and 4/3 of the mean.
        assert_eq!(costs.of_nodes, [[43u32; 4], [85; 4]].concat());
        assert!(data([1, 2]).row_costs(&model).is_none());
        assert!(data([0, dense as usize]).tell_row_costs(&model).contains("0.67"));
    }
}
