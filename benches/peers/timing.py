"""What the benchmarks of the peers share: medians, peak memory, the line of JSON."""

import json
import statistics
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import torch

from graph import Graph

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


def report_operation(op, implementations, check, inputs):
    """Forward and backward of what the implementation gives for the graph, after `check` of it, on what `inputs` gives
    for so many nodes: operands, and the gradient of the output."""
    name, folder = arguments(implementations)
    make = implementations[name]
    check(make)
    peak = Peak()
    graph = Graph.read(folder)
    apply = make(graph)
    operands, g = inputs(graph.nodes)

    def run():
        out, forward = clocked(lambda: apply(*operands))
        _, backward = clocked(lambda: torch.autograd.grad(out, operands, g))
        return forward, backward

    forward, backward = median_ms(run)
    report(op=op, impl=name, edges=graph.edges, forward_ms=forward, backward_ms=backward, peak_mib=peak.mib())


def report_epoch(op, name, folder, make):
    """What one call takes of the function that `make` gives for this implementation and the graph."""
    peak = Peak()
    graph = Graph.read(folder)
    run = make(name, graph)
    (epoch,) = median_ms(lambda: (clocked(run)[1],))
    report(op=op, impl=name, edges=graph.edges, epoch_ms=epoch, peak_mib=peak.mib())
