use super::*;
use crate::build::EdgeRules;
use crate::read::testing::{KEEP, assert_refused, edges, text, with_context};

const TRIPLES: &str = "# a comment\n<a> <knows> <b> .\n\n<b> <knows> _:c.\n\
                       _:c <name> \"C \\\"c\\\" <x>\"@en-GB . # ends\n\
                       <a> <age> \"7\"^^<int> .\r\n<a> <knows> <b> .\n";

fn read_text(contents: &str) -> Result<Imported> {
    with_context(KEEP, |cx| read(&text(contents), None, cx))
}

#[test]
fn terms_are_nodes_and_predicates_relations() {
    let imported = read_text(TRIPLES).unwrap();
    let names = ["<a>", "<b>", "_:c", "\"C \\\"c\\\" <x>\"@en-GB", "\"7\"^^<int>"];
    assert_eq!(imported.node_names.as_deref().unwrap(), (names.join("\n") + "\n").as_bytes());
    assert_eq!(imported.types.edge_names, ["knows", "name", "age"]);
    assert_eq!(imported.types.edges.as_ref().unwrap().to_vec(), [0, 0, 1, 2, 0]);
    assert_eq!(edges(imported), [(0, 1, 0.0), (0, 1, 0.0), (1, 2, 0.0), (2, 3, 0.0), (0, 4, 0.0)]);
}

#[test]
fn symmetrised_triples_have_inverse_relations() {
    let rules = EdgeRules { symmetrise: true, ..KEEP };
    let imported = with_context(rules, |cx| read(&text("<a> <r> <b> .\n"), None, cx)).unwrap();
    assert_eq!(imported.types.edge_names, ["r", "rev_r"]);
    assert_eq!(imported.types.edges.as_ref().unwrap().to_vec(), [0, 1]);
    assert_eq!(edges(imported), [(1, 0, 0.0), (0, 1, 0.0)]);
}

#[test]
fn anything_wrong_is_named_by_line_and_term() {
    for (line, parts) in [
        ("a <r> <b> .", &["line 2, column 1", "\"a <r> <b> .\" where a subject"][..]),
        ("\"a\" <r> <b> .", &["column 1", "a subject"]),
        ("<a> _:r <b> .", &["column 2", "a predicate"]),
        ("<a> <r>", &["column 3", "the line ends where an object"]),
        ("<a> <r> <b>", &["column 4", "ends where a full stop"]),
        ("<a> <r> <b> . <c>", &["column 5", "\"<c>\" after the full stop"]),
        ("<a> <r <b> .", &["column 2", "a predicate"]),
        ("<a> <r> \"b .", &["column 3", "an object"]),
        ("<a> <r> \"b\\", &["column 3"]),
        ("<a> <r> \"b\"^^int .", &["column 3"]),
        ("<a> <r> _: .", &["column 3"]),
    ] {
        let message = format!("<x> <r> <y> .\n{line}\n");
        assert_refused(read_text(&message), parts);
    }
    assert_refused(read_text("# nothing\n"), &["t: triples", "there are none"]);
    let latin = Input::memory("t", &b"<a> <r> \"\xe9\" .\n"[..]).unwrap();
    assert_refused(with_context(KEEP, |cx| read(&latin, None, cx)), &["line 1, column 3", "not UTF-8"]);
}

const PEOPLE: &str = "<p0> <r> <p1> .\n<p2> <r> <p3> .\n<p4> <r> <p5> .\n<p6> <r> _:b .\n";
const TRAIN: &str = "id\tperson\tlabel_group\n1\tp0\tz\n2\tp1\ty\n3\tp2\tz\n4\tp3\tz\n5\tp4\ty\n6\t_:b\ty\n";
const TEST: &str = "person\tid\tlabel_group\r\np5\t7\tx\r\np6\t8\tz\r\n";

fn with_sets(train: &str, test: &str) -> Result<Imported> {
    let input = |name: &str, contents: &str| Input::memory(name, contents.as_bytes()).unwrap();
    let sets = Sets { train: input("train", train), test: input("test", test) };
    with_context(KEEP, |cx| read(&text(PEOPLE), Some(&sets), cx))
}

#[test]
fn tables_give_labels_and_a_split() {
    let imported = with_sets(TRAIN, TEST).unwrap();
    assert_eq!(imported.class_names.as_deref().unwrap(), ["x", "y", "z"]);
    // In the order of first appearance: p0 to p6, _:b.
    let labels = Labels::Single(vec![2, 1, 2, 2, 1, 0, 2, 1].into());
    assert_eq!(imported.labels, Some((labels, 3)));
    let split = &imported.splits[0];
    assert_eq!((&split.train[..], &split.valid[..], &split.test[..]), (&[0, 1, 2, 3, 7][..], &[4][..], &[5, 6][..]));
    assert!(imported.notes[0].contains("of 6 nodes to train on, every fifth is for validation: 1"));
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let train = |from: &str, to: &str| with_sets(&TRAIN.replace(from, to), TEST);
    assert_refused(train("label_group", "group"), &["train: line 1", "id, person, group"]);
    assert_refused(train("\tp2\t", "\tp9\t"), &["train: line 4, column 2", "\"p9\" is in no triple"]);
    assert_refused(train("\tp2\tz", "\tp2"), &["train: line 4", "2 fields, the header has 3"]);
    assert_refused(train("\tp2\t", "\tp1\t"), &["train: nodes", "already in train"]);
    assert_refused(train("\tp1\t", "\tp5\t"), &["test: nodes", "already in train"]);
}
