#!/usr/bin/env python3
"""How good the planner's choices are: every strategy is run for real, timed as if on networks that are not here, and the one
that the planner chose is compared with the best of them.

    cargo build --release
    python3 benches/plan/run.py --data DIR [--slice K/N] [--table]

One run of `bench train --emulate` computes with real numerics, measures the processor's time of every rank, and gives the epoch
on all networks at once; `plan --profile NETWORK` predicts the same from a probe of this machine. What was measured is kept in
target/plan-study, so that the study can be done in slices; --table only writes RESULTS.md from what is there. Regret is the
measured time of the choice over that of the best, less one. Times are emulated: planner and emulation share the model of the
network, not that of kernels.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT = ROOT / "target" / "plan-study"
NETWORKS = ["nvlink", "10g", "1g"]
MODEL = ["model.heads=4"]
HIDDEN, LAYERS, FEATURES, CLASSES, DROPOUT = 32, 2, 32, 40, 0.1

# Graphs, the ranks they are spread over, and counted epochs.
CASES = [
    ("grid:150:150", [2, 4, 8, 16], 3),
    ("rmat:13:16", [2, 4, 8, 16], 3),
    ("rmat:15:8", [2, 4, 8, 16], 3),
    ("sbm:20000:10:12", [2, 4, 8, 16], 3),
    ("ba:20000:8", [2, 4, 8, 16], 3),
    ("pubmed", [2, 4, 8, 16], 3),
    ("law-cnr2000", [4, 16], 2),
    ("snap-web-google", [4], 2),
]


def graph_flags(name, data):
    """A generated graph, or the structure of a real one: features and labels are random, as `bench train` makes them."""
    if ":" in name:
        return ["--graph", name]
    bare = KEPT / "graphs" / name
    bare.mkdir(parents=True, exist_ok=True)
    for file in ["meta.toml", "indptr.npy", "indices.npy"]:
        link = bare / file
        if not link.exists():
            link.symlink_to(Path(data).resolve() / name / file)
    return ["--data", str(bare)]


def call(args):
    done = subprocess.run([str(BINARY), *args, "--json"], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(args)}\n{done.stderr}")
    return json.loads(done.stdout)


def kept(key, make):
    file = KEPT / (key.replace(":", "_").replace("/", "_") + ".json")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        made = make()
        file.write_text(json.dumps(made))
    return json.loads(file.read_text())


def planned(name, ranks, network, flags):
    def make():
        return call(["plan", *flags, "--ranks", str(ranks), "--profile", network, "--device", "cpu", "--features", str(FEATURES),
                     "--classes", str(CLASSES), f"model.hidden={HIDDEN}", f"model.layers={LAYERS}", *MODEL,
                     f"train.dropout={DROPOUT}", f"train.attention_dropout={DROPOUT}"])
    return kept(f"plan-{name}-{ranks}-{network}", make)


def measured(name, ranks, strategy, partition, runs, flags):
    def make():
        emulate = [x for network in NETWORKS for x in ("--emulate", network)]
        found = call(["bench", "train", *flags, "--ranks", str(ranks), "--strategy", strategy, "--device", "cpu", "--hidden",
                      str(HIDDEN), "--layers", str(LAYERS), "--features", str(FEATURES), "--classes", str(CLASSES), "--dropout",
                      str(DROPOUT), "--runs", str(runs), *emulate, *MODEL, f"parallel.partition={partition}"])
        return {"ms": {e["profile"]: e["step_ms"] for e in found["emulated"]}, "peak": found["peak_bytes"]}
    return kept(f"run-{name}-{ranks}-{strategy}-{partition}", make)


def study(data, only):
    cases = [(name, ranks, runs) for name, all_ranks, runs in CASES for ranks in all_ranks]
    for k, (name, ranks, runs) in enumerate(cases):
        if only and k % only[1] != only[0]:
            continue
        flags = graph_flags(name, data)
        plans = {network: planned(name, ranks, network, flags) for network in NETWORKS}
        rehearsed = {(c["strategy"], c["partition"]) for p in plans.values() for c in p["candidates"] if c["feasible"]}
        for strategy, partition in sorted(rehearsed):
            measured(name, ranks, strategy, partition, runs, flags)
            print(name, ranks, strategy, partition, file=sys.stderr)


def table():
    rows, errors, memory = [], {}, {}
    for name, all_ranks, _ in CASES:
        for ranks in all_ranks:
            for network in NETWORKS:
                file = KEPT / (f"plan-{name}-{ranks}-{network}".replace(":", "_") + ".json")
                if not file.exists():
                    continue
                plan = json.loads(file.read_text())
                times = {}
                for c in plan["candidates"]:
                    key = f"run-{name}-{ranks}-{c['strategy']}-{c['partition']}".replace(":", "_") + ".json"
                    if not c["feasible"] or not (KEPT / key).exists():
                        continue
                    run = json.loads((KEPT / key).read_text())
                    times[c["strategy"], c["partition"]] = run["ms"][network]
                    family = c["strategy"].split(":")[0]
                    errors.setdefault(family, []).append(abs(c["time_ms"] / run["ms"][network] - 1))
                    memory.setdefault(family, []).append(abs(c["peak_bytes"] / run["peak"] - 1))
                choice = (plan["choice"]["strategy"], plan["choice"]["partition"])
                if choice not in times or len(times) < 4:
                    continue
                best = min(times, key=times.get)
                rows.append((name, ranks, network, choice, times[choice], plan["choice"]["time_ms"], best, times[best],
                             times[choice] / times[best] - 1))
    return rows, errors, memory


def write(rows, errors, memory):
    regrets = [row[-1] for row in rows]
    within = sum(r <= 0.02 for r in regrets)
    lines = ["# The planner's choices beside the best ones", "", "Made by `python3 benches/plan/run.py`; what is compared is told at "
             "its top. All times are emulated.", "",
             f"{len(rows)} cases: the choice is the best or within 2 % of it in {within} ({100 * within / max(len(rows), 1):.0f} %); "
             f"mean regret {100 * statistics.mean(regrets):.1f} %, worst {100 * max(regrets):.1f} %.", "",
             "| strategy | predictions | time, mean error % | peak memory, largest error % |", "|---|---|---|---|"]
    for family in sorted(errors):
        lines.append(f"| {family} | {len(errors[family])} | {100 * statistics.mean(errors[family]):.1f} | "
                     f"{100 * max(memory[family]):.2f} |")
    lines += ["", "| graph | ranks | network | choice | ms | predicted | best | ms | regret % |", "|---|---|---|---|---|---|---|---|---|"]
    for name, ranks, network, choice, ms, predicted, best, best_ms, regret in rows:
        lines.append(f"| {name} | {ranks} | {network} | {', '.join(choice)} | {ms:.1f} | {predicted:.1f} | {', '.join(best)} | "
                     f"{best_ms:.1f} | {100 * regret:.1f} |")
    (HERE / "RESULTS.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines[4:8 + len(errors)]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/graphweft"))
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data"), help="folder of real graphs")
    parser.add_argument("--slice", help="K/N: only every N-th case, from the K-th")
    parser.add_argument("--table", action="store_true", help="only write the table")
    arguments = parser.parse_args()
    BINARY = Path(arguments.binary)
    if not arguments.table:
        study(arguments.data, tuple(map(int, arguments.slice.split("/"))) if arguments.slice else None)
    write(*table())
