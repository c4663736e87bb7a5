//! The checks that look at every element. Those that others' indexing rests on ([`nodes`], [`node_labels`], [`edges`])
//! are made every time, whatever a stamp says, the latter two when what they look at is asked for; all of them once per
//! folder.

use std::path::PathBuf;

use graphweft_base::{Error, Position, Problem, Result};
use rayon::prelude::*;

use super::features::Place;
use super::labels::Labelled;
use super::{Dataset, Dense, Features, Labels, SparseFeatures, Split, types};
use crate::csr::{Csr, CsrError};
use crate::with_csr;

const REMEDY: &str = "correct the array and save it again, or create the folder again with `graphweft import`";

pub(super) fn validate(data: &Dataset) -> Result<()> {
    edges(data)?;
    if data.meta.symmetric && !with_csr!(&data.graph, g => g.is_symmetric()) {
        let problem = "symmetric = true, but some edge has no edge in the other direction";
        let remedy = "set symmetric = false, or create the folder again with `graphweft import --symmetrise`";
        return Err(Error::bad(data.dir.join("meta.toml"), "symmetric", problem, remedy));
    }
    for (place, features) in features(data) {
        match features {
            Features::Dense(m) => finite(place.file(""), &place.stem, m)?,
            Features::Sparse(m) => {
                sparse(&place, m)?;
                sparse_finite(&place, m)?;
            }
        }
    }
    if let Some(m) = &data.edge_features {
        finite(data.dir.join("edge_feat.npy"), "edge_feat", m)?;
    }
    node_labels(data)?;
    nodes(data)
}

/// Labels of nodes: as many as there are nodes, and used as indices.
pub(super) fn node_labels(data: &Dataset) -> Result<()> {
    let of = Labelled::Nodes(data.meta.num_nodes);
    data.labels.as_ref().map_or(Ok(()), |l| labels(data, l, of))
}

/// What else there is of nodes or graphs and is used as an index.
pub(super) fn nodes(data: &Dataset) -> Result<()> {
    for (place, features) in features(data) {
        if let Features::Sparse(m) = features {
            sparse(&place, m)?;
        }
    }
    if let Some(graphs) = &data.graphs {
        graphs.check(&data.dir, data.meta.num_nodes)?;
        if let Some(l) = &graphs.labels {
            labels(data, l, Labelled::Graphs(graphs.count()))?;
        }
    }
    data.splits.iter().try_for_each(|s| split(data, s))?;
    data.links.iter().try_for_each(|links| links.validate(&data.dir, &data.meta))
}

/// All features, with the files that they are in.
fn features(data: &Dataset) -> impl Iterator<Item = (Place<'_>, &Features)> {
    let all = data.features.iter().map(|features| (Place::of_all(&data.dir, &data.meta), features));
    let by_type = data.meta.node_types.iter().zip(&data.features_by_type);
    all.chain(by_type.filter_map(|(t, features)| Some((types::place(&data.dir, t), features.as_ref()?))))
}

/// Ids and offsets of the graph, or of all graphs (a batch is cut out of one by where these begin and end); types of
/// edges.
pub(super) fn edges(data: &Dataset) -> Result<()> {
    if let (Some(found), names @ 1..) = (&data.edge_types, data.meta.edge_types.len()) {
        found.check(&data.dir.join("edge_type.npy"), "edge_type", names)?;
    }
    with_csr!(&data.graph, g => g.check()).map_err(|e| {
        let array = csr_file(&e);
        Error::bad(data.dir.join(format!("{array}.npy")), array, e, REMEDY)
    })?;
    let Some(graphs) = &data.graphs else { return Ok(()) };
    graphs.check(&data.dir, data.meta.num_nodes)?;
    with_csr!(&data.graph, g => graphs.check_edges(&data.dir, g))
}

fn csr_file(e: &CsrError) -> &'static str {
    match e {
        CsrError::NoOffsets | CsrError::FirstOffset(_) | CsrError::Decreasing { .. } | CsrError::LastOffset { .. } => {
            "indptr"
        }
        CsrError::OutOfRange { .. } | CsrError::Unsorted { .. } => "indices",
    }
}

fn finite(path: PathBuf, field: &str, m: &Dense) -> Result<()> {
    let bad = match m {
        Dense::F32 { values, .. } => values.par_iter().position_first(|x| !x.is_finite()),
        Dense::F16 { values, .. } => values.par_iter().position_first(|x| !x.is_finite()),
    };
    bad.map_or(Ok(()), |at| {
        let (row, column) = (at / m.width(), at % m.width());
        let problem = format!("{field}[{row}, {column}] is not a finite number");
        Err(Error::bad(path, field, Problem::at(Position::in_matrix(at, m.width()), problem), REMEDY))
    })
}

fn sparse(place: &Place<'_>, m: &SparseFeatures) -> Result<()> {
    let stem = &place.stem;
    Csr::new(m.indptr.clone(), m.indices.clone(), m.width)
        .map_err(|e| {
            let part = format!("_{}", csr_file(&e));
            let position = e.position();
            let (problem, remedy) = match e {
                CsrError::OutOfRange { edge, row, source_id, num_src } => (
                    format!(
                        "{stem}_indices[{edge}] = {source_id} in row {row}: {} in meta.toml is {num_src}",
                        place.count
                    ),
                    format!(
                        "set {} in meta.toml to the number of columns, above {source_id}, or {REMEDY}",
                        place.count
                    ),
                ),
                e => (format!("{stem}_{e}"), REMEDY.into()),
            };
            let problem = position.map_or_else(|| problem.as_str().into(), |at| Problem::at(at, &problem));
            Error::bad(place.file(&part), place.field(&part), problem, remedy)
        })
        .map(drop)
}

fn sparse_finite(place: &Place<'_>, m: &SparseFeatures) -> Result<()> {
    let bad = m.data.as_ref().and_then(|d| d.par_iter().position_first(|x| !x.is_finite()));
    bad.map_or(Ok(()), |at| {
        let problem = format!("{}_data[{at}] is not a finite number", place.stem);
        let problem = Problem::at(Position::element(at), problem);
        Err(Error::bad(place.file("_data"), place.field("_data"), problem, REMEDY))
    })
}

fn labels(data: &Dataset, labels: &Labels, of: Labelled) -> Result<()> {
    let (classes, field) = (data.meta.num_classes, of.field());
    let problem = match labels {
        Labels::Single(y) => y.par_iter().position_first(|&c| c < -1 || c >= classes as i64).map(|at| {
            let text =
                format!("{field}[{at}] = {}: expected −1 (none) to {} (num_classes − 1)", y[at], classes as i64 - 1);
            Problem::at(Position::element(at), text)
        }),
        Labels::MultiU8(y) => y.par_iter().position_first(|&x| x > 1).map(|at| {
            let text = format!("{field}[{}, {}] = {}: expected 0 or 1", at / classes, at % classes, y[at]);
            Problem::at(Position::in_matrix(at, classes), text)
        }),
        Labels::MultiF32(y) => y.par_iter().position_first(|&x| x != 0.0 && x != 1.0 && !x.is_nan()).map(|at| {
            let (row, column) = (at / classes, at % classes);
            let text = format!("{field}[{row}, {column}] = {}: expected 0 or 1, or NaN where it is not known", y[at]);
            Problem::at(Position::in_matrix(at, classes), text)
        }),
        Labels::Values(y) => y.par_iter().position_first(|x| x.is_infinite()).map(|at| {
            let (row, column) = (at / classes, at % classes);
            let text = format!("{field}[{row}, {column}] = {}: expected a finite number, or NaN for unknown", y[at]);
            Problem::at(Position::in_matrix(at, classes), text)
        }),
    };
    let remedy = || match labels {
        Labels::Single(y) => match y.par_iter().max() {
            Some(&most) if most >= classes as i64 && most < i64::MAX => {
                format!("set num_classes = {} in meta.toml if that is right, or {REMEDY}", most + 1)
            }
            _ => REMEDY.into(),
        },
        _ => REMEDY.into(),
    };
    problem.map_or(Ok(()), |p| Err(Error::bad(data.dir.join(of.file()), field, p, remedy())))
}

fn split(data: &Dataset, split: &Split) -> Result<()> {
    let (noun, count) = data.split_among();
    split.check_among(count, noun).map_err(|(part, problem)| {
        let part = split.parts()[part].0;
        let file = data.dir.join("split").join(&split.name).join(format!("{part}.npy"));
        Error::bad(file, part, problem, format!("each {noun} belongs to one of train, valid and test"))
    })
}
