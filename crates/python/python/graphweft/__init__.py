"""Graphweft trains graph transformers and graph neural networks on graphs too large for one device.

>>> import graphweft as gw
>>> data = gw.Dataset.generate("sbm:200:4:8:f=16")
>>> model = gw.NodeClassifier(model="gcn", epochs=30, lr=0.01, progress=False).fit(data)
>>> 0.0 <= model.score() <= 1.0
True
"""

from ._data import Dataset, Graph, open
from ._errors import DoesNotFit, GraphweftError, InputError, RankLost, Stopped, UsageError
from ._estimators import GraphClassifier, GraphRegressor, LinkPredictor, NodeClassifier, NodeRegressor
from ._graphweft import VERSION as __version__
from ._launch import launch
from ._plans import Plan, calibrate, plan, simulate
from ._progress import Event
from ._runs import (
    Run,
    bench,
    config,
    doctor,
    eval,
    generate,
    import_data,
    info,
    keys,
    partition,
    predict,
    report,
    runs,
    smooth,
    train,
    write_links,
    write_predictions,
)

__all__ = [
    "Dataset",
    "DoesNotFit",
    "Event",
    "Graph",
    "GraphClassifier",
    "GraphRegressor",
    "GraphweftError",
    "InputError",
    "LinkPredictor",
    "NodeClassifier",
    "NodeRegressor",
    "Plan",
    "RankLost",
    "Run",
    "Stopped",
    "UsageError",
    "__version__",
    "bench",
    "calibrate",
    "config",
    "doctor",
    "eval",
    "generate",
    "import_data",
    "info",
    "keys",
    "launch",
    "open",
    "partition",
    "plan",
    "predict",
    "report",
    "runs",
    "simulate",
    "smooth",
    "train",
    "write_links",
    "write_predictions",
]
