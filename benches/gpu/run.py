"""Ours and the peers on one GPU, in one run: a table with ratios, to stdout and to RESULTS.md beside this file.

    python benches/gpu/run.py [--build target/release/graphweft] [--only REGEX] [--peers compile pyg] [--limit SECONDS] [--output FILE]

Makes the graphs, then times sparse attention (8 heads x 16, forward and backward) and a training step of a 4-layer graph
transformer (hidden 128, FFN x 2, dropout 0.1), each in a process of its own. Needs torch with CUDA and PyG in this Python.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# What, type, graph; then how ours keeps activations.
CASES = [
    ("attention", "bf16", "rmat:20:16+loops", []),
    ("attention", "bf16", "rmat:20:50+loops", []),
    ("attention", "f32", "rmat:20:16+loops", []),
    ("attention", "f32", "rmat:20:50+loops", []),
    ("step", "bf16", "rmat:20:16", ["none", "attention", "both"]),
    ("step", "bf16", "rmat:19:50", ["none"]),
    ("step", "f32", "rmat:20:16", ["none"]),
]


def line(command, limit):
    """The last line of JSON that a command prints; or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"over {limit} s"}
    lines = [x for x in done.stdout.splitlines() if x.startswith("{")]
    if lines:
        found = json.loads(lines[-1])
        return {"failed": "out of memory"} if found.get("out_of_memory") else found
    sys.stderr.write(done.stderr[-2000:])
    return {"failed": f"exit {done.returncode}"}


def ours(build, what, dtype, folder, remat, limit):
    common = ["--data", folder, "--hidden", "128", "--dtype", dtype, "--device", "cuda", "--json"]
    if what == "attention":
        found = line([build, "bench", "attention", "--heads", "8", *common], limit)
        return found if "failed" in found else {"ms": found["forward_ms"] + found["backward_ms"], "bytes": found["peak_bytes"]}
    found = line([build, "bench", "train", "--remat", remat, *common, "model.heads=8"], limit)
    return found if "failed" in found else {"ms": found["step_ms"], "bytes": found["peak_bytes"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="target/release/graphweft")
    parser.add_argument("--only", default="", help="cases whose name matches this regular expression")
    parser.add_argument("--peers", nargs="*", default=["compile", "pyg"], help="which of the peers")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one process")
    parser.add_argument("--output", default=HERE / "RESULTS.md", type=Path)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as made:
        for what, dtype, graph, remats in CASES:
            if not re.search(args.only, f"{what} {dtype} {graph}"):
                continue
            folder = f"{made}/{graph}"
            if not Path(folder).exists():
                subprocess.run([args.build, "generate", graph, "-o", folder], check=True, capture_output=True)
            mine = {remat: ours(args.build, what, dtype, folder, remat, args.limit) for remat in remats or ["none"]}
            peers = {}
            for name in ("compile", "pyg"):
                command = [sys.executable, HERE / "peer.py", what, name, dtype, folder]
                peers[name] = line(command, args.limit) if name in args.peers else {"failed": "not run"}
            for remat, found in mine.items():
                name = f"{what} {dtype} {graph}" + (f", {remat} computed again" if remat != "none" else "")
                rows.append([name, *cells(found), *beside(peers["compile"], found), *beside(peers["pyg"], found)])
                print("| " + " | ".join(rows[-1]) + " |", flush=True)
    head = ["", "ours ms", "GiB", "torch.compile ms", "GiB", "ratio", "PyG eager ms", "GiB", "ratio"]
    table = [head, ["---"] * len(head), *rows]
    text = "# One GPU\n\n`python benches/gpu/run.py`: medians, peers in the same run; GiB all in all.\n\n"
    args.output.write_text(text + "".join("| " + " | ".join(row) + " |\n" for row in table))


def cells(found):
    if "failed" in found:
        return [found["failed"], ""]
    return [f"{found['ms']:.2f}", f"{found['bytes'] / 2**30:.2f}"]


def beside(found, mine):
    whole = "failed" not in found and "failed" not in mine
    return [*cells(found), f"{found['ms'] / mine['ms']:.1f}x" if whole else ""]


if __name__ == "__main__":
    main()
