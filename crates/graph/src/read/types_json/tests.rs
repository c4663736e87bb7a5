use super::*;
use crate::dataset::Dense;
use crate::read::Memory;
use crate::read::testing::{KEEP, array, assert_refused, edges, with_context};

const TOLD: &str = r#"{"target": "b", "classes": 2,
 "nodes": [{"name": "a", "count": 3, "features": 2}, {"name": "b", "count": 2, "features": 4},
           {"name": "c", "count": 1, "features": 0}],
 "relations": [{"name": "ab", "source": "a", "destination": "b", "count": 3},
               {"name": "bc", "source": "b", "destination": "c", "count": 1}]}"#;

fn good() -> Memory {
    let mut files = Memory::default();
    let mut put = |name: &str, bytes: Vec<u8>| drop(files.0.insert(name.to_string(), bytes));
    put("types.json", TOLD.as_bytes().to_vec());
    put("edge_ab.npy", array(&[2, 3], &[0i32, 2, 1, 1, 0, 0]));
    put("edge_bc.npy", array(&[2, 1], &[1i64, 0]));
    put("feat_a.npy", array(&[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
    put("feat_b_indptr.npy", array(&[3], &[0u64, 1, 2]));
    put("feat_b_indices.npy", array(&[2], &[3u32, 0]));
    put("label.npy", array(&[2], &[1i64, 0]));
    put("split/s/train.npy", array(&[1], &[0i64]));
    put("split/s/valid.npy", array(&[1], &[1i64]));
    put("split/s/test.npy", array::<i64>(&[0], &[]));
    files
}

fn read_with(rules: crate::build::EdgeRules, change: impl FnOnce(&mut Memory)) -> Result<Imported> {
    let mut files = good();
    change(&mut files);
    with_context(rules, |cx| read(&files, cx))
}

fn types(imported: &Imported) -> Vec<u16> {
    imported.types.edges.as_ref().unwrap().to_vec()
}

#[test]
fn types_relations_features_labels_and_splits_arrive() {
    let imported = read_with(KEEP, |_| {}).unwrap();
    assert_eq!(imported.num_nodes, 6);
    let nodes: Vec<_> = imported.types.nodes.iter().map(|t| (t.name.as_str(), t.num_nodes, t.num_features)).collect();
    assert_eq!(nodes, [("a", 3, 2), ("b", 2, 4), ("c", 1, 0)]);
    assert_eq!(imported.types.edge_names, ["ab", "bc"]);
    assert_eq!(types(&imported), [0, 0, 0, 1]);
    let dense = Dense::F32 { values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0].into(), width: 2 };
    assert_eq!(imported.types.features[0], Some(Features::Dense(dense)));
    assert_eq!(imported.types.features[1].as_ref().map(Features::width), Some(4));
    assert_eq!(imported.types.features[2], None);
    assert_eq!(imported.labels, Some((Labels::Single(vec![-1, -1, -1, 1, 0, -1].into()), 2)));
    assert_eq!((&imported.splits[0].train[..], &imported.splits[0].valid[..]), (&[3][..], &[4][..]));
    assert_eq!(edges(imported), [(1, 3, 0.0), (2, 3, 0.0), (0, 4, 0.0), (4, 5, 0.0)]);
}

#[test]
fn symmetrised_relations_have_reverses_of_their_own() {
    let imported = read_with(crate::build::EdgeRules { symmetrise: true, ..KEEP }, |_| {}).unwrap();
    assert_eq!(imported.types.edge_names, ["ab", "bc", "rev_ab", "rev_bc"]);
    assert_eq!(types(&imported), [0, 0, 0, 2, 2, 2, 1, 3]);
    let all = edges(imported);
    assert_eq!(all.len(), 8);
    assert!(all.iter().all(|&(j, i, _)| all.contains(&(i, j, 0.0))));
}

#[test]
fn anything_wrong_is_named_by_file_array_and_element() {
    let with = |name: &str, bytes: Vec<u8>| read_with(KEEP, |files| drop(files.0.insert(name.to_string(), bytes)));
    let without = |name: &str| read_with(KEEP, |files| drop(files.0.remove(name)));
    let told = |from: &str, to: &str| with("types.json", TOLD.replace(from, to).into_bytes());
    assert_refused(without("types.json"), &["types.json", "missing"]);
    assert_refused(with("types.json", b"{".to_vec()), &["types.json", "line 1"]);
    assert_refused(told("\"target\": \"b\"", "\"target\": \"x\""), &["types.json: target", "no nodes of type \"x\""]);
    let empty = TOLD.replace("\"target\": \"b\"", "\"target\": \"d\"");
    let empty = empty.replace("\"features\": 0}", "\"features\": 0}, {\"name\": \"d\", \"count\": 0}");
    assert_refused(with("types.json", empty.into_bytes()), &["types.json: target", "no nodes of type \"d\""]);
    assert_refused(told("\"source\": \"a\"", "\"source\": \"x\""), &["types.json: source", "\"x\""]);
    assert_refused(told("\"name\": \"c\"", "\"name\": \"a\""), &["nodes", "\"a\" is there twice"]);
    assert_refused(told("\"name\": \"ab\"", "\"name\": \"../ab\""), &["names of files"]);
    assert_refused(told("\"count\": 1,", "\"count\": 99999999999999,"), &["types.json"]);
    assert_refused(without("edge_ab.npy"), &["edge_ab.npy", "missing"]);
    assert_refused(with("edge_ab.npy", array(&[2, 2], &[0i32; 4])), &["edge_ab.npy", "[2, 2]", "[2, 3]"]);
    assert_refused(with("edge_ab.npy", array(&[2, 3], &[0i32, 3, 0, 0, 0, 0])), &["edge_ab[0, 1] is 3", "0 to 2"]);
    assert_refused(with("edge_ab.npy", array(&[2, 3], &[0i32, 0, 0, 0, 2, 0])), &["edge_ab[1, 1] is 2", "0 to 1"]);
    assert_refused(without("feat_a.npy"), &["feat_a.npy", "said to have 2 features"]);
    assert_refused(with("feat_a.npy", array(&[2, 2], &[0.0f32; 4])), &["feat_a.npy", "[3, columns]"]);
    assert_refused(with("feat_a.npy", array(&[3, 1], &[0.0f32; 3])), &["feat_a.npy", "1 columns", "says 2"]);
    assert_refused(with("feat_b.npy", array(&[2, 4], &[0.0f32; 8])), &["feat_b", "sparse ones as well"]);
    assert_refused(with("feat_b_indices.npy", array(&[2], &[4u32, 0])), &["feat_b_indices[0] is 4"]);
    assert_refused(with("label.npy", array(&[2], &[0i64, 2])), &["label", "3 classes", "says 2"]);
    assert_refused(with("label.npy", array(&[3], &[0i64; 3])), &["label", "expected [2]"]);
    assert_refused(with("split/s/test.npy", array(&[1], &[2i64])), &["test[0] is 2", "0 to 1"]);
    assert_refused(with("split/s/test.npy", array(&[1], &[0i64])), &["already in train"]);
    assert_refused(without("split/s/valid.npy"), &["split/s/valid.npy", "missing"]);
}

#[test]
fn what_types_do_not_allow_is_refused() {
    let refused = |rules| read_with(rules, |_| {}).err().unwrap().to_string();
    assert!(refused(crate::build::EdgeRules { merge_parallel: true, ..KEEP }).contains("--merge-parallel"));
    let add = crate::csr::SelfLoops::Add;
    assert!(refused(crate::build::EdgeRules { self_loops: add, ..KEEP }).contains("--self-loops"));
}

#[test]
fn labels_of_several_columns_are_unknown_elsewhere() {
    let several = array(&[2, 3], &[0u8, 1, 1, 0, 0, 0]);
    let imported = read_with(KEEP, |files| {
        files.0.insert("types.json".into(), TOLD.replace("\"classes\": 2", "\"classes\": 3").into_bytes());
        files.0.insert("label.npy".into(), several);
    });
    let Some((Labels::MultiF32(y), 3)) = imported.unwrap().labels else { panic!("rows of labels") };
    assert!(y[..9].iter().chain(&y[15..]).all(|x| x.is_nan()));
    assert_eq!(y[9..15], [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
}
