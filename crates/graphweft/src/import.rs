//! Other formats, and files of one's own, as dataset folders.

mod arrays;
mod format;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use graphweft_base::Error as Bad;
use graphweft_graph::SelfLoops;
use graphweft_graph::build::{EdgeRules, Scratch};
use graphweft_graph::dataset::{Dataset, DatasetWriter, Task as DatasetTask};
use graphweft_graph::read::edge_list::{self, Ids};
use graphweft_graph::read::n_triples::Sets;
use graphweft_graph::read::{self, Context, Directory, Folder, Input, links};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::machine;
use crate::memory;
use crate::observe::{Observer, Watched};
use crate::setters::setters;
use crate::stored::Stored;

pub use arrays::ArrayFiles;
pub use format::Format;
use tables::Tables;

/// Where the machine does not say how much memory it has.
const FALLBACK_MEMORY: u64 = 1 << 30;

/// Another format, or files of one's own, to become a dataset folder. Edges are sorted in a given part of memory, so
/// that the graph may be larger than that.
///
/// ```
/// use graphweft::{Dataset, Format, Import};
/// # let dir = tempfile::tempdir().unwrap();
/// # let file = dir.path().join("edges.txt");
/// std::fs::write(&file, "# three nodes\n7 9\n9 1000\n").unwrap();
/// let import = Import::new(Format::EdgeList, &file).relabel_ids().symmetrise();
/// import.write(dir.path().join("data"))?;
/// assert_eq!(Dataset::open(dir.path().join("data"))?.num_edges(), 4);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone)]
pub struct Import {
    source: Source,
    name: Option<String>,
    symmetrise: bool,
    merge_parallel: bool,
    self_loops: SelfLoops,
    memory: Option<u64>,
    directed: bool,
    ids: Option<Ids>,
    num_nodes: Option<u64>,
    edge_features: bool,
    nodes_of: Option<PathBuf>,
    tables: Tables,
    observer: Arc<dyn Observer>,
}

#[derive(Clone)]
enum Source {
    Format(Format, PathBuf),
    Arrays(Box<ArrayFiles>),
    Tables,
    Union(Vec<PathBuf>),
}

impl Import {
    /// A file of this format; for OGB, TU and typed graphs, the folder.
    pub fn new(format: Format, path: impl Into<PathBuf>) -> Self {
        Self::of(Source::Format(format, path.into()))
    }

    /// Files of one's own.
    pub fn arrays(files: ArrayFiles) -> Self {
        Self::of(Source::Arrays(Box::new(files)))
    }

    /// Dataset folders of nodes as one: all nodes, folder after folder, with the splits that all of them have. Their
    /// columns must be the same.
    ///
    /// ```no_run
    /// graphweft::Import::union(["twitch-de", "twitch-es"]).write("both")?;
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    pub fn union<P: Into<PathBuf>>(folders: impl IntoIterator<Item = P>) -> Self {
        Self::of(Source::Union(folders.into_iter().map(Into::into).collect()))
    }

    /// Tables of nodes and edges, CSV, TSV or Parquet, which [`Import::node_table`], [`Import::edge_table`] and
    /// [`Import::schema`] name.
    ///
    /// ```
    /// use graphweft::Import;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = |name: &str| dir.path().join(name).display().to_string();
    /// std::fs::write(path("people.csv"), "id,age,town\nann,41,Rome\nbob,25,Oslo\n").unwrap();
    /// std::fs::write(path("papers.csv"), "id,label\np1,0\np2,1\n").unwrap();
    /// std::fs::write(path("writes.csv"), "person,paper\nann,p1\nbob,p1\nbob,p2\n").unwrap();
    /// let tables = Import::tables()
    ///     .node_table(&format!("person={}", path("people.csv")))
    ///     .node_table(&format!("paper={}", path("papers.csv")))
    ///     .edge_table(&format!("person:writes:paper={}", path("writes.csv")));
    /// assert_eq!(tables.guess()?["columns"][2]["used_as"], "category");
    /// let made = tables.symmetrise().write(dir.path().join("data"))?;
    /// assert_eq!((made.nodes, made.edges, made.classes), (4, 6, 2));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    pub fn tables() -> Self {
        Self::of(Source::Tables)
    }

    /// A table of nodes: `[TYPE=]FILE`, or `TYPE=N` for N nodes that only have numbers. Several tables of a type
    /// follow one another.
    #[must_use]
    pub fn node_table(mut self, table: &str) -> Self {
        self.tables.nodes.push(table.into());
        self
    }

    /// A table of edges: `FILE`, `TYPE=FILE` or `SOURCE:TYPE:DESTINATION=FILE`.
    #[must_use]
    pub fn edge_table(mut self, table: &str) -> Self {
        self.tables.edges.push(table.into());
        self
    }

    /// What a column of a table is for: `[TABLE.]COLUMN=ROLE`, where the table is its type, or its file up to the
    /// first full stop, and the role one of id, source, destination, type, label, split, feature, category and skip.
    #[must_use]
    pub fn column(mut self, column: &str) -> Self {
        self.tables.columns.push(column.into());
        self
    }

    /// The tables of a TOML file, as [`Import::guess`] writes it. Paths are taken from its folder.
    #[must_use]
    pub fn schema(mut self, path: impl Into<PathBuf>) -> Self {
        self.tables.schema = Some(path.into());
        self
    }

    /// What the labels of tables are for.
    #[must_use]
    pub fn task(mut self, task: DatasetTask) -> Self {
        self.tables.task = task;
        self
    }

    /// What the columns of the tables are taken for, from their names and first rows: `columns`, each with `file`,
    /// `column`, `holds`, `used_as` and `example`, and all of it as a schema in `toml`.
    ///
    /// # Errors
    /// If a table cannot be read, or a column that was named is not there.
    pub fn guess(&self) -> Result<Value> {
        let given = self.tables.open()?;
        let scratch = Scratch::new(std::env::temp_dir());
        let rules = EdgeRules { symmetrise: false, merge_parallel: false, self_loops: self.self_loops, memory: 0 };
        let watched = Watched::by(&self.observer);
        let cx = Context { rules, scratch: &scratch, progress: &watched };
        Ok(tables::shown(&read::tables::guess(&given, &cx)?))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            name: None,
            symmetrise: false,
            merge_parallel: false,
            self_loops: SelfLoops::Keep,
            memory: None,
            directed: false,
            ids: None,
            num_nodes: None,
            edge_features: false,
            nodes_of: None,
            tables: Tables::default(),
            observer: Arc::new(()),
        }
    }

    /// What to call it, in place of the name of its folder.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    setters! {
        /// Ids of an edge list are numbers from 0: so they are if nothing is said.
        keep_ids => ids = Some(Ids::Keep),

        /// Ids of an edge list are any 64-bit integers: they are numbered in ascending order, and kept as
        /// `node_id.npy`.
        relabel_ids => ids = Some(Ids::Relabel),

        /// Adds the reverse of every edge and merges parallel edges.
        symmetrise = true,

        /// Keeps the edges of [`Format::Heterophilous`] and [`Format::GnnBenchmark`] as they are listed. Without this
        /// they are symmetrised, as for the scores that are published for these graphs.
        directed = true,

        /// Keeps only the first of parallel edges.
        merge_parallel = true,

        /// What to do with self-loops.
        self_loops: SelfLoops,

        /// Bytes to sort edges in; what exceeds them goes through temporary files. A quarter of the machine's if
        /// nothing is said.
        memory: u64 => Some,

        /// The number of nodes of an edge list, in place of the largest id + 1.
        num_nodes: u64 => Some,

        /// Columns of an edge list from the third on are numbers that become edge features.
        edge_features = true,

        /// Who watches.
        observer: Arc<dyn Observer>,
    }

    /// The dataset folder whose nodes and features [`Format::Links`] are of.
    #[must_use]
    pub fn nodes_of(self, folder: impl Into<PathBuf>) -> Self {
        Self { nodes_of: Some(folder.into()), ..self }
    }

    /// Reads, sorts and writes the folder.
    ///
    /// # Errors
    /// If a file is missing or malformed, with its position; if the folder exists.
    pub fn write(&self, dir: impl AsRef<Path>) -> Result<Stored> {
        let mut made = self.write_folder(dir.as_ref())?;
        made.json = json!({
            "name": made.name, "path": made.path, "nodes": made.nodes, "edges": made.edges,
            "edges_read": made.edges_read, "features": made.features, "classes": made.classes,
            "symmetric": made.symmetric, "splits": made.splits, "notes": made.notes,
        });
        Ok(made)
    }

    fn write_folder(&self, dir: &Path) -> Result<Stored> {
        if !matches!(self.source, Source::Tables) && self.tables != Tables::default() {
            return Err(Error::request("tables are named, but something else is imported", "use Import::tables"));
        }
        match &self.source {
            Source::Arrays(files) => {
                let given = files.open()?;
                let mut made = self.read(dir, self.edges(), |cx| read::arrays::read(&given, cx))?;
                if !made.symmetric {
                    let note = "some edges go one way only; where they mean both, import with --symmetrise";
                    made.notes.push(note.into());
                }
                Ok(made)
            }
            Source::Tables => {
                let given = self.tables.open()?;
                self.read(dir, self.edges(), |cx| read::tables::read(&given, cx))
            }
            Source::Union(folders) => {
                let opened = folders.iter().map(Dataset::open).collect::<Result<Vec<_>, Bad>>()?;
                self.read(dir, self.edges(), |cx| read::union::read(&opened, cx))
            }
            Source::Format(format, path) => {
                self.check(*format)?;
                // The input first: a wrong path should leave no trace, not even the parents of the folder.
                let opened = Open::new(*format, path)?;
                let undirected = *format == Format::Links || is_published_undirected(*format) && !self.directed;
                let edges = if undirected { Edges::BothWays } else { self.edges() };
                let mut made = self.read(dir, edges, |cx| self.read_format(&opened, cx))?;
                if undirected && *format != Format::Links && !self.symmetrise && made.edges as u64 != made.edges_read {
                    let note = "symmetrised, as for published scores; --directed keeps the edges as they are listed";
                    made.notes.push(note.into());
                }
                Ok(made)
            }
        }
    }

    fn check(&self, format: Format) -> Result<()> {
        let given = [
            ("--ids", self.ids.is_some()),
            ("--num-nodes", self.num_nodes.is_some()),
            ("--edge-features", self.edge_features),
        ];
        if self.directed && !is_published_undirected(format) {
            let what =
                "--directed is for heterophilous and gnn-benchmark: other formats are only symmetrised if asked to";
            return Err(Error::request(what, "leave --directed out"));
        }
        match (format == Format::Links, self.nodes_of.is_some()) {
            (true, false) => {
                let what = "pairs of nodes alone do not say what the nodes are";
                return Err(Error::request(what, "name their dataset folder with --nodes-of"));
            }
            (false, true) => return Err(Error::request("--nodes-of is for links", "leave --nodes-of out")),
            _ => {}
        }
        match given.iter().find(|(_, given)| *given) {
            Some((flag, _)) if format != Format::EdgeList => {
                let what =
                    format!("{flag} is for edge lists: this format says by itself what its ids and columns mean");
                Err(Error::request(what, format!("leave {flag} out")))
            }
            _ => Ok(()),
        }
    }

    fn read_format(&self, opened: &Open, cx: &Context<'_>) -> Result<read::Imported, Bad> {
        match opened {
            Open::Folder(Format::Tu, folder) => read::tu::read(folder, cx),
            Open::Folder(Format::TypesJson, folder) => read::types_json::read(folder, cx),
            Open::Folder(Format::Triples, folder) => read::triples::read(folder, cx),
            Open::Folder(_, folder) => read::ogb::read(folder, cx),
            Open::Triples(input, sets) => read::n_triples::read(input, sets.as_ref(), cx),
            Open::File(Format::Heterophilous, input) => read::heterophilous::read(input, cx),
            Open::File(Format::GnnBenchmark, input) => read::gnn_benchmark::read(input, cx),
            Open::File(Format::MatrixMarket, input) => read::matrix_market::read(input, cx),
            Open::File(Format::Metis, input) => read::metis::read(input, cx),
            Open::File(Format::Links, input) => {
                let nodes = Dataset::open(self.nodes_of.as_deref().unwrap_or(Path::new("")))?;
                let nodes = links::Nodes {
                    count: nodes.meta().num_nodes,
                    ids: read::NodeIds::of(nodes.dir(), nodes.meta().num_nodes)?,
                    features: nodes.features().cloned(),
                    categories: nodes.categories().cloned(),
                };
                links::read(input, nodes, cx)
            }
            Open::File(_, input) => {
                let options = edge_list::Options {
                    ids: self.ids.unwrap_or(Ids::Keep),
                    num_nodes: self.num_nodes,
                    edge_features: self.edge_features,
                    ..Default::default()
                };
                edge_list::read(input, &options, cx)
            }
        }
    }

    fn edges(&self) -> Edges {
        if self.symmetrise { Edges::BothWays } else { Edges::AsListed }
    }

    /// Makes the folder from what `read` returns.
    fn read(
        &self,
        dir: &Path,
        edges: Edges,
        read: impl FnOnce(&Context<'_>) -> Result<read::Imported, Bad>,
    ) -> Result<Stored> {
        let of_folder = || dir.file_name().map_or_else(|| "graph".to_string(), |n| n.to_string_lossy().into_owned());
        let name = self.name.clone().unwrap_or_else(of_folder);
        let (started, writer) = (Instant::now(), DatasetWriter::create(dir)?);
        let scratch = Scratch::new(writer.path(""));
        let memory = self.memory.unwrap_or_else(|| machine::memory_bytes().map_or(FALLBACK_MEMORY, |b| b / 4));
        let rules = EdgeRules {
            symmetrise: edges == Edges::BothWays,
            merge_parallel: self.merge_parallel,
            self_loops: self.self_loops,
            memory: usize::try_from(memory).unwrap_or(usize::MAX),
        };
        let watched = Watched::by(&self.observer);
        let cx = Context { rules, scratch: &scratch, progress: &watched };
        let summary = read(&cx)?.write(&name, writer, &cx)?;
        let meta = summary.meta;
        Ok(Stored {
            path: dir.to_path_buf(),
            name: meta.name,
            nodes: meta.num_nodes,
            edges: meta.num_edges,
            edges_read: summary.edges_read,
            features: meta.num_features,
            classes: meta.num_classes,
            symmetric: meta.symmetric,
            splits: summary.splits,
            seconds: started.elapsed().as_secs_f64(),
            peak_bytes: memory::peak_bytes(),
            notes: summary.notes,
            json: Value::Null,
        })
    }
}

/// Which edges are stored.
#[derive(Clone, Copy, PartialEq)]
enum Edges {
    AsListed,
    /// With the reverse of each.
    BothWays,
}

/// Whether scores are published for these graphs with edges both ways.
fn is_published_undirected(format: Format) -> bool {
    matches!(format, Format::Heterophilous | Format::GnnBenchmark)
}

/// What is read, known to exist.
enum Open {
    File(Format, Input),
    Folder(Format, Directory),
    Triples(Input, Option<Sets>),
}

impl Open {
    fn new(format: Format, path: &Path) -> Result<Self, Bad> {
        match format {
            Format::Ogb | Format::Tu | Format::TypesJson | Format::Triples => {
                Directory::open(path).map(|folder| Self::Folder(format, folder))
            }
            Format::NTriples if path.is_dir() => Self::triples(path),
            Format::NTriples => Input::file(path).map(|input| Self::Triples(input, None)),
            _ => Input::file(path).map(|input| Self::File(format, input)),
        }
    }
}

impl Open {
    /// The only file of triples in a folder, and the tables beside it.
    fn triples(dir: &Path) -> Result<Self, Bad> {
        let folder = Directory::open(dir)?;
        let unreadable = |e: std::io::Error| Bad::unreadable(dir, "folder", &e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".nt") || name.ends_with(".nt.gz") {
                found.push(name);
            }
        }
        found.sort();
        let [triples] = &found[..] else {
            let problem = format!("{} files end in .nt or .nt.gz, expected one: {}", found.len(), found.join(", "));
            return Err(Bad::bad(dir, "folder", problem, "name the file itself, or leave one in the folder"));
        };
        let sets = match (folder.input("trainingSet.tsv")?, folder.input("testSet.tsv")?) {
            (Some(train), Some(test)) => Some(Sets { train, test }),
            (None, None) => None,
            _ => {
                let problem = "there is only one of trainingSet.tsv and testSet.tsv";
                return Err(Bad::bad(dir, "folder", problem, "add the other one, or name the file of triples itself"));
            }
        };
        Input::file(dir.join(triples)).map(|input| Self::Triples(input, sets))
    }
}

impl std::fmt::Debug for Import {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Source::Format(format, path) => write!(f, "Import({format:?}, {})", path.display()),
            Source::Arrays(files) => write!(f, "Import({files:?})"),
            Source::Tables => write!(f, "Import({:?})", self.tables),
            Source::Union(folders) => write!(f, "Import({folders:?})"),
        }
    }
}
