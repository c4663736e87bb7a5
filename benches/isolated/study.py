"""What the studies of this folder share: runs in parallel, each kept as a line of JSON and not made again."""

import argparse
import concurrent.futures
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path


def arguments(name, about):
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--data", required=True, help="the folder of dataset folders")
    parser.add_argument("--build", default="target/release/graphweft")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--device", default="cpu", help="where scores are learned; clocks are the processor's")
    parser.add_argument("--only", default="", help="a regular expression: runs whose key has it")
    parser.add_argument("--seconds", type=float, default=1e6, help="begin no run after so long, and end those that take longer")
    parser.add_argument("--kept", type=Path, default=Path(__file__).parent / f"{name}.jsonl")
    return parser.parse_args()


class Kept:
    """The results so far, by key."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.done = {line["key"]: line for line in map(json.loads, lines)}

    def add(self, key, found):
        with self.lock:
            self.done[key] = {"key": key, **found}
            with self.path.open("a") as file:
                file.write(json.dumps(self.done[key]) + "\n")


def run_all(args, kept, jobs, one):
    """Makes the runs (key, anything) of `jobs` that are not there, in their order; `one(job, seconds left)` gives what is kept."""
    start = time.monotonic()
    todo = [job for job in dict((job[0], job) for job in jobs).values() if job[0] not in kept.done and re.search(args.only, job[0])]
    failed = []

    def attempt(job):
        left = args.seconds - (time.monotonic() - start)
        if left <= 0:
            return
        try:
            kept.add(job[0], one(job, left))
        except subprocess.TimeoutExpired:
            pass
        except subprocess.CalledProcessError as e:
            failed.append(job[0])
            print(f"{job[0]}: {e.stderr}", file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(attempt, todo))
    print(f"{len(kept.done)} runs so far, {len(failed)} failed", file=sys.stderr)
