//! Folders of knowledge graphs whose triples are to be predicted: FB15k-237, WN18RR, UMLS, Kinship and their kin.
//!
//! `train.txt`, `valid.txt` and `test.txt`, plain or gzip, have a triple per line: head, relation and tail, with tabs
//! between. Names are any words. Nodes and relations are numbered in the order in which they first appear, in train,
//! then valid, then test, so that those which training never sees are there as well. Triples of train are the edges
//! head → tail, of the type that their relation is; all three files are the only split of links.

use graphweft_base::{Error, Result};

use super::n_triples::Numbers;
use super::relations::Relations;
use super::text::{Text, Wrong};
use super::{Context, Folder, Imported, Input};
use crate::dataset::{LinkSplit, Types};

/// What the only split is called.
const NAME: &str = "triples";
const PARTS: [&str; 3] = ["train", "valid", "test"];
/// As many as a type in two bytes can name.
const MOST_RELATIONS: u32 = 1 << 16;
const REMEDY: &str = "a line is: head, relation and tail, separated by tabs";

/// Reads such a folder.
///
/// # Errors
/// [`Error::BadInput`] naming the file and the line.
pub fn read(folder: &dyn Folder, cx: &Context<'_>) -> Result<Imported> {
    if cx.rules.symmetrise {
        let what = "triples are stored as they are: the reverse of a relation is another one";
        return Err(Error::request(what, "leave --symmetrise out; data.symmetrise=true adds reverses for a model"));
    }
    let (mut nodes, mut relations) = (Numbers::default(), Numbers::default());
    let mut part = |name: &str| part(&input(folder, name)?, &mut nodes, &mut relations, cx);
    let [train, valid, test] = PARTS.map(&mut part);
    let (train, valid, test) = (train?, valid?, test?);
    let names = relations.names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let mut edges = Relations::new(nodes.names.len() as u64, names, cx)?;
    for triple in train.chunks_exact(3) {
        edges.push(triple[1] as u16, &[[triple[0] as u64, triple[2] as u64]])?;
    }
    let (edges, types, edge_names) = edges.finish();
    let links = LinkSplit {
        name: NAME.into(),
        width: 3,
        train: train.into(),
        valid: valid.into(),
        test: test.into(),
        valid_neg: None,
        test_neg: None,
    };
    Ok(Imported {
        types: Types { edges: Some(types), edge_names, ..Types::default() },
        node_names: Some(nodes.names.iter().flat_map(|name| name.iter().copied().chain([b'\n'])).collect()),
        links: Some(links),
        ..Imported::new(nodes.names.len(), edges)
    })
}

/// The file of a part.
fn input(folder: &dyn Folder, part: &str) -> Result<Input> {
    for name in [format!("{part}.txt"), format!("{part}.txt.gz")] {
        if let Some(found) = folder.input(&name)? {
            return Ok(found);
        }
    }
    let (path, problem) = (folder.path().join(format!("{part}.txt")), "there is no such file, and none with .gz");
    Err(Error::bad(path, "file", problem, "a folder of triples has train.txt, valid.txt and test.txt"))
}

/// The triples of a file, one after the other.
fn part(input: &Input, nodes: &mut Numbers, relations: &mut Numbers, cx: &Context<'_>) -> Result<Vec<i64>> {
    let mut text = Text::open(input, cx)?;
    let mut triples = Vec::new();
    while let Some(line) = text.line()? {
        let words: Vec<&[u8]> = line.split(|&b| b == b'\t').map(<[u8]>::trim_ascii).collect();
        if let [b""] = words[..] {
            continue;
        }
        let &[head, relation, tail] = &words[..] else {
            let problem = format!("{} fields, expected 3", words.len());
            return Err(text.bad_line(&Wrong::new(0, problem, REMEDY)));
        };
        for (column, word) in (1..).zip(&words) {
            if word.is_empty() || std::str::from_utf8(word).is_err() {
                let problem = if word.is_empty() { "the field is empty" } else { "the field is not UTF-8" };
                return Err(text.bad_line(&Wrong::new(column, problem, REMEDY)));
            }
        }
        let too_many = |what: &str| Wrong::new(0, format!("more {what} than are supported"), "divide the graph");
        let relation = relations.of(relation).filter(|number| *number < MOST_RELATIONS);
        let relation = relation.ok_or_else(|| text.bad_line(&too_many("relations")))?;
        let [Some(head), Some(tail)] = [head, tail].map(|name| nodes.of(name)) else {
            return Err(text.bad_line(&too_many("nodes")));
        };
        triples.extend([head, relation, tail].map(i64::from));
    }
    if triples.is_empty() {
        return Err(input.bad("triples", "there are none", "check that the file is complete"));
    }
    Ok(triples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::EdgeRules;
    use crate::read::Memory;
    use crate::read::testing::{KEEP, assert_refused, with_context};

    const TRAIN: &str = "b\tlikes\ta\na\tknows\tb\r\nb\tlikes\ta\n\n";

    fn read_texts(texts: [&str; 3], rules: EdgeRules) -> Result<Imported> {
        let file = |(name, text): (&&str, &str)| (format!("{name}.txt"), text.as_bytes().to_vec());
        let folder = Memory(PARTS.iter().zip(texts).map(file).collect());
        with_context(rules, |cx| read(&folder, cx))
    }

    #[test]
    fn names_are_numbered_as_they_appear_and_all_parts_are_links() {
        let imported = read_texts([TRAIN, "c\tknows\tb\n", "a\thates\tc"], KEEP).unwrap();
        let links = imported.links.clone().unwrap();
        assert_eq!((links.width, links.name.as_str()), (3, "triples"));
        assert_eq!(links.train[..], [0, 0, 1, 1, 1, 0, 0, 0, 1]);
        assert_eq!((&links.valid[..], &links.test[..]), (&[2, 1, 0][..], &[1, 2, 2][..]));
        assert_eq!(imported.node_names.as_deref(), Some(&b"b\na\nc\n"[..]));
        assert_eq!(imported.types.edge_names, ["likes", "knows", "hates"]);
        assert_eq!((imported.num_nodes, imported.edges.pushed()), (3, 3));
    }

    #[test]
    fn what_is_wrong_is_named_by_file_and_line() {
        let with = |valid: &str| read_texts([TRAIN, valid, TRAIN], KEEP);
        assert_refused(with("a\tknows\tb\na knows b\n"), &["valid.txt", "line 2", "1 fields"]);
        assert_refused(with("a\t\tb\n"), &["valid.txt", "column 2", "empty"]);
        assert_refused(with("\n"), &["valid.txt", "there are none"]);
        let both = EdgeRules { symmetrise: true, ..KEEP };
        let message = read_texts([TRAIN; 3], both).err().unwrap().to_string();
        assert!(message.contains("data.symmetrise"), "{message}");
        let none = with_context(KEEP, |cx| read(&Memory::default(), cx));
        assert_refused(none, &["train.txt", "no such file"]);
    }
}
