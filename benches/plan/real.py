#!/usr/bin/env python3
"""The planner's choices for two ranks as threads on two cores, with nothing emulated: the candidates of a plan are run and timed by
the clock on the wall.

    python3 benches/plan/real.py [--build PROGRAM] [--data DIR] [--only REGEX] [--seconds LIMIT] [--table]

It wants a quiet machine. For every case the machine is calibrated anew, right before its runs: a virtual machine has neighbours, and is not
as fast at all times. Candidates that are predicted to take more than SLOWEST times what the fastest takes are not run. The
others are run in turn, each for a fraction of a second, of which the median epoch counts; then they are run again. Those that come within
NEAR times the fastest, and the choice, are run in more rounds. The time of a candidate is the least of its rounds, as neighbours only
ever add; the same by the median of rounds is told too. Regret is the time of the choice over that of the best, less one. How far this can
be trusted: even and odd rounds are taken as two measurements of the same candidate, and compared. Whatever the times, a run counts
only if the processors were idle right before and right after it; else it is run again.

Everything that is finished is a line of --kept, from which the study goes on. The table goes into REAL.md, beside that of links.py.
"""

import argparse
import hashlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from run import Kept

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HEADS, LAYERS, FEATURES, CLASSES, DROPOUT = 4, 2, 32, 40, 0.1
# Of ROUNDS rounds, ALL are of all candidates that are run.
SLOWEST, NEAR, ALL, ROUNDS = 2.5, 1.3, 2, 8
# Seconds for which processors are watched, and the share of them that others may use.
WATCH, BUSY = 0.2, 0.05
# Milliseconds of a run, and the fewest and most epochs in it.
LENGTH, FEWEST, MOST = 400, 3, 51
# Graph and hidden columns.
CASES = [
    ("grid:150:150", 32),
    ("grid:200:200", 32),
    ("rmat:12:16", 32),
    ("rmat:13:16", 64),
    ("rmat:15:8", 32),
    ("sbm:20000:10:16", 32),
    ("ba:20000:8", 32),
    ("pubmed", 32),
]
TITLE = "Two ranks as threads on two cores"
METHOD = "How these figures came about"


def others():
    """The share of all processors that is used while this does nothing."""
    def used():
        *numbers, = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
        return sum(numbers) - numbers[3] - numbers[4], sum(numbers)
    before = used()
    time.sleep(WATCH)
    busy, all_ = (b - a for a, b in zip(before, used()))
    return busy / max(all_, 1)


class Study:
    """Runs the program somewhere: `where` is its name, `run` runs flags there, with a folder for its cache, and gives what it says."""

    def __init__(self, args, where, run):
        self.args, self.where, self.run = args, where, run
        self.kept, self.quiet = Kept(Path(args.kept)), False
        build = hashlib.sha256(Path(args.build).read_bytes()).hexdigest()[:12]
        if self.kept.get("build") not in (None, build):
            sys.exit(f"{args.kept} was made with another build; remedy: --kept ANOTHER, or remove it")
        if self.kept.get("build") is None:
            self.kept.put(build, "build")

    def start(self, flags, cache):
        """Runs flags undisturbed."""
        while True:
            while not self.quiet:
                self.quiet = others() <= BUSY
            found = self.run(flags, cache)
            # What was idle after a run is idle before the next.
            self.quiet = others() <= BUSY
            if self.quiet:
                return found
            print(f"disturbed: {' '.join(flags)}", file=sys.stderr)

    def once(self, make, *key):
        """What is kept under a key, made now if it is not."""
        if self.kept.get(self.where, *key) is None:
            self.kept.put(make(), self.where, *key)
        return self.kept.get(self.where, *key)

    def graph(self, name):
        where = ["--graph", name] if ":" in name else ["--data", str(Path(self.args.data) / name)]
        return [*where, "--device", "cpu", "--features", str(FEATURES), "--classes", str(CLASSES)]

    def plan(self, graph, hidden):
        def make():
            with tempfile.TemporaryDirectory() as cache:
                self.start(["plan", "--calibrate", "--device", "cpu"], cache)
                plan = self.start(["plan", *self.graph(graph), f"model.hidden={hidden}", f"model.layers={LAYERS}", f"model.heads={HEADS}",
                                   f"train.dropout={DROPOUT}", f"train.attention_dropout={DROPOUT}"], cache)
                network = tomllib.loads(next(Path(cache).glob("calibrations/*.toml")).read_text())["network"]["between"]
            times = [[c["strategy"], c["partition"], c["remat"], c["time_ms"]] for c in plan["candidates"] if c["feasible"]]
            choice = [plan["choice"][key] for key in ("strategy", "partition", "remat")]
            return {"times": times, "choice": choice, "why": plan["why"], "network": network}
        return self.once(make, "plan", graph, hidden)

    def measure(self, graph, hidden, candidate, predicted, turn):
        strategy, partition, remat = candidate
        epochs = min(max(int(LENGTH / predicted), FEWEST), MOST) | 1

        def make():
            found = self.start(["bench", "train", *self.graph(graph), "--strategy", strategy, "--remat", remat, "--hidden", str(hidden),
                                "--layers", str(LAYERS), "--dropout", str(DROPOUT), "--runs", str(epochs), f"model.heads={HEADS}",
                                f"parallel.partition={partition}"], "")
            return {"epochs": epochs, **{k: found[k] for k in ("step_ms", "bytes_sent_by_rank", "carried") if k in found}}
        return self.once(make, "run", graph, hidden, *candidate, turn)["step_ms"]

    def case(self, graph, hidden):
        plan = self.plan(graph, hidden)
        predicted = {tuple(c): t for *c, t in plan["times"]}
        worth = [c for c, t in predicted.items() if t <= SLOWEST * min(predicted.values())]
        first = {c: float("inf") for c in worth}
        for turn in range(ALL):
            first = {c: min(t, self.measure(graph, hidden, c, predicted[c], turn)) for c, t in first.items()}
        near = [c for c, t in first.items() if t <= NEAR * min(first.values()) or c == tuple(plan["choice"])]
        for turn in range(ALL, ROUNDS):
            for c in near:
                self.measure(graph, hidden, c, predicted[c], turn)
        self.kept.put(True, self.where, "case", graph, hidden)


def wanted(args, cases):
    """Those of `cases`, each a place, a graph and hidden columns, that are asked for, as long as there is time."""
    for where, graph, hidden in cases:
        if not re.search(args.only, f"{where} {graph}") or Kept(Path(args.kept)).get(where, "case", graph, hidden):
            continue
        if time.monotonic() > args.end:
            return print("the time is over", file=sys.stderr)
        print(f"{where} {graph} {hidden}", file=sys.stderr)
        yield where, graph, hidden


def table(kept, cases):
    """A summary of the cases that are finished, errors of predictions by strategy, and a row for each case."""
    rows, errors, spreads = [], {}, []
    for where, graph, hidden in cases:
        if kept.get(where, "case", graph, hidden) is None:
            continue
        plan = kept.get(where, "plan", graph, hidden)
        predicted, choice = {tuple(c): t for *c, t in plan["times"]}, tuple(plan["choice"])
        runs = {c: [kept.get(where, "run", graph, hidden, *c, turn) for turn in range(ROUNDS)] for c in predicted}
        rounds = {c: [run["step_ms"] for run in all_ if run] for c, all_ in runs.items() if all_[0]}
        often = [c for c, t in rounds.items() if len(t) == ROUNDS]
        times, medians = ({c: of(rounds[c]) for c in often} for of in (min, statistics.median))
        best = min(times, key=times.get)
        regrets = [t[choice] / min(t.values()) - 1 for t in (times, medians)]
        spreads += [abs(min(rounds[c][::2]) / min(rounds[c][1::2]) - 1) for c in often]
        for c in often:
            errors.setdefault(c[0], []).append(predicted[c] / times[c] - 1)
        name = lambda c: ", ".join(c[:2] if c[2] == "none" else c)
        cells = [where, graph, hidden, f"{len(rounds)} of {len(predicted)}"]
        for c in (choice, best):
            cells += [name(c), f"{times[c]:.1f}", f"{predicted[c]:.1f}"]
        rows.append((*regrets, f"| {' | '.join(map(str, cells))} | {100 * regrets[0]:.1f} | {100 * regrets[1]:.1f} |"))
    if not rows:
        return ["No case is finished."]

    def told(which):
        regrets = [row[which] for row in rows]
        within, mean = sum(r <= 0.05 for r in regrets), statistics.mean(regrets)
        return f"in {within}; mean regret {100 * mean:.1f} %, worst {100 * max(regrets):.1f} %"

    lines = [f"{len(rows)} cases: the choice is the best or within 5 % of it {told(0)}.", f"By medians of rounds: {told(1)}.",
             f"Even and odd rounds of the same candidate differ by {100 * statistics.mean(spreads):.1f} % on average, at most "
             f"{100 * max(spreads):.1f} %.", "", "Predictions of the candidates that were run in all rounds:", "",
             "| strategy | predictions | mean error % | mean of signed errors % |", "|---|---|---|---|"]
    for strategy in sorted(errors):
        found = errors[strategy]
        lines.append(f"| {strategy} | {len(found)} | {100 * statistics.mean(map(abs, found)):.1f} | {100 * statistics.mean(found):+.1f} |")
    columns = ["where", "graph", "hidden", "run", "choice", "ms", "predicted", "best", "ms", "predicted", "regret %", "by medians %"]
    lines += ["", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return lines + [row[-1] for row in rows]


def write(path, title, script, lines):
    """Puts a section into the file of results, in place of the one that was there."""
    intro = ["# The planner's choices by the clock", "", f"## {METHOD}", "",
             f"Model: graph transformer, {LAYERS} layers in {HEADS} heads, {FEATURES} features, {CLASSES} classes, dropout {DROPOUT}. "
             "Times are milliseconds of an epoch.",
             "What is compared and how it is timed is told at the top of real.py and links.py."]
    text = path.read_text() if path.exists() else "\n".join(intro)
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    named = {section.split("\n", 1)[0]: section for section in sections}
    named[title] = "\n".join([title, "", f"Made by `python3 benches/plan/{script}`.", "", *lines])
    # How figures came about is told last.
    named[METHOD] = named.pop(METHOD)
    path.write_text("\n\n".join([head.rstrip(), *(f"## {section.rstrip()}" for section in named.values())]) + "\n")


def call(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return json.loads(lines[-1])


def arguments(doc, kept):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "target/release/graphweft"), help="the program")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data"), help="folder of real graphs")
    parser.add_argument("--only", default="", help="cases whose place and graph match, as in 'rmat'")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins later than that")
    parser.add_argument("--kept", default=str(ROOT / "target" / kept), help="what is finished")
    parser.add_argument("--table", action="store_true", help="only make the table")
    args = parser.parse_args()
    args.end = time.monotonic() + args.seconds
    # What is left behind is cleaned up by whoever made it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return args


def main():
    args, cases = arguments(__doc__, "plan-real.jsonl"), [("threads", *case) for case in CASES]

    def run(flags, cache):
        return call([args.build, *flags, "--ranks", "2", "--threads", "2", "--json"], {**os.environ, "GRAPHWEFT_CACHE": cache})

    study = Study(args, "threads", run)
    if not args.table:
        for _, graph, hidden in wanted(args, cases):
            study.case(graph, hidden)
    lines = table(study.kept, cases)
    write(HERE / "REAL.md", TITLE, "real.py", lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
