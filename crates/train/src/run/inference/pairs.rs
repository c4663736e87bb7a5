//! What a model of links says of pairs of nodes: the scores of given ones, or the best partners of nodes.
//!
//! The rank that leads has the rows of all nodes and compares one block of nodes after the other with all of them: what
//! that takes beside the rows are the best partners of a block. A score is the one that [`links`](crate::epochs::links)
//! evaluates by, in f64 and column by column.
//!
//! Nodes are named and written by the ids of their source. A file that names some is text: a line for each, with
//! commas, tabs or spaces between ids, and possibly a first line that says what the columns are.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use graphweft_base::progress::{Progress, Unit};
use graphweft_base::{Error as Bad, Position, Problem, durable};
use graphweft_graph::dataset::Task as DatasetTask;
use rayon::prelude::*;

use super::Trained;
use crate::data::Data;
use crate::error::Result;
use crate::ranks::world::World;
use crate::run::run_dir::check_target;
use crate::task::predictions::{NodeIds, Places};

/// Nodes whose best partners are kept until they are written.
const BLOCK: usize = 1 << 10;

/// Best partners to write.
#[derive(Clone, Debug)]
pub struct Partners<'a> {
    /// How many of each node.
    pub count: usize,
    /// A file that names the nodes; all if there is none.
    pub of: Option<&'a Path>,
}

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
        let asked = self.asked(world, data, to, |places| lines(pairs, 2, places))?;
        let Some(rows) = self.rows(world, data, progress)? else { return Ok(None) };
        let scores: Vec<f64> = asked.nodes.par_chunks_exact(2).map(|pair| rows.score(pair[0], pair[1])).collect();
        write(to, &asked.ids, |out| {
            let mut pairs = asked.nodes.chunks_exact(2).zip(&scores);
            pairs.try_for_each(|(pair, score)| out.line(pair[0], pair[1], *score))
        })?;
        Ok(Some(scores.len()))
    }

    /// Writes the best partners of nodes as CSV, the best first; gives how many lines there are, in the process that
    /// leads. A node is not its own partner, and those that an edge leads from are known.
    ///
    /// # Errors
    /// If the model is none of links, or a line names no node.
    pub fn write_partners(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        partners: &Partners<'_>,
        to: &Path,
    ) -> Result<Option<usize>> {
        let all = || Ok((0..data.graph.num_dst()).collect());
        let asked =
            self.asked(world, data, to, |places| partners.of.map_or_else(all, |file| lines(file, 1, places)))?;
        let Some(rows) = self.rows(world, data, progress)? else { return Ok(None) };
        let phase = progress.start("best partners", asked.nodes.len() as u64, Unit::Items);
        let mut written = 0;
        write(to, &asked.ids, |out| {
            for block in asked.nodes.chunks(BLOCK) {
                let best = |node: &usize| rows.best(*node, partners.count, data.graph.row(*node));
                let found: Vec<Vec<Scored>> = block.par_iter().map(best).collect();
                for (node, found) in block.iter().zip(found) {
                    written += found.len();
                    found.iter().try_for_each(|one| out.line(*node, one.node as usize, one.score))?;
                }
                phase.add(block.len() as u64);
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
        nodes: impl FnOnce(&Places) -> Result<Vec<usize>>,
    ) -> Result<Asked> {
        if data.task.dataset() != DatasetTask::Link {
            let what = format!("{} has no links to predict: a model of it says nothing of pairs", data.name);
            return Err(Bad::request(what, "ask a model of links, or leave out --pairs and --top").into());
        }
        let look = || {
            check_target(to)?;
            let ids = self.ids(data)?;
            Ok(Asked { nodes: nodes(&ids.places(data.graph.num_dst()))?, ids })
        };
        Self::looked_at(world, look, || Asked { nodes: Vec::new(), ids: NodeIds::Places })
    }

    /// The rows of all nodes, in the process that leads.
    fn rows(self: &Arc<Self>, world: &World, data: &Arc<Data>, progress: &dyn Progress) -> Result<Option<Rows>> {
        Ok(self.predict(world, data, progress)?.map(|(values, cols)| Rows { values, cols }))
    }
}

/// Nodes that are asked for, and what ids all nodes have.
struct Asked {
    nodes: Vec<usize>,
    ids: NodeIds,
}

/// The nodes that the lines of a file name, so many each.
fn lines(path: &Path, columns: usize, places: &Places) -> Result<Vec<usize>> {
    let unreadable = |e: std::io::Error| Bad::unreadable(path, "file", &e);
    let mut nodes = Vec::new();
    for (number, line) in (1u64..).zip(BufReader::new(File::open(path).map_err(unreadable)?).lines()) {
        let line = line.map_err(unreadable)?;
        let words: Vec<&str> = line.split([',', '\t', ' ', '\r']).filter(|word| !word.is_empty()).collect();
        if words.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |problem: String| {
            let problem = Problem::at(Position::Line(number), problem);
            let remedy = format!("write {columns} of the ids that the data were imported with in each line");
            Bad::bad(path, format!("line {number}"), problem, remedy)
        };
        let found: Vec<Option<usize>> = words.iter().map(|word| places.of(word)).collect();
        // What begins no number is the name of a column.
        let is_header = words.iter().all(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'));
        if number == 1 && is_header && found.iter().all(Option::is_none) {
            continue;
        }
        if found.len() != columns {
            return Err(wrong(format!("{} columns, expected {columns}", found.len())).into());
        }
        for (word, node) in words.iter().zip(found) {
            nodes.push(node.ok_or_else(|| wrong(format!("there is no node {word:?}")))?);
        }
    }
    Ok(nodes)
}

/// What a model gives for every node.
struct Rows {
    values: Vec<f32>,
    cols: usize,
}

/// A node and how well it goes with another one.
#[derive(Clone, Copy)]
struct Scored {
    node: u32,
    score: f64,
}

impl Rows {
    fn row(&self, node: usize) -> &[f32] {
        &self.values[node * self.cols..][..self.cols]
    }

    fn score(&self, a: usize, b: usize) -> f64 {
        self.row(a).iter().zip(self.row(b)).fold(0.0, |sum, (x, y)| sum + f64::from(*x) * f64::from(*y))
    }

    /// The best `count` partners of a node but those that are `known`, which ascend: by score, of equal ones the first.
    fn best(&self, node: usize, count: usize, known: &[u32]) -> Vec<Scored> {
        let better = |a: &Scored, b: &Scored| b.score.total_cmp(&a.score).then(a.node.cmp(&b.node));
        let mut best: Vec<Scored> = Vec::new();
        let nodes = self.values.len() / self.cols.max(1);
        for other in (0..nodes as u32).filter(|k| *k as usize != node && known.binary_search(k).is_err()) {
            best.push(Scored { node: other, score: self.score(node, other as usize) });
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
    ids: &'a NodeIds,
}

impl<W: Write> Lines<'_, W> {
    fn line(&mut self, source: usize, target: usize, score: f64) -> std::io::Result<()> {
        self.ids.write(&mut self.out, source)?;
        self.out.write_all(b",")?;
        self.ids.write(&mut self.out, target)?;
        writeln!(self.out, ",{score}")
    }
}

/// Writes a file of pairs; what fails leaves none.
fn write(
    path: &Path,
    ids: &NodeIds,
    fill: impl FnOnce(&mut Lines<'_, BufWriter<File>>) -> std::io::Result<()>,
) -> Result<()> {
    durable::replace_by(path, |partial| {
        let all = || -> std::io::Result<()> {
            let mut lines = Lines { out: BufWriter::new(File::create(partial)?), ids };
            writeln!(lines.out, "source,target,score")?;
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
        let values: Vec<f32> = (0..40).map(|k| ((k * 7 + 3) % 11) as f32 - 5.0).collect();
        let rows = Rows { values, cols: 2 };
        for (node, count, known) in [(0, 3, &[][..]), (4, 1, &[7, 8, 9]), (19, 30, &[0, 18]), (2, 0, &[])] {
            let mut all: Vec<(f64, u32)> = (0..20)
                .filter(|k| *k != node && !known.contains(k))
                .map(|k| (-rows.score(node as usize, k as usize), k))
                .collect();
            all.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let found: Vec<u32> = rows.best(node as usize, count, known).iter().map(|one| one.node).collect();
            assert_eq!(found, all.iter().take(count).map(|(_, k)| *k).collect::<Vec<u32>>(), "{node} {count}");
        }
    }

    #[test]
    fn lines_name_nodes_by_their_ids_and_what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs.csv");
        let read = |text: &str, places: &Places| {
            std::fs::write(&path, text).unwrap();
            lines(&path, 2, places).map_err(|e| e.to_string())
        };
        let ids = NodeIds::Signed(vec![70, -3, 12].into());
        let listed = ids.places(3);
        assert_eq!(read("source,target\n12,70\n# more\n\n-3\t12\r\n", &listed).unwrap(), [2, 0, 1, 2]);
        assert_eq!(read("0 2\n1 1\n", &Places::Numbers(3)).unwrap(), [0, 2, 1, 1]);
        let message = read("12,70\n12,71\n", &listed).unwrap_err();
        assert!(message.contains("pairs.csv") && message.contains("line 2") && message.contains("\"71\""), "{message}");
        assert!(read("12\n", &listed).unwrap_err().contains("1 columns, expected 2"));
        assert!(read("0,3\n", &Places::Numbers(3)).is_err() && read("a,b\n0,x\n", &Places::Numbers(3)).is_err());
        assert!(lines(&dir.path().join("none"), 2, &listed).is_err());
    }
}
