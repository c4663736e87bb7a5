#!/usr/bin/env python3
"""What a pipeline costs in accuracy, and what it saves in time and memory.

    run.py --data DIR [--build BINARY] [--jobs N] [--device D] [--only REGEX] [--seconds S] [--results FILE] [--table]

Three kinds of rows, each a process of its own, the most telling first:

accuracy  real graphs and a block model, trained exactly and in a pipeline, with its techniques on and off. What a pipeline learns
          depends on its chunks, not on its stages or on the ranks of a stage (tests of crates/train hold that), so it is run on one
          rank. 16 chunks are what 4 stages have, alone or of several ranks each; 32 are what 8 have, and 8 what 2 have.
memory    the rank that needs most at 32 layers, as a run counts it and as `plan` predicts it.
speed     emulated: `bench train` of a deep model on 8 ranks, each strategy once for all networks, and what `plan` would choose.

What is done is kept in FILE (results.jsonl beside this file), a line each, and not done again; after S seconds the study ends, and what
was under way is given up. Of rows that end in "all" only means and deviations are left: their runs were lost with a machine; they are not
made again either, unless they lack seeds. The tables go to RESULTS.md; --table only makes these.
"""

import argparse
import hashlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMON = "train.optimizer=adam data.symmetrise=true data.self_loops=add train.evaluate_every=5 run.checkpoint_every=1000000"
PLANETOID = f"{COMMON} data.normalise=row train.weight_decay=5e-4 train.dropout=0.5"
OTHERS = f"{COMMON} train.weight_decay=5e-5 train.dropout=0.2"
# name: folder or graph, split, settings, learning rate of all but GT
GRAPHS = {
    "cora": ("cora", "public", f"{PLANETOID} train.epochs=200", 0.01),
    "pubmed": ("pubmed", "public", f"{PLANETOID} train.epochs=120", 0.01),
    "photo": ("amazon-photo", "polynormer", f"{OTHERS} train.epochs=120", 0.005),
    "cs": ("coauthor-cs", "polynormer", f"{OTHERS} train.epochs=60", 0.005),
    "blocks": ("sbm:200000:10:12:snr=1.2", None, f"{COMMON} train.dropout=0.2 train.epochs=100 train.evaluate_every=10", 0.005),
}
MODELS = {
    "gcn": "model.hidden=64",
    "sage": "model.hidden=64",
    "gcnii": "model.hidden=64",
    "gt": "model.hidden=64 model.heads=4 train.lr=1e-3",
}
# By the number of chunks, which is four for each stage.
MANY = "parallel.strategy=pipeline pipeline.chunks=32"
WAYS = {
    "exact": "",
    "8 chunks": "parallel.strategy=pipeline pipeline.chunks=8",
    "16 chunks": "parallel.strategy=pipeline pipeline.chunks=16",
    "32 chunks": MANY,
    "32, same order": f"{MANY} pipeline.shuffle=false",
    "32, gradients once": f"{MANY} pipeline.scale=false",
    "32, fresh history": f"{MANY} pipeline.refresh_every=1",
    "32, history of 5": f"{MANY} pipeline.refresh_every=5",
    "32, history of 2": f"{MANY} pipeline.refresh_every=2",
    "32, none of them": f"{MANY} pipeline.shuffle=false pipeline.scale=false pipeline.refresh_every=1",
}
USUAL, AGES = list(WAYS)[:4], ["32, history of 5", "32, history of 2"]
TECHNIQUES = [way for way in list(WAYS)[4:] if way not in AGES]
SEEDS = 3
ALL = "all"
# graph, model, layers, way, seed, in the order in which they are run.
MODELS_OF_ALL = ("gcnii", "gt", "gcn", "sage")
ACCURACY = [
    *[(graph, model, 8, way, 0) for graph in ("cora", "photo", "pubmed", "blocks") for model in MODELS_OF_ALL for way in USUAL],
    *[(graph, "gcnii", 8, way, seed) for seed in range(SEEDS) for graph in ("cora", "photo", "blocks") for way in TECHNIQUES],
    *[("cora", model, 32, way, seed) for seed in range(SEEDS) for model in ("gcnii",) for way in USUAL],
    *[(graph, model, 8, way, seed) for seed in range(SEEDS) for graph in ("cora", "photo", "pubmed", "blocks", "cs") for model in ("gcnii", "gt")
      for way in USUAL],
    *[(graph, model, 2, way, seed) for seed in range(SEEDS) for graph in GRAPHS for model in MODELS_OF_ALL for way in USUAL],
    *[(graph, model, 8, way, seed) for seed in range(SEEDS) for graph in GRAPHS for model in MODELS_OF_ALL for way in USUAL],
    *[(graph, "gt", 8, way, seed) for seed in range(SEEDS) for graph in ("cora", "photo") for way in TECHNIQUES],
    *[(graph, "gcnii", 8, way, seed) for seed in range(SEEDS) for graph in ("blocks", "cora", "photo") for way in AGES],
    *[(graph, model, 32, way, seed) for seed in range(SEEDS) for graph in GRAPHS for model in MODELS_OF_ALL for way in USUAL],
]
# Memory: graph, model, ranks, strategy
SPREAD = ("halo", "ring", "pipeline", "pipeline:2x")
MEMORY = [(g, m, p, s) for g in ("cora", "pubmed") for m in ("gcnii", "gt") for p in (4, 8) for s in SPREAD]
# Speed: graph, layers; one run of a strategy serves all networks.
CASES = [("rmat:16:50", 32), ("sbm:65536:16:24:f=64", 32), ("rmat:13:50", 32), ("grid:200:200", 32), ("rmat:13:50", 8), ("rmat:13:16", 4)]
RANKS, CLASSES = 8, 16
EXACT = ["gather", "halo", "halo:plain", "heads", "ring", "grid:2x4", "grid:4x2"]
PIPELINES = ["pipeline", "pipeline:4x2", "pipeline:2x4"]
# As fast as here, and twenty times as fast: a GPU.
NETWORKS = {"10g": (1.0, 30e-6, 1.18e9), "10g-20x": (0.05, 30e-6, 1.18e9), "1g": (1.0, 50e-6, 0.118e9)}


def rows():
    """Name, command and kind of every row, those that are wanted more than once only at first."""
    seen, all_rows = set(), []

    def add(name, kind, command):
        if name not in seen:
            seen.add(name)
            all_rows.append((name, kind, command.split()))

    for graph, model, layers, way, seed in ACCURACY:
        settings = f"model.name={model} model.layers={layers} {MODELS[model]} {WAYS[way]} run.seed={seed}"
        if (graph, layers) == ("blocks", 32):
            settings += " compute.remat=layer"  # the same numbers, and several runs fit on one GPU
        add(f"{graph} {model} {layers} {way} {seed}", "accuracy", f"train {origin(graph)} {settings} --threads 1")
    for graph, model, ranks, strategy in MEMORY:
        shape = f"pipeline:{ranks // 2}x2" if strategy == "pipeline:2x" else strategy
        settings = (f"model.name={model} model.layers=32 {MODELS[model]} --ranks {ranks} --strategy {shape} compute.remat=layer "
                    "train.epochs=4 pipeline.guard_every=0")
        add(f"memory {graph} {model} {ranks} {strategy}", "memory", f"train {origin(graph)} {settings} --threads {ranks}")
        add(f"predicted {graph} {model} {ranks} {strategy}", "plan",
            f"plan {origin(graph, plan=True)} {settings} --profile 16-cpu-10g --threads 1")
    for graph, layers in CASES:
        common = f"--graph {graph} --ranks {RANKS} --device cpu --features 64 --classes {CLASSES}"
        for strategy in EXACT + PIPELINES:
            if strategy == "pipeline" and layers + 2 < RANKS:
                continue  # not a layer for every stage
            emulate = " ".join(f"--emulate {{profiles}}/{network}.toml" for network in NETWORKS)
            add(f"speed {graph} {layers} {strategy}", "speed",
                f"bench train {common} --model gcnii --layers {layers} --hidden 64 --dropout 0.1 --runs 2 --strategy {strategy} {emulate}")
        for network in NETWORKS:
            add(f"choice {graph} {layers} {network}", "plan",
                f"plan {common} --model gcnii model.layers={layers} model.hidden=64 train.dropout=0.1 --allow-approximate "
                f"--profile {{profiles}}/{network}.toml --threads 1")
    return all_rows


def origin(graph, plan=False):
    folder, split, common, rate = GRAPHS[graph]
    where = f"--graph {folder}" if split is None else f"--data {{data}}/{folder}"
    choice = "" if split is None else f" data.split={split}" if plan else f" --split {split}"
    return f"{where}{choice} --device cpu {common} train.lr={rate}"


def guard(folder):
    """How often the guard looked, how often it spoke up and first when, and what it saw."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["epoch"], line["guard"]) for line in lines if "guard" in line]


def much(g):
    """As crates/train/src/epochs/pipeline/guard.rs has it."""
    low = max(min(g["loss"], g["exact_loss"]), 0.1)
    return g["changed"] > 0.2 or abs(g["loss"] - g["exact_loss"]) > low


def result(kind, found, folder):
    if kind == "accuracy":
        looks = [[epoch, round(g["changed"], 4), much(g)] for epoch, g in guard(folder)]
        return {"test": found["test"], "valid": found["valid"], "guard": looks}
    if kind == "memory":
        return {"peak": max(found["peak_bytes"])}
    if kind == "plan":
        keys = ("strategy", "time_ms", "peak_bytes", "feasible")
        return {"candidates": [{key: c[key] for key in keys} for c in found["candidates"]], "peak": found["choice"]["peak_bytes"]}
    return {"ms": {e["profile"]: e["step_ms"] for e in found["emulated"]}, "peak": found["peak_bytes"], "sent": found["bytes_sent"]}


def study(args, kept):
    """Runs what is missing."""
    scratch, lock, end = Path("target/pipeline"), threading.Lock(), time.monotonic() + args.seconds
    (scratch / "profiles").mkdir(parents=True, exist_ok=True)
    for network, (compute, latency, bandwidth) in NETWORKS.items():
        text = f'about = "{network}"\ncompute = {compute}\n[network]\nbetween = {{ latency = {latency}, bandwidth = {bandwidth} }}\n'
        (scratch / "profiles" / f"{network}.toml").write_text(text)

    def wanted(row):
        summary = kept.get(f"{row[0].rpartition(' ')[0]} {ALL}", {"seeds": 0})
        return row[0] not in kept and (row[1] != "accuracy" or summary["seeds"] < SEEDS)

    def run(row):
        name, kind, words = row
        left = end - time.monotonic()
        if left < 1:
            return
        command = [str(args.build), *(w.format(data=args.data, profiles=scratch / "profiles") for w in words), "--json"]
        if kind == "accuracy":
            command[command.index("cpu")] = args.device
        folder = scratch / hashlib.sha256(name.encode()).hexdigest()[:16]
        shutil.rmtree(folder, ignore_errors=True)
        if words[0] == "train":
            command += ["-o", str(folder)]
        begun = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            return
        seconds = time.monotonic() - begun
        if done.returncode:
            print(f"{name}: {done.stderr.strip()}", file=sys.stderr, flush=True)
            return
        line = {"name": name, "seconds": round(seconds, 1), **result(kind, json.loads(done.stdout), folder)}
        shutil.rmtree(folder, ignore_errors=True)
        with lock, args.results.open("a") as file:
            kept[name] = line
            file.write(json.dumps(line) + "\n")
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, [row for row in rows() if wanted(row) and re.search(args.only, row[0])]))


def accuracy_table(kept):
    lines = ["", "## Test scores", "", "| graph | model | layers | way | seeds | test, mean ± deviation | against exact | guard: spoke of looks, first in epoch | "
             "most changed, median |", "|---|---|---|---|---|---|---|---|---|"]
    for graph, model, layers in sorted(dict.fromkeys(row[:3] for row in ACCURACY), key=lambda row: (list(GRAPHS).index(row[0]), *row[1:])):
        def found(way):
            return {seed: kept[name] for seed in range(SEEDS) if (name := f"{graph} {model} {layers} {way} {seed}") in kept}
        exact = found("exact")
        for way in WAYS:
            results, summary = found(way), kept.get(f"{graph} {model} {layers} {way} {ALL}")
            if summary and len(results) < max(SEEDS, summary["seeds"]):
                spread = f" ± {summary['deviation']:.2f}" if summary["deviation"] is not None else ""
                row = [str(summary["seeds"]), f"{summary['test']:.2f}{spread}"]
                row += [f"{summary['against']:+.2f}", summary["spoke"], summary["changed"]] if "against" in summary else ["", "", ""]
                lines.append(f"| {graph} | {model} | {layers} | {way} | {' | '.join(row)} |")
                continue
            if not results:
                continue
            tests = [r["test"] for r in results.values()]
            spread = f" ± {statistics.stdev(tests):.2f}" if len(tests) > 1 else ""
            row = [graph, model, str(layers), way, str(len(tests)), f"{statistics.fmean(tests):.2f}{spread}"]
            looks = [look for r in results.values() for look in r["guard"]]
            # The same seeds on both sides.
            pairs = [(r["test"], exact[seed]["test"]) for seed, r in results.items() if seed in exact]
            whole = kept.get(f"{graph} {model} {layers} exact {ALL}", {"seeds": 0})
            if not pairs and whole["seeds"] == len(tests):
                pairs = [(statistics.fmean(tests), whole["test"])]
            row.append(f"{statistics.fmean(a - b for a, b in pairs):+.2f}" if way != "exact" and pairs else "")
            if looks:
                spoke = [epoch for epoch, _, spoke in looks if spoke]
                changed = [100 * changed for _, changed, _ in looks]
                row.append(f"{len(spoke)} of {len(looks)}" + (f", {min(spoke)}" if spoke else ""))
                row.append(f"{max(changed):.1f} %, {statistics.median(changed):.1f} %")
            else:
                row += ["", ""]
            lines.append(f"| {' | '.join(row)} |")
    return lines


def memory_table(kept):
    lines = ["", "## Memory of the rank that needs most, 32 layers computed again in backward, MiB (predicted)", "",
             "| graph | model | ranks | halo | ring | pipeline | pipeline, 2 ranks a stage |", "|---|---|---|---|---|---|---|"]
    for graph, model, ranks in dict.fromkeys(row[:3] for row in MEMORY):
        cells = []
        for strategy in SPREAD:
            name = f"{graph} {model} {ranks} {strategy}"
            run, plan = kept.get(f"memory {name}"), kept.get(f"predicted {name}")
            predicted = f" ({plan['peak'] / 2**20:.1f})" if plan else ""
            cells.append(f"{run['peak'] / 2**20:.1f}{predicted}" if run else "")
        if any(cells):
            lines.append(f"| {graph} | {model} | {ranks} | {' | '.join(cells)} |")
    return lines


def speed_table(kept):
    lines = ["", "## An epoch of GCNII with 64 columns on 8 ranks, emulated, ms", "",
             "| graph | layers | network | best exact | | pipeline | best of shared stages | | exact over pipeline | planner's choice | "
             "regret % |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    regrets = []
    for graph, layers in CASES:
        runs = {s: kept[f"speed {graph} {layers} {s}"] for s in EXACT + PIPELINES if f"speed {graph} {layers} {s}" in kept}
        for network in NETWORKS:
            times = {s: run["ms"][network] for s, run in runs.items()}
            exact, hybrid = [s for s in EXACT if s in times], [s for s in PIPELINES[1:] if s in times]
            pipelines = [s for s in PIPELINES if s in times]
            if not exact or not pipelines:
                continue
            best, shared = min(exact, key=times.get), min(hybrid, key=times.get) if hybrid else None
            least, alone = min(times[s] for s in pipelines), times.get("pipeline")
            plan = kept.get(f"choice {graph} {layers} {network}")
            # Of those that were run: `bench train` does not learn from pieces, which a plan may choose too.
            among = [c for c in plan["candidates"] if c["feasible"] and c["strategy"] in times] if plan else []
            choice = min(among, key=lambda c: c["time_ms"])["strategy"] if among else ""
            regret = f"{100 * (times[choice] / min(times.values()) - 1):.1f}" if choice else ""
            regrets.append(float(regret or "nan"))
            cells = [graph, str(layers), network, best, f"{times[best]:.0f}", f"{alone:.0f}" if alone else "", shared or "",
                     f"{times[shared]:.0f}" if shared else "", f"{times[best] / least:.2f}", choice, regret]
            lines.append(f"| {' | '.join(cells)} |")
    known = [r for r in regrets if r == r]
    if known:
        within = sum(r <= 2 for r in known)
        lines += ["", f"Planner: {within} of {len(known)} cases within 2 % of the best that was run, mean {statistics.fmean(known):.1f} %, "
                  f"worst {max(known):.1f} %."]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="shared/data")
    parser.add_argument("--build", type=Path, default=Path("target/release/graphweft"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="where scores are learned")
    parser.add_argument("--only", default="", help="rows whose name matches this regular expression")
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--table", action="store_true", help="only make the tables")
    args = parser.parse_args()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    text = args.results.read_text() if args.results.exists() else ""
    kept = {line["name"]: line for line in map(json.loads, text.splitlines())}
    if not args.table:
        study(args, kept)
    lines = speed_table(kept) + memory_table(kept) + accuracy_table(kept)
    head, foot = ((HERE / f"{part}.md").read_text() for part in ("head", "foot"))
    (HERE / "RESULTS.md").write_text(head + "\n".join(lines) + "\n\n" + foot)


if __name__ == "__main__":
    main()
