#!/usr/bin/env python3
"""Where the time of a small batch's step goes: steps.py --program GRAPHWEFT --data DIR [--device cuda] [--batches 32 256] [--set KEY=VALUE …]

Trains GIN as speed.py does and reads the trace of the run: how long loading (a batch is put together beside the step before it; what
is left is waiting for it and copying it to the device), forward, backward and update took, or the step where the device has recorded
it. Medians over the steps of the last epoch, in microseconds of the host, which waits for the device at the end of each; beside them
the seconds of every epoch.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from speed import SETTINGS

EPOCHS = 2
PHASES = ["load", "forward", "backward", "update", "step"]


def phases(args, batch):
    """Seconds of the epochs, and the median duration of each phase in the last."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings = [s for s in SETTINGS if not s.startswith(("train.epochs", "train.evaluate_every"))]
        settings += [f"train.epochs={EPOCHS}", f"train.evaluate_every={EPOCHS}", f"train.batch={batch}", *args.set]
        command = [args.program, "train", "--data", args.data, "--model", "gin", *settings, "--threads", str(args.threads),
                   "--device", args.device, "-o", run]
        subprocess.run(command, check=True, capture_output=True)
        seconds = [json.loads(line)["learn_ms"] / 1e3 for line in (run / "times.jsonl").read_text().splitlines()]
        events = json.loads((run / "trace.json").read_text())
    last = max(event["args"]["epoch"] for event in events if event.get("cat") == "train")
    of = lambda name: [e["dur"] for e in events if e.get("cat") == "train" and e["name"] == name and e["args"]["epoch"] == last]
    return seconds, {name: (median(of(name)), len(of(name))) for name in PHASES if of(name)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="graphweft")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, nargs="*", default=[32, 256])
    parser.add_argument("--set", nargs="*", default=[], help="more settings of the run")
    args = parser.parse_args()
    for batch in args.batches:
        seconds, found = phases(args, batch)
        print(f"{batch} graphs in a batch: s per epoch", ", ".join(f"{s:.2f}" for s in seconds))
        for name, (time, count) in found.items():
            print(f"  {name:9}{time:9.0f} µs, {count} times")


if __name__ == "__main__":
    main()
