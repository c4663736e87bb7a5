#!/usr/bin/env python3
"""What learning from pieces costs in accuracy, and what each correction gives back: run.py --data DIR [--seconds S] [--build BINARY]

DIR holds the dataset folders. What is done is kept in target/isolated/results.jsonl and not run again, so the study may be made in
slices: --seconds stops after so long. RESULTS.md is written after every slice from all that is there. Every run is the test score
at the best validation score; scores are of the whole graph, exactly, whatever was learned from.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

HERE, KEPT = Path(__file__).parent, Path("target/isolated/results.jsonl")
USUAL = "data.symmetrise=true data.self_loops=add data.normalise=row train.optimizer=adam train.lr=0.01 train.dropout=0.5 model.hidden=64"
GRAPHS = {
    "cora": ("public", f"{USUAL} train.weight_decay=5e-4 train.epochs=100 train.evaluate_every=4"),
    "pubmed": ("public", f"{USUAL} train.weight_decay=5e-4 train.epochs=60 train.evaluate_every=6"),
    "amazon-photo": ("polynormer", f"{USUAL} train.weight_decay=5e-5 train.epochs=100 train.evaluate_every=4"),
    "coauthor-cs": ("polynormer", f"{USUAL} train.weight_decay=5e-4 train.epochs=24 train.evaluate_every=4"),
    "sbm:200000:10:12:snr=1.2": (None, "data.self_loops=add train.lr=0.01 model.hidden=32 train.epochs=8 train.evaluate_every=4"),
}
GT = "train.lr=0.003 model.heads=4"

# What is compared: name, settings beside those of the strategy.
VARIANTS = [
    ("fixed, none", "isolated.rotate_every=0 isolated.correction=none"),
    ("none", "isolated.correction=none"),
    ("depth-aware", "isolated.correction=depth-aware"),
    ("depth, shrinkage 0.5", "isolated.correction=depth-aware isolated.shrinkage=0.5"),
    ("batch scalar", "isolated.correction=batch-scalar"),
    ("half halo, none", "isolated.halo=0.5 isolated.correction=none"),
    ("half halo, first hop", "isolated.halo=0.5 isolated.correction=first-hop"),
    ("half halo, depth-aware", "isolated.halo=0.5 isolated.correction=depth-aware"),
]

# graph, model, layers, ranks, partition; in the order in which they are run.
ROWS = [
    ("cora", "gcn", 2, 16, "random"),
    ("cora", "sage", 4, 16, "random"),
    ("pubmed", "sage", 2, 4, "random"),
    ("cora", "gt", 2, 4, "random"),
    ("sbm:200000:10:12:snr=1.2", "sage", 2, 4, "random"),
    ("coauthor-cs", "gcn", 2, 4, "random"),
    ("amazon-photo", "gcn", 2, 4, "random"),
    ("cora", "gcn", 8, 4, "random"),
    ("amazon-photo", "sage", 4, 16, "random"),
    ("pubmed", "gcn", 4, 16, "random"),
    ("cora", "gt", 4, 16, "random"),
    ("amazon-photo", "gt", 2, 16, "random"),
    ("amazon-photo", "sage", 4, 16, "metis"),
    ("coauthor-cs", "sage", 2, 16, "random"),
    ("cora", "sage", 8, 16, "random"),
]


def variants(row):
    """Everything on the first rows, what matters on the others, and the least on the graph that takes longest."""
    return VARIANTS if row in ROWS[:2] else VARIANTS[1:3] if row[0].startswith("sbm") else VARIANTS[:3]


def jobs(seeds):
    for row in ROWS:
        for seed in range(seeds):
            yield row, "exact", "", seed
            for name, settings in variants(row):
                yield row, name, settings, seed


def key(row, variant, seed):
    graph, model, layers, ranks, partition = row
    # Exact training knows no ranks.
    where = [None, None] if variant == "exact" else [ranks, partition]
    return json.dumps([graph, model, layers, *where, variant, seed])


def command(build, data, row, settings, seed, out):
    graph, model, layers, ranks, partition = row
    split, usual = GRAPHS[graph]
    origin = ["--data", f"{data}/{graph}", "--split", split] if split else ["--graph", graph]
    strategy = ["--ranks", str(ranks), "--strategy", "isolated", f"parallel.partition={partition}"] if settings else []
    extra = GT.split() if model == "gt" else []
    return [build, "train", *origin, "--model", model, *usual.split(), f"model.layers={layers}", *extra, *strategy,
            *settings.split(), "--seed", str(seed), "--json", "-o", out]


def table(done):
    def cell(row, variant):
        found = [done[k] for seed in range(10) if (k := key(row, variant, seed)) in done]
        if not found:
            return "–"
        spread = statistics.stdev(found) if len(found) > 1 else 0.0
        return f"{statistics.mean(found):.1f} ± {spread:.1f}" + (f" ({len(found)})" if len(found) < 3 else "")

    names = ["exact"] + [name for name, _ in VARIANTS]
    lines = ["| graph | model | layers | ranks | chunks | " + " | ".join(names) + " |", "|" + "---|" * (5 + len(names))]
    for row in ROWS:
        if any(key(row, name, 0) in done for name, _ in VARIANTS):
            cells = [cell(row, name) for name in names]
            lines.append("| " + " | ".join(map(str, row)) + " | " + " | ".join(cells) + " |")
    return lines


def contrasts(done):
    """Paired differences in per cent points, over all rows and seeds where both are there."""
    lines = ["| what | difference of test scores | standard error | pairs |", "|---|---|---|---|"]
    for what, one, other in [
        ("rotating instead of fixed chunks", "none", "fixed, none"),
        ("depth-aware weights", "depth-aware", "none"),
        ("the same, shrunk by half", "depth, shrinkage 0.5", "none"),
        ("one weight per rank (batch scalar)", "batch scalar", "none"),
        ("half of the halo rows only", "half halo, none", "none"),
        ("there, first-hop weights", "half halo, first hop", "half halo, none"),
        ("there, depth-aware weights", "half halo, depth-aware", "half halo, none"),
        ("pieces (rotating, no weights) instead of the whole graph", "none", "exact"),
    ]:
        pairs = [(key(row, one, s), key(row, other, s)) for row in ROWS for s in range(10)]
        found = [done[a] - done[b] for a, b in dict.fromkeys(pairs) if a in done and b in done]
        if len(found) > 1:
            error = statistics.stdev(found) / len(found) ** 0.5
            lines.append(f"| {what} | {statistics.mean(found):+.2f} | {error:.2f} | {len(found)} |")
    return lines


def report(done):
    head = (HERE / "RESULTS.head.md").read_text() if (HERE / "RESULTS.head.md").exists() else ""
    text = "\n".join([head.rstrip(), "", "## Test scores", "", *table(done), "", "## Contrasts", "", *contrasts(done), ""])
    (HERE / "RESULTS.md").write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--build", default="target/release/graphweft")
    args = parser.parse_args()
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    done = {line["key"]: line["test"] for line in map(json.loads, lines)}
    start = time.monotonic()
    for row, variant, settings, seed in jobs(args.seeds):
        name = key(row, variant, seed)
        if name in done:
            continue
        if time.monotonic() - start > args.seconds:
            break
        with tempfile.TemporaryDirectory() as out:
            run = subprocess.run(command(args.build, args.data, row, settings, seed, f"{out}/run"), capture_output=True, text=True)
        if run.returncode != 0:
            raise SystemExit(f"{name}: {run.stderr}")
        found = json.loads(run.stdout)
        done[name] = found["test"]
        with KEPT.open("a") as kept:
            kept.write(json.dumps({"key": name, "test": found["test"], "valid": found["valid"], "epoch_ms": found["epoch_ms"]}) + "\n")
    report(done)
    print(f"{len(done)} runs so far")


if __name__ == "__main__":
    main()
