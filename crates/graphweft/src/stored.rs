//! Dataset folders that were written.

use std::path::PathBuf;

use serde_json::Value;

/// A dataset folder that was generated, imported or divided into chunks.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let file = dir.path().join("edges.txt");
/// std::fs::write(&file, "0 1\n0 1\n").unwrap();
/// let import = graphweft::Import::new(graphweft::Format::EdgeList, &file).merge_parallel();
/// let made = import.write(dir.path().join("data"))?;
/// assert_eq!((made.edges_read, made.edges), (2, 1));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stored {
    /// The folder.
    pub path: PathBuf,
    /// What the graph is called.
    pub name: String,
    /// Nodes.
    pub nodes: usize,
    /// Edges that are stored.
    pub edges: usize,
    /// Edges that were read or drawn.
    pub edges_read: u64,
    /// Columns of the features; 0 if there are none.
    pub features: usize,
    /// Classes, or labels per node; 0 if there are none.
    pub classes: usize,
    /// Whether each edge stands beside its reverse.
    pub symmetric: bool,
    /// Splits, by name.
    pub splits: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// The most bytes that this process has had in memory, where the operating system tells.
    pub peak_bytes: Option<u64>,
    /// What there is to say about it.
    pub notes: Vec<String>,
    pub(crate) json: Value,
}

impl Stored {
    /// As the verb of the program that does it prints it with `--json`.
    pub fn to_json(&self) -> Value {
        self.json.clone()
    }
}
