#!/usr/bin/env python3
"""The planner's choices for two ranks on two cores, with nothing emulated: every candidate is run and timed by the clock on the wall.

    python3 benches/plan/real.py [--build PROGRAM] [--data DIR] [--only REGEX]

It wants a quiet machine. The machine is probed first. Prints a table; regret is the time of the choice over that of the best, less one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HEADS, LAYERS, FEATURES, CLASSES, DROPOUT = 4, 2, 32, 40, 0.1
# Graph, hidden columns, epochs.
CASES = [
    ("grid:150:150", 32, 15),
    ("grid:300:300", 64, 5),
    ("rmat:12:16", 32, 25),
    ("rmat:13:16", 64, 11),
    ("rmat:15:8", 32, 7),
    ("sbm:20000:10:16", 32, 9),
    ("ba:20000:8", 32, 9),
    ("pubmed", 32, 15),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "target/release/graphweft"), help="the program")
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data"), help="folder of real graphs")
    parser.add_argument("--only", default="", help="cases whose graph matches")
    args = parser.parse_args()
    env = {**os.environ, "GRAPHWEFT_CACHE": tempfile.mkdtemp()}

    def call(flags):
        done = subprocess.run([args.build, *flags, "--threads", "2", "--json"], capture_output=True, text=True, env=env)
        if done.returncode:
            sys.exit(f"{' '.join(flags)}\n{done.stderr}")
        return json.loads(done.stdout)

    print("| graph | hidden | choice | ms | predicted | best | ms | regret % |", "|---|---|---|---|---|---|---|---|", sep="\n")
    for graph, hidden, epochs in CASES:
        if not re.search(args.only, graph):
            continue
        where = ["--graph", graph] if ":" in graph else ["--data", str(Path(args.data) / graph)]
        where += ["--ranks", "2", "--device", "cpu", "--features", str(FEATURES), "--classes", str(CLASSES)]
        plan = call(["plan", *where, f"model.hidden={hidden}", f"model.layers={LAYERS}", f"model.heads={HEADS}", f"train.dropout={DROPOUT}",
                     f"train.attention_dropout={DROPOUT}"])
        times = {}
        for c in (c for c in plan["candidates"] if c["feasible"]):
            run = call(["bench", "train", *where, "--strategy", c["strategy"], "--hidden", str(hidden), "--layers", str(LAYERS), "--dropout",
                        str(DROPOUT), "--runs", str(epochs), f"model.heads={HEADS}", f"parallel.partition={c['partition']}"])
            times[c["strategy"], c["partition"]] = run["step_ms"]
        choice = (plan["choice"]["strategy"], plan["choice"]["partition"])
        best = min(times, key=times.get)
        print(f"| {graph} | {hidden} | {', '.join(choice)} | {times[choice]:.1f} | {plan['choice']['time_ms']:.1f} | {', '.join(best)} | "
              f"{times[best]:.1f} | {100 * (times[choice] / times[best] - 1):.1f} |", flush=True)


if __name__ == "__main__":
    main()
