"""Graphs and datasets from NumPy, SciPy, PyTorch, PyTorch Geometric, NetworkX and DGL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _graphweft
from ._errors import InputError

Array = npt.NDArray[Any]


def _array(values: Any) -> Array:
    """NumPy's view of an array, a tensor or a list; tensors of other devices are copied to the host."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def _ids(values: Any, name: str, dtype: type = np.uint32) -> Array:
    """Node ids as the engine has them; what would not survive that is refused with its position."""
    array = _array(values)
    if array.dtype == dtype and array.ndim == 1:
        return np.ascontiguousarray(array)
    if array.ndim != 1:
        raise InputError(f"{name} has {array.ndim} dimensions, one is needed", field=name, remedy="flatten it")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} is of type {array.dtype}", field=name, remedy="give whole numbers")
    most = np.iinfo(dtype).max
    wrong = np.flatnonzero((array < 0) | (array.astype(np.uint64, copy=False) > most)) if array.size else array
    if wrong.size:
        at = int(wrong[0])
        message = f"{name}[{at}] is {array[at]}, which is not between 0 and {most}"
        raise InputError(message, field=name, position=f"element {at}", remedy="number nodes from 0")
    return np.ascontiguousarray(array, dtype=dtype)


def _ends(values: Any, name: str) -> Array:
    """Ends of edges as the engine reads them, where they are if they are 32 or 64 bits wide: edges are most of a graph."""
    array = _array(values)
    if array.ndim == 1 and array.dtype == np.int32 and array.size and array.min() >= 0:
        array = array.view(np.uint32)
    if array.ndim == 1 and array.dtype in (np.uint32, np.int64):
        return np.ascontiguousarray(array)
    return _ids(array, name)


class Graph:
    """The structure of a graph: which nodes each node receives from.

    >>> import graphweft as gw
    >>> g = gw.Graph.from_edges([0, 1, 2], [1, 2, 0])
    >>> g.num_nodes, g.num_edges
    (3, 3)
    """

    def __init__(self, inner: _graphweft.Graph) -> None:
        self._inner = inner

    @classmethod
    def from_edges(cls, sources: Any, targets: Any, num_nodes: int | None = None) -> Graph:
        """Edges as two arrays of node ids."""
        src, dst = _ends(sources, "sources"), _ends(targets, "targets")
        if src.dtype != dst.dtype:
            src, dst = src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False)
        if num_nodes is None:
            num_nodes = int(max(src.max(), dst.max())) + 1 if src.size and dst.size else 0
        return cls(_graphweft.Graph.from_edges(src, dst, num_nodes))

    @classmethod
    def from_csr(cls, matrix: Any) -> Graph:
        """A SciPy sparse matrix: entry (i, j) is an edge from j to i, whatever its value."""
        csr = matrix.tocsr()
        if csr.shape[0] != csr.shape[1]:
            raise InputError(f"the matrix has {csr.shape[0]} rows and {csr.shape[1]} columns", field="matrix", remedy="give a square one")
        csr.sort_indices()
        return cls(_graphweft.Graph.from_csr(_ids(csr.indptr, "indptr", np.uint64), _ids(csr.indices, "indices")))

    @classmethod
    def from_networkx(cls, graph: Any) -> Graph:
        """A NetworkX graph; nodes are numbered in its order, and edges of an undirected one go both ways."""
        place = {node: k for k, node in enumerate(graph.nodes)}
        pairs = np.array([(place[a], place[b]) for a, b in graph.edges()], dtype=np.uint32).reshape(-1, 2)
        made = cls.from_edges(pairs[:, 0].copy(), pairs[:, 1].copy(), len(place))
        return made if graph.is_directed() else made.symmetrise()

    @classmethod
    def from_dgl(cls, graph: Any) -> Graph:
        """A DGL graph of one type."""
        if not getattr(graph, "is_homogeneous", True):
            raise InputError("the graph has several types of nodes or edges", field="graph", remedy="give dgl.to_homogeneous(graph)")
        sources, targets = graph.edges()
        return cls.from_edges(sources, targets, graph.num_nodes())

    @classmethod
    def generate(cls, spec: str, seed: int = 0) -> Graph:
        """A generated graph, as ``rmat:20:16`` or ``grid:100:100``."""
        return cls(_graphweft.Graph.generate(spec, seed))

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self._inner.num_nodes

    @property
    def num_edges(self) -> int:
        """How many edges there are; one that goes both ways counts twice."""
        return self._inner.num_edges

    @property
    def indptr(self) -> Array:
        """Where the row of each node begins in ``indices``: a view, read-only."""
        return self._inner.indptr

    @property
    def indices(self) -> Array:
        """The sources of the edges into each node, row by row: a view, read-only."""
        return self._inner.indices

    def is_symmetric(self) -> bool:
        """Whether every edge stands beside its reverse."""
        return self._inner.is_symmetric()

    def symmetrise(self) -> Graph:
        """The same with the reverse of every edge."""
        return Graph(self._inner.symmetrise())

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges)"


class Dataset:
    """A graph with features, labels and splits, in memory or mapped from a folder.

    ``x`` is a row per node, or a SciPy matrix, or what SciPy makes one of: ``((data, indices, indptr), shape)``, with
    columns in order. ``y`` of whole numbers are classes (-1: not known), ``y`` with several columns of 0 and 1 are labels of each node, and
    ``y`` of other numbers are values to predict (NaN: not known). ``masks`` are three masks or arrays of ids.

    >>> import graphweft as gw, numpy as np
    >>> g = gw.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    >>> d = gw.Dataset(g, x=np.eye(4, dtype=np.float32), y=[0, 1, 0, 1], masks=([0, 1], [2], [3]))
    >>> d.num_classes
    2
    """

    def __init__(
        self,
        graph: Graph,
        *,
        x: Any = None,
        y: Any = None,
        masks: Sequence[Any] | None = None,
        splits: Mapping[str, Sequence[Any]] | None = None,
        name: str = "dataset",
    ) -> None:
        builder = _graphweft.DatasetBuilder(name, graph._inner)
        if x is not None:
            _add_features(builder, x, graph.num_nodes)
        if y is not None:
            _add_labels(builder, y, graph.num_nodes)
        named = dict(splits or {})
        if masks is not None:
            named["default"] = masks
        for split, parts in named.items():
            if len(parts) != 3:
                raise InputError(f"split {split!r} has {len(parts)} parts", field="masks", remedy="give train, valid and test")
            builder.split(split, *(_nodes(part, graph.num_nodes, split) for part in parts))
        self._inner = builder.build()

    @classmethod
    def _of(cls, inner: _graphweft.Dataset) -> Dataset:
        made = cls.__new__(cls)
        made._inner = inner
        return made

    @classmethod
    def from_pyg(cls, data: Any, name: str = "dataset") -> Dataset:
        """A ``torch_geometric.data.Data`` with ``edge_index``, ``x``, ``y`` and masks."""
        if isinstance(data, (list, tuple)) or getattr(data, "num_graphs", 1) > 1 or getattr(data, "ptr", None) is not None:
            raise InputError("these are several graphs", field="data", remedy="give one; tasks on many graphs are not in Python yet")
        if hasattr(data, "node_types") and hasattr(data, "edge_types"):
            raise InputError("this is a HeteroData", field="data", remedy="typed graphs are not supported yet; give data.to_homogeneous()")
        if getattr(data, "edge_attr", None) is not None:
            raise InputError(
                "the data have edge_attr", field="edge_attr", remedy="datasets in memory have no edge features yet; set data.edge_attr = None"
            )
        edges = _array(data.edge_index)
        graph = Graph.from_edges(edges[0], edges[1], int(data.num_nodes))
        masks = [getattr(data, f"{part}_mask", None) for part in ("train", "val", "test")]
        splits: dict[str, Sequence[Any]] = {}
        if all(mask is not None for mask in masks):
            arrays = [_array(mask) for mask in masks]
            if arrays[0].ndim == 2:
                splits = {f"mask-{k}": [a[:, k] if a.ndim == 2 else a for a in arrays] for k in range(arrays[0].shape[1])}
            else:
                splits = {"default": arrays}
        return cls(graph, x=getattr(data, "x", None), y=getattr(data, "y", None), splits=splits, name=name)

    @classmethod
    def generate(cls, spec: str, seed: int = 0) -> Dataset:
        """A generated one, as ``sbm:2000:5:10``."""
        return cls._of(_graphweft.Dataset.generate(spec, seed))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes it as a dataset folder, whole or not at all."""
        self._inner.save(os.fspath(folder))

    def to_pyg(self) -> Any:
        """The same as a ``torch_geometric.data.Data``."""
        import torch
        from torch_geometric.data import Data

        indptr = self.graph.indptr.astype(np.int64)
        targets = np.repeat(np.arange(self.num_nodes), indptr[1:] - indptr[:-1])
        edges = torch.from_numpy(np.stack([self.graph.indices.astype(np.int64), targets]))
        x, y = self.x, self.y
        if x is not None and hasattr(x, "toarray"):
            x = x.toarray()
        data = Data(x=None if x is None else torch.from_numpy(np.array(x)), edge_index=edges, num_nodes=self.num_nodes)
        if y is not None:
            data.y = torch.from_numpy(np.array(y))
        for _, parts in list(self.splits.items())[:1]:
            for part, ids in zip(("train", "val", "test"), parts):
                mask = torch.zeros(self.num_nodes, dtype=torch.bool)
                mask[torch.from_numpy(ids)] = True
                data[f"{part}_mask"] = mask
        return data

    @property
    def name(self) -> str:
        """What it is called."""
        return self._inner.name

    @property
    def folder(self) -> str | None:
        """Where it lies, unless it is in memory."""
        found = self._inner.folder
        return None if found is None else os.fspath(found)

    @property
    def graph(self) -> Graph:
        """Its graph."""
        return Graph(self._inner.graph)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self._inner.num_nodes

    @property
    def num_edges(self) -> int:
        """How many edges there are."""
        return self._inner.num_edges

    @property
    def num_features(self) -> int:
        """Columns of the features."""
        return self._inner.num_features

    @property
    def num_classes(self) -> int:
        """Classes, or labels or values per node."""
        return self._inner.num_classes

    @property
    def x(self) -> Any:
        """Features: a read-only view of dense ones, a SciPy matrix of sparse ones, or None."""
        dense = self._inner.features
        sparse = self._inner.sparse_features
        if dense is not None or sparse is None:
            return dense
        from scipy.sparse import csr_matrix

        indptr, indices, values = sparse
        numbers = np.ones(len(indices), dtype=np.float32) if values is None else values
        return csr_matrix((numbers, indices, indptr), shape=(self.num_nodes, self.num_features))

    @property
    def y(self) -> Array | None:
        """Classes, rows of labels, or values; None if nothing is known."""
        for found in (self._inner.labels, self._inner.label_rows, self._inner.values):
            if found is not None:
                return found
        return None

    @property
    def splits(self) -> dict[str, tuple[Array, Array, Array]]:
        """Ids of train, valid and test by the name of the split."""
        return {name: (train, valid, test) for name, train, valid, test in self._inner.splits}

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features)"


def open(folder: str | os.PathLike[str]) -> Dataset:  # noqa: A001 - gw.open is what it does.
    """A dataset folder, mapped: nothing is read before it is used."""
    return Dataset._of(_graphweft.Dataset.open(os.fspath(folder)))


def _add_features(builder: _graphweft.DatasetBuilder, x: Any, nodes: int) -> None:
    if hasattr(x, "tocsr"):
        csr = x.tocsr()
        csr.sort_indices()
        x = (csr.data, csr.indices, csr.indptr), csr.shape
    if isinstance(x, tuple) and len(x) == 2 and len(x[0]) == 3:
        (numbers, indices, indptr), (rows, width) = x
        _same_rows("x", rows, nodes)
        values = np.ascontiguousarray(_array(numbers), dtype=np.float32)
        builder.sparse_features(int(width), _ids(indptr, "x.indptr", np.uint64), _ids(indices, "x.indices"), values)
        return
    array = _array(x)
    if array.ndim != 2:
        raise InputError(f"x has {array.ndim} dimensions", field="x", remedy="give a row per node")
    _same_rows("x", array.shape[0], nodes)
    builder.features(np.ascontiguousarray(array, dtype=np.float32))


def _add_labels(builder: _graphweft.DatasetBuilder, y: Any, nodes: int) -> None:
    array = _array(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    _same_rows("y", array.shape[0] if array.ndim else 0, nodes)
    if array.ndim == 1 and array.dtype.kind in "iub":
        builder.labels(np.ascontiguousarray(array, dtype=np.int64))
    elif array.ndim == 2 and _are_labels(array):
        builder.label_rows(np.ascontiguousarray(array, dtype=np.float32))
    else:
        builder.values(np.ascontiguousarray(array.reshape(nodes, -1), dtype=np.float32))


def _are_labels(array: Array) -> bool:
    """Whether there is nothing but 0, 1 and what is not known."""
    return array.dtype.kind in "iub" or bool(np.isin(array, (0, 1, -1)).all())


def _same_rows(name: str, rows: int, nodes: int) -> None:
    if rows != nodes:
        raise InputError(f"{name} has {rows} rows, and the graph {nodes} nodes", field=name, remedy="give a row per node")


def _nodes(part: Any, nodes: int, split: str) -> Array:
    """Ids of a mask, or ids as they are."""
    array = _array(part)
    if array.dtype == np.bool_:
        if array.shape != (nodes,):
            raise InputError(f"a mask of split {split!r} has the shape {array.shape}", field="masks", remedy=f"give {nodes} values")
        return np.flatnonzero(array).astype(np.int64)
    return np.ascontiguousarray(array, dtype=np.int64)
