"""Contents that changed behind the stamp of a validated folder: of the same size and time, or with a stamp that was
forged."""

import functools
import os
from pathlib import Path

from . import arrays
from .arrays import npy
from .fixtures import CLASSES, FEATURES, NODES
from .room import Case, Failed, Room

SPLIT = "split/default/train.npy"
# Array, dataset, and what becomes of its elements.
CHANGES = {
    "indices-out": ("indices.npy", "plain", lambda e: [NODES + 5] * len(e)),
    "indices-far": ("indices.npy", "plain", lambda e: [2**32 - 1 - i for i in range(len(e))]),
    "indices-one": ("indices.npy", "plain", lambda e: [*e[:-1], 2**31]),
    "indptr-beyond": ("indptr.npy", "plain", lambda e: [e[0], *([10**15] * (len(e) - 2)), e[-1]]),
    "indptr-decreasing": ("indptr.npy", "plain", lambda e: [e[0], *e[-2:0:-1], e[-1]]),
    "indptr-last": ("indptr.npy", "plain", lambda e: [*e[:-1], 10**15]),
    "labels": ("label.npy", "plain", lambda e: [CLASSES + 10**9] * len(e)),
    "labels-negative": ("label.npy", "plain", lambda e: [-(2**62)] * len(e)),
    "multi": ("label.npy", "multi", lambda e: [7.5] * len(e)),
    "split": (SPLIT, "plain", lambda e: [NODES + 10**6] * len(e)),
    "split-negative": (SPLIT, "plain", lambda e: [-5] * len(e)),
    "features": ("feat.npy", "plain", lambda e: [float("nan")] * len(e)),
    "bag-columns": ("feat_indices.npy", "sparse", lambda e: [FEATURES + 10**6] * len(e)),
    "bag-offsets": ("feat_indptr.npy", "sparse", lambda e: [e[0], *([10**15] * (len(e) - 2)), e[-1]]),
}
TRAIN = ("--model", "gcn", "-o", "out", "train.epochs=1", "model.hidden=8")
VERBS = {
    "info": lambda d: ["info", "--data", d],
    "info-partition": lambda d: ["info", "--data", d, "--partition"],
    "train": lambda d: ["train", "--data", d, *TRAIN],
    "train-ranks": lambda d: ["train", "--data", d, "--ranks", 2, "--strategy", "halo", *TRAIN],
    "partition": lambda d: ["partition", "--data", d, "-p", 2, "-o", "part", "--symmetrise"],
    "attention": lambda d: ["bench", "attention", "--data", d],
    "spmm": lambda d: ["bench", "spmm", "--data", d],
    "bench-train": lambda d: ["bench", "train", "--data", d, "--model", "gcn"],
    "plan": lambda d: ["plan", "--data", d, "--profile", "16-cpu-10g", "--model", "gcn"],
}


def cases(seed: int) -> list[Case]:
    found = []
    verbs = list(VERBS)
    for k, change in enumerate(CHANGES):
        # Every change is seen by some verbs, every verb sees some changes, others with other seeds.
        for verb in (verbs[(seed + 2 * k + j * 4) % len(verbs)] for j in range(2)):
            found.append(Case(f"stamps/behind/{change}-{verb}", functools.partial(behind, change, verb)))
        verb = verbs[(seed + k) % len(verbs)]
        found.append(Case(f"stamps/forged/{change}-{verb}", functools.partial(forged, change, verb)))
    for verb in ("attention", "spmm", "bench-train"):
        found.append(Case(f"stamps/forged/indices-far-of-{verb}", functools.partial(forged, "indices-far", verb)))
    found.append(Case("stamps/garbage", garbage))
    found.append(Case("stamps/folder", stamp_is_folder))
    found.append(Case("stamps/link", stamp_is_link))
    return found


def behind(change, verb, room: Room):
    """Nobody touched the stamp: the change must be seen."""
    folder, name, _ = alter(room, change)
    room.run(*VERBS[verb](folder.name), want=3, names=[Path(name).name])
    room.absent("out", "part")


def forged(change, verb, room: Room):
    """The stamp was made to agree with what is there now: what is computed may be wrong, but memory must be safe."""
    folder, _, old = alter(room, change)
    stamp = folder / ".validated"
    if not stamp.exists():
        stamp.write_text("")
    text = stamp.read_text()
    for file, before in old.items():
        after = os.stat(folder / file)
        # As one number, or as seconds and nanoseconds.
        for time in (str, lambda ns: f"{ns // 10**9}.{ns % 10**9:09}"):
            text = text.replace(time(before.st_ctime_ns), time(after.st_ctime_ns))
    stamp.write_text(text)
    room.run(*VERBS[verb](folder.name), want={0, 1, 3})


def alter(room: Room, change):
    """A validated folder in which one array got other elements, in place and under the old time."""
    name, fixture, becomes = CHANGES[change]
    folder = room.copy(fixture)
    room.run("info", "--data", folder.name)
    old = {name: os.stat(folder / name)}
    data = (folder / name).read_bytes()
    descr, shape, elements = arrays.read(data)
    made = npy(descr, shape, becomes(elements))
    made = data[: arrays.start_of_body(data)] + made[arrays.start_of_body(made) :]
    if len(made) != len(data):
        raise Failed("the case itself changed the size")
    with open(folder / name, "r+b") as file:
        file.write(made)
    os.utime(folder / name, ns=(old[name].st_atime_ns, old[name].st_mtime_ns))
    return folder, name, old


def garbage(room: Room):
    folder = room.copy("plain")
    (folder / ".validated").write_bytes(bytes(range(256)) * 100)
    room.run("info", "--data", folder.name)


def stamp_is_folder(room: Room):
    folder = room.copy("plain")
    (folder / ".validated").mkdir()
    room.run("info", "--data", folder.name)


def stamp_is_link(room: Room):
    """A stamp that is a link is not written through: what it points to belongs to somebody."""
    folder = room.copy("plain")
    (room / "precious").write_text("precious\n")
    (folder / ".validated").symlink_to(room / "precious")
    room.run("info", "--data", folder.name)
    if (room / "precious").read_text() != "precious\n":
        raise Failed("the stamp was written through a link, over the file that it points to")
