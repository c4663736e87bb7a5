//! Replays the committed fuzz corpus: whatever a fuzzer once found stays found.

use std::fs;
use std::path::Path;

use graphweft_graph::fuzz;

type Target = (&'static str, fn(&[u8]));

#[test]
fn the_corpus_of_every_target_passes() {
    let targets: [Target; 18] = [
        ("arrays", fuzz::arrays),
        ("heterophilous", fuzz::heterophilous),
        ("links", fuzz::links),
        ("gnn_benchmark", fuzz::gnn_benchmark),
        ("ogb_csv", fuzz::ogb_csv),
        ("ogb_binary", fuzz::ogb_binary),
        ("ogb_graphs", fuzz::ogb_graphs),
        ("tu", fuzz::tu),
        ("edge_list", fuzz::edge_list),
        ("matrix_market", fuzz::matrix_market),
        ("metis", fuzz::metis),
        ("n_triples", fuzz::n_triples),
        ("triples", fuzz::triples),
        ("types_json", fuzz::types_json),
        ("table", fuzz::table),
        ("parquet", fuzz::parquet),
        ("npy", fuzz::npy),
        ("dataset_folder", fuzz::dataset_folder),
    ];
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in targets {
        let folder = corpus.join(name);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
        assert!(!files.is_empty(), "{} is empty", folder.display());
        for file in files {
            // A failure names the last file printed.
            println!("{}", file.display());
            target(&fs::read(&file).unwrap());
        }
    }
}
