//! What is given is used as it is meant, or refused by file, field and remedy.

use graphweft_base::ErrorKind;

use super::*;
use crate::build::EdgeRules;
use crate::dataset::{Dense, Labels};
use crate::read::imported::NodeIds;
use crate::read::testing::{KEEP, array, assert_refused, edges as edges_of, npz, with_context};

const SYMMETRIC: EdgeRules = EdgeRules { symmetrise: true, ..KEEP };

fn file(name: &str, bytes: impl AsRef<[u8]>) -> File {
    File { input: Input::memory(name, bytes.as_ref()).unwrap(), array: None }
}

fn archive(members: &[(&str, Vec<u8>)]) -> File {
    File { input: npz(members), array: None }
}

fn truths(shape: &[usize], values: &[u8]) -> Vec<u8> {
    let header = crate::npy::Header { dtype: crate::npy::NpyType::Bool, fortran_order: false, shape: shape.to_vec() };
    [&header.bytes(), values].concat()
}

fn given(edges: File) -> Given {
    Given {
        edges,
        nodes: None,
        columns: Columns::default(),
        features: None,
        labels: None,
        task: Task::default(),
        splits: None,
        parts: [None, None, None],
        edge_features: EdgeNumbers::None,
        num_nodes: None,
    }
}

fn table(csv: &str) -> Given {
    Given { nodes: Some(file("nodes.csv", csv).input), ..given(file("edges.csv", "src,dst\n30,10\n10,20\n")) }
}

fn read_with(given: &Given, rules: EdgeRules) -> Result<Imported> {
    with_context(rules, |cx| read(given, cx))
}

fn read_plain(given: &Given) -> Result<Imported> {
    read_with(given, KEEP)
}

fn dense(imported: &Imported) -> (Vec<f32>, usize) {
    match &imported.features {
        Some(Features::Dense(Dense::F32 { values, width })) => (values.to_vec(), *width),
        other => panic!("{other:?}"),
    }
}

fn split(imported: &Imported, at: usize) -> [Vec<i64>; 3] {
    let s = &imported.splits[at];
    [s.train.to_vec(), s.valid.to_vec(), s.test.to_vec()]
}

const NODES: &str = "id,x,label,y2,split\n30,0.5,b,1,train\n10,-1,a,2,valid\n20,2e1,b,3,test\n";

#[test]
fn a_table_of_nodes_says_everything() {
    for csv in [
        NODES.to_string(),
        NODES.replace(',', ";"),
        NODES.replace(',', "\t").replace('\n', "\r\n"),
        format!("\u{feff}# made by hand\n\n{NODES}").replace("\u{feff}# made by hand\n\n", "\u{feff}"),
        NODES.replace("b,1", "\"b\", 1").replace("id,", "Node_ID,").replace("valid", "Validation"),
    ] {
        let imported = read_plain(&table(&csv)).unwrap();
        assert_eq!(dense(&imported), (vec![0.5, 1.0, -1.0, 2.0, 20.0, 3.0], 2), "{csv}");
        assert_eq!(imported.labels, Some((Labels::Single(vec![1, 0, 1].into()), 2)));
        assert_eq!(imported.class_names, Some(vec!["a".to_string(), "b".to_string()]));
        assert_eq!(split(&imported, 0), [vec![0], vec![1], vec![2]]);
        assert_eq!(imported.node_ids, Some(NodeIds::Signed(vec![30, 10, 20])));
        assert_eq!(edges_of(imported), [(0, 1, 0.0), (1, 2, 0.0)]);
    }
}

#[test]
fn columns_may_have_any_name_and_labels_may_be_several() {
    let csv = "paper,p,q,when,junk\n30,1,0,train,a b\n10,,1,dev,\"c, d\"\"e\"\n20,0,0,,\n";
    let mut own = table(csv);
    own.columns = Columns {
        id: Some("paper".into()),
        labels: vec!["p".into(), "q".into()],
        split: Some("when".into()),
        skip: vec!["junk".into()],
    };
    let imported = read_plain(&own).unwrap();
    let Some((Labels::MultiF32(y), 2)) = &imported.labels else { panic!("one is not known") };
    assert!(y[2].is_nan() && y[3] == 1.0);
    assert_eq!(split(&imported, 0), [vec![0], vec![1], vec![]]);
    assert!(imported.features.is_none());
}

#[test]
fn rows_without_ids_are_numbers_and_plain_ids_are_not_kept() {
    let own = |csv: &str| Given { nodes: Some(file("nodes.csv", csv).input), ..given(file("e", "0 1\n2 1\n")) };
    let imported = read_plain(&own("x,label\n1,0\n2,2\n3,\n")).unwrap();
    assert_eq!((imported.num_nodes, &imported.node_ids), (3, &None));
    assert_eq!(imported.labels, Some((Labels::Single(vec![0, 2, -1].into()), 3)));
    assert!(imported.notes.iter().any(|n| n.contains("1 of 3 nodes have no label")), "{:?}", imported.notes);
    assert!(imported.notes.iter().any(|n| n.contains("1 of 3 classes have no node")), "{:?}", imported.notes);
    assert!(imported.notes.iter().any(|n| n.contains("no split was given")), "{:?}", imported.notes);
    let imported = read_plain(&own("id,x\n0,1\n1,2\n2,3\n")).unwrap();
    assert_eq!(imported.node_ids, None);
    assert_refused(
        read_plain(&own("x\n1\n2\n")),
        &["e: line 2, column 1", "node 2, but there are 2 nodes (nodes.csv)"],
    );
}

#[test]
fn tables_that_cannot_be_meant_are_refused() {
    let refused = |csv: &str, words: &[&str]| assert_refused(read_plain(&table(csv)), words);
    refused("1,2\n3,4\n", &["nodes.csv: line 1", "only numbers", "id,x0,x1,label,split"]);
    refused("id,x,x\n1,2,3\n", &["columns 2 and 3 are both called"]);
    refused("id,label,class\n1,2,3\n", &["\"label\" and \"class\" could both be the label", "--label-columns"]);
    refused("id,train_mask\n1,1\n", &["\"train_mask\" looks like a mask", "--skip-columns"]);
    refused("id,x\n30,1\n10,2\n", &["edges.csv: line 3, column 2", "no node 20 in nodes.csv", "add a row"]);
    refused("id,x\n30,1\n10,2\n30,3\n", &["nodes.csv: ids", "rows 1 and 3 both have the id 30"]);
    refused("id,x\n,1\n", &["nodes.csv: line 2, column 1", "\"\" is no node id"]);
    refused("id,x\na1,1\n", &["edges.csv: line 2, column 1", "no node 30 in nodes.csv"]);
    refused("id,x\n30,\n", &["nodes.csv: line 2, column 2", "\"x\"", "no number", "--skip-columns"]);
    refused("id,x\n30,nan\n", &["nodes.csv: line 2, column 2"]);
    refused("id,x\n30,1,2\n", &["nodes.csv: line 2", "3 columns, the first line has 2"]);
    refused("id,x\n30,\"1\n", &["nodes.csv: line 2, column 2", "not closed"]);
    refused("id,split\n30,train\n10,tset\n", &["line 3, column 2", "\"tset\" is no part of a split"]);
    refused("id,split\n30,train\n10,test\n20,test\n", &["nodes.csv: split", "no node is in valid"]);
    refused("id,label\n30,0.5\n10,1\n20,1\n", &["nodes.csv: label", "0.5"]);
    refused("id,x\n", &["nodes.csv: file", "no row"]);
    let mut own = table(NODES);
    own.columns.label_columns_for_test(&["nosuch"]);
    assert_refused(read_plain(&own), &["no column \"nosuch\"", "id, x, label, y2, split"]);
    let many: String = (0..300).map(|i| format!("{i},w{i}\n")).collect();
    refused(&format!("id,label\n{many}"), &["300 different labels in 300 rows"]);
}

impl Columns {
    fn label_columns_for_test(&mut self, names: &[&str]) {
        self.labels = names.iter().map(|n| (*n).to_string()).collect();
    }
}

#[test]
fn edges_come_in_any_form() {
    let pairs = array(&[2, 3], &[0i64, 2, 0, 1, 0, 2]);
    let rows = array(&[3, 2], &[0u16, 1, 2, 0, 0, 2]);
    let csr = [
        ("format", b"\x93NUMPY\x01\x00\x05\x00|S3 \ncsr".to_vec()),
        ("shape", array(&[2], &[3i64, 3])),
        ("indptr", array(&[4], &[0i32, 2, 2, 3])),
        ("indices", array(&[3], &[1i32, 2, 0])),
        ("data", array(&[3], &[1.0f64; 3])),
    ];
    let mut csc = csr.clone();
    csc[0].1 = b"\x93NUMPY\x01\x00\x05\x00<U3 \nc\0\0\0s\0\0\0c\0\0\0".to_vec();
    csc[2].1 = array(&[4], &[0i32, 1, 2, 3]);
    csc[3].1 = array(&[3], &[2i32, 0, 0]);
    let coo = [
        ("format", b"\x93NUMPY\x01\x00\x05\x00|S3 \ncoo".to_vec()),
        ("shape", array(&[2], &[3i64, 3])),
        ("row", array(&[3], &[0i32, 2, 0])),
        ("col", array(&[3], &[1i32, 0, 2])),
    ];
    let market = "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n3 1\n1 3\n";
    let files = [
        file("e.npy", &pairs),
        file("e.npy", &rows),
        archive(&csr),
        archive(&csc),
        archive(&coo),
        archive(&[("edge_index", pairs.clone())]),
        File { array: Some("e".into()), ..archive(&[("e", rows), ("x", pairs)]) },
        file("e.mtx", market),
        file("e.txt", "0 1\n2 0\n0 2\n"),
    ];
    for edges in files {
        let name = format!("{edges:?}");
        assert_eq!(edges_of(read_plain(&given(edges)).unwrap()), [(2, 0, 0.0), (0, 1, 0.0), (0, 2, 0.0)], "{name}");
    }
    let mut weighted = csr;
    weighted[4].1 = array(&[3], &[1.0f32, 2.0, 3.0]);
    assert_eq!(edges_of(read_plain(&given(archive(&weighted))).unwrap()), [(2, 0, 3.0), (0, 1, 1.0), (0, 2, 2.0)]);
}

#[test]
fn edges_that_are_none_are_refused() {
    let refused = |edges: File, words: &[&str]| assert_refused(read_plain(&given(edges)), words);
    refused(file("e.npy", array(&[3, 3], &[0i64; 9])), &["e.npy: edges", "[2, edges] or [edges, 2]"]);
    refused(file("e.npy", array(&[2, 1], &[0.0f32, 1.0])), &["fractions"]);
    refused(file("e.npy", array(&[2, 1], &[0i64, -1])), &["edges[1, 0]: a negative id"]);
    refused(file("e.npy", array(&[2, 1], &[0i64, i64::MAX])), &["e.npy"]);
    refused(file("e.npy", array::<i64>(&[2, 0], &[])), &["no edge"]);
    let two = [("a", array(&[2, 1], &[0i64; 2])), ("b", array(&[2, 1], &[0i64; 2]))];
    refused(archive(&two), &["t.npz: archive", "several arrays: a, b", "t.npz:NAME"]);
    refused(File { array: Some("c".into()), ..archive(&two) }, &["t.npz: c", "the archive has: a, b"]);
    refused(File { array: Some("c".into()), ..file("e.txt", "0 1\n") }, &["no .npz archive"]);
    let own = Given { num_nodes: Some(3), ..given(file("e.npy", array(&[2, 1], &[0i64, 3]))) };
    assert_refused(read_plain(&own), &["edges[1, 0]: node 3, but there are 3 nodes (--num-nodes)"]);
}

fn arrays() -> Given {
    Given {
        features: Some(file("x.npy", array(&[4, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]))),
        labels: Some(file("y.npy", array(&[4], &[0i64, 1, 1, 0]))),
        splits: Some(archive(&[
            ("train_mask", truths(&[4], &[1, 0, 0, 0])),
            ("val_mask", truths(&[4], &[0, 1, 0, 0])),
            ("test_mask", truths(&[4], &[0, 0, 1, 1])),
        ])),
        ..given(file("e.npy", array(&[2, 3], &[0i64, 1, 2, 1, 2, 3])))
    }
}

#[test]
fn arrays_of_the_same_length_go_together() {
    let imported = read_plain(&arrays()).unwrap();
    assert_eq!(dense(&imported).1, 2);
    assert_eq!(split(&imported, 0), [vec![0], vec![1], vec![2, 3]]);
    assert_eq!(imported.splits[0].name, "given");
    assert_eq!(imported.labels, Some((Labels::Single(vec![0, 1, 1, 0].into()), 2)));
    assert_eq!(edges_of(imported), [(0, 1, 0.0), (1, 2, 0.0), (2, 3, 0.0)]);

    // CSV files without ids are the same, with a header or without.
    for (x, y) in [("a,b\n1,2\n3,4\n5,6\n7,8\n", "label\n0\n1\n1\n0\n"), ("1 2\n3 4\n5 6\n7 8\n", "0\n1\n1\n0\n")] {
        let own = Given { features: Some(file("x.csv", x)), labels: Some(file("y.csv", y)), ..arrays() };
        let other = read_plain(&own).unwrap();
        assert_eq!(dense(&other), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 2));
        assert_eq!(other.labels, Some((Labels::Single(vec![0, 1, 1, 0].into()), 2)));
    }
}

#[test]
fn numbers_to_predict_are_labels_of_their_own_kind() {
    let values = |own: &Given| match read_plain(own).unwrap().labels {
        Some((Labels::Values(y), columns)) => (y.to_vec(), columns),
        other => panic!("{other:?}"),
    };
    let own = |labels| Given { task: Task::NodeRegression, labels: Some(labels), ..arrays() };
    let (y, columns) = values(&own(file("y.npy", array(&[4], &[0.5f64, -1.0, f64::NAN, 2.0]))));
    assert_eq!((&y[..2], y[2].is_nan(), y[3], columns), (&[0.5, -1.0][..], true, 2.0, 1));
    assert_eq!(values(&own(file("y.npy", array(&[4, 1], &[1i64, 2, 3, 4])))), (vec![1.0, 2.0, 3.0, 4.0], 1));
    assert_eq!(values(&own(file("y.npy", array(&[4, 2], &[1.5f32; 8])))), (vec![1.5; 8], 2));
    assert_eq!(values(&own(file("y.csv", "0.5\n-1e3\n3\n0.5\n"))), (vec![0.5, -1e3, 3.0, 0.5], 1));
    let table = Given { task: Task::NodeRegression, ..table("id,x,y\n30,1,0.25\n10,2,\n20,3,-7\n") };
    let (y, columns) = values(&table);
    assert_eq!((y[0], y[1].is_nan(), y[2], columns), (0.25, true, -7.0, 1));
    let notes = read_plain(&table).unwrap().notes;
    assert!(notes.iter().any(|n| n.contains("1 of 3 numbers")), "{notes:?}");

    assert_refused(read_plain(&own(file("y.npy", array(&[4], &[0.0, 1.0, 1e300, 0.0])))), &["[2, 0] is 1", "finite"]);
    assert_refused(read_plain(&own(file("y.csv", "0.5\nlow\n3\n4\n"))), &["\"low\" of node 1", "not a number"]);
    let none = Given { task: Task::NodeRegression, labels: None, ..arrays() };
    let missing = read_plain(&none).err().unwrap();
    assert!(missing.kind() == ErrorKind::Usage && missing.to_string().contains("--labels"), "{missing}");
    assert_refused(read_plain(&Given { task: Task::default(), ..table }), &["expected a class"]);
}

#[test]
fn sparse_features_stay_sparse() {
    let matrix = archive(&[
        ("format", b"\x93NUMPY\x01\x00\x05\x00|S3 \ncsr".to_vec()),
        ("shape", array(&[2], &[4i64, 60])),
        ("indptr", array(&[5], &[0i32, 1, 1, 2, 2])),
        ("indices", array(&[2], &[59i32, 7])),
        ("data", array(&[2], &[1.0f32, 2.5])),
    ]);
    let imported = read_plain(&Given { features: Some(matrix), ..arrays() }).unwrap();
    let Some(Features::Sparse(m)) = &imported.features else { panic!("sparse is smaller") };
    assert_eq!((&m.indices[..], m.width), (&[59, 7][..], 60));
}

#[test]
fn several_splits_are_the_columns_of_a_mask() {
    let by_columns = |m: [u8; 8]| truths(&[4, 2], &m);
    let parts = |form: fn(Vec<u8>) -> Vec<u8>| {
        [
            Some(file("train.npy", form(by_columns([1, 0, 0, 1, 0, 0, 0, 0])))),
            Some(file("valid.npy", form(by_columns([0, 1, 1, 0, 0, 0, 0, 0])))),
            Some(file("test.npy", form(by_columns([0, 0, 0, 0, 1, 1, 1, 1])))),
        ]
    };
    let imported = read_plain(&Given { splits: None, parts: parts(|m| m), ..arrays() }).unwrap();
    let names: Vec<&str> = imported.splits.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["given-0", "given-1"]);
    assert_eq!(split(&imported, 0), [vec![0], vec![1], vec![2, 3]]);
    assert_eq!(split(&imported, 1), [vec![1], vec![0], vec![2, 3]]);
    let rows = [
        ("train_masks", truths(&[2, 4], &[1, 0, 0, 0, 0, 1, 0, 0])),
        ("val_masks", truths(&[2, 4], &[0, 1, 0, 0, 1, 0, 0, 0])),
        ("test_masks", truths(&[2, 4], &[0, 0, 1, 1, 0, 0, 1, 1])),
    ];
    let other = read_plain(&Given { splits: Some(archive(&rows)), ..arrays() }).unwrap();
    assert_eq!([split(&other, 0), split(&other, 1)], [split(&imported, 0), split(&imported, 1)]);
}

#[test]
fn ids_are_those_of_the_table() {
    let parts = |train: File| [Some(train), Some(file("valid.txt", "20\n")), Some(file("test.txt", "30\n"))];
    let csv = "id,x\n30,1\n10,2\n20,3\n";
    for train in [file("train.txt", "10\n"), file("train.npy", array(&[1], &[10i64]))] {
        let imported = read_plain(&Given { parts: parts(train), ..table(csv) }).unwrap();
        assert_eq!(split(&imported, 0), [vec![1], vec![2], vec![0]]);
    }
    let own = Given { parts: parts(file("train.txt", "10\n11\n")), ..table(csv) };
    assert_refused(read_plain(&own), &["train.txt: train", "entry 2: there is no node 11"]);
    let own = Given { parts: parts(file("train.txt", "True\nFalse\nFalse\n")), ..table(csv) };
    assert_refused(read_plain(&own), &["test.txt", "already in train"]);
}

#[test]
fn wrong_masks_are_refused_and_named() {
    let masks = |members: &[(&str, Vec<u8>)]| read_plain(&Given { splits: Some(archive(members)), ..arrays() });
    let good = || {
        vec![
            ("train_mask", truths(&[4], &[1, 0, 0, 0])),
            ("val_mask", truths(&[4], &[0, 1, 0, 0])),
            ("test_mask", truths(&[4], &[0, 0, 1, 1])),
        ]
    };
    let with = |at: usize, name: &'static str, bytes: Vec<u8>| {
        let mut members = good();
        members[at] = (name, bytes);
        masks(&members)
    };
    assert_refused(with(0, "training", truths(&[4], &[1, 0, 0, 0])), &["t.npz: training", "train_mask, val_mask"]);
    assert_refused(masks(&good()[..2]), &["t.npz: test", "the archive has: train_mask, val_mask"]);
    let two = [good(), vec![("train_idx", array(&[1], &[0i64]))]].concat();
    assert_refused(masks(&two), &["train_mask", "for train too"]);
    assert_refused(with(1, "val_mask", truths(&[3], &[0, 1, 0])), &["val_mask", "[3], but there are 4 nodes"]);
    assert_refused(with(2, "test_mask", truths(&[4], &[1, 0, 1, 1])), &["test_mask", "already in train"]);
    assert_refused(with(1, "val_mask", truths(&[4], &[0; 4])), &["val_mask", "no node is in valid"]);
    assert_refused(with(1, "val_mask", array(&[4], &[0u8, 1, 0, 0])), &["val_mask", "astype(bool)"]);
    assert_refused(with(1, "val_idx", array(&[1], &[4i64])), &["val_idx[0]: node 4, but there are 4 nodes"]);
    assert_refused(with(1, "val_idx", array(&[1], &[1.0f32])), &["val_idx", "fractions"]);
    assert_refused(with(1, "val_mask", truths(&[4, 2], &[0, 1, 1, 0, 0, 0, 0, 0])), &["val_mask", "2 splits"]);
    let ids = with(1, "valid_idx", array(&[1], &[1i64])).unwrap();
    assert_eq!(split(&ids, 0), [vec![0], vec![1], vec![2, 3]]);

    let request = |given: &Given| match read_plain(given) {
        Err(Error::Request { what, .. }) => what,
        other => panic!("{:?}", other.err()),
    };
    let only = |parts| Given { splits: None, parts, ..arrays() };
    assert!(request(&only([Some(file("t", "0\n")), None, None])).contains("--valid and --test is missing"));
    let both = Given { parts: [Some(file("t", "0\n")), None, None], ..arrays() };
    assert!(request(&both).contains("given twice"));
    let both = Given { labels: Some(file("y", "1\n2\n3\n")), ..table(NODES) };
    assert!(request(&both).contains("labels in the table of nodes and in --labels"));
}

#[test]
fn arrays_that_do_not_go_together_are_refused() {
    let refused = |own: Given, words: &[&str]| assert_refused(read_plain(&own), words);
    let x = |bytes: Vec<u8>| Given { features: Some(file("x.npy", bytes)), ..arrays() };
    refused(x(array(&[3, 1], &[0.5f32; 3])), &["x.npy: features", "3 rows, but there are 4 nodes (y.npy)"]);
    refused(x(array::<f32>(&[4, 0], &[])), &["x.npy: features", "no columns"]);
    refused(x(array(&[4], &[0.5f32; 4])), &["x.npy: features", "[nodes, columns]"]);
    refused(x(array(&[4, 1], &[0.5f32, f32::NAN, 0.0, 0.0])), &["features[1, 0] is not a finite number"]);
    let y = |bytes: Vec<u8>| Given { labels: Some(file("y.npy", bytes)), ..arrays() };
    refused(y(array(&[4, 2], &[0.0f32, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0])), &["labels[1, 1] is 2: expected 0 or 1"]);
    refused(y(array(&[4, 2], &[0.0f32, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0])), &["labels[1, 1] is -1"]);
    let csv = Given { features: Some(file("x.csv", "id,a\n0,1\n1,2\n2,2\n3,2\n")), ..arrays() };
    refused(csv, &["x.csv: line 1", "a column \"id\"", "--nodes"]);
    let several = y(array(&[4, 2], &[0.0f32, 1.0, 0.0, f32::NAN, 0.0, 0.0, 1.0, 0.0]));
    assert!(matches!(read_plain(&several).unwrap().labels, Some((Labels::MultiF32(_), 2))));
}

#[test]
fn edge_features_follow_their_edges_and_reverses() {
    let e = || file("e.npy", array(&[3, 2], &[2i64, 0, 0, 1, 1, 2]));
    let w = |file: File| Given { edge_features: EdgeNumbers::File(file), ..given(e()) };
    let expected = [(1, 0, 2.0), (2, 0, 1.0), (0, 1, 2.0), (2, 1, 3.0), (0, 2, 1.0), (1, 2, 3.0)];
    for features in [
        file("w.npy", array(&[3], &[1.0f32, 2.0, 3.0])),
        file("w.npy", array(&[3, 2], &[1.0f64, 0.0, 2.0, 0.0, 3.0, 0.0])),
        file("w.csv", "w\n1\n2\n3\n"),
    ] {
        assert_eq!(edges_of(read_with(&w(features), SYMMETRIC).unwrap()), expected);
    }
    let text = file("e.csv", "2,0\n0,1\n1,2\n");
    let own = Given { edges: text, ..w(file("w.csv", "1\n2\n3\n")) };
    assert_eq!(edges_of(read_with(&own, SYMMETRIC).unwrap()), expected);
    let columns = file("e.csv", "2,0,1\n0,1,2\n1,2,3\n");
    let own = Given { edge_features: EdgeNumbers::Columns, ..given(columns.clone()) };
    assert_eq!(edges_of(read_with(&own, SYMMETRIC).unwrap()), expected);
    assert_refused(read_plain(&given(columns)), &["e.csv: line 1, column 3", "--edge-features"]);
    assert_refused(read_plain(&w(file("w.npy", array(&[2], &[1.0f32; 2])))), &["w.npy", "[3, columns]"]);
    assert_refused(read_plain(&w(file("w.csv", "1\n2\n"))), &["w.csv: edge_features", "2 rows for 3 edges"]);
    let own = Given { edge_features: EdgeNumbers::Columns, ..given(e()) };
    assert_refused(read_plain(&own), &["no columns to take edge features from", "--edge-features FILE"]);
}
