#!/usr/bin/env python3
"""What learning from pieces costs in accuracy, and what each correction gives back.

    run.py --data DIR [--build BINARY] [--jobs J] [--only REGEX] [--seconds S]

What is done is kept in accuracy.jsonl beside this file and not run again, so the study may be made in slices and on several machines.
RESULTS.md is written from all that is there. Of rows whose seed is "all" only mean and deviation are left: the runs were lost with a
machine; they are not made again either, unless they lack seeds. A result is the test score at the best validation score; scores are of the whole graph,
exactly, whatever was learned from.
"""

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import study

HERE = Path(__file__).parent
SEEDS = 3
ALL = "all"
BLOCKS = "sbm:200000:10:12:snr=1.2"
ADAM = "train.optimizer=adam data.symmetrise=true data.self_loops=add data.normalise=row"
TUNED = "model.stack=tuned model.residual=true model.norm=layer"
# Split, settings of all models, of GCN and GraphSAGE, of GT. Planetoid's and the tuned stack are those of
# benches/accuracy/run.py; learning rates are higher there where epochs are fewer.
GRAPHS = {
    "cora": ("public", f"{ADAM} train.weight_decay=5e-4 train.dropout=0.5 train.epochs=200 train.evaluate_every=4",
             "train.input_dropout=0.5 train.lr=0.01 model.hidden=32", "train.lr=0.003 model.hidden=64 model.heads=4"),
    "pubmed": ("public", f"{ADAM} train.weight_decay=5e-4 train.dropout=0.5 train.epochs=120 train.evaluate_every=6",
               "train.input_dropout=0.5 train.lr=0.01 model.hidden=32", "train.lr=0.003 model.hidden=64 model.heads=4"),
    "amazon-photo": ("polynormer", f"{ADAM} train.weight_decay=5e-5 train.dropout=0.3 train.epochs=150 train.evaluate_every=5",
                     f"{TUNED} train.lr=0.005 model.hidden=64", "train.lr=0.003 model.hidden=64 model.heads=4"),
    "coauthor-cs": ("polynormer", f"{ADAM} train.weight_decay=5e-4 train.dropout=0.3 train.epochs=60 train.evaluate_every=4",
                    f"{TUNED} train.lr=0.005 model.hidden=64", "train.lr=0.003 model.hidden=64 model.heads=4"),
    BLOCKS: (None, "data.self_loops=add train.epochs=20 train.evaluate_every=4",
             "train.lr=0.01 model.hidden=32", "train.lr=0.005 model.hidden=32 model.heads=2"),
}
# What 8 layers need beside: they learn nothing of the block model in 20 epochs, and of Photo and CS little, or nothing,
# from features whose rows are normalised.
DEEP = {BLOCKS: "train.epochs=60 train.evaluate_every=6 train.lr=0.005", "amazon-photo": "data.normalise=none",
        "coauthor-cs": "data.normalise=none"}

# What is compared: name, settings beside those of the strategy.
FIXED, NONE, DEPTH = "fixed, none", "none", "depth-aware"
VARIANTS = {
    FIXED: "isolated.rotate_every=0 isolated.correction=none",
    NONE: "isolated.correction=none",
    DEPTH: "isolated.correction=depth-aware",
    "depth, shrinkage 0.5": "isolated.correction=depth-aware isolated.shrinkage=0.5",
    "batch scalar": "isolated.correction=batch-scalar",
    "half halo, none": "isolated.halo=0.5 isolated.correction=none",
    "half halo, first hop": "isolated.halo=0.5 isolated.correction=first-hop",
    "half halo, depth-aware": "isolated.halo=0.5 isolated.correction=depth-aware",
}
EVERYTHING, SOME, LEAST = list(VARIANTS), [FIXED, NONE, DEPTH], [NONE]

# graph, model, layers, ranks, chunks, variants; in the order in which they are run: all of the product with what
# matters most, and every variant, or both kinds of chunks, where runs are short.
CHUNKS = {"cora": "random"}
ROWS = [
    ("cora", "gcn", 2, 16, "random", EVERYTHING),
    ("amazon-photo", "sage", 2, 4, "random", EVERYTHING),
    ("pubmed", "gcn", 2, 4, "random", EVERYTHING),
    ("cora", "gt", 2, 16, "random", EVERYTHING),
    ("cora", "sage", 4, 16, "random", EVERYTHING),
    *[(graph, model, layers, ranks, CHUNKS.get(graph, "metis"), SOME)
      for layers in (2, 4, 8) for graph in GRAPHS for model in ("gcn", "sage", "gt") for ranks in (4, 16)],
    *[("cora", model, layers, 16, "random", EVERYTHING) for layers in (2, 4, 8) for model in ("gcn", "sage")],
    *[("cora", model, 2, 16, "metis", SOME) for model in ("gcn", "sage", "gt")],
    *[("pubmed", model, 2, 16, "random", SOME) for model in ("gcn", "sage", "gt")],
    *[("amazon-photo", model, 2, 16, "metis", EVERYTHING) for model in ("gcn", "sage")],
    *[("cora", model, 2, 4, "random", EVERYTHING) for model in ("gcn", "sage", "gt")],
    ("coauthor-cs", "gcn", 2, 4, "metis", EVERYTHING),
    ("cora", "gt", 4, 16, "random", EVERYTHING),
    ("pubmed", "sage", 4, 4, "metis", EVERYTHING),
    *[(graph, model, layers, ranks, CHUNKS.get(graph, "metis"), EVERYTHING)
      for layers in (2, 4, 8) for graph in [BLOCKS, *GRAPHS] for ranks in (4, 16) for model in ("gcn", "sage", "gt")],
]


def key(row, variant, seed):
    graph, model, layers, ranks, chunks = row[:5]
    # Exact training knows no ranks.
    where = [None, None] if variant == "exact" else [ranks, chunks]
    return json.dumps([graph, model, layers, *where, variant, seed])


def jobs(done):
    for row in ROWS:
        for seed in range(SEEDS):
            for variant in ["exact", *row[5]]:
                if done.get(key(row, variant, ALL), {}).get("seeds", 0) < SEEDS:
                    yield key(row, variant, seed), row, variant, seed


def command(args, row, variant, seed, out):
    graph, model, layers, ranks, chunks, _ = row
    split, usual, stack, gt = GRAPHS[graph]
    origin = ["--data", f"{args.data}/{graph}", "--split", split] if split else ["--graph", graph]
    deep = DEEP.get(graph, "") if layers == 8 else ""
    settings = f"{usual} {gt if model == 'gt' else stack} model.layers={layers} {deep}".split()
    if variant != "exact":
        settings += ["--ranks", str(ranks), "--strategy", "isolated", f"parallel.partition={chunks}", *VARIANTS[variant].split()]
    return [args.build, "train", *origin, "--model", model, *settings, "--seed", str(seed), "--threads", "1", "--device", args.device, "--json", "-o", out]


def scores(done, row, variant):
    """Mean, deviation and number of the scores that are there, and the scores by seed where these were kept."""
    found = {seed: done[k]["test"] for seed in range(SEEDS) if (k := key(row, variant, seed)) in done}
    summary = done.get(key(row, variant, ALL))
    if summary and len(found) < max(SEEDS, summary["seeds"]):
        return summary["test"], summary["deviation"], summary["seeds"], {}
    if not found:
        return None
    spread = statistics.stdev(found.values()) if len(found) > 1 else 0.0
    return statistics.mean(found.values()), spread, len(found), found


def table(done):
    def cell(row, variant):
        found = scores(done, row, variant)
        if not found:
            return "–"
        mean, spread, seeds, _ = found
        return f"{mean:.1f} ± {spread:.1f}" + (f" ({seeds})" if seeds < SEEDS else "")

    names = ["exact", *VARIANTS]
    lines = ["| graph | model | layers | ranks | chunks | " + " | ".join(names) + " |", "|" + "---|" * (5 + len(names))]
    for row in sorted(dict.fromkeys(row[:5] for row in ROWS), key=lambda row: (list(GRAPHS).index(row[0]), *row[1:])):
        if any(scores(done, row, name) for name in VARIANTS):
            cells = [cell(row, name) for name in names]
            lines.append("| " + " | ".join(map(str, row)) + " | " + " | ".join(cells) + " |")
    return lines


def steady(done, row):
    """Whether exact training learns this, whatever the seed."""
    exact = scores(done, row, "exact")
    return exact is not None and exact[2] > 1 and exact[0] > 50 and exact[1] < 3


def difference(one, other):
    """Mean difference of two cells and its standard error: over the same seeds where these were kept, else as of independent runs."""
    if not one or not other or min(one[2], other[2]) < 2:
        return None
    both = [score - other[3][seed] for seed, score in one[3].items() if seed in other[3]]
    if len(both) > 1:
        return statistics.mean(both), statistics.stdev(both) / len(both) ** 0.5
    return one[0] - other[0], (one[1] ** 2 / one[2] + other[1] ** 2 / other[2]) ** 0.5


def contrasts(done, rows):
    """Differences in per cent points: the mean over seeds of a row is one observation, rows are what may differ."""
    lines = ["| what | mean difference of test scores | standard error over rows | rows | rows where it is better / worse by twice its error |",
             "|---|---|---|---|---|"]
    for what, one, other in [
        ("rotating instead of fixed chunks", NONE, FIXED),
        ("depth-aware weights", DEPTH, NONE),
        ("the same, shrunk by half", "depth, shrinkage 0.5", NONE),
        ("one weight per rank (batch scalar)", "batch scalar", NONE),
        ("a smaller halo (half a row for each row of the chunks)", "half halo, none", NONE),
        ("there, first-hop weights", "half halo, first hop", "half halo, none"),
        ("there, depth-aware weights", "half halo, depth-aware", "half halo, none"),
        ("pieces (rotating, no weights) instead of the whole graph", NONE, "exact"),
    ]:
        found = [d for row in rows if (d := difference(scores(done, row, one), scores(done, row, other)))]
        if len(found) > 1:
            means = [mean for mean, _ in found]
            better, worse = (sum(sign * mean > 2 * error for mean, error in found) for sign in (1, -1))
            error = statistics.stdev(means) / len(means) ** 0.5
            lines.append(f"| {what} | {statistics.mean(means):+.2f} | {error:.2f} | {len(means)} | {better} / {worse} |")
    return lines


def report(done):
    head, foot = ((HERE / f"RESULTS.{part}.md").read_text().strip() for part in ("head", "foot"))
    rows = list(dict.fromkeys(row[:5] for row in ROWS))
    learned = [row for row in rows if steady(done, row)]
    text = "\n".join([head, "", "## Contrasts, where exact training has more than 50 % and seeds differ by less than 3 points", "",
                      *contrasts(done, learned), "", "## Contrasts of all rows", "", *contrasts(done, rows),
                      "", "## Test scores", "", *table(done), "", foot, ""])
    (HERE / "RESULTS.md").write_text(text)


def main():
    args = study.arguments("accuracy", __doc__)
    kept = study.Kept(args.kept)

    def one(job, left):
        _, row, variant, seed = job
        with tempfile.TemporaryDirectory() as out:
            run = subprocess.run(command(args, row, variant, seed, f"{out}/run"), capture_output=True, text=True, timeout=left, check=True)
        found = json.loads(run.stdout)
        return {name: found[name] for name in ["test", "valid", "epoch_ms", "seconds"]}

    study.run_all(args, kept, jobs(kept.done), one)
    report(kept.done)


if __name__ == "__main__":
    main()
