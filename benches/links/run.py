#!/usr/bin/env python3
"""Links on real graphs: run.py --data DIR [--build BINARY] [--only TEXT] [--device cuda]

DIR holds the dataset folders, and in raw/ what they are imported from: NAME-links/seed-K.npz for K = 0 … 4 (85 % of the edges to learn
from and to send messages along, 5 % to choose by, 10 % to report on, with as many pairs that are no edges), folders of triples, and
ogbl-ddi. Every row is a case of CASES whose settings were fixed before its scores were seen; the test score is that at the best validation
score. The table goes to stdout and, with all cases, to RESULTS.md. The small cases run on a CPU; `--only gpu:` runs the others.
"""

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from measured import arguments, call  # noqa: E402

GAE = ("--model gcn data.embedding=16 data.self_loops=add model.hidden=32 model.layers=2 link.loss=all-pairs train.optimizer=adam "
       "train.lr=0.01 train.epochs=200")
TABLE = "--model table link.loss=one-of-all link.reciprocal=true train.optimizer=adam train.evaluate_every=10"
SMALL = f"{TABLE} data.embedding=256 train.batch=256 train.lr=0.003 train.dropout=0.4 train.epochs=200"
LARGE = f"{TABLE} data.embedding=512 train.batch=512 train.lr=0.001 train.dropout=0.4 train.epochs=60"
RGCN = ("--model rgcn data.symmetrise=true model.hidden=200 model.layers=2 model.bases=50 data.embedding=200 link.decoder=distmult "
        "train.negatives=10 train.batch=30000 train.lr=0.01 train.dropout=0.2 train.clip=1 train.epochs=300 train.evaluate_every=25")
COMPGCN = ("--model compgcn data.symmetrise=true model.hidden=200 model.layers=1 model.norm=batch data.embedding=200 link.decoder=distmult "
           "link.loss=some-of-all link.smoothing=0.1 link.reciprocal=true train.batch=1024 train.lr=0.001 train.dropout=0.3 "
           "train.epochs=100 train.evaluate_every=10")
DDI = ("data.embedding=256 model.hidden=256 model.layers=2 link.decoder=mlp link.layers=2 train.batch=65536 train.optimizer=adam "
       "train.lr=0.005 train.dropout=0.5 train.epochs=200 train.evaluate_every=5")
RANKS = ("mrr", "hits@1", "hits@10")
PAIRS = ("roc-auc", "average-precision")

# Name, settings, metrics, what is published for each, seeds.
CASES = [
    *[(f"GAE {name}", GAE, PAIRS, gae, 5) for name, gae in [("cora", (91.0, 92.0)), ("citeseer", (89.5, 89.9)), ("pubmed", (96.4, 96.5))]],
    *[(f"VGAE {name}", f"{GAE} link.variational=true", PAIRS, vgae, 5)
      for name, vgae in [("cora", (91.4, 92.6)), ("citeseer", (90.8, 92.0)), ("pubmed", (94.4, 94.7))]],
    *[(f"{decoder} {name}", f"{SMALL} link.decoder={decoder}", RANKS, conve, 3)
      for name, conve in [("umls", (94, 92, 99)), ("kinship", (83, 73, 98))] for decoder in ("complex", "distmult")],
    ("gpu: complex fb15k-237", f"{LARGE} link.decoder=complex", RANKS, (34.8, 25.3, 53.6), 1),
    ("gpu: distmult fb15k-237", f"{LARGE} link.decoder=distmult", RANKS, (34.3, 25.0, 53.1), 1),
    ("gpu: complex wn18rr", f"{LARGE} link.decoder=complex", RANKS, (47.5, 43.8, 54.7), 1),
    ("gpu: rgcn fb15k-237", RGCN, RANKS, (24.8, 15, 41.7), 1),
    ("gpu: compgcn fb15k-237", COMPGCN, RANKS, (35.5, 26.4, 53.5), 1),
    ("gpu: compgcn wn18rr", COMPGCN, RANKS, (47.9, 44.3, 54.6), 1),
    ("gpu: gcn ogbl-ddi", f"--model gcn {DDI}", ("hits@20",), (37.07,), 10),
    ("gpu: sage ogbl-ddi", f"--model sage {DDI}", ("hits@20",), (53.90,), 10),
]


def imported(build, data, name, seed, folder):
    """The folder of a graph, which has other links for each seed where pairs are drawn."""
    out = Path(folder) / f"{name}-{seed}"
    if (Path(data) / "raw" / f"{name}-links").exists():
        if not out.exists():
            call(build, "import", "links", f"{data}/raw/{name}-links/seed-{seed}.npz", "--nodes-of", f"{data}/{name}", "-o", str(out))
        return out
    out = Path(folder) / name
    if not out.exists():
        how = ("ogb", "--symmetrise") if name.startswith("ogbl") else ("triples",)
        call(build, "import", how[0], f"{data}/raw/{name}", *how[1:], "-o", str(out))
    return out


def scores(args, case, folder):
    """A row of scores for each seed: trained by the first metric, and the same model scored by the others."""
    name, settings, metrics, _, seeds = case
    found = []
    for seed in range(seeds):
        links, run = imported(args.build, args.data, name.split()[-1], seed, folder), f"{folder}/run-{len(list(Path(folder).iterdir()))}"
        device = ("--device", args.device) if args.device else ()
        first = call(args.build, "train", "--data", str(links), *settings.split(), f"train.metric={metrics[0]}", "--seed", str(seed), *device,
                     "-o", run)["test"]
        found.append([first, *[call(args.build, "eval", run, "--metric", metric, *device)["test"] for metric in metrics[1:]]])
    return list(zip(*found))


def row(case, found):
    cells = []
    for metric, all, published in zip(case[2], found, case[3]):
        spread = f" ± {statistics.stdev(all):.2f}" if len(all) > 1 else ""
        cells.append(f"{metric} {statistics.mean(all):.2f}{spread} ({published})")
    return f"| {case[0].removeprefix('gpu: ')} | {case[4]} | {' | '.join(cells + [''] * (3 - len(cells)))} |\n"


def main():
    args = arguments(__doc__)
    page = "# Links\n\n| decoder or model, graph | seeds | score (published) | | |\n|---|---|---|---|---|\n"
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if args.only in case[0] and (args.only or not case[0].startswith("gpu:")):
                page += row(case, scores(args, case, folder))
                print(page.splitlines()[-1], flush=True)
    page += ("\nIn per cent, mean ± deviation over seeds, at the best validation score. Published for pairs are means of ten other random sets;\n"
             "for UMLS and Kinship those of ConvE. `benches/links/run.py --data DIR` makes this page; the settings of each row are in it.\n")
    print(page)
    if not args.only:
        Path(__file__).with_name("RESULTS.md").write_text(page)


main()
