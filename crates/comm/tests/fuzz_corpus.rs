//! Replays the committed fuzz corpus of what strangers can send.
#![cfg(feature = "cuda")]

use std::fs;
use std::path::Path;

use graphweft_comm::nccl::fuzz;

#[test]
fn the_corpus_of_every_target_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in [("greeting", fuzz::greeting as fn(&[u8])), ("frames", fuzz::frames)] {
        let files: Vec<_> = fs::read_dir(corpus.join(name)).unwrap().map(|f| f.unwrap().path()).collect();
        assert!(!files.is_empty(), "{name} is empty");
        for file in files {
            // A failure names the last file printed.
            println!("{}", file.display());
            target(&fs::read(&file).unwrap());
        }
    }
}
