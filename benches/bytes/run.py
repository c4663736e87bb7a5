#!/usr/bin/env python3
"""Whether two programs give the same bytes, and run at the same speed. See README.md."""

import argparse
import hashlib
import json
import os
import shlex
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import cases
import data

KEPT = Path(__file__).parent / "before.json"
# What decides in which order numbers are added: vector width, and how matrices are cut to fit caches.
FLAGS = ["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16"]
# Of the JSON that a verb prints: what is computed, and what it takes in bytes. Everything else is time or a name.
PRINTED = {
    "train": ["loss", "test", "valid", "parameters", "peak_bytes", "bytes_sent_per_epoch", "strategy"],
    "eval": ["loss", "test", "valid", "train"],
    "plan": ["candidates"],
}
PLANNED = ["strategy", "partition", "remat", "feasible", "peak_bytes", "bytes_sent", "time_ms"]
ARRAYS = {".npy", ".csv"}
SPEED = {
    "attention": ("bench attention --graph rmat:17:16+loops", ["forward_ms", "backward_ms"]),
    "attention, bf16": ("bench attention --graph rmat:17:16+loops --dtype bf16", ["forward_ms", "backward_ms"]),
    "train": ("bench train --graph rmat:15:16", ["step_ms"]),
    "train, gcn": ("bench train --graph rmat:15:16 --model gcn", ["step_ms"]),
}


def machine():
    """The instruction sets and caches of this machine, as the key of kept results."""
    text = Path("/proc/cpuinfo").read_text()
    flags = next((line.split(":")[1].split() for line in text.splitlines() if line.startswith("flags")), [])
    sizes = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    caches = [size.read_text().strip() for size in sizes]
    return " ".join([flag for flag in FLAGS if flag in flags] + ["caches", *caches])


# Verbs that compute, and where they do so if --device says.
ON_DEVICE = {"train", "eval", "predict", "bench"}
device = []


def arguments_of(command, program):
    """The one place for options that two versions of the program spell in different ways: there are none yet."""
    where = device if command.split()[0] in ON_DEVICE else []
    return [str(program), *shlex.split(command), *where, "-q", "--json", "--threads", "2"]


def call(program, command, folder):
    environment = {**os.environ, "GRAPHWEFT_CACHE": str(folder / "cache")}
    environment = {key: value for key, value in environment.items() if not key.startswith(("OMPI_", "SLURM_"))}
    done = subprocess.run(arguments_of(command, program), cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return None, f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines else {}, None


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


def tensors(path):
    """The payload of every tensor of a safetensors file, by name, with type and shape."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, payload = json.loads(content[8 : 8 + length]), content[8 + length :]
    for name, of in header.items():
        if name != "__metadata__":
            begin, end = of["data_offsets"]
            yield name, digest(f"{of['dtype']} {of['shape']} ".encode() + payload[begin:end])


def epochs(path):
    """The values of every key of metrics.jsonl, over all epochs."""
    columns = {}
    for line in path.read_text().splitlines():
        for key, value in json.loads(line).items():
            columns.setdefault(key, []).append(value)
    return {key: digest(json.dumps(values).encode()) for key, values in columns.items()}


def results_of(run):
    """Hashes of everything that a run leaves and that must not depend on when or by which version it was made."""
    found = {}
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = str(path.relative_to(run))
        if path.suffix == ".safetensors":
            found |= {f"{name}: {tensor}": value for tensor, value in tensors(path)}
        elif path.name == "metrics.jsonl":
            found |= {f"{name}: {key}": value for key, value in epochs(path).items()}
        elif path.name == "result.json":
            content = json.loads(path.read_text())
            found |= {f"{name}: {key}": digest(json.dumps(content[key]).encode()) for key in ["best"] if key in content}
        elif path.suffix in ARRAYS:
            found[name] = digest(path.read_bytes())
    return found


def results(program, case, folder):
    name, commands = case
    run = folder / "run"
    found = {}
    for number, command in enumerate(commands):
        printed, error = call(program, command.format(run=run.name), folder)
        if error:
            return {"error": error}
        found |= {f"printed {number}: {key}": value for key, value in said(command, printed)}
    found |= results_of(run)
    shutil.rmtree(run, ignore_errors=True)
    return found


def said(command, printed):
    """Hashes of what a verb printed."""
    for key in PRINTED.get(command.split()[0], []):
        value = printed.get(key)
        if key == "candidates":
            value = [[one[field] for field in PLANNED] for one in value]
        yield key, digest(json.dumps(value).encode())


def grouped(found):
    """One hash for each file, and one for what is printed: few enough to keep."""
    groups = {}
    for name, value in sorted(found.items()):
        groups.setdefault("printed" if name.startswith("printed") else name.split(":")[0], []).append(f"{name}={value}")
    return {name: digest("\n".join(values).encode()) for name, values in groups.items()}


def differences(before, after):
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def chosen_cases(only):
    return [case for case in cases.CASES if only in case[0]]


def compare(before, after, only):
    """Runs every case with both (or takes the kept results for `before`); the number of cases that differ."""
    chosen, wrong, count = chosen_cases(only), 0, 0
    kept = json.loads(KEPT.read_text())["results"] if before is None else None
    print(f"| {'run':45} | results | same |\n|{'-' * 47}|---------|------|")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        data.make(folder)
        for case in chosen:
            old = kept.get(case[0], {}) if kept is not None else results(before, case, folder)
            new = results(after, case, folder)
            new = grouped(new) if kept is not None and "error" not in new else new
            differ = differences(old, new)
            count += len(new)
            failed = "error" in old or "error" in new
            wrong += bool(differ) or failed
            print(f"| {case[0]:45} | {len(new):7} | {'NO' if differ or failed else 'yes':4} |", flush=True)
            for key in differ[:8]:
                print(f"    {key}: {old.get(key, 'missing')} before, {new.get(key, 'missing')} after")
            if failed and not differ:
                print(f"    both fail: {new['error']}")
    print(f"\n{len(chosen)} runs, {count} results: {wrong} runs differ")
    return wrong


def keep(program, only):
    """Writes the hashes of all results of `program`."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        data.make(folder)
        found = {case[0]: results(program, case, folder) for case in chosen_cases(only)}
    bad = [name for name, of in found.items() if "error" in of]
    for name in bad:
        print(f"{name}: {found[name]['error']}", file=sys.stderr)
    kept = {name: grouped(of) for name, of in found.items()}
    text = json.dumps({"machine": machine(), "results": kept}, indent=0, sort_keys=True)
    KEPT.write_text(text + "\n")
    return len(bad)


def speed(before, after, rounds):
    """Times both in turn, so that whatever else the machine does meets both."""
    print("| | before, ms | after, ms | after / before |\n|---|---|---|---|")
    folder = Path(tempfile.gettempdir())
    for name, (command, keys) in SPEED.items():
        taken = {before: [], after: []}
        for _ in range(rounds):
            for program in (before, after):
                printed, error = call(program, f"{command} --runs 5", folder)
                if error:
                    sys.exit(f"{program} {command}: {error}")
                taken[program].append(printed)
        for key in keys:
            old, new = (statistics.median(one[key] for one in taken[program]) for program in (before, after))
            print(f"| {name}, {key.removesuffix('_ms')} | {old:.1f} | {new:.1f} | {new / old:.3f} |", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--before", type=Path, help="the older program; without it, before.json stands for it")
    options.add_argument("--after", type=Path, help="the newer program")
    options.add_argument("--only", default="", metavar="TEXT", help="only the runs whose name has this in it")
    options.add_argument("--keep", type=Path, metavar="PROGRAM", help="write before.json from this program")
    options.add_argument("--speed", type=int, metavar="ROUNDS", help="compare times instead of bytes")
    options.add_argument("--device", metavar="NAME", help="compute there, as on cuda; needs --before PROGRAM")
    chosen = options.parse_args()
    if chosen.device:
        device[:] = ["--device", chosen.device]
    program = {name: path and path.resolve() for name, path in vars(chosen).items() if name in ("before", "after", "keep")}
    if program["keep"]:
        sys.exit(1 if keep(program["keep"], chosen.only) else 0)
    if not program["after"] or ((chosen.speed or chosen.device) and not program["before"]):
        options.error("--after PROGRAM is needed, and --before PROGRAM with --speed or --device")
    if chosen.speed:
        return speed(program["before"], program["after"], chosen.speed)
    if not program["before"] and json.loads(KEPT.read_text())["machine"] != machine():
        print(f"skipped: before.json is of another kind of machine than this ({machine()}); give --before PROGRAM")
        return None
    began = time.monotonic()
    wrong = compare(program["before"], program["after"], chosen.only)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
