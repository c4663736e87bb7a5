"""Every epoch into Weights & Biases. `pip install wandb`; offline: `wandb sync` sends it later."""

from typing import Any

import graphweft as gw
import wandb

settings: dict[str, Any] = {"model": "gcn", "hidden": 16, "lr": 0.01, "epochs": 20}
board = wandb.init(project="graphweft", config=settings, mode="offline")


def log_epoch(event: gw.Event) -> None:
    if event["event"] == "epoch":
        scores = event["scores"] or {}
        numbers = {"loss": event["loss"], "valid": scores.get("valid"), "test": scores.get("test")}
        board.log({name: value for name, value in numbers.items() if value is not None}, step=event["epoch"])


run = gw.train("sbm:200:4:8:f=16", **settings, callbacks=log_epoch)
board.summary["best test"] = run.test
board.finish()
