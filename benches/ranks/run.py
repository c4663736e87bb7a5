#!/usr/bin/env python3
"""Epochs over MPI on one machine, beside DGL in one process and SAR's figures: run.py [--build BINARY] [--runs K]

GraphSAGE and GAT (3 layers) and a graph transformer (4 layers), hidden 128, on rmat:17:16+loops, with 2 and 4 workers of one thread
each. What SAR's GAT ends with is not known: DGL takes 2.68 s for that model on that machine, and here 4.0 s where the last layer is the
mean of 8 heads of 40 columns, 2.3 s where it is one head. So ours is three layers of 128 columns and a linear one, which is not lighter
than theirs: 3.2 s for DGL. DGL runs with two threads and tcmalloc in the environment that benches/peers/run.sh makes (run that first). SAR's figures were
measured elsewhere on a machine of the same kind (two cores), with METIS parts and gloo: epoch seconds and the largest worker's peak in
MiB, of its fastest and its leanest mode. Memory of ours is the resident peak of the largest process, libraries and graph included.
The table goes to stdout and to RESULTS.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE, PEERS = Path(__file__).parent, Path("target/peers")
FOLDER = Path("target/ranks/rmat:17:16+loops")
# Name → layers, other settings, the peer's script and what it calls the model.
MODELS = {
    "sage": (3, [], ["models.py", "sage:dgl"]),
    "gat": (3, ["model.stack=tuned"], ["models.py", "gat+linear:dgl"]),
    "gt": (4, [], ["layer.py", "dgl"]),
}
# workers → model → (seconds of the fastest mode, MiB of the leanest mode)
SAR = {2: {"sage": (1.27, 640), "gat": (3.70, 770), "gt": (14.6, 2552)}, 4: {"sage": (0.93, 421), "gat": (3.20, 517), "gt": (11.5, 1628)}}
TIME = "import os,resource,sys; p=os.fork() or os.execv(sys.argv[2],sys.argv[2:]); s=os.waitstatus_to_exitcode(os.wait()[1]); " \
    "open(sys.argv[1]+'/'+str(os.getpid()),'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)); sys.exit(s)"


def ours(build, model, workers, strategy, remat, runs):
    """Seconds of an epoch, and MiB of the largest worker."""
    with tempfile.TemporaryDirectory() as peaks:
        command = ["mpirun", "-n", str(workers), "--oversubscribe", "--bind-to", "none"]
        if os.getuid() == 0:
            command.append("--allow-run-as-root")
        layers, settings, _ = MODELS[model]
        command += [sys.executable, "-c", TIME, peaks, build, "bench", "train", "--data", str(FOLDER), "--model", model,
                    "--layers", str(layers), *settings, "--comm", "mpi", "--strategy", strategy, "--remat", remat,
                    "--threads", str(max(1, 2 // workers)), "--runs", str(runs), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        peak = max(int(Path(peaks, name).read_text()) for name in os.listdir(peaks))
        return json.loads(lines[-1])["step_ms"] / 1e3, peak / 1024


def dgl(model):
    """The same for DGL in one process with two threads."""
    python = PEERS / "dgl/bin/python"
    if not (PEERS / "dgl/ready").exists():
        sys.exit("target/peers/dgl is not there; remedy: run benches/peers/run.sh first, with ONLY=nothing if only its environments are wanted")
    libraries = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, env=os.environ | {"PATH": os.environ["PATH"] + ":/sbin"}).stdout
    tcmalloc = next((line.split()[-1] for line in libraries.splitlines() if "libtcmalloc_minimal.so.4 " in line), "")
    script, name = MODELS[model][2]
    environment = os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "DGLBACKEND": "pytorch", "LD_PRELOAD": tcmalloc}
    done = subprocess.run([python, "-W", "ignore", f"benches/peers/{script}", name, str(FOLDER), "2"], capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    result = json.loads(done.stdout)
    return result["epoch_ms"] / 1e3, result["peak_mib"]


HEAD = """# Workers over MPI beside DGL and SAR

Two workers are 2.8 to 3.7 times as fast as SAR's fastest mode, with 0.47 to 0.64 of the memory of its leanest one, and four
are 1.8 to 2.7 times as fast. With layers computed again (`layer`) memory falls to 0.22 to 0.46. One DGL process with two
threads takes longer than two workers of ours with one thread each.

"""
FOOT = """
## How these figures came about

Made by `python3 benches/ranks/run.py`; what is compared is told at its top.
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="target/release/graphweft")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    if not FOLDER.exists():
        FOLDER.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([args.build, "generate", "rmat:17:16+loops", "-o", FOLDER], check=True)
    for workers in SAR:
        if not (FOLDER / f"part/metis-{workers}").exists():
            subprocess.run([args.build, "partition", "--data", FOLDER, "--method", "metis", "--balance", "both", "--parts", str(workers)], check=True)
    lines = ["| model | workers | strategy | re-materialised | s per epoch | peak MiB | SAR, fastest s | SAR, leanest MiB | faster | of its memory |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for model in MODELS:
        seconds, peak = dgl(model)
        print(f"{model} DGL {seconds:.2f} s", file=sys.stderr, flush=True)
        lines.append(f"| {model} | 1 × 2 threads | DGL | | {seconds:.2f} | {peak:.0f} | | | | |")
        for workers, figures in SAR.items():
            time, memory = figures[model]
            for strategy, remat in [("ring", "none"), ("ring", "layer"), ("halo", "none")]:
                seconds, peak = ours(args.build, model, workers, strategy, remat, args.runs)
                lines.append(f"| {model} | {workers} | {strategy} | {remat} | {seconds:.3f} | {peak:.0f} | {time} | {memory} | {time / seconds:.1f}× | {peak / memory:.2f} |")
                print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "RESULTS.md").write_text(HEAD + text + FOOT)


main()
