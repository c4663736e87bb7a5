#!/usr/bin/env python3
"""What features of edges cost in attention: its time with them over its time without, from one run.

    benches/edges/run.py [--graphs rmat:15:16 rmat:17:16] [--dtypes f32 bf16] [-- --threads 2]
    benches/edges/run.py --graphs rmat:20:16 --dtypes bf16 -- --device cuda

The three kinds take turns, so that a machine that slows down slows all of them; of each the median turn is taken.
What follows `--` goes to `graphweft bench attention`.
"""

import argparse
import json
import statistics
import subprocess

KINDS = {"without": [], "16 numbers": ["--edge-features", "16"], "8 categories": ["--edge-categories", "8"]}


def parts(program, graph, dtype, more):
    """Milliseconds of forward and of backward."""
    command = [program, "bench", "attention", "--graph", graph, "--dtype", dtype, "--json", *more]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found["forward_ms"], found["backward_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="graphweft")
    parser.add_argument("--graphs", nargs="+", default=["rmat:15:16", "rmat:17:16"])
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("more", nargs="*")
    asked = parser.parse_args()
    print(f"{'graph':<12} {'type':<5} {'edges bring':<13} {'forward':>9} {'backward':>9} {'all ms':>9} {'ratio':>6}")
    for graph in asked.graphs:
        for dtype in asked.dtypes:
            turns = {kind: [] for kind in KINDS}
            for _ in range(asked.turns):
                for kind, options in KINDS.items():
                    turns[kind].append(parts(asked.program, graph, dtype, [*options, *asked.more]))
            middle = {kind: sorted(found, key=sum)[len(found) // 2] for kind, found in turns.items()}
            for kind, (forward, backward) in middle.items():
                ratio = statistics.median(sum(a) / sum(b) for a, b in zip(turns[kind], turns["without"]))
                total = forward + backward
                print(f"{graph:<12} {dtype:<5} {kind:<13} {forward:9.2f} {backward:9.2f} {total:9.2f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
