#!/usr/bin/env python3
"""Seconds to a given test score on 16 ranks, emulated at 1 and 10 Gb/s: pieces against the fastest exact strategy.

    time.py --data DIR [--build BINARY] [--jobs J] [--only REGEX] [--seconds S]

Two things are measured apart. The *clock*: seconds of an epoch under `train --emulate`, in which every rank is timed as if it were
alone on a core and messages take what the network's profile says; a mean over epochs, so that a piece that is changed every
ten epochs counts. The *curve*: test scores after so many epochs, from plain runs over seeds; all exact strategies have one, because
they compute the same. Seconds to a score are epochs times seconds of an epoch. Evaluating is in neither, on neither side.

What is done is kept in time.jsonl beside this file; TIME.md and time.svg are written from all that is there.
"""

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import study

HERE = Path(__file__).parent
RANKS, SEEDS = 16, 3
NETWORKS = {"1g": "1 Gb/s", "10g": "10 Gb/s"}
ADAM = "train.optimizer=adam data.symmetrise=true data.self_loops=add data.normalise=row"
GT = "model.hidden=64 model.heads=4"
TUNED = "model.stack=tuned model.residual=true model.norm=layer"
# graph, split, model and what else tells rows apart, settings of both sides. In block models everyone has neighbours
# everywhere; the others are cut well.
ROWS = [
    ("sbm:50000:10:12:snr=1.2", None, "gt", f"{GT} model.layers=2 data.self_loops=add train.lr=0.005 train.epochs=30 train.evaluate_every=1"),
    ("sbm:30000:5:24:h=0.5:snr=1", None, "gt", f"{GT} model.layers=2 data.self_loops=add train.lr=0.005 train.epochs=30 train.evaluate_every=1"),
    ("sbm:200000:10:12:snr=1.2", None, "sage", "model.hidden=64 model.layers=2 data.self_loops=add train.lr=0.01 train.epochs=30 train.evaluate_every=1"),
    ("amazon-photo", "polynormer", "gt", f"{ADAM} {GT} model.layers=3 train.weight_decay=5e-5 train.dropout=0.3 train.lr=0.003 train.epochs=120 train.evaluate_every=2"),
    ("pubmed", "public", "gt", f"{ADAM} {GT} model.layers=2 train.weight_decay=5e-4 train.dropout=0.5 train.lr=0.003 train.epochs=80 train.evaluate_every=2"),
    ("sbm:50000:10:12:snr=1.2", None, "sage", "model.hidden=64 model.layers=3 data.self_loops=add train.lr=0.01 train.epochs=30 train.evaluate_every=1"),
    ("amazon-photo", "polynormer", "sage", f"{ADAM} {TUNED} model.hidden=64 model.layers=4 train.weight_decay=5e-5 train.dropout=0.3 train.lr=0.005 train.epochs=120 train.evaluate_every=2"),
    ("sbm:200000:10:12:snr=1.2", None, "sage of 3 layers", "model.hidden=64 model.layers=3 data.self_loops=add train.lr=0.01 train.epochs=30 train.evaluate_every=1"),
    ("coauthor-cs", "polynormer", "gt", f"{ADAM} {GT} model.layers=2 train.weight_decay=5e-4 train.dropout=0.3 train.lr=0.003 train.epochs=60 train.evaluate_every=2"),
]
EXACT = ["halo", "halo:plain", "gather", "ring"]
PIECES = {"pieces": "", "pieces, halo 0.25": "isolated.halo=0.25", "pieces, no halo": "isolated.halo=0"}
# Where an epoch takes a tenth of the time, more of them may be taken: these are also run for so many.
LEAN, LONG = "pieces, no halo", 75
# Points below the best score of exact training.
TARGETS = [2.0, 1.0, 0.5]


def pieces(row):
    """On a block model, whose halo is nearly everything, all of it is not worth the time."""
    return list(PIECES)[row[0].startswith("sbm"):]


def jobs():
    for row in ROWS:
        for seed in range(SEEDS):
            if row[0].startswith("sbm") and row[2] in ("gt", "sage of 3 layers"):
                yield json.dumps(["long", row[0], row[2], LEAN, seed]), row, LEAN, seed
        for network in NETWORKS:
            for way in [*EXACT, *pieces(row)]:
                yield json.dumps(["clock", row[0], row[2], way, network]), row, way, network
        for seed in range(SEEDS):
            for way in ["exact", *pieces(row)]:
                yield json.dumps(["curve", row[0], row[2], way, seed]), row, way, seed


def command(args, row, way, more, out):
    graph, split, model, settings = row
    origin = ["--data", f"{args.data}/{graph}", "--split", split] if split else ["--graph", graph]
    strategy = []
    if way in PIECES:
        strategy = ["--ranks", str(RANKS), "--strategy", "isolated", "parallel.partition=metis", *PIECES[way].split()]
    elif way in EXACT:
        strategy = ["--ranks", str(RANKS), "--strategy", way, "parallel.partition=metis"]
    return [args.build, "train", *origin, "--model", model.split()[0], *settings.split(), *strategy, *more, "--threads", "1", "--device", "cpu" if "--emulate" in more else args.device, "--json", "-o", out]


def clock(args, row, way, network, left):
    # From the second epoch on, with one change of the piece in ten where there are any.
    epochs = 11 if way in PIECES else 5
    more = ["--emulate", network, f"train.epochs={epochs}", f"train.evaluate_every={epochs}"]
    with tempfile.TemporaryDirectory() as out:
        run = subprocess.run(command(args, row, way, more, f"{out}/run"), capture_output=True, text=True, timeout=left, check=True)
    found = json.loads(run.stdout)
    return {"epoch": statistics.mean(found["epochs_ms"][1:]) / 1e3, "sent": sum(found["bytes_sent_per_epoch"]), "peak": max(found["peak_bytes"])}


def curve(args, row, way, seed, epochs, left):
    more = ["--seed", str(seed), *([f"train.epochs={epochs}", "train.evaluate_every=5"] if epochs else [])]
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(command(args, row, way, more, f"{out}/run"), capture_output=True, text=True, timeout=left, check=True)
        lines = [json.loads(line) for line in Path(f"{out}/run/metrics.jsonl").read_text().splitlines()]
    return {"scores": [[line["epoch"], line["valid"], line["test"]] for line in lines if line.get("test") is not None]}


def mean_curve(done, row, way):
    """Epochs and the mean over seeds of test scores there."""
    def of(kind):
        return [done[k]["scores"] for s in range(SEEDS) if (k := json.dumps([kind, row[0], row[2], way, s])) in done]

    found = of("long") or of("curve")
    return [(at[0][0], statistics.mean(point[2] for point in at)) for at in zip(*found)], len(found)


def seconds(done, row, way, network):
    found = done.get(json.dumps(["clock", row[0], row[2], way, network]))
    return found and found["epoch"]


def fastest(done, row, network):
    found = [(s, way) for way in EXACT if (s := seconds(done, row, way, network))]
    return min(found) if found else None


def tables(done):
    clocks = ["| graph | model | network | " + " | ".join([*EXACT, *PIECES]) + " |", "|" + "---|" * (3 + len(EXACT) + len(PIECES))]
    times = ["| graph | model | score | exact on 1 Gb/s | " + " | ".join(f"{way} on 1 Gb/s" for way in PIECES) + " | exact on 10 Gb/s | "
             + " | ".join(f"{way} on 10 Gb/s" for way in PIECES) + " |", "|" + "---|" * (5 + 2 * len(PIECES))]
    for row in ROWS:
        exact, seeds = mean_curve(done, row, "exact")
        if not exact:
            continue
        for network, words in NETWORKS.items():
            cells = [f"{1e3 * s:.1f}" if (s := seconds(done, row, way, network)) else "–" for way in [*EXACT, *PIECES]]
            clocks.append(f"| {row[0]} | {row[2]} | {words} | " + " | ".join(cells) + " |")
        best = max(score for _, score in exact)
        for below in TARGETS:
            target, cells = best - below, []
            for network in NETWORKS:
                base = fastest(done, row, network)
                at = next(epoch for epoch, score in exact if score >= target)
                cells.append(f"{base[0] * at:.2f} s ({base[1]}, {at} epochs)" if base else "–")
                for way in PIECES:
                    points, _ = mean_curve(done, row, way)
                    s, epoch = seconds(done, row, way, network), next((e for e, score in points if score >= target), None)
                    if not points or not s or not base:
                        cells.append("–")
                    elif epoch is None:
                        cells.append(f"not reached: {max(score for _, score in points):.1f}")
                    else:
                        cells.append(f"{s * epoch:.2f} s ({epoch} epochs), **{base[0] * at / (s * epoch):.1f}×**")
            times.append(f"| {row[0]} | {row[2]} | {target:.1f} (exact − {below}) | " + " | ".join(cells) + " |")
    return clocks, times


COLOURS = ["#222222", "#c2452d", "#2d6fc2", "#3c8c78"]


def picture(done):
    """Test score against emulated seconds, a panel per row and network, as SVG."""
    import math
    rows = [row for row in ROWS if mean_curve(done, row, "exact")[0] and fastest(done, row, "1g") and fastest(done, row, "10g")]
    width, height, left, top = 420, 260, 52, 30
    parts = []
    for r, row in enumerate(rows):
        for c, (network, words) in enumerate(NETWORKS.items()):
            base = fastest(done, row, network)
            lines = [(f"exact ({base[1]})", base[0], mean_curve(done, row, "exact")[0])]
            lines += [(way, seconds(done, row, way, network), mean_curve(done, row, way)[0]) for way in PIECES]
            lines = [(label, s, points) for label, s, points in lines if s and points]
            top_score = max(score for *_, points in lines for _, score in points)
            low = top_score - 12
            xs = [math.log10(s * e) for _, s, points in lines for e, _ in points]
            x0, x1 = min(xs), max(xs)
            x = lambda t: left + (math.log10(t) - x0) / (x1 - x0) * (width - left - 16)
            y = lambda v: top + (top_score + 0.5 - v) / (top_score + 0.5 - low) * (height - top - 40)
            out = [f'<g transform="translate({c * width},{r * height})"><text x="{left}" y="18" font-weight="bold">{row[0]}, {row[2]}, {words}</text>']
            for k in range(math.ceil(x0), math.floor(x1) + 1):
                out.append(f'<line x1="{x(10**k):.1f}" y1="{top}" x2="{x(10**k):.1f}" y2="{height - 40}" stroke="#ddd"/><text x="{x(10**k):.1f}" y="{height - 24}" text-anchor="middle">{10**k:g} s</text>')
            for v in range(math.ceil(low / 4) * 4, math.floor(top_score) + 1, 4):
                out.append(f'<line x1="{left}" y1="{y(v):.1f}" x2="{width - 16}" y2="{y(v):.1f}" stroke="#ddd"/><text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v} %</text>')
            for k, ((label, s, points), colour) in enumerate(zip(lines, COLOURS)):
                path = " ".join(f"{x(s * e):.1f},{y(score):.1f}" for e, score in points if score >= low)
                out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/><text x="{width - 20}" y="{height - 48 - 14 * (len(lines) - 1 - k)}" text-anchor="end" fill="{colour}">{label}</text>')
            parts.append("".join(out) + "</g>")
    size = f'width="{2 * width}" height="{max(len(rows), 1) * height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>' + "\n".join(parts) + "</svg>\n"


def report(done):
    clocks, times = tables(done)
    head, foot = ((HERE / f"TIME.{part}.md").read_text().strip() for part in ("head", "foot"))
    parts = [head, "", "## Seconds to a score", "", *times, "", "![test score against emulated seconds](time.svg)", "",
             "## Milliseconds of an epoch, emulated", "", *clocks, "", foot, ""]
    (HERE / "TIME.md").write_text("\n".join(parts))
    (HERE / "time.svg").write_text(picture(done))


def main():
    args = study.arguments("time", __doc__)
    kept = study.Kept(args.kept)

    def one(job, left):
        key, row, way, at = job
        kind = json.loads(key)[0]
        return clock(args, row, way, at, left) if kind == "clock" else curve(args, row, way, at, LONG if kind == "long" else None, left)

    study.run_all(args, kept, jobs(), one)
    report(kept.done)


if __name__ == "__main__":
    main()
