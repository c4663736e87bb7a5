"""Dataset folders that are cut, altered or contradict themselves. All are bad input: exit 3, with the name of the
file."""

import functools
import os
from pathlib import Path

from . import arrays
from .arrays import body, header, npy
from .fixtures import CLASSES, FEATURES, NODES
from .room import Case, Room, fingerprint, unchanged

SPLIT = tuple(f"split/default/{part}.npy" for part in ("train", "valid", "test"))
# Every array, and a dataset that has it.
ARRAYS = {
    "indptr.npy": "dense", "indices.npy": "dense", "feat.npy": "dense", "label.npy": "dense", "edge_feat.npy": "dense",
    **{part: "dense" for part in SPLIT},
    "feat_indptr.npy": "sparse", "feat_indices.npy": "sparse", "feat_data.npy": "sparse",
}  # fmt: skip
TRAIN = ("--model", "gcn", "-o", "out", "train.epochs=1", "model.hidden=8")
# Ways to look at a folder; all must see what is wrong with it.
LOOKS = {
    "info": lambda d: ["info", "--data", d],
    "train": lambda d: ["train", "--data", d, *TRAIN],
    "partition": lambda d: ["partition", "--data", d, "-p", 2, "-o", "part"],
    "bench": lambda d: ["bench", "spmm", "--data", d],
    "plan": lambda d: ["plan", "--data", d, "--profile", "16-cpu-10g", "--model", "gcn"],
}


def refuse(room: Room, folder: Path, *names: str, want=3, look: str | None = None, any_name=()) -> None:
    """The program refuses the folder by every look, or by one that is named or drawn, and changes nothing."""
    before = fingerprint(folder)
    args = LOOKS[look or room.rng.choice(list(LOOKS))](folder.name)
    room.run(*args, want=want, names=names, any_name=any_name)
    unchanged(folder, before, folder.name)
    room.absent("out", "part")


def cases(_seed: int) -> list[Case]:
    found = []
    for group in (cut, types, shapes, values, meta_fields, meta_values, entries, flips):
        found += [Case(f"datasets/{group.__name__}/{name}", body) for name, body in group()]
    return found


def cut():
    """Files that end too early."""
    for name, fixture in ARRAYS.items():
        for share in (0, 0.02, 0.5, "header", "all"):
            yield f"{name}-at-{share}", functools.partial(cut_one, name, fixture, share)
    for at in (0, 10, 60):
        yield f"meta.toml-at-{at}", functools.partial(cut_meta, at)


def cut_one(name, fixture, share, room: Room):
    folder = room.copy(fixture)
    data = (folder / name).read_bytes()
    ends = {"header": arrays.start_of_body(data), "all": len(data) - 1}
    at = ends[share] if share in ends else int(share * len(data)) + (room.rng.randrange(3) if share else 0)
    (folder / name).write_bytes(data[:at])
    refuse(room, folder, Path(name).name)


def cut_meta(at, room: Room):
    folder = room.copy("dense")
    (folder / "meta.toml").write_bytes((folder / "meta.toml").read_bytes()[:at])
    refuse(room, folder, "meta.toml")


def types():
    """Elements of a type that a dataset does not have."""
    for name, fixture in ARRAYS.items():
        for descr in ("<f8", ">i8", "|b1", "|O", "<c8", "<U4", "[('a', '<i4')]", "zz"):
            yield f"{name}-{descr}", functools.partial(type_one, name, fixture, descr)


def type_one(name, fixture, descr, room: Room):
    folder = room.copy(fixture)
    _, shape, elements = arrays.read((folder / name).read_bytes())
    if descr.endswith("i8"):
        elements = [int(x) for x in elements]
    data = body(descr, elements) if descr in arrays.CODE else b"\0" * (16 * len(elements))
    (folder / name).write_bytes(header(descr, repr(shape)) + data)
    refuse(room, folder, Path(name).name, look="info")


def shapes():
    """Shapes that do not fit what the folder says, or any machine."""
    for name, fixture in ARRAYS.items():
        words = ["()", "(1, 1, 1)", f"({1 << 62},)", f"({1 << 40}, {1 << 40})", "(-1,)", f"({10**30},)", "('a',)", "5"]
        if name not in SPLIT:
            words.append("less")
        for word in words:
            yield f"{name}-{word}", functools.partial(shape_one, name, fixture, word)
    yield "feat.npy-fortran", fortran
    yield "feat.npy-no-columns", no_columns
    yield "edge_feat.npy-no-columns", functools.partial(replaced, "edge_feat.npy",
                                                        lambda e: npy("<f4", (len(e) // 2, 0), []))


def shape_one(name, fixture, word, room: Room):
    folder = room.copy(fixture)
    descr, shape, elements = arrays.read((folder / name).read_bytes())
    data = body(descr, elements)
    if word == "less":
        width = len(elements) // shape[0]
        word, data = repr((shape[0] - 1, *shape[1:])), body(descr, elements[width:])
    (folder / name).write_bytes(header(descr, word) + data)
    refuse(room, folder, any_name=(Path(name).name, "meta.toml"), look="info")


def fortran(room: Room):
    folder = room.copy("dense")
    descr, shape, elements = arrays.read((folder / "feat.npy").read_bytes())
    (folder / "feat.npy").write_bytes(header(descr, repr(shape), "True") + body(descr, elements))
    refuse(room, folder, "feat.npy")


def no_columns(room: Room):
    folder = room.copy("dense")
    (folder / "feat.npy").write_bytes(npy("<f4", (NODES, 0), []))
    set_meta(folder, num_features=0)
    refuse(room, folder, "feat", look="train")


def replaced(name, change, room: Room, fixture="dense", look=None, want=3):
    """An array whose elements `change` has changed, or that it has made anew."""
    folder = room.copy(fixture)
    descr, shape, elements = arrays.read((folder / name).read_bytes())
    made = change(elements)
    (folder / name).write_bytes(made if isinstance(made, bytes) else npy(descr, shape, made))
    refuse(room, folder, Path(name).name, look=look, want=want)


def put(at, value):
    """Changes one element."""

    def change(elements):
        elements[at] = value
        return elements

    return change


def values():
    """Elements that no graph has."""
    nan, inf = float("nan"), float("inf")
    changes = {
        "indptr.npy": {
            "first": put(0, 1), "decreasing": lambda e: [*e[:50], e[60], *e[51:]], "beyond": put(100, 10**9),
            "huge": put(7, 2**64 - 1),
            "last": put(-1, 5), "reversed": lambda e: e[::-1],
        },
        "indices.npy": {
            "out-of-range": put(3, NODES), "huge": put(-1, 2**32 - 1), "unsorted": lambda e: e[::-1],
            "negative": lambda e: npy("<i8", (len(e),), put(9, -1)(e)),
            "wide": lambda e: npy("<i8", (len(e),), put(9, 2**62)(e)),
        },
        "feat.npy": {"nan": put(11, nan), "inf": put(-1, inf), "half-inf": lambda e: npy("<f2", (NODES, FEATURES),
                                                                                         put(5, inf)(e))},
        "label.npy": {"too-large": put(3, CLASSES), "below-none": put(3, -2), "huge": put(0, 2**63 - 1),
                      "least": put(0, -(2**63))},
        "edge_feat.npy": {"nan": put(0, nan), "inf": put(-1, -inf)},
        SPLIT[0]: {
            "out-of-range": put(0, NODES), "negative": put(0, -1), "twice": lambda e: put(1, e[0])(e),
            "huge": put(-1, 2**63 - 1),
            "mask": lambda e: npy("|b1", (NODES,), [i in set(e) for i in range(NODES)]),
            "mask-of-bytes": lambda e: npy("|u1", (NODES,), [i in set(e) for i in range(NODES)]),
            "mask-of-ids": lambda e: npy("<i8", (NODES,), [int(i in set(e)) for i in range(NODES)]),
        },
    }  # fmt: skip
    for name, kinds in changes.items():
        for kind, change in kinds.items():
            yield f"{name}-{kind}", functools.partial(replaced, name, change)
    bags = {
        "feat_indptr.npy": {"first": put(0, 1), "decreasing": put(9, 10**6), "huge": put(9, 2**63)},
        "feat_indices.npy": {"out-of-range": put(0, FEATURES), "unsorted": lambda e: e[::-1],
                             "huge": put(1, 2**32 - 1)},
        "feat_data.npy": {"nan": put(4, nan), "inf": put(5, inf)},
    }
    for name, kinds in bags.items():
        for kind, change in kinds.items():
            yield f"{name}-{kind}", functools.partial(replaced, name, change, fixture="sparse")
    for kind, value in {"half": 0.5, "two": 2.0, "minus-one": -1.0, "inf": inf, "tiny": 1e-30}.items():
        yield f"multi-{kind}", functools.partial(replaced, "label.npy", put(17, value), fixture="multi")
    yield "multi-byte-two", functools.partial(
        replaced, "label.npy", lambda e: npy("|u1", (NODES, CLASSES), put(17, 2)([int(x) for x in e])), fixture="multi"
    )
    for part, other in ((1, 0), (2, 0), (2, 1)):
        yield f"overlap-{part}-{other}", functools.partial(overlap, part, other)
    yield "no-train-nodes", functools.partial(nothing_in, SPLIT[0])
    yield "no-known-label", functools.partial(replaced, "label.npy", lambda e: [-1] * len(e), look="train")


def overlap(part, other, room: Room):
    folder = room.copy("dense")
    theirs = arrays.read((folder / SPLIT[other]).read_bytes())[2]
    descr, shape, ours = arrays.read((folder / SPLIT[part]).read_bytes())
    ours[room.rng.randrange(len(ours))] = room.rng.choice(theirs)
    (folder / SPLIT[part]).write_bytes(npy(descr, shape, ours))
    refuse(room, folder, Path(SPLIT[part]).name)


def nothing_in(name, room: Room):
    folder = room.copy("dense")
    (folder / name).write_bytes(npy("<i8", (0,), []))
    refuse(room, folder, "train", look="train")


def set_meta(folder: Path, **fields) -> None:
    """Sets fields of meta.toml to TOML values, written as they are; None removes one."""
    lines = [line for line in (folder / "meta.toml").read_text().splitlines() if line.split(" ")[0] not in fields]
    lines += [f"{key} = {value}" for key, value in fields.items() if value is not None]
    (folder / "meta.toml").write_text("\n".join(lines) + "\n")


def meta_fields():
    """Fields that are missing, unknown, twice there or no fields at all."""
    for name in ("name", "num_nodes", "num_edges", "num_features", "num_classes", "symmetric"):
        yield f"without-{name}", functools.partial(meta_one, {name: None})
    yield "unknown", functools.partial(meta_one, {"num_nodez": 3})
    for name, text in {"empty": b"", "words": b"hello there\n", "bytes": bytes(range(256)),
                       "deep": b"a=" + b"[" * 100000,
                       "twice": None, "latin": b'name = "\xe9"\n'}.items():  # fmt: skip
        yield name, functools.partial(meta_bytes, text)


def meta_one(fields, room: Room):
    folder = room.copy("dense")
    set_meta(folder, **fields)
    refuse(room, folder, "meta.toml")


def meta_bytes(text, room: Room):
    folder = room.copy("dense")
    old = (folder / "meta.toml").read_bytes()
    (folder / "meta.toml").write_bytes(old + old if text is None else text)
    refuse(room, folder, "meta.toml", look="info")


def meta_values():
    """Counts that are of another type, absurd or not those of the arrays."""
    absurd = ["-1", "0", "10", str(10**12), str(2**47), str(2**63 - 1), str(2**64), "1e300", "nan", '"200"', "true",
              "[200]"]
    for name in ("num_nodes", "num_edges", "num_features", "num_classes"):
        for value in absurd:
            # More classes than labels use is no contradiction, but 10 of them is no harm either.
            if (name, value) != ("num_classes", "10"):
                look = "train" if name == "num_classes" else "info"
                yield f"{name}={value}", functools.partial(meta_value, name, value, look)
    for name, value in (("symmetric", "1"), ("symmetric", '"yes"'), ("task", '"nope"'), ("task", "3"), ("name", "3")):
        yield f"{name}={value}", functools.partial(meta_value, name, value, None)
    yield "not-symmetric", not_symmetric


def meta_value(name, value, look, room: Room):
    folder = room.copy("dense")
    set_meta(folder, **{name: value})
    want = {3, 4} if name == "num_classes" else 3
    refuse(room, folder, want=want, look=look, any_name=("meta.toml", ".npy", "model", "classes"))


def not_symmetric(room: Room):
    folder = room.copy("dense")
    os.remove(folder / "edge_feat.npy")
    rows = [[(i + 1) % NODES] for i in range(NODES)]
    (folder / "indptr.npy").write_bytes(npy("<u8", (NODES + 1,), range(NODES + 1)))
    (folder / "indices.npy").write_bytes(npy("<u4", (NODES,), [row[0] for row in rows]))
    set_meta(folder, num_edges=NODES)
    refuse(room, folder, "meta.toml", "symmetric")


def entries():
    """Names that are there, or not, or are something else."""
    for name in ("meta.toml", "indptr.npy", "indices.npy", "feat.npy", "label.npy", SPLIT[0]):
        for kind in ("missing", "folder", "dangling", "fifo", "zeros"):
            yield f"{name}-{kind}", functools.partial(entry_one, name, kind)
    yield "both-features", both_features
    yield "split-is-file", split_is_file
    yield "sparse-without-indices", functools.partial(without, "sparse", "feat_indices.npy")
    yield "path-is-file", path_is_file


def entry_one(name, kind, room: Room):
    folder = room.copy("dense")
    path = folder / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "zeros":
        path.symlink_to("/dev/zero")
    # Without features a degree or nothing may do; training without them or labels is refused in any case.
    look = "train" if name in ("feat.npy", "label.npy") and kind in ("missing", "dangling") else "info"
    want = {2, 3} if look == "train" else 3
    refuse(room, folder, want=want, look=look, any_name=(Path(name).name, "meta.toml", "split"))


def both_features(room: Room):
    folder = room.copy("sparse")
    (folder / "feat.npy").write_bytes((room.base / "dense/feat.npy").read_bytes())
    refuse(room, folder, "feat")


def split_is_file(room: Room):
    folder = room.copy("dense")
    os.rename(folder / "split", room / "elsewhere")
    (folder / "split").write_text("train: all\n")
    refuse(room, folder, "split")


def without(fixture, name, room: Room):
    folder = room.copy(fixture)
    (folder / name).unlink()
    refuse(room, folder, name)


def path_is_file(room: Room):
    (room / "data").write_text("x")
    refuse(room, room / "data", "data")


def flips():
    """Bits that tip over: the folder is refused, or it is another valid one; no byte makes the program fall."""
    for name, fixture in {**ARRAYS, "meta.toml": "dense"}.items():
        for place in ("header", "body", "body-again"):
            if (name, place) != ("meta.toml", "body-again"):
                yield f"{name}-{place}", functools.partial(flip_one, name, fixture, place)


def flip_one(name, fixture, place, room: Room):
    folder = room.copy(fixture)
    data = bytearray((folder / name).read_bytes())
    start = len(data) // 2 if name == "meta.toml" else arrays.start_of_body(data)
    for _ in range(1 + room.rng.randrange(3)):
        at = room.rng.randrange(start) if place == "header" else room.rng.randrange(start, len(data))
        data[at] ^= 1 << room.rng.randrange(8)
    (folder / name).write_bytes(data)
    # A flipped exponent gives a feature of 1e38: training on it may rightly end with numbers that are not finite.
    refuse_or_use(room, folder)


def refuse_or_use(room: Room, folder: Path) -> None:
    """Either is fine, but nothing else."""
    before = fingerprint(folder)
    for look in ("info", "bench", "train"):
        want = {0, 1, 3} if look == "train" else {0, 3}
        room.run(*LOOKS[look](folder.name), want=want)
    unchanged(folder, before, folder.name)
