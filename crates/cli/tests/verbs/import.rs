//! `graphweft import` as a user runs it: the real datasets come out as they are, and bad input leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use graphweft_graph::{AnyCsr, Dataset};
use tempfile::TempDir;

const BAD_INPUT: i32 = 3;
const USAGE: i32 = 2;

fn import(args: &[&str], input: &Path, output: &Path) -> Output {
    let (format, rest) = args.split_first().unwrap();
    Command::new(env!("CARGO_BIN_EXE_graphweft"))
        .args(["import", format])
        .arg(input)
        .arg("-o")
        .arg(output)
        .args(rest)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_imported(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

/// A file or folder of the shared data; tests that use it are ignored where it is not.
fn shared(name: &str) -> PathBuf {
    Path::new(env!("GRAPHWEFT_SHARED_DATA")).join(name)
}

/// Opens a folder anew: without its stamp, everything in it is validated.
fn open(dir: &Path) -> Dataset {
    fs::remove_file(dir.join(".validated")).unwrap();
    Dataset::open(dir).unwrap()
}

fn assert_same_graph_features_labels(made: &Dataset, reference: &Dataset) {
    assert!(made.graph().unwrap() == reference.graph().unwrap(), "the graphs differ");
    assert!(made.features() == reference.features(), "the features differ");
    assert!(made.labels() == reference.labels(), "the labels differ");
    let strip = |d: &Dataset| (d.meta().num_nodes, d.meta().num_edges, d.meta().num_features, d.meta().num_classes);
    assert_eq!(strip(made), strip(reference));
    assert_eq!(made.meta().symmetric, reference.meta().symmetric);
}

/// Imports a shared file and compares what comes out with a shared folder; gives both, and what was printed.
fn comes_out_as(args: &[&str], raw: &str, folder: &str) -> (Dataset, Dataset, String) {
    let root = TempDir::new().unwrap();
    let out = root.path().join("made").join(folder);
    let output = import(args, &shared(raw), &out);
    assert_imported(&output);
    let (made, reference) = (open(&out), Dataset::open(shared(folder)).unwrap());
    assert_same_graph_features_labels(&made, &reference);
    assert_eq!(made.meta(), reference.meta());
    (made, reference, String::from_utf8(output.stdout).unwrap())
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn minesweeper_comes_out_as_its_dataset_folder() {
    let args = ["heterophilous", "--symmetrise", "--self-loops", "remove", "--json"];
    let (made, reference, line) = comes_out_as(&args, "raw/heterophilous/minesweeper.npz", "minesweeper");
    for key in ["\"nodes\":10000", "\"edges\":78804", "\"features\":7", "\"classes\":2", "\"symmetric\":true"] {
        assert!(line.contains(key), "{line}");
    }
    assert_eq!(made.splits().len(), 10);
    assert!(made.splits() == reference.splits(), "the splits differ");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn amazon_photo_comes_out_as_its_dataset_folder() {
    let args = ["gnn-benchmark", "--symmetrise", "--self-loops", "remove", "--name", "amazon-photo"];
    comes_out_as(&args, "raw/gnn-benchmark/amazon_electronics_photo.npz", "amazon-photo");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn a_typed_folder_keeps_its_types() {
    let root = TempDir::new().unwrap();
    let out = root.path().join("dblp");
    assert_imported(&import(&["types-json", "--symmetrise", "--json"], &shared("raw/hgb-dblp"), &out));
    let made = open(&out);
    // HGB counts 26,128 nodes, 239,566 edges, 4 types of nodes and 6 of edges.
    assert_eq!((made.meta().num_nodes, made.meta().num_edges), (26_128, 239_566));
    assert!(made.meta().symmetric);
    let names = made.edge_type_names().unwrap();
    let one_way = ["paper-author", "paper-term", "paper-venue"];
    assert_eq!(names, [one_way.map(String::from), one_way.map(|name| format!("rev_{name}"))].concat());
    let counts = made.edge_types().unwrap().unwrap().counts(6);
    assert_eq!(counts, [19_645, 85_810, 14_328, 19_645, 85_810, 14_328]);
    let types: Vec<_> = made.meta().node_types.iter().map(|t| (t.name.as_str(), t.num_nodes, t.num_features)).collect();
    assert_eq!(types, [("author", 4057, 334), ("paper", 14_328, 4231), ("term", 7723, 50), ("venue", 20, 0)]);
    let split = made.split("hgb").unwrap();
    assert_eq!(split.train.len() + split.valid.len(), 1217);
    assert_eq!(split.test.len(), 2840);
    // Papers lie between authors and terms: every edge of the first type comes from one and goes to an author.
    let AnyCsr::Narrow(graph) = made.graph().unwrap() else { panic!("a narrow graph") };
    let (codes, ranges) = (made.edge_types().unwrap().unwrap(), made.meta().type_ranges());
    for i in 0..graph.num_dst() {
        for e in graph.edges_of(i).filter(|e| codes.get(*e) == 0) {
            assert!(ranges[0].contains(&i) && ranges[1].contains(&(graph.indices()[e] as usize)));
        }
    }
    let out = root.path().join("acm");
    assert_imported(&import(&["types-json"], &shared("raw/heco-acm"), &out));
    let acm = open(&out);
    assert_eq!((acm.meta().num_nodes, acm.meta().num_edges, acm.meta().num_classes), (11_246, 17_426, 3));
    assert_eq!(acm.splits().iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["heco-20", "heco-40", "heco-60"]);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn aifb_has_the_counts_that_are_published() {
    let root = TempDir::new().unwrap();
    let out = root.path().join("aifb");
    let output = import(&["n-triples", "--json"], &shared("raw/aifb"), &out);
    assert_imported(&output);
    let made = open(&out);
    assert_eq!((made.meta().num_nodes, made.meta().num_edges, made.meta().num_classes), (8285, 29_043, 4));
    assert_eq!(made.edge_type_names().unwrap().len(), 45);
    let split = made.split("official").unwrap();
    assert_eq!((split.train.len(), split.valid.len(), split.test.len()), (112, 28, 36));
    assert_eq!(fs::read_to_string(out.join("nodes.txt")).unwrap().lines().count(), 8285);
    assert_eq!(fs::read_to_string(out.join("classes.txt")).unwrap().lines().count(), 4);
}

/// Writes the edges of a graph by source, so that sorting by destination has something to do.
fn write_edges(graph: &AnyCsr, out: impl Write) {
    let AnyCsr::Narrow(graph) = graph else { panic!("a narrow graph") };
    let mut out = BufWriter::new(out);
    writeln!(out, "# FromNodeId\tToNodeId").unwrap();
    let forward = graph.transpose();
    for source in 0..forward.num_dst() {
        for destination in forward.row(source) {
            writeln!(out, "{source}\t{destination}").unwrap();
        }
    }
    out.flush().unwrap();
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn web_google_survives_an_edge_list_in_any_memory() {
    let folder = shared("snap-web-google");
    let reference = Dataset::open(folder).unwrap();
    let root = TempDir::new().unwrap();
    let (plain, zipped) = (root.path().join("edges.txt"), root.path().join("edges.bin"));
    write_edges(reference.graph().unwrap(), File::create(&plain).unwrap());
    let mut encoder = GzEncoder::new(File::create(&zipped).unwrap(), Compression::fast());
    std::io::copy(&mut File::open(&plain).unwrap(), &mut encoder).unwrap();
    encoder.finish().unwrap();

    let nodes = reference.meta().num_nodes.to_string();
    let cases: [(&str, &Path, &[&str]); 4] = [
        ("plain", &plain, &[]),
        ("gzip under another name", &zipped, &[]),
        // 40 MB of keys: five runs and more.
        ("little memory", &plain, &["--memory", "8MiB"]),
        ("one thread", &plain, &["--memory", "3MiB", "--threads", "1"]),
    ];
    for (what, input, more) in cases {
        let out = root.path().join(what);
        let args = [&["edge-list", "--num-nodes", &nodes], more].concat();
        assert_imported(&import(&args, input, &out));
        let made = open(&out);
        assert!(made.graph().unwrap() == reference.graph().unwrap(), "{what}: the graphs differ");
        assert!(!made.meta().symmetric);
    }
    for name in ["indptr.npy", "indices.npy"] {
        let bytes = |folder: &str| fs::read(root.path().join(folder).join(name)).unwrap();
        assert!(bytes("plain") == bytes("one thread"), "{name} depends on threads or memory");
    }

    // Relabelling ids that are numbers already changes nothing.
    let out = root.path().join("relabelled");
    assert_imported(&import(&["edge-list", "--ids", "relabel", "--memory", "4MiB"], &plain, &out));
    assert!(open(&out).graph().unwrap() == reference.graph().unwrap());
}

#[test]
fn edge_features_follow_their_edges() {
    let root = TempDir::new().unwrap();
    let (input, out) = (root.path().join("e.csv"), root.path().join("d"));
    fs::write(&input, "from,to,w\n5,3,0.5\n3,5,1.5\n3,3,2.5\n9,3,3.5\n").unwrap();
    let args = ["edge-list", "--edge-features", "--ids", "relabel", "--symmetrise", "--self-loops", "add"];
    assert_imported(&import(&args, &input, &out));
    let data = open(&out);
    let graphweft_graph::dataset::Dense::F32 { values, width } = data.edge_features().unwrap() else { panic!("f32") };
    // Rows 3: {3, 5, 9}, 5: {3, 5}, 9: {3, 9}; added self-loops have zeros.
    assert_eq!((*width, &values[..]), (1, &[2.5, 0.5, 3.5, 1.5, 0.0, 3.5, 0.0][..]));
    let ids = graphweft_graph::npy::NpyFile::open(out.join("node_id.npy")).unwrap();
    assert_eq!(&ids.elements::<i64>().unwrap()[..], [3, 5, 9]);
}

#[test]
fn a_metis_file_keeps_its_promise_or_is_refused() {
    let root = TempDir::new().unwrap();
    let (input, out) = (root.path().join("g.graph"), root.path().join("d"));
    fs::write(&input, "3 2\n2\n1\n2 1\n").unwrap();
    let refused = import(&["metis"], &input, &out);
    assert_eq!(refused.status.code(), Some(BAD_INPUT));
    assert!(stderr(&refused).contains("only one of its two nodes"), "{}", stderr(&refused));
    assert!(!out.exists());
    assert_imported(&import(&["metis", "--symmetrise"], &input, &out));
    assert!(open(&out).meta().symmetric);
}

#[test]
fn symmetric_says_what_is_true() {
    let root = TempDir::new().unwrap();
    let input = root.path().join("e.txt");
    for (k, (edges, symmetric)) in
        [("0 1\n1 0\n", true), ("0 1\n1 2\n", false), ("0 1\n0 1\n1 0\n", false)].into_iter().enumerate()
    {
        fs::write(&input, edges).unwrap();
        let out = root.path().join(k.to_string());
        assert_imported(&import(&["edge-list"], &input, &out));
        assert_eq!(open(&out).meta().symmetric, symmetric, "{edges:?}");
    }
}

/// Bad input of every kind: the exit code, the words of the message, and an empty folder afterwards.
#[test]
fn bad_input_is_named_and_leaves_nothing() {
    let root = TempDir::new().unwrap();
    let (inputs, outputs) = (root.path().join("in"), root.path().join("out"));
    fs::create_dir_all(inputs.join("folder")).unwrap();
    fs::create_dir(&outputs).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = inputs.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    for i in 0..10_000 {
        writeln!(zipped, "{i} {}", i * 7 % 1000).unwrap();
    }
    let zipped = zipped.finish().unwrap();
    let mut damaged = zipped.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    let random: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();

    let missing = inputs.join("missing");
    let (folder, empty) = (inputs.join("folder"), file("empty", b""));
    let (out_of_range, negative) = (file("range.txt", b"0 1\n2 7\n"), file("negative.txt", b"0 1\n1 -3\n"));
    let cases: Vec<(&[&str], PathBuf, &[&str])> = vec![
        (&["edge-list"], missing.clone(), &["missing", "check the path"]),
        (&["heterophilous"], missing.clone(), &["missing", "check the path"]),
        (&["ogb"], missing, &["missing", "check the path"]),
        (&["edge-list"], folder.clone(), &["folder", "name the file inside it"]),
        (&["metis"], folder.clone(), &["folder", "name the file inside it"]),
        (&["ogb"], out_of_range.clone(), &["range.txt", "name the folder"]),
        (&["ogb"], folder, &["num-node-list.csv.gz", "raw/ and split/"]),
        (&["edge-list"], empty.clone(), &["empty"]),
        (&["gnn-benchmark"], empty.clone(), &["empty"]),
        (&["matrix-market"], empty, &["empty"]),
        (&["edge-list", "--num-nodes", "5"], out_of_range, &["range.txt: line 2, column 2", "id 7"]),
        (&["edge-list"], negative, &["negative.txt: line 2, column 2", "--ids relabel"]),
        (&["edge-list"], file("sparse.txt", b"1 4000000000\n"), &["sparse.txt: ids", "--ids relabel"]),
        (&["edge-list"], file("overflow.txt", b"1 98765432109876543210\n"), &["overflow.txt: line 1, column 2"]),
        (&["edge-list"], file("cut.gz", &zipped[..zipped.len() - 100]), &["cut.gz", "again"]),
        (&["edge-list"], file("damaged.gz", &damaged), &["damaged.gz"]),
        (&["edge-list"], file("random", &random), &["random"]),
        (&["heterophilous"], file("random.npz", &random), &["random.npz", "archive"]),
        (&["gnn-benchmark"], file("text.npz", b"not an archive"), &["text.npz", "archive"]),
        (&["metis"], file("random.graph", &random), &["random.graph: line 1"]),
        (&["matrix-market"], file("random.mtx", &random), &["random.mtx: line 1", "Matrix Market"]),
    ];
    for (args, input, words) in cases {
        let output = import(args, &input, &outputs.join("d"));
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(BAD_INPUT), "{args:?} {}: {message}", input.display());
        for word in words.iter().chain(&["remedy: "]) {
            assert!(message.contains(word), "{args:?} {}: {word:?} is not in: {message}", input.display());
        }
        assert_eq!(fs::read_dir(&outputs).unwrap().count(), 0, "{args:?} left something behind");
    }
}

/// A gigabyte without a newline is given up after the first block.
#[test]
fn a_gigabyte_of_garbage_is_refused_at_once() {
    let root = TempDir::new().unwrap();
    let (input, out) = (root.path().join("garbage"), root.path().join("out/d"));
    let mut file = File::create(&input).unwrap();
    file.write_all(&vec![b'1'; 16 << 20]).unwrap();
    // The rest is a hole: it takes no space and reads as zeros.
    file.set_len(1 << 30).unwrap();
    for format in ["edge-list", "matrix-market", "metis"] {
        let started = std::time::Instant::now();
        let output = import(&[format], &input, &out);
        assert_eq!(output.status.code(), Some(BAD_INPUT), "{format}: {}", stderr(&output));
        assert!(stderr(&output).contains("garbage: line 1"), "{}", stderr(&output));
        assert!(started.elapsed().as_secs() < 5, "{format} took {:?}", started.elapsed());
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn truncated_archives_are_refused_wherever_they_are_cut() {
    let raw = shared("raw/heterophilous/minesweeper.npz");
    let root = TempDir::new().unwrap();
    let bytes = fs::read(raw).unwrap();
    let input = root.path().join("cut.npz");
    for keep in [4, 1000, bytes.len() / 2, bytes.len() - 30, bytes.len() - 1] {
        fs::write(&input, &bytes[..keep]).unwrap();
        let output = import(&["heterophilous"], &input, &root.path().join("d"));
        assert_eq!(output.status.code(), Some(BAD_INPUT), "cut at {keep}: {}", stderr(&output));
    }
    // A flipped bit in the compressed data is found by the checksum.
    let mut damaged = bytes;
    damaged[20_000] ^= 1;
    fs::write(&input, damaged).unwrap();
    let output = import(&["heterophilous"], &input, &root.path().join("d"));
    assert_eq!(output.status.code(), Some(BAD_INPUT), "{}", stderr(&output));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "only the input is left");
}

#[test]
fn nonsensical_requests_are_usage_errors() {
    let root = TempDir::new().unwrap();
    let input = root.path().join("e.txt");
    fs::write(&input, "0 1\n").unwrap();
    let refused = |args: &[&str], out: &Path, word: &str| {
        let output = import(args, &input, out);
        assert_eq!(output.status.code(), Some(USAGE), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(word), "{args:?}: {}", stderr(&output));
    };
    let out = root.path().join("d");
    refused(&["metis", "--ids", "relabel"], &out, "--ids is for edge lists");
    refused(&["ogb", "--edge-features"], &out, "--edge-features is for edge lists");
    refused(&["edge-list", "--memory", "12 apples"], &out, "apples");
    refused(&["edge-list", "--memory", "10"], &out, "at least 1MiB");
    refused(&["edge-list", "--num-nodes", "0"], &out, "0");
    refused(&["csv"], &out, "edge-list");
    refused(&["edge-list"], root.path(), "exists already");
    refused(&["edge-list", "--num-nodes", "9999999999999999"], &out, "at most");
    assert!(!out.exists());
}
