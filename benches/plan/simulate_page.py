"""The page of simulate.py: tables of what was found, and SIMULATE.md with them."""

import math
import re
import statistics
import tomllib

from simulate_cases import (
    ALPHAS, CACHES, GIB, GPU, GRAPHS, GROWTH, HEADS, HERE, HIDDEN, LARGE, LAYERS, MANY, MIB, PARTS, PUBLISHED,
    REAL, ROOT, SMALL, TRILLION,
)


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
    """SIMULATE.md: simulate.template.md, filled with all that is there."""
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
    values = {
        "products_gain": curves["products"][1],
        "proteins_gain": curves["proteins"][1],
        "within": within,
        "cases": len(off),
        "worst": worst,
        "products": curves["products"][0],
        "proteins": curves["proteins"][0],
        "by_measured_rates": by_measured_rates(kept),
        "sensitive": rows(["graph", "α in 8 parts", *planned], sensitive),
        "gpu": gpu_table(kept),
        "papers": rows(["nodes", "α", *planned], papers),
        "papers_seconds": nodes["json"]["choice"]["time_ms"] / 1e3,
        "trillion": rows(["", "machine", "ranks", "α", *planned], trillion),
        "large": large_table(kept),
        "memory": memory,
        "graphs": rows(["graph", "nodes", "stored edges", "features", "classes", "α in 8 parts", "where α is from"], graphs),
        "growth_assumed": GROWTH,
        "growth": growth,
        "alphas": alphas,
        "uses": uses,
        "machines": profile_table(["h200x8", "64-cpu-25g"]),
        "layers": LAYERS,
        "hidden": HIDDEN,
        "heads": HEADS,
        "products_wall": eight["wall_s"],
        "papers_wall": nodes["wall_s"],
        "slowest": slowest[2],
        "slowest_wall": slowest[1],
        "slowest_cpu": slowest[0],
    }
    template = (HERE / "simulate.template.md").read_text()
    (HERE / "SIMULATE.md").write_text(template.format(**values))
