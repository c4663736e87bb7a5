"""Malformed input of every format: exit 3, naming the file, and nothing is made."""

import functools
import gzip
import zipfile

from .arrays import header, npy, npz
from .room import Case, Room, fingerprint, unchanged

NAN, INF = float("nan"), float("inf")
EDGES = "# a ring\n" + "".join(f"{i}\t{(i + 1) % 40}\n" for i in range(40))
MATRIX = "%%MatrixMarket matrix coordinate real general\n% c\n4 4 3\n1 2 0.5\n2 3 1.5\n4 1 2\n"
METIS = "4 3\n2\n1 3\n2 4\n3\n"


def cases(_seed: int) -> list[Case]:
    found = []
    for group in (edge_lists, matrices, metis, heterophilous, benchmarks, ogb, archives, compressed):
        found += [Case(f"imports/{group.__name__}/{name}", body) for name, body in group()]
    return found


def refused(file, data, kind, room: Room, *flags, want=3):
    (room / file).write_bytes(data if isinstance(data, bytes) else data.encode())
    refuse_path(room, kind, file, *flags, want=want)


def refuse_path(room: Room, kind, file, *flags, want=3, any_name=()):
    before = fingerprint(room / file)
    room.run("import", kind, file, "-o", "out", *flags, want=want, any_name=any_name or (file,))
    unchanged(room / file, before, file)
    room.absent("out")


def bad(kind, file, texts, *flags):
    """Cases from texts by name; a text may come with flags of its own."""
    for name, text in texts.items():
        own = text[1:] if isinstance(text, tuple) else ()
        data = text[0] if isinstance(text, tuple) else text
        yield name, functools.partial(refused_with, file, data, kind, (*flags, *own))


def refused_with(file, data, kind, flags, room: Room):
    refused(file, data, kind, room, *flags)


def edge_lists():
    yield from bad("edge-list", "edges.txt", {
        "empty": "", "comments": "# nothing\n% here\n", "one-column": "0 1\n2\n", "letters": "0 1\n1 two\n",
        "negative": "0 1\n-1 2\n",
        "beyond-32-bits": f"0 {2**32}\n", "beyond-64-bits": f"0 {2**64}\n", "thirty-digits": f"0 {10**30}\n",
        "float": "0 1.5\n",
        "third-column": "0 1 0.5\n", "nul": b"0 1\n\0 2\n", "not-utf8": b"0 1\n\xff\xfe 2\n",
        "long-number": "0 " + "9" * 1_000_000 + "\n",
        "long-line": "0 1 " * 300_000 + "\n", "bytes": bytes(range(256)) * 64, "empty-field": "0,,1\n",
        "quote": '0 "1\n',
        "nan-feature": ("0 1 nan\n1 0 2\n", "--edge-features"), "inf-feature": ("0 1 inf\n", "--edge-features"),
        "ragged": ("0 1 3\n1 0 3 4\n", "--edge-features"), "word-feature": ("0 1 x\n", "--edge-features"),
        "no-feature": ("0 1\n1 0\n", "--edge-features"), "too-few-nodes": ("0 1\n5 1\n", "--num-nodes", "3"),
        "relabel-letters": ("a b\nb c\n0 d\n", "--ids", "relabel"), "relabel-float": ("1.5 2\n", "--ids", "relabel"),
        "relabel-beyond": (f"0 {2**65}\n", "--ids", "relabel"), "utf16": "0 1\n1 2\n".encode("utf-16"),
    })  # fmt: skip
    yield "largest-id", functools.partial(absurd, "edges.txt", f"0 {2**32 - 2}\n", "edge-list")
    yield "json", functools.partial(refused, "edges.txt", '{"edges": [[0, 1]]}\n', "edge-list")


def absurd(file, data, kind, room: Room):
    """One edge and four billion nodes: 32 GB on the disk for a line of text. Refused, with a way to say that it is
    meant."""
    refused(file, data, kind, room, want={2, 3, 4})


def matrices():
    yield from bad("matrix-market", "m.mtx", {
        "empty": "", "no-banner": "4 4 1\n1 2 1\n", "array": MATRIX.replace("coordinate", "array"),
        "tensor": MATRIX.replace("matrix", "tensor"),
        "complex": MATRIX.replace("real", "complex"), "hermitian": MATRIX.replace("general", "hermitian"),
        "skew": MATRIX.replace("general", "skew-symmetric"), "not-square": MATRIX.replace("4 4 3", "4 5 3"),
        "index-0": MATRIX.replace("1 2 0.5", "0 2 0.5"), "index-5": MATRIX.replace("1 2 0.5", "5 2 0.5"),
        "negative": MATRIX.replace("1 2 0.5", "-1 2 0.5"), "fewer": MATRIX.replace("4 4 3", "4 4 4"),
        "more": MATRIX.replace("4 4 3", "4 4 2"),
        "no-size": "%%MatrixMarket matrix coordinate real general\n",
        "size-words": MATRIX.replace("4 4 3", "four four 3"),
        "size-negative": MATRIX.replace("4 4 3", "-4 -4 3"),
        "size-huge": MATRIX.replace("4 4 3", f"{10**18} {10**18} 3"),
        "entries-huge": MATRIX.replace("4 4 3", f"4 4 {2**64 - 1}"),
        "size-30": MATRIX.replace("4 4 3", f"{10**30} {10**30} 3"),
        "no-value": MATRIX.replace("1 2 0.5", "1 2"), "nan": MATRIX.replace("0.5", "nan"),
        "inf": MATRIX.replace("0.5", "1e99"),
        "values-of-pattern": MATRIX.replace("real", "pattern"),
        "zero": MATRIX.replace("4 4 3", "0 0 0"),
    })  # fmt: skip


def metis():
    yield from bad("metis", "g.graph", {
        "empty": "", "header-word": METIS.replace("4 3", "four 3"), "header-short": METIS.replace("4 3\n", "4\n"),
        "header-long": METIS.replace("4 3", "4 3 001 1 1"), "format": METIS.replace("4 3", "4 3 999"),
        "negative": METIS.replace("4 3", "-4 3"),
        "vertices-fewer": METIS.replace("4 3", "3 3"), "vertices-more": METIS.replace("4 3", "9 3"),
        "edges": METIS.replace("4 3", "4 4"),
        "neighbour-0": METIS.replace("1 3", "0 3"), "neighbour-9": METIS.replace("1 3", "9 3"),
        "one-way": METIS.replace("1 3", "4 3"),
        "word": METIS.replace("1 3", "one 3"), "vertices-huge": METIS.replace("4 3", f"{10**18} 3"),
        "vertices-64": METIS.replace("4 3", f"{2**64} 3"),
        "constraints-huge": METIS.replace("4 3", f"4 3 010 {10**15}"),
        "weights-missing": METIS.replace("4 3", "4 3 001"),
        "cut": METIS[:8], "edges-huge": METIS.replace("4 3", f"4 {2**63}"),
    })  # fmt: skip


def hetero(**changes) -> dict[str, bytes]:
    """A graph of the heterophilous collection, with other arrays in place of some; None leaves one out."""
    n = 6
    members = {
        "node_features": npy("<f4", (n, 2), [0.5] * (2 * n)), "node_labels": npy("<i8", (n,), [0, 1] * 3),
        "edges": npy("<i8", (5, 2), [x for i in range(5) for x in (i, i + 1)]),
        **{f"{part}_masks": npy("|b1", (2, n), [i % 3 == k for i in range(2 * n)]) for k,
           part in enumerate(("train", "val", "test"))},
    }  # fmt: skip
    members |= changes
    return {name: data for name, data in members.items() if data is not None}


def heterophilous():
    n, mask = 6, [True] * 12
    changes = {
        **{f"without-{name}": {name: None} for name in hetero()},
        "features-rows": {"node_features": npy("<f4", (5, 2), [0.5] * 10)},
        "features-nan": {"node_features": npy("<f4", (n, 2), [NAN] * 12)},
        "features-none": {"node_features": npy("<f4", (n, 0), [])},
        "features-3d": {"node_features": npy("<f4", (n, 2, 1), [0.5] * 12)},
        "features-objects": {"node_features": header("|O", "(6, 2)") + b"\x80\x04N." * 12},
        "features-huge": {"node_features": header("<f4", f"(6, {2**60})")},
        "features-f64-large": {"node_features": npy("<f8", (n, 2), [1e300] * 12)},
        "labels-float": {"node_labels": npy("<f4", (n,), [0.5] * n)},
        "labels-negative": {"node_labels": npy("<i8", (n,), [-7] * n)},
        "labels-huge": {"node_labels": npy("<i8", (n,), [10**12] * n)},
        "labels-none": {"node_labels": npy("<i8", (0,), [])},
        "edges-out": {"edges": npy("<i8", (1, 2), [0, n])},
        "edges-negative": {"edges": npy("<i8", (1, 2), [0, -1])},
        "edges-three": {"edges": npy("<i8", (1, 3), [0, 1, 2])},
        "edges-flat": {"edges": npy("<i8", (2,), [0, 1])}, "edges-float": {"edges": npy("<f8", (1, 2), [0.5, 1])},
        "masks-overlap": {"train_masks": npy("|b1", (2, n), mask)},
        "masks-short": {"val_masks": npy("|b1", (2, 5), mask[:10])},
        "masks-fewer": {"test_masks": npy("|b1", (1, n), mask[:6])},
        "masks-numbers": {"train_masks": npy("<i8", (2, n), [5] * 12)},
    }  # fmt: skip
    for name, change in changes.items():
        yield name, functools.partial(refused, "g.npz", npz(hetero(**change)), "heterophilous")


def benchmark(**changes) -> bytes:
    members = {
        "adj_data": npy("<f4", (3,), [1.0] * 3), "adj_indices": npy("<i4", (3,), [1, 2, 0]),
        "adj_indptr": npy("<i4", (4,), [0, 1, 2, 3]),
        "adj_shape": npy("<i8", (2,), [3, 3]), "attr_data": npy("<f4", (2,), [1.0, 2.0]),
        "attr_indices": npy("<i4", (2,), [0, 1]),
        "attr_indptr": npy("<i4", (4,), [0, 1, 2, 2]), "attr_shape": npy("<i8", (2,), [3, 2]),
        "labels": npy("<i8", (3,), [0, 1, 0]),
    }  # fmt: skip
    members |= changes
    return npz({name: data for name, data in members.items() if data is not None})


def benchmarks():
    changes = {
        **{f"without-{name}": {name: None} for name in ("adj_indptr", "adj_indices", "adj_shape", "attr_indices",
                                                        "attr_shape")},
        "offsets-decreasing": {"adj_indptr": npy("<i4", (4,), [0, 2, 1, 3])},
        "offsets-negative": {"adj_indptr": npy("<i4", (4,), [0, -1, 2, 3])},
        "offsets-beyond": {"adj_indptr": npy("<i8", (4,), [0, 10**15, 10**15, 3])},
        "offsets-short": {"adj_indptr": npy("<i4", (3,), [0, 1, 2])},
        "indices-out": {"adj_indices": npy("<i4", (3,), [1, 2, 3])},
        "indices-negative": {"adj_indices": npy("<i4", (3,), [1, 2, -1])},
        "indices-more": {"adj_indices": npy("<i4", (4,), [1, 2, 0, 0])},
        "data-fewer": {"adj_data": npy("<f4", (2,), [1.0, 3.0])},
        "data-nan": {"adj_data": npy("<f4", (3,), [NAN] * 3)},
        "shape-not-square": {"adj_shape": npy("<i8", (2,), [3, 4])},
        "shape-negative": {"adj_shape": npy("<i8", (2,), [-3, -3])},
        "shape-huge": {"adj_shape": npy("<i8", (2,), [10**15, 10**15])},
        "shape-three": {"adj_shape": npy("<i8", (3,), [3, 3, 3])},
        "attr-rows": {"attr_shape": npy("<i8", (2,), [4, 2])},
        "attr-columns": {"attr_shape": npy("<i8", (2,), [3, 1])},
        "attr-columns-huge": {"attr_shape": npy("<i8", (2,), [3, 2**62])},
        "attr-inf": {"attr_data": npy("<f4", (2,), [INF, 1])}, "labels-fewer": {"labels": npy("<i8", (2,), [0, 1])},
        "labels-negative": {"labels": npy("<i8", (3,), [0, -5, 1])},
        "labels-huge": {"labels": npy("<i8", (3,), [0, 2**62, 1])},
    }  # fmt: skip
    for name, change in changes.items():
        yield name, functools.partial(refused, "g.npz", benchmark(**change), "gnn-benchmark")


OGB = {
    "raw/num-node-list.csv": "4\n", "raw/num-edge-list.csv": "3\n", "raw/edge.csv": "0,1\n1,2\n2,3\n",
    "raw/node-feat.csv": "1,2\n" * 4,
    "raw/node-label.csv": "0\n1\n0\n1\n", "split/time/train.csv": "0\n1\n", "split/time/valid.csv": "2\n",
    "split/time/test.csv": "3\n",
}  # fmt: skip


def ogb():
    changes = {
        **{f"without-{name.split('/')[-1]}": {name: None} for name in OGB if "feat" not in name},
        "nodes-more": {"raw/num-node-list.csv": "5\n"}, "nodes-huge": {"raw/num-node-list.csv": f"{10**18}\n"},
        "nodes-two": {"raw/num-node-list.csv": "4\n4\n"}, "nodes-word": {"raw/num-node-list.csv": "four\n"},
        "edges-more": {"raw/num-edge-list.csv": "4\n"}, "edge-out": {"raw/edge.csv": "0,1\n1,2\n2,4\n"},
        "edge-word": {"raw/edge.csv": "0,1\n1,x\n2,3\n"},
        "edge-negative": {"raw/edge.csv": "0,1\n1,-2\n2,3\n"},
        "features-ragged": {"raw/node-feat.csv": "1,2\n1\n1,2\n1,2\n"},
        "features-fewer": {"raw/node-feat.csv": "1,2\n"}, "features-nan": {"raw/node-feat.csv": "1,nan\n" * 4},
        "labels-fewer": {"raw/node-label.csv": "0\n1\n"}, "labels-half": {"raw/node-label.csv": "0\n1\n0.5\n1\n"},
        "split-out": {"split/time/test.csv": "4\n"}, "split-twice": {"split/time/test.csv": "2\n"},
        "split-word": {"split/time/valid.csv": "two\n"},
        "split-negative": {"split/time/valid.csv": "-2\n"},
    }  # fmt: skip
    for name, change in changes.items():
        yield name, functools.partial(ogb_one, change)
    yield "two-kinds", ogb_two_kinds
    yield "cut", functools.partial(ogb_one, {}, cut="raw/edge.csv")
    yield "cut-label", functools.partial(ogb_one, {}, cut="raw/node-label.csv")
    yield "binary-cut", functools.partial(ogb_binary, "cut")
    yield "binary-empty", functools.partial(ogb_binary, "empty")


def write_ogb(room: Room, change, cut=None):
    for name, text in (OGB | change).items():
        if text is None:
            continue
        path = room / f"ogb/{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = gzip.compress(text.encode(), mtime=0)
        path.write_bytes(data[: len(data) // 2] if name == cut else data)


def ogb_one(change, room: Room, cut=None):
    write_ogb(room, change, cut)
    # Where counts contradict each other, the labels may be what is named.
    refuse_path(room, "ogb", "ogb", any_name=[cut or "node-label.csv", *(name.split("/")[-1] for name in change)])


def ogb_two_kinds(room: Room):
    # A list of triplets makes it a folder with types, which has counts of its own.
    write_ogb(room, {"raw/triplet-type-list.csv": "a,b,c\n"})
    refuse_path(room, "ogb", "ogb", any_name=["num-node-dict.csv"])


def ogb_binary(kind, room: Room):
    write_ogb(room, {})
    data = npz({"edge_index": npy("<i8", (2, 3), [0, 1, 2, 1, 2, 3]), "num_nodes_list": npy("<i8", (1,), [4])})
    (room / "ogb/raw/data.npz").write_bytes(data[: len(data) // 2] if kind == "cut" else b"")
    refuse_path(room, "ogb", "ogb", any_name=["data.npz"])


def archives():
    """Archives that are cut or altered, or are none."""
    good = npz(hetero())
    for share in (0, 0.1, 0.5, 0.9, 0.99):
        yield f"cut-at-{share}", functools.partial(refused, "g.npz", good[: int(share * len(good))], "heterophilous")
    yield "text", functools.partial(refused, "g.npz", "hello\n", "heterophilous")
    yield "npy", functools.partial(refused, "g.npz", npy("<i8", (2,), [1, 2]), "gnn-benchmark")
    yield "other-kind", functools.partial(refused, "g.npz", good, "gnn-benchmark")
    yield "nothing-in-it", functools.partial(refused, "g.npz", npz({}), "heterophilous")
    yield "bomb", bomb
    for k in range(8):
        yield f"flip-{k}", flip


def bomb(room: Room):
    """A few kilobytes that unpack to half a gigabyte: refused for what it is, or read within memory."""
    data = header("<f4", f"(6, {2**24})") + bytes(2**26 * 6)
    (room / "g.npz").write_bytes(npz(hetero(node_features=data), zipfile.ZIP_DEFLATED))
    room.run("import", "heterophilous", "g.npz", "-o", "out", want={0, 2, 3, 4})


def flip(room: Room):
    data = bytearray(npz(hetero(), zipfile.ZIP_DEFLATED))
    for _ in range(1 + room.rng.randrange(4)):
        data[room.rng.randrange(len(data))] ^= 1 << room.rng.randrange(8)
    (room / "g.npz").write_bytes(data)
    if room.run("import", "heterophilous", "g.npz", "-o", "out", want={0, 3}).code == 0:
        # A flipped time or comment of the archive does no harm; the same graph must have come out.
        room.run("info", "--data", "out")
        (room / "good.npz").write_bytes(npz(hetero()))
        room.run("import", "heterophilous", "good.npz", "-o", "good", "--name", "out")
        unchanged(room / "out", fingerprint(room / "good"), "the imported graph")
    else:
        room.absent("out")


def compressed():
    """gzip that is cut, altered or holds something else."""
    kinds = {"edge-list": EDGES, "matrix-market": MATRIX, "metis": METIS}
    for kind, text in kinds.items():
        data = gzip.compress(text.encode(), mtime=0)
        for at in (3, 12, len(data) // 2, len(data) - 6, len(data) - 1):
            yield f"{kind}-cut-at-{at}", functools.partial(refused, "g.gz", data[:at], kind)
        yield f"{kind}-flip", functools.partial(gz_flip, kind, data)
        yield f"{kind}-twice", functools.partial(refused, "g.gz", gzip.compress(data, mtime=0), kind)
    yield "garbage-behind", functools.partial(gz_behind, gzip.compress(EDGES.encode(), mtime=0) + b"garbage")


def gz_flip(kind, data, room: Room):
    data = bytearray(data)
    # Between the header, parts of which mean nothing, and the checksum at the end.
    data[room.rng.randrange(10, len(data))] ^= 1 << room.rng.randrange(8)
    refused("g.gz", bytes(data), kind, room)


def gz_behind(data, room: Room):
    (room / "g.gz").write_bytes(data)
    room.run("import", "edge-list", "g.gz", "-o", "out", want={0, 3})
