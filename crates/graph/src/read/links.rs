//! `.npz` files of links between the nodes of a dataset folder that is there: pairs to learn from, to choose by and to
//! report on.
//!
//! `train`, `valid` and `test` [links, 2] are pairs of nodes, from 0, that are linked; `valid_neg` and `test_neg`
//! [pairs, 2], where they are given, are pairs that are not. The graph that messages go along has the links of training
//! and no others: the command line adds the reverse of each. Nodes have the features, categories and ids of the
//! folder; its edges, labels and splits are left behind.

use graphweft_base::Result;

use super::npz::{Array, Npz};
use super::{Context, Imported, Input, NodeIds};
use crate::buf::Buf;
use crate::build::{EdgeSorter, Expected};
use crate::dataset::{Categories, Features, LinkSplit};

/// What the only split is called.
const NAME: &str = "links";
const PARTS: [&str; 3] = ["train", "valid", "test"];
const NEGATIVES: [&str; 2] = ["valid_neg", "test_neg"];

/// The nodes that pairs name.
pub struct Nodes {
    /// How many.
    pub count: usize,
    /// Their features, if there are any.
    pub features: Option<Features>,
    /// Their category columns, if there are any.
    pub categories: Option<Categories>,
    /// Their original ids, where they were renumbered.
    pub ids: Option<NodeIds>,
}

/// Reads such a file.
///
/// # Errors
/// [`Error::BadInput`](graphweft_base::Error::BadInput) naming the array and the element.
pub fn read(input: &Input, nodes: Nodes, cx: &Context<'_>) -> Result<Imported> {
    let mut npz = Npz::open(input, cx)?;
    let known = |name: &str| PARTS.contains(&name) || NEGATIVES.contains(&name);
    if let Some(name) = npz.names().iter().find(|name| !known(name)) {
        let problem = format!("files of links have no such array; the archive has: {}", npz.listed());
        let remedy = format!("they have: {}, and may have {}", PARTS.join(", "), NEGATIVES.join(", "));
        return Err(input.bad(name, problem, remedy));
    }
    let n = nodes.count;
    let mut edges = EdgeSorter::new(Expected::bare(n as u64), cx.rules, cx.scratch)?;
    let [train, valid, test] = PARTS.map(|name| pairs(&npz.need(name)?, n));
    let train_edges = npz.need("train")?;
    train_edges.push_edges(train_edges.len() / 2, n as u64, |k| [2 * k, 2 * k + 1], &mut edges)?;
    let [valid_neg, test_neg] = NEGATIVES.map(|name| npz.get(name)?.map(|array| pairs(&array, n)).transpose());
    let links = LinkSplit {
        name: NAME.into(),
        width: 2,
        train: train?,
        valid: valid?,
        test: test?,
        valid_neg: valid_neg?,
        test_neg: test_neg?,
    };
    let Nodes { features, categories, ids, .. } = nodes;
    Ok(Imported { features, categories, node_ids: ids, links: Some(links), ..Imported::new(n, edges) })
}

/// All pairs of an array.
pub(super) fn pairs(array: &Array, nodes: usize) -> Result<Buf<i64>> {
    let [_, 2] = array.dimensions("[links, 2]")? else {
        return Err(array.wrong_shape("[links, 2]"));
    };
    let ids = (0..array.len()).map(|at| array.below(at, nodes as u64).map(|id| id as i64));
    Ok(ids.collect::<Result<Vec<_>>>()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::{KEEP, array, assert_refused, edges, npz, replaced, with_context};

    fn good() -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("train", array(&[2, 2], &[0i32, 1, 2, 1])),
            ("valid", array(&[1, 2], &[0i64, 2])),
            ("test", array(&[1, 2], &[2u8, 3])),
            ("valid_neg", array(&[2, 2], &[0i32, 3, 1, 3])),
        ]
    }

    fn categories() -> Categories {
        Categories::new(vec![2, 0, 1, 1], 1, &[]).unwrap()
    }

    fn read_members(members: &[(&str, Vec<u8>)]) -> Result<Imported> {
        with_context(KEEP, |cx| {
            read(&npz(members), Nodes { count: 4, features: None, categories: Some(categories()), ids: None }, cx)
        })
    }

    #[test]
    fn all_pairs_arrive_and_only_those_of_training_become_edges() {
        let imported = read_members(&good()).unwrap();
        let links = imported.links.clone().unwrap();
        let found: Vec<(&str, Vec<i64>)> = links.parts().map(|(name, pairs)| (name, pairs.to_vec())).collect();
        assert_eq!(
            found,
            [("train", vec![0, 1, 2, 1]), ("valid", vec![0, 2]), ("test", vec![2, 3]), ("valid_neg", vec![0, 3, 1, 3])]
        );
        assert_eq!((links.name.as_str(), links.test_neg), ("links", None));
        assert_eq!(imported.categories, Some(categories()));
        assert_eq!(edges(imported), [(0, 1, 0.0), (2, 1, 0.0)]);
    }

    #[test]
    fn anything_wrong_is_named_by_array_and_element() {
        let with = |name: &str, bytes: Vec<u8>| read_members(&replaced(good(), name, bytes));
        assert_refused(with("train", array(&[1, 2], &[0i64, 4])), &["train[0, 1] is 4, expected 0 to 3"]);
        assert_refused(with("valid_neg", array(&[1, 2], &[-1i64, 0])), &["valid_neg[0, 0] is -1"]);
        assert_refused(with("test", array(&[1, 3], &[0i64, 1, 2])), &["test: shape is [1, 3]"]);
        assert_refused(with("test", array(&[1, 2], &[0.5f32, 1.0])), &["test", "fractions"]);
        assert_refused(read_members(&good()[..2]), &["t.npz: test"]);
        let more = [good(), vec![("weights", array(&[1], &[0i64]))]].concat();
        assert_refused(read_members(&more), &["t.npz: weights", "valid_neg"]);
    }
}
