//! Edge lists: one edge `source destination` per line, as SNAP, CSV and TSV files have them.
//!
//! Plain or gzip (told by the first bytes, not by the name). Fields are separated by blanks, tabs, a comma or a
//! semicolon; lines that are empty or begin with `#`, `%` or `//` are skipped; a first line that begins with a letter
//! or a quote is a header. Further columns are refused, since they are likely to matter, unless
//! [`Options::edge_features`] asks for them: then they are numbers and become the edge features.
//!
//! Ids are kept by default (integers from 0; the largest one says how many nodes there are), or relabelled: any
//! integers of 64 bits become 0 … N−1 in ascending order, and the originals are kept as `node_id.npy` (int64, or uint64
//! where some do not fit). Relabelling reads the file twice, so that only the ids have to be in memory.

use graphweft_base::Result;
use rayon::prelude::*;

use super::imported::EdgeFeatures;
use super::names::{Names, Range, SIGN, bits};
use super::text::{Cursor, Integer, Text, Wrong, show};
use super::{Context, Imported, Input};
use crate::build::{EdgeSorter, Expected, Sorter, Spool};
use crate::csr::NodeId;

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
    /// Edges remember their places in the list, for features that come from elsewhere.
    pub places: bool,
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
/// [`Error::BadInput`](graphweft_base::Error::BadInput) naming the line and the column.
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
    let mut edges = EdgeSorter::new(scan.expected(limit, options), cx.rules, cx.scratch)?;
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
            check_nodes(input, most + 1, edges.pushed())?;
            most + 1
        }
    };
    Ok(Imported { edge_features: features.finish()?, notes, ..Imported::new(n as usize, edges) })
}

/// Refuses more nodes than any graph has, and a graph in which nearly all would be isolated: its ids are names.
pub(super) fn check_nodes(input: &Input, nodes: u64, edges: u64) -> Result<()> {
    const SMALL: u64 = 1 << 20;
    const NODES_PER_EDGE: u64 = 32;
    if nodes > EdgeSorter::MOST_NODES {
        let problem = format!("{nodes} nodes: at most {} are supported", EdgeSorter::MOST_NODES);
        return Err(input.bad("nodes", problem, "check the number of nodes"));
    }
    if nodes <= SMALL || nodes / NODES_PER_EDGE <= edges {
        return Ok(());
    }
    let problem = format!("{edges} edges for {nodes} nodes: nearly all nodes would be isolated");
    let remedy =
        format!("{RELABEL} if the ids are names; import an edge list with --num-nodes {nodes} if it is meant so");
    Err(input.bad("ids", problem, remedy))
}

fn relabel(input: &Input, options: &Options, cx: &Context<'_>) -> Result<Imported> {
    let names = collect(input, options, cx)?;
    let n = names.len();
    if let Some(given) = options.num_nodes.filter(|&given| given != n) {
        let problem = format!("{n} different ids, but --num-nodes is {given}");
        return Err(input.bad("ids", problem, "leave --num-nodes out: relabelling counts the nodes"));
    }
    let changed = || ("an id that was not there a moment ago".into(), "the file changes while it is read".into());
    let imported = numbered(input, options, n, |at| names.number(at).ok_or_else(changed), cx)?;
    Ok(Imported { node_ids: Some(names.into_ids()), ..imported })
}

/// Reads edges between `n` nodes whose numbers `id` finds.
pub(super) fn numbered(
    input: &Input,
    options: &Options,
    n: u64,
    id: impl Fn(Integer) -> std::result::Result<u64, Refused> + Sync,
    cx: &Context<'_>,
) -> Result<Imported> {
    let scan = Scan::begin(input, options, cx)?;
    let mut edges = EdgeSorter::new(scan.expected(n, options), cx.rules, cx.scratch)?;
    let (values, notes, width) = (Spool::new(cx.scratch), scan.notes.clone(), scan.width);
    let mut features = EdgeValues { values, width };
    scan.run(id, |piece| {
        features.values.push(&piece.values)?;
        edges.push(&piece.edges)
    })?;
    Ok(Imported { edge_features: features.finish()?, notes, ..Imported::new(n as usize, edges) })
}

/// All ids of a file.
fn collect(input: &Input, options: &Options, cx: &Context<'_>) -> Result<Names> {
    let mut sorter = Sorter::new(cx.scratch, cx.rules.memory, Some(|a: u64, b: u64| a == b));
    let mut range = Range::default();
    let id =
        |at: Integer| bits(at).ok_or_else(|| ("an id below −2⁶³".into(), "ids must be integers of 64 bits".into()));
    Scan::begin(input, options, cx)?.run(id, |piece| {
        range.negative |= piece.negative;
        range.large |= piece.large;
        // Neighbouring lines share ids: most repetitions go here already.
        let mut ids: Vec<u64> = piece.edges.into_iter().flatten().collect();
        ids.par_sort_unstable();
        ids.dedup();
        sorter.extend(ids)
    })?;
    range.check(input)?;
    let mut sorted = Vec::new();
    sorter.drain(
        |_| {},
        |ids| {
            sorted.extend_from_slice(ids);
            Ok(())
        },
    )?;
    Ok(Names::new(sorted, range))
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
pub(super) type Refused = (String, String);

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

    /// What edges the lines are.
    fn expected(&self, num_nodes: u64, options: &Options) -> Expected {
        Expected { num_nodes, origins: self.width > 0 || options.places }
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
        piece.large |= !written.negative && written.magnitude >= SIGN;
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

#[cfg(test)]
mod tests {
    use graphweft_base::Position;

    use super::*;
    use crate::build::EdgeRules;
    use crate::read::imported::NodeIds;
    use crate::read::testing::{KEEP, assert_refused, edges, text, with_context};

    const RELABELLED: Options = Options { ids: Ids::Relabel, num_nodes: None, edge_features: false, places: false };

    fn read_with(contents: &str, options: Options, rules: EdgeRules) -> Result<Imported> {
        with_context(rules, |cx| read(&text(contents), &options, cx))
    }

    #[test]
    fn separators_comments_headers_and_line_ends_do_not_matter() {
        let same = [
            "# Nodes: 4\n# From To\n0\t3\n3\t1\n",
            "source,target\r\n0,3\r\n3,1\r\n",
            "0;3\n\n  3 ; 1",
            "% konect\n// other\n0 3\n# between\n3   1\n",
            "\u{feff}0 3\n3 1\n",
            "\u{feff}\"Source\",\"Target\"\n0, 3\n3, 1\n",
        ];
        for contents in same {
            let imported = read_with(contents, Options::default(), KEEP).unwrap();
            assert_eq!(imported.num_nodes, 4);
            assert_eq!(edges(imported), [(3, 1, 0.0), (0, 3, 0.0)], "{contents:?}");
        }
    }

    #[test]
    fn extra_columns_become_edge_features_only_on_request() {
        assert_refused(read_with("0 1\n1 0 7\n", Options::default(), KEEP), &["t: line 2, column 3"]);
        assert_refused(read_with("a b c\n0 1 7\n", Options::default(), KEEP), &["line 2", "--edge-features"]);
        let options = Options { edge_features: true, ..Options::default() };
        let imported = read_with("from,to,weight,year\n1,0,0.5,9\n0,1,-2e1,9\n", options, KEEP).unwrap();
        assert_eq!(imported.edge_features.as_ref().unwrap().width, 2);
        assert_eq!(edges(imported), [(1, 0, 0.5), (0, 1, -20.0)]);
        assert_refused(read_with("0 1\n", options, KEEP), &["line 1", "leave --edge-features out"]);
        assert_refused(read_with("0 1 2\n0 1\n", options, KEEP), &["line 2", "2 columns, the first edge has 3"]);
        assert_refused(read_with("0 1 2\n0 1 nan\n", options, KEEP), &["line 2, column 3", "finite"]);
        assert_refused(read_with("0 1 1e99\n", options, KEEP), &["line 1, column 3", "finite"]);
    }

    #[test]
    fn a_reverse_edge_of_its_own_keeps_its_own_features() {
        let rules = EdgeRules { symmetrise: true, ..KEEP };
        let options = Options { edge_features: true, ..Options::default() };
        let imported = read_with("0 1 5\n0 1 6\n1 0 7\n1 2 8\n", options, rules).unwrap();
        assert_eq!(edges(imported), [(1, 0, 7.0), (0, 1, 5.0), (2, 1, 8.0), (1, 2, 8.0)]);
    }

    #[test]
    fn any_64_bit_ids_are_relabelled_in_ascending_order() {
        let imported = read_with("9223372036854775807 -9223372036854775808\n7 -1\n", RELABELLED, KEEP).unwrap();
        assert_eq!(imported.node_ids, Some(NodeIds::Signed(vec![i64::MIN, -1, 7, i64::MAX])));
        assert_eq!(edges(imported), [(3, 0, 0.0), (2, 1, 0.0)]);
        let imported = read_with("18446744073709551615 5\n5 5\n", RELABELLED, KEEP).unwrap();
        assert_eq!(imported.node_ids, Some(NodeIds::Unsigned(vec![5, u64::MAX])));
        assert_eq!(edges(imported), [(0, 0, 0.0), (1, 0, 0.0)]);
        assert_refused(read_with("-1 18446744073709551615\n", RELABELLED, KEEP), &["ids", "int64"]);
        assert_refused(read_with("-9223372036854775809 1\n", RELABELLED, KEEP), &["line 1, column 1"]);
    }

    #[test]
    fn relabelling_many_ids_in_little_memory() {
        // The budget holds 1024 ids: these need dozens of runs.
        let name = |i: u64| (i % 30_000).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
        let contents: String = (0..60_000).map(|i| format!("{} {}\n", name(i), name(i * 7 + 3))).collect();
        let imported = read_with(&contents, RELABELLED, KEEP).unwrap();
        let mut expected: Vec<i64> = (0..30_000).map(|i| name(i) as i64).collect();
        expected.sort_unstable();
        let number = |id: u64| expected.binary_search(&(id as i64)).unwrap() as u32;
        let mut pairs: Vec<_> = (0..60_000).map(|i| (number(name(i * 7 + 3)), number(name(i)))).collect();
        pairs.sort_unstable();
        assert_eq!(imported.node_ids, Some(NodeIds::Signed(expected)));
        assert_eq!(edges(imported).into_iter().map(|(s, d, _)| (d, s)).collect::<Vec<_>>(), pairs);
    }

    #[test]
    fn ids_that_are_no_node_numbers_are_refused_with_a_remedy() {
        let keep = |contents: &str| read_with(contents, Options::default(), KEEP);
        assert_refused(keep("0 1\n-1 0\n"), &["line 2, column 1", "negative", "--ids relabel"]);
        let position = keep("0 1\n-1 0\n").err().and_then(|e| e.position());
        assert_eq!(position, Some(Position::Field { line: 2, column: 1 }));
        assert_refused(keep("0 4294967296\n"), &["line 1, column 2", "--ids relabel", "--num-nodes"]);
        assert_refused(keep("0 18446744073709551616\n"), &["line 1, column 2", "18446744073709551616"]);
        assert_refused(keep("0 5000000\n"), &["1 edges for 5000001 nodes", "--ids relabel"]);
        assert_refused(keep("0 1.5\n"), &["line 1, column 2", "\"1.5\" is not an integer"]);
        assert_refused(keep("1.5 0\n"), &["line 1, column 1"]);
        assert_refused(keep("0\n"), &["line 1, column 2", "nothing where an integer is expected"]);
        assert_refused(keep("1,,2\n"), &["line 1, column 2", "empty field"]);
        assert_refused(keep("# nothing\n\n"), &["no edge"]);
        assert_refused(keep("a b\nc d\n"), &["line 2, column 1", "\"c\" is not an integer"]);
        assert_refused(keep(&"x".repeat(1000)), &["no edge"]);
        assert_refused(keep(&format!("0 {}\n", "1".repeat(1000))), &["line 1, column 2", "(1000 bytes)"]);
        let ten = Options { num_nodes: Some(10), ..Options::default() };
        assert_eq!(read_with("0 1\n", ten, KEEP).unwrap().num_nodes, 10);
        assert_refused(read_with("0 1\n0 10\n", ten, KEEP), &["line 2, column 2", "--num-nodes"]);
        // A given number of nodes is believed, however few edges there are.
        let many = Options { num_nodes: Some(1 << 33), ..Options::default() };
        assert_eq!(read_with("0 8000000000\n", many, KEEP).unwrap().num_nodes, 1 << 33);
    }
}
