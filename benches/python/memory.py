"""Memory that a Dataset takes beyond its inputs while it is made of arrays, and the time that gw.open takes.

    python benches/python/memory.py [--edges 100000000] [--nodes 4000000] [--folder DIR]

Needs NumPy and the package graphweft. Sources and destinations are drawn at random, in no order, as int64. Prints JSON:
`csr_bytes` is the size of indptr and indices, `beyond_inputs` the largest resident memory while the dataset is made,
less that before, `open_ms` the median of five.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

import graphweft as gw
import numpy as np

PAGE = 4096


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def peak() -> int:
    """The most that was resident since `forget`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def forget() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


class Watch(threading.Thread):
    """The most that was resident, where the kernel does not forget: looked at every two milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = resident(), False

    def run(self) -> None:
        while not self.ended:
            self.most = max(self.most, resident())
            time.sleep(0.002)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--edges", type=int, default=100_000_000)
    options.add_argument("--nodes", type=int, default=4_000_000)
    options.add_argument("--folder", type=Path)
    chosen = options.parse_args()
    gw.Dataset(gw.Graph.from_edges([0], [1]))  # Threads and code are there.
    random = np.random.default_rng(0)
    sources, targets = (random.integers(0, chosen.nodes, chosen.edges) for _ in range(2))
    y = random.integers(0, 5, chosen.nodes)
    before, forgotten, watch = resident(), forget(), Watch()
    watch.start()
    start = time.perf_counter()
    data = gw.Dataset(gw.Graph.from_edges(sources, targets, chosen.nodes), y=y)
    seconds = time.perf_counter() - start
    watch.ended = True
    watch.join()
    most = max(watch.most, peak() if forgotten else 0)
    csr = data.graph.indptr.nbytes + data.graph.indices.nbytes
    folder = chosen.folder or Path(tempfile.mkdtemp()) / "data"
    data.save(folder)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        gw.open(folder)
        times.append((time.perf_counter() - start) * 1e3)
    shutil.rmtree(folder)
    found = {"edges": chosen.edges, "nodes": chosen.nodes, "csr_bytes": csr, "beyond_inputs": most - before}
    print(json.dumps({**found, "labels": y.nbytes, "seconds": seconds, "open_ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
