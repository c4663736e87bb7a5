"""Optuna looks for a learning rate and gives up trials that do badly. `pip install optuna`."""

import graphweft as gw
import optuna


def objective(trial: optuna.Trial) -> float:
    def report(event: gw.Event) -> None:
        if event["event"] == "epoch" and event["scores"]:
            trial.report(event["scores"]["valid"], event["epoch"])
            if trial.should_prune():
                raise optuna.TrialPruned

    rate = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    return gw.train("sbm:200:4:8:f=16", model="gcn", hidden=16, lr=rate, epochs=20, callbacks=report).valid


study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
study.optimize(objective, n_trials=6)
print(study.best_params)
