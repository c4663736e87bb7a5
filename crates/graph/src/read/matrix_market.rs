//! Matrix Market coordinate files, plain or gzip.
//!
//! The matrix is square, its indices count from 1, and an entry in row i and column j is the edge i → j, as in SciPy
//! and NetworkX; entries stored as zero are edges too. `symmetric` files list one triangle, which is expanded. Values
//! of `real` and `integer` files become edge features of one column; `pattern` files have none. `complex`, `hermitian`,
//! `skew-symmetric` and dense `array` files are refused: they are no graphs.

use graphweft_base::Result;

use super::edge_list::check_nodes;
use super::imported::EdgeFeatures;
use super::text::{Cursor, Text, Wrong, show};
use super::{Context, Imported, Input};
use crate::build::{EdgeSorter, Expected, Spool};

/// What the first line says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Banner {
    pattern: bool,
    symmetric: bool,
}

/// What the second line says.
#[derive(Clone, Copy)]
struct Size {
    nodes: u64,
    entries: u64,
}

/// Reads a Matrix Market file.
///
/// # Errors
/// [`Error::BadInput`](graphweft_base::Error::BadInput) naming the line and the column.
pub fn read(input: &Input, cx: &Context<'_>) -> Result<Imported> {
    let mut text = Text::open(input, cx)?;
    let first = text.line()?.unwrap_or_default();
    let banner = banner(&first).map_err(|wrong| text.bad_line(&wrong))?;
    let Some(size) = size(&mut text)? else {
        return Err(input.bad("size", "the file ends before its line \"rows columns entries\"", "download it again"));
    };
    check_nodes(input, size.nodes, size.entries)?;

    let mut edges =
        EdgeSorter::new(Expected { num_nodes: size.nodes, origins: !banner.pattern }, cx.rules, cx.scratch)?;
    let mut values = Spool::new(cx.scratch);
    let mut entries = 0u64;
    text.pieces(
        |piece| parse(piece, banner, size.nodes),
        |piece| {
            entries += piece.entries;
            values.push(&piece.values)?;
            edges.push(&piece.edges)
        },
    )?;
    if entries != size.entries {
        let problem = format!("{entries} entries, the header says {}", size.entries);
        return Err(input.bad("entries", problem, "the file is cut short or its header is wrong"));
    }
    let edge_features = match banner.pattern {
        true => None,
        false => Some(EdgeFeatures { values: values.finish()?, width: 1 }),
    };
    Ok(Imported { edge_features, ..Imported::new(size.nodes as usize, edges) })
}

fn banner(line: &[u8]) -> std::result::Result<Banner, Wrong> {
    let words: Vec<String> = line
        .split(u8::is_ascii_whitespace)
        .filter(|w| !w.is_empty())
        .take(5)
        .map(|w| String::from_utf8_lossy(w).to_ascii_lowercase())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ["%%matrixmarket", object, form, field, symmetry] = words[..] else {
        let problem = format!("{} is no Matrix Market header", show(line));
        return Err(Wrong::new(0, problem, "the first line must be: %%MatrixMarket matrix coordinate FIELD SYMMETRY"));
    };
    let refuse = |column, what: &str, expected| {
        Err(Wrong::new(
            column,
            format!("{} is no kind of graph", show(what.as_bytes())),
            format!("expected {expected}"),
        ))
    };
    if object != "matrix" {
        return refuse(2, object, "matrix");
    }
    if form != "coordinate" {
        return refuse(3, form, "coordinate");
    }
    let pattern = match field {
        "pattern" => true,
        "real" | "integer" | "double" => false,
        _ => return refuse(4, field, "real, integer or pattern"),
    };
    let symmetric = match symmetry {
        "general" => false,
        "symmetric" => true,
        _ => return refuse(5, symmetry, "general or symmetric"),
    };
    Ok(Banner { pattern, symmetric })
}

fn size(text: &mut Text<'_>) -> Result<Option<Size>> {
    while let Some(line) = text.line()? {
        let mut c = Cursor::new(&line);
        if c.next_line() {
            return parse_size(&mut c).map(Some).map_err(|wrong| text.bad_line(&wrong));
        }
    }
    Ok(None)
}

fn parse_size(c: &mut Cursor<'_>) -> std::result::Result<Size, Wrong> {
    let mut next = || {
        c.next_field()?;
        c.count()
    };
    let (rows, columns, entries) = (next()?, next()?, next()?);
    if c.next_field()? {
        return Err(Wrong::new(4, "more than three numbers", "this line is: rows columns entries"));
    }
    if rows != columns || rows == 0 {
        let problem = format!("{rows} rows and {columns} columns: the matrix of a graph has as many of each");
        return Err(Wrong::new(0, problem, "only square matrices can be imported"));
    }
    Ok(Size { nodes: rows, entries })
}

#[derive(Default)]
struct Piece {
    entries: u64,
    edges: Vec<[u64; 2]>,
    values: Vec<f32>,
}

fn parse(text: &[u8], banner: Banner, nodes: u64) -> std::result::Result<Piece, (u64, Wrong)> {
    let mut piece = Piece { edges: Vec::with_capacity(text.len() / 8), ..Piece::default() };
    let mut c = Cursor::new(text);
    while c.next_line() {
        entry(&mut c, banner, nodes, &mut piece).map_err(|wrong| (c.line(), wrong))?;
    }
    Ok(piece)
}

#[inline]
fn entry(c: &mut Cursor<'_>, banner: Banner, nodes: u64, piece: &mut Piece) -> std::result::Result<(), Wrong> {
    let mut ends = [0; 2];
    for end in &mut ends {
        c.next_field()?;
        *end = match c.count()? {
            at if (1..=nodes).contains(&at) => at - 1,
            at => {
                let problem = format!("{at}: indices run from 1 to {nodes}");
                return Err(Wrong::new(c.column(), problem, "the file is corrupt or its header is wrong"));
            }
        };
    }
    let [row, column] = ends;
    piece.entries += 1;
    piece.edges.push([row, column]);
    let mirrored = banner.symmetric && row != column;
    if mirrored {
        piece.edges.push([column, row]);
    }
    if !banner.pattern {
        c.next_field()?;
        let before = *c;
        let value = c.number()?;
        if !value.is_finite() {
            return Err(before.not("a finite number"));
        }
        piece.values.extend(std::iter::repeat_n(value, 1 + usize::from(mirrored)));
    }
    if c.next_field()? {
        return Err(Wrong::new(
            c.column() + 1,
            "one number too many",
            "the entries do not fit the first line of the file",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::{assert_refused, edges, read_text_by};

    #[test]
    fn entry_i_j_is_the_edge_from_i_to_j() {
        let general = "%%MatrixMarket matrix coordinate real general\n% comment\n3 3 2\n1 2 0.5\n3 3 -1e0\n";
        assert_eq!(edges(read_text_by(read, general).unwrap()), [(0, 1, 0.5), (2, 2, -1.0)]);
        let symmetric = "%%matrixmarket MATRIX coordinate integer symmetric\n3 3 2\n2 1 4\n3 3 1\n";
        assert_eq!(edges(read_text_by(read, symmetric).unwrap()), [(1, 0, 4.0), (0, 1, 4.0), (2, 2, 1.0)]);
        let pattern = read_text_by(read, "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n").unwrap();
        assert!(pattern.edge_features.is_none());
        assert_eq!(edges(pattern), [(0, 1, 0.0)]);
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        let with = |kind: &str, body: &str| read_text_by(read, &format!("%%MatrixMarket matrix {kind}\n{body}"));
        assert_refused(read_text_by(read, "1 2 3\n"), &["line 1", "no Matrix Market header"]);
        assert_refused(with("array real general", "1 1\n1\n"), &["line 1, column 3", "array"]);
        assert_refused(with("coordinate complex general", ""), &["column 4", "complex"]);
        assert_refused(with("coordinate real skew-symmetric", ""), &["column 5", "skew"]);
        assert_refused(with("coordinate real hermitian", ""), &["column 5"]);
        let pattern = |body: &str| with("coordinate pattern general", body);
        assert_refused(pattern(""), &["size"]);
        assert_refused(pattern("2 3 1\n1 1\n"), &["line 2", "square"]);
        assert_refused(pattern("2 2 -1\n"), &["line 2, column 3", "\"-1\""]);
        assert_refused(pattern("99999999999999999999 2 1\n"), &["line 2, column 1"]);
        assert_refused(pattern("9000000000 9000000000 1\n1 1\n"), &["isolated"]);
        let most = u64::MAX;
        assert_refused(pattern(&format!("{most} {most} {most}\n1 1\n")), &["nodes", "at most"]);
        assert_refused(pattern("2 2 1\n0 1\n"), &["line 3, column 1", "from 1 to 2"]);
        assert_refused(pattern("2 2 1\n1 3\n"), &["line 3, column 2", "from 1 to 2"]);
        assert_refused(pattern("2 2 1\n1 2 5\n"), &["line 3, column 3", "too many"]);
        assert_refused(pattern("2 2 5\n1 2\n"), &["1 entries, the header says 5"]);
        let real = |body: &str| with("coordinate real general", body);
        assert_refused(real("2 2 1\n1 2\n"), &["line 3, column 3", "nothing"]);
        assert_refused(real("2 2 1\n1 2 inf\n"), &["line 3, column 3", "finite"]);
    }
}
