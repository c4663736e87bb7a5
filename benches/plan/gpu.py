#!/usr/bin/env python3
"""What the planner predicts for one GPU, beside what it takes: the GPU is calibrated, then epochs of several shapes are predicted and run.

    python3 benches/plan/gpu.py --build target/release/graphweft [--device cuda] [--kept FILE] [--table]

Everything that is finished is a line of --kept, from which the script goes on and the table is made.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Graph, model, hidden columns, heads, layers, type.
SHAPES = [
    ("rmat:17:16", "gt", 128, 8, 4, "f32"),
    ("rmat:17:16", "gt", 128, 8, 4, "bf16"),
    ("rmat:20:16", "gt", 128, 8, 4, "bf16"),
    ("rmat:18:50", "gt", 64, 4, 3, "f32"),
    ("rmat:16:8", "gt", 256, 8, 2, "f32"),
    ("grid:1000:1000", "gt", 128, 8, 2, "f32"),
    ("rmat:19:16", "gcn", 128, None, 3, "f32"),
    ("rmat:19:16", "sage", 128, None, 3, "bf16"),
    ("rmat:18:16", "gat", 128, 8, 2, "f32"),
    ("rmat:15:16", "gt", 64, 4, 2, "f32"),
]


def call(binary, flags):
    done = subprocess.run([binary, *flags, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(flags)}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def one(binary, device, profile, shape):
    graph, model, hidden, heads, layers, dtype = shape
    keys = [f"model.heads={heads}"] if heads else []
    plan = call(binary, ["plan", "--graph", graph, "--model", model, "--ranks", "1", "--profile", profile, "--device", device, "--features",
                         str(hidden), "--classes", "40", f"model.hidden={hidden}", f"model.layers={layers}", f"compute.dtype={dtype}",
                         "train.dropout=0.1", "train.attention_dropout=0.1", *keys])
    kept = next(c for c in plan["candidates"] if c["remat"] == "none")
    run = call(binary, ["bench", "train", "--graph", graph, "--model", model, "--device", device, "--hidden", str(hidden), "--layers",
                        str(layers), "--dtype", dtype, "--dropout", "0.1", "--runs", "5", *keys])
    return {"shape": shape, "predicted_ms": kept["time_ms"], "ms": run["step_ms"], "predicted_peak": kept["peak_bytes"],
            "peak": run["peak_bytes"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "target/release/graphweft"), help="the program, with the feature cuda")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kept", default=str(ROOT / "target/plan-gpu.jsonl"), help="what is finished")
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    kept = Path(args.kept)
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    if not args.table:
        profile, start = str(Path(tempfile.mkdtemp()) / "gpu.toml"), time.monotonic()
        call(args.build, ["plan", "--calibrate", "-o", profile, "--device", args.device])
        print(f"calibration: {time.monotonic() - start:.1f} s", file=sys.stderr)
        for shape in SHAPES:
            if any(tuple(f["shape"]) == shape for f in found):
                continue
            found.append(one(args.build, args.device, profile, shape))
            with kept.open("a") as file:
                file.write(json.dumps(found[-1]) + "\n")
    print("| graph | model | predicted ms | ms | error % | predicted MiB | MiB | error % |", "|---|---|---|---|---|---|---|---|", sep="\n")
    for f in found:
        graph, model, hidden, heads, layers, dtype = f["shape"]
        time_off, peak_off = f["predicted_ms"] / f["ms"] - 1, f["predicted_peak"] / f["peak"] - 1
        print(f"| {graph} | {model} {layers} × {hidden}{f' in {heads} heads' if heads else ''}, {dtype} | {f['predicted_ms']:.2f} | {f['ms']:.2f} | "
              f"{100 * time_off:+.1f} | {f['predicted_peak'] / 2**20:.0f} | {f['peak'] / 2**20:.0f} | {100 * peak_off:+.1f} |")


if __name__ == "__main__":
    main()
