//! METIS `.graph` files, plain or gzip.
//!
//! The header is `vertices edges [fmt [ncon]]`; then each vertex has a line with its neighbours, counted from 1. The
//! digits of `fmt` say whether a line begins with the vertex' size, whether `ncon` weights of the vertex follow, and
//! whether each neighbour is followed by the weight of the edge. Sizes and weights of vertices are skipped, weights of
//! edges become edge features. Each edge stands in two lines: the header's count and the symmetry are checked.
//!
//! A hub's line may be as long as the graph is large, so the file is read number by number, never line by line.

use std::io::Read;

use graphweft_base::{Error, Position, Problem, Result};

use super::imported::{EdgeFeatures, Undirected};
use super::{Context, Imported, Input};
use crate::build::{EdgeSorter, Expected, Spool};

/// Bytes read, and edges pushed, at a time.
const CHUNK: usize = 1 << 18;

/// Reads a METIS file.
///
/// # Errors
/// [`Error::BadInput`] naming the line.
pub fn read(input: &Input, cx: &Context<'_>) -> Result<Imported> {
    let mut tokens = Tokens::open(input, cx)?;
    let header = Header::read(&mut tokens)?;
    let expected = Expected { num_nodes: header.vertices, origins: header.edge_weights };
    let mut out = Out {
        edges: EdgeSorter::new(expected, cx.rules, cx.scratch)?,
        values: Spool::new(cx.scratch),
        chunk: Vec::new(),
        weights: Vec::new(),
    };
    for vertex in 0..header.vertices {
        neighbours(&mut tokens, &header, vertex, &mut out)?;
    }
    while let Some(token) = tokens.next()? {
        if token != Token::LineEnd {
            let problem = format!("more lines than the {} vertices of the header", header.vertices);
            return Err(tokens.bad(problem, "correct the header"));
        }
    }
    out.flush()?;

    let (found, expected) = (out.edges.pushed(), header.edges.saturating_mul(2));
    if found != expected {
        let problem = format!("{found} neighbours are listed, {} edges need {expected}", header.edges);
        return Err(input.bad("edges", problem, "each edge stands in two lines and counts once in the header"));
    }
    let edge_features = match header.edge_weights {
        true => Some(EdgeFeatures { values: out.values.finish()?, width: 1 }),
        false => None,
    };
    let undirected = Some(Undirected { file: input.path().to_path_buf() });
    let notes = match header.skipped() {
        0 => Vec::new(),
        n => vec![format!("{n} size(s) and weight(s) per vertex were skipped")],
    };
    Ok(Imported { edge_features, undirected, notes, ..Imported::new(header.vertices as usize, out.edges) })
}

struct Header {
    vertices: u64,
    edges: u64,
    vertex_sizes: bool,
    /// Weights per vertex.
    constraints: u64,
    edge_weights: bool,
}

impl Header {
    fn read(tokens: &mut Tokens<'_>) -> Result<Self> {
        let mut numbers = Vec::new();
        loop {
            match tokens.next()? {
                Some(Token::Number(x)) if numbers.len() < 4 => numbers.push(x),
                Some(Token::Number(_)) => {
                    return Err(tokens.bad("more than four numbers", "the header is: vertices edges [fmt [ncon]]"));
                }
                Some(Token::LineEnd) if numbers.is_empty() => {}
                Some(Token::LineEnd) | None => break,
            }
        }
        let (vertices, edges, fmt, ncon) = match numbers[..] {
            [v, e] => (v, e, 0, 1),
            [v, e, fmt] => (v, e, fmt, 1),
            [v, e, fmt, ncon] => (v, e, fmt, ncon),
            _ => return Err(tokens.bad("the header is missing", "the first line is: vertices edges [fmt [ncon]]")),
        };
        let digits = [fmt / 100, fmt / 10 % 10, fmt % 10];
        if digits.iter().any(|&d| d > 1) {
            return Err(tokens.bad(format!("fmt is {fmt:03}"), "each of its three digits is 0 or 1"));
        }
        if vertices == 0 {
            return Err(tokens.bad("the graph has no vertices", "check that the file is complete"));
        }
        if vertices > EdgeSorter::MOST_NODES {
            let problem = format!("{vertices} vertices: at most {} are supported", EdgeSorter::MOST_NODES);
            return Err(tokens.bad(problem, "correct the header"));
        }
        let [vertex_sizes, vertex_weights, edge_weights] = digits.map(|d| d == 1);
        Ok(Self { vertices, edges, vertex_sizes, constraints: if vertex_weights { ncon } else { 0 }, edge_weights })
    }

    /// Numbers at the beginning of each line that are not read.
    fn skipped(&self) -> u64 {
        self.constraints.saturating_add(u64::from(self.vertex_sizes))
    }
}

/// Reads the line of one vertex.
fn neighbours(tokens: &mut Tokens<'_>, header: &Header, vertex: u64, out: &mut Out) -> Result<()> {
    let remedy = "the file is cut short, or its header is wrong";
    let mut to_skip = header.skipped();
    let mut first = true;
    loop {
        let id = match tokens.next()? {
            Some(Token::Number(_)) if to_skip > 0 => {
                to_skip -= 1;
                first = false;
                continue;
            }
            Some(Token::Number(id)) => id,
            None if first => {
                let problem = format!("the file ends at vertex {} of {}", vertex + 1, header.vertices);
                return Err(tokens.bad(problem, remedy));
            }
            Some(Token::LineEnd) | None if to_skip > 0 => {
                let problem = format!("vertex {}: sizes or weights announced by the header are missing", vertex + 1);
                return Err(tokens.bad(problem, remedy));
            }
            Some(Token::LineEnd) | None => return Ok(()),
        };
        first = false;
        if !(1..=header.vertices).contains(&id) {
            let problem =
                format!("neighbour {id} of vertex {}: vertices run from 1 to {}", vertex + 1, header.vertices);
            return Err(tokens.bad(problem, remedy));
        }
        if header.edge_weights {
            match tokens.next()? {
                Some(Token::Number(weight)) => out.weights.push(weight as f32),
                _ => {
                    let problem = format!("neighbour {id} of vertex {} has no weight", vertex + 1);
                    return Err(tokens.bad(problem, remedy));
                }
            }
        }
        out.chunk.push([vertex, id - 1]);
        if out.chunk.len() == CHUNK {
            out.flush()?;
        }
    }
}

/// Where edges go.
struct Out {
    edges: EdgeSorter,
    values: Spool<f32>,
    chunk: Vec<[u64; 2]>,
    weights: Vec<f32>,
}

impl Out {
    fn flush(&mut self) -> Result<()> {
        self.edges.push(&self.chunk)?;
        self.values.push(&self.weights)?;
        self.chunk.clear();
        self.weights.clear();
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token {
    Number(u64),
    LineEnd,
}

/// The numbers and line ends of a file; comment lines are skipped whole.
struct Tokens<'a> {
    input: &'a Input,
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    at: usize,
    line: u64,
    /// Nothing but blanks since the last line end.
    line_start: bool,
}

impl<'a> Tokens<'a> {
    fn open(input: &'a Input, cx: &Context<'_>) -> Result<Self> {
        let reader = input.text(cx.progress)?;
        Ok(Self { input, reader, buffer: Vec::new(), at: 0, line: 1, line_start: true })
    }

    /// The next byte, which stays next.
    #[inline]
    fn peek(&mut self) -> Result<Option<u8>> {
        match self.buffer.get(self.at) {
            Some(&b) => Ok(Some(b)),
            None => self.refill(),
        }
    }

    #[cold]
    fn refill(&mut self) -> Result<Option<u8>> {
        self.buffer.clear();
        self.at = 0;
        let read = self.reader.by_ref().take(CHUNK as u64).read_to_end(&mut self.buffer);
        read.map_err(|e| self.input.unreadable(&e))?;
        Ok(self.buffer.first().copied())
    }

    fn next(&mut self) -> Result<Option<Token>> {
        while let Some(byte) = self.peek()? {
            match byte {
                b'0'..=b'9' => {
                    self.line_start = false;
                    return self.number().map(|x| Some(Token::Number(x)));
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = true;
                    return Ok(Some(Token::LineEnd));
                }
                b'%' if self.line_start => self.skip_line()?,
                b => {
                    let problem = format!("{:?} where a number is expected", char::from(b));
                    return Err(self.bad(problem, "a METIS file consists of integers that are not negative"));
                }
            }
        }
        Ok(None)
    }

    #[inline]
    fn number(&mut self) -> Result<u64> {
        let mut x = 0u64;
        while let Some(byte) = self.peek()? {
            let digit = match byte {
                b'0'..=b'9' => u64::from(byte - b'0'),
                b' ' | b'\t' | b'\r' | b'\n' => break,
                b => {
                    let problem = format!("{:?} inside a number", char::from(b));
                    return Err(self.bad(problem, "a METIS file consists of integers that are not negative"));
                }
            };
            let next = x.checked_mul(10).and_then(|x| x.checked_add(digit));
            x = next.ok_or_else(|| self.bad("a number beyond 2⁶⁴", "correct the number"))?;
            self.at += 1;
        }
        Ok(x)
    }

    fn skip_line(&mut self) -> Result<()> {
        while let Some(byte) = self.peek()? {
            self.at += 1;
            if byte == b'\n' {
                self.line += 1;
                break;
            }
        }
        Ok(())
    }

    /// An error in the current line.
    fn bad(&self, problem: impl Into<String>, remedy: &str) -> Error {
        self.input.bad(format!("line {}", self.line), Problem::at(Position::Line(self.line), problem), remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::{assert_refused, edges, read_text_by};

    #[test]
    fn weights_are_told_apart_by_the_format_digits() {
        let plain = read_text_by(read, "% a path\n3 2\n2\n% between\n1 3\n2\n").unwrap();
        assert_eq!(edges(plain), [(1, 0, 0.0), (0, 1, 0.0), (2, 1, 0.0), (1, 2, 0.0)]);
        let weighted = read_text_by(read, "3 2 001\n2 7\n1 7 3 9\n2 9").unwrap();
        assert_eq!(edges(weighted), [(1, 0, 7.0), (0, 1, 7.0), (2, 1, 9.0), (1, 2, 9.0)]);
        let all = read_text_by(read, "2 1 111 2\n50 60 70 2 7\n50 60 70 1 7\n\n").unwrap();
        assert_eq!(all.notes, ["3 size(s) and weight(s) per vertex were skipped"]);
        assert_eq!(edges(all), [(1, 0, 7.0), (0, 1, 7.0)]);
        let isolated = read_text_by(read, "4 1\r\n\r\n3\r\n2\r\n\r\n").unwrap();
        assert_eq!(edges(isolated), [(2, 1, 0.0), (1, 2, 0.0)]);
    }

    #[test]
    fn a_line_may_be_longer_than_any_buffer() {
        let leaves = 300_000;
        let hub: String = (2..leaves + 2).map(|i| format!("{i} ")).collect();
        let contents = format!("{} {leaves}\n{hub}\n{}", leaves + 1, "1\n".repeat(leaves));
        assert!(contents.len() > 4 * CHUNK);
        let all = edges(read_text_by(read, &contents).unwrap());
        assert_eq!(all.len(), 2 * leaves);
        assert_eq!(all[leaves - 1], (leaves as u32, 0, 0.0));
    }

    #[test]
    fn a_header_that_does_not_fit_is_refused() {
        assert_refused(read_text_by(read, "3\n"), &["header"]);
        assert_refused(read_text_by(read, "0 0\n"), &["line", "no vertices"]);
        assert_refused(read_text_by(read, "1 2 3 4 5\n"), &["line 1", "four numbers"]);
        assert_refused(read_text_by(read, "2 1 200\n2\n1\n"), &["fmt is 200"]);
        assert_refused(read_text_by(read, "2 1\n2\n"), &["ends at vertex 2 of 2"]);
        assert_refused(read_text_by(read, "1099511627776 1\n2\n1\n"), &["ends at vertex 3 of 1099511627776"]);
        assert_refused(read_text_by(read, "1099511627777 1\n2\n1\n"), &["at most"]);
        assert_refused(read_text_by(read, "2 1\n2\n1\n1\n"), &["line 4", "more lines"]);
        assert_refused(read_text_by(read, "2 2\n2\n1\n"), &["2 neighbours are listed, 2 edges need 4"]);
        assert_refused(read_text_by(read, "2 1\n3\n1\n"), &["line 2", "neighbour 3 of vertex 1"]);
        assert_refused(read_text_by(read, "2 1\n0\n1\n"), &["line 2", "neighbour 0 of vertex 1"]);
        assert_refused(read_text_by(read, "2 1\n-2\n1\n"), &["line 2", "'-'"]);
        assert_refused(read_text_by(read, "2 1 1\n2 7\n1\n"), &["neighbour 1 of vertex 2 has no weight"]);
        assert_refused(read_text_by(read, "2 1 10 3\n1 2\n1 2 3 1\n"), &["vertex 1", "missing"]);
        assert_refused(read_text_by(read, "2 99999999999999999999\n"), &["line 1", "2⁶⁴"]);
        assert_refused(read_text_by(read, "2 1\n2x\n1\n"), &["line 2", "'x' inside a number"]);
    }
}
