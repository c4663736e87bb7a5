"""The cases of simulate.py: graphs, machines, settings, and what was measured elsewhere."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GIB, MIB = 2**30, 2**20
HIDDEN, HEADS, LAYERS = 128, 8, 3
GT = [f"model.hidden={HIDDEN}", f"model.heads={HEADS}"]
DROPOUT = ["train.dropout=0.1", "train.attention_dropout=0.1"]
GROWTH = 0.44

# Nodes, stored edges, features, classes, alpha in 8 parts, and where that comes from.
GRAPHS = {
    "products": (2449029, 123718280, 100, 47, 0.80, "METIS in 10 parts needs 2,108,759 rows of others, 0.86 N (pull request 3821 of DGL), "
                 "taken back to 8 parts"),
    "proteins": (132534, 79122504, 8, 112, 2.6, "not known to us; that of Reddit, of similar degree, by METIS in 8 parts (GNNPipe's logs)"),
    "papers100M": (111059956, 3.23e9, 128, 172, 0.675, "not known to us; that of ogbn-arxiv by METIS in 8 parts (GNNPipe's logs)"),
    "10^12 edges": (1e10, 1e12, 128, 100, 0.5, "between web graphs (0.04) and social ones (2 and more): invented"),
}
PUBLISHED = {"products": 3.7, "proteins": 5.8}
ALPHAS = {"products": [0.2, 0.8, 1.3, 2.6, 7], "proteins": [0.5, 1.3, 2.6, 3.9]}
# Size of the cache, if another than the profile's, and how often it hits, if not as the program takes it to.
CACHES = {"shipped": (None, None), "never": (1.0, 0), "always": (None, 1)}
BF16 = "compute.dtype=bf16"
TRILLION = [(profile, ranks) for profile in ("64-cpu-25g", "h200x8") for ranks in (1024, 2048, 4096)]
# Alpha on as many ranks as there are.
MANY = [1.0, 3.9, 7.8]
PIECES = ["--allow-approximate", "--strategy", "isolated", "isolated.halo=0.25"]

# Real runs: graph, that of which it is a part, how small, ranks, type, strategies with what is computed again.
SMALL = [
    ("sbm:38266:47:50:h=0.98", "products", 64, 8, "bf16", [
        "halo:plain none", "halo:plain layer", "ring none", "heads none", "grid:4x2 none", "gather none"]),
    ("sbm:16567:8:705:h=0.995", "proteins", 8, 8, "bf16", ["halo:plain none", "heads none"]),
    ("sbm:108457:64:29:h=0.94", "papers100M", 1024, 64, "f32", ["halo:plain none", "halo:plain layer", "ring layer"]),
    # The same without communities: every part needs nearly all of the others.
    ("sbm:38266:47:50", "products", 64, 8, "bf16", [
        "halo:plain none", "halo:plain layer", "ring none", "ring layer", "heads none", "heads layer", "grid:4x2 none", "grid:4x2 layer",
        "gather none"]),
    ("sbm:8283:8:597", "proteins", 16, 8, "bf16", ["halo:plain none", "heads none", "ring none"]),
    ("sbm:108457:64:29", "papers100M", 1024, 64, "f32", ["halo:plain none", "halo:plain layer", "ring none", "ring layer"]),
    ("sbm:38266:47:50", "products", 64, 1, "bf16", ["local none", "local attention", "local layer", "local both"]),
]
# One H200, benches/gpu/RESULTS.md: graph, edges if they are known, type, computed again, ms, GiB.
GPU = [
    ("rmat:20:16", 16084032, "bf16", "none", 48.49, 11.50),
    ("rmat:20:16", 16084032, "bf16", "attention", 55.77, 8.52),
    ("rmat:20:16", 16084032, "bf16", "both", 69.88, 3.97),
    ("rmat:19:50", None, "bf16", "none", 38.41, 5.99),
    ("rmat:20:16", 16084032, "f32", "none", 133.82, 22.50),
    ("rmat:23:50", 399212988, "bf16", "attention", 918, 73.0),
    ("rmat:23:50", 399212988, "bf16", "both", 1140, 36.7),
]
REAL = ["cora", "pubmed", "coauthor-cs", "amazon-photo", "actor", "minesweeper", "law-cnr2000", "snap-web-google"]
PARTS = [2, 8, 64]
# R-MAT with 32 features on disk, GraphSAGE, 2 cores (benches/isolated/LARGE.md): nodes, edges, chunks, seconds of an
# epoch, bytes on disk. Of the larger only the processor's time is known, 7 minutes: taken to be shared by both cores.
LARGE = {"rmat:22:16": (4194304, 69436284, 64, 7.47, 0.9e9), "rmat:26:16": (67108864, 1127483356, 128, 210.0, 14e9)}
SAGE = ["--model", "sage", "model.layers=3", "model.hidden=32", BF16, "isolated.halo=0.5", "--allow-approximate", "--strategy", "isolated"]
