#!/usr/bin/env python3
"""Real NCCL ranks on one GPU, a process each: nccl.py [--build BINARY] [--ranks 2 4 8] [--dtypes f64 f32] [--threads]

With --threads they are threads of one process, which needs NCCL 2.32 or as many GPUs as ranks. Each exact strategy learns what one
rank learns (losses to 1e-9 in f64, 1e-4 in f32), with the bits and the metered bytes of the same ranks as threads that copy, whose bytes
the tests compare with the formulas. Then, of processes, one is killed: the others must end with exit status 5 and name it. A line each;
exit status 1 if one is wrong.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMON = ["--graph", "sbm:400:3:6:f=8", "--model", "gt", "model.hidden=16", "model.layers=2", "model.heads=4", "train.dropout=0.5",
          "train.lr=0.01", "data.self_loops=add", "--device", "cuda", "--json"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Runs:
    def __init__(self, build, folder):
        self.build, self.folder, self.count = build, folder, 0

    def command(self, arguments):
        self.count += 1
        return [self.build, "train", *COMMON, *arguments, "-o", f"{self.folder}/{self.count}"]

    def alone(self, arguments):
        """What one process reports, with its ranks, if several, as threads."""
        done = subprocess.run(self.command(arguments), capture_output=True, text=True, timeout=100)
        if done.returncode:
            sys.exit(f"{arguments}: {done.stderr}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def threads(self, ranks, arguments):
        """One process with a thread per rank. NCCL takes several on one GPU if it is told so."""
        command = self.command([*arguments, "--comm", "nccl", "--ranks", str(ranks)])
        launcher = {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}
        plain = {name: value for name, value in os.environ.items() if name not in launcher}
        return [subprocess.Popen(command, env=plain | {"NCCL_MULTI_RANK_GPU_ENABLE": "1"},
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]

    def processes(self, ranks, arguments):
        """One process per rank. NCCL takes ranks of one GPU only if it believes them to be on different machines."""
        command, port = self.command([*arguments, "--comm", "nccl", "--threads", "2"]), free_port()
        network = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "WORLD_SIZE": str(ranks), "MASTER_PORT": str(port)}
        return [subprocess.Popen(command, env=os.environ | network | {"RANK": str(rank), "NCCL_HOSTID": f"host{rank}"},
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(ranks)]


def ended(processes, limit):
    """Exit status, output and errors of each; what is not over by then is killed."""
    end, results = time.monotonic() + limit, []
    for process in processes:
        try:
            texts = process.communicate(timeout=max(1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            texts = process.communicate()
        results.append((process.returncode, *texts))
    return results


def learns(runs, start, dtype, ranks, strategy, one):
    settings = ["train.epochs=8", f"compute.dtype={dtype}", "--strategy", strategy]
    results = ended(start(ranks, settings), 90)
    if any(status for status, _, _ in results):
        print(f"BAD {dtype} {ranks} {strategy}: {[(status, errors[-400:]) for status, _, errors in results]}", flush=True)
        return False
    # NCCL may have something to say too.
    nccl = json.loads([line for line in results[0][1].splitlines() if line.startswith("{")][-1])
    threads = runs.alone([*settings, "--ranks", str(ranks)])
    apart = max(abs(a - b) / max(1, abs(a)) for a, b in zip(one["loss"], nccl["loss"], strict=True))
    bits, sent = (nccl[what] == threads[what] for what in ("loss", "bytes_sent_per_epoch"))
    good = apart < (1e-9 if dtype == "f64" else 1e-4) and bits and sent
    print(f"{'ok ' if good else 'BAD'} {dtype} {ranks} {strategy:10} apart {apart:.1e}, bits as threads {bits}, bytes as threads {sent}: "
          f"{sum(nccl['bytes_sent_per_epoch'])}", flush=True)
    return good


def tells_of_the_lost(runs, ranks, victim):
    processes = runs.processes(ranks, ["train.epochs=1000000", "--strategy", "halo", "run.checkpoint_every=100"])
    time.sleep(9)
    processes[victim].send_signal(signal.SIGKILL)
    start = time.monotonic()
    others = [result for rank, result in enumerate(ended(processes, 40)) if rank != victim]
    good = all(status == 5 and f"rank {victim} was lost" in errors for status, _, errors in others)
    print(f"{'ok ' if good else 'BAD'} rank {victim} of {ranks} killed: {[status for status, _, _ in others]} after {time.monotonic() - start:.1f} s", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default="target/release/graphweft")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--dtypes", nargs="*", default=["f64", "f32"])
    parser.add_argument("--threads", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs, good = Runs(args.build.absolute(), folder), []
        start = runs.threads if args.threads else runs.processes
        for dtype in args.dtypes:
            one = runs.alone(["train.epochs=8", f"compute.dtype={dtype}"])
            for ranks in args.ranks:
                grid = [] if ranks == 2 else [f"grid:2x{ranks // 2}"]
                good += [learns(runs, start, dtype, ranks, strategy, one) for strategy in ["gather", "halo", "heads", "ring", *grid]]
        if not args.threads:
            good += [tells_of_the_lost(runs, ranks, ranks // 2) for ranks in args.ranks]
    sys.exit(0 if all(good) else 1)


main()
