"""What people read is run: the README's Python, the pages of docs/python, notebooks, and the examples of callbacks."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import graphweft as gw
import numpy as np
import pytest

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent.parent
PAGES = sorted((ROOT / "docs/python").glob("*.md"))


def needs(text: str) -> None:
    """Skips what imports a library that is not here."""
    for library in ("torch", "torch_geometric"):
        if re.search(rf"import {library}\b|graphweft\.{library}\b", text) and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_say_what_happens(page: Path, somewhere: Path) -> None:
    text = page.read_text()
    needs(text)
    found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS, verbose=False)
    assert found.failed == 0 and (found.attempted > 0 or page.stem == "README")


class PygData:
    """What the README calls `pyg_data`, without PyTorch Geometric."""

    def __init__(self) -> None:
        made = gw.Dataset.generate("sbm:120:3:6:f=8")
        graph = made.graph
        targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr.astype(np.int64)))
        self.edge_index = np.stack([graph.indices.astype(np.int64), targets])
        self.x, self.y, self.num_nodes = made.x, made.y, graph.num_nodes
        for name, ids in zip(("train_mask", "val_mask", "test_mask"), next(iter(made.splits.values())), strict=True):
            setattr(self, name, np.isin(np.arange(graph.num_nodes), ids))


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (PACKAGE / "README.md").read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("number", range(len(blocks())))
def test_the_readme_runs(number: int, somewhere: Path) -> None:
    text = blocks()[number]
    needs(text)
    given: dict[str, Any] = {"pyg_data": PygData()}
    if "torch" in text:
        import torch

        n = 50
        index = torch.randint(0, n, (2, 300), generator=torch.Generator().manual_seed(0))
        rows = [torch.randn(n, 8, 16) for _ in range(3)]
        given = {"edge_index": index, "n": n, "x": torch.randn(n, 64), **dict(zip("qkv", rows, strict=True))}
        given["theirs"] = types.SimpleNamespace(state_dict=lambda: given["gt"].TransformerConv(64, 16, heads=8).state_dict())
    exec(compile(text.replace("epochs=200", "epochs=3"), "README.md", "exec"), given)


@pytest.mark.parametrize("notebook", sorted((PACKAGE / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(notebook: Path, somewhere: Path) -> None:
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    needs("\n".join(sources))
    assert all(not cell["outputs"] for cell in cells), "outputs are made, not kept"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(sources):
        exec(compile(source, f"{notebook.name}, cell {number}", "exec"), namespace)


class Tracker(types.ModuleType):
    """Stands for a library that is not installed: it takes every call and remembers it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        part = Tracker(f"{self.__name__}.{name}")
        part.calls = self.calls
        return part

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls.append((self.__name__, given, named))
        return self

    def __setitem__(self, name: str, value: Any) -> None:
        self.calls.append((f"{self.__name__}[]", (name, value), {}))

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("library", "example", "called"),
    [
        ("mlflow", "mlflow_callback", "mlflow.log_metrics"),
        ("wandb", "wandb_callback", "wandb.init.log"),
    ],
)
def test_callbacks_of_the_examples(
    library: str, example: str, called: str, somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the library itself where it is installed (it then writes files here), else with one that only listens."""
    file = PACKAGE / f"examples/{example}.py"
    assert len(file.read_text().splitlines()) <= 25
    tracker = None
    if importlib.util.find_spec(library) is None:
        tracker = Tracker(library)
        monkeypatch.setitem(sys.modules, library, tracker)
    run = runpy.run_path(str(file))["run"]
    assert len(run.losses) == 20
    if tracker is None:
        assert any(somewhere.iterdir()), f"{library} has written something"
        return
    told = [(given, named) for name, given, named in tracker.calls if name == called and "loss" in given[0]]
    assert [given[0]["loss"] for given, _ in told] == run.losses
    assert [named["step"] for _, named in told] == list(range(1, 21))


def test_optuna_prunes(somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that is pruned ends its run, and the study goes on."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError:
        optuna = fake_optuna()
        monkeypatch.setitem(sys.modules, "optuna", optuna)
    study = runpy.run_path(str(PACKAGE / "examples/optuna_pruning.py"))["study"]
    assert len(study.trials) == 6 and study.best_params["lr"] > 0
    assert all(1 <= len(trial.intermediate_values) <= 20 for trial in study.trials)


def fake_optuna() -> types.ModuleType:
    """As much of Optuna as the example uses: rates in turn, and every third trial pruned at epoch 3."""
    module: Any = types.ModuleType("optuna")

    class TrialPruned(Exception): ...

    class Trial:
        def __init__(self, number: int) -> None:
            self.number, self.intermediate_values = number, {}

        def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
            self.rate = low * (high / low) ** (self.number / 5)
            return self.rate

        def report(self, value: float, step: int) -> None:
            self.intermediate_values[step] = value

        def should_prune(self) -> bool:
            return self.number % 3 == 2 and len(self.intermediate_values) >= 3

    class Study:
        def __init__(self) -> None:
            self.trials, self.values = [], {}

        def optimize(self, objective: Any, n_trials: int) -> None:
            for number in range(n_trials):
                self.trials.append(Trial(number))
                try:
                    self.values[number] = objective(self.trials[-1])
                except TrialPruned:
                    assert len(self.trials[-1].intermediate_values) == 3

        @property
        def best_params(self) -> dict[str, float]:
            return {"lr": self.trials[max(self.values, key=self.values.__getitem__)].rate}

    module.TrialPruned, module.Trial = TrialPruned, Trial
    module.create_study = lambda **_: Study()
    module.pruners = types.SimpleNamespace(MedianPruner=lambda **_: None)
    return module


def test_the_cora_example_gives_the_losses_of_the_program(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten lines from NumPy arrays, bit for bit the losses of `graphweft train --data cora`."""
    shared = Path(os.environ.get("GRAPHWEFT_SHARED", ROOT.parent / "shared"))
    cora, program = shared / "data/cora", os.environ.get("GRAPHWEFT")
    if not cora.is_dir() or not program:
        pytest.skip("needs GRAPHWEFT and the real graphs")
    lines = (PACKAGE / "examples/cora.py").read_text().splitlines()
    assert len([line for line in lines if line and not line.startswith('"""')]) <= 10
    monkeypatch.setattr(sys, "argv", ["cora.py", str(cora)])
    run = runpy.run_path(str(PACKAGE / "examples/cora.py"))["run"]
    arguments = ["--data", str(cora), "--model", "gcn", "--epochs", "20", "--hidden", "16", "--lr", "0.01"]
    shown = subprocess.run(
        [program, "train", *arguments, "-o", "program", "--json"], capture_output=True, text=True, check=True
    )
    assert run.losses == json.loads(shown.stdout)["loss"]
