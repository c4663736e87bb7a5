//! Edge lists of any shape, written in any style, come back as a naive model says.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use graphweft_base::progress::Silent;
use graphweft_graph::build::{EdgeRules, Scratch};
use graphweft_graph::read::edge_list::{self, Ids, Options};
use graphweft_graph::read::{Context, Imported, Input};
use graphweft_graph::{Csr, SelfLoops};
use proptest::prelude::*;

/// (source, destination) → the weight of each parallel edge, in order.
type Model = BTreeMap<(u64, u64), Vec<f32>>;

fn model(n: u64, edges: &[(u64, u64, f32)], rules: EdgeRules) -> Model {
    let mut own = Model::new();
    for &(s, d, w) in edges.iter().filter(|(s, d, _)| rules.self_loops != SelfLoops::Remove || s != d) {
        own.entry((d, s)).or_default().push(w);
    }
    // Behind all edges of the file: of parallel edges the first one stays.
    if rules.symmetrise {
        for &(s, d, w) in edges.iter().filter(|(s, d, _)| s != d) {
            own.entry((s, d)).or_default().push(w);
        }
    }
    if rules.symmetrise || rules.merge_parallel {
        own.values_mut().for_each(|w| w.truncate(1));
    }
    if rules.self_loops == SelfLoops::Add {
        for i in 0..n {
            own.entry((i, i)).or_insert_with(|| vec![0.0]).truncate(1);
        }
    }
    own
}

fn built(imported: Imported) -> (Csr<u32>, Vec<f32>) {
    let n = imported.num_nodes;
    let weights = imported.edge_features.map(|f| f.values);
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    imported
        .edges
        .stream(n as u64, &Silent, |block| {
            indptr.extend_from_slice(&block.ends);
            indices.extend(block.sources.iter().map(|&s| s as u32));
            if let Some(w) = &weights {
                values.extend(block.origins.iter().map(|o| o.map_or(0.0, |k| w[k as usize])));
            }
            Ok(())
        })
        .unwrap();
    (Csr::new(indptr, indices, n).unwrap(), values)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_edge_list_is_read_as_written(
        pairs in prop::collection::vec((0u64..40, 0u64..40, -4i8..4), 1..3000),
        separator in prop::sample::select(vec![" ", "\t", ",", " ; ", "   "]),
        end in prop::sample::select(vec!["\n", "\r\n", "\n# comment\n", "\n\n"]),
        weighted in any::<bool>(),
        relabel in any::<bool>(),
        symmetrise in any::<bool>(),
        merge_parallel in any::<bool>(),
        self_loops in prop::sample::select(vec![SelfLoops::Keep, SelfLoops::Add, SelfLoops::Remove]),
    ) {
        let edges: Vec<(u64, u64, f32)> = pairs.iter().map(|&(s, d, w)| (s, d, f32::from(w) / 4.0)).collect();
        let mut ids: Vec<u64> = edges.iter().flat_map(|e| [e.0, e.1]).collect();
        ids.sort_unstable();
        ids.dedup();
        // Names that keep the order of the numbers, and are far apart.
        let name = |i: u64| if relabel { i as i64 * 200_000_000_000_000_000 - 4_000_000_000_000_000_000 } else { i as i64 };
        let text: String = edges
            .iter()
            .map(|&(s, d, w)| {
                let weight = if weighted { format!("{separator}{w}") } else { String::new() };
                format!("{}{separator}{}{weight}{end}", name(s), name(d))
            })
            .collect();

        // The least memory there is: 1024 edges, so that longer lists need several runs.
        let rules = EdgeRules { symmetrise, merge_parallel, self_loops, memory: 0 };
        let scratch = Scratch::new(std::env::temp_dir());
        let cx = Context { rules, scratch: &scratch, progress: &Silent };
        let input = Input::memory("list", text.into_bytes()).unwrap();
        let options = Options {
            ids: if relabel { Ids::Relabel } else { Ids::Keep },
            num_nodes: None,
            edge_features: weighted,
            places: false,
        };
        let (graph, values) = built(edge_list::read(&input, &options, &cx).unwrap());

        let number = |i: u64| if relabel { ids.binary_search(&i).unwrap() as u64 } else { i };
        let n = if relabel { ids.len() as u64 } else { ids[ids.len() - 1] + 1 };
        let expected: Vec<(u64, u64, f32)> = edges.iter().map(|&(s, d, w)| (number(s), number(d), w)).collect();
        let expected = model(n, &expected, rules);
        let mut got = Model::new();
        for i in 0..graph.num_dst() {
            for e in graph.edges_of(i) {
                let value = values.get(e).copied().unwrap_or(0.0);
                got.entry((i as u64, u64::from(graph.indices()[e]))).or_default().push(value);
            }
        }
        prop_assert_eq!(graph.num_dst() as u64, n);
        if weighted {
            prop_assert_eq!(got, expected);
        } else {
            let counts = |m: &Model| m.iter().map(|(k, v)| (*k, v.len())).collect::<Vec<_>>();
            prop_assert_eq!(counts(&got), counts(&expected));
        }
    }
}
