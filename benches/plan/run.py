#!/usr/bin/env python3
"""How good the planner's choices are: every strategy is run for real, timed as if on networks that are not here, and the one that
the planner chose is compared with the best of them.

    cargo build --release
    python3 benches/plan/run.py --data DIR [--jobs N] [--only REGEX] [--seconds LIMIT] [--table]

One run of `bench train --emulate` computes with real numerics, measures the processor's time of every rank, and gives the epoch on
all networks at once; `plan --profile NETWORK` predicts the same from a calibration of this machine. Of the candidates of a plan, those
are run that are predicted to take at most SLOWEST times what the fastest takes, on any of the networks. Regret is the measured time of
the choice over that of the best, less one. Times are emulated: planner and emulation share the model of the network, not that of kernels.

A virtual machine's neighbours make it slower by half, for moments or for minutes. So the least counts of whatever is timed: of every
kernel in the rounds of the calibration, of every stretch of computing in the epochs of a run, and of the times of a candidate in several runs,
which are spread over all runs of its graph: ROUNDS, and MORE for those that are predicted to take at most CLOSE times what the fastest
takes, whichever of them was chosen.

A run has two cores for itself, on which its ranks take turns, and no thread runs beside it on the same core: a thread's time would
say how busy its neighbour was. --jobs runs go at once, each on cores of its own. The calibration, which is done first, has two cores too and
is done as often at once, so that it meets the caches and the memory that runs will meet. Everything that is finished is a line of --kept,
from which the study goes on and the table is made.
"""

import argparse
import concurrent.futures
import json
import os
import queue
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NETWORKS = ["nvlink", "10g", "1g"]
RANKS = [2, 4, 8, 16]
HIDDEN, HEADS, LAYERS, FEATURES, CLASSES, DROPOUT = 32, 4, 2, 32, 40, 0.1
SLOWEST, CLOSE = 1.8, 1.1
ROUNDS, MORE, CALIBRATION_ROUNDS = 2, 4, 4

# Graphs, small ones first, counted epochs, and what is SLOWEST: of the largest, whose runs take longest, only the
# better half is run.
GRAPHS = [
    ("grid:150:150", 24, SLOWEST),
    ("rmat:13:16", 24, SLOWEST),
    ("pubmed", 20, SLOWEST),
    ("sbm:20000:10:16", 12, SLOWEST),
    ("rmat:15:8", 12, SLOWEST),
    ("law-cnr2000", 4, SLOWEST),
    ("snap-web-google", 3, 1.3),
]


class Kept:
    """What is finished, by key, in a file of JSON lines."""

    def __init__(self, path):
        self.path, self.lock, self.lines = path, threading.Lock(), {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self.lines[tuple(entry["key"])] = entry["value"]

    def get(self, *key):
        return self.lines.get(key)

    def put(self, value, *key):
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")
            self.lines[key] = value


def physical_cores():
    """One thread of every core that this process may use."""
    seen, cores = set(), []
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = siblings.read_text().strip() if siblings.exists() else str(cpu)
        if core not in seen:
            seen.add(core)
            cores.append(cpu)
    return cores


class Pairs:
    """Pairs of cores, which are taken and given back."""

    def __init__(self, jobs):
        cores = physical_cores()
        if len(cores) >= 4 * jobs:
            # Machines that are virtual do not always tell which threads share a core: neighbours do.
            cores = cores[::2]
        pairs = [cores[k:k + 2] for k in range(0, len(cores) - 1, 2)] or [cores]
        self.all = pairs[:jobs]
        self.free = queue.Queue()
        for pair in self.all:
            self.free.put(pair)

    def run(self, pair, what):
        """Calls `what` in a thread of its own, so that what it starts inherits the cores."""
        def inside():
            os.sched_setaffinity(0, pair)
            return what()
        with concurrent.futures.ThreadPoolExecutor(1) as alone:
            return alone.submit(inside).result()


class Study:
    def __init__(self, args):
        self.binary, self.data, self.work = Path(args.build).resolve(), Path(args.data).resolve(), Path(args.work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.kept, self.pairs = Kept(Path(args.kept)), Pairs(args.jobs)
        self.end = time.monotonic() + args.seconds

    def call(self, flags, cache="cache"):
        env, left = {**os.environ, "GRAPHWEFT_CACHE": str(self.work / cache)}, self.end - time.monotonic()
        done = subprocess.run([str(self.binary), *flags, "--json"], capture_output=True, text=True, env=env, timeout=max(left, 1))
        if done.returncode:
            raise RuntimeError(f"{' '.join(flags)}: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout)

    def folder(self, name):
        """A dataset folder with nothing but the graph: features and labels are random, as `bench train` makes them."""
        folder = self.work / "graphs" / name.replace(":", "_")
        if (folder / "meta.toml").exists():
            return folder
        if ":" in name:
            self.call(["generate", name, "-o", str(folder)])
            return folder
        folder.mkdir(parents=True)
        for file in ["indptr.npy", "indices.npy"]:
            (folder / file).symlink_to(self.data / name / file)
        meta = (self.data / name / "meta.toml").read_text()
        # Last: a folder that has it is complete.
        (folder / "meta.toml").write_text(re.sub(r"(num_features|num_classes) = \d+", r"\1 = 0", meta))
        return folder

    def divide(self, name, ranks):
        """METIS takes longer than a run: its parts are stored, and found there by all."""
        folder = self.folder(name)
        if not (folder / "part" / f"metis-{ranks}").exists():
            self.call(["partition", "--data", str(folder), "-p", str(ranks), "--method", "metis", "--balance", "both"])
        return folder

    def calibrate(self):
        """The machine is as busy as it will be: one of several calibrations that go at once is taken."""
        if (self.work / "cache").exists():
            return
        flags = ["plan", "--calibrate", "--ranks", "2", "--threads", "2", "--device", "cpu", f"parallel.calibration_rounds={CALIBRATION_ROUNDS}"]
        start, several = time.monotonic(), len(self.pairs.all)

        def one(k):
            self.pairs.run(self.pairs.all[k], lambda: self.call(flags, "cache" if k == 0 else f"calibration-{k}"))

        with concurrent.futures.ThreadPoolExecutor(several) as pool:
            list(pool.map(one, range(several)))
        self.kept.put({"seconds": time.monotonic() - start, "at_once": several, "cores": os.cpu_count()}, "calibration")

    def pinned(self, flags):
        """A call on cores of its own."""
        pair = self.pairs.free.get()
        try:
            if time.monotonic() > self.end:
                raise RuntimeError("the time is over")
            return self.pairs.run(pair, lambda: self.call(flags))
        finally:
            self.pairs.free.put(pair)

    def planned(self, name, ranks, network, folder):
        key = ("plan", name, ranks, network)
        if self.kept.get(*key) is None:
            start = time.monotonic()
            flags = ["plan", "--data", str(folder), "--ranks", str(ranks), "--profile", network, "--device", "cpu", "--threads", "2", "--features",
                     str(FEATURES), "--classes", str(CLASSES), f"model.hidden={HIDDEN}", f"model.layers={LAYERS}", f"model.heads={HEADS}",
                     f"train.dropout={DROPOUT}", f"train.attention_dropout={DROPOUT}"]
            plan = self.pinned(flags)
            short = [{k: c.get(k) for k in ("strategy", "partition", "time_ms", "compute_ms", "comm_ms", "imbalance_ms", "peak_bytes")}
                     for c in plan["candidates"] if c["feasible"]]
            self.kept.put({"candidates": short, "choice": [plan["choice"]["strategy"], plan["choice"]["partition"]], "why": plan["why"], "seconds": time.monotonic() - start}, *key)
        return self.kept.get(*key)

    def measured(self, name, ranks, strategy, partition, turn, epochs, folder):
        key = ("run", name, ranks, strategy, partition, turn)
        if self.kept.get(*key) is not None or time.monotonic() > self.end:
            return
        emulate = [x for network in NETWORKS for x in ("--emulate", network)]
        flags = ["bench", "train", "--data", str(folder), "--ranks", str(ranks), "--strategy", strategy, "--device", "cpu", "--hidden", str(HIDDEN),
                 "--layers", str(LAYERS), "--features", str(FEATURES), "--classes", str(CLASSES), "--dropout", str(DROPOUT), "--runs",
                 str(epochs), *emulate, f"model.heads={HEADS}", f"parallel.partition={partition}"]
        try:
            found = self.pinned(flags)
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            print(f"\n{name} {ranks} {strategy} {partition}: {str(e)[-300:]}", file=sys.stderr)
            return
        self.kept.put({"ms": {e["profile"]: e["step_ms"] for e in found["emulated"]}, "peak": found["peak_bytes"]}, *key)

    def run(self, only):
        self.calibrate()
        for name, epochs, slowest in GRAPHS:
            cases = [ranks for ranks in RANKS if re.search(only, f"{name} {ranks}")]
            if not cases or time.monotonic() > self.end:
                continue
            with concurrent.futures.ThreadPoolExecutor(32) as pool:
                self.folder(name)
                folders = list(pool.map(lambda ranks: self.divide(name, ranks), cases))
                wanted = [(ranks, network, folder) for ranks, folder in zip(cases, folders) for network in NETWORKS]
                plans = list(pool.map(lambda case: self.planned(name, *case), wanted))
                # Nothing but runs from here on.
                runs = []
                for turn in range(ROUNDS + MORE):
                    for k, (ranks, folder) in enumerate(zip(cases, folders)):
                        of_case = plans[k * len(NETWORKS):(k + 1) * len(NETWORKS)]
                        wanted = predicted_within(slowest if turn < ROUNDS else CLOSE, of_case)
                        runs += [pool.submit(self.measured, name, ranks, *candidate, turn, epochs, folder) for candidate in sorted(wanted)]
                for k, run in enumerate(runs):
                    run.result()
                    print(f"\r{name}: {k + 1} of {len(runs)}", end="", file=sys.stderr)
            print(file=sys.stderr)


def predicted_within(factor, plans):
    """The candidates that take at most `factor` times what the fastest takes, in any of the plans."""
    wanted = set()
    for plan in plans:
        fastest = min(c["time_ms"] for c in plan["candidates"])
        wanted |= {(c["strategy"], c["partition"]) for c in plan["candidates"] if c["time_ms"] <= factor * fastest}
    return wanted


def compare(kept):
    """A row for each case, and by family the errors of all predictions."""
    rows, errors, memory = [], {}, {}
    for name, *_ in GRAPHS:
        for ranks in RANKS:
            for network in NETWORKS:
                plan = kept.get("plan", name, ranks, network)
                if plan is None:
                    continue
                times = {}
                for c in plan["candidates"]:
                    runs = [kept.get("run", name, ranks, c["strategy"], c["partition"], turn) for turn in range(ROUNDS + MORE)]
                    runs = [run for run in runs if run is not None]
                    if not runs:
                        continue
                    ms = min(run["ms"][network] for run in runs)
                    times[c["strategy"], c["partition"]] = ms
                    family = c["strategy"].split(":")[0]
                    errors.setdefault(family, []).append(c["time_ms"] / ms - 1)
                    memory.setdefault(family, []).append(abs(c["peak_bytes"] / runs[0]["peak"] - 1))
                chosen = tuple(plan["choice"])
                choice = next(c for c in plan["candidates"] if (c["strategy"], c["partition"]) == chosen)
                if chosen not in times or len(times) < 4:
                    continue
                best = min(times, key=times.get)
                rows.append((name, ranks, network, chosen, times[chosen], choice["time_ms"], best, times[best], times[chosen] / times[best] - 1))
    return rows, errors, memory


def table(kept):
    rows, errors, memory = compare(kept)
    regrets = [row[-1] for row in rows] or [0.0]
    within = sum(row[-1] <= 0.02 for row in rows)
    mean = statistics.mean
    calibration = kept.get("calibration") or {"seconds": 0, "at_once": 0, "cores": 0}
    lines = [f"{len(rows)} cases: the choice is the best or within 2 % of it in {within} ({100 * within / max(len(rows), 1):.0f} %); "
             f"mean regret {100 * mean(regrets):.1f} %, worst {100 * max(regrets):.1f} %. Machine of "
             f"{calibration['cores']} threads; the calibration took {calibration['seconds']:.0f} s, {calibration['at_once']} at once.", "",
             "| strategy | predictions | time, mean error % | mean of signed errors % | peak memory, largest error % |", "|---|---|---|---|---|"]
    for family in sorted(errors):
        found = errors[family]
        lines.append(f"| {family} | {len(found)} | {100 * mean(map(abs, found)):.1f} | {100 * mean(found):+.1f} | {100 * max(memory[family]):.2f} |")
    lines += ["", "| graph | ranks | network | choice | ms | predicted | best | ms | regret % |", "|---|---|---|---|---|---|---|---|---|"]
    for name, ranks, network, choice, ms, predicted, best, best_ms, regret in rows:
        lines.append(f"| {name} | {ranks} | {network} | {', '.join(choice)} | {ms:.2f} | {predicted:.2f} | {', '.join(best)} | {best_ms:.2f} | "
                     f"{100 * regret:.1f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "target/release/graphweft"), help="the program")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data"), help="folder of real graphs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--only", default="", help="cases whose graph and ranks match, as in 'rmat.* 8$'")
    parser.add_argument("--seconds", type=float, default=1e6, help="no run begins later than that")
    parser.add_argument("--kept", default=str(ROOT / "target/plan-study.jsonl"), help="what is finished")
    parser.add_argument("--work", default=str(ROOT / "target/plan-study"), help="folder for graphs and calibrations")
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    study = Study(args)
    if not args.table:
        try:
            study.run(args.only)
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            print(e, file=sys.stderr)
    print("\n".join(table(study.kept)))


if __name__ == "__main__":
    main()
