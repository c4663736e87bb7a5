"""`import arrays` with files that are wrong, or do not belong together: exit 3, or 2 where the request itself is;
nothing is made."""

import functools
import gzip

from .arrays import header, npy, npz
from .room import Case, Failed, Room, fingerprint, unchanged

N, F = 6, 2
NAN, INF = float("nan"), float("inf")
PAIRS = [x for i in range(5) for x in (i, i + 1)]
MASK = [True] * 2 + [False] * 4
NODES = "id,label,split,f1,f2\n" + "".join(f"{10 * i},{i % 2},{('train', 'valid', 'test')[i % 3]},{i}.5,-1\n"
                                           for i in range(N))
EDGES = "source,target\n" + "".join(f"{10 * a},{10 * b}\n" for a, b in zip(PAIRS[::2], PAIRS[1::2]))
GOOD = {
    "edges.npy": npy("<i8", (5, 2), PAIRS), "x.npy": npy("<f4", (N, F), [0.5] * (N * F)),
    "y.npy": npy("<i8", (N,), [0, 1] * 3),
    "train.npy": npy("|b1", (N,), MASK), "valid.npy": npy("|b1", (N,), MASK[2:] + MASK[:2]),
    "test.npy": npy("|b1", (N,), MASK[4:] + MASK[:4]),
    "e.npy": npy("<f4", (5, 1), [1.0] * 5), "nodes.csv": NODES.encode(), "edges.csv": EDGES.encode(),
}  # fmt: skip
FLAGS = {
    "edges.npy": "--edges", "x.npy": "--features", "y.npy": "--labels", "train.npy": "--train", "valid.npy": "--valid",
    "test.npy": "--test", "e.npy": "--edge-features",
}  # fmt: skip
# Files in place of good ones.
CHANGES: dict[str, dict[str, bytes]] = {
    "edges.npy": {
        "three-columns": npy("<i8", (5, 3), [0] * 15), "flat": npy("<i8", (10,), PAIRS),
        "float": npy("<f8", (5, 2), [x + 0.5 for x in PAIRS]),
        "nan": npy("<f8", (5, 2), [NAN] * 10), "negative": npy("<i8", (5, 2), [-1, *PAIRS[1:]]),
        "beyond": npy("<i8", (5, 2), [N, *PAIRS[1:]]),
        "far": npy("<i8", (5, 2), [2**62, *PAIRS[1:]]), "bool": npy("|b1", (5, 2), [1] * 10),
        "cut": npy("<i8", (5, 2), PAIRS)[:-1],
        "huge": header("<i8", f"({2**60}, 2)"), "overflow": header("<i8", f"({2**62}, {2**62})"),
        "objects": header("|O", "(5, 2)") + b"\x80\x04N." * 10,
        "empty-file": b"", "text": b"hello\n", "zero-d": header("<i8", "()") + bytes(8),
    },
    "x.npy": {
        "rows": npy("<f4", (N - 1, F), [0.5] * 10), "nan": npy("<f4", (N, F), [NAN] * 12),
        "inf": npy("<f8", (N, F), [INF] * 12),
        "beyond-f32": npy("<f8", (N, F), [1e300] * 12), "no-columns": npy("<f4", (N, 0), []),
        "3d": npy("<f4", (N, F, 1), [0.5] * 12),
        "cut": npy("<f4", (N, F), [0.5] * 12)[:-3], "strings": header("<U4", f"({N}, {F})") + bytes(16 * 12),
        "huge": header("<f4", f"({N}, {2**60})"),
        "csv-ragged": b"1,2\n1\n1,2\n1,2\n1,2\n1,2\n", "csv-words": b"a,b\n" + b"1,x\n" * N, "csv-nan": b"1,nan\n" * N,
    },
    "y.npy": {
        "rows": npy("<i8", (N - 1,), [0] * 5), "half": npy("<f4", (N,), [0.5] * N),
        "below-none": npy("<i8", (N,), [-2] * N),
        "huge": npy("<i8", (N,), [10**12] * N), "most": npy("<u8", (N,), [2**64 - 1] * N),
        "multi-two": npy("<f4", (N, 2), [2.0] * 12),
        "multi-half": npy("<f4", (N, 2), [0.5] * 12), "inf": npy("<f8", (N,), [INF] * N),
        "3d": npy("<i8", (N, 1, 1), [0] * N),
        "cut": npy("<i8", (N,), [0] * N)[:-1], "objects": header("|O", f"({N},)") + b"\x80\x04N." * N,
    },
    "train.npy": {
        "short": npy("|b1", (N - 1,), MASK[1:]), "overlap": npy("|b1", (N,), [True] * N),
        "ids-out": npy("<i8", (2,), [0, N]),
        "ids-negative": npy("<i8", (2,), [0, -1]), "ids-twice": npy("<i8", (2,), [0, 0]),
        "float": npy("<f4", (N,), [0.5] * N),
        "nothing": npy("|b1", (N,), [False] * N), "several": npy("|b1", (N, 3), MASK * 3),
        "cut": npy("|b1", (N,), MASK)[:-2],
    },
    "e.npy": {"rows": npy("<f4", (4, 1), [1.0] * 4), "nan": npy("<f4", (5, 1), [NAN] * 5),
              "no-columns": npy("<f4", (5, 0), [])},
}  # fmt: skip
# Tables in place of good ones; edges are written in the ids of the nodes.
TABLES = {
    "nodes-empty": ("nodes.csv", b""), "nodes-header-only": ("nodes.csv", b"id,label,split,f1\n"),
    "nodes-bytes": ("nodes.csv", bytes(range(256))),
    "nodes-twice": ("nodes.csv", (NODES + NODES.splitlines()[1] + "\n").encode()),
    "nodes-ragged": ("nodes.csv", (NODES + "99,1\n").encode()),
    "nodes-word": ("nodes.csv", NODES.replace("1.5", "x").encode()),
    "nodes-nan": ("nodes.csv", NODES.replace("1.5", "nan").encode()),
    "nodes-inf": ("nodes.csv", NODES.replace("1.5", "1e99").encode()),
    "nodes-split": ("nodes.csv", NODES.replace("valid", "holdout").encode()),
    "nodes-id-word": ("nodes.csv", NODES.replace("\n20,", "\n2x,").encode()),
    "nodes-id-empty": ("nodes.csv", NODES.replace("\n20,", "\n,").encode()),
    "nodes-same-column": ("nodes.csv", NODES.replace("f2", "f1").encode()),
    "nodes-no-header": ("nodes.csv", NODES.split("\n", 1)[1].encode()),
    "nodes-quote": ("nodes.csv", NODES.replace("1.5", '"1.5').encode()),
    "nodes-latin": ("nodes.csv", NODES.replace("f1", "é").encode("latin-1")),
    "nodes-gz-cut": ("nodes.csv", gzip.compress(NODES.encode(), mtime=0)[:-9]),
    "edges-unknown-id": ("edges.csv", (EDGES + "77,10\n").encode()),
    "edges-word": ("edges.csv", (EDGES + "ten,10\n").encode()),
    "edges-one-column": ("edges.csv", (EDGES + "10\n").encode()), "edges-empty": ("edges.csv", b""),
    "edges-third-column": ("edges.csv", (EDGES + "10,20,5\n").encode()),
    "edges-nul": ("edges.csv", EDGES.encode() + b"\0\0\0"),
}  # fmt: skip
FROM_TABLES = ["--edges", "edges.csv", "--nodes", "nodes.csv"]
LINES: dict[str, tuple[list, set]] = {
    "no-edges": (["--features", "x.npy"], {2}), "missing": (["--edges", "nowhere.npy"], {3}),
    "folder": (["--edges", "."], {3}),
    "same-twice": ([*FROM_TABLES, "--labels", "y.npy"], {2, 3}),
    "features-twice": ([*FROM_TABLES, "--features", "x.npy"], {2, 3}),
    "id-column": ([*FROM_TABLES, "--id-column", "nope"], {2, 3}),
    "label-columns": ([*FROM_TABLES, "--label-columns", "nope"], {2, 3}),
    "skip-columns": ([*FROM_TABLES, "--skip-columns", "nope"], {2, 3}),
    "split-column": ([*FROM_TABLES, "--split-column", "f1"], {2, 3}),
    "id-column-alone": (["--edges", "edges.npy", "--id-column", "id"], {2}),
    "train-alone": (["--edges", "edges.npy", "--train", "train.npy"], {2, 3}),
    "num-nodes-huge": (["--edges", "edges.npy", "--num-nodes", 10**12], {2, 3, 4}),
    "num-nodes-small": (["--edges", "edges.npy", "--num-nodes", 2], {2, 3}),
    "num-nodes-other": (["--edges", "edges.npy", "--features", "x.npy", "--num-nodes", 99], {2, 3}),
    "masks-of-other-names": (["--edges", "edges.npy", "--features", "x.npy", "--masks", "odd.npz"], {2, 3}),
    "masks-without-one": (["--edges", "edges.npy", "--features", "x.npy", "--masks", "two.npz"], {2, 3}),
    "array-of-other-name": (["--edges", "odd.npz:nope"], {2, 3}), "archive-as-edges": (["--edges", "odd.npz"], {2, 3}),
    "archive-cut": (["--edges", "cut.npz"], {3}), "features-as-edges": (["--edges", "x.npy"], {3}),
}  # fmt: skip


def cases(_seed: int) -> list[Case]:
    found = [Case("own-data/good-arrays", functools.partial(good, arrays_of({}))),
             Case("own-data/good-tables", functools.partial(good, FROM_TABLES))]
    for name, kinds in CHANGES.items():
        found += [Case(f"own-data/{name}-{kind}", functools.partial(changed, name, data)) for kind,
                  data in kinds.items()]
    found += [Case(f"own-data/table/{kind}", functools.partial(table, *what)) for kind, what in TABLES.items()]
    return found + [Case(f"own-data/line/{name}", functools.partial(line, *what)) for name, what in LINES.items()]


def furnish(room: Room, changes: dict[str, bytes]) -> None:
    folder = room / "in"
    folder.mkdir()
    masks = {"train_mask": GOOD["train.npy"], "val_mask": GOOD["valid.npy"]}
    archives = {"odd.npz": npz({"learn": GOOD["train.npy"], "check": GOOD["valid.npy"]}), "two.npz": npz(masks)}
    for name, data in (GOOD | archives | {"cut.npz": archives["odd.npz"][:100]} | changes).items():
        (folder / name).write_bytes(data)


def arrays_of(renamed: dict[str, str]) -> list[str]:
    return [word for name, flag in FLAGS.items() for word in (flag, renamed.get(name, name))]


def run(room: Room, args, **how):
    """Runs the import from the folder that has the files, into the room."""
    before = fingerprint(room / "in")
    args = [f"in/{a}" if isinstance(a, str) and ("." in a and not a.startswith("-")) else a for a in args]
    ended = room.run("import", "arrays", *args, "-o", "out", **how)
    unchanged(room / "in", before, "the input")
    if ended.code != 0:
        room.absent("out")
    return ended


def good(args, room: Room):
    """What the others alter is right, and can be trained on."""
    furnish(room, {})
    run(room, args)
    room.run("train", "--data", "out", "--model", "gcn", "train.epochs=2", "model.hidden=8", "-o", "run")
    if "splits" in (room / "out/meta.toml").read_text() and not (room / "out/split").is_dir():
        raise Failed("the splits were lost")


def changed(name, data, room: Room):
    # Text by its own name.
    new = name.replace(".npy", ".csv") if data[:1] not in (b"\x93", b"") and name == "x.npy" else name
    furnish(room, {new: data})
    # Files that must agree may each be named: the labels where features have fewer rows.
    run(room, arrays_of({name: new}), want={2, 3}, any_name=["in/"])


def table(name, data, room: Room):
    furnish(room, {name: data})
    run(room, FROM_TABLES, want=3, any_name=["nodes.csv", "edges.csv"])


def line(args, want, room: Room):
    furnish(room, {})
    run(room, args, want=want)
