"""Trains as one rank of several that `torchrun` has started, which NCCL connects, and says the losses:

torchrun --nproc-per-node 1 crates/python/tests/torchrun_cuda.py
"""

import os

import graphweft as gw


def work() -> None:
    ranks = int(os.environ["WORLD_SIZE"])
    given = {"model": "gt", "hidden": 16, "heads": 2, "epochs": 5, "ranks": ranks, "progress": False}
    run = gw.train("sbm:400:4:8:f=16", config={"parallel.comm": "nccl"}, device="cuda", **given)
    if os.environ["RANK"] == "0":
        print("losses", run.losses, run.plan()["ranks"])


if __name__ == "__main__":
    if "RANK" in os.environ:
        work()
    else:
        gw.launch(work, ranks=1)
