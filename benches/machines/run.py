#!/usr/bin/env python3
"""What `halo:machines` saves between machines: 8 machines of 8 ranks, flat against hierarchical, emulated.

    cargo build --release
    python3 benches/machines/run.py [--build PROGRAM] [--data DIR] [--only REGEX] [--table]

A case is a graph, symmetrised and divided by METIS into 64 parts. Each strategy trains two layers of a graph transformer
for RUNS epochs with real numerics; one run gives the epoch on all networks. Bytes between machines are those that ranks
sent to ranks of other machines in an epoch, as they were metered, gradients of parameters included; rows alone are what
`halo` and `halo:machines` differ in. Times are emulated: the processor's time of every rank, and messages through the
one port out of and into each machine, 10 or 1 Gb/s, that its ranks share; inside, 10 GB/s and 5 µs. Everything that is
finished is a line of --kept, from which the study goes on and the table is made.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MACHINES, RANKS = 8, 64
EACH = RANKS // MACHINES
HIDDEN, HEADS, LAYERS, FEATURES, CLASSES, RUNS = 32, 4, 2, 32, 40, 3
GRAPHS = ["snap-web-google", "pubmed", "law-cnr2000", "coauthor-cs", "rmat:15:8"]
STRATEGIES = ["halo", f"halo:machines:{EACH}"]
NETWORKS = {"10g": (1.18e9, 30e-6), "1g": (0.118e9, 50e-6)}


def call(program, flags):
    done = subprocess.run([str(program), *flags, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(flags)}: {done.stderr[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def profile(work, name):
    bandwidth, latency = NETWORKS[name]
    path = work / f"{MACHINES}x{EACH}-{name}.toml"
    path.write_text(
        f'about = "{MACHINES} machines of {EACH} ranks, {name} between"\n[network]\nranks_per_node = {EACH}\n'
        f"inside = {{ latency = 5e-6, bandwidth = 10e9 }}\nbetween = {{ latency = {latency}, bandwidth = {bandwidth} }}\n")
    return path


def measured(program, work, data, graph, strategy):
    source = ["--graph", graph] if ":" in graph else ["--data", str(data / graph), "--symmetrise"]
    emulate = [x for name in NETWORKS for x in ("--emulate", str(profile(work, name)))]
    flags = ["bench", "train", *source, "--ranks", str(RANKS), "--strategy", strategy, "--device", "cpu", "--hidden", str(HIDDEN), "--layers", str(LAYERS),
             "--features", str(FEATURES), "--classes", str(CLASSES), "--dropout", "0", "--runs", str(RUNS), *emulate, f"model.heads={HEADS}"]
    found = call(program, flags)
    to = found["bytes_sent_to"]
    between = sum(x for r, row in enumerate(to) for s, x in enumerate(row) if r // EACH != s // EACH)
    return {"between": between, "sent": found["bytes_sent"], "ms": {e["profile"]: e["step_ms"] for e in found["emulated"]}, "parameters": found["parameters"]}


def table(kept):
    print("| graph | MB between machines, flat | by machine | fewer | epoch at 10 Gb/s, ms, flat | by machine | at 1 Gb/s, flat | by machine |")
    print("|---|---|---|---|---|---|---|---|")
    for graph in GRAPHS:
        rows = [kept.get((graph, strategy)) for strategy in STRATEGIES]
        if None in rows:
            continue
        flat, by = rows
        ms = [f"{row['ms'][next(k for k in row['ms'] if k.endswith('-' + name))]:.1f}" for name in NETWORKS for row in rows]
        print(f"| {graph} | {flat['between'] / 1e6:.2f} | {by['between'] / 1e6:.2f} | {flat['between'] / max(by['between'], 1):.2f}× | {' | '.join(ms)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options = {"build": ("target/release/graphweft", "the program"), "data": ("../shared/data", "folder of real graphs"),
               "kept": ("target/machines-study.jsonl", "what is finished"), "work": ("target/machines-study", "folder for profiles")}
    for name, (place, about) in options.items():
        parser.add_argument(f"--{name}", default=str(ROOT / place), help=about)
    parser.add_argument("--only", default="", help="graphs that match")
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    work, path = Path(args.work), Path(args.kept)
    work.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    kept = {tuple(line["key"]): line["value"] for line in lines}
    for graph in GRAPHS if not args.table else []:
        for strategy in STRATEGIES:
            if (graph, strategy) in kept or not re.search(args.only, graph):
                continue
            value = kept[graph, strategy] = measured(args.build, work, Path(args.data), graph, strategy)
            with path.open("a") as file:
                file.write(json.dumps({"key": [graph, strategy], "value": value}) + "\n")
            print(graph, strategy, value, file=sys.stderr)
    table(kept)


if __name__ == "__main__":
    main()
