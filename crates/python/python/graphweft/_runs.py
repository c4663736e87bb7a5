"""Training, planning, and what became of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _cuda, _graphweft
from ._data import Array, Dataset
from ._data import open as open_folder
from ._errors import UsageError
from ._progress import Event, Watching
from ._settings import settings

Folder = str | os.PathLike[str]
Callback = Callable[[Event], None]


def _inner(data: Dataset | Folder | None) -> Any:
    """What the engine takes: a dataset, or the name of a folder or of a graph to generate."""
    _cuda.load()
    return data._inner if isinstance(data, Dataset) else None if data is None else os.fspath(data)


def _callbacks(callbacks: Callback | Sequence[Callback] | None) -> list[Callback]:
    if callbacks is None:
        return []
    return [callbacks] if callable(callbacks) else list(callbacks)


class Run:
    """A run that was trained, or is in a folder.

    >>> import graphweft as gw, tempfile
    >>> run = gw.train("sbm:60:3:4:f=8", tempfile.mkdtemp() + "/run", epochs=3, progress=False)
    >>> len(run.losses)
    3
    """

    def __init__(self, folder: Folder, report: dict[str, Any] | None = None, data: Dataset | None = None) -> None:
        self.folder = Path(folder)
        #: What the program prints with ``--json``; empty for a run that was opened, not trained.
        self.report_data = report or {}
        self._data = data

    @property
    def losses(self) -> list[float]:
        """The loss of every epoch of the first seed."""
        return [line["loss"] for line in self.metrics()]

    @property
    def metric(self) -> str:
        """What was scored."""
        return str(self._results()[0]["metric"])

    @property
    def valid(self) -> float:
        """The best validation score, mean over seeds."""
        return float(np.mean([result["best"]["valid"] for result in self._results()]))

    @property
    def test(self) -> float:
        """The test score at the best validation, mean over seeds."""
        return float(np.mean([result["best"]["test"] for result in self._results()]))

    def _seeds(self) -> list[Path]:
        """The folders of all seeds; of one seed the folder itself."""
        found = [path for path in self.folder.glob("seed-*") if path.is_dir()]
        return sorted(found, key=lambda path: int(path.name[5:])) or [self.folder]

    def _results(self) -> list[dict[str, Any]]:
        return [json.loads((path / "result.json").read_text()) for path in self._seeds()]

    def metrics(self, seed: int | None = None) -> list[dict[str, Any]]:
        """A record per epoch, as pandas, polars and Arrow take them: ``pandas.DataFrame(run.metrics())``."""
        folder = self._seeds()[0] if seed is None else self.folder / f"seed-{seed}"
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    def plan(self) -> dict[str, Any]:
        """How the work was spread, and what that was predicted to take."""
        return dict(json.loads((self._seeds()[0] / "plan.json").read_text()))

    def resume(self, *, progress: bool | None = None, callbacks: Callback | Sequence[Callback] | None = None, **more: Any) -> Run:
        """Goes on with it, for instance with more ``epochs``."""
        return train(self._data, self.folder, resume=True, progress=progress, callbacks=callbacks, **more)

    def predictions(self, data: Dataset | Folder | None = None, *, what: str = "logits", ranks: int | None = None) -> Array:
        """A row for every node, or graph, in the order of its id: ``logits`` or ``probabilities``."""
        return predict(self, data, what=what, ranks=ranks)

    def evaluate(self, data: Dataset | Folder | None = None, *, split: str | None = None) -> dict[str, Any]:
        """Scores on the data that it was trained on, or on others."""
        return eval(self, data, split=split)

    def report(self, path: Folder = "report.html") -> Path:
        """Writes a page to look at."""
        return report([self.folder], path)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"


def train(
    data: Dataset | Folder | None,
    folder: Folder | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    resume: bool | Folder = False,
    device: str | None = None,
    threads: int | None = None,
    emulate: Folder | None = None,
    progress: bool | None = None,
    callbacks: Callback | Sequence[Callback] | None = None,
    **short: Any,
) -> Run:
    """Trains a model and gives the run.

    Keyword arguments are the command line's short names (``model="gt"``, ``epochs=100``, ``lr=1e-3``, ``ranks=4``);
    ``config={"train.warmup": 5}`` takes every key. Callbacks get a dictionary for every event (``event["event"]`` is
    ``"epoch"``, ``"begin"``, ``"note"`` or ``"progress"``); what one raises ends the run with a checkpoint, as Ctrl-C does.
    ``emulate``, a profile's name or file, times epochs as if ranks were there.
    """
    chosen = settings(config, short)
    going_on = "" if resume is True else None if resume is False else os.fspath(resume)
    with Watching(progress, _callbacks(callbacks)) as watch:
        text = _graphweft.train(
            _inner(data),
            chosen,
            output=None if folder is None else os.fspath(folder),
            resume=going_on,
            device=device,
            threads=threads,
            emulate=None if emulate is None else os.fspath(emulate),
            watch=watch,
        )
    result = json.loads(text)
    return Run(result["run"] if "run" in result else folder or ".", result, data if isinstance(data, Dataset) else None)


def config(changed: Mapping[str, Any] | None = None, **short: Any) -> dict[str, Any]:
    """The whole configuration of a run, section by section: what is given, and everything else as it is.

    >>> import graphweft as gw
    >>> gw.config(model="gcn", epochs=3)["train"]["epochs"]
    3
    """
    import tomllib

    return tomllib.loads(_graphweft.config(settings(changed, short)))


def keys(name: str | None = None) -> list[dict[str, Any]]:
    """A record per setting, or those of a name or section: what it can be, its default, what it means.

    >>> import graphweft as gw
    >>> gw.keys("train.lr")[0]["default"]
    '0.001'
    """
    fields = ("name", "kind", "default", "meaning", "models")
    return [dict(zip(fields, key, strict=True)) for key in _graphweft.keys(name)]


def smooth(
    model: Folder | Run,
    data: Dataset | Folder | None = None,
    *,
    method: str = "correct-and-smooth",
    correct: float | None = None,
    smooth: float | None = None,
    steps: int | None = None,
    weights: str = "symmetric",
    labels: str = "train",
    output: Folder | None = None,
    split: str | None = None,
    ranks: int | None = None,
) -> dict[str, Any]:
    """What a run says of nodes, spread over the graph: ``method`` is ``"correct-and-smooth"`` or
    ``"label-propagation"``, ``weights`` ``"symmetric"``, ``"row"`` or ``"column"``, ``labels`` ``"train"`` or
    ``"train-and-valid"``. Scores before and after; predictions are written to ``output``, or ``smooth`` inside the run.
    """
    given = {"method": method, "correct": correct, "smooth": smooth, "steps": steps, "weights": weights, "labels": labels}
    how = [(name, str(value)) for name, value in given.items() if value is not None]
    folder, inner = _used(model, data)
    to = None if output is None else os.fspath(output)
    return dict(json.loads(_graphweft.smooth(folder, how, inner, output=to, split=split, ranks=ranks)))


def import_data(format: str, path: Folder | Sequence[Folder] | None, folder: Folder, **given: Any) -> Dataset:  # noqa: A002 - the program's.
    """Makes a dataset folder of files and opens it. ``format`` is one that ``graphweft import --help`` lists, such as
    ``"edge-list"``, ``"ogb"``, ``"n-triples"``, ``"triples"`` or ``"links"``; ``"union"``, of a list of dataset
    folders. Two take the program's arguments in place of a path: ``"table"`` takes ``nodes=`` and ``edges=`` (CSV, TSV
    or Parquet; one or a list, with types as in ``"paper=papers.csv"`` and ``"author:writes:paper=writes.csv"``),
    ``column=`` and ``schema=``; ``"arrays"`` takes ``edges=``, ``features=``, ``labels=``, ``nodes=``, ``splits=``.
    Edges are sorted in bounded memory: the graph may be larger than that.

    >>> import graphweft as gw, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "edges.txt").write_text("0 1\\n1 2\\n")
    >>> gw.import_data("edge-list", folder / "edges.txt", folder / "data", symmetrise=True).num_edges
    4
    """

    def words(value: Any) -> list[str]:
        if value is True:
            return []
        values = value if isinstance(value, (list, tuple)) else [value]
        return [os.fspath(one) if isinstance(one, os.PathLike) else str(one) for one in values]

    named = {name: words(value) for name, value in given.items() if value is not None and value is not False}
    if path is not None:
        named["path"] = words(path)
    _graphweft.import_data(format, os.fspath(folder), named)
    return open_folder(folder)


def eval(  # noqa: A001 - the program's verb.
    model: Folder | Run, data: Dataset | Folder | None = None, *, split: str | None = None, ranks: int | None = None
) -> dict[str, Any]:
    """Scores of a trained model: a run's folder, a checkpoint or a file of parameters."""
    folder, inner = _used(model, data)
    return dict(json.loads(_graphweft.evaluate(folder, inner, split=split, ranks=ranks)))


def predict(
    model: Folder | Run, data: Dataset | Folder | None = None, *, what: str = "logits", ranks: int | None = None
) -> Array:
    """What a trained model says of every node, or of every graph where there are many."""
    folder, inner = _used(model, data)
    return _graphweft.predict(folder, inner, what=what, ranks=ranks)


def write_predictions(
    model: Folder | Run, file: Folder, data: Dataset | Folder | None = None, *, what: str | None = None, ranks: int | None = None
) -> dict[str, Any]:
    """The same into a file: a NumPy array, or CSV with the ids of your files if its name ends so. ``what`` is
    ``"logits"``, ``"probabilities"``, ``"values"`` or ``"labels"``.
    """
    return dict(_written(model, file, data, {"what": what}, ranks))


def write_links(
    model: Folder | Run,
    file: Folder,
    data: Dataset | Folder | None = None,
    *,
    pairs: Folder | None = None,
    top: int | None = None,
    of: Folder | None = None,
    ranks: int | None = None,
) -> int:
    """By a model of links, CSV of ``source,target,score`` in the ids of your files: of the ``pairs`` in a file, two ids in
    each line; or the ``top`` partners of every node, or of those in the file ``of``. How many lines there are.
    """
    if (pairs is None) == (top is None) or (pairs is not None and of is not None):
        raise UsageError("what is to be scored is not clear", field="pairs", remedy="give pairs=, or top= and perhaps of=")
    return int(_written(model, file, data, {"pairs": pairs, "top": top, "of": of}, ranks))


def _written(model: Folder | Run, file: Folder, data: Dataset | Folder | None, how: dict[str, Any], ranks: int | None) -> Any:
    folder, inner = _used(model, data)
    given = {name: str(value) for name, value in how.items() if value is not None}
    return json.loads(_graphweft.write(folder, os.fspath(file), given, inner, ranks=ranks))


def _used(model: Folder | Run, data: Dataset | Folder | None) -> tuple[str, Any]:
    """The folder of a model, and the data that it is used on: a run knows what it was trained on."""
    if isinstance(model, Run):
        return os.fspath(model.folder), _inner(model._data if data is None else data)
    return os.fspath(model), _inner(data)


def partition(
    data: Dataset | Folder,
    parts: int,
    *,
    method: str = "metis",
    balance: str = "nodes",
    order: str = "none",
    seed: int = 0,
    store: Folder | None = None,
    replace: bool = False,
    chunks: bool = False,
    memory: int | None = None,
) -> dict[str, Any]:
    """Divides a graph and says what that costs; ``store`` keeps the parts in a folder. A dataset in a folder keeps them
    itself. ``method`` is ``"contiguous"``, ``"random"``, ``"metis"`` or ``"streaming"``, ``balance`` ``"nodes"``,
    ``"edges"`` or ``"both"``, ``order`` ``"none"``, ``"bfs"``, ``"rcm"`` or ``"cluster"``. With ``chunks`` the graph and
    its features are stored by part, for training with ``strategy="isolated"``; ``memory`` bytes are used to sort in.
    """
    if chunks and (store is not None or replace) or memory is not None and not chunks:
        raise UsageError("chunks are stored in the dataset folder", field="chunks", remedy="leave out store= and replace=; memory= is for chunks")
    kept = None if store is None else os.fspath(store)
    how = {"method": method, "balance": balance, "order": order}
    how |= {"existing": "replace"} if replace else {"chunks": "" if memory is None else str(memory)} if chunks else {}
    return dict(json.loads(_graphweft.partition(_inner(data), parts, how=how, seed=seed, store=kept)))


def generate(spec: str, folder: Folder, *, seed: int = 0) -> dict[str, Any]:
    """Writes a generated graph as a dataset folder."""
    return dict(json.loads(_graphweft.generate(spec, os.fspath(folder), seed=seed)))


def info(data: Dataset | Folder, *, partitions: bool = False, plot: Folder | None = None, seed: int = 0) -> dict[str, Any]:
    """A graph in numbers; with ``partitions`` also what every partitioner makes of it. ``plot`` is a picture, as SVG."""
    drawn = None if plot is None else os.fspath(plot)
    return dict(json.loads(_graphweft.info(_inner(data), partitions=seed if partitions else None, plot=drawn)))


# The sizes that each operation takes.
_SIZES = {
    "attention": ("hidden", "heads", "edge_features", "edge_categories"),
    "spmm": ("hidden",),
    "layer": ("hidden", "heads", "layers"),
    "gemm": ("hidden", "rows", "out"),
}


def bench(
    data: Dataset | Folder | None,
    op: str = "train",
    *,
    config: Mapping[str, Any] | None = None,
    runs: int = 9,
    features: int | None = None,
    classes: int | None = None,
    device: str | None = None,
    **short: Any,
) -> dict[str, Any]:
    """Times epochs of a model on random features (``op="train"``), or one operation: ``"attention"`` or ``"spmm"`` over the
    edges of a graph, ``"layer"``, of a graph transformer, or ``"gemm"``, the products of a linear layer, for which data
    are None. They take ``dtype`` and sizes, such as ``hidden`` and ``heads``. Medians of so many runs, in ms.

    >>> import graphweft as gw
    >>> gw.bench("rmat:6:4", "spmm", hidden=8, runs=1)["forward_ms"] >= 0
    True
    """
    if op == "train":
        if data is None:
            raise UsageError("epochs are of a graph", field="data", remedy="name one to generate, such as rmat:14:16")
        chosen = settings(config, short)
        text = _graphweft.bench_epochs(_inner(data), chosen, features=features, classes=classes, runs=runs, device=device)
        return dict(json.loads(text))
    if op not in _SIZES:
        raise UsageError(f"there is no operation {op!r} to time", field="op", remedy=f"choose train, {', '.join(_SIZES)}")
    if (data is None) != (op == "gemm"):
        raise UsageError(f"{op} needs {'no graph' if op == 'gemm' else 'a graph'}", field="data", remedy="see help(graphweft.bench)")
    wrong = sorted(set(short) - {"dtype", *_SIZES[op]})
    if wrong or config or features or classes:
        named = wrong[0] if wrong else "config, features or classes"
        raise UsageError(f"{op} does not take {named}", remedy=f"give {', '.join((*_SIZES[op], 'dtype'))}")
    dtype = short.pop("dtype", "f32")
    if dtype not in ("f32", "bf16"):
        raise UsageError(f"dtype is {dtype!r}", field="dtype", remedy="choose f32 or bf16")
    return dict(json.loads(_graphweft.bench_op(op, _inner(data), sizes=short, runs=runs, dtype=dtype, device=device)))


def doctor() -> dict[str, Any]:
    """What this build and this machine can do."""
    _cuda.load()
    return dict(json.loads(_graphweft.doctor()))


def runs(folder: Folder = "runs") -> list[dict[str, Any]]:
    """A record per run below a folder."""
    return list(json.loads(_graphweft.runs(os.fspath(folder))))


def report(folders: Sequence[Folder | Run] | Folder | Run, path: Folder = "report.html") -> Path:
    """Writes a page that shows a run, or several beside each other."""
    several = [folders] if isinstance(folders, (str, os.PathLike, Run)) else list(folders)
    _graphweft.report([os.fspath(one.folder if isinstance(one, Run) else one) for one in several], os.fspath(path))
    return Path(path)


def new_folder() -> str:
    """A folder for a run that nobody named."""
    import tempfile

    return os.path.join(tempfile.mkdtemp(prefix="graphweft-"), "run")
