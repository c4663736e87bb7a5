#!/usr/bin/env python3
"""A graph on disk, trained on and scored with little memory: large.py DIR [--scale S] [--memory 8GiB] [--model sage|gt] [--epochs E] [--build BINARY]

Makes rmat:S:16 in DIR if it is not there, with 32 features per node that hint at one of 8 classes, and trains 3 layers with
--strategy isolated. A run that is there goes on where it was: kill it and start it again.
"""

import argparse
import subprocess
from pathlib import Path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", type=Path)
    parser.add_argument("--scale", type=int, default=26)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--build", default="target/release/graphweft")
    args = parser.parse_args()
    data, run = args.dir / f"rmat-{args.scale}", args.dir / f"run-{args.scale}-{args.model}"
    if not data.exists():
        subprocess.run([args.build, "generate", f"rmat:{args.scale}:16:f=32:c=8+loops", "-o", str(data), "--json"], check=True)
    heads = ["model.heads=2"] if args.model == "gt" else []
    subprocess.run(
        [args.build, "train", "--data", str(data), "--model", args.model, "model.layers=3", "model.hidden=32", *heads, "--strategy",
         "isolated", "--memory", args.memory, "parallel.partition=contiguous", f"train.epochs={args.epochs}", "train.lr=0.005",
         f"train.evaluate_every={args.epochs}", "run.checkpoint_every=1", "--resume", "-o", str(run), "--json"],
        check=True,
    )


if __name__ == "__main__":
    main()
