"""Keyword arguments as settings of the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import UsageError

# The short names of the command line.
SHORT = {
    "model": "model.name",
    "hidden": "model.hidden",
    "layers": "model.layers",
    "heads": "model.heads",
    "epochs": "train.epochs",
    "lr": "train.lr",
    "dropout": "train.dropout",
    "weight_decay": "train.weight_decay",
    "optimizer": "train.optimizer",
    "metric": "train.metric",
    "patience": "train.patience",
    "split": "data.split",
    "symmetrise": "data.symmetrise",
    "self_loops": "data.self_loops",
    "normalise": "data.normalise",
    "ranks": "parallel.ranks",
    "strategy": "parallel.strategy",
    "profile": "parallel.profile",
    "allow_approximate": "parallel.allow_approximate",
    "comm": "parallel.comm",
    "wire": "wire.codec",
    "memory": "isolated.memory",
    "guard": "pipeline.guard",
    "report": "run.report",
    "embedding": "data.embedding",
    "dtype": "compute.dtype",
    "seed": "run.seed",
    "seeds": "run.seeds",
    "checkpoint_every": "run.checkpoint_every",
}


def unknown(name: str, known: Iterable[str]) -> UsageError:
    """About an argument that there is not, with the nearest that there is."""
    import difflib

    near = difflib.get_close_matches(name, list(known), 1)
    hint = f"; did you mean {near[0]}?" if near else "; any key of the program goes into config={...}"
    return UsageError(f"there is no argument {name!r}{hint}", field=name)


def _written(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return repr(value.item() if hasattr(value, "item") else value)


def settings(config: Mapping[str, Any] | None, short: Mapping[str, Any]) -> list[str]:
    """``section.key=value`` for every setting that is given; what is None is not given."""
    given: dict[str, Any] = {}
    for name, value in short.items():
        if value is None:
            continue
        if name not in SHORT:
            raise unknown(name, SHORT)
        given[SHORT[name]] = value
    for key, value in (config or {}).items():
        if "." not in key:
            whole = SHORT.get(key)
            hint = f"; did you mean {whole}?" if whole else "; write section.key, as train.lr"
            raise UsageError(f"config has a key {key!r} without a section{hint}", field=key)
        if key in given:
            raise UsageError(f"{key} is given twice, by its short name and in config", field=key)
        given[key] = value
    return [f"{key}={_written(value)}" for key, value in given.items()]
