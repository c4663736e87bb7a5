"""The same losses and scores however the work is spread: a handful, since crates/parallel and crates/train hold all
of it."""

import functools
import json

from .room import Case, Failed, Room

MODELS = ("gcn", "sage", "gat", "gt")
WAYS = {
    "threads-1": ["--threads", 1], "threads-5": ["--threads", 5], "gather-2": ["--ranks", 2, "--strategy", "gather"],
    "halo-3": ["--ranks", 3, "--strategy", "halo"], "ring-2": ["--ranks", 2, "--strategy", "ring"],
    "contiguous-4": ["--ranks", 4, "--strategy", "halo", "parallel.partition=contiguous"],
    "remat": ["compute.remat=layer"],
}  # fmt: skip
EPOCHS = 12
TOLERANCE = 1e-9


def cases(_seed: int) -> list[Case]:
    found = [Case(f"parity/{model}-{way}", functools.partial(compare, model, way)) for model in MODELS for way in WAYS]
    return found + [Case("parity/bytes-of-threads", bytes_of_threads), Case("parity/bytes-of-data", bytes_of_data)]


def train(room: Room, model, name, *more) -> list[dict]:
    settings = [f"train.epochs={EPOCHS}", "model.hidden=8", "train.dropout=0.2", "compute.dtype=f64", "train.lr=0.01"]
    heads = ["model.heads=2"] if model in ("gat", "gt") else []
    room.run("train", "--data", room.base / "plain", "--model", model, "-o", name, *settings, *heads, *more)
    return [json.loads(line) for line in (room / name / "metrics.jsonl").read_text().splitlines()]


def compare(model, way, room: Room):
    """In f64: every loss to a billionth, every score exactly."""
    one, other = train(room, model, "one"), train(room, model, "other", *WAYS[way])
    if len(one) != EPOCHS or len(other) != EPOCHS:
        raise Failed(f"{len(one)} and {len(other)} epochs, expected {EPOCHS}")
    for a, b in zip(one, other):
        if abs(a["loss"] - b["loss"]) > TOLERANCE * max(1.0, abs(a["loss"])):
            raise Failed(f"epoch {a['epoch']}: losses {a['loss']} and {b['loss']}")
        for part in ("train", "valid", "test"):
            if a[part] != b[part]:
                raise Failed(f"epoch {a['epoch']}: {part} scores {a[part]} and {b[part]}")


def bytes_of_threads(room: Room):
    """Any number of threads gives the same bytes."""
    for threads in (1, 2, 7):
        train(room, "gt", f"run-{threads}", "--threads", threads)
        for name in ("model.safetensors", "metrics.jsonl", "predictions.npy"):
            if (room / f"run-{threads}" / name).read_bytes() != (room / "run-1" / name).read_bytes():
                raise Failed(f"{name} differs with {threads} threads")


def bytes_of_data(room: Room):
    """The same graph by spec and from a folder gives the same losses."""
    spec = ["--graph", "sbm:200:4:6:f=8"]
    room.run("generate", spec[1], "-o", "data", "--seed", 0)
    runs = {"spec": spec, "folder": ["--data", "data"]}
    for name, args in runs.items():
        room.run("train", *args, "--model", "gcn", "-o", name, f"train.epochs={EPOCHS}", "model.hidden=8")
    if (room / "spec/metrics.jsonl").read_bytes() != (room / "folder/metrics.jsonl").read_bytes():
        raise Failed("metrics.jsonl differs between --graph and the folder that generate made of it")
