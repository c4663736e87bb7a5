//! What can be imported, with the names that users write.

/// Formats that can be imported.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let file = dir.path().join("edges.txt");
/// std::fs::write(&file, "0 1\n1 2\n").unwrap();
/// let made = graphweft::Import::new(graphweft::Format::EdgeList, &file).write(dir.path().join("data"))?;
/// assert_eq!((made.nodes, made.edges), (3, 2));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `.npz` of the heterophilous-graphs collection.
    Heterophilous,
    /// `.npz` of gnn-benchmark.
    GnnBenchmark,
    /// The folder of an OGB dataset of nodes, of nodes of several types, of links or of whole graphs.
    Ogb,
    /// A folder of the TU collection: many graphs.
    Tu,
    /// `source destination` per line: SNAP, CSV, TSV; plain or gzip.
    EdgeList,
    /// A Matrix Market coordinate file; plain or gzip.
    MatrixMarket,
    /// METIS `.graph`; plain or gzip.
    Metis,
    /// The folder of a typed graph, with a `types.json`.
    TypesJson,
    /// N-Triples, plain or gzip: a file, or a folder of one beside `trainingSet.tsv` and `testSet.tsv`.
    NTriples,
    /// `.npz` of links between the nodes of a dataset folder: train, valid, test and, where they are given, valid_neg
    /// and test_neg. Edges are the links of training, both ways.
    Links,
    /// A folder with train.txt, valid.txt and test.txt of a knowledge graph: head, relation and tail, to be predicted.
    Triples,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Heterophilous,
        Self::GnnBenchmark,
        Self::Ogb,
        Self::Tu,
        Self::EdgeList,
        Self::MatrixMarket,
        Self::Metis,
        Self::TypesJson,
        Self::NTriples,
        Self::Links,
        Self::Triples,
    ];

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heterophilous => "heterophilous",
            Self::GnnBenchmark => "gnn-benchmark",
            Self::Ogb => "ogb",
            Self::Tu => "tu",
            Self::EdgeList => "edge-list",
            Self::MatrixMarket => "matrix-market",
            Self::Metis => "metis",
            Self::TypesJson => "types-json",
            Self::NTriples => "n-triples",
            Self::Links => "links",
            Self::Triples => "triples",
        }
    }

    /// What has to be there, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Heterophilous => {
                ".npz of the heterophilous-graphs collection: node_features, node_labels, edges, masks"
            }
            Self::GnnBenchmark => ".npz of gnn-benchmark: CSR matrices adj_* and attr_*, labels",
            Self::Ogb => {
                "Folder of an OGB dataset, with raw/ and split/: of nodes (CSV or binary), of nodes of several types, of \
                 links or of whole graphs (CSV)"
            }
            Self::Tu => "Folder of the TU collection: many graphs, NAME_A.txt and its kin",
            Self::EdgeList => "\"source destination\" per line: SNAP, CSV, TSV; plain or .gz",
            Self::MatrixMarket => "Matrix Market coordinate file; entry (i, j) is the edge i → j; plain or .gz",
            Self::Metis => "METIS .graph; plain or .gz",
            Self::TypesJson => {
                "Folder of a typed graph: types.json, edge_RELATION.npy, feat_TYPE.npy, label.npy, split/"
            }
            Self::NTriples => {
                "N-Triples, plain or .gz; or a folder of one such file beside trainingSet.tsv and testSet.tsv"
            }
            Self::Links => {
                ".npz of links to predict between the nodes of a dataset folder: train, valid, test, valid_neg, test_neg"
            }
            Self::Triples => {
                "Folder of train.txt, valid.txt and test.txt, plain or .gz: head, relation and tail to predict"
            }
        }
    }
}
