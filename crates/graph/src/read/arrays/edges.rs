//! Edges from whatever lists them: `.npy` of shape [2, E] or [E, 2], SciPy matrices, edge lists, Matrix Market, METIS.
//!
//! Ids in a list or an array are the [numbers](Numbering) of rows or, where a table names its nodes, the names; rows
//! and columns of a matrix are always numbers.

use graphweft_base::Result;

use super::super::edge_list::{self, Options, Refused, check_nodes};
use super::super::gnn_benchmark::weights_of;
use super::super::npz::Array;
use super::super::tables::Ids;
use super::super::text::Integer;
use super::super::{Context, Imported, Input, matrix_market, metis};
use super::file::{Contents, File, Pairs, Sparse};
use crate::build::{EdgeSorter, Expected};
use crate::npy::NpyType;

/// Edges checked and pushed at a time.
const CHUNK: usize = 1 << 16;
const MATRIX_MARKET: &[u8] = b"%%MatrixMarket";

/// What ids mean.
pub(super) enum Numbering<'a> {
    /// Numbers from 0; the largest says how many nodes there are.
    Open,
    /// Numbers of rows.
    Rows {
        /// How many there are.
        n: u64,
        /// What says so.
        by: &'a str,
    },
    /// Names of rows.
    Names {
        /// How many there are.
        n: u64,
        ids: &'a Ids,
        /// The table that has them.
        by: &'a str,
    },
}

impl Numbering<'_> {
    /// How many nodes there are, if that is known.
    pub(super) fn nodes(&self) -> Option<u64> {
        match self {
            Self::Open => None,
            Self::Rows { n, .. } | Self::Names { n, .. } => Some(*n),
        }
    }

    /// The node that an id means.
    pub(super) fn of_text(&self, at: Integer) -> std::result::Result<u64, Refused> {
        let sign = if at.negative { "−" } else { "" };
        let id = at.magnitude;
        match self {
            Self::Names { ids, by, .. } => ids.find_integer(at).ok_or_else(|| {
                (
                    format!("there is no node {sign}{id} in {by}"),
                    format!("add a row for it to {by}, or leave it out here"),
                )
            }),
            _ if at.negative => Err(("a negative id".into(), "number nodes from 0".into())),
            Self::Rows { n, by } if id >= *n => {
                let remedy = "nodes are numbered from 0 by their rows; if these are other ids, give a CSV of the nodes \
                              with a column id (--nodes)";
                Err((format!("node {id}, but there are {n} nodes ({by})"), remedy.into()))
            }
            _ => Ok(id),
        }
    }

    /// The node that an element of an array means.
    pub(super) fn of_array(&self, array: &Array, at: usize) -> Result<u64> {
        let Some(id) = array.integer(at) else {
            return Err(array.bad("the elements are fractions, expected node ids"));
        };
        let id = Integer { negative: id < 0, magnitude: id.unsigned_abs() as u64 };
        self.of_text(id)
            .map_err(|(problem, remedy)| array.input().bad(&array.name, array.at(at, &format!(": {problem}")), remedy))
    }
}

/// Reads edges. With `options.places` each remembers where it stood.
pub(super) fn read(file: &File, numbering: &Numbering<'_>, options: &Options, cx: &Context<'_>) -> Result<Imported> {
    let columns = |what: &str| {
        let problem = format!("{what} has no columns to take edge features from");
        Err(file.input.bad("edges", problem, "name the file that has them: --edge-features FILE"))
    };
    match file.load("edges", cx)? {
        Contents::Array(_) if options.edge_features => columns("an array of edges"),
        Contents::Sparse(_) if options.edge_features => columns("a matrix"),
        Contents::Array(array) => from_array(&array, numbering, options, cx),
        Contents::Sparse(matrix) => from_matrix(&matrix, numbering, options, cx),
        Contents::Text => from_text(&file.input, numbering, options, cx),
    }
}

fn from_array(array: &Array, numbering: &Numbering<'_>, options: &Options, cx: &Context<'_>) -> Result<Imported> {
    if array.dtype == NpyType::Bool {
        return Err(array.bad("the elements are truth values, expected node ids"));
    }
    let mut notes = Vec::new();
    let (count, by_rows) = match array.shape[..] {
        [2, count] => (count, true),
        [count, 2] => (count, false),
        _ => return Err(array.wrong_shape("[2, edges] or [edges, 2]")),
    };
    if count == 2 && by_rows {
        notes.push(
            "the edges have shape [2, 2]: the first row is taken for sources, the second for destinations".into(),
        );
    }
    if count == 0 {
        return Err(array.bad("there is no edge in it"));
    }
    let ends = |k: usize| if by_rows { [k, count + k] } else { [2 * k, 2 * k + 1] };
    let n = match numbering.nodes() {
        Some(n) => n,
        None => {
            let mut most = 0;
            for at in 0..array.len() {
                most = numbering.of_array(array, at)?.max(most);
            }
            check_nodes(array.input(), most.saturating_add(1), count as u64)?;
            most + 1
        }
    };
    let mut edges = EdgeSorter::new(Expected { num_nodes: n, origins: options.places }, cx.rules, cx.scratch)?;
    let mut pushed = Pushed::new(&mut edges);
    for [source, destination] in (0..count).map(ends) {
        pushed.push([numbering.of_array(array, source)?, numbering.of_array(array, destination)?])?;
    }
    pushed.flush()?;
    Ok(Imported { notes, ..Imported::new(n as usize, edges) })
}

/// Edges on their way to the sorter.
struct Pushed<'a> {
    chunk: Vec<[u64; 2]>,
    edges: &'a mut EdgeSorter,
}

impl<'a> Pushed<'a> {
    fn new(edges: &'a mut EdgeSorter) -> Self {
        Self { chunk: Vec::new(), edges }
    }

    fn push(&mut self, edge: [u64; 2]) -> Result<()> {
        self.chunk.push(edge);
        if self.chunk.len() == CHUNK { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.edges.push(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }
}

fn from_matrix(matrix: &Sparse, numbering: &Numbering<'_>, options: &Options, cx: &Context<'_>) -> Result<Imported> {
    let [rows, columns] = matrix.shape();
    if rows != columns || rows == 0 {
        let problem = format!("the matrix has {rows} rows and {columns} columns, expected as many of each");
        return Err(matrix.bad(problem, "an adjacency matrix has a row and a column for each node"));
    }
    if let Some(n) = numbering.nodes().filter(|&n| n != rows as u64) {
        let problem = format!("the matrix has {rows} rows, but there are {n} nodes");
        return Err(matrix.bad(problem, "an adjacency matrix has a row and a column for each node"));
    }
    let n = rows as u64;
    let weights = match matrix {
        Sparse::Rows(m) | Sparse::Columns(m) => m.data.as_ref(),
        Sparse::Pairs(m) => m.data.as_ref(),
    };
    let weighted = weights.is_some_and(|w| (0..w.len()).any(|at| w.number(at) != 1.0));
    if weighted && options.places {
        let problem = "the matrix has values other than 1, and edge features are given as well";
        return Err(matrix.bad(problem, "set the values to 1, or leave --edge-features out"));
    }
    let mut edges =
        EdgeSorter::new(Expected { num_nodes: n, origins: weighted || options.places }, cx.rules, cx.scratch)?;
    let mut pushed = Pushed::new(&mut edges);
    match matrix {
        Sparse::Rows(m) | Sparse::Columns(m) => {
            let forward = matches!(matrix, Sparse::Rows(_));
            for (row, w) in m.offsets()?.windows(2).enumerate() {
                for at in w[0]..w[1] {
                    let (row, other) = (row as u64, m.indices.below(at as usize, n)?);
                    pushed.push(if forward { [row, other] } else { [other, row] })?;
                }
            }
        }
        Sparse::Pairs(Pairs { row, col, .. }) => {
            check_nodes(row.input(), n, row.len() as u64)?;
            for at in 0..row.len() {
                pushed.push([row.below(at, n)?, col.below(at, n)?])?;
            }
        }
    }
    pushed.flush()?;
    let edge_features = weights.filter(|_| weighted).map(|w| weights_of(w, cx)).transpose()?;
    Ok(Imported { edge_features, ..Imported::new(rows, edges) })
}

fn from_text(input: &Input, numbering: &Numbering<'_>, options: &Options, cx: &Context<'_>) -> Result<Imported> {
    let is_metis = input.path().to_string_lossy().trim_end_matches(".gz").ends_with(".graph");
    let is_market = input.start(MATRIX_MARKET.len())?.eq_ignore_ascii_case(MATRIX_MARKET);
    if is_metis || is_market {
        if options.places || options.edge_features {
            let problem = "edge features go with a list of edges, which this is not";
            return Err(input.bad("edges", problem, "leave --edge-features out: the weights in the file are kept"));
        }
        let imported = if is_market { matrix_market::read(input, cx)? } else { metis::read(input, cx)? };
        return match numbering.nodes().filter(|&n| n != imported.num_nodes as u64) {
            Some(n) => {
                let problem = format!("the file is for {} nodes, but there are {n}", imported.num_nodes);
                Err(input.bad("nodes", problem, "the files must belong to the same graph"))
            }
            None => Ok(imported),
        };
    }
    match numbering.nodes() {
        Some(n) => edge_list::numbered(input, options, n, |id| numbering.of_text(id), cx),
        None => edge_list::read(input, options, cx),
    }
}
