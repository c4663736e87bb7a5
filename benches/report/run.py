#!/usr/bin/env python3
"""What the live page costs a run, counted by the run itself, and what its last page takes on top of that.

    benches/report/run.py [--program target/release/graphweft] [--pairs 3] [--seconds 30]

Writes RESULTS.md beside this file. Two runs of the same command differ by more than pages take, so the share is not the
difference of two runs: a run with --report times each of its pages and says in the next one what all of them took
("About this page"). The last page, with the dataset, is not counted there; here it counts with what `graphweft report`
takes for the finished run, which opens the dataset again and starts a program. That is more than the run takes for it.
Runs with and without a page stand beside that, in turn.
"""

import argparse
import base64
import gzip
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT = 0.5
RUNS = [("small graph, short epochs", ["--graph", "sbm:2000:5:10:f=32", "--model", "gcn"]),
        ("larger graph", ["--graph", "sbm:20000:5:10:f=64", "--model", "gcn"]),
        ("two ranks", ["--graph", "sbm:5000:5:10:f=32", "--ranks", "2"])]


def data_of(page):
    """What a page has inside."""
    packed = re.search(r'<script type="text/plain" id="data">([^<]*)', page.read_text())[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def train(program, folder, arguments, *more):
    """Seconds of a run, with everything."""
    start = time.perf_counter()
    subprocess.run([program, "train", *arguments, "-o", folder, "--quiet", *more], check=True, capture_output=True)
    return time.perf_counter() - start


def epochs_in(program, folder, arguments, seconds):
    """How many epochs take about so long."""
    train(program, folder, [*arguments, "--epochs", "30"])
    lines = map(json.loads, (folder / "times.jsonl").read_text().splitlines())
    each = statistics.median(line["learn_ms"] + line.get("evaluate_ms", 0) for line in lines)
    return max(2, round(1e3 * seconds / each))


def last_page_seconds(program, run):
    """The least of several times that the page of a finished run takes, with the program's start."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([program, "report", run, "-o", run / "again.html"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def measured(program, scratch, arguments, pairs):
    """Medians of a kind of run: seconds without and with pages, pages, what they took, and the last one."""
    rows = []
    for k in range(pairs):
        plain = train(program, scratch / f"plain-{k}", arguments)
        run = scratch / f"live-{k}"
        live = train(program, run, arguments, "--report")
        said = data_of(run / "report.html").get("renewals") or {"pages": 0, "spent_ms": 0}
        rows.append((plain, live, said["pages"], said["spent_ms"] / 1e3, last_page_seconds(program, run)))
    return [statistics.median(column) for column in zip(*rows)]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default="target/release/graphweft")
    options.add_argument("--pairs", type=int, default=3)
    options.add_argument("--seconds", type=float, default=30)
    chosen = options.parse_args()
    table, shares, least = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for k, (name, arguments) in enumerate(RUNS):
            folder = Path(scratch) / str(k)
            folder.mkdir()
            count = epochs_in(chosen.program, folder / "short", arguments, chosen.seconds)
            epochs = ["--epochs", str(count), "train.patience=0"]
            plain, live, pages, spent, last = measured(chosen.program, folder, arguments + epochs, chosen.pairs)
            share = 100 * (spent + last) / live
            shares.append(share)
            # While a run goes on pages take at most 0.4 % of it; the last one has the rest of the limit.
            least.append(last / ((LIMIT - 0.4) / 100))
            each = f"{1e3 * spent / pages:.1f}" if pages else "–"
            cells = [name, f"{plain:.1f}", f"{live:.1f}", f"{pages:.0f}", each, f"{1e3 * last:.0f}", f"{share:.2f} %"]
            table.append(f"| {' | '.join(cells)} |")
    lines = ["# What the live page costs", ""]
    lines += ["| run | without pages, s | with, s | pages | ms a page | last page, ms | share of the run |",
              "|---|---|---|---|---|---|---|", *table, ""]
    lines += [f"At most **{max(shares):.2f} %** of these runs; the limit is {LIMIT} %. The next page waits until it and all before it are",
              "paid for with 0.4 % of the time, 3 seconds at least, and the first one waits as well. The last page comes when the",
              f"run is over, whatever it costs: of runs like these, those of {max(least):.0f} s and more are below the limit for sure. A run",
              "of less than 3 s has the last page alone.", ""]
    lines += [f"Medians of {chosen.pairs} on {os.cpu_count()} cores. The share is of pages as the run has timed them, and of the last page as",
              "`graphweft report` makes it, which opens the dataset again: more than the run takes for it. Runs of the same command",
              "differ by more than pages take, so the first two columns do not tell what they cost.", "",
              "`python3 benches/report/run.py` makes this page.", ""]
    (HERE / "RESULTS.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
