#!/usr/bin/env python3
"""What the live page costs: the same run with and without --report, in turn, and what a single renewal takes.

    benches/report/run.py [--program target/release/graphweft] [--pairs 5] [--epochs 400]

Writes RESULTS.md beside this file. Two runs of the same command differ by more than the page takes, so the share comes
from counting: how often the page was renewed while the run went on, times what a page of the finished run, the largest
of all, takes to make. The times of the runs stand beside it.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
GRAPH = "sbm:20000:5:10:f=64"


def renewals(page, over):
    """How often `page` is replaced until `over` is set: every time it is another file."""
    seen, count = None, 0
    while not over.is_set():
        try:
            found = (page.stat().st_ino, page.stat().st_mtime_ns)
        except FileNotFoundError:
            found = None
        count += found is not None and found != seen
        seen = found or seen
        time.sleep(0.02)
    return count


def train(program, folder, epochs, *more):
    """Seconds of all epochs, and renewals of the page."""
    over, counted = threading.Event(), []
    watch = threading.Thread(target=lambda: counted.append(renewals(folder / "report.html", over)))
    watch.start()
    command = [program, "train", "--graph", GRAPH, "--model", "gcn", "--epochs", str(epochs), "-o", folder, "--json", *more]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    over.set()
    watch.join()
    return json.loads(said)["seconds"], counted[0]


def page_seconds(program, run, folder):
    """The least of several times that a page takes from its files alone, as while training, with the program's start."""
    shutil.copytree(run, folder)
    settings = folder / "config.toml"
    # Without its last line it counts as cut short, and the dataset is not read.
    settings.write_text(settings.read_text().replace("# end\n", ""))
    times = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([program, "report", folder, "-o", folder / "page.html"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times), (folder / "page.html").stat().st_size


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default="target/release/graphweft")
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--epochs", type=int, default=400)
    chosen = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for k in range(chosen.pairs):
            plain, _ = train(chosen.program, scratch / f"plain-{k}", chosen.epochs)
            live, count = train(chosen.program, scratch / f"live-{k}", chosen.epochs, "--report")
            # The last one is written when the run is over, with the dataset.
            rows.append((plain, live, count - 1))
        page, size = page_seconds(chosen.program, scratch / "live-0", scratch / "page")
    shares = [100 * count * page / live for _, live, count in rows]
    lines = ["# What the live page costs", ""]
    lines += [f"At most **{max(shares):.2f} %** of a run (the limit is 0.5 %): {page * 1e3:.1f} ms for a page of {size / 1e3:.0f} kB,",
              "at most every 3 seconds, and never so often that pages take more than 0.4 % of the time.", ""]
    lines += ["| run | without the page, s | with it, s | renewals | share of the page |", "|---|---|---|---|---|"]
    lines += [f"| {k + 1} | {plain:.2f} | {live:.2f} | {count} | {share:.2f} % |"
              for k, ((plain, live, count), share) in enumerate(zip(rows, shares))]
    middle = [statistics.median(row[k] for row in rows) for k in range(2)]
    lines += ["", f"Medians: {middle[0]:.2f} s without, {middle[1]:.2f} s with it; two runs of the same command differ by up to",
              f"{100 * (max(r[0] for r in rows) / min(r[0] for r in rows) - 1):.1f} %. {chosen.epochs} epochs of `gcn` on `{GRAPH}`, {os.cpu_count()} cores.",
              "The share counts renewals times what a page of the whole run takes, with the start of a program.", "",
              "`python3 benches/report/run.py` makes this page.", ""]
    (HERE / "RESULTS.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
