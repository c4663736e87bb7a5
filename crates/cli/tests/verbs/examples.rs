//! `docs/guide.md`, command by command, and the scripts of `examples/`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use graphweft_graph::Dataset;
use graphweft_graph::dataset::{Dense, Features, Labels};
use tempfile::TempDir;

const INSTALL: &str = "cargo install --path crates/cli";
/// From a fresh clone to a trained model.
const MOST_COMMANDS: usize = 5;
/// What the mark `needs=` of a block may say. Each has a test of its own; blocks without it need nothing.
const NEEDS: [&str; 6] = ["pyg", "mpi", "gpu", "gpus", "machines", "cora"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder that looks like the checkout as far as the guides go.
fn checkout() -> TempDir {
    let dir = TempDir::new().unwrap();
    for folder in ["examples", "examples/own", "examples/rings", "examples/typed"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, dir.path().join(folder).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    dir
}

/// A fenced block of the guide that is to be run.
struct Block {
    needs: Option<String>,
    commands: Vec<String>,
}

/// The blocks of the guide that begin with ```` ```sh ````, their commands without comments. Other blocks show files
/// and output.
fn guide() -> Vec<Block> {
    let page = fs::read_to_string(root().join("docs/guide.md")).unwrap();
    let mut blocks = Vec::new();
    for (at, _) in page.match_indices("\n```sh") {
        let (mark, after) = page[at + "\n```sh".len()..].split_once('\n').unwrap();
        let needs = mark.trim().strip_prefix("needs=").map(str::to_string);
        assert!(mark.is_empty() || NEEDS.contains(&needs.as_deref().unwrap_or_default()), "a block that {mark}");
        // A command may go on in the next line.
        let block = after.split("```").next().unwrap().replace("\\\n", " ");
        let command = |line: &str| line.split("  #").next().unwrap_or(line).trim().to_string();
        blocks.push(Block { needs, commands: block.lines().map(command).filter(|line| !line.is_empty()).collect() });
    }
    blocks
}

/// The commands of the block with this mark.
fn marked(needs: &str) -> Vec<String> {
    let block = guide().into_iter().find(|block| block.needs.as_deref() == Some(needs));
    block.unwrap_or_else(|| panic!("no block needs {needs}")).commands
}

/// Runs a command line in `dir`; the program and Python are the ones that are tested.
fn shell(dir: &Path, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_graphweft")).parent().unwrap();
    let python = Path::new(env!("GRAPHWEFT_TEST_PYTHON")).parent().unwrap();
    let before = [program, python].into_iter().filter(|p| p.is_absolute()).map(Path::to_path_buf);
    let path = env::join_paths(before.chain(env::split_paths(&env::var_os("PATH").unwrap()))).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(dir).env("PATH", path).env("GRAPHWEFT_CACHE", dir.join("cache"));
    // More processes than cores, also for root: what a test machine has.
    shell.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    shell.envs([("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("OMPI_MCA_hwloc_base_binding_policy", "none")]);
    shell.output().unwrap()
}

fn run(dir: &Path, line: &str) -> String {
    let out = shell(dir, line);
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{line}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Imports the data of the guide, then runs the block with this mark.
fn follow(needs: &str, dir: &Path) {
    let commands = guide().into_iter().filter(|block| block.needs.is_none()).flat_map(|block| block.commands);
    let import = commands.into_iter().find(|line| line.starts_with("graphweft import ")).unwrap();
    run(dir, &import);
    marked(needs).iter().for_each(|line| drop(run(dir, line)));
}

/// A row of a table in `benches/accuracy/RESULTS.md`: mean and deviation.
fn measured(row: &str) -> (f64, f64) {
    let table = fs::read_to_string(root().join("benches/accuracy/RESULTS.md")).unwrap();
    let row = table.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("no row {row:?}"));
    let score = row.split('|').find(|cell| cell.contains('±')).unwrap();
    let (mean, deviation) = score.split_once('±').unwrap();
    (mean.trim().parse().unwrap(), deviation.trim().parse().unwrap())
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn the_command_for_cora_gives_the_score_of_the_table() {
    let dir = TempDir::new().unwrap();
    // Whoever opens a folder may leave a stamp in it.
    let cora = Path::new(env!("GRAPHWEFT_SHARED_DATA")).join("cora");
    assert!(Command::new("cp").arg("-r").arg(cora).arg(dir.path()).status().unwrap().success());
    let [command] = &marked("cora")[..] else { panic!("one command") };
    let found: serde_json::Value = serde_json::from_str(&run(dir.path(), &format!("{command} --json"))).unwrap();
    let (mean, deviation) = measured("| cora (public) | gcn | accuracy | 10 | cpu |");
    let test = found["test"].as_f64().unwrap();
    assert!((test - mean).abs() <= deviation, "{test}, the table says {mean} ± {deviation}");
}

#[test]
fn the_guide_from_two_csv_files_to_a_model() {
    let dir = checkout();
    let commands: Vec<String> =
        guide().into_iter().filter(|block| block.needs.is_none()).flat_map(|block| block.commands).collect();
    assert_eq!(commands[0], INSTALL, "the program is here, so this one is left out");
    let trained = commands.iter().position(|line| line.starts_with("graphweft train ")).unwrap();
    assert!(trained < MOST_COMMANDS, "{commands:?}");
    commands[1..].iter().for_each(|line| drop(run(dir.path(), line)));
    for run in ["mine", "links", "rings"] {
        assert!(dir.path().join("runs").join(run).join("model.safetensors").is_file(), "{run}");
    }
    let data = Dataset::open(dir.path().join("mine")).unwrap();
    assert_eq!((data.meta().num_nodes, data.meta().num_classes), (150, 3));
    let result = fs::read_to_string(dir.path().join("runs/mine/result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    // Three topics that features alone tell in about two thirds: the model must have used the edges.
    let test = result["best"]["test"].as_f64().unwrap_or_else(|| panic!("{result}"));
    assert!(test > 80.0, "{test}");
    let predictions = fs::read_to_string(dir.path().join("predictions.csv")).unwrap();
    let nodes = fs::read_to_string(dir.path().join("examples/own/nodes.csv")).unwrap();
    let ids = |csv: &str| -> Vec<String> { csv.lines().skip(1).map(|l| l.split(',').next().unwrap().into()).collect() };
    assert_eq!(ids(&predictions), ids(&nodes));
}

/// The commands of the guide that need `what` end in a model.
fn trains(what: &str) {
    let dir = checkout();
    follow(what, dir.path());
    assert!(dir.path().join("runs").join(what).join("model.safetensors").is_file());
}

#[test]
#[cfg_attr(not(open_mpi), ignore = "needs Open MPI")]
fn the_guide_over_mpi() {
    trains("mpi");
}

#[test]
#[ignore = "needs a GPU"]
fn the_guide_on_a_gpu() {
    trains("gpu");
}

#[test]
#[ignore = "needs four GPUs and torchrun"]
fn the_guide_on_four_gpus() {
    trains("gpus");
}

/// Every block of code in `docs/extend.md` follows a link to the file that it is from; `// …` stands for omissions.
#[test]
fn the_code_of_the_recipes_is_that_of_files_that_are_compiled() {
    let page = fs::read_to_string(root().join("docs/extend.md")).unwrap();
    let blocks: Vec<(&str, &str)> =
        page.match_indices("\n```rust\n").map(|(at, mark)| page.split_at(at + mark.len())).collect();
    assert!(blocks.len() >= 5, "a model, a task, a strategy, an operation, a format");
    for (before, after) in blocks {
        let (_, link) = before.rsplit_once("](../").unwrap();
        let path = link.split(')').next().unwrap();
        let file = fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        let lines: Vec<&str> = after.split("```").next().unwrap().lines().collect();
        let mut rest = &file[..];
        for part in lines.split(|line| line.trim() == "// …") {
            let part = part.join("\n");
            let found = rest.find(part.trim_matches('\n')).unwrap_or_else(|| panic!("{path} does not have\n{part}"));
            rest = &rest[found + part.trim_matches('\n').len()..];
        }
    }
}

/// A Data of PyTorch Geometric as far as anybody can tell: attributes with tensors.
const DATA: &str = r#"
import numpy as np, types

class Tensor:
    def __init__(self, x): self.x = np.asarray(x)
    def detach(self): return self
    def cpu(self): return self
    def numpy(self): return self.x
    def __len__(self): return len(self.x)
    shape = property(lambda self: self.x.shape)

def data(several=False, tensor=Tensor):
    i = np.arange(60)
    src, dst = np.concatenate([i, (i + 3) % 60, i[:5]]), np.concatenate([(i + 3) % 60, i, i[:5]])
    masks = np.stack([i % 5 < 3, i % 5 == 3, i % 5 == 4])
    if several: masks = np.stack([masks, np.roll(masks, 1, 1)], -1)
    y = np.stack([i % 3 == 0, i % 2 == 0], 1).astype("f4") if several else i % 3
    if several: y[7, 1] = np.nan
    x = np.eye(3, dtype="f4")[i % 3] + np.sin(i)[:, None]
    return types.SimpleNamespace(
        x=tensor(x), y=tensor(y), edge_index=tensor(np.stack([src, dst])), edge_attr=tensor(np.stack([src, dst], 1)),
        num_nodes=60, train_mask=tensor(masks[0]), val_mask=tensor(masks[1]), test_mask=tensor(masks[2]))
"#;

/// Writes and runs a Python program that begins with [`DATA`].
fn python(dir: &Path, body: &str) -> Output {
    fs::write(dir.join("program.py"), format!("import sys\nsys.path.insert(0, 'examples')\n{DATA}\n{body}\n")).unwrap();
    shell(dir, "python3 program.py")
}

fn python_ok(dir: &Path, body: &str) {
    let out = python(dir, body);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
#[cfg_attr(not(numpy), ignore = "needs Python with NumPy and SciPy (GRAPHWEFT_PYTHON)")]
fn the_guide_from_a_pyg_data_to_a_model() {
    let dir = checkout();
    // Plain arrays: what is pickled must not need this program to be read.
    python_ok(dir.path(), "import pickle; pickle.dump(data(tensor=np.asarray), open('data.pt', 'wb'))");
    marked("pyg").iter().for_each(|line| drop(run(dir.path(), line)));
    assert_eq!(Dataset::open(dir.path().join("from-pyg")).unwrap().meta().num_classes, 3);
    assert!(dir.path().join("runs/from-pyg/model.safetensors").is_file());
}

#[test]
#[cfg_attr(not(numpy), ignore = "needs Python with NumPy and SciPy (GRAPHWEFT_PYTHON)")]
fn a_pyg_data_comes_out_as_it_is() {
    let dir = checkout();
    python_ok(
        dir.path(),
        "import from_pyg\nfrom_pyg.write(data(), 'one')\nfrom_pyg.write([data(), data(True)], 'list')",
    );
    let one = Dataset::open(dir.path().join("one")).unwrap();
    let meta = one.meta();
    assert_eq!((meta.num_nodes, meta.num_edges, meta.num_features, meta.num_classes), (60, 125, 3, 3));
    assert!(meta.symmetric);
    let names: Vec<&str> = one.splits().iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["public"]);
    assert_eq!(&one.splits()[0].valid[..3], [3, 8, 13]);
    let Some(Dense::F32 { values, width: 2 }) = one.edge_features() else { panic!("two columns") };
    graphweft_graph::with_csr!(one.graph().unwrap(), g => {
        for i in 0..60 {
            for e in g.edges_of(i) {
                let edge = [values[2 * e], values[2 * e + 1]];
                assert_eq!(edge, [g.indices()[e] as f32, i as f32], "the features of another edge");
            }
        }
    });
    let several = Dataset::open(dir.path().join("list/1")).unwrap();
    let names: Vec<&str> = several.splits().iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["public-0", "public-1"]);
    assert_eq!(&several.splits()[1].valid[..3], [4, 9, 14]);
    let Some(Labels::MultiF32(y)) = several.labels() else { panic!("several labels") };
    assert!(y[15].is_nan() && y[0] == 1.0 && y[4] == 0.0);
    assert!(dir.path().join("list/0/meta.toml").is_file());

    let refused = python(dir.path(), "import from_pyg\nd = data()\ndel d.val_mask\nfrom_pyg.write(d, 'bad')");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("all of train_mask, val_mask and test_mask"));
    assert!(!refused.status.success() && !dir.path().join("bad").exists());
    assert!(
        !python(dir.path(), "import from_pyg\nfrom_pyg.write(data(), 'one')").status.success(),
        "nothing is overwritten"
    );
}

#[test]
#[cfg_attr(not(all(numpy, shared_data)), ignore = "needs the shared graphs, and Python with NumPy and SciPy")]
fn planetoids_files_come_out_as_the_dataset_folder() {
    let dir = checkout();
    let data = Path::new(env!("GRAPHWEFT_SHARED_DATA"));
    run(dir.path(), &format!("python3 examples/from_planetoid.py {} cora cora", data.join("raw/planetoid").display()));
    let (made, reference) =
        (Dataset::open(dir.path().join("cora")).unwrap(), Dataset::open(data.join("cora")).unwrap());
    assert_eq!(made.meta(), reference.meta());
    assert!(made.graph().unwrap() == reference.graph().unwrap() && made.labels() == reference.labels());
    assert!(made.split("public").unwrap() == reference.split("public").unwrap());
    let (Some(Features::Sparse(a)), Some(Features::Sparse(b))) = (made.features(), reference.features()) else {
        panic!("sparse features")
    };
    assert!(a.indptr == b.indptr && a.indices == b.indices);
    assert!(a.data.as_ref().unwrap().iter().all(|&x| x == 1.0));
}

/// CiteSeer's test nodes have gaps: nodes that no file mentions.
#[test]
#[cfg_attr(not(numpy), ignore = "needs Python with NumPy and SciPy (GRAPHWEFT_PYTHON)")]
fn test_nodes_that_planetoid_does_not_mention_are_isolated() {
    let dir = checkout();
    python_ok(
        dir.path(),
        "import pickle, scipy.sparse as sp, collections, os
os.mkdir('raw')
def dump(part, x): pickle.dump(x, open(f'raw/ind.toy.{part}', 'wb'), protocol=2)
rows = lambda n, k: sp.csr_matrix(np.eye(4, dtype='f4')[(np.arange(n) + k) % 4])
hot = lambda n, k: np.eye(2, dtype='i4')[(np.arange(n) + k) % 2]
dump('x', rows(4, 0)); dump('y', hot(4, 0)); dump('allx', rows(504, 0)); dump('ally', hot(504, 0))
dump('tx', rows(3, 1)); dump('ty', hot(3, 1))
graph = collections.defaultdict(list, {i: [(i + 1) % 504, i] for i in range(504)})
graph[504] = [507]
dump('graph', graph)
open('raw/ind.toy.test.index', 'w').write('507\\n504\\n506\\n')",
    );
    run(dir.path(), "python3 examples/from_planetoid.py raw toy toy");
    let data = Dataset::open(dir.path().join("toy")).unwrap();
    // 505 is mentioned nowhere; the reverse of every edge is there, self-loops are not.
    assert_eq!((data.meta().num_nodes, data.meta().num_edges, data.meta().symmetric), (508, 2 * 505, true));
    let Some(Labels::Single(y)) = data.labels() else { panic!("a class each") };
    // 507 has the first row of ty, 504 the second, 506 the third.
    assert_eq!(y[503..], [1, 0, -1, 1, 1]);
    let Some(Features::Sparse(x)) = data.features() else { panic!("sparse") };
    assert_eq!(&x.indptr[504..], [504, 505, 505, 506, 507]);
    assert_eq!(&x.indices[504..], [2, 3, 1]);
    let split = data.split("public").unwrap();
    assert_eq!((split.train.len(), split.valid.len(), &split.test[..]), (4, 500, &[504, 506, 507][..]));
    // What calls anything but arrays is not unpickled.
    python_ok(
        dir.path(),
        "import pickle, os\nclass Bad:\n    def __reduce__(self): return os.mkdir, ('owned',)\npickle.dump(Bad(), open('raw/ind.toy.y', 'wb'))",
    );
    assert!(!shell(dir.path(), "python3 examples/from_planetoid.py raw toy other").status.success());
    assert!(!dir.path().join("owned").exists());
}

/// Two edges that go one way become four, unless they are to stay.
#[test]
#[cfg_attr(not(numpy), ignore = "needs Python with NumPy and SciPy (GRAPHWEFT_PYTHON)")]
fn benchmark_archives_are_symmetrised_unless_told_otherwise() {
    let dir = checkout();
    python_ok(
        dir.path(),
        "np.savez('gnn-benchmark.npz', adj_data=np.ones(2), adj_indices=[1, 2], adj_indptr=[0, 1, 2, 2], adj_shape=[3, 3],
    labels=[0, 1, 0])
np.savez('heterophilous.npz', node_features=np.eye(3), node_labels=[0, 1, 0], edges=[[0, 1], [1, 2]])",
    );
    for format in ["gnn-benchmark", "heterophilous"] {
        for (flag, edges, symmetric) in [("", 4, true), ("--symmetrise", 4, true), ("--directed", 2, false)] {
            let line = format!("graphweft import {format} {format}.npz -o {format}{flag} {flag} --json");
            let json: serde_json::Value = serde_json::from_str(&run(dir.path(), &line)).unwrap();
            assert_eq!((&json["edges"], &json["symmetric"]), (&edges.into(), &symmetric.into()), "{line}");
        }
        let both = shell(dir.path(), &format!("graphweft import {format} {format}.npz -o x --directed --symmetrise"));
        assert_eq!(both.status.code(), Some(2));
    }
}
