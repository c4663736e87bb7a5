#!/usr/bin/env python3
"""A graph on disk, trained on and scored with little memory, killed on the way: what it takes on this machine.

    large.py DIR [--scale S] [--memory 8GiB] [--model sage|gt|both] [--epochs E] [--halo H] [--kill SECONDS] [--check]
             [--build BINARY] [--table FILE]

Makes rmat:S:16 in DIR if it is not there, with 32 features per node that hint at one of 8 classes, and trains 3 layers with
--strategy isolated; scores are exact, of all nodes, after the last epoch. In its second epoch the run is ended by SIGKILL (after so
many seconds; unless told, a quarter of the first epoch) and begun again from the checkpoint of the first. The binary is copied to
DIR first: both parts are of the same one. With --check the same is trained once more without a kill, and the models compared byte
by byte. Time, memory and disk are read from /proc while it runs, together with what other processes took of the cores meanwhile.
What was measured is kept in DIR; a run that is there goes on where it was. --table puts it into a markdown file, in place of what
that says of the same scale.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

# Dense products of GT are dear: it is narrower.
MODELS = {"sage": ["model.hidden=32"], "gt": ["model.hidden=16", "model.heads=1"]}
NAMES = {"sage": "GraphSAGE, 32 columns", "gt": "GT, 16 columns, one head"}
LAYERS, GIB, SAMPLES_PER_SECOND = 3, 1 << 30, 4


def sample(pid):
    """What a process has used so far: processor seconds, resident peak, bytes from and to the disk; and what all have."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    everyone = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    tick = os.sysconf("SC_CLK_TCK")
    return {"at": time.time(), "cpu": (int(stat[11]) + int(stat[12])) / tick, "system": int(stat[12]) / tick,
            "resident": int(status.split("VmHWM:")[1].split()[0]) << 10, "read": int(io["read_bytes"]),
            "written": int(io["write_bytes"]), "all": (sum(everyone) - everyone[3] - everyone[4]) / tick}


def watch(command, out, kill=None):
    """Runs a command to its end, or until `kill`, which is asked with every sample, says so. Gives the samples."""
    samples, killed = [], False
    with out.open("w") as stdout, out.with_suffix(".err").open("a") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        try:
            while process.poll() is None:
                try:
                    samples.append(sample(process.pid))
                except (OSError, IndexError):  # It has just ended.
                    break
                if kill and kill(samples):
                    process.kill()
                    killed = True
                    break
                time.sleep(1 / SAMPLES_PER_SECOND)
        except BaseException:
            process.kill()
            raise
        status = process.wait()
    if not killed and status:
        raise SystemExit(f"exit status {status}: see {out.with_suffix('.err')}")
    return samples, killed


def between(samples, start, end):
    """What was used from one moment to another."""
    nearest = lambda moment: min(samples, key=lambda s: abs(s["at"] - moment))
    a, b = nearest(start), nearest(end)
    used = {name: b[name] - a[name] for name in ["cpu", "system", "read", "written"]}
    others = (b["all"] - a["all"] - used["cpu"]) / max(end - start, 1e-9)
    return {"seconds": end - start, **used, "resident": b["resident"], "others": max(others, 0.0)}


def events(run, since):
    """Phases in the trace of a run that began after a moment: name, epoch, start, end."""
    trace = run / "trace.json"
    for e in json.loads(trace.read_text()) if trace.exists() else []:
        if e.get("ph") == "X" and e["ts"] / 1e6 >= since:
            yield e["name"], e["args"]["epoch"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6


def summary(run, samples, killed):
    """What one process did: whole epochs, the exact scores, and all of it."""
    steps, scored = {}, None
    for name, epoch, start, end in events(run, samples[0]["at"]):
        if name == "evaluate":
            scored = between(samples, start, end)
        elif name != "checkpoint":
            steps.setdefault(epoch, []).append((name, start, end))
    epochs = []
    for epoch, parts in sorted(steps.items()):
        phases = {}
        for name, start, end in parts:
            phases[name] = phases.get(name, 0.0) + end - start
        whole = between(samples, min(p[1] for p in parts), max(p[2] for p in parts))
        epochs.append({"epoch": epoch, **whole, "phases": phases, "steps": sum(p[0] == "forward" for p in parts)})
    first = min((start for parts in steps.values() for _, start, _ in parts), default=samples[-1]["at"])
    opening = between(samples, samples[0]["at"], first)
    return {"killed": killed, "opening": opening, "epochs": epochs, "scored": scored,
            "whole": between(samples, samples[0]["at"], samples[-1]["at"])}


def train(args, build, model, run, may_kill):
    """Trains until it is over; a list of what each process did."""
    kept = run.with_suffix(".jsonl")
    before = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    if any(part.get("result") for part in before):
        return before
    command = [str(build), "train", "--data", str(args.dir / f"rmat-{args.scale}"), "--model", model, f"model.layers={LAYERS}",
               *MODELS[model], "--strategy", "isolated", "--memory", args.memory, f"isolated.halo={args.halo}",
               "parallel.partition=contiguous", "compute.dtype=bf16", f"train.epochs={args.epochs}", "train.lr=0.005",
               f"train.evaluate_every={args.epochs}", "run.checkpoint_every=1", "--resume", "-o", str(run), "--device", "cpu", "--json"]
    seen = []

    def in_second_epoch(samples):
        now, start = samples[-1]["at"], samples[0]["at"]
        if not seen and list((run / "checkpoints").glob("step-*/state.json")):
            seen.append(now)
        return seen and now - seen[0] >= (args.kill if args.kill is not None else (seen[0] - start) / 4)

    while True:
        was_killed = any(part["killed"] for part in before)
        out = run.with_suffix(".out")
        samples, killed = watch(command, out, in_second_epoch if may_kill and not was_killed else None)
        part = summary(run, samples, killed)
        if killed:
            part["into"] = samples[-1]["at"] - seen[0]
        else:
            part["result"] = json.loads(out.read_text())
        before.append(part)
        with kept.open("a") as file:
            file.write(json.dumps(part) + "\n")
        print(json.dumps({**part, "model": model, "result": None}), flush=True)
        if not killed:
            return before


def generate(args, build):
    """Makes the graph if it is not there. Gives its description, and what making it took if that was seen."""
    data, kept = args.dir / f"rmat-{args.scale}", args.dir / f"rmat-{args.scale}.json"
    if not data.exists():
        command = [str(build), "generate", f"rmat:{args.scale}:16:f=32:c=8+loops", "-o", str(data), "--json"]
        samples, _ = watch(command, kept.with_suffix(".out"))
        kept.write_text(json.dumps(between(samples, samples[0]["at"], samples[-1]["at"])))
    return tomllib.loads((data / "meta.toml").read_text()) | {
        "bytes": sum(f.stat().st_size for f in data.rglob("*") if f.is_file()),
        "took": json.loads(kept.read_text()) if kept.exists() else None,
    }


def table(made, args, runs, same):
    """The figures of one scale as markdown."""
    gb, gib = lambda x: f"{x / 1e9:.1f} GB", lambda x: f"{x / GIB:.2f} GiB"
    edges, rows = made["num_edges"], {}
    busy = lambda part: f"{part['seconds']:.0f} s ({part['cpu']:.0f} s of processor, {part['system']:.0f} s of them in the system)"

    def row(name, model, text):
        rows.setdefault(name, {})[model] = text

    for model, parts in runs.items():
        result, epochs = parts[-1].get("result"), [epoch for part in parts for epoch in part["epochs"]]
        row("model", model, f"{NAMES[model]}, {LAYERS} layers, bf16")
        for e in epochs:
            name, p = f"epoch {e['epoch']}", e["phases"]
            row(name, model, busy(e))
            row(f"{name}: stored edges per second", model, f"{edges / e['seconds'] / 1e6:.2f} M, in {e['steps']} pieces")
            row(f"{name}: read from the disk", model, gb(e["read"]))
            row(f"{name}: waiting for pieces, forward, backward", model,
                ", ".join(f"{p.get(n, 0.0):.0f} s" for n in ["load", "forward", "backward"]))
        for part, then in zip(parts, parts[1:]):
            last = part["epochs"][-1]["epoch"]
            row("killed", model, f"{part['into']:.0f} s into epoch {last + 1}, by SIGKILL; the next process began with the checkpoint of "
                f"epoch {last}, after {then['opening']['seconds']:.0f} s")
        if result:
            scored = parts[-1]["scored"]
            row("exact scores of all nodes", model, busy(scored))
            row("scores: stored edges × layers per second", model, f"{LAYERS * edges / scored['seconds'] / 1e6:.2f} M")
            row("scores: read from the disk, written to it", model, f"{gb(scored['read'])}, {gb(scored['written'])}")
            row("resident at the peak: training, to the end", model,
                f"{gib(max(e['resident'] for e in epochs))}, {gib(max(p['whole']['resident'] for p in parts))}")
            row("accounted at the peak", model, gib(result["peak_bytes"][0]))
            row("loss of each epoch", model, ", ".join(f"{x:.4f}" for x in result["loss"]))
            row("test, valid", model, f"{result['test']:.2f}, {result['valid']:.2f}")
            row("both processes, with opening and writing predictions", model, f"{sum(p['whole']['seconds'] for p in parts):.0f} s, "
                f"{gb(sum(p['whole']['read'] for p in parts))} read")
            row("cores that others took meanwhile", model, " and ".join(f"{p['whole']['others']:.2f}" for p in parts))
        if model in same:
            row("beside a run without a kill", model, "the same model, byte for byte" if same[model] else "**another model**")
    took = made["took"]
    made_in = f";\nmade in {busy(took)}, {gib(took['resident'])} resident at the peak" if took else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    flags = "".join([f" --scale {args.scale} --memory {args.memory}" if args.scale != 26 else "", " --check" if args.check else "",
                     f" --kill {args.kill:g}" if args.kill is not None else ""])
    text = [f"## rmat:{args.scale}", "", f"`large.py DIR{flags}`, on {len(os.sched_getaffinity(0))} cores and {memory:.0f} GiB.",
            f"`{made['name']}`: {made['num_nodes']:,} nodes, {edges:,} stored edges, 32 features, {gb(made['bytes'])} on disk{made_in}.",
            f"Trained with `--memory {args.memory} isolated.halo={args.halo}`.", "",
            "| | " + " | ".join(runs) + " |", "|---|" + "---|" * len(runs)]
    text += [f"| {name} | " + " | ".join(of.get(model, "–") for model in runs) + " |" for name, of in rows.items()]
    return "\n".join(text) + "\n"


def put(file, text):
    """Puts a section into a file, in place of one with the same heading."""
    head, *sections = re.split(r"^(?=## )", file.read_text() if file.exists() else "", flags=re.M)
    heading = lambda section: section.split("\n", 1)[0]
    kept = [text if heading(s) == heading(text) else s.rstrip("\n") + "\n" for s in sections]
    kept += [] if any(heading(s) == heading(text) for s in sections) else [text]
    file.write_text("\n".join(([head.rstrip("\n") + "\n"] if head.strip() else []) + kept))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--scale", type=int, default=26)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--model", default="both", choices=[*MODELS, "both"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--halo", default="0.5", help="rows of halo for each row of the chunks")
    parser.add_argument("--kill", type=float, help="seconds after the first checkpoint")
    parser.add_argument("--check", action="store_true", help="train once more without a kill, and compare")
    parser.add_argument("--build", type=Path, default=Path("target/release/graphweft"))
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    build = (args.dir / "graphweft").absolute()
    if not build.exists():
        shutil.copy(args.build, build)
    made, runs, same = generate(args, build), {}, {}
    for model in MODELS if args.model == "both" else [args.model]:
        run = args.dir / f"run-{args.scale}-{model}"
        runs[model] = train(args, build, model, run, True)
        if args.check:
            whole = args.dir / f"whole-{args.scale}-{model}"
            train(args, build, model, whole, False)
            same[model] = (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        text = table(made, args, runs, same)
        if args.table:
            put(args.table, text)
    print(text)


if __name__ == "__main__":
    main()
