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
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
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
# R-MAT with 32 features on disk, GraphSAGE, 2 cores (benches/isolated/LARGE.md): nodes, edges, chunks, seconds of an epoch, bytes on disk.
# Of the larger only the processor's time is known, 7 minutes: taken to be shared by both cores.
LARGE = {"rmat:22:16": (4194304, 69436284, 64, 7.47, 0.9e9), "rmat:26:16": (67108864, 1127483356, 128, 210.0, 14e9)}
SAGE = ["--model", "sage", "model.layers=3", "model.hidden=32", BF16, "isolated.halo=0.5", "--allow-approximate", "--strategy", "isolated"]


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


def choice(line):
    """The fastest candidate that fits, if there is one."""
    if not line or "json" not in line:
        return None
    return next((c for c in line["json"]["candidates"] if c["feasible"]), None)


def rows(header, lines):
    """A table; nothing where a line is missing."""
    lines = [line for line in lines if line]
    head = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(head + ["| " + " | ".join(map(str, line)) + " |" for line in lines]) + "\n"


def ms(x):
    return f"{x / 1e3:.1f} s" if x >= 1e4 else f"{x:.0f} ms" if x >= 100 else f"{x:.1f} ms"


def size(x):
    return f"{x / 2**40:.1f} TiB" if x >= 2**40 else f"{x / GIB:.2f} GiB" if x >= GIB else f"{x / MIB:.1f} MiB"


def again(c):
    return c["strategy"] + ("" if c["remat"] == "none" else f", {c['remat']} again")


def split(c):
    """Epoch, kernels, waiting, bytes sent by all, peak of a rank."""
    return [ms(c["time_ms"]), ms(c["compute_ms"]), ms(c["comm_ms"]), size(c["bytes_sent"]), size(c["peak_bytes"])]


def plan_row(line, first, *more):
    c, took = choice(line), [f"{line['wall_s']:.2f} s", f"{line['cpu_s']:.2f} s"] if line else ["", ""]
    if not c:
        why = "nothing fits" if line else "not run"
        return [*first, why, "", "", "", "", "", *more, *took]
    return [*first, again(c), *split(c), *more, *took]


def floors(graph, ranks, sent):
    """Milliseconds that nobody can be below on H200s: rows of all edges from memory, dense products, messages."""
    nodes, edges = GRAPHS[graph][:2]
    # Forward and two backward passes, each of which reads two rows of bf16 per edge; 4.8 TB/s by the data sheet.
    memory = 3 * LAYERS * edges / ranks * 2 * HIDDEN * 2 / 4.8e12
    # Four projections and a feed-forward part of twice the width, forward and backward; 989 TFLOP/s.
    dense = 6 * 8 * HIDDEN**2 * LAYERS * nodes / ranks / 989e12
    return [f"{1e3 * x:.2f}" for x in (memory, dense, sent / ranks / 450e9)]


def rates(kept):
    """Milliseconds of a million edges and of a million rows in a layer, from two epochs that were measured on one H200."""
    a, b = kept.get("gpu rmat:20:16 bf16 none"), kept.get("gpu rmat:19:50 bf16 none")
    if not a or not b:
        return None
    (e1, n1, t1), (e2, n2, t2) = ((x["edges"] / 1e6, x["nodes"] / 1e6, t / 4) for x, t in ((a, GPU[0][4]), (b, GPU[3][4])))
    edge = (t1 * n2 - t2 * n1) / (e1 * n2 - e2 * n1)
    return edge, (t1 - edge * e1) / n1


def curve(kept, graph):
    found = {(p, cache): choice(kept.get(f"curve {graph} {p} {cache}")) for p in (1, 2, 4, 8) for cache in CACHES}
    if not all(found.values()):
        return "", ""
    speed = lambda p, cache: found[1, cache]["time_ms"] / found[p, cache]["time_ms"]
    lines = []
    for p in (1, 2, 4, 8):
        c = found[p, "shipped"]
        faster = [f"{speed(p, cache):.2f}" for cache in CACHES]
        wall = kept.get(f"curve {graph} {p} shipped")["wall_s"]
        lines.append([p, again(c), *split(c), *faster, *floors(graph, p, c["bytes_sent"]), f"{wall:.2f} s"])
    header = ["H200s", "choice", "epoch", "kernels", "waiting", "sent by all", "peak of a rank", "speed-up", "cache never hits",
              "cache always hits", "floor: edge rows, ms", "products, ms", "links, ms", "planned in"]
    return rows(header, lines), f"{speed(8, 'never'):.1f} to {speed(8, 'shipped'):.1f}"


def by_measured_rates(kept):
    found = rates(kept)
    if not found:
        return ""
    lines = []
    for graph in PUBLISHED:
        nodes, edges = GRAPHS[graph][:2]
        one = LAYERS * (found[0] * edges / 1e6 + found[1] * nodes / 1e6)
        alone, eight = (choice(kept.get(f"curve {graph} {p} shipped")) for p in (1, 8))
        if not eight:
            continue
        sent = eight["bytes_sent"] / 8 / 360e9 * 1e3
        low = one / (1.03 * one / 8 + eight["comm_ms"] + sent)
        lines.append([graph, f"{one:.0f}", f"{alone['time_ms']:.0f}", f"{alone['time_ms'] / one:.2f}", f"{1.03 * one / 8:.1f}",
                      f"{sent:.1f}", f"{low:.1f} to {one / (1.03 * one / 8):.1f}", PUBLISHED[graph]])
    header = ["graph", "one H200 by measured rates, ms", "simulated, ms", "ratio", "an eighth, 3 % more for the largest part, ms",
              "messages of a rank at 360 GB/s, ms", "speed-up on 8, messages in the open to hidden", "published (A100 or H100)"]
    return rows(header, lines)


def profile_table(names):
    """Every number of the profiles."""
    lines = []
    for name in names:
        p = tomllib.loads((ROOT / f"profiles/{name}.toml").read_text())
        wire = lambda w: f"{w['latency'] * 1e6:.0f} µs, {w['bandwidth'] / 1e9:.3g} GB/s"
        wires = [f"{k}: {wire(w)}" for k, w in p["network"].items() if isinstance(w, dict)]
        lines.append([name, "", f"{p['memory'] / 1e9:.0f} GB a rank, cache {p['cache'] / 1e6:.0f} MB; {'; '.join(wires)}"])
        for k in p["kernel"]:
            of = ", ".join(str(k[key]) for key in ("kind", "dtype") if key in k)
            lines.append(["", of, ", ".join(f"{key} {x:g}" for key, x in k.items() if key not in ("kind", "dtype"))])
    return rows(["profile", "kernels", "assumed (crates/plan/src/kernels.rs says what is multiplied)"], lines)


def memory_table(kept):
    lines, off = [], []
    for graph, sizes, part, ranks, dtype, cases in SMALL:
        for case in cases:
            line, told = (kept.get(f"{kind} {graph} {ranks} {case}") for kind in ("small", "told"))
            if not line:
                lines.append([graph, f"{sizes} / {part}", ranks, dtype, case, "", "not run", "", "", ""])
                continue
            if not told or not told.get("told"):
                why = (told or line).get("error", "not simulated")[-80:]
                lines.append([graph, f"{sizes} / {part}", ranks, dtype, case, "", "", why, "", ""])
                continue
            line = line | told
            apart = 100 * (line["told"] / line["real"] - 1)
            sent = f"{100 * (line['told_sent'] / line['sent'] - 1):+.1f}" if line["sent"] else ""
            off.append((case, ranks, apart))
            lines.append([graph, f"{sizes} / {part}", ranks, dtype, case, f"{line['alpha']:.2f}", size(line["real"]), size(line["told"]),
                          f"{'**' if abs(apart) > 5 else ''}{apart:+.1f}{'**' if abs(apart) > 5 else ''}", sent])
    header = ["graph", "stands for", "ranks", "type", "strategy, computed again", "α", "peak of a rank, real", "simulated", "off by %",
              "sent, off by %"]
    return rows(header, lines), off


def gpu_table(kept):
    lines = []
    for graph, _, dtype, remat, took, gib in GPU:
        line, told = (kept.get(f"{kind} {graph} {dtype} {remat}") for kind in ("gpu", "described"))
        if not line or not told:
            continue
        d, e, r = told["described"], told["evenly"], line["rehearsed"]
        cells = ["too large for this machine", "", ""]
        if r:
            cells = [f"{r['time_ms']:.1f}", f"{100 * (r['time_ms'] / took - 1):+.0f}", f"{r['peak_bytes'] / GIB:.2f}"]
        lines.append([f"{graph}, {dtype}, {remat} again" if remat != "none" else f"{graph}, {dtype}", took, f"{d['time_ms']:.1f}",
                      f"{100 * (d['time_ms'] / took - 1):+.0f}", f"{100 * (e['time_ms'] / took - 1):+.0f}", *cells[:2], gib,
                      f"{d['peak_bytes'] / GIB:.2f}",
                      f"{100 * (d['peak_bytes'] / GIB / gib - 1):+.0f}", cells[2]])
    header = ["epoch", "measured, ms", "described, ms", "off by %", "read equally often, off by %", "rehearsed, ms", "off by %",
              "measured, GiB", "described, GiB",
              "off by %", "rehearsed, GiB"]
    return rows(header, lines)


def alpha_table(kept):
    lines, growths, uses = [], [], []
    for graph in REAL:
        found = [kept.get(f"divide {graph} {parts}") for parts in PARTS]
        if not all(f and "alpha" in f for f in found):
            continue
        two, eight, many = found
        growth = [math.log(b["alpha"] / a["alpha"], step) for a, b, step in ((two, eight, 4), (eight, many, 8))]
        growths.append(growth[1])
        uses.append(eight["uses"])
        lines.append([graph, f"{eight['degree']:.1f}", *(f"{f['alpha']:.3f}" for f in found), *(f"{g:.2f}" for g in growth),
                      f"{100 * eight['cut']:.1f}", f"{eight['uses']:.1f}", f"{eight['edges']:.2f}"])
    header = ["graph", "degree", *(f"α in {p}" for p in PARTS), "growth 2 to 8", "8 to 64", "edges cut in 8, %",
              "edges per row of others", "largest part / mean, edges"]
    middle = (statistics.median(growths), statistics.median(uses)) if growths else (0.0, 0.0)
    return rows(header, lines), middle


def large_table(kept):
    found, hours = [], lambda seconds: f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
    for name, (nodes, edges, chunks, took, disk) in LARGE.items():
        c = choice(kept.get(f"large {name}"))
        kernels = c["compute_ms"] / 1e3 * chunks if c else math.nan
        rate = f"{edges / took / 1e6:.1f} M"
        size_of = f"{disk / 1e9:.1f} GB"
        found.append([name, f"{nodes:.3g}", f"{edges:.4g}", chunks, 1, f"{took:.1f} s", rate, f"{kernels:.1f} s", size_of, ""])
    for name, (nodes, edges, chunks, took, disk) in LARGE.items():
        times, c = 1e12 / edges, choice(kept.get(f"large {name}"))
        kernels = c["compute_ms"] / 1e3 * chunks * times if c else math.nan
        for machines in (1, 64, 1024):
            # Everything is read twice: as a chunk, and as the one beside it.
            epoch, read = took * times / machines, 2 * disk * times / machines
            share = f"{disk * times / machines / 1e9:.0f} GB"
            found.append([f"10^12 edges at the rate of {name}", f"{nodes * times:.3g}", "1e+12", f"{chunks * times:.0f}", machines,
                          hours(epoch), f"{1e12 / epoch / 1e6:.0f} M", hours(kernels / machines), share, f"{read / epoch / 1e6:.0f} MB/s"])
    header = ["graph", "nodes", "edges", "pieces", "machines of 2 cores", "an epoch", "stored edges per second",
              "of that kernels, simulated", "on the disk of each", "read from it"]
    return rows(header, found)


def write(kept):
    """SIMULATE.md from all that is there."""
    curves = {graph: curve(kept, graph) for graph in PUBLISHED}
    memory, off = memory_table(kept)
    alphas, (growth, uses) = alpha_table(kept)
    planned = ["choice", "epoch", "kernels", "waiting", "sent by all", "peak of a rank", "planned in", "processors"]
    papers = [plan_row(kept.get(f"papers {p}"), [p, f"growth {GROWTH}"]) for p in (16, 32, 64)]
    papers.append(plan_row(kept.get("papers third"), [64, "growth 1/3"]))
    sensitive = [plan_row(kept.get(f"alpha {g} {a}"), [g, a]) for g in PUBLISHED for a in ALPHAS[g]]
    cases = [(way, m, p, a) for way in ("exact", "pieces") for m, p in TRILLION for a in MANY]
    trillion = [plan_row(kept.get(f"trillion {way} {m} {p} {a}"), [way, m, p, a]) for way, m, p, a in cases]
    graphs = [[g, f"{n:.9g}", f"{e:.9g}", f, k, a, why] for g, (n, e, f, k, a, why) in GRAPHS.items()]
    eight, nodes = kept.get("curve products 8 shipped"), kept.get("papers 64")
    plans = [(line["cpu_s"], line["wall_s"], key) for key, line in kept.lines.items() if re.match("curve|alpha|papers|trillion", key)]
    slowest = max(plans)
    within = sum(abs(o[2]) <= 5 for o in off)
    worst = max(abs(o[2]) for o in off)
    text = f"""# Graphs and machines that are not here

Made by `python3 benches/plan/simulate.py`; what is done is told at its top. **Nothing below was run but what is called measured or real.**
Times are of one epoch of full-graph training: a graph transformer of {LAYERS} layers, {HIDDEN} columns, {HEADS} heads, a feed-forward part
of twice the width, dropout 0.1; in bf16 on GPUs and for 10^12 edges, in f32 for papers100M. GraphSAGE where it says so. Plans were made on
two cores that others used too.

* Planned in (asked: 2 s): products on 8 H200 {eight["wall_s"]:.2f} s, papers100M on 64 nodes {nodes["wall_s"]:.2f} s by the clock on the
  wall. The slowest of all, "{slowest[2]}", {slowest[1]:.2f} s ({slowest[0]:.2f} s of processors): little fits
  there, so more is tried, and where α is large the proxies of grids have many ranks.
* Memory beside real runs (asked: 5 %): {within} of {len(off)} within 5 %, the worst off by {worst:.1f} %.
* Speed-up on 8 H200, simulated: products {curves["products"][1]}, proteins {curves["proteins"][1]}, from caches that never hit to those of
  the profile; by rates that were measured on one H200 we would expect 7 to 8. AGP, the published system, measured 3.7 and 5.8 with another
  program on A100 or H100: not the same experiment.

## Where it was wrong, and where it is

The first of these tables showed what follows; it is repaired, and the tables below are made with that.

* **Peak memory.** Peaks of three proxies were magnified that were of different moments: layers computed again came out up to 22 % too
  small, `gather` 87 % too large. Now memory is magnified kernel by kernel (`magnify.rs`, `peak`).
* **Grids.** A grid with 8 heads had 2 groups in its proxy, so α was cut off at 1. Now there are as many as α asks for.
* **α above 4.** The proxy had 8 edges per row, of which more than half, above 4 all, were cut. Now it has four for each row of others.
* **Reuse of rows.** Neighbours were thrown at random, and kernels took up to twice as long as measured. Now a description says how much
  more often caches hit than so (`hits`), by itself 0.75: chosen by the R-MAT epochs below, so their errors do not test it. For other
  graphs, and for CPUs, it is a guess; products, proteins and papers100M have not been measured.
* **α by itself** grew with the cube root of the number of ranks. Now with the power 0.44, as in the middle of the graphs below.

What is left:

* **Small α.** A part of the proxy takes a whole number of rows from each other one. Among 16 parts, α = 0.04 comes out half as large again.
* **Scratch** of dense gradients is that of few rows, one chunk of up to 64: at most some 12 MiB a rank too little here.
* A probe with one rank of two threads in bf16 found 155,000 ps per byte that misses the cache (6 MB/s): the rows of its
  largest graph just fit into 32 MiB, so hardly any do (`probe/program.rs`, `LARGE`). With it pieces of R-MAT came out over a thousand times
  too slow; it is not used below.

## What is assumed of the graphs

{rows(["graph", "nodes", "stored edges", "features", "classes", "α in 8 parts", "where α is from"], graphs)}
α is what all ranks need of others, in rows, over the number of nodes. It is taken to grow with the power {GROWTH} of the number of ranks,
as METIS makes it on the real graphs at hand between 8 and 64 parts (in the middle {growth:.2f}; nodes and edges level):

{alphas}
Beyond that (crates/plan/src/simulate.rs): every rank has as many rows and edges as every other (the last column says what METIS leaves); a
row that is needed elsewhere is needed by two edges there (here {uses:.1f} in the middle, 5 on the densest); rows are pulled, not covered;
beyond 16 groups a rank sends the bytes that it sends among 16; ranks do not fail.

## What is assumed of the machines

{profile_table(["h200x8", "64-cpu-25g"])}
A kernel's time is the sum of its parts, not the longest of them. Messages move while kernels run and take nothing from them. The network
carries every rank's bandwidth at once. `h200x8` beyond 8 ranks has no network that could be bought: those rows say what computing would
take.

## 8 × H200

ogbn-products:

{curves["products"][0]}
![products](simulate-products.svg)

ogbn-proteins:

{curves["proteins"][0]}
![proteins](simulate-proteins.svg)

Floors are of one rank: rows of all edges once per pass from memory at the 4.8 TB/s of the data sheet, dense products at 989 TFLOP/s,
messages at 450 GB/s each way. Where caches hit, the first can be beaten.

Two rows of bf16 per node are 512 bytes: 1.25 GB for products, 68 MB for proteins, beside 50 MB of L2. The profile lets a cache hold its
share of a table that is read at random, three quarters of the rest hit too, and eight GPUs have eight caches: proteins, which just does
not fit into one, fits into two. With a cache that never hits (of no size, `hits=0`), or always (`hits=1`), the gain vanishes.

How long kernels take can be checked. By two epochs that were measured on one H200 (benches/gpu/RESULTS.md; so much per edge, so much per
row) they would take

{by_measured_rates(kept)}
which is what we would expect of a real machine. Beside 360 GB/s, α hardly matters:

{rows(["graph", "α in 8 parts", *planned], sensitive)}
### One H200: described, rehearsed, measured

{gpu_table(kept)}
Described: nodes and edges alone; read equally often: the same with `hits=0`. Rehearsed: R-MAT itself. Measured GiB are those of the whole
process.

## papers100M on CPU nodes

{rows(["nodes", "α", *planned], papers)}
![papers100M](simulate-papers100M.svg)

By hand, for 64: 50 M edges and 1.74 M rows a rank; 9 passes of 1 KiB per edge are 465 GB, 3.3 s at the 143 GB/s of the profile if all came
from memory, a quarter of that with the hits assumed; products of 4.1 TFLOP 1.6 s. Each rank
sends 17 GiB, 6 s. {nodes["json"]["choice"]["time_ms"] / 1e3:.1f} s are plausible, if the 32 cores reach 2.5 TFLOP/s together. SAR reports
5.1 s for GraphSAGE, which computes less, on 64 machines of 72 cores and 200 Gb/s.

## 10^12 edges

10^10 nodes of degree 100, bf16. α is that on as many ranks as there are, and it is invented: 1 is a web graph's, 7.8 what 0.5 in 8 parts
becomes on 4096. The fastest that fits and can be simulated; pieces: `isolated.halo=0.25`, another epoch than an exact one.

{rows(["", "machine", "ranks", "α", *planned], trillion)}
By hand, for 4096 CPU nodes: 2.4 M rows and 244 M edges a rank; 9 passes of 512 bytes per edge are 1.1 TB, 7.9 s at 143 GB/s if all came
from memory, and scores of 8 heads at 60 ps 1.1 s. α = 3.9 sends 27 GiB a rank, 9.9 s at 2.95 GB/s, about half of it hidden behind kernels.

## A billion edges on two cores, and what 10^12 would take

GraphSAGE, 3 layers of 32 columns, 32 features, `isolated.halo=0.5`, chunks read from disk (benches/isolated/LARGE.md):

{large_table(kept)}
The first two rows are measured but for the kernels (of rmat:22, 6 s of 7 went into forward and backward). The others are linear: as many
edges per second and machine, pieces of the same size, nothing that grows faster than the graph; chunks are read twice an epoch, as base
and beside another, with no page cache to help (rmat:22 was all in it, rmat:26 mostly). Kernels are simulated with two of the 32 cores of
`64-cpu-25g`, as if nearly all edges of a piece were inside it, which is more than R-MAT has. Cutting and loading pieces is not simulated.
Gradients are summed once per piece, which is little beside seconds. At most 4096 chunks are supported now (`MOST_PARTS`): so many pieces
need that changed, or machines with more memory. Scores are not part of an epoch, nor is making the chunks; both are linear too. How much
an epoch of pieces teaches on such a graph is not known.

## Memory beside real runs

`bench train`, ranks as threads, METIS with nodes and edges level; `plan --simulate` with the nodes, edges and α of the small graph itself.
That α is of as many parts as there are ranks; a grid has fewer, so what it is said to send is off:

{memory}
"""
    (HERE / "SIMULATE.md").write_text(text)


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
