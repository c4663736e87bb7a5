//! Types of nodes and edges in a folder.

use super::*;

/// The same graph with types: two nodes of `a`, one of `b-2`, one of `c`, which has no features.
fn write_typed(dir: &Path) {
    let w = DatasetWriter::create(dir).unwrap();
    let graph = Csr::<u32>::new(vec![0, 2, 4, 6, 6], vec![1, 2, 0, 2, 0, 1], 4).unwrap();
    let mut meta = Meta::of("typed", &graph, true);
    w.graph(&graph.into()).unwrap();
    let dense = Dense::F32 { values: vec![0.5, 1.0, -1.0, 2.0, 0.0, 4.0].into(), width: 3 };
    let sparse = SparseFeatures { indptr: vec![0, 2].into(), indices: vec![1, 4].into(), data: None, width: 7 };
    w.features_of_type("a", &Features::Dense(dense)).unwrap();
    w.features_of_type("b-2", &Features::Sparse(sparse)).unwrap();
    w.edge_types(&Codes::of(vec![0, 1, 0, 1, 1, 1])).unwrap();
    w.edge_categories(&Codes::U16 { values: vec![300; 12].into(), width: 2 }).unwrap();
    let node_type = |name: &str, num_nodes, num_features| NodeType { name: name.into(), num_nodes, num_features };
    meta.node_types = vec![node_type("a", 2, 3), node_type("b-2", 1, 7), node_type("c", 1, 0)];
    meta.edge_types = vec!["near".into(), "far".into()];
    w.finish(&meta).unwrap();
}

fn typed() -> (tempfile::TempDir, PathBuf) {
    written(write_typed)
}

#[test]
fn types_open_and_are_written_again() {
    let (root, dir) = typed();
    let data = Dataset::open(&dir).unwrap();
    assert_eq!(data.edge_types().unwrap().unwrap().to_vec(), [0, 1, 0, 1, 1, 1]);
    assert_eq!(data.edge_type_names().unwrap(), ["near", "far"]);
    assert_eq!(data.edge_categories().map(|c| (c.width(), c.get(11))), Some((2, 300)));
    assert_eq!(data.meta().type_ranges(), [0..2, 2..3, 3..4]);
    let widths: Vec<_> = data.features_by_type().iter().map(|f| f.as_ref().map(Features::width)).collect();
    assert_eq!((widths, data.features()), (vec![Some(3), Some(7), None], None));

    let again = root.path().join("again");
    data.save(&again).unwrap();
    for file in fs::read_dir(&dir).unwrap().map(|f| f.unwrap().file_name()).filter(|name| name != ".validated") {
        assert_eq!(fs::read(dir.join(&file)).unwrap(), fs::read(again.join(&file)).unwrap(), "{}", file.display());
    }
    // Types without names are called by their numbers.
    let text = fs::read_to_string(again.join("meta.toml")).unwrap();
    fs::write(again.join("meta.toml"), text.replace("edge_types = [\"near\", \"far\"]\n", "")).unwrap();
    assert_eq!(Dataset::open(&again).unwrap().edge_type_names().unwrap(), ["0", "1"]);
}

#[test]
fn a_graph_without_types_has_no_word_of_them() {
    let (_root, dir) = good();
    let text = fs::read_to_string(dir.join("meta.toml")).unwrap();
    assert!(!text.contains("type"), "{text}");
}

const TYPES: &[Damage] = &[
    ("edge type length", |d| npy(d, "edge_type.npy", &[], &[0u8; 5]), &["edge_type.npy", "[5]", "expected [6]"]),
    ("edge type matrix", |d| npy(d, "edge_type.npy", &[1], &[0u8; 6]), &["edge_type.npy", "[6, 1]", "expected [6]"]),
    ("edge type dtype", |d| npy(d, "edge_type.npy", &[], &[0i64; 6]), &["edge_type.npy", "int64", "uint8 or uint16"]),
    (
        "edge type range",
        |d| npy(d, "edge_type.npy", &[], &[0u16, 1, 1, 2, 0, 0]),
        &["edge_type.npy", "edge_type[3] = 2", "names only 2 types", "edge_types of meta.toml"],
    ),
    ("edge types missing", |d| fs::remove_file(d.join("edge_type.npy")).unwrap(), &["meta.toml", "edge_types"]),
    ("edge type twice", |d| meta(d, "\"far\"", "\"near\""), &["meta.toml", "edge_types", "\"near\" is there twice"]),
    ("edge category length", |d| npy(d, "edge_cat.npy", &[1], &[0u8; 7]), &["edge_cat.npy", "[6, columns]"]),
    ("edge category vector", |d| npy(d, "edge_cat.npy", &[], &[0u8; 6]), &["edge_cat.npy", "[6, columns]"]),
    (
        "nodes of types",
        |d| meta(d, "num_nodes = 1\n", "num_nodes = 2\n"),
        &["meta.toml", "node_types", "num_nodes is 4"],
    ),
    ("name with a slash", |d| meta(d, "\"c\"", "\"c/d\""), &["meta.toml", "node_types", "names of files"]),
    ("name of a folder", |d| meta(d, "\"c\"", "\"..\""), &["meta.toml", "node_types", "names of files"]),
    ("node type twice", |d| meta(d, "\"c\"", "\"a\""), &["meta.toml", "node_types", "\"a\" is there twice"]),
    (
        "rows of a type",
        |d| npy(d, "feat-a.npy", &[3], &[0.5f32; 9]),
        &["feat-a.npy", "[3, 3]", "expected [2, columns]"],
    ),
    (
        "columns of a type",
        |d| npy(d, "feat-a.npy", &[2], &[0.5f32; 4]),
        &["meta.toml", "num_features of node type a is 3", "feat-a.npy has 2 columns"],
    ),
    (
        "sparse column of a type",
        |d| npy(d, "feat-b-2_indices.npy", &[], &[1u32, 7]),
        &["feat-b-2_indices.npy", "feat-b-2_indices[1] = 7", "num_features of node type b-2"],
    ),
    (
        "NaN of a type",
        |d| npy(d, "feat-a.npy", &[3], &[0.5, 0.5, 0.5, 0.5, f32::NAN, 0.5]),
        &["feat-a.npy", "feat-a[1, 1]"],
    ),
    (
        "columns of a type that has none",
        |d| npy(d, "feat-c.npy", &[1], &[0.5f32]),
        &["meta.toml", "num_features of node type c is 0 or missing", "set num_features of node type c = 1"],
    ),
    (
        "features of all and of types",
        |d| {
            npy(d, "feat.npy", &[1], &[0.5f32; 4]);
            meta(d, "num_features = 0\nnum_classes", "num_features = 1\nnum_classes");
        },
        &["feat.npy", "features of all nodes, and of single types"],
    ),
];

#[test]
fn damage_to_types_is_named_by_file_field_and_position() {
    for (name, damage, expected) in TYPES {
        let (_root, dir) = typed();
        damage(&dir);
        let error = Dataset::open(&dir).expect_err(name);
        assert!(matches!(error, Error::BadInput { .. }), "{name}: {error}");
        let message = error.to_string();
        for word in *expected {
            assert!(message.contains(word), "{name}: {word:?} is not in: {message}");
        }
    }
}

#[test]
fn a_forged_stamp_does_not_let_types_out_of_range() {
    let (_root, dir) = typed();
    overwrite(&dir.join("edge_type.npy"), &[2u8; 6]);
    forge(&dir);
    let message = Dataset::open(&dir).unwrap().edge_types().unwrap_err().to_string();
    assert!(message.contains("edge_type[0] = 2"), "{message}");
    overwrite(&dir.join("edge_type.npy"), &[0u8; 6]);
    overwrite(&dir.join("feat-b-2_indices.npy"), &[1u32, 1 << 30]);
    forge(&dir);
    assert!(Dataset::open(&dir).unwrap_err().to_string().contains("feat-b-2_indices[1]"));
}
