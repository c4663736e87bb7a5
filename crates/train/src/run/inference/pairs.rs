//! What a model of links says of pairs of nodes: the scores of given ones, or the best partners of nodes.
//!
//! The rank that leads has the rows of all nodes and compares one block of nodes after the other with all of them: what
//! that takes beside the rows are the best partners of a block. A score is the one that [`links`](crate::epochs::links)
//! evaluates by, in f64 and column by column.
//!
//! Nodes are named and written by the ids of their source. A file that names some is text: a line for each, with
//! commas, tabs or spaces between ids, and possibly a first line that says what the columns are. Where links have
//! relations, these stand between both ends, or after the head, by name or number.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use graphweft_base::progress::{Progress, Unit};
use graphweft_base::{Error as Bad, Position, Problem, durable};
use graphweft_graph::dataset::Task as DatasetTask;
use graphweft_model::decoders::{HostDecoder, Missing};
use graphweft_tensor::Device;
use rayon::prelude::*;

use super::Trained;
use crate::data::Data;
use crate::epochs::links::{Tails, decoder_of};
use crate::error::Result;
use crate::ranks::rank::Rank;
use crate::ranks::world::World;
use crate::run::run_dir::check_target;
use crate::task::predictions::{NodeIds, Places, quoted};

/// Nodes whose best partners are kept until they are written.
const BLOCK: usize = 1 << 10;

impl Trained {
    /// Writes the scores of the pairs of nodes in the file `pairs` as CSV; gives how many there are, in the process
    /// that leads.
    ///
    /// # Errors
    /// If the model is none of links, or a line names no two nodes.
    pub fn write_pair_scores(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        pairs: &Path,
        to: &Path,
    ) -> Result<Option<usize>> {
        let width = data.link_width();
        let asked = self.asked(world, data, to, |words| lines(pairs, columns_of(width), words))?;
        let Some(rows) = self.rows(world, data, progress)? else { return Ok(None) };
        let asked_of = |link: &[usize]| Query { head: link[0], relation: (width == 3).then(|| link[1]) };
        let score = |link: &[usize]| rows.score(&rows.query(asked_of(link)), link[width - 1]);
        let scores: Vec<f64> = asked.nodes.par_chunks_exact(width).map(score).collect();
        write(to, &asked.ids, |out| {
            let mut links = asked.nodes.chunks_exact(width).zip(&scores);
            links.try_for_each(|(link, score)| out.line(asked_of(link), link[width - 1], *score))
        })?;
        Ok(Some(scores.len()))
    }

    /// Writes the best `count` partners as CSV, the best first, of the nodes that the file `of` names or of all; gives
    /// how many lines there are, in the process that leads. A node is not its own partner, and those that an edge leads
    /// from are known; where links have relations, tails of training are known.
    ///
    /// # Errors
    /// If the model is none of links, or a line names no node.
    pub fn write_partners(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        count: usize,
        of: Option<&Path>,
        to: &Path,
    ) -> Result<Option<usize>> {
        let given = data.link_width() - 1;
        let all = || match given {
            1 => Ok((0..data.graph.num_dst()).collect()),
            _ => {
                let what = "the best tails of all heads and relations are too many";
                Err(Bad::request(what, "name some with --of: a head and a relation in each line").into())
            }
        };
        let listed = |file: &Path, words: &Words<'_>| lines(file, &HEADS[..given], words);
        let asked = self.asked(world, data, to, |words| of.map_or_else(all, |file| listed(file, words)))?;
        let Some(rows) = self.rows(world, data, progress)? else { return Ok(None) };
        let phase = progress.start("best partners", (asked.nodes.len() / given) as u64, Unit::Items);
        let (mut written, tails) = (0, (given == 2).then(|| Tails::of(data)));
        write(to, &asked.ids, |out| {
            for block in asked.nodes.chunks(BLOCK * given) {
                let best = |given: &[usize]| {
                    let query = Query { head: given[0], relation: given.get(1).copied() };
                    match (&tails, query.relation) {
                        (Some(tails), Some(relation)) => rows.best(query, count, &tails.of_head(query.head, relation)),
                        _ => rows.best(query, count, data.graph.row(query.head)),
                    }
                };
                let found: Vec<Vec<Scored>> = block.par_chunks_exact(given).map(best).collect();
                for (given, found) in block.chunks_exact(given).zip(found) {
                    let query = Query { head: given[0], relation: given.get(1).copied() };
                    written += found.len();
                    found.iter().try_for_each(|one| out.line(query, one.node as usize, one.score))?;
                }
                phase.add((block.len() / given) as u64);
            }
            Ok(())
        })?;
        Ok(Some(written))
    }

    /// What is asked, looked at before anything is computed.
    fn asked(
        &self,
        world: &World,
        data: &Data,
        to: &Path,
        nodes: impl FnOnce(&Words<'_>) -> Result<Vec<usize>>,
    ) -> Result<Asked> {
        if data.task.dataset() != DatasetTask::Link {
            let what = format!("{} has no links to predict: a model of it says nothing of pairs", data.name);
            return Err(Bad::request(what, "ask a model of links, or leave out --pairs and --top").into());
        }
        let look = || {
            check_target(to)?;
            let ids = match data.relations() {
                0 => self.ids(data)?,
                _ => NodeIds::of_names(data.folder.as_deref(), data.graph.num_dst())?,
            };
            let relations = if data.relations() > 0 { data.relation_names.clone() } else { Vec::new() };
            let places = ids.places(data.graph.num_dst());
            let nodes = nodes(&Words { places: &places, relations: &relations })?;
            Ok(Asked { nodes, ids: Names { nodes: ids, relations } })
        };
        let nothing = || Asked { nodes: Vec::new(), ids: Names { nodes: NodeIds::Places, relations: Vec::new() } };
        Self::looked_at(world, look, nothing)
    }

    /// The rows of all nodes, in the process that leads.
    fn rows(self: &Arc<Self>, world: &World, data: &Arc<Data>, progress: &dyn Progress) -> Result<Option<Rows>> {
        let Some((values, cols)) = self.predict(world, data, progress)? else { return Ok(None) };
        let (rank, widths) = (Rank::alone(&Device::cpu()), if self.config.link.variational { 2 } else { 1 });
        let decoder = decoder_of(&rank, &self.config, data.relations(), widths * cols)?;
        for p in decoder.parameters() {
            let found = self.model.matrix(rank.device(), p.name(), &p.value())?;
            p.update(|value| {
                *value = found;
                Ok(())
            })?;
        }
        let values = values.into_iter().map(f64::from).collect();
        Ok(Some(Rows { values, cols, decoder: decoder.on_host()? }))
    }
}

/// What a word of a line is.
#[derive(Clone, Copy)]
enum Column {
    Node,
    Relation,
}

/// What is asked for the other end of.
const HEADS: [Column; 2] = [Column::Node, Column::Relation];

/// The columns of links of so many numbers.
fn columns_of(width: usize) -> &'static [Column] {
    if width == 3 { &[Column::Node, Column::Relation, Column::Node] } else { &[Column::Node; 2] }
}

/// Nodes and relations by their names.
struct Words<'a> {
    places: &'a Places,
    relations: &'a [String],
}

impl Words<'_> {
    fn of(&self, column: Column, word: &str) -> Option<usize> {
        match column {
            Column::Node => self.places.of(word),
            Column::Relation => {
                let named = self.relations.iter().position(|name| name == word);
                named.or_else(|| word.parse().ok().filter(|number| *number < self.relations.len()))
            }
        }
    }
}

/// A node and a relation, if there are any, of which the other end is asked.
#[derive(Clone, Copy)]
struct Query {
    head: usize,
    relation: Option<usize>,
}

/// What is written in place of numbers.
struct Names {
    nodes: NodeIds,
    relations: Vec<String>,
}

/// Nodes that are asked for, and what ids all nodes have.
struct Asked {
    nodes: Vec<usize>,
    ids: Names,
}

/// The nodes and relations that the lines of a file name.
fn lines(path: &Path, kinds: &[Column], names: &Words<'_>) -> Result<Vec<usize>> {
    let columns = kinds.len();
    let unreadable = |e: std::io::Error| Bad::unreadable(path, "file", &e);
    let mut nodes = Vec::new();
    for (number, line) in (1u64..).zip(BufReader::new(File::open(path).map_err(unreadable)?).lines()) {
        let line = line.map_err(unreadable)?;
        // Names may have spaces and commas in them: then there are tabs between.
        let words: Vec<&str> = match line.contains('\t') && !names.relations.is_empty() {
            true => line.split('\t').map(str::trim).filter(|word| !word.is_empty()).collect(),
            false => line.split([',', '\t', ' ', '\r']).filter(|word| !word.is_empty()).collect(),
        };
        if words.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |problem: String| {
            let problem = Problem::at(Position::Line(number), problem);
            let remedy = format!("write {columns} of the ids that the data were imported with in each line");
            Bad::bad(path, format!("line {number}"), problem, remedy)
        };
        let found = words.iter().zip(kinds.iter().chain(std::iter::repeat(&Column::Node)));
        let found: Vec<Option<usize>> = found.map(|(word, kind)| names.of(*kind, word)).collect();
        // What begins no number is the name of a column.
        let is_header = words.iter().all(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'));
        if number == 1 && is_header && found.iter().all(Option::is_none) {
            continue;
        }
        if found.len() != columns {
            return Err(wrong(format!("{} columns, expected {columns}", found.len())).into());
        }
        for (word, (found, kind)) in words.iter().zip(found.into_iter().zip(kinds)) {
            let noun = if let Column::Relation = kind { "relation" } else { "node" };
            nodes.push(found.ok_or_else(|| wrong(format!("there is no {noun} {word:?}")))?);
        }
    }
    Ok(nodes)
}

/// What a model gives for every node.
struct Rows {
    values: Vec<f64>,
    cols: usize,
    decoder: Box<dyn HostDecoder>,
}

/// A node and how well it goes with another one.
#[derive(Clone, Copy)]
struct Scored {
    node: u32,
    score: f64,
}

impl Rows {
    fn row(&self, node: usize) -> &[f64] {
        &self.values[node * self.cols..][..self.cols]
    }

    fn query(&self, query: Query) -> Vec<f64> {
        self.decoder.query(self.row(query.head), query.relation.unwrap_or(0) as u32, Missing::Tail)
    }

    fn score(&self, query: &[f64], partner: usize) -> f64 {
        self.decoder.finish(self.decoder.add(0.0, query, self.row(partner)))
    }

    /// The best `count` partners of a node but those that are `known`, which ascend: by score, of equal ones the first.
    /// Without relations no node is its own partner.
    fn best(&self, of: Query, count: usize, known: &[u32]) -> Vec<Scored> {
        let (query, itself) = (self.query(of), of.relation.is_none().then_some(of.head as u32));
        let better = |a: &Scored, b: &Scored| b.score.total_cmp(&a.score).then(a.node.cmp(&b.node));
        let mut best: Vec<Scored> = Vec::new();
        let nodes = self.values.len() / self.cols.max(1);
        for other in (0..nodes as u32).filter(|k| Some(*k) != itself && known.binary_search(k).is_err()) {
            best.push(Scored { node: other, score: self.score(&query, other as usize) });
            if best.len() > 2 * count {
                best.select_nth_unstable_by(count, better);
                best.truncate(count);
            }
        }
        best.sort_unstable_by(better);
        best.truncate(count);
        best
    }
}

/// Lines of pairs with their scores.
struct Lines<'a, W> {
    out: W,
    ids: &'a Names,
}

impl<W: Write> Lines<'_, W> {
    fn line(&mut self, of: Query, target: usize, score: f64) -> std::io::Result<()> {
        self.ids.nodes.write(&mut self.out, of.head)?;
        self.out.write_all(b",")?;
        if let Some(relation) = of.relation {
            write!(self.out, "{},", quoted(&self.ids.relations[relation]))?;
        }
        self.ids.nodes.write(&mut self.out, target)?;
        writeln!(self.out, ",{score}")
    }
}

/// Writes a file of pairs; what fails leaves none.
fn write(
    path: &Path,
    ids: &Names,
    fill: impl FnOnce(&mut Lines<'_, BufWriter<File>>) -> std::io::Result<()>,
) -> Result<()> {
    durable::replace_by(path, |partial| {
        let all = || -> std::io::Result<()> {
            let mut lines = Lines { out: BufWriter::new(File::create(partial)?), ids };
            let header = if ids.relations.is_empty() { "source,target" } else { "head,relation,tail" };
            writeln!(lines.out, "{header},score")?;
            fill(&mut lines)?;
            lines.out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
        };
        Ok(all().map_err(Bad::write("write", path))?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_those_of_a_sorted_list() {
        let values: Vec<f64> = (0..40).map(|k| f64::from((k * 7 + 3) % 11) - 5.0).collect();
        let config = crate::config::Draft::default().finish().unwrap();
        let decoder = decoder_of(&Rank::alone(&Device::cpu()), &config, 0, 2).unwrap().on_host().unwrap();
        let rows = Rows { values, cols: 2, decoder };
        let of = |head| Query { head, relation: None };
        for (node, count, known) in [(0, 3, &[][..]), (4, 1, &[7, 8, 9]), (19, 30, &[0, 18]), (2, 0, &[])] {
            let mut all: Vec<(f64, u32)> = (0..20)
                .filter(|k| *k != node && !known.contains(k))
                .map(|k| (-rows.score(&rows.query(of(node as usize)), k as usize), k))
                .collect();
            all.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let found: Vec<u32> = rows.best(of(node as usize), count, known).iter().map(|one| one.node).collect();
            assert_eq!(found, all.iter().take(count).map(|(_, k)| *k).collect::<Vec<u32>>(), "{node} {count}");
        }
    }

    #[test]
    fn lines_name_nodes_by_their_ids_and_what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs.csv");
        let read = |text: &str, places: &Places| {
            std::fs::write(&path, text).unwrap();
            lines(&path, &[Column::Node; 2], &Words { places, relations: &[] }).map_err(|e| e.to_string())
        };
        let ids = NodeIds::Signed(vec![70, -3, 12].into());
        let listed = ids.places(3);
        assert_eq!(read("source,target\n12,70\n# more\n\n-3\t12\r\n", &listed).unwrap(), [2, 0, 1, 2]);
        assert_eq!(read("0 2\n1 1\n", &Places::Numbers(3)).unwrap(), [0, 2, 1, 1]);
        let message = read("12,70\n12,71\n", &listed).unwrap_err();
        assert!(message.contains("pairs.csv") && message.contains("line 2") && message.contains("\"71\""), "{message}");
        assert!(read("12\n", &listed).unwrap_err().contains("1 columns, expected 2"));
        assert!(read("0,3\n", &Places::Numbers(3)).is_err() && read("a,b\n0,x\n", &Places::Numbers(3)).is_err());
        assert!(lines(&dir.path().join("none"), &[], &Words { places: &listed, relations: &[] }).is_err());
    }
}
