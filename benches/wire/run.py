#!/usr/bin/env python3
"""What coded rows cost in accuracy: 8 ranks under `halo` with METIS parts, 5 seeds, each codec beside exact rows.

    cargo build --release
    python3 benches/wire/run.py [--build PROGRAM] [--data DIR] [--only REGEX] [--seconds S] [--table]

Settings are those of benches/isolated/run.py, and GAT's those of its GCN and GraphSAGE; they, the seeds and the rule
below were fixed before any result. A score is the test accuracy at the best validation score, always found with exact
rows. The difference is paired by seed: coded less exact, in points, with its standard error. A codec holds where the mean
difference is at least -0.3 points, or within two standard errors of 0. What is done is a line of --kept.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RANKS, SEEDS, LIMIT = 8, 5, -0.3
sys.path.insert(0, str(HERE.parent / "isolated"))
import run as isolated  # noqa: E402

GRAPHS = {graph: isolated.GRAPHS[graph] for graph in ["cora", "pubmed", "amazon-photo", "coauthor-cs"]}
MODELS = ["gcn", "sage", "gat", "gt"]
CODECS = ["exact", "bf16", "f8", "int8", "int4", "int2", "int1", "columns:8"]


def settings(graph, model):
    split, shared, of_convolutions, of_gt = GRAPHS[graph]
    own = of_gt if model == "gt" else of_convolutions
    heads = ["model.heads=4"] if model == "gat" else []
    return ["--split", split], [*shared.split(), *own.split(), *heads, f"model.name={model}", "model.layers=2"]


def trained(program, data, graph, model, codec):
    flags, keys = settings(graph, model)
    with tempfile.TemporaryDirectory() as folder:
        command = [str(program), "train", "--data", str(data / graph), *flags, "--ranks", str(RANKS), "--strategy", "halo", "--wire", codec,
                   "--seeds", str(SEEDS), "-o", f"{folder}/run", "--device", "cpu", "--json", "-q", *keys]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {"test": {str(s["seed"]): s["test"] for s in found["seeds"]}, "bytes": sum(found["bytes_sent_per_epoch"])}


def paired(exact, coded):
    differences = [coded["test"][seed] - exact["test"][seed] for seed in exact["test"]]
    return statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5


def table(kept):
    print(f"| graph, model | exact, % | {' | '.join(CODECS[1:])} |")
    print("|---|" + "---|" * len(CODECS))
    for graph in GRAPHS:
        for model in MODELS:
            exact = kept.get((graph, model, "exact"))
            if exact is None:
                continue
            cells = []
            for codec in CODECS[1:]:
                coded = kept.get((graph, model, codec))
                if coded is None:
                    cells.append("")
                    continue
                mean, error = paired(exact, coded)
                holds = mean >= LIMIT or abs(mean) <= 2 * error
                cells.append(f"{mean:+.2f} ± {error:.2f}{'' if holds else ' (!)'}")
            print(f"| {graph}, {model} | {statistics.mean(exact['test'].values()):.2f} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "target/release/graphweft"), help="the program")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data"), help="folder of real graphs")
    parser.add_argument("--only", default="", help="runs whose graph, model and codec match, as in 'cora gcn'")
    parser.add_argument("--seconds", type=float, default=1e6, help="no run begins later than that")
    parser.add_argument("--kept", default=str(HERE / "accuracy.jsonl"), help="what is finished")
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    path, end = Path(args.kept), time.monotonic() + args.seconds
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    kept = {tuple(line["key"]): line["value"] for line in lines}
    wanted = [(graph, model, codec) for graph in GRAPHS for model in MODELS for codec in CODECS]
    for key in wanted if not args.table else []:
        if key in kept or not re.search(args.only, " ".join(key)) or time.monotonic() > end:
            continue
        value = kept[key] = trained(args.build, Path(args.data), *key)
        with path.open("a") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")
        print(*key, value, file=sys.stderr)
    table(kept)


if __name__ == "__main__":
    main()
