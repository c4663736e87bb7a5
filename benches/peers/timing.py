"""What the benchmarks of the peers share: medians, peak memory, the line of JSON."""

import json
import statistics
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import torch

SECONDS = 4  # enough runs when this has passed, but never fewer than 5


def median_ms(run):
    """Medians of what `run` returns, a tuple of durations in milliseconds, after one run that is not counted."""
    run()
    times, start = [], time.perf_counter()
    while len(times) < 5 or (len(times) < 15 and time.perf_counter() - start < SECONDS):
        times.append(run())
    return [statistics.median(column) for column in zip(*times)]


def clocked(f):
    """What `f` returns, and its milliseconds."""
    start = time.perf_counter()
    out = f()
    return out, (time.perf_counter() - start) * 1e3


class Peak:
    """Resident memory from here on: graph, inputs, and everything the operation makes of them."""

    def __init__(self):
        self.before = self._status("VmRSS")
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")  # VmHWM starts anew

    def mib(self):
        return (self._status("VmHWM") - self.before) / 1024

    @staticmethod
    def _status(field):
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(field + ":"))


def arguments(names):
    """The implementation and the graph folder from the command line, checked and with torch's threads set."""
    if len(sys.argv) != 4 or sys.argv[1] not in names:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(names)} FOLDER THREADS")
    torch.manual_seed(0)
    torch.set_num_threads(int(sys.argv[3]))
    return sys.argv[1], sys.argv[2]


def report(**fields):
    versions = {}
    for package in ("torch", "torch_geometric", "dgl"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    print(json.dumps(fields | {"threads": torch.get_num_threads(), "versions": versions}), flush=True)
