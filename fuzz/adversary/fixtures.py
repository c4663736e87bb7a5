"""What all cases start from, made once: datasets and runs, of a few hundred nodes."""

import os
import random
import shutil
from pathlib import Path

from .arrays import npy, read
from .room import Room

GRAPH = "sbm:200:4:6:f=8"
NODES, CLASSES, FEATURES = 200, 4, 8
EPOCHS, EVERY = 20, 5
# A run that leaves four checkpoints.
TRAIN = ["train", "--model", "gcn", f"train.epochs={EPOCHS}", f"run.checkpoint_every={EVERY}", "run.keep=4",
         "model.hidden=16"]


def make(room: Room) -> None:
    """Makes all of them in `room`, which is the base of the rooms of cases."""
    for name in ("home", "cache"):
        (room / name).mkdir()
    room.run("generate", GRAPH, "-o", "plain", "--seed", room.rng.randrange(1000))
    dense = room / "dense"
    shutil.copytree(room / "plain", dense, ignore=shutil.ignore_patterns(".validated"))
    edges = len(read((dense / "indices.npy").read_bytes())[2])
    # One number per undirected edge would be symmetric; these need not be.
    (dense / "edge_feat.npy").write_bytes(npy("<f4", (edges, 2), [0.5] * (2 * edges)))
    sparse(room / "plain", room / "sparse", room.rng)
    several(room / "plain", room / "multi", room.rng)
    room.run("generate", "sbm:200:4:6:f=8", "-o", "other", "--seed", 4711)
    room.run(*TRAIN, "--data", "plain", "-o", "run")
    room.run(*TRAIN, "--data", "plain", "-o", "run2", "--seed", 7)
    room.run(*TRAIN, "--data", "plain", "-o", "seeds", "--seeds", 3)
    shutil.rmtree(room / "tmp")


def sparse(plain: Path, to: Path, rng: random.Random) -> None:
    """The same graph with a bag of words."""
    shutil.copytree(plain, to, ignore=shutil.ignore_patterns(".validated"))
    os.remove(to / "feat.npy")
    offsets, columns = [0], []
    for _ in range(NODES):
        columns += sorted(rng.sample(range(FEATURES), rng.randrange(1, 4)))
        offsets.append(len(columns))
    (to / "feat_indptr.npy").write_bytes(npy("<u8", (NODES + 1,), offsets))
    (to / "feat_indices.npy").write_bytes(npy("<u4", (len(columns),), columns))
    (to / "feat_data.npy").write_bytes(npy("<f4", (len(columns),), [rng.uniform(0.5, 2) for _ in columns]))


def several(plain: Path, to: Path, rng: random.Random) -> None:
    """The same graph with several labels per node."""
    shutil.copytree(plain, to, ignore=shutil.ignore_patterns(".validated"))
    values = [float(rng.randrange(2)) for _ in range(NODES * CLASSES)]
    (to / "label.npy").write_bytes(npy("<f4", (NODES, CLASSES), values))
