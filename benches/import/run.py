#!/usr/bin/env python3
"""Times `graphweft import table` on an edge list whose nodes are named by words, and says how much memory it took.

    benches/import/run.py [--program target/release/graphweft] [--rows N] [--ids N] [--folder DIR] [--format csv|parquet]

Writes the table (nine letters an id, drawn evenly, in no order), imports it with two threads, checks how many nodes
and edges came out, and removes both. Parquet needs pyarrow.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

import numpy as np

CHUNK = 1 << 20
DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="target/release/graphweft")
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--ids", type=int, default=10_000_000)
    parser.add_argument("--folder", default=None, help="where the table and the dataset go")
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        table = pathlib.Path(folder) / f"edges.{args.format}"
        nodes = write(table, args)
        command = ["/usr/bin/time", "-v", args.program, "import", "table", "--edges", table]
        command += ["-o", pathlib.Path(folder) / "data", "--threads", "2", "--memory", "1GiB", "--json", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        made = json.loads(done.stdout)
        assert (made["nodes"], made["edges"]) == (nodes, args.rows), made
        found = {key: value for key, value in re.findall(r"^\t(.*): (\S+)$", done.stderr, re.MULTILINE)}
        seconds = 0.0
        for part in found["Elapsed (wall clock) time (h:mm:ss or m:ss)"].split(":"):
            seconds = seconds * 60 + float(part)
        peak = int(found["Maximum resident set size (kbytes)"]) / 2**20
        size = table.stat().st_size / 1e9
        print(f"| {args.format} | {size:.2f} | {args.rows:,} | {nodes:,} | {seconds:.1f} | "
              f"{args.rows / seconds / 1e6:.2f} | {peak:.2f} |")
        shutil.rmtree(pathlib.Path(folder) / "data")


def write(path, args):
    """Writes the table; gives the number of different ids in it."""
    draw, seen = np.random.default_rng(0), np.zeros(args.ids, dtype=bool)
    chunks = []
    for start in range(0, args.rows, CHUNK):
        chunks.append(min(CHUNK, args.rows - start))
    if args.format == "csv":
        with open(path, "wb") as file:
            file.write(b"source,target\n")
            for rows in chunks:
                lines = np.empty((rows, 20), dtype=np.uint8)
                lines[:, 9], lines[:, 19] = ord(","), ord("\n")
                for first in (0, 10):
                    lines[:, first : first + 9] = words(draw, seen, rows)
                file.write(lines.tobytes())
        return int(seen.sum())
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([("source", pyarrow.string()), ("target", pyarrow.string())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for rows in chunks:
            ends = [np.ascontiguousarray(words(draw, seen, rows)).view("S9").ravel().astype(str) for _ in range(2)]
            writer.write_table(pyarrow.table([pyarrow.array(end) for end in ends], schema=schema))
    return int(seen.sum())


def words(draw, seen, rows):
    """Ids of nine letters, a row each."""
    numbers = draw.integers(0, seen.size, rows, dtype=np.uint64)
    seen[numbers] = True
    # An odd factor makes different numbers of different ones, in no order.
    mixed = (numbers * np.uint64(0x9E3779B1)) & np.uint64(0xFFFFFFFF)
    out = np.empty((rows, 9), dtype=np.uint8)
    out[:, 0] = ord("u")
    for place in range(8):
        out[:, 1 + place] = DIGITS[(mixed >> np.uint64(28 - 4 * place)) & np.uint64(15)]
    return out


main()
