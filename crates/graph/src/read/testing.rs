//! What the tests of the readers share.

use graphweft_base::progress::Silent;
use graphweft_base::{Error, Result};

use super::{Context, Imported, Input, Memory};
use crate::build::{EdgeRules, Scratch};
use crate::csr::{Csr, SelfLoops};
use crate::fuzz;
use crate::npy::{Element, Header};

/// Edges stay as they are.
pub(super) const KEEP: EdgeRules =
    EdgeRules { symmetrise: false, merge_parallel: false, self_loops: SelfLoops::Keep, memory: 0 };

pub(super) fn with_context<T>(rules: EdgeRules, f: impl FnOnce(&Context<'_>) -> T) -> T {
    let scratch = Scratch::new(std::env::temp_dir());
    f(&Context { rules, scratch: &scratch, progress: &Silent })
}

/// The file's name in messages is `t`.
pub(super) fn text(contents: &str) -> Input {
    Input::memory("t", contents.as_bytes()).unwrap()
}

/// What a reader makes of a text; edges stay as they are.
pub(super) fn read_text_by(
    read: impl FnOnce(&Input, &Context<'_>) -> Result<Imported>,
    contents: &str,
) -> Result<Imported> {
    with_context(KEEP, |cx| read(&text(contents), cx))
}

/// What a reader makes of a folder with these texts; edges stay as they are.
pub(super) fn read_folder(
    files: &[(&str, &str)],
    read: impl FnOnce(&Memory, &Context<'_>) -> Result<Imported>,
) -> Result<Imported> {
    let folder = Memory(files.iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec())).collect());
    with_context(KEEP, |cx| read(&folder, cx))
}

/// The same texts with another one of this name.
pub(super) fn with_other(
    files: Vec<(&'static str, &'static str)>,
    name: &'static str,
    text: &'static str,
) -> Vec<(&'static str, &'static str)> {
    files.into_iter().filter(|(other, _)| *other != name).chain([(name, text)]).collect()
}

/// An `.npy` file.
pub(super) fn array<T: Element>(shape: &[usize], values: &[T]) -> Vec<u8> {
    let header = Header { dtype: T::DTYPE, fortran_order: false, shape: shape.to_vec() };
    [&header.bytes(), bytemuck::cast_slice(values)].concat()
}

/// The same members with other bytes in one of them.
pub(super) fn replaced(
    mut members: Vec<(&'static str, Vec<u8>)>,
    name: &str,
    bytes: Vec<u8>,
) -> Vec<(&'static str, Vec<u8>)> {
    members.iter_mut().find(|(n, _)| *n == name).unwrap().1 = bytes;
    members
}

/// An archive; its name in messages is `t.npz`.
pub(super) fn npz(members: &[(&str, Vec<u8>)]) -> Input {
    let members: Vec<(String, Vec<u8>)> = members.iter().map(|(n, b)| (n.to_string(), b.clone())).collect();
    Input::memory("t.npz", fuzz::archive(&members)).unwrap()
}

/// The graph as edges `(source, destination, first edge feature)`; 0 where there is none.
pub(super) fn edges(imported: Imported) -> Vec<(u32, u32, f32)> {
    let n = imported.num_nodes;
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    let features = imported.edge_features;
    imported
        .edges
        .stream(n as u64, &Silent, |block| {
            indptr.extend_from_slice(&block.ends);
            indices.extend(block.sources.iter().map(|&j| j as u32));
            if let Some(f) = &features {
                values.extend(block.origins.iter().map(|o| o.map_or(0.0, |k| f.values[k as usize * f.width])));
            }
            Ok(())
        })
        .unwrap();
    values.resize(indices.len(), 0.0);
    let g = Csr::<u32>::new(indptr, indices, n).unwrap();
    let rows = (0..n).flat_map(|i| g.edges_of(i).map(move |e| (e, i)));
    rows.map(|(e, i)| (g.indices()[e], i as u32, values[e])).collect()
}

/// The message of input that must be refused, which has to contain all of `words`.
pub(super) fn assert_refused(result: Result<Imported>, words: &[&str]) {
    let error = result.err().unwrap_or_else(|| panic!("accepted, expected {words:?}"));
    assert!(matches!(error, Error::BadInput { .. }), "{error}");
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}
