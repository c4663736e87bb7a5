"""Estimators in the manner of scikit-learn: one for each task."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ._data import Array, Dataset
from ._errors import UsageError
from ._runs import Folder, Run, new_folder, train
from ._settings import SHORT


class _Estimator:
    """What estimators have in common: settings, fitting, and the run that came of it."""

    def __init__(self, folder: Folder | None = None, *, config: dict[str, Any] | None = None, **short: Any) -> None:
        unknown = [name for name in short if name not in SHORT and name not in ("device", "threads", "progress", "callbacks")]
        if unknown:
            raise UsageError(f"there is no argument {unknown[0]!r}; get_params() lists what there is", field=unknown[0])
        self.folder = folder
        self.config = config
        self._short = short
        self.run_: Run | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All settings, those that were not given as None."""
        return {"folder": self.folder, "config": self.config, **dict.fromkeys(SHORT), **self._short}

    def set_params(self, **params: Any) -> Self:
        """Changes settings."""
        for name, value in params.items():
            if name in ("folder", "config"):
                setattr(self, name, value)
            else:
                self._short[name] = value
        return self

    def fit(self, data: Dataset | Folder) -> Self:
        """Trains on the training nodes of the split, and keeps the epoch with the best validation."""
        self.run_ = train(data, self.folder or new_folder(), config=self.config, **self._short)
        return self

    def _fitted(self) -> Run:
        if self.run_ is None:
            raise UsageError("the estimator is not fitted", remedy="call fit(dataset) first")
        return self.run_

    def score(self, data: Dataset | Folder | None = None, split: str | None = None, part: str = "test") -> float:
        """The metric on a part of the split: a share between 0 and 1 where it is counted in per cent."""
        found = self._fitted().evaluate(data, split=split)
        return float(found[part]) / (1.0 if found["metric"] in ("mae", "rmse", "r2") else 100.0)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._short.items())
        return f"{type(self).__name__}({given})"


class NodeClassifier(_Estimator):
    """Predicts classes of nodes, one for each or several.

    >>> import graphweft as gw
    >>> data = gw.Dataset.generate("sbm:120:3:6:f=8")
    >>> model = gw.NodeClassifier(model="gcn", epochs=20, lr=0.01, progress=False).fit(data)
    >>> model.predict(data).shape
    (120,)
    """

    def predict_proba(self, data: Dataset | Folder | None = None) -> Array:
        """Probabilities: a row for every node."""
        return self._fitted().predictions(data, what="probabilities")

    def predict(self, data: Dataset | Folder | None = None) -> Array:
        """The most probable class of every node; where nodes have several labels, a row of 0 and 1."""
        likely = self.predict_proba(data)
        several = not np.allclose(likely.sum(axis=1), 1.0, atol=1e-3)
        return (likely >= 0.5).astype(np.int64) if several else likely.argmax(axis=1)


class NodeRegressor(_Estimator):
    """Predicts numbers of nodes."""

    def predict(self, data: Dataset | Folder | None = None) -> Array:
        """A number for every node, or a row of them."""
        values = self._fitted().predictions(data)
        return values[:, 0] if values.shape[1] == 1 else values
