"""Estimators in the manner of scikit-learn: one for each task."""

from __future__ import annotations

import inspect
import os
from typing import Any, Self

import numpy as np

from ._data import Array, Dataset, _array, open
from ._errors import UsageError
from ._runs import Folder, Run, new_folder, train
from ._settings import SHORT, unknown

# Arguments of `train` that are no settings of the program.
_TRAIN = tuple(name for name in inspect.signature(train).parameters if name not in ("data", "folder", "config", "resume", "short"))
_OWN = ("folder", "config")
# Metrics that are no shares.
_NUMBERS = ("mae", "rmse", "r2")


class _Estimator:
    """What estimators have in common: settings, fitting, and the run that came of it."""

    # What it predicts, as `Dataset.task` says it.
    _task = ""

    def __init__(self, folder: Folder | None = None, *, config: dict[str, Any] | None = None, **short: Any) -> None:
        self.folder = folder
        self.config = config
        self._short: dict[str, Any] = {}
        self.run_: Run | None = None
        self.set_params(**short)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All settings, those that were not given as None."""
        return {"folder": self.folder, "config": self.config, **dict.fromkeys((*SHORT, *_TRAIN)), **self._short}

    def set_params(self, **params: Any) -> Self:
        """Changes settings: all that are named, or none."""
        known = (*_OWN, *SHORT, *_TRAIN)
        for name in params:
            if name not in known:
                raise unknown(name, known)
        for name, value in params.items():
            if name in _OWN:
                setattr(self, name, value)
            else:
                self._short[name] = value
        return self

    def fit(self, data: Dataset | Folder) -> Self:
        """Trains on the training part of the split, and keeps the epoch with the best validation."""
        self._check(data)
        self.run_ = train(data, self.folder or new_folder(), config=self.config, **self._short)
        return self

    def _check(self, data: Dataset | Folder) -> None:
        """Data for something else are for another estimator."""
        folder = None if isinstance(data, Dataset) else os.fspath(data)
        # Generated graphs have classes of nodes.
        opened = data if isinstance(data, Dataset) else open(os.fspath(data)) if folder and os.path.isdir(folder) else None
        task = "node-classification" if opened is None else opened.task
        if task != self._task:
            named = next(one.__name__ for one in (NodeClassifier, NodeRegressor, GraphClassifier, GraphRegressor, LinkPredictor) if one._task == task)
            raise UsageError(f"{type(self).__name__}: these data are for {task}", field="data", remedy=f"use {named}")

    def _fitted(self) -> Run:
        if self.run_ is None:
            raise UsageError("the estimator is not fitted", remedy="call fit(dataset) first")
        return self.run_

    def score(self, data: Dataset | Folder | None = None, split: str | None = None, part: str = "test") -> float:
        """The metric on a part of the split: a share between 0 and 1 where it is counted in per cent."""
        if part not in ("train", "valid", "test"):
            raise UsageError(f"there is no part {part!r}", field="part", remedy="choose train, valid or test")
        found = self._fitted().evaluate(data, split=split)
        return float(found[part]) / (1.0 if found["metric"] in _NUMBERS else 100.0)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._short.items())
        return f"{type(self).__name__}({given})"


class _Classifier(_Estimator):
    """Classes, one for each row or several."""

    def predict_proba(self, data: Dataset | Folder | None = None) -> Array:
        """Probabilities: a row for every node, or for every graph."""
        return self._fitted().predictions(data, what="probabilities")

    def predict(self, data: Dataset | Folder | None = None) -> Array:
        """The most probable class of every node, or graph; where they have several labels, a row of 0 and 1."""
        likely = self.predict_proba(data)
        several = not np.allclose(likely.sum(axis=1), 1.0, atol=1e-3)
        return (likely >= 0.5).astype(np.int64) if several else likely.argmax(axis=1)


class _Regressor(_Estimator):
    """Numbers of each row."""

    def predict(self, data: Dataset | Folder | None = None) -> Array:
        """A number for every node, or graph, or a row of them."""
        values = self._fitted().predictions(data)
        return values[:, 0] if values.shape[1] == 1 else values


class NodeClassifier(_Classifier):
    """Predicts classes of nodes, one for each or several.

    >>> import graphweft as gw
    >>> data = gw.Dataset.generate("sbm:120:3:6:f=8")
    >>> model = gw.NodeClassifier(model="gcn", epochs=20, lr=0.01, progress=False).fit(data)
    >>> model.predict(data).shape
    (120,)
    """

    _task = "node-classification"


class NodeRegressor(_Regressor):
    """Predicts numbers of nodes."""

    _task = "node-regression"


class GraphClassifier(_Classifier):
    """Predicts classes of whole graphs, one for each or several; see ``Dataset(graph_ptr=...)``."""

    _task = "graph-classification"


class GraphRegressor(_Regressor):
    """Predicts numbers of whole graphs; see ``Dataset(graph_ptr=...)``."""

    _task = "graph-regression"


class LinkPredictor(_Estimator):
    """Predicts which pairs of nodes are linked; see ``Dataset(links=...)``. A pair scores the product of what the model
    makes of its nodes.
    """

    _task = "link"

    def embed(self, data: Dataset | Folder | None = None) -> Array:
        """What the model makes of every node: a row for each."""
        return self._fitted().predictions(data)

    def decision_function(self, pairs: Any, data: Dataset | Folder | None = None) -> Array:
        """The score of each pair, which is above 0 where a link is likelier than none."""
        wanted = _array(pairs)
        if wanted.ndim != 2 or wanted.shape[1] != 2 or wanted.dtype.kind not in "iu":
            problem = f"pairs have the shape {wanted.shape} and the type {wanted.dtype}"
            raise UsageError(problem, field="pairs", remedy="give a row of two nodes for each pair")
        rows = self.embed(data)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(rows):
            problem = f"pairs are of nodes {wanted.min()} to {wanted.max()}, and the graph has {len(rows)}"
            raise UsageError(problem, field="pairs", remedy="name nodes of the graph, from 0")
        scores: Array = np.einsum("pk,pk->p", rows[wanted[:, 0]], rows[wanted[:, 1]])
        return scores

    def predict_proba(self, pairs: Any, data: Dataset | Folder | None = None) -> Array:
        """How probable a link is: a number for each pair."""
        scores = self.decision_function(pairs, data)
        likely: Array = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return likely

    def predict(self, pairs: Any, data: Dataset | Folder | None = None) -> Array:
        """1 for each pair that is more likely linked than not, and 0 for others."""
        return (self.decision_function(pairs, data) > 0).astype(np.int64)
