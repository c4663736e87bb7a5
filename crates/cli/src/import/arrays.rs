//! `graphweft import arrays`: data of one's own, from NumPy and SciPy files, with the tables that go with them.

use std::path::PathBuf;

use clap::ValueEnum;
use graphweft::{ArrayFiles, DatasetTask};

use super::Common;

/// What labels are for.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(super) enum For {
    /// A class each, or several labels of 0 and 1
    #[default]
    NodeClassification,
    /// One or more numbers each (empty or NaN: not known)
    NodeRegression,
}

impl From<For> for DatasetTask {
    fn from(task: For) -> Self {
        match task {
            For::NodeClassification => Self::NodeClassification,
            For::NodeRegression => Self::NodeRegression,
        }
    }
}

/// Arguments of `import arrays`. Row i of every file is node i, unless the table of nodes has ids.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The edges: a list "source destination" per line (CSV, TSV, .gz, .zst), .npy of shape [2, E] or [E, 2], a SciPy
    /// .npz, Matrix Market or METIS
    #[arg(long, value_name = "FILE")]
    edges: PathBuf,

    /// A CSV with a header and a row for each node: id, label, split, and all other columns are features. Edges are
    /// then in these ids
    #[arg(long, value_name = "CSV")]
    nodes: Option<PathBuf>,

    /// Node features: .npy [N, F], a SciPy csr .npz, or CSV
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,

    /// Labels: .npy with a class for each node (−1 or NaN: none), or [N, C] of 0 and 1, or CSV
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,

    /// What the labels are for
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    task: For,

    /// An .npz of train_mask, val_mask and test_mask (several splits: [N, S]) or of train_idx, valid_idx and test_idx
    #[arg(long, visible_alias = "masks", value_name = "NPZ")]
    splits: Option<PathBuf>,

    /// Nodes to learn from: a mask of truth values (several splits: [N, S]), or node ids; .npy, .npz or text
    #[arg(long, visible_alias = "train-mask", value_name = "FILE")]
    train: Option<PathBuf>,

    /// Nodes to choose the best epoch by
    #[arg(long, visible_aliases = ["valid-mask", "val-mask"], value_name = "FILE")]
    valid: Option<PathBuf>,

    /// Nodes to report on
    #[arg(long, visible_alias = "test-mask", value_name = "FILE")]
    test: Option<PathBuf>,

    /// A row of numbers for each edge, in their order: .npy, .npz or CSV; without FILE, the columns of the edge list
    /// from the third on
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    edge_features: Option<Option<PathBuf>>,

    /// The number of nodes, where no file has a row for each [default: the largest id + 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    num_nodes: Option<u64>,

    /// --nodes: the column of node ids [default: id, node or node_id]
    #[arg(long, value_name = "NAME", requires = "nodes")]
    id_column: Option<String>,

    /// --nodes: the column of labels, or several of 0 and 1 [default: label, class, y or target]
    #[arg(long, value_name = "NAMES", requires = "nodes", value_delimiter = ',')]
    label_columns: Vec<String>,

    /// --nodes: the column of train, valid and test [default: split or set]
    #[arg(long, value_name = "NAME", requires = "nodes")]
    split_column: Option<String>,

    /// --nodes: columns to leave out
    #[arg(long, value_name = "NAMES", requires = "nodes", value_delimiter = ',')]
    skip_columns: Vec<String>,

    /// The dataset folder to create
    #[arg(short, long = "output", value_name = "DIR")]
    pub(super) output: PathBuf,

    #[command(flatten)]
    pub(super) common: Common,
}

const EXAMPLES: &str = "Examples:
  graphweft import arrays --edges edge_index.npy --features x.npy --labels y.npy --masks masks.npz -o mine
  graphweft import arrays --edges graph.npz:edges --features graph.npz:x --train train.npy --valid valid.npy \\
      --test test.npy -o mine

Nodes and edges that are both in CSV, TSV or Parquet files: import table, which takes ids of any kind.
FILE.npz:NAME names an array of an archive that has several.";

impl Args {
    /// The files.
    pub(super) fn files(&self) -> ArrayFiles {
        ArrayFiles {
            edges: self.edges.clone(),
            nodes: self.nodes.clone(),
            features: self.features.clone(),
            labels: self.labels.clone(),
            task: self.task.into(),
            splits: self.splits.clone(),
            train: self.train.clone(),
            valid: self.valid.clone(),
            test: self.test.clone(),
            edge_features: self.edge_features.clone(),
            num_nodes: self.num_nodes,
            id_column: self.id_column.clone(),
            label_columns: self.label_columns.clone(),
            split_column: self.split_column.clone(),
            skip_columns: self.skip_columns.clone(),
        }
    }
}
