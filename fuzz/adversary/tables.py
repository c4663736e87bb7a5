"""`import table` and `export` with files that are wrong, or do not belong together: exit 3, or 2 where the request
itself is; nothing is made."""

import functools
import random
from pathlib import Path

from .room import Case, Room, fingerprint, unchanged

PAPERS = "id,year,words,topic,label,split\np1,1990,[1 2],a,0,train\np2,1991,[3 4],b,1,valid\np3,1992,[5 6],a,1,test\n"
AUTHORS = "name,papers\nann,2\nbob,1\n"
WRITES = "author,paper,place\nann,p1,1\nann,p3,2\nbob,p2,1\n"
CITES = "from,to\np1,p2\np3,p1\n"
GOOD = {"papers.csv": PAPERS, "authors.csv": AUTHORS, "writes.csv": WRITES, "cites.csv": CITES}
TYPED = ["--nodes", "paper=papers.csv", "--nodes", "author=authors.csv", "--column", "authors.name=id",
         "--edges", "author:writes:paper=writes.csv", "--edges", "paper:cites:paper=cites.csv"]
PLAIN = ["--nodes", "papers.csv", "--edges", "cites.csv"]
# Tables in place of good ones.
WRONG = {
    "missing-column": ("papers.csv", PAPERS + "p4,1993\n"), "more-columns": ("papers.csv", PAPERS + "p4,1,[1 2],a,0,test,9\n"),
    "type-mismatch": ("papers.csv", PAPERS.replace("1991", "soon")), "nan": ("papers.csv", PAPERS.replace("1991", "nan")),
    "infinite": ("papers.csv", PAPERS.replace("1991", "1e999")), "empty-number": ("papers.csv", PAPERS.replace("1991", "")),
    "duplicate-id": ("papers.csv", PAPERS.replace("p2", "p1")), "empty-id": ("papers.csv", PAPERS.replace("p2", "")),
    "ragged-list": ("papers.csv", PAPERS.replace("[3 4]", "[3 4 5]")),
    "word-in-list": ("papers.csv", PAPERS.replace("[3 4]", "[3 x]")),
    "split-word": ("papers.csv", PAPERS.replace("valid", "holdout")),
    "open-quote": ("papers.csv", PAPERS.replace("[3 4]", '"[3 4]')),
    "same-name": ("papers.csv", PAPERS.replace("topic", "year")), "no-rows": ("papers.csv", "id,x\n"),
    "empty": ("papers.csv", ""), "bytes": ("papers.csv", bytes(range(256))),
    "latin": ("papers.csv", PAPERS.replace("year", "é").encode("latin-1")),
    "unknown-source": ("cites.csv", CITES + "p9,p1\n"), "unknown-destination": ("cites.csv", CITES + "p1,p9\n"),
    "one-end": ("cites.csv", "from\np1\n"), "empty-end": ("cites.csv", CITES + "p1,\n"),
    "long-id": ("cites.csv", CITES + "p1," + "9" * 10_000 + "\n"),
    "gzip-cut": ("cites.csv", b"\x1f\x8b\x08\0\0\0\0\0"), "zstd-cut": ("cites.csv", b"\x28\xb5\x2f\xfd\x04\x58"),
    "parquet-cut": ("cites.csv", b"PAR1\x15\x04"), "parquet-empty": ("cites.csv", b"PAR1PAR1"),
    "parquet-footer": ("cites.csv", b"PAR1" + b"\xff" * 16 + b"\xff\xff\xff\x7fPAR1"),
}  # fmt: skip
LINES = {
    "no-edges": (["--nodes", "papers.csv"], {2}), "nowhere": (["--edges", "nowhere.csv"], {3}), "folder": (["--edges", "."], {3}),
    "role": ([*PLAIN, "--column", "year=nothing"], {2}), "no-role": ([*PLAIN, "--column", "year"], {2}),
    "no-column": ([*PLAIN, "--column", "nope=skip"], {2}), "two-sources": ([*PLAIN, "--column", "to=source", "--column", "from=source"], {3}),
    "label-of-edges": ([*PLAIN, "--column", "cites.from=label"], {3}), "half-typed": ([*TYPED, "--nodes", "papers.csv"], {2}),
    "between-what": (["--nodes", "paper=papers.csv", "--nodes", "author=authors.csv", "--edges", "cites.csv"], {2}),
    "three-colons": ([*PLAIN, "--edges", "a:b=cites.csv"], {2}), "name-of-type": ([*PLAIN, "--edges", "a b:c:d=cites.csv"], {2}),
    "many-rows": (["--nodes", f"paper={10**12}", "--edges", "cites.csv"], {2, 3, 4}),
    "regression": (["--nodes", "authors.csv", "--edges", "cites.csv", "--task", "node-regression"], {2, 3}),
    "schema-text": (["--schema", "papers.csv"], {3}), "schema-key": (["--schema", "key.toml"], {3}),
    "schema-empty": (["--schema", "empty.toml"], {2, 3}), "schema-no-file": (["--schema", "file.toml"], {3}),
    "loops-of-types": ([*TYPED, "--self-loops", "add"], {2}), "merge-types": ([*TYPED, "--merge-parallel"], {2}),
}  # fmt: skip
SCHEMAS = {"key.toml": '[[edges]]\nfile = "cites.csv"\nsorce = "from"\n', "empty.toml": "\n",
           "file.toml": '[[edges]]\nfile = "none.csv"\n'}
FORMATS = ("csv", "tsv", "parquet")
CORPUS = Path(__file__).resolve().parents[1] / "corpus/parquet"


def cases(seed: int) -> list[Case]:
    found = [Case(f"tables/back/{name}/{to}", functools.partial(back, args, to)) for to in FORMATS
             for name, args in (("plain", PLAIN), ("typed", TYPED))]
    found += [Case(f"tables/wrong/{name}", functools.partial(wrong, *what)) for name, what in WRONG.items()]
    found += [Case(f"tables/line/{name}", functools.partial(line, *what)) for name, what in LINES.items()]
    found += [Case(f"tables/parquet/{k}", functools.partial(bent, seed + k)) for k in range(12)]
    return found + [Case("tables/export/exists", exists), Case("tables/export/one-way", one_way)]


def furnish(room: Room, changes):
    (room / "in").mkdir()
    for name, data in (GOOD | SCHEMAS | changes).items():
        (room / "in" / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def placed(args):
    """The same words with their files in the folder that has them."""
    parts = [a.rpartition("=") for a in args]
    return [f"{before}{equals}in/{file}" if file.endswith((".csv", ".toml")) or file == "." else a
            for a, (before, equals, file) in zip(args, parts)]


def run(room: Room, args, **how):
    before = fingerprint(room / "in")
    ended = room.run("import", "table", *placed(args), "-o", "out", **how)
    unchanged(room / "in", before, "the input")
    if ended.code != 0:
        room.absent("out")
    return ended


def wrong(name, data, room: Room):
    furnish(room, {name: data})
    run(room, PLAIN, want=3, any_name=[name])


def line(args, want, room: Room):
    furnish(room, {})
    run(room, args, want=want)


def back(args, to, room: Room):
    """What is exported and imported again is exported as the same bytes."""
    furnish(room, {})
    run(room, args)
    room.run("train", "--data", "out", "--model", "gcn", "train.epochs=2", "model.hidden=8", "-o", "run")
    room.run("export", "--data", "out", "--to", to, "-o", "first")
    room.run("import", "table", "--schema", "first/schema.toml", "-o", "again")
    room.run("export", "--data", "again", "--to", to, "-o", "second")
    for file in sorted((room / "first").iterdir()):
        assert file.read_bytes() == (room / "second" / file.name).read_bytes(), file.name


def bent(seed, room: Room):
    """A Parquet file with bytes that were changed is read, or refused by its name."""
    draw = random.Random(seed)
    data = bytearray((CORPUS / "plain").read_bytes())
    schema = int.from_bytes(data[1:3], "little")
    data = data[3 + schema :]
    for _ in range(draw.randint(1, 8)):
        data[draw.randrange(4, len(data))] = draw.randrange(256)
    furnish(room, {"bent.csv": bytes(data)})
    run(room, ["--edges", "bent.csv"], want={0, 3})


def exists(room: Room):
    furnish(room, {})
    run(room, PLAIN)
    before = fingerprint(room / "out")
    for to in (*FORMATS, "npz", "metis"):
        room.run("export", "--data", "out", "--to", to, "-o", "out", want=2)
    unchanged(room / "out", before, "the folder")


def one_way(room: Room):
    furnish(room, {})
    run(room, PLAIN)
    room.run("export", "--data", "out", "--to", "metis", "-o", "graph", want=2)
    room.absent("graph")
