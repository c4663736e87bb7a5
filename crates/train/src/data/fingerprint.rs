//! Which data a run was trained on: checkpoints keep it, so that a run does not go on with others.
//!
//! A hash of the graph, of the features, of the labels and of the split, as the run sees them (with self-loops, say, if
//! it has them), not of files: a copy elsewhere is the same data. Arrays of some megabytes are hashed whole, of longer
//! ones blocks that are spread evenly, the first and the last among them: graphs of any size cost a fraction of a
//! second, and what changes in a long array between these blocks alone is not noticed.

use bytemuck::Pod;
use graphweft_graph::dataset::{Dense, Features, Split};
use serde::{Deserialize, Serialize};

use crate::data::Data;
use crate::hash::Hasher;

/// Arrays of so many bytes are hashed whole.
const WHOLE: usize = BLOCKS * BLOCK;
/// Of longer ones so many blocks,
const BLOCKS: usize = 256;
/// each of so many bytes.
const BLOCK: usize = 16 << 10;
/// Characters of each hash that are kept.
const KEPT: usize = 32;

/// Hashes of what a run was trained on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Fingerprint {
    pub graph: String,
    pub features: String,
    pub labels: String,
    pub split: String,
}

impl Fingerprint {
    /// Of these data, learned from as `split` says.
    pub fn of(data: &Data, split: &Split) -> Self {
        let graph = hashed(|to| {
            add(to, data.graph.indptr());
            add(to, data.graph.indices());
            if let Some(edges) = &data.edges {
                add(to, &[edges.columns.dense() as u64]);
                edges.columns.categories().iter().for_each(|count| add(to, &[*count as u64]));
                add(to, &edges.rows);
            }
            data.graphs.iter().for_each(|ptr| add(to, ptr));
            if let Some(types) = &data.types.edges {
                add(to, &types.to_vec());
            }
        });
        let features = hashed(|to| match &data.features {
            Features::Dense(Dense::F32 { values, width }) => {
                add(to, &[*width as u64]);
                add(to, values);
            }
            Features::Dense(Dense::F16 { values, width }) => {
                add(to, &[*width as u64]);
                add(to, values);
            }
            Features::Sparse(m) => {
                add(to, &[m.width as u64]);
                add(to, &m.indptr);
                add(to, &m.indices);
                m.data.iter().for_each(|values| add(to, values));
            }
        });
        let labels = hashed(|to| {
            add(to, &[data.classes as u64]);
            data.labels.iter().for_each(|labels| add(to, labels.bytes()));
        });
        let split = hashed(|to| split.parts().iter().for_each(|(_, ids)| add(to, ids)));
        Self { graph, features, labels, split }
    }

    /// The first thing that is not the same.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let parts = |f: &Self| [f.graph.clone(), f.features.clone(), f.labels.clone(), f.split.clone()];
        let same = parts(self).into_iter().zip(parts(other)).map(|(a, b)| a == b);
        ["graph", "features", "labels", "split"].into_iter().zip(same).find(|(_, same)| !same).map(|(part, _)| part)
    }
}

fn hashed(fill: impl FnOnce(&mut Hasher)) -> String {
    let mut hasher = Hasher::default();
    fill(&mut hasher);
    let mut text = hasher.finish();
    text.truncate(KEPT);
    text
}

/// Adds an array: its length, and all of it or some blocks.
fn add<T: Pod>(to: &mut Hasher, array: &[T]) {
    let bytes: &[u8] = bytemuck::cast_slice(array);
    to.add(&(bytes.len() as u64).to_le_bytes());
    if bytes.len() <= WHOLE {
        return to.add(bytes);
    }
    let last = bytes.len() - BLOCK;
    for k in 0..BLOCKS {
        // In u128: the product may be larger than any array.
        let start = (last as u128 * k as u128 / (BLOCKS as u128 - 1)) as usize;
        to.add(&bytes[start..start + BLOCK]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::random_split::tests::generated;
    use crate::task::Labels;

    #[test]
    fn what_differs_is_named() {
        let data = generated("sbm:60:3:4:f=8");
        let split = data.splits[0].clone();
        let own = Fingerprint::of(&data, &split);
        assert_eq!(own, Fingerprint::of(&data.clone(), &split));
        assert_eq!(own.difference(&own), None);
        let mut other = data.clone();
        other.graph = other.graph.with_self_loops(graphweft_graph::SelfLoops::Add);
        assert_eq!(own.difference(&Fingerprint::of(&other, &split)), Some("graph"));
        let mut other = data.clone();
        let Features::Dense(Dense::F32 { values, .. }) = &mut other.features else { panic!("dense features") };
        let mut changed = values.to_vec();
        changed[479] += 1e-6;
        *values = changed.into();
        assert_eq!(own.difference(&Fingerprint::of(&other, &split)), Some("features"));
        let mut other = data.clone();
        let Some(Labels::Integers(labels)) = &mut other.labels else { panic!("classes") };
        labels[7] = (labels[7] + 1) % 3;
        assert_eq!(own.difference(&Fingerprint::of(&other, &split)), Some("labels"));
        let swapped = Split { valid: split.test.clone(), test: split.valid.clone(), ..split.clone() };
        assert_eq!(own.difference(&Fingerprint::of(&data, &swapped)), Some("split"));
        let renamed = Split { name: "mine".into(), ..split };
        assert_eq!(own, Fingerprint::of(&data, &renamed), "what it is called does not matter");
    }

    #[test]
    fn of_a_long_array_the_length_and_both_ends_count() {
        let hash = |array: &[u8]| hashed(|to| add(to, array));
        let long = vec![0u8; WHOLE + 12_345];
        let middle = (long.len() - BLOCK) * 100 / (BLOCKS - 1);
        for at in [0, BLOCK - 1, middle, long.len() - BLOCK, long.len() - 1] {
            let mut other = long.clone();
            other[at] = 1;
            assert_ne!(hash(&long), hash(&other), "{at}");
        }
        assert_ne!(hash(&long), hash(&long[1..]));
        assert_ne!(hash(&[]), hash(&[0]));
    }
}
