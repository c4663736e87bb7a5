//! Edge lists: one edge `source destination` per line, as SNAP, CSV and TSV files have them.
//!
//! Plain or gzip (told by the first bytes, not by the name). Fields are separated by blanks, tabs, a comma or a semicolon;
//! lines that are empty or begin with `#`, `%` or `//` are skipped; a first line that begins with a letter or a quote is a
//! header. Further columns are refused, since they are likely to matter, unless [`Options::edge_features`] asks for them:
//! then they are numbers and become the edge features.
//!
//! Ids are kept by default (integers from 0; the largest one says how many nodes there are), or relabelled: any integers of
//! 64 bits become 0 … N−1 in ascending order, and the originals are kept as `node_id.npy` (int64, or uint64 where some do not
//! fit). Relabelling reads the file twice, so that only the ids have to be in memory.

use super::imported::{EdgeFeatures, NodeIds};
use super::text::{Cursor, Integer, Text, Wrong, show};
use super::{Context, Imported, Input};
use crate::build::{EdgeSorter, Sorter, Spool};
use crate::csr::NodeId;
use crate::error::Result;

const RELABEL: &str = "import with --ids relabel";

/// What an edge list does not say by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What the ids mean.
    pub ids: Ids,
    /// The number of nodes, where it is not the largest id plus one.
    pub num_nodes: Option<u64>,
    /// Columns from the third on are edge features.
    pub edge_features: bool,
}

/// What to do with node ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// They are node numbers from 0.
    #[default]
    Keep,
    /// They are names: number them in ascending order.
    Relabel,
}

/// Reads an edge list.
///
/// # Errors
/// [`Error::BadInput`](crate::Error::BadInput) naming the line and the column.
pub fn read(input: &Input, options: &Options, cx: &Context<'_>) -> Result<Imported> {
    match options.ids {
        Ids::Keep => keep(input, options, cx),
        Ids::Relabel => relabel(input, options, cx),
    }
}

fn keep(input: &Input, options: &Options, cx: &Context<'_>) -> Result<Imported> {
    // Without a given number of nodes, larger ids are names rather than numbers.
    let limit = options.num_nodes.unwrap_or(<u32 as NodeId>::CAPACITY);
    let id = move |at: Integer| match at {
        Integer { negative: false, magnitude } if magnitude < limit => Ok(magnitude),
        Integer { negative: true, .. } => {
            Err(("a negative id".into(), "number nodes from 0, or import with --ids relabel".into()))
        }
        Integer { magnitude, .. } if options.num_nodes.is_some() => {
            Err((format!("id {magnitude}, but there are {limit} nodes"), "correct --num-nodes".into()))
        }
        Integer { magnitude, .. } => {
            let remedy = format!("{RELABEL}, or give --num-nodes if there are that many nodes");
            Err((format!("id {magnitude} means more than 2³² nodes"), remedy))
        }
    };
    let scan = Scan::begin(input, options, cx)?;
    let mut edges = EdgeSorter::new(limit, scan.width > 0, cx.rules, cx.scratch)?;
    let (values, notes, width) = (Spool::new(cx.scratch), scan.notes.clone(), scan.width);
    let mut features = EdgeValues { values, width };
    let mut most = 0;
    scan.run(id, |piece| {
        most = piece.edges.iter().flatten().copied().fold(most, u64::max);
        features.values.push(&piece.values)?;
        edges.push(&piece.edges)
    })?;
    let n = match options.num_nodes {
        Some(n) => n,
        None => {
            check_density(input, most + 1, edges.pushed())?;
            most + 1
        }
    };
    Ok(Imported { edge_features: features.finish()?, notes, ..Imported::new(n as usize, edges) })
}

/// Refuses a graph in which nearly all nodes would be isolated: its ids are names.
pub(super) fn check_density(input: &Input, nodes: u64, edges: u64) -> Result<()> {
    const SMALL: u64 = 1 << 20;
    const NODES_PER_EDGE: u64 = 32;
    if nodes <= SMALL || nodes / NODES_PER_EDGE <= edges {
        return Ok(());
    }
    let problem = format!("{edges} edges for {nodes} nodes: nearly all nodes would be isolated");
    let remedy =
        format!("{RELABEL} if the ids are names; import an edge list with --num-nodes {nodes} if it is meant so");
    Err(input.bad("ids", problem, remedy))
}

fn relabel(input: &Input, options: &Options, cx: &Context<'_>) -> Result<Imported> {
    let names = Names::collect(input, options, cx)?;
    let n = names.sorted.len() as u64;
    if let Some(given) = options.num_nodes.filter(|&given| given != n) {
        let problem = format!("{n} different ids, but --num-nodes is {given}");
        return Err(input.bad("ids", problem, "leave --num-nodes out: relabelling counts the nodes"));
    }
    let scan = Scan::begin(input, options, cx)?;
    let mut edges = EdgeSorter::new(n, scan.width > 0, cx.rules, cx.scratch)?;
    let (values, notes, width) = (Spool::new(cx.scratch), scan.notes.clone(), scan.width);
    let mut features = EdgeValues { values, width };
    let changed = || ("an id that was not there a moment ago".into(), "the file changes while it is read".into());
    scan.run(
        |at| names.number(at).ok_or_else(changed),
        |piece| {
            features.values.push(&piece.values)?;
            edges.push(&piece.edges)
        },
    )?;
    let (edge_features, node_ids) = (features.finish()?, Some(names.into_ids()));
    Ok(Imported { edge_features, node_ids, notes, ..Imported::new(n as usize, edges) })
}

/// All ids of a file, as the bits of two's complement.
struct Names {
    /// Ascending: as signed numbers if some are negative.
    sorted: Vec<u64>,
    signed: bool,
    /// Some are beyond int64.
    large: bool,
}

impl Names {
    fn collect(input: &Input, options: &Options, cx: &Context<'_>) -> Result<Self> {
        let mut sorter = Sorter::new(cx.scratch, cx.rules.memory, Some(|a: u64, b: u64| a == b));
        let (mut signed, mut large) = (false, false);
        let id =
            |at: Integer| bits(at).ok_or_else(|| ("an id below −2⁶³".into(), "ids must be integers of 64 bits".into()));
        Scan::begin(input, options, cx)?.run(id, |piece| {
            signed |= piece.negative;
            large |= piece.large;
            // Neighbouring lines share ids: most repetitions go here already.
            let mut ids: Vec<u64> = piece.edges.into_iter().flatten().collect();
            rayon::slice::ParallelSliceMut::par_sort_unstable(&mut ids[..]);
            ids.dedup();
            sorter.extend(ids)
        })?;
        if signed && large {
            let problem = "some ids are negative and some are beyond 2⁶³−1";
            return Err(input.bad("ids", problem, "ids must all fit into int64, or all into uint64"));
        }
        let mut sorted = Vec::new();
        sorter.drain(
            |_| {},
            |ids| {
                sorted.extend_from_slice(ids);
                Ok(())
            },
        )?;
        if signed {
            let positive = sorted.partition_point(|&x| x < 1 << 63);
            sorted.rotate_left(positive);
        }
        Ok(Self { sorted, signed, large })
    }

    fn number(&self, at: Integer) -> Option<u64> {
        let bits = bits(at)?;
        let place = if self.signed {
            self.sorted.binary_search_by_key(&(bits as i64), |&x| x as i64)
        } else {
            self.sorted.binary_search(&bits)
        };
        place.ok().map(|i| i as u64)
    }

    fn into_ids(self) -> NodeIds {
        if self.large { NodeIds::Unsigned(self.sorted) } else { NodeIds::Signed(bytemuck::cast_vec(self.sorted)) }
    }
}

/// Two's complement, if 64 bits suffice.
fn bits(Integer { negative, magnitude }: Integer) -> Option<u64> {
    if negative { (magnitude <= 1 << 63).then(|| magnitude.wrapping_neg()) } else { Some(magnitude) }
}

/// Edge features in the making.
struct EdgeValues {
    values: Spool<f32>,
    width: usize,
}

impl EdgeValues {
    fn finish(self) -> Result<Option<EdgeFeatures>> {
        if self.width == 0 {
            return Ok(None);
        }
        Ok(Some(EdgeFeatures { values: self.values.finish()?, width: self.width }))
    }
}

/// Edges parsed from a piece of text.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) edges: Vec<[u64; 2]>,
    values: Vec<f32>,
    negative: bool,
    large: bool,
}

/// Why an id is refused, and what to do.
type Refused = (String, String);

/// A pass over the file, begun: the first line of edges has been seen.
pub(super) struct Scan<'a> {
    text: Text<'a>,
    first: Vec<u8>,
    /// Columns after the two ids.
    width: usize,
    notes: Vec<String>,
}

impl<'a> Scan<'a> {
    /// Skips what comes before the first edge and counts the columns.
    pub(super) fn begin(input: &'a Input, options: &Options, cx: &Context<'_>) -> Result<Self> {
        let mut text = Text::open(input, cx)?;
        let mut notes = Vec::new();
        while let Some(mut line) = text.line()? {
            if text.lines() == 1 && line.starts_with(b"\xef\xbb\xbf") {
                // The byte order mark that some programs write.
                line.drain(..3);
            }
            let mut c = Cursor::new(&line);
            if !c.next_line() {
                continue;
            }
            let is_header = |b: &u8| b.is_ascii_alphabetic() || *b >= 0x80 || matches!(b, b'_' | b'"' | b'\'');
            if notes.is_empty() && line.trim_ascii_start().first().is_some_and(is_header) {
                notes.push(format!("line {} is a header: {}", text.lines(), show(line.trim_ascii())));
                continue;
            }
            let width = count_columns(&mut c, options).map_err(|wrong| text.bad_line(&wrong))?;
            return Ok(Self { text, first: line, width, notes });
        }
        Err(input.bad("file", "there is no edge in it", "an edge list has a line \"source destination\" for each edge"))
    }

    /// Parses all lines in parallel; `id` turns what is written into a number.
    pub(super) fn run(
        self,
        id: impl Fn(Integer) -> std::result::Result<u64, Refused> + Sync,
        mut consume: impl FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        let width = self.width;
        let first = parse(&self.first, width, &id).map_err(|(_, wrong)| self.text.bad_line(&wrong))?;
        consume(first)?;
        self.text.pieces(|piece| parse(piece, width, &id), consume)
    }
}

/// Columns beyond the ids in the first line of edges.
fn count_columns(c: &mut Cursor<'_>, options: &Options) -> std::result::Result<usize, Wrong> {
    for _ in 0..2 {
        c.next_field()?;
        c.integer()?;
    }
    while c.next_field()? {
        if !options.edge_features {
            let remedy =
                "give --edge-features to keep columns from the third on as edge features, or cut them off first";
            return Err(Wrong::new(3, "more than two columns", remedy));
        }
        c.number()?;
    }
    if options.edge_features && c.column() == 2 {
        let remedy = "leave --edge-features out: this list has only source and destination";
        return Err(Wrong::new(3, "there is no third column to take edge features from", remedy));
    }
    Ok(c.column() - 2)
}

fn parse(
    text: &[u8],
    width: usize,
    id: impl Fn(Integer) -> std::result::Result<u64, Refused>,
) -> std::result::Result<Piece, (u64, Wrong)> {
    let mut piece = Piece { edges: Vec::with_capacity(text.len() / 8), ..Piece::default() };
    let mut c = Cursor::new(text);
    while c.next_line() {
        parse_line(&mut c, width, &id, &mut piece).map_err(|wrong| (c.line(), wrong))?;
    }
    Ok(piece)
}

#[inline]
fn parse_line(
    c: &mut Cursor<'_>,
    width: usize,
    id: impl Fn(Integer) -> std::result::Result<u64, Refused>,
    piece: &mut Piece,
) -> std::result::Result<(), Wrong> {
    let mut edge = [0; 2];
    for end in &mut edge {
        c.next_field()?;
        let written = c.integer()?;
        piece.negative |= written.negative;
        piece.large |= !written.negative && written.magnitude >= 1 << 63;
        *end = id(written).map_err(|(problem, remedy)| Wrong::new(c.column(), problem, remedy))?;
    }
    for _ in 0..width {
        if !c.next_field()? {
            let problem = format!("{} columns, the first edge has {}", c.column(), width + 2);
            return Err(Wrong::new(0, problem, "all lines need the same number of columns"));
        }
        let before = *c;
        let value = c.number()?;
        if !value.is_finite() {
            return Err(before.not("a finite number"));
        }
        piece.values.push(value);
    }
    if c.next_field()? {
        let problem = format!("more columns than in the first edge, which has {}", width + 2);
        return Err(Wrong::new(c.column() + 1, problem, "all lines need the same number of columns"));
    }
    piece.edges.push(edge);
    Ok(())
}
