"""What a run would take, before it is made."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _cuda, _graphweft
from ._data import Dataset
from ._runs import Folder, _inner
from ._settings import settings


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
        return self._drawn("plot", path)

    def plot_scaling(self, path: Folder = "scaling.svg") -> Path:
        """Draws, for a graph that is only described, the time of an epoch by the number of ranks as SVG."""
        return self._drawn("scaling", path)

    def report(self, path: Folder = "plan.html") -> Path:
        """Writes a page to look at."""
        return self._drawn("report", path)

    def _drawn(self, what: str, path: Folder) -> Path:
        self._redo(to={what: os.fspath(path)})
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
    features: int | None = None,
    classes: int | None = None,
    device: str | None = None,
    **short: Any,
) -> Plan:
    """What every way to spread a run over its ranks would take. Nothing is trained. ``features`` and ``classes`` are for a
    graph that has none.
    """
    chosen = settings(config, short)

    def make(**more: Any) -> str:
        return _graphweft.plan(_inner(data), chosen, device=device, features=features, classes=classes, **more)

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
    >>> gw.simulate(graph, model="gcn", ranks=4, profile="16-cpu-10g").data["ranks"]
    4
    """
    chosen = settings(config, short)
    described = graph if isinstance(graph, str) else ",".join(f"{name}={value:g}" for name, value in graph.items())

    def make(**more: Any) -> str:
        return _graphweft.plan(None, chosen, graph=described, device=device, **more)

    return Plan(json.loads(make()), make)


def calibrate(
    ranks: int | None = None,
    *,
    file: Folder | None = None,
    replace: bool = False,
    config: Mapping[str, Any] | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Measures this machine for the plans that follow on as many ranks, which takes up to a minute. ``file`` is a profile
    of it to write, for ``profile=`` elsewhere.
    """
    chosen = settings(config, {"ranks": ranks})
    to = None if file is None else os.fspath(file)
    _cuda.load()
    existing = "replace" if replace else "keep"
    return dict(json.loads(_graphweft.calibrate(chosen, device=device, file=to, existing=existing)))
