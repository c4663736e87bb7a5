"""Memory that stays after many fits, each of which makes a dataset, trains, predicts and is forgotten.

    python benches/python/fits.py [--fits 1000]

Needs NumPy and the package graphweft. Prints JSON: resident MiB after 20 fits and after all, and at each tenth of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import tempfile
from pathlib import Path

import graphweft as gw
from memory import resident


def fit(folder: Path) -> None:
    data = gw.Dataset.generate("sbm:60:3:4:f=8")
    run = gw.train(data, folder, model="gcn", hidden=8, epochs=2, progress=False)
    run.predictions()
    shutil.rmtree(folder)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--fits", type=int, default=1000)
    fits, root = options.parse_args().fits, Path(tempfile.mkdtemp())
    found = {}
    for k in range(1, fits + 1):
        fit(root / "run")
        if k == 20 or k % max(fits // 10, 1) == 0:
            gc.collect()
            found[k] = round(resident() / 2**20, 2)
    print(json.dumps({"fits": fits, "resident_mib": found}))


if __name__ == "__main__":
    main()
