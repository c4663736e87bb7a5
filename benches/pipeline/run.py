#!/usr/bin/env python3
"""What a pipeline costs in accuracy, and saves in memory: run.py --data DIR [--only TEXT…] [--seconds S] [--build BINARY]

Trains on real graphs exactly and in a pipeline, with each of its techniques on and off, three seeds each, and measures the memory of
every rank at 32 layers. A run is a process of its own; what is done is kept in target/pipeline/results.jsonl and not run again. After
S seconds no other run begins, so that the study can be done in slices. The tables go to RESULTS.md.

What a pipeline learns depends on its chunks, not on its stages (a test of crates/train holds that), so runs for P ranks, which have
4·P chunks, are done on one.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE, KEPT = Path(__file__).parent, Path("target/pipeline/results.jsonl")
SEEDS = 3
COMMON = "train.optimizer=adam data.symmetrise=true data.self_loops=add train.evaluate_every=5 run.checkpoint_every=1000000"
PLANETOID = f"{COMMON} data.normalise=row train.weight_decay=5e-4 train.dropout=0.5"
OTHERS = f"{COMMON} data.normalise=row train.weight_decay=5e-5 train.dropout=0.2"
# name: folder or graph, split, settings
GRAPHS = {
    "cora": ("cora", "public", f"{PLANETOID} train.epochs=200"),
    "pubmed": ("pubmed", "public", f"{PLANETOID} train.epochs=120"),
    "photo": ("amazon-photo", "polynormer", f"{OTHERS} train.epochs=100"),
    "cs": ("coauthor-cs", "polynormer", f"{OTHERS} train.epochs=60"),
    "blocks": ("sbm:200000:10:12:snr=1.2", None, f"{COMMON} train.dropout=0.2 train.epochs=40 train.evaluate_every=10"),
}
MODELS = {
    "gcn": "model.hidden=64 train.lr=0.01",
    "sage": "model.hidden=64 train.lr=0.01",
    "gcnii": "model.hidden=64 train.lr=0.01",
    "gt": "model.hidden=64 model.heads=4 train.lr=1e-3",
}
PIPELINE = "parallel.strategy=pipeline"
WAYS = {
    "exact": "",
    "P = 4": f"{PIPELINE} pipeline.chunks=16",
    "P = 8": f"{PIPELINE} pipeline.chunks=32",
    "P = 8, same order": f"{PIPELINE} pipeline.chunks=32 pipeline.shuffle=false",
    "P = 8, gradients once": f"{PIPELINE} pipeline.chunks=32 pipeline.scale=false",
    "P = 8, fresh history": f"{PIPELINE} pipeline.chunks=32 pipeline.refresh_every=1",
    "P = 8, none": f"{PIPELINE} pipeline.chunks=32 pipeline.shuffle=false pipeline.scale=false pipeline.refresh_every=1",
}
USUAL, ALL = list(WAYS)[:3], list(WAYS)
# graph, model, layers, ways: the most telling first
TABLE = [
    *[("cora", model, layers, USUAL) for layers in (8, 32) for model in ("gcnii", "gt")],
    *[("cora", model, layers, USUAL) for layers in (2, 8, 32) for model in ("gcn", "sage")],
    *[("cora", model, 2, USUAL) for model in ("gcnii", "gt")],
    ("cora", "gcnii", 32, ALL),
    *[("photo", model, 8, USUAL) for model in ("gcnii", "gt", "gcn", "sage")],
    *[("pubmed", model, layers, USUAL) for layers in (8, 2) for model in ("gcnii", "gt", "gcn", "sage")],
    *[("cs", model, 2, USUAL) for model in ("gcnii", "gt", "gcn", "sage")],
    ("pubmed", "gcnii", 32, ALL),
    *[("photo", model, 32, USUAL) for model in ("gcnii", "gt", "gcn", "sage")],
    ("blocks", "gcnii", 8, USUAL),
    *[("cs", model, layers, USUAL) for layers in (8, 32) for model in ("gcnii", "gt", "gcn", "sage")],
]
# Memory: graph, model, strategy, ranks, settings
MEMORY = [
    (graph, model, strategy, ranks)
    for graph in ("cora", "pubmed")
    for model in ("gcnii", "gt")
    for ranks in (4, 8)
    for strategy in ("halo", "ring", "pipeline")
]


def command(build, data, graph, settings):
    folder, split, common = GRAPHS[graph]
    origin = ["--graph", folder] if split is None else ["--data", f"{data}/{folder}", "--split", split]
    return [build, "train", *origin, *common.split(), *settings.split(), "--json"]


def accuracy(graph, model, layers, way, seed):
    return f"model.name={model} model.layers={layers} {MODELS[model]} {WAYS[way]} run.seed={seed}"


def memory(model, strategy, ranks):
    settings = f"model.name={model} model.layers=32 {MODELS[model]} parallel.ranks={ranks} parallel.strategy={strategy}"
    return f"{settings} compute.remat=layer train.epochs=2 pipeline.guard_every=0"


def guard(folder):
    """How often the guard looked, how often it spoke up and first when, and the largest share of changed predictions."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    looks = [(line["epoch"], line["guard"]) for line in lines if "guard" in line]

    def much(g):
        low = max(min(g["loss"], g["exact_loss"]), 0.1)
        return g["changed"] > 0.1 or abs(g["loss"] - g["exact_loss"]) > 0.5 * low

    spoke = [epoch for epoch, g in looks if much(g)]
    changed = max((g["changed"] for _, g in looks), default=0.0)
    return {"looks": len(looks), "spoke": len(spoke), "first": spoke[0] if spoke else None, "changed": changed}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--only", nargs="*", default=[""], help="rows that contain one of these")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--build", default="target/release/graphweft")
    args = parser.parse_args()
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    kept = {}
    if KEPT.exists():
        for line in KEPT.read_text().splitlines():
            result = json.loads(line)
            kept[result["key"]] = result
    start = time.monotonic()

    def key(graph, settings):
        return " ".join(command("", "", graph, settings)[1:])

    def run(graph, settings, name):
        if key(graph, settings) in kept or time.monotonic() - start > args.seconds:
            return
        folder = KEPT.parent / "runs" / hashlib.sha256(key(graph, settings).encode()).hexdigest()[:16]
        subprocess.run(["rm", "-rf", folder], check=True)
        begun = time.monotonic()
        done = subprocess.run([*command(args.build, args.data, graph, settings), "-o", folder], capture_output=True, text=True)
        if done.returncode:
            return print(f"{name}: {done.stderr.strip()}", file=sys.stderr)
        found = json.loads(done.stdout)
        result = {"key": key(graph, settings), "test": found["test"], "peak_bytes": found["peak_bytes"], "guard": guard(folder)}
        result["seconds"] = time.monotonic() - begun
        kept[result["key"]] = result
        with KEPT.open("a") as file:
            file.write(json.dumps(result) + "\n")
        subprocess.run(["rm", "-rf", folder], check=True)
        print(f"{name}: {result['test']:.2f} {result['guard']} {result['seconds']:.0f} s", file=sys.stderr, flush=True)

    for graph, model, layers, ways in TABLE:
        for way in ways:
            for seed in range(SEEDS):
                name = f"{graph} {model} {layers} {way} {seed}"
                if any(text in name for text in args.only):
                    run(graph, accuracy(graph, model, layers, way, seed), name)
    for graph, model, strategy, ranks in MEMORY:
        name = f"memory {graph} {model} {strategy} {ranks}"
        if any(text in name for text in args.only):
            run(graph, memory(model, strategy, ranks), name)

    lines = ["| graph | model | layers | way | test, mean ± deviation | against exact | guard: spoke of looks, first in epoch | most changed |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    shown = set()
    for graph, model, layers, ways in TABLE:
        tests = {}
        for way in ways:
            found = [kept.get(key(graph, accuracy(graph, model, layers, way, seed))) for seed in range(SEEDS)]
            if None in found:
                continue
            tests[way] = [r["test"] for r in found]
            if (graph, model, layers, way) in shown:
                continue
            shown.add((graph, model, layers, way))
            mean, spread = statistics.fmean(tests[way]), statistics.stdev(tests[way])
            against = f"{mean - statistics.fmean(tests['exact']):+.2f}" if way != "exact" and "exact" in tests else ""
            guards = [r["guard"] for r in found]
            firsts = [g["first"] for g in guards if g["first"]]
            spoke = f"{sum(g['spoke'] for g in guards)} of {sum(g['looks'] for g in guards)}" if way != "exact" else ""
            first = f", {min(firsts)}" if firsts else ""
            changed = f"{100 * max(g['changed'] for g in guards):.1f} %" if way != "exact" else ""
            lines.append(f"| {graph} | {model} | {layers} | {way} | {mean:.2f} ± {spread:.2f} | {against} | {spoke}{first} | {changed} |")
    lines += ["", "Memory of the rank that needs most, 32 layers computed again in backward, MiB:", ""]
    lines += ["| graph | model | ranks | halo | ring | pipeline |", "|---|---|---|---|---|---|"]
    for graph, model, ranks in sorted({(graph, model, ranks) for graph, model, _, ranks in MEMORY}):
        cells = []
        for strategy in ("halo", "ring", "pipeline"):
            found = kept.get(key(graph, memory(model, strategy, ranks)))
            cells.append(f"{max(found['peak_bytes']) / 2**20:.1f}" if found else "")
        if any(cells):
            lines.append(f"| {graph} | {model} | {ranks} | {' | '.join(cells)} |")
    head = (HERE / "head.md").read_text()
    (HERE / "RESULTS.md").write_text(head + "\n".join(lines) + "\n")


main()
