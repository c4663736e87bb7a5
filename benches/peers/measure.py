"""Runs every measurement in a process of its own, keeps what it reports, and writes the table (called by run.sh)."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import table

HERE, PEERS = Path("benches/peers"), Path("target/peers")
OURS, RESULTS = "target/release/graphweft", PEERS / "results.jsonl"
LIMIT_S = float(os.environ.get("LIMIT_S", 120))
ONLY = re.compile(os.environ.get("ONLY", ""))
THREADS = (1, 2)
SHAPES = ("128:128", "128:256", "256:128")
# Which environment each implementation lives in, per operation over a graph.
IMPLEMENTATIONS = {
    "attention": {"pyg": "torch", "scatter": "torch", "compile": "torch", "csr": "torch", "dgl": "dgl"},
    "spmm": {"csr": "torch", "dgl": "dgl"},
    "layer": {"pyg": "torch", "compile": "torch", "csr": "torch", "dgl": "dgl"},
    "gcn": {"pyg": "torch", "csr": "torch", "dgl": "dgl"},
    "sage": {"pyg": "torch", "csr": "torch", "dgl": "dgl"},
    "gat": {"pyg": "torch", "dgl": "dgl"},
}
# Operations that are an epoch of a whole model: `graphweft bench train` and models.py, on two threads.
MODELS = ("gcn", "sage", "gat")
# What `graphweft bench` is asked for, by the name of the variant.
VARIANTS = {"f32": ["--dtype", "f32"], "bf16": ["--dtype", "bf16"]}
REMAT = {f"{name} remat": [*flags, "--remat", "layer"] for name, flags in VARIANTS.items()}


def has_bench(op):
    """Whether this build has `graphweft bench OP`."""
    return subprocess.run([OURS, "bench", op, "--help"], capture_output=True).returncode == 0


def plan(graphs):
    """Every measurement as (key, command): what is compared stands together, so that it runs under the same load."""
    build = hashlib.sha256(Path(OURS).read_bytes()).hexdigest()[:12]
    verbs = {op: "train" if op in MODELS else op for op in (*IMPLEMENTATIONS, "gemm")}
    known = [op for op, verb in verbs.items() if has_bench(verb)]

    def ours(op, graph, threads, flags):
        if op in known:
            flags = [verbs[op], *flags, *(["--model", op, "--layers", "3"] if op in MODELS else [])]
            for dtype, variant in (VARIANTS | REMAT if op == "layer" else VARIANTS).items():
                key = dict(op=op, graph=graph, threads=threads, impl="ours", dtype=dtype, allocator="-", build=build)
                yield key, [OURS, "bench", *flags, *variant, "--threads", str(threads), "--json"]

    def peer(op, graph, threads, impl, dtype, environment, arguments):
        for allocator in ("default", "tcmalloc") if os.environ.get("TCMALLOC") else ("default",):
            key = dict(op=op, graph=graph, threads=threads, impl=impl, dtype=dtype, allocator=allocator)
            python = str(PEERS / environment / "bin/python")
            script = HERE / ("models.py" if op in MODELS else f"{op}.py")
            yield key, [python, "-W", "ignore", str(script), *arguments, str(threads)]

    for op, implementations in IMPLEMENTATIONS.items():
        if op not in known:
            print(f"note: this build has no `graphweft bench {verbs[op]}`: peers only", file=sys.stderr)
        for graph in graphs:
            folder = str(PEERS / "graphs" / graph)
            for threads in THREADS[1:] if op in MODELS else THREADS:
                yield from ours(op, graph, threads, ["--data", folder])
                for impl, environment in implementations.items():
                    name = f"{op}:{impl}" if op in MODELS else impl
                    yield from peer(op, graph, threads, impl, "f32", environment, [name, folder])
    for shape in SHAPES:
        inner, outer = shape.split(":")
        for threads in THREADS:
            yield from ours("gemm", shape, threads, ["--hidden", inner, "--out", outer])
            for dtype in ("f32", "bf16"):
                yield from peer("gemm", shape, threads, "torch", dtype, "torch", [dtype, shape])


def memory(path, field):
    """A field of a file in /proc, in bytes; 0 for a process that has just ended."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), 0)


def guarded(command, environment):
    """Runs a command to its end, or until it takes too long or most of the memory that was free when it started."""
    limit = 0.8 * memory("/proc/meminfo", "MemAvailable")
    deadline = time.monotonic() + LIMIT_S
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        over = None
        try:
            while not over:
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
                if ended:
                    break
                if time.monotonic() > deadline:
                    over = {"status": "out of time", "limit_s": LIMIT_S}
                elif memory(f"/proc/{process.pid}/status", "VmRSS") > limit:
                    over = {"status": "out of memory", "limit_gib": limit / 2**30}
                time.sleep(0.05)
        except BaseException:  # Ctrl-C ends this process only: the other one has its own session
            over = {}
            raise
        finally:
            if over is not None:
                os.killpg(process.pid, signal.SIGKILL)
                _, status, _ = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if over:
            return over
        if process.returncode:
            lines = err.read().strip().splitlines()
            return {"status": "failed", "error": lines[-1] if lines else f"exit status {process.returncode}"}
        # The whole process is an upper bound of what an operation takes; the peers' scripts leave out their libraries.
        return {"status": "ok", "peak_mib": usage.ru_maxrss / 1024} | json.loads(out.read())


def measured(key, command):
    threads = str(key["threads"])
    environment = os.environ | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "DGLBACKEND": "pytorch",
        "TORCHINDUCTOR_CACHE_DIR": str((PEERS / "inductor").absolute()),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    if key["allocator"] == "tcmalloc":
        environment["LD_PRELOAD"] = os.environ["TCMALLOC"]
    return guarded(command, environment)


def finished(line):
    """Crashes are tried again, and so is what ran out of time under a smaller limit."""
    status = line["status"]
    return status in ("ok", "out of memory") or (status == "out of time" and line["limit_s"] >= LIMIT_S)


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    rows = list(plan(sys.argv[1:]))
    kept = {}
    if RESULTS.exists():
        for line in map(json.loads, RESULTS.read_text().splitlines()):
            kept[json.dumps(line["key"])] = line
    lines = []
    try:
        for number, (key, command) in enumerate(rows, 1):
            line = kept.get(json.dumps(key))
            what = " ".join(str(key[k]) for k in ("op", "graph", "impl", "dtype", "allocator"))
            what += f", {key['threads']} threads"
            if ONLY.search(what) and (line is None or not finished(line)):
                print(f"[{number}/{len(rows)}] {what}", end="", file=sys.stderr, flush=True)
                line = {"key": key} | measured(key, command)
                print(f": {line['status']} {line.get('error', '')}", file=sys.stderr)
                with RESULTS.open("a") as f:
                    f.write(json.dumps(line) + "\n")
            if line:
                lines.append(line)
    except KeyboardInterrupt:
        print("\nstopped; what is finished is kept", file=sys.stderr)
    text = table.document(lines)
    # What is kept of earlier runs is on one machine only: elsewhere a part would take the place of the whole.
    if len(lines) == len(rows):
        (HERE / "RESULTS.md").write_text(text)
    else:
        print(f"{len(lines)} of {len(rows)} rows: RESULTS.md stays as it is", file=sys.stderr)
    print(text, end="")


if __name__ == "__main__":
    main()
