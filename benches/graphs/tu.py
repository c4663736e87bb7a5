#!/usr/bin/env python3
"""Scores on the TU collection by GIN's protocol: tu.py --program GRAPHWEFT --raw FOLDER [--out DIR] [DATASET…]

FOLDER has tu-mutag, tu-proteins, … with splits-10fold.json. GIN's way (Xu et al., 2019): ten folds without a test part; of the
mean over folds of the validation accuracy after every epoch, the best epoch counts, with the deviation over folds there. It is
optimistic by some points, as the published numbers are.

One setting for all, fixed before anything was run: GIN-0 of four layers, 32 wide, every layer read out by sums, batch norm,
dropout 0.5 of what is read out and between layers, batches of 32, Adam, learning rate 0.01 falling to 0 as a cosine, 350 epochs.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import mean, stdev

SETTINGS = [
    "model.hidden=32", "model.layers=4", "model.norm=batch", "model.readout=sum", "model.readout_from=all",
    "train.batch=32", "train.epochs=350", "train.optimizer=adam", "train.lr=0.01", "train.schedule=cosine",
    "train.dropout=0.5", "run.seeds=10", "data.split=10fold-*",
]
PUBLISHED = {"mutag": (89.4, 5.6), "proteins": (76.2, 2.8), "nci1": (82.7, 1.7), "imdb-binary": (75.1, 5.1)}


def curve(run):
    """Validation accuracy after each epoch."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["valid"] for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="graphweft")
    parser.add_argument("--raw", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("datasets", nargs="*", default=list(PUBLISHED))
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp())
    print("| dataset | ours | epoch | published GIN-0 | s per epoch |\n|---|---|---|---|---|")
    for name in args.datasets:
        data, runs = out / name, out / f"run-{name}"
        if not data.exists():
            subprocess.run([args.program, "import", "tu", args.raw / f"tu-{name}", "-o", data], check=True)
        if not (runs / "result.json").exists():
            command = [args.program, "train", "--data", data, "--model", "gin", *SETTINGS, "-o", runs]
            subprocess.run(command, check=True)
        folds = [curve(runs / f"seed-{k}") for k in range(10)]
        best = max(range(len(folds[0])), key=lambda epoch: mean(fold[epoch] for fold in folds))
        there = [fold[best] for fold in folds]
        times = [json.loads(line) for line in (runs / "seed-0" / "times.jsonl").read_text().splitlines()]
        seconds = sorted(line["learn_ms"] for line in times)[len(times) // 2] / 1e3
        published = "{} ± {}".format(*PUBLISHED[name])
        print(f"| {name} | {mean(there):.1f} ± {stdev(there):.1f} | {best + 1} | {published} | {seconds:.3f} |", flush=True)


if __name__ == "__main__":
    main()
