"""Graphweft trains graph transformers and graph neural networks on graphs too large for one device.

>>> import graphweft as gw
>>> data = gw.Dataset.generate("sbm:200:4:8:f=16")
>>> model = gw.NodeClassifier(model="gcn", epochs=30, lr=0.01, progress=False).fit(data)
>>> 0.0 <= model.score() <= 1.0
True
"""

from ._data import Dataset, Graph, open
from ._errors import DoesNotFit, GraphweftError, InputError, RankLost, Stopped, UsageError
from ._estimators import NodeClassifier, NodeRegressor
from ._graphweft import VERSION as __version__
from ._launch import launch
from ._progress import Event
from ._runs import Plan, Run, bench, doctor, eval, generate, info, partition, plan, predict, report, runs, train

__all__ = [
    "Dataset",
    "DoesNotFit",
    "Event",
    "Graph",
    "GraphweftError",
    "InputError",
    "NodeClassifier",
    "NodeRegressor",
    "Plan",
    "RankLost",
    "Run",
    "Stopped",
    "UsageError",
    "__version__",
    "bench",
    "doctor",
    "eval",
    "generate",
    "info",
    "launch",
    "open",
    "partition",
    "plan",
    "predict",
    "report",
    "runs",
    "train",
]
