#!/usr/bin/env python3
"""What `graphweft plan --simulate` says of graphs that are not here, with everything that it assumes, and how far that can be trusted.

    python3 benches/plan/simulate.py [--build PROGRAM] [--data DIR] [--only REGEX] [--table] [--kept FILE]

Simulated: an epoch of ogbn-products and ogbn-proteins on 1 to 8 H200, of ogbn-papers100M on 64 CPU nodes, of 10^12 edges on up to 4096
ranks, and of pieces of a graph on disk. Every plan is timed by the clock on the wall. Beside them stands what can be checked here:

* memory: graphs of the same degree and 1/8 to 1/1024 of the size are trained for real on as many ranks (`bench train`), and the peak of
  the largest rank is compared with that of `plan --simulate` for their own sizes and alpha;
* time: the shapes that were measured on one H200 (benches/gpu/RESULTS.md), once described and once rehearsed as they are;
* alpha: what METIS makes of the real graphs in --data, in 2, 8 and 64 parts. Partitions are written to a temporary folder.

Everything that is finished is a line of --kept, from which the script goes on; SIMULATE.md and the curves beside it are written when all
is there.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from simulate_cases import (
    ALPHAS, BF16, CACHES, DROPOUT, GPU, GRAPHS, GROWTH, GT, HEADS, HERE, HIDDEN, LARGE, LAYERS, MANY, PARTS,
    PIECES, PUBLISHED, REAL, ROOT, SAGE, SMALL, TRILLION,
)
from simulate_page import write


class Kept:
    """What is finished, by key, in a file of JSON lines."""

    def __init__(self, path, only, table):
        self.path, self.only, self.table, self.lines, self.missing = path, re.compile(only), table, {}, []
        if path.exists():
            self.lines = {line["key"]: line for line in map(json.loads, path.read_text().splitlines())}

    def get(self, key, make=None):
        """The line of `key`, made by `make` where it is missing and asked for."""
        if make and key not in self.lines and not self.table and self.only.search(key):
            self.lines[key] = {"key": key, **make()}
            with self.path.open("a") as file:
                file.write(json.dumps(self.lines[key]) + "\n")
            print(key, file=sys.stderr)
        if make and key not in self.lines:
            self.missing.append(key)
        return self.lines.get(key)


class Program:
    def __init__(self, path):
        self.path = path

    def call(self, flags):
        """What it prints as JSON, and how long that took: by the clock on the wall, and of processors."""
        start, before = time.monotonic(), os.times()
        done = subprocess.run([self.path, *flags, "--json"], capture_output=True, text=True)
        wall, after = time.monotonic() - start, os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        told = {"error": done.stderr.strip()[-500:]} if done.returncode else {"json": json.loads(done.stdout)}
        return told | {"wall_s": wall, "cpu_s": used}


def describe(graph, alpha=None, growth=GROWTH, hits=None):
    nodes, edges, features, classes, at_eight, _ = GRAPHS[graph]
    at_eight = at_eight if alpha is None else alpha
    more = "" if hits is None else f",hits={hits}"
    return f"nodes={nodes:.12g},edges={edges:.12g},features={features},classes={classes},alpha={at_eight:.6g},growth={growth:.6g}{more}"


def simulate(graph, ranks, profile, more=(), **assumed):
    place = ["--ranks", str(ranks), "--profile", profile]
    return ["plan", "--simulate", describe(graph, **assumed), *place, f"model.layers={LAYERS}", *GT, *more]


def cached(name, folder):
    """The profile h200x8, with another cache where that is asked for."""
    size, _ = CACHES[name]
    if size is None:
        return "h200x8"
    text = re.sub(r"(?m)^cache = \S+", f"cache = {size}", (ROOT / "profiles/h200x8.toml").read_text())
    path = Path(folder) / f"{name}.toml"
    path.write_text(text)
    return str(path)


def two_cores(folder):
    """The profile 64-cpu-25g with 2 of its 32 cores: everything takes sixteen times as long."""
    slower = lambda m: f"{m[1]}{float(m[2]) * 16}"
    path = Path(folder) / "two-cores.toml"
    path.write_text(re.sub(r"(?m)^((?:us|ps)_per_\w+ = )([\d.]+)", slower, (ROOT / "profiles/64-cpu-25g.toml").read_text()))
    return str(path)


def small_run(program, graph, ranks, dtype, case, sizes, folder):
    """A real epoch."""
    strategy, remat = case.split()
    features, classes = GRAPHS[sizes][2:4]
    data, alpha = Path(folder) / graph.replace(":", "-"), 0.0
    if not data.exists():
        program.call(["generate", graph, "-o", str(data)])
    if ranks > 1:
        told = Path(folder) / f"{data.name}-{ranks}.json"
        if not told.exists():
            # It is stored beside the graph, where the run finds it.
            flags = ["partition", "--data", str(data), "--parts", str(ranks), "--method", "metis", "--balance", "both"]
            told.write_text(json.dumps(program.call(flags)["json"]))
        alpha = json.loads(told.read_text())["alpha"]
    shared = ["--ranks", str(ranks), "--strategy", strategy, "--device", "cpu"]
    model = ["--hidden", str(HIDDEN), "--layers", str(LAYERS), "--dtype", dtype, "--remat", remat, f"model.heads={HEADS}"]
    columns = ["--features", str(features), "--classes", str(classes)]
    real = program.call(["bench", "train", "--data", str(data), *columns, *model, "--runs", "1", *shared])
    if "error" in real:
        return real
    told = real["json"]
    sizes = {"alpha": alpha, "nodes": told["nodes"], "edges": told["edges"]}
    return sizes | {"real": told["peak_bytes"], "sent": told["bytes_sent"], "peak": told["peak"]}


def small_told(program, real, ranks, dtype, case, sizes):
    """The same described."""
    strategy, remat = case.split()
    features, classes = GRAPHS[sizes][2:4]
    shared = ["--ranks", str(ranks), "--strategy", strategy, "--device", "cpu"]
    described = f"nodes={real['nodes']},edges={real['edges']},features={features},classes={classes},alpha={real['alpha']},growth=0"
    settings = [f"model.layers={LAYERS}", *GT, *DROPOUT, f"compute.dtype={dtype}", f"compute.remat={remat}"]
    plan = program.call(["plan", "--simulate", described, "--profile", "h200x8", *settings, *shared])
    first = next((c for c in plan.get("json", {"candidates": []})["candidates"] if c["remat"] == remat and c["peak_bytes"]), None)
    return {"told": first["peak_bytes"], "told_sent": first["bytes_sent"]} if first else {"error": plan.get("error", "not simulated")}


def gpu_flags(row):
    _, _, dtype, remat, _, _ = row
    settings = ["model.layers=4", *GT, *DROPOUT, f"compute.dtype={dtype}", f"compute.remat={remat}"]
    return ["--ranks", "1", "--profile", "h200x8", *settings]


def gpu_run(program, row):
    """A shape that was measured on one H200, rehearsed as it is."""
    graph, edges = row[:2]
    nodes = 2 ** int(graph.split(":")[1])
    edges = edges or program.call(["info", "--graph", graph])["json"]["edges"]
    rehearsed = None
    # The largest graph does not fit here.
    if edges < 1e8:
        columns = ["--features", "128", "--classes", "40"]
        rehearsed = program.call(["plan", "--graph", graph, *columns, "--device", "cpu", *gpu_flags(row)])["json"]["choice"]
    return {"rehearsed": rehearsed, "nodes": nodes, "edges": edges}


def gpu_told(program, row, sizes):
    """The same described: with caches that hit as the program takes them to, and as if every row were read equally often."""
    described = f"nodes={sizes['nodes']},edges={sizes['edges']},features=128,classes=40"
    told = [program.call(["plan", "--simulate", described + hits, *gpu_flags(row)]) for hits in ("", ",hits=0")]
    return {"described": told[0]["json"]["choice"], "evenly": told[1]["json"]["choice"]}


def divided(program, data, graph, parts, folder):
    flags = ["--parts", str(parts), "--method", "metis", "--balance", "both", "-o", str(Path(folder) / f"{graph}-{parts}")]
    told = program.call(["partition", "--data", str(Path(data) / graph), *flags])
    if "error" in told:
        return told
    told, nodes = told["json"], told["json"]["nodes"]
    uses = told["cut_edges"] / max(told["alpha"] * nodes, 1.0)
    degree, level = sum(told["edges"]) / nodes, told["imbalance"]["edges"]
    return {"alpha": told["alpha"], "cut": told["cut"], "uses": uses, "degree": degree, "edges": level}


def work(args, kept, program, folder):
    """All that is asked for and missing."""
    h200 = [*DROPOUT, BF16]
    for graph in PUBLISHED:
        for ranks in (1, 2, 4, 8):
            for cache in CACHES:
                flags = simulate(graph, ranks, cached(cache, folder), h200, hits=CACHES[cache][1])
                kept.get(f"curve {graph} {ranks} {cache}", lambda: program.call(flags))
        for alpha in ALPHAS[graph]:
            kept.get(f"alpha {graph} {alpha}", lambda: program.call(simulate(graph, 8, "h200x8", h200, alpha=alpha)))
    for ranks in (16, 32, 64):
        kept.get(f"papers {ranks}", lambda: program.call(simulate("papers100M", ranks, "64-cpu-25g", DROPOUT)))
    kept.get("papers third", lambda: program.call(simulate("papers100M", 64, "64-cpu-25g", DROPOUT, growth=1 / 3)))
    for profile, ranks in TRILLION:
        for alpha in MANY:
            for way, more in {"exact": [], "pieces": PIECES}.items():
                flags = simulate("10^12 edges", ranks, profile, [*h200, *more], alpha=alpha, growth=0)
                kept.get(f"trillion {way} {profile} {ranks} {alpha}", lambda: program.call(flags))
    for graph, ranks, profile in (("products", 8, "h200x8"), ("proteins", 8, "h200x8"), ("papers100M", 64, "64-cpu-25g")):
        svg = HERE / f"simulate-{graph}.svg"
        more = [*(h200 if profile == "h200x8" else DROPOUT), "--scaling", str(svg)]
        kept.get(f"figure {graph}", lambda: {"wall_s": program.call(simulate(graph, ranks, profile, more))["wall_s"]})
    for row in GPU:
        name = f"{row[0]} {row[2]} {row[3]}"
        sizes = kept.get(f"gpu {name}", lambda: gpu_run(program, row))
        if sizes:
            kept.get(f"described {name}", lambda: gpu_told(program, row, sizes))
    for graph in REAL:
        for parts in PARTS:
            kept.get(f"divide {graph} {parts}", lambda: divided(program, args.data, graph, parts, folder))
    for scale, (nodes, edges, chunks, *_) in LARGE.items():
        described = f"nodes={nodes},edges={edges},features=32,classes=8,alpha=3.9,growth=0"
        flags = ["plan", "--simulate", described, "--ranks", str(chunks), "--profile", two_cores(folder), *SAGE]
        kept.get(f"large {scale}", lambda: program.call(flags))
    for graph, sizes, _, ranks, dtype, cases in SMALL:
        for case in cases:
            real = kept.get(f"small {graph} {ranks} {case}", lambda: small_run(program, graph, ranks, dtype, case, sizes, folder))
            if real and "real" in real:
                kept.get(f"told {graph} {ranks} {case}", lambda: small_told(program, real, ranks, dtype, case, sizes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "target/release/graphweft"), help="the program")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data"), help="folder of real graphs")
    parser.add_argument("--only", default="",
                        help="what to run: curve, alpha, papers, trillion, figure, gpu, described, divide, large, small, told")
    parser.add_argument("--table", action="store_true", help="only write SIMULATE.md")
    parser.add_argument("--kept", default=str(ROOT / "target/plan-simulate.jsonl"), help="what is finished")
    args = parser.parse_args()
    kept = Kept(Path(args.kept), args.only, args.table)
    with tempfile.TemporaryDirectory() as folder:
        # What is found on a busy machine must not be kept for others.
        os.environ["GRAPHWEFT_CACHE"] = folder
        work(args, kept, Program(args.build), folder)
    if kept.missing:
        print(f"missing: {', '.join(kept.missing)}", file=sys.stderr)
    if args.table or not kept.missing:
        write(kept)


if __name__ == "__main__":
    main()
