#!/usr/bin/env python3
"""Learning from some graphs, predicting on another: run.py DIR [PROGRAM]

DIR has twitch-de, -es, -fr, -ptbr and -ru: users of five languages with the same 3,170 features, of whom one class is to be told. For
each language, GraphSAGE learns from the other four, put together by `graphweft import union` and divided at random 70/20/10 to learn
from, to choose by and to leave alone, and is scored on the language it has never seen; beside it, the same model that learned from that language, and an
MLP of both kinds. Both are scored on the same test nodes, those of the language's five splits, seed k of each on split k. The table goes
to stdout and to RESULTS.md.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SPLITS = {"twitch-de": "public-*", "twitch-es": "random-*", "twitch-fr": "random-*", "twitch-ptbr": "random-*", "twitch-ru": "random-*"}
SETTINGS = ("model.hidden=64 model.layers=2 train.optimizer=adam train.lr=0.01 train.dropout=0.5 train.epochs=100 "
            "train.metric=roc-auc").split()
HEAD = """# Learning from other graphs

| language | sage, of the other four | sage, of its own | mlp, of the other four | mlp, of its own |
|---|---|---|---|---|
"""


DATA, PROGRAM = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "target/release/graphweft"


def said(*command):
    """What the program prints of this."""
    print(*command, flush=True)
    return json.loads(subprocess.check_output([PROGRAM, *command, "--json"], stderr=subprocess.DEVNULL))


def main():
    rows, show = "", lambda s: f"{s['test']:.2f} ± {s['test_std']:.2f}"
    with tempfile.TemporaryDirectory() as folder:
        for name, split in SPLITS.items():
            own, others = f"{DATA}/{name}", f"{folder}/without-{name}"
            said("import", "union", *(f"{DATA}/{other}" for other in SPLITS if other != name), "-o", others)
            cells = []
            for model in ("sage", "mlp"):
                train = ("train", "--model", model, "--seeds", "5", *SETTINGS)
                runs = [f"{folder}/{model}-{name}-{kind}" for kind in ("others", "own")]
                said(*train, "--data", others, "--split", "random:70/20/10", "-o", runs[0])
                said(*train, "--data", own, "--split", split, "-o", runs[1])
                cells += [show(said("eval", runs[0], "--data", own, "--split", split)), show(said("eval", runs[1]))]
            rows += f"| {name} | {' | '.join(cells)} |\n"
    about = ("\nROC-AUC in per cent on the test nodes of five splits of the language, mean ± deviation of five seeds.\n"
             "`benches/inductive/run.py DIR` makes this page.\n")
    settings = " ".join(SETTINGS)
    commands = ("graphweft import union twitch-es twitch-fr twitch-ptbr twitch-ru -o others\n"
                f"graphweft train --data others --split random:70/20/10 --model sage --seeds 5 {settings} -o run\n"
                "graphweft eval run --data twitch-de --split 'public-*'\n")
    page = f"{HEAD}{rows}{about}\n```sh\n{commands}```\n"
    print(page)
    Path(__file__).with_name("RESULTS.md").write_text(page)


main()
