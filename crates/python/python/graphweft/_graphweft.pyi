"""The extension module, as Python sees it."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "VERSION",
    "Graph",
    "Dataset",
    "DatasetBuilder",
    "train",
    "plan",
    "config",
    "evaluate",
    "predict",
    "write_predictions",
    "partition",
    "generate",
    "info",
    "doctor",
    "runs",
    "report",
    "bench_epochs",
    "bench_edges",
    "_panic_for_test",
]

VERSION: str

_Ids = npt.NDArray[np.uint32] | npt.NDArray[np.int64]
_Watch = Callable[[dict[str, Any]], None] | None

@final
class Graph:
    @staticmethod
    def from_edges(sources: _Ids, targets: _Ids, num_nodes: int) -> Graph: ...
    @staticmethod
    def from_csr(indptr: npt.NDArray[np.uint64], indices: npt.NDArray[np.uint32]) -> Graph: ...
    @staticmethod
    def generate(spec: str, seed: int) -> Graph: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def indptr(self) -> npt.NDArray[np.uint64]: ...
    @property
    def indices(self) -> npt.NDArray[np.uint32]: ...
    def is_symmetric(self) -> bool: ...
    def symmetrise(self) -> Graph: ...

@final
class Dataset:
    @staticmethod
    def open(dir: str) -> Dataset: ...
    @staticmethod
    def generate(spec: str, seed: int) -> Dataset: ...
    def save(self, dir: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> str | None: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def features(self) -> npt.NDArray[np.float32] | None: ...
    @property
    def sparse_features(
        self,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], npt.NDArray[np.float32] | None] | None: ...
    @property
    def labels(self) -> npt.NDArray[np.int64] | None: ...
    @property
    def label_rows(self) -> npt.NDArray[np.float32] | None: ...
    @property
    def values(self) -> npt.NDArray[np.float32] | None: ...
    @property
    def splits(self) -> list[tuple[str, npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]: ...

@final
class DatasetBuilder:
    def __new__(cls, name: str, graph: Graph) -> DatasetBuilder: ...
    def features(self, values: npt.NDArray[np.float32]) -> None: ...
    def sparse_features(
        self,
        width: int,
        indptr: npt.NDArray[np.uint64],
        indices: npt.NDArray[np.uint32],
        values: npt.NDArray[np.float32] | None,
    ) -> None: ...
    def labels(self, labels: npt.NDArray[np.int64]) -> None: ...
    def label_rows(self, labels: npt.NDArray[np.float32]) -> None: ...
    def values(self, values: npt.NDArray[np.float32]) -> None: ...
    def split(
        self, name: str, train: npt.NDArray[np.int64], valid: npt.NDArray[np.int64], test: npt.NDArray[np.int64]
    ) -> None: ...
    def build(self) -> Dataset: ...

def train(
    data: Dataset | str | None,
    settings: list[str],
    *,
    output: str | None = None,
    resume: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    watch: _Watch = None,
) -> str: ...
def plan(
    data: Dataset | str | None,
    settings: list[str],
    *,
    device: str | None = None,
    plot: str | None = None,
    report: str | None = None,
    watch: _Watch = None,
) -> str: ...
def config(settings: list[str]) -> str: ...
def evaluate(
    path: str, data: Dataset | str | None = None, *, split: str | None = None, ranks: int | None = None, watch: _Watch = None
) -> str: ...
def predict(
    path: str, data: Dataset | str | None = None, *, what: str = "logits", ranks: int | None = None, watch: _Watch = None
) -> npt.NDArray[np.float32]: ...
def write_predictions(path: str, file: str, data: Dataset | str | None = None, *, watch: _Watch = None) -> str: ...
def partition(
    data: Dataset | str, parts: int, *, method: str | None = None, seed: int = 0, store: str | None = None, watch: _Watch = None
) -> str: ...
def generate(spec: str, dir: str, *, seed: int = 0, watch: _Watch = None) -> str: ...
def info(data: Dataset | str, *, watch: _Watch = None) -> str: ...
def doctor() -> str: ...
def runs(dir: str) -> str: ...
def report(folders: list[str], path: str) -> None: ...
def bench_epochs(
    data: Dataset | str,
    settings: list[str],
    *,
    features: int | None = None,
    classes: int | None = None,
    runs: int = 9,
    device: str | None = None,
    watch: _Watch = None,
) -> str: ...
def bench_edges(
    data: Dataset | str,
    *,
    hidden: int = 128,
    heads: int | None = None,
    runs: int = 9,
    dtype: str = "f32",
    device: str | None = None,
    watch: _Watch = None,
) -> str: ...
def _panic_for_test() -> None: ...
