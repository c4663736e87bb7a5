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


class Plan:
    """What every way to spread a run would take, and which is best. In notebooks it is a table."""

    def __init__(self, data: dict[str, Any], redo: Callable[..., str]) -> None:
        self.data = data
        self._redo = redo

    @property
    def choice(self) -> dict[str, Any]:
        """What is chosen."""
        return dict(self.data["choice"])

    @property
    def why(self) -> str:
        """Why, in one sentence."""
        return str(self.data["why"])

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """A record per candidate."""
        return list(self.data["candidates"])

    def plot(self, path: Folder = "plan.svg") -> Path:
        """Draws all candidates as SVG."""
        self._redo(plot=os.fspath(path))
        return Path(path)

    def report(self, path: Folder = "plan.html") -> Path:
        """Writes a page to look at."""
        self._redo(report=os.fspath(path))
        return Path(path)

    def _rows(self) -> list[list[str]]:
        rows = []
        for one in self.candidates:
            time = f"{one['time_ms']:.1f} ms" if one["time_ms"] is not None else "–"
            peak = f"{one['peak_bytes'] / 2**20:.1f} MiB" if one["peak_bytes"] is not None else "–"
            rows.append([str(one["strategy"]), str(one["partition"] or "–"), time, peak, "" if one["feasible"] else str(one["reason"])])
        return rows

    def __repr__(self) -> str:
        return f"Plan({self.choice['strategy']}: {self.why})"

    def _repr_html_(self) -> str:
        import html

        head = "".join(f"<th>{name}</th>" for name in ("strategy", "partition", "epoch", "peak memory", "remark"))
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows())
        return f"<p>{html.escape(self.why)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def plan(
    data: Dataset | Folder,
    *,
    config: Mapping[str, Any] | None = None,
    device: str | None = None,
    **short: Any,
) -> Plan:
    """What every way to spread a run over its ranks would take. Nothing is trained."""
    chosen = settings(config, short)

    def make(**more: Any) -> str:
        return _graphweft.plan(_inner(data), chosen, device=device, **more)

    return Plan(json.loads(make()), make)


def simulate(
    graph: str | Mapping[str, float],
    *,
    config: Mapping[str, Any] | None = None,
    device: str | None = None,
    **short: Any,
) -> Plan:
    """The same for a graph that is only described: ``{"nodes": 2.4e6, "edges": 1.2e8, "features": 100, "classes": 47}``.

    >>> import graphweft as gw
    >>> graph = {"nodes": 1e6, "edges": 2e7, "features": 64, "classes": 10}
    >>> gw.simulate(graph, model="gcn", ranks=4, profile="16-cpu-10g").choice["ranks"]
    4
    """
    chosen = settings(config, short)
    described = graph if isinstance(graph, str) else ",".join(f"{name}={value:g}" for name, value in graph.items())

    def make(**more: Any) -> str:
        return _graphweft.plan(None, chosen, graph=described, device=device, **more)

    return Plan(json.loads(make()), make)


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


def import_data(format: str, path: Folder | None, folder: Folder, **given: Any) -> Dataset:  # noqa: A002 - the program's.
    """Makes a dataset folder of files and opens it. ``format`` is ``"edge-list"``, ``"ogb"``, ``"tu"``,
    ``"matrix-market"``, ``"metis"``, ``"heterophilous"``, ``"gnn-benchmark"``, ``"types-json"``, ``"n-triples"`` or
    ``"links"``. Two take the program's arguments in place of a path: ``"table"`` takes ``nodes=``, ``edges=`` (CSV, TSV
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


def _used(model: Folder | Run, data: Dataset | Folder | None) -> tuple[str, Any]:
    """The folder of a model, and the data that it is used on: a run knows what it was trained on."""
    if isinstance(model, Run):
        return os.fspath(model.folder), _inner(model._data if data is None else data)
    return os.fspath(model), _inner(data)


def partition(
    data: Dataset | Folder, parts: int, *, method: str = "metis", seed: int = 0, store: Folder | None = None
) -> dict[str, Any]:
    """Divides a graph and says what that costs; ``store`` keeps the parts in a folder. A dataset in a folder keeps them itself."""
    kept = None if store is None else os.fspath(store)
    return dict(json.loads(_graphweft.partition(_inner(data), parts, method=method, seed=seed, store=kept)))


def generate(spec: str, folder: Folder, *, seed: int = 0) -> dict[str, Any]:
    """Writes a generated graph as a dataset folder."""
    return dict(json.loads(_graphweft.generate(spec, os.fspath(folder), seed=seed)))


def info(data: Dataset | Folder) -> dict[str, Any]:
    """A graph in numbers."""
    return dict(json.loads(_graphweft.info(_inner(data))))


def bench(
    data: Dataset | Folder,
    op: str = "train",
    *,
    config: Mapping[str, Any] | None = None,
    runs: int = 9,
    features: int | None = None,
    classes: int | None = None,
    device: str | None = None,
    **short: Any,
) -> dict[str, Any]:
    """Times epochs of a model on random features (``op="train"``), or one operation over the edges of a graph:
    ``"attention"`` or ``"spmm"``, which take ``hidden``, ``heads`` and ``dtype``. Medians of so many runs, in ms.

    >>> import graphweft as gw
    >>> gw.bench("rmat:6:4", "spmm", hidden=8, runs=1)["forward_ms"] >= 0
    True
    """
    if op == "train":
        chosen = settings(config, short)
        text = _graphweft.bench_epochs(_inner(data), chosen, features=features, classes=classes, runs=runs, device=device)
        return dict(json.loads(text))
    if op not in ("attention", "spmm"):
        raise UsageError(f"there is no operation {op!r} to time", field="op", remedy="choose train, attention or spmm")
    wrong = sorted(set(short) - {"hidden", "dtype"} - ({"heads"} if op == "attention" else set()))
    if wrong or config or features or classes:
        named = wrong[0] if wrong else "config, features or classes"
        raise UsageError(f"{op} does not take {named}", remedy="give hidden, heads or dtype")
    if short.get("dtype", "f32") not in ("f32", "bf16"):
        raise UsageError(f"dtype is {short['dtype']!r}", field="dtype", remedy="choose f32 or bf16")
    heads = int(short.pop("heads", 8)) if op == "attention" else None
    return dict(json.loads(_graphweft.bench_edges(_inner(data), heads=heads, runs=runs, device=device, **short)))


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
