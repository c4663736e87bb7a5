#!/usr/bin/env python3
"""A graph on disk, trained on and scored with little memory.

    large.py DIR [--scale S] [--memory 8GiB] [--model sage|gt] [--epochs E] [--halo H] [--kill SECONDS] [--build BINARY]

Makes rmat:S:16 in DIR if it is not there, with 32 features per node that hint at one of 8 classes, and trains 3 layers with
--strategy isolated; scores are exact, after the last epoch. A run that is there goes on where it was. With --kill the run is
ended by SIGKILL so many seconds after its first checkpoint, in the middle of an epoch, and begun again. What it took is printed
as JSON: of what was run after that.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

# Dense products of GT are dear: it is narrower.
MODELS = {"sage": ["model.hidden=32"], "gt": ["model.hidden=16", "model.heads=1"]}


def phases(run):
    """Seconds of each phase of the run, from its trace."""
    sums = {}
    for event in json.loads((run / "trace.json").read_text()):
        if event.get("ph") == "X":
            sums[event["name"]] = sums.get(event["name"], 0.0) + event["dur"] / 1e6
    return {name: round(seconds, 1) for name, seconds in sums.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", type=Path)
    parser.add_argument("--scale", type=int, default=26)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--halo", default="0.5", help="rows of halo for each row of the chunks")
    parser.add_argument("--kill", type=float)
    parser.add_argument("--build", default="target/release/graphweft")
    args = parser.parse_args()
    data, run = args.dir / f"rmat-{args.scale}", args.dir / f"run-{args.scale}-{args.model}"
    if not data.exists():
        subprocess.run([args.build, "generate", f"rmat:{args.scale}:16:f=32:c=8+loops", "-o", str(data), "--json"], check=True)
    train = [args.build, "train", "--data", str(data), "--model", args.model, "model.layers=3", *MODELS[args.model], "--strategy",
             "isolated", "--memory", args.memory, f"isolated.halo={args.halo}", "parallel.partition=contiguous", "compute.dtype=bf16",
             f"train.epochs={args.epochs}", "train.lr=0.005", f"train.evaluate_every={args.epochs}", "run.checkpoint_every=1", "--resume",
             "-o", str(run), "--device", "cpu", "--json"]
    if args.kill:
        first = subprocess.Popen(train, stdout=subprocess.DEVNULL)
        while first.poll() is None and not list((run / "checkpoints").glob("step-*")):
            time.sleep(0.5)
        time.sleep(args.kill)
        first.kill()
        first.wait()
        print(f"killed {args.kill:.0f} s after its first checkpoint; so far: {phases(run)}", flush=True)
    done = json.loads(subprocess.run(train, check=True, stdout=subprocess.PIPE, text=True).stdout)
    facts = ["epochs_ms", "seconds", "test", "loss", "peak_bytes", "resident_bytes", "read_bytes"]
    print(json.dumps({name: done[name] for name in facts} | {"phases": phases(run)}, indent=1))


if __name__ == "__main__":
    main()
