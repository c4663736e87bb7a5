#!/usr/bin/env python3
"""How good the planner's choices are: every strategy is run for real, timed as if on networks that are not here, and the one that
the planner chose is compared with the best of them.

    cargo build --release
    python3 benches/plan/run.py --data DIR [--jobs CORES] [--only REGEX] [--seconds LIMIT] [--table]

One run of `bench train --emulate` computes with real numerics, measures the processor's time of every rank, and gives the epoch on
all networks at once; `plan --profile NETWORK` predicts the same from a probe of this machine. Of the candidates of a plan, those
are run that are predicted to take at most SLOWEST times what the fastest takes, on any of the networks. Regret is the measured time of
the choice over that of the best, less one. Times are emulated: planner and emulation share the model of the network, not that of kernels.

Runs share the machine: each has as many cores as it has ranks, and as many runs go at once as --jobs cores allow. The probe, which is
done first, is repeated at the same time as often as the same cores allow, so that it meets the caches and the memory that runs will
meet. Everything that is finished is a line of --kept, from which the study goes on and the table is made.
"""

import argparse
import concurrent.futures
import json
import os
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
SLOWEST = 2.5

# Graphs, small ones first, and counted epochs.
GRAPHS = [
    ("grid:150:150", 9),
    ("rmat:13:16", 9),
    ("pubmed", 9),
    ("sbm:20000:10:16", 7),
    ("ba:20000:8", 7),
    ("rmat:15:8", 5),
    ("law-cnr2000", 3),
    ("snap-web-google", 3),
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


class Cores:
    """So many cores, taken and given back several at a time."""

    def __init__(self, count):
        self.free, self.count, self.turn = count, count, threading.Condition()

    def take(self, wanted):
        wanted = min(wanted, self.count)
        with self.turn:
            self.turn.wait_for(lambda: self.free >= wanted)
            self.free -= wanted
        return wanted

    def give(self, taken):
        with self.turn:
            self.free += taken
            self.turn.notify_all()


class Study:
    def __init__(self, args):
        self.binary, self.data, self.work = Path(args.build).resolve(), Path(args.data).resolve(), Path(args.work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.kept, self.cores = Kept(Path(args.kept)), Cores(args.jobs)
        self.end = time.monotonic() + args.seconds

    def call(self, flags, cache="cache", timeout=None):
        env = {**os.environ, "GRAPHWEFT_CACHE": str(self.work / cache)}
        left = self.end - time.monotonic() if timeout is None else timeout
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
        for file in ["indptr.npy", "indices.npy", "meta.toml"]:
            (folder / file).symlink_to(self.data / name / file)
        return folder

    def divide(self, name, ranks):
        """METIS takes longer than a run: its parts are stored, and found there by all."""
        folder = self.folder(name)
        if not (folder / "part" / f"metis-{ranks}").exists():
            self.call(["partition", "--data", str(folder), "-p", str(ranks), "--method", "metis"])
        return folder

    def cache(self, ranks):
        """Ranks beyond the cores take turns on them: they are probed as one per core."""
        return f"cache-{min(ranks, os.cpu_count())}"

    def probe(self, ranks):
        """The cores are as busy as they will be: one of several probes that go at once is taken."""
        if (self.work / self.cache(ranks)).exists():
            return
        several = max(1, self.cores.count // ranks)
        flags = ["plan", "--graph", "rmat:8:8", "--ranks", str(ranks), "--profile", "nvlink", "--device", "cpu", "--threads", str(ranks)]
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(several) as pool:
            list(pool.map(lambda k: self.call(flags, self.cache(ranks) if k == 0 else f"probe-{ranks}-{k}"), range(several)))
        seconds = time.monotonic() - start
        self.kept.put({"seconds": seconds, "at_once": several}, "probe", ranks)
        print(f"probe of {ranks} ranks, {several} at once: {seconds:.1f} s", file=sys.stderr)

    def planned(self, name, ranks, network, folder):
        key = ("plan", name, ranks, network)
        if self.kept.get(*key) is None:
            start = time.monotonic()
            plan = self.call(["plan", "--data", str(folder), "--ranks", str(ranks), "--profile", network, "--device", "cpu", "--threads", str(ranks),
                              "--features", str(FEATURES), "--classes", str(CLASSES), f"model.hidden={HIDDEN}",
                              f"model.layers={LAYERS}", f"model.heads={HEADS}", f"train.dropout={DROPOUT}",
                              f"train.attention_dropout={DROPOUT}"], self.cache(ranks))
            short = [{k: c.get(k) for k in ("strategy", "partition", "time_ms", "compute_ms", "comm_ms", "imbalance_ms", "peak_bytes")}
                     for c in plan["candidates"] if c["feasible"]]
            self.kept.put({"candidates": short, "why": plan["why"], "seconds": time.monotonic() - start}, *key)
        return self.kept.get(*key)

    def measured(self, name, ranks, strategy, partition, epochs, folder):
        key = ("run", name, ranks, strategy, partition)
        if self.kept.get(*key) is not None or time.monotonic() > self.end:
            return
        emulate = [x for network in NETWORKS for x in ("--emulate", network)]
        taken = self.cores.take(ranks)
        try:
            found = self.call(["bench", "train", "--data", str(folder), "--ranks", str(ranks), "--strategy", strategy, "--device", "cpu",
                               "--hidden", str(HIDDEN), "--layers", str(LAYERS), "--features", str(FEATURES), "--classes", str(CLASSES),
                               "--dropout", str(DROPOUT), "--runs", str(epochs), *emulate, f"model.heads={HEADS}",
                               f"parallel.partition={partition}"], self.cache(ranks))
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            print(f"{name} {ranks} {strategy} {partition}: {e}", file=sys.stderr)
            return
        finally:
            self.cores.give(taken)
        self.kept.put({"ms": {e["profile"]: e["step_ms"] for e in found["emulated"]}, "peak": found["peak_bytes"]}, *key)

    def run(self, only):
        wanted = {name: [ranks for ranks in RANKS if re.search(only, f"{name} {ranks}")] for name, _ in GRAPHS}
        for ranks in RANKS:
            if any(ranks in cases for cases in wanted.values()):
                self.probe(ranks)
        for name, epochs in GRAPHS:
            cases = wanted[name]
            with concurrent.futures.ThreadPoolExecutor(32) as pool:
                runs = []
                for ranks in cases:
                    if time.monotonic() > self.end:
                        return
                    folder = self.divide(name, ranks)
                    plans = list(pool.map(lambda network: self.planned(name, ranks, network, folder), NETWORKS))
                    for strategy, partition in sorted(worth_running(plans)):
                        runs.append(pool.submit(self.measured, name, ranks, strategy, partition, epochs, folder))
                for k, run in enumerate(runs):
                    run.result()
                    print(f"\r{name}: {k + 1} of {len(runs)}", end="", file=sys.stderr)
            print(file=sys.stderr)


def worth_running(plans):
    wanted = set()
    for plan in plans:
        fastest = min(c["time_ms"] for c in plan["candidates"])
        wanted |= {(c["strategy"], c["partition"]) for c in plan["candidates"] if c["time_ms"] <= SLOWEST * fastest}
    return wanted


def compare(kept):
    """A row for each case, and by family the errors of all predictions."""
    rows, errors, memory = [], {}, {}
    for name, _ in GRAPHS:
        for ranks in RANKS:
            for network in NETWORKS:
                plan = kept.get("plan", name, ranks, network)
                if plan is None:
                    continue
                times = {}
                for c in plan["candidates"]:
                    run = kept.get("run", name, ranks, c["strategy"], c["partition"])
                    if run is None:
                        continue
                    times[c["strategy"], c["partition"]] = run["ms"][network]
                    family = c["strategy"].split(":")[0]
                    errors.setdefault(family, []).append(c["time_ms"] / run["ms"][network] - 1)
                    memory.setdefault(family, []).append(abs(c["peak_bytes"] / run["peak"] - 1))
                choice = min(plan["candidates"], key=lambda c: c["time_ms"])
                chosen = (choice["strategy"], choice["partition"])
                if chosen not in times or len(times) < 4:
                    continue
                best = min(times, key=times.get)
                rows.append((name, ranks, network, chosen, times[chosen], choice["time_ms"], best, times[best], times[chosen] / times[best] - 1))
    return rows, errors, memory


def table(kept):
    rows, errors, memory = compare(kept)
    regrets = [row[-1] for row in rows] or [0.0]
    within = sum(r <= 0.02 for r in regrets)
    mean = statistics.mean
    probes = [kept.get("probe", ranks) for ranks in RANKS]
    probes = ", ".join(f"{p['seconds']:.0f} s for {ranks}" for ranks, p in zip(RANKS, probes) if p)
    lines = [f"{len(rows)} cases: the choice is the best or within 2 % of it in {within} ({100 * within / max(len(rows), 1):.0f} %); "
             f"mean regret {100 * mean(regrets):.1f} %, worst {100 * max(regrets):.1f} %. Probe: {probes} ranks.", "",
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
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cores to keep busy")
    parser.add_argument("--only", default="", help="cases whose graph and ranks match, as in 'rmat.* 8$'")
    parser.add_argument("--seconds", type=float, default=1e9, help="no run begins later than that")
    parser.add_argument("--kept", default=str(ROOT / "target/plan-study.jsonl"), help="what is finished")
    parser.add_argument("--work", default=str(ROOT / "target/plan-study"), help="folder for graphs and probes")
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    study = Study(args)
    if not args.table:
        try:
            study.run(args.only)
        except subprocess.TimeoutExpired:
            print("the time is over", file=sys.stderr)
    print("\n".join(table(study.kept)))


if __name__ == "__main__":
    main()
