//! Every way in which a folder can be wrong, and the message it must give.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use half::f16;

use super::*;
use crate::npy::{Header, write_npy};
use crate::with_csr;

mod types;

/// A triangle 0 – 1 – 2 and an isolated node 3, with everything a folder can hold.
fn write_good(dir: &Path) {
    let w = DatasetWriter::create(dir).unwrap();
    let graph = Csr::<u32>::new(vec![0, 2, 4, 6, 6], vec![1, 2, 0, 2, 0, 1], 4).unwrap();
    let mut meta = Meta::of("triangle", &graph, true);
    w.graph(&graph.into()).unwrap();
    let sparse = SparseFeatures {
        indptr: vec![0, 1, 3, 3, 4].into(),
        indices: vec![4, 0, 2, 1].into(),
        data: Some(vec![1.0, 2.0, 3.0, 4.0].into()),
        width: 5,
    };
    w.features(&Features::Sparse(sparse)).unwrap();
    w.labels(&Labels::Single(vec![0, 1, 1, -1].into()), 2).unwrap();
    w.split(&Split { name: "s".into(), train: vec![0].into(), valid: vec![1].into(), test: vec![2].into() }).unwrap();
    write_npy(w.path("edge_feat.npy"), &[1], &[0.5f32; 6]).unwrap();
    (meta.num_features, meta.num_classes) = (5, 2);
    w.finish(&meta).unwrap();
}

/// A folder that is written so, and what removes it.
fn written(write: fn(&Path)) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    write(&dir);
    (root, dir)
}

fn good() -> (tempfile::TempDir, PathBuf) {
    written(write_good)
}

#[test]
fn a_written_folder_opens_with_all_its_parts() {
    let (_root, dir) = good();
    let data = Dataset::open(&dir).unwrap();
    assert_eq!(data.meta().num_nodes, 4);
    assert_eq!(with_csr!(data.graph().unwrap(), g => g.row(2).iter().map(|j| j.index()).collect::<Vec<_>>()), [0, 1]);
    assert_eq!(data.features().map(Features::width), Some(5));
    assert_eq!(data.labels(), Some(&Labels::Single(vec![0, 1, 1, -1].into())));
    assert_eq!(data.edge_features().map(Dense::width), Some(1));
    assert_eq!(&data.split("s").unwrap().valid[..], &[1]);
    let message = data.split("nosuch").unwrap_err().to_string();
    assert!(message.contains("choose one of: s"), "{message}");
}

/// The good folder with other labels, for another task.
fn of_regression<T: crate::npy::Element>(row: &[usize], values: &[T], columns: usize) -> Result<Dataset> {
    let (_root, dir) = good();
    let text = fs::read_to_string(dir.join("meta.toml")).unwrap();
    let text = text.replace("num_classes = 2", &format!("num_classes = {columns}"));
    fs::write(dir.join("meta.toml"), text.replace("node-classification", "node-regression")).unwrap();
    write_npy(dir.join("label.npy"), row, values).unwrap();
    Dataset::open(&dir)
}

#[test]
fn numbers_to_predict_open_and_wrong_ones_are_named() {
    for (row, columns) in [(&[][..], 1), (&[1], 1), (&[3], 3)] {
        let values: Vec<f32> = (0..4 * columns).map(|k| k as f32 - 1.5).collect();
        let data = of_regression(row, &values, columns).unwrap();
        assert_eq!((data.meta().task, data.labels()), (Task::NodeRegression, Some(&Labels::Values(values.into()))));
    }
    let unknown = of_regression(&[], &[1.0, f32::NAN, 2.0, f32::NAN], 1).unwrap();
    assert!(matches!(unknown.labels(), Some(Labels::Values(y)) if y[1].is_nan()));

    let refused = |found: Result<Dataset>, parts: &[&str]| {
        let message = found.unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    refused(of_regression(&[], &[0i64, 1, 2, 3], 1), &["label.npy", "int64", "expected float32", "astype"]);
    refused(of_regression(&[], &[0.5f64; 4], 1), &["label.npy", "float64", "expected float32"]);
    refused(of_regression(&[], &[0.5f32; 3], 1), &["label.npy", "[3]", "[4]"]);
    refused(of_regression(&[2], &[0.5f32; 8], 1), &["meta.toml", "num_classes is 1", "set num_classes = 2"]);
    let infinite = [0.5f32, 1.0, 2.0, 3.0, 4.0, f32::INFINITY, 6.0, 7.0];
    refused(of_regression(&[2], &infinite, 2), &["label.npy", "label[2, 1] = inf", "finite", "NaN"]);
}

#[test]
fn wide_and_foreign_dtypes_open_to_the_same_graph() {
    let (_root, dir) = good();
    let narrow = Dataset::open(&dir).unwrap().graph().unwrap().clone();
    write_npy(dir.join("indptr.npy"), &[], &[0i64, 2, 4, 6, 6]).unwrap();
    write_npy(dir.join("indices.npy"), &[], &[1i64, 2, 0, 2, 0, 1]).unwrap();
    assert_eq!(Dataset::open(&dir).unwrap().graph().unwrap(), &narrow);
}

/// What to do to the good folder, and what the message must name.
type Damage = (&'static str, fn(&Path), &'static [&'static str]);

fn meta(dir: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(dir.join("meta.toml")).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(dir.join("meta.toml"), text.replace(from, to)).unwrap();
}

fn npy<T: crate::npy::Element>(dir: &Path, name: &str, row: &[usize], values: &[T]) {
    write_npy(dir.join(name), row, values).unwrap();
}

fn no_sparse(dir: &Path) {
    for name in ["feat_indptr.npy", "feat_indices.npy", "feat_data.npy"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
}

fn mask(dir: &Path) {
    let header = Header { dtype: NpyType::Bool, fortran_order: false, shape: vec![4] };
    fs::write(dir.join("split/s/train.npy"), [header.bytes(), vec![1, 0, 0, 0]].concat()).unwrap();
}

const COUNTS: &[Damage] = &[
    ("no meta", |d| fs::remove_file(d.join("meta.toml")).unwrap(), &["meta.toml", "check the path"]),
    ("unknown key", |d| meta(d, "symmetric", "symetric"), &["meta.toml", "symetric"]),
    ("negative count", |d| meta(d, "num_nodes = 4", "num_nodes = -4"), &["meta.toml", "line 2"]),
    ("overflowing count", |d| meta(d, "num_nodes = 4", "num_nodes = 9223372036854775807"), &["num_nodes"]),
    ("count over u64", |d| meta(d, "num_nodes = 4", "num_nodes = 99999999999999999999"), &["meta.toml"]),
    ("other count", |d| meta(d, "num_nodes = 4", "num_nodes = 5"), &["indptr.npy", "[5]", "expected [6]"]),
    ("other edges", |d| meta(d, "num_edges = 6", "num_edges = 7"), &["indices.npy", "expected [7]"]),
];

const EDGES: &[Damage] = &[
    ("missing array", |d| fs::remove_file(d.join("indptr.npy")).unwrap(), &["indptr.npy"]),
    (
        "folder for file",
        |d| {
            fs::remove_file(d.join("indices.npy")).unwrap();
            fs::create_dir(d.join("indices.npy")).unwrap();
        },
        &["indices.npy", "folder"],
    ),
    ("empty file", |d| fs::write(d.join("label.npy"), []).unwrap(), &["label.npy", "empty"]),
    ("wrong dtype", |d| npy(d, "indices.npy", &[], &[1.0f32; 6]), &["indices.npy", "float32", "uint32"]),
    ("first offset", |d| npy(d, "indptr.npy", &[], &[1u64, 2, 4, 6, 6]), &["indptr[0] is 1"]),
    ("decreasing", |d| npy(d, "indptr.npy", &[], &[0u64, 4, 2, 6, 6]), &["indptr[2] = 2 is below"]),
    ("last offset", |d| npy(d, "indptr.npy", &[], &[0u64, 2, 4, 6, 7]), &["indptr[4] is 7"]),
    ("huge offset", |d| npy(d, "indptr.npy", &[], &[0u64, u64::MAX, 4, 6, 6]), &["indptr[2] = 4 is below"]),
    ("negative offset", |d| npy(d, "indptr.npy", &[], &[0i64, -2, 4, 6, 6]), &["indptr[1] = -2"]),
    ("id out of range", |d| npy(d, "indices.npy", &[], &[1u32, 2, 0, 2, 0, 4]), &["indices[5] = 4 in row 2"]),
    ("wide id out of range", |d| npy(d, "indices.npy", &[], &[1i64, 2, 0, 2, 0, 1 << 40]), &["indices[5]"]),
    ("negative id", |d| npy(d, "indices.npy", &[], &[1i64, 2, 0, 2, 0, -1]), &["indices[5] = -1"]),
    ("unsorted row", |d| npy(d, "indices.npy", &[], &[2u32, 1, 0, 2, 0, 1]), &["row 0 is not sorted"]),
    ("not symmetric", |d| npy(d, "indices.npy", &[], &[1u32, 3, 0, 2, 0, 1]), &["symmetric", "--symmetrise"]),
];

const LABELS: &[Damage] = &[
    ("label range", |d| npy(d, "label.npy", &[], &[0i64, 1, 2, -1]), &["label[2] = 2", "set num_classes = 3"]),
    ("label below", |d| npy(d, "label.npy", &[], &[0i64, -2, 1, -1]), &["label[1] = -2"]),
    ("label dtype", |d| npy(d, "label.npy", &[], &[0i32, 1, 1, 1]), &["label.npy", "int32", "int64"]),
    ("label length", |d| npy(d, "label.npy", &[], &[0i64; 3]), &["label.npy", "expected [4]"]),
    ("multi-label value", |d| npy(d, "label.npy", &[2], &[0u8, 1, 1, 0, 2, 0, 0, 0]), &["label[2, 0] = 2"]),
    (
        "multi-label number",
        |d| npy(d, "label.npy", &[2], &[0.0f32, 1.0, 1.0, f32::NAN, 0.5, 0.0, 0.0, 0.0]),
        &["label[2, 0] = 0.5", "expected 0 or 1, or NaN"],
    ),
    (
        "multi-label sign",
        |d| npy(d, "label.npy", &[2], &[0.0f32, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        &["label[1, 0] = -1", "NaN"],
    ),
];

const FEATURES: &[Damage] = &[
    (
        "dense and sparse features",
        |d| npy(d, "feat.npy", &[5], &[0.5f32; 20]),
        &["feat.npy", "sparse ones as well", "remove feat.npy"],
    ),
    (
        "dense features and a stray part of sparse ones",
        |d| {
            fs::remove_file(d.join("feat_indptr.npy")).unwrap();
            fs::remove_file(d.join("feat_data.npy")).unwrap();
            npy(d, "feat.npy", &[5], &[0.5f32; 20]);
        },
        &["feat.npy", "feat_indices.npy"],
    ),
    (
        "no columns",
        |d| {
            no_sparse(d);
            let header = Header { dtype: NpyType::F32, fortran_order: false, shape: vec![4, 0] };
            fs::write(d.join("feat.npy"), header.bytes()).unwrap();
            meta(d, "num_features = 5", "num_features = 0");
        },
        &["feat.npy", "no columns"],
    ),
    (
        "no sparse columns",
        |d| {
            npy(d, "feat_indptr.npy", &[], &[0u64; 5]);
            npy::<u32>(d, "feat_indices.npy", &[], &[]);
            fs::remove_file(d.join("feat_data.npy")).unwrap();
            meta(d, "num_features = 5", "num_features = 0");
        },
        &["meta.toml", "num_features is 0"],
    ),
    ("label missing", |d| fs::remove_file(d.join("label.npy")).unwrap(), &["meta.toml", "num_classes"]),
    ("column range", |d| npy(d, "feat_indices.npy", &[], &[4u32, 0, 5, 1]), &["feat_indices[2] = 5"]),
    ("feature offsets", |d| npy(d, "feat_indptr.npy", &[], &[0u64, 3, 1, 3, 4]), &["feat_indptr[2] = 1"]),
    ("feature length", |d| npy(d, "feat_indptr.npy", &[], &[0u64, 1, 3, 3, 9]), &["feat_indices.npy", "[9]"]),
    ("feature NaN", |d| npy(d, "feat_data.npy", &[], &[1.0f32, f32::NAN, 1.0, 1.0]), &["feat_data[1]"]),
    (
        "dense NaN",
        |d| {
            no_sparse(d);
            npy(d, "feat.npy", &[5], &[&[0.0f32; 12][..], &[f32::INFINITY], &[0.0; 7]].concat());
        },
        &["feat.npy", "feat[2, 2]"],
    ),
    (
        "half NaN",
        |d| {
            no_sparse(d);
            npy(d, "feat.npy", &[5], &[f16::NAN; 20]);
        },
        &["feat.npy", "feat[0, 0]"],
    ),
    (
        "feature width",
        |d| {
            no_sparse(d);
            npy(d, "feat.npy", &[4], &[0.0f32; 16]);
        },
        &["meta.toml", "num_features is 5", "feat.npy has 4 columns", "set num_features = 4"],
    ),
    (
        "feature width missing",
        |d| {
            no_sparse(d);
            npy(d, "feat.npy", &[4], &[0.0f32; 16]);
            meta(d, "num_features = 5\n", "");
        },
        &["meta.toml", "num_features is 0 or missing", "set num_features = 4"],
    ),
    (
        "sparse width missing",
        |d| meta(d, "num_features = 5\n", ""),
        &["meta.toml", "num_features is 0 or missing", "set num_features = 5"],
    ),
    (
        "classes of several labels",
        |d| npy(d, "label.npy", &[3], &[0u8; 12]),
        &["meta.toml", "num_classes is 2", "set num_classes = 3"],
    ),
];

const SPLITS: &[Damage] = &[
    ("edge feature length", |d| npy(d, "edge_feat.npy", &[1], &[0.0f32; 5]), &["edge_feat.npy", "[6, columns]"]),
    ("edge feature half", |d| npy(d, "edge_feat.npy", &[1], &[f16::ONE; 6]), &["edge_feat.npy", "float16"]),
    ("split range", |d| npy(d, "split/s/test.npy", &[], &[4i64]), &["split/s/test.npy", "test[0] = 4"]),
    ("split negative", |d| npy(d, "split/s/test.npy", &[], &[-1i64]), &["test[0] = -1"]),
    ("split overlap", |d| npy(d, "split/s/test.npy", &[], &[2i64, 0]), &["test[1] = 0", "already in train"]),
    ("split mask", mask, &["split/s/train.npy", "mask", "numpy.flatnonzero"]),
    ("split part", |d| fs::remove_file(d.join("split/s/valid.npy")).unwrap(), &["split/s/valid.npy"]),
];

#[test]
fn damage_is_named_by_file_field_and_position() {
    for (name, damage, expected) in [COUNTS, EDGES, LABELS, FEATURES, SPLITS].concat() {
        let (_root, dir) = good();
        damage(&dir);
        let error = Dataset::open(&dir).expect_err(name);
        assert!(matches!(error, Error::BadInput { .. }), "{name}: {error}");
        let message = error.to_string();
        for word in expected {
            assert!(message.contains(word), "{name}: {word:?} is not in: {message}");
        }
    }
}

#[test]
fn an_error_says_its_position_without_being_read() {
    let parts = |damage: fn(&Path)| {
        let (_root, dir) = good();
        damage(&dir);
        let error = Dataset::open(&dir).unwrap_err();
        let file = error.file().unwrap().strip_prefix(&dir).unwrap().display().to_string();
        (file, error.field().unwrap().to_string(), error.position().unwrap())
    };
    let at = |file: &str, field: &str, position| (file.to_string(), field.to_string(), position);
    let element = Position::Element;
    assert_eq!(parts(|d| npy(d, "indices.npy", &[], &[1u32, 2, 0, 2, 0, 4])), at("indices.npy", "indices", element(5)));
    assert_eq!(
        parts(|d| npy(d, "feat_indices.npy", &[], &[4u32, 0, 5, 1])),
        at("feat_indices.npy", "feat_indices", element(2))
    );
    assert_eq!(parts(|d| npy(d, "split/s/test.npy", &[], &[4i64])), at("split/s/test.npy", "test", element(0)));
    let cell = Position::Cell { row: 2, column: 0 };
    assert_eq!(parts(|d| npy(d, "label.npy", &[2], &[0u8, 1, 1, 0, 2, 0, 0, 0])), at("label.npy", "label", cell));
    assert_eq!(parts(|d| meta(d, "num_nodes = 4", "num_nodes = -4")), at("meta.toml", "meta", Position::Line(2)));
}

#[test]
fn truncating_any_file_anywhere_is_noticed() {
    let (_root, dir) = good();
    let arrays: Vec<PathBuf> = ["indptr", "indices", "feat_indptr", "feat_indices", "feat_data", "label", "edge_feat"]
        .iter()
        .map(|n| dir.join(format!("{n}.npy")))
        .chain([dir.join("split/s/train.npy")])
        .collect();
    for path in arrays {
        let bytes = fs::read(&path).unwrap();
        for keep in 0..bytes.len() {
            fs::write(&path, &bytes[..keep]).unwrap();
            let message = Dataset::open(&dir).expect_err("truncated").to_string();
            assert!(message.contains(path.file_name().unwrap().to_str().unwrap()), "{message}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    Dataset::open(&dir).unwrap();
}

/// Writes into a file, which keeps its size, its inode and, by force, its time.
fn overwrite<T: crate::npy::Element>(path: &Path, values: &[T]) {
    use std::os::unix::fs::FileExt;
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    let bytes: &[u8] = bytemuck::cast_slice(values);
    file.write_all_at(bytes, fs::metadata(path).unwrap().len() - bytes.len() as u64).unwrap();
    file.set_modified(time).unwrap();
}

/// A stamp that says that everything is as it was.
fn forge(dir: &Path) {
    stamp::save(dir, &stamp::Files::of(dir).unwrap());
}

#[test]
fn a_stamp_spares_looking_at_numbers_until_a_file_changes() {
    let (_root, dir) = good();
    assert!(dir.join(".validated").exists(), "writers leave a stamp");
    let values = dir.join("feat_data.npy");
    overwrite(&values, &[f32::NAN; 4]);
    // The same size and time, but not the same time of the inode.
    assert!(Dataset::open(&dir).unwrap_err().to_string().contains("feat_data[0]"));
    forge(&dir);
    Dataset::open(&dir).expect("the stamp is believed, numbers are not looked at");
    // The same bytes and times in another file.
    let (other, time) = (dir.join("other"), fs::metadata(&values).unwrap().modified().unwrap());
    fs::copy(&values, &other).unwrap();
    fs::rename(&other, &values).unwrap();
    fs::File::options().write(true).open(&values).unwrap().set_modified(time).unwrap();
    assert!(Dataset::open(&dir).is_err());
}

#[test]
fn a_stamp_is_not_written_through_a_link() {
    let (root, dir) = good();
    let precious = root.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    fs::remove_file(dir.join(".validated")).unwrap();
    symlink(&precious, dir.join(".validated")).unwrap();
    Dataset::open(&dir).unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(fs::symlink_metadata(dir.join(".validated")).unwrap().is_symlink());
}

#[test]
fn a_forged_stamp_does_not_make_ids_go_out_of_range() {
    type Damage = (fn(&Path), &'static str);
    let damages: [Damage; 9] = [
        (|d| overwrite(&d.join("indices.npy"), &[u32::MAX; 6]), "indices[0] = 4294967295"),
        (|d| overwrite(&d.join("indices.npy"), &[1u32, 2, 0, 2, 0, 4]), "indices[5] = 4"),
        (|d| overwrite(&d.join("indices.npy"), &[2u32, 1, 0, 2, 0, 1]), "not sorted"),
        (|d| overwrite(&d.join("indptr.npy"), &[0u64, u64::MAX, 4, 6, 6]), "indptr[2] = 4 is below"),
        (|d| overwrite(&d.join("indptr.npy"), &[0u64, 5, 4, 6, 6]), "indptr[2] = 4 is below"),
        (|d| overwrite(&d.join("feat_indices.npy"), &[4u32, 0, 1 << 30, 1]), "feat_indices[2]"),
        (|d| overwrite(&d.join("feat_indptr.npy"), &[0u64, u64::MAX, 3, 3, 4]), "feat_indptr[2]"),
        (|d| overwrite(&d.join("label.npy"), &[0i64, 1, i64::MAX, -1]), "label[2]"),
        (|d| overwrite(&d.join("split/s/test.npy"), &[1i64 << 40]), "test[0]"),
    ];
    for (damage, part) in damages {
        let (_root, dir) = good();
        damage(&dir);
        forge(&dir);
        let opened = Dataset::open(&dir);
        let asked = |data: Dataset| data.graph().map(drop).and(data.checked_labels().map(drop));
        let error = opened.and_then(asked).expect_err(part);
        assert!(matches!(error, Error::BadInput { .. }) && error.to_string().contains(part), "{error}");
    }
}

#[test]
fn an_unfinished_writer_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let w = DatasetWriter::create(root.path().join("a/b")).unwrap();
    w.graph(&Csr::<u32>::new(vec![0, 0], vec![], 1).unwrap().into()).unwrap();
    drop(w);
    assert_eq!(fs::read_dir(root.path().join("a")).unwrap().count(), 0);
}

#[test]
fn nothing_is_overwritten() {
    let (_root, dir) = good();
    assert!(matches!(DatasetWriter::create(&dir), Err(Error::Request { .. })));
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn the_shared_datasets_open() {
    let folders = fs::read_dir(env!("GRAPHWEFT_SHARED_DATA")).unwrap().map(|f| f.unwrap().path());
    for dir in folders.filter(|d| d.join("meta.toml").exists()) {
        let data = Dataset::map(&dir).unwrap();
        validate::validate(&data).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(data.graph().unwrap().num_nodes(), data.meta().num_nodes);
    }
}

#[test]
fn only_plain_files_and_links_to_them_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_npy(at("array.npy"), &[], &[1i64, 2]).unwrap();
    symlink(at("array.npy"), at("link.npy")).unwrap();
    assert_eq!(NpyFile::open(at("link.npy")).unwrap().shape(), [2]);
    // Nobody writes to it: who opened it would wait for ever.
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    symlink("/dev/zero", at("zeros")).unwrap();
    for name in ["pipe", "zeros"] {
        let error = NpyFile::open(at(name)).unwrap_err();
        assert!(matches!(error, Error::BadInput { .. }), "{error}");
        assert!(error.to_string().contains("pipe") && error.to_string().contains("remedy: save it"), "{error}");
        fs::create_dir(at(&format!("data-{name}"))).unwrap();
        symlink(at(name), at(&format!("data-{name}")).join("meta.toml")).unwrap();
        let error = Dataset::open(at(&format!("data-{name}"))).unwrap_err();
        assert!(error.to_string().contains("meta.toml"), "{error}");
    }
}
