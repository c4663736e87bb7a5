//! Raw folders of OGB link-property datasets without relations (ogbl-ddi, ogbl-collab and their kin).
//!
//! `raw/edge.csv.gz` has the links of training, each once; `split/<scheme>/{valid,test}_edge.npy` [links, 2] those to
//! choose by and to report on, and `{valid,test}_edge_neg.npy` [pairs, 2] pairs that are none: the arrays of the same
//! names in OGB's `valid.pt` and `test.pt`, saved with NumPy. `train_edge.npy`, where it is there, stands for the links
//! of training. Nodes may have no features. OGB's loader adds the reverse of each edge: here that is asked for with
//! `--symmetrise`.

use graphweft_base::{Error, Result};

use super::npz::Array;
use super::ogb::{self, INCOMPLETE};
use super::{Context, Folder, Imported, features, links};
use crate::buf::Buf;
use crate::build::Expected;
use crate::dataset::LinkSplit;
use crate::read::table::Table;

/// The split that has links, if this is such a dataset.
///
/// # Errors
/// If there are several.
pub(super) fn scheme(folder: &dyn Folder) -> Result<Option<String>> {
    let mut found = None;
    for name in folder.folders("split")? {
        if folder.input(&format!("split/{name}/valid_edge.npy"))?.is_some()
            && let Some(other) = found.replace(name.clone())
        {
            let problem = format!("both {other} and {name} are splits of links");
            return Err(Error::bad(folder.path().join("split"), "split", problem, "leave one of them there"));
        }
    }
    Ok(found)
}

/// Reads a dataset folder with the split `scheme`.
///
/// # Errors
/// [`Error::BadInput`] naming the file and the line or element.
pub(super) fn read(folder: &dyn Folder, scheme: &str, cx: &Context<'_>) -> Result<Imported> {
    let [n, num_edges] = ogb::counts(folder, cx)?;
    let features = match folder.input("raw/node-feat.csv.gz")? {
        Some(input) => Some(features::from_table(Table::read(&input, cx, f32::is_finite)?, n as usize, &input, cx)?),
        None => None,
    };
    let part = |part: &str| -> Result<Option<Buf<i64>>> {
        let Some(input) = folder.input(&format!("split/{scheme}/{part}.npy"))? else { return Ok(None) };
        let array = Array::read(&input, part, &mut input.open()?, cx)?;
        links::pairs(&array, n as usize).map(Some)
    };
    let need = |name: &str| {
        let missing = || {
            let path = folder.path().join(format!("split/{scheme}/{name}.npy"));
            Error::bad(path, "file", "there is no such file", INCOMPLETE)
        };
        part(name)?.ok_or_else(missing)
    };
    let mut listed: Vec<i64> = Vec::new();
    let edges = ogb::edges(folder, Expected::bare(n), num_edges, cx, |edges| {
        listed.extend(edges.as_flattened().iter().map(|id| *id as i64));
    })?;
    let links = LinkSplit {
        name: scheme.into(),
        width: 2,
        train: part("train_edge")?.unwrap_or_else(|| listed.into()),
        valid: need("valid_edge")?,
        test: need("test_edge")?,
        valid_neg: part("valid_edge_neg")?,
        test_neg: part("test_edge_neg")?,
    };
    let mut imported = Imported { features, links: Some(links), ..Imported::new(n as usize, edges) };
    if !cx.rules.symmetrise {
        let note = "messages go along links one way only; where links mean both, import with --symmetrise";
        imported.notes.push(note.into());
    }
    Ok(imported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Memory;
    use crate::read::testing::{KEEP, array, assert_refused, edges, with_context};

    fn good() -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("raw/edge.csv.gz", b"0,1\n2,1\n".to_vec()),
            ("raw/num-node-list.csv.gz", b"4\n".to_vec()),
            ("raw/num-edge-list.csv.gz", b"2\n".to_vec()),
            ("split/target/valid_edge.npy", array(&[1, 2], &[0i32, 2])),
            ("split/target/test_edge.npy", array(&[1, 2], &[2i32, 3])),
            ("split/target/test_edge_neg.npy", array(&[2, 2], &[0i32, 3, 1, 3])),
        ]
    }

    fn read_files(files: &[(&str, Vec<u8>)]) -> Result<Imported> {
        let folder = Memory(files.iter().map(|(name, bytes)| (name.to_string(), bytes.clone())).collect());
        with_context(KEEP, |cx| ogb::read(&folder, cx))
    }

    #[test]
    fn edges_are_the_links_of_training() {
        let imported = read_files(&good()).unwrap();
        let links = imported.links.clone().unwrap();
        let found: Vec<(&str, Vec<i64>)> = links.parts().map(|(name, pairs)| (name, pairs.to_vec())).collect();
        let expected =
            [("train", vec![0, 1, 2, 1]), ("valid", vec![0, 2]), ("test", vec![2, 3]), ("test_neg", vec![0, 3, 1, 3])];
        assert_eq!(found, expected);
        assert_eq!((links.name.as_str(), imported.num_nodes, imported.features.is_none()), ("target", 4, true));
        assert!(imported.notes[0].contains("--symmetrise"), "{:?}", imported.notes);
        assert_eq!(edges(imported), [(0, 1, 0.0), (2, 1, 0.0)]);
        let own = [good(), vec![("split/target/train_edge.npy", array(&[1, 2], &[1i64, 0]))]].concat();
        assert_eq!(read_files(&own).unwrap().links.unwrap().train[..], [1, 0]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |name: &'static str, bytes: Vec<u8>| {
            let others = good().into_iter().filter(|(n, _)| *n != name);
            read_files(&others.chain([(name, bytes)]).collect::<Vec<_>>())
        };
        assert_refused(
            with("split/target/valid_edge.npy", array(&[1, 2], &[0i32, 4])),
            &["valid_edge.npy", "[0, 1] is 4"],
        );
        assert_refused(
            with("split/target/test_edge_neg.npy", array(&[2], &[0i32, 1])),
            &["test_edge_neg", "[links, 2]"],
        );
        assert_refused(with("raw/edge.csv.gz", b"0,1\n".to_vec()), &["1 edges", "says 2"]);
        let other = ("split/time/valid_edge.npy", array(&[1, 2], &[0i32, 2]));
        assert_refused(read_files(&[good(), vec![other]].concat()), &["target and time"]);
        let missing: Vec<_> = good().into_iter().filter(|(name, _)| !name.ends_with("test_edge.npy")).collect();
        assert_refused(read_files(&missing), &["test_edge.npy", "no such file"]);
    }
}
