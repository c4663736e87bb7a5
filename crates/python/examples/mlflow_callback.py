"""Every epoch into MLflow. `pip install mlflow`; without a server it writes a file here."""

from typing import Any

import graphweft as gw
import mlflow


def log_epoch(event: gw.Event) -> None:
    if event["event"] == "epoch":
        mlflow.log_metrics({"loss": event["loss"], "lr": event["lr"]}, step=event["epoch"])
        if event["scores"]:
            mlflow.log_metrics({"valid": event["scores"]["valid"]}, step=event["epoch"])


mlflow.set_tracking_uri("sqlite:///mlflow.db")
settings: dict[str, Any] = {"model": "gcn", "hidden": 16, "lr": 0.01, "epochs": 20}
with mlflow.start_run():
    mlflow.log_params(settings)
    run = gw.train("sbm:200:4:8:f=16", **settings, callbacks=log_epoch)
    mlflow.log_metric("test", run.test)
