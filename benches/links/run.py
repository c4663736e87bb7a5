#!/usr/bin/env python3
"""Links on real graphs: run.py --data DIR [--build BINARY]

DIR holds the dataset folders, and raw/NAME-links/seed-K.npz for K = 0 … 4: 85 % of the edges to learn from and to send messages along, 5 %
to choose by, 10 % to report on, with as many pairs that are no edges. A GAE (Kipf and Welling 2016): two layers of a GCN, 32 and 16 wide,
no dropout, rate 0.01, 200 epochs; the test score at the best validation score, with the same seed for the weights as for the links. The
table goes to stdout and to RESULTS.md.
"""

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from measured import arguments, call  # noqa: E402

SEEDS = 5
SETTINGS = ("data.embedding=16 data.normalise=row data.self_loops=add model.hidden=32 model.layers=2 train.optimizer=adam train.lr=0.01 "
            "train.epochs=200")
PUBLISHED = {"cora": (91.0, 92.0), "citeseer": (89.5, 89.9), "pubmed": (96.4, 96.5)}


def scores(build, data, name, folder):
    """ROC-AUC and average precision of every seed."""
    found = []
    for seed in range(SEEDS):
        links, run = f"{folder}/{name}-{seed}", f"{folder}/{name}-run-{seed}"
        call(build, "import", "links", f"{data}/raw/{name}-links/seed-{seed}.npz", "--nodes-of", f"{data}/{name}", "-o", links)
        metrics = ("roc-auc", "average-precision")
        found.append([
            call(build, "train", "--data", links, "--model", "gcn", *SETTINGS.split(), f"train.metric={metric}", "--seed", str(seed),
                 "-o", f"{run}-{metric}")["test"]
            for metric in metrics
        ])
    return list(zip(*found))


def row(name, found, published):
    means = [statistics.mean(all) for all in found]
    cells = " | ".join(f"{mean:.2f} ± {statistics.stdev(all):.2f} | {p}" for mean, all, p in zip(means, found, published))
    below = [f"{what} {mean - p:+.2f}" for what, mean, p in zip(("ROC-AUC", "precision"), means, published) if mean < p - 1]
    return f"| {name} | {cells} | {', '.join(below) or 'none'} |\n"


def main():
    args = arguments(__doc__)
    page = "# Links\n\n| graph | ROC-AUC | published | average precision | published | more than a point below |\n|---|---|---|---|---|---|\n"
    with tempfile.TemporaryDirectory() as folder:
        for name, published in PUBLISHED.items():
            if args.only in name:
                page += row(name, scores(args.build, args.data, name, folder), published)
    page += ("\nGAE, mean ± deviation over five sets of links, in per cent, at the best validation score. Published\n"
             "are the means of ten other random sets, of a loss over all pairs of nodes where ours draws one pair against each link.\n"
             "`benches/links/run.py --data DIR` makes this page.\n"
             "\n```sh\ngraphweft import links DIR/raw/cora-links/seed-0.npz --nodes-of DIR/cora -o links\n"
             f"graphweft train --data links --model gcn {SETTINGS} train.metric=roc-auc --seed 0\n```\n")
    print(page)
    if not args.only:
        Path(__file__).with_name("RESULTS.md").write_text(page)


main()
