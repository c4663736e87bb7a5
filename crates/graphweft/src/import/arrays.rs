//! Arrays and tables, file by file.

use std::path::PathBuf;

use graphweft_graph::dataset::Task as DatasetTask;
use graphweft_graph::read::Input;
use graphweft_graph::read::arrays::{Columns, EdgeNumbers, File, Given};

use crate::error::Result;

/// Files of one's own. Row i of every file is node i, unless the table of nodes has ids.
///
/// ```
/// use graphweft::{ArrayFiles, Import};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = |name: &str| dir.path().join(name);
/// std::fs::write(path("edges.csv"), "source,target\n7,9\n9,12\n").unwrap();
/// std::fs::write(path("nodes.csv"), "id,label,x\n7,0,0.5\n9,1,0.25\n12,1,1.0\n").unwrap();
/// let files = ArrayFiles { edges: path("edges.csv"), nodes: Some(path("nodes.csv")), ..ArrayFiles::default() };
/// let made = Import::arrays(files).symmetrise().write(path("mine"))?;
/// assert_eq!((made.nodes, made.features, made.classes), (3, 1, 2));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ArrayFiles {
    /// The edges: a list, `.npy`, a SciPy `.npz`, Matrix Market or METIS.
    pub edges: PathBuf,
    /// A CSV with a header and a row for each node.
    pub nodes: Option<PathBuf>,
    /// Node features: `.npy`, a SciPy csr `.npz`, or CSV.
    pub features: Option<PathBuf>,
    /// Labels: `.npy` or CSV.
    pub labels: Option<PathBuf>,
    /// What the labels are for.
    pub task: DatasetTask,
    /// An `.npz` of masks or of ids.
    pub splits: Option<PathBuf>,
    /// Nodes to learn from: a mask, or ids.
    pub train: Option<PathBuf>,
    /// Nodes to choose the best epoch by.
    pub valid: Option<PathBuf>,
    /// Nodes to report on.
    pub test: Option<PathBuf>,
    /// A row of numbers for each edge: a file, or `Some(None)` for the columns of the edge list from the third on.
    pub edge_features: Option<Option<PathBuf>>,
    /// The number of nodes, where no file has a row for each.
    pub num_nodes: Option<u64>,
    /// The column of node ids, of the table of nodes.
    pub id_column: Option<String>,
    /// The column of labels, or several of 0 and 1.
    pub label_columns: Vec<String>,
    /// The column of train, valid and test.
    pub split_column: Option<String>,
    /// Columns to leave out.
    pub skip_columns: Vec<String>,
}

impl ArrayFiles {
    /// The files, known to exist.
    pub(super) fn open(&self) -> Result<Given> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(File::open).transpose();
        Ok(Given {
            edges: File::open(&self.edges)?,
            nodes: self.nodes.as_deref().map(Input::file).transpose()?,
            columns: Columns {
                id: self.id_column.clone(),
                labels: self.label_columns.clone(),
                split: self.split_column.clone(),
                skip: self.skip_columns.clone(),
            },
            features: open(&self.features)?,
            labels: open(&self.labels)?,
            task: self.task,
            splits: open(&self.splits)?,
            parts: [open(&self.train)?, open(&self.valid)?, open(&self.test)?],
            edge_features: match &self.edge_features {
                None => EdgeNumbers::None,
                Some(None) => EdgeNumbers::Columns,
                Some(Some(path)) => EdgeNumbers::File(File::open(path)?),
            },
            num_nodes: self.num_nodes,
        })
    }
}
