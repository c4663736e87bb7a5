#!/usr/bin/env python3
"""Everything of this folder at once on a machine with many cores: all.py --data DIR --build BINARY --work DIR --out DIR --seconds S

A billion edges on two cores for each of two models, time to accuracy and accuracy on the others. What is finished after S seconds
is in OUT; what is not goes on if this is run again with the same WORK. Lines of JSON beside this script are taken as done.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
KEPT = {"time": "time.jsonl", "run": "accuracy.jsonl"}


def main():
    parser = argparse.ArgumentParser()
    for name in ["--data", "--build"]:
        parser.add_argument(name, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540)
    args = parser.parse_args()
    start, cores = time.monotonic(), sorted(os.sched_getaffinity(0))
    left = lambda: args.seconds - (time.monotonic() - start)
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    for found in HERE.glob("*.jsonl"):
        if not (args.work / found.name).exists():
            shutil.copy(found, args.work)
    data = args.work / "rmat-26"
    if not data.exists():
        with (args.out / "generate.json").open("w") as out:
            subprocess.run([args.build, "generate", "rmat:26:16:f=32:c=8+loops", "-o", str(data), "--json"], stdout=out, check=True)

    def begin(cpus, script, *more):
        log = (args.out / f"{script}-{more[-1] if script == 'large' else 'log'}.txt").open("a")
        return subprocess.Popen([sys.executable, str(HERE / f"{script}.py"), "--build", args.build, *more], stdout=log, stderr=log,
                                start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, cpus))

    def study(script, seconds):
        return begin(cores[4:], script, "--data", args.data, "--jobs", str(max(len(cores) - 4, 1)), "--seconds", str(seconds),
                     "--kept", str(args.work / KEPT[script]))

    def large(cpus, model):
        kill = [] if (args.work / f"run-26-{model}" / "checkpoints").exists() else ["--kill", "20"]
        return begin(cpus, "large", str(args.work), "--epochs", "2", *kill, "--model", model)

    billions = [large(cores[:2], "sage"), large(cores[2:4], "gt")]
    study("time", 0.42 * left()).wait()
    study("run", left() - 10).wait()
    while left() > 5 and any(run.poll() is None for run in billions):
        time.sleep(1)
    for run in billions:
        if run.poll() is None:
            os.killpg(run.pid, 9)
    for found in [*args.work.glob("*.jsonl"), *args.work.glob("run-26-*/*.json*")]:
        shutil.copy(found, args.out / str(found.relative_to(args.work)).replace("/", "-"))


if __name__ == "__main__":
    main()
