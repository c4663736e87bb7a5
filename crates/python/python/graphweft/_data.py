"""Graphs and datasets from NumPy, SciPy, PyTorch, NetworkX and DGL; PyTorch Geometric's are in `_pyg`."""

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


def _both_ends(sources: Any, targets: Any) -> tuple[Array, Array]:
    """Both ends of edges, of one type."""
    src, dst = _ends(sources, "sources"), _ends(targets, "targets")
    if src.dtype != dst.dtype:
        src, dst = src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False)
    return src, dst


def _sorted(csr: Any) -> Any:
    """A CSR matrix with columns in order: itself, or a copy. The caller's stays as it is."""
    return csr if csr.has_sorted_indices else csr.sorted_indices()


class _Counted:
    """What has nodes and edges."""

    _inner: _graphweft.Graph | _graphweft.Dataset

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self._inner.num_nodes

    @property
    def num_edges(self) -> int:
        """How many edges there are; one that goes both ways counts twice."""
        return self._inner.num_edges


class Graph(_Counted):
    """The structure of a graph: which nodes each node receives from.

    >>> import graphweft as gw
    >>> g = gw.Graph.from_edges([0, 1, 2], [1, 2, 0])
    >>> g.num_nodes, g.num_edges
    (3, 3)
    """

    _inner: _graphweft.Graph

    def __init__(self, inner: _graphweft.Graph) -> None:
        self._inner = inner
        # Whether edges were given in another order than theirs in `indices`.
        self._reordered = False

    @classmethod
    def from_edges(cls, sources: Any, targets: Any, num_nodes: int | None = None) -> Graph:
        """Edges as two arrays of node ids."""
        src, dst = _both_ends(sources, targets)
        if num_nodes is None:
            num_nodes = int(max(src.max(), dst.max())) + 1 if src.size and dst.size else 0
        made = cls(_graphweft.Graph.from_edges(src, dst, num_nodes))
        made._reordered = True
        return made

    @classmethod
    def from_csr(cls, matrix: Any) -> Graph:
        """A SciPy sparse matrix: entry (i, j) is an edge from j to i, whatever its value."""
        csr = matrix.tocsr()
        if csr.shape[0] != csr.shape[1]:
            raise InputError(f"the matrix has {csr.shape[0]} rows and {csr.shape[1]} columns", field="matrix", remedy="give a square one")
        rows = _sorted(csr)
        made = cls(_graphweft.Graph.from_csr(_ids(rows.indptr, "indptr", np.uint64), _ids(rows.indices, "indices")))
        made._reordered = rows is not csr
        return made

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
    def indptr(self) -> Array:
        """Where the row of each node begins in ``indices``: a view, read-only."""
        return self._inner.indptr

    @property
    def indices(self) -> Array:
        """The sources of the edges into each node, row by row: a view, read-only."""
        return self._inner.indices

    def edge_order(self, sources: Any, targets: Any) -> Array:
        """For each place in ``indices``, which of these edges stands there; parallel edges keep their order.

        >>> import graphweft as gw
        >>> gw.Graph.from_edges([2, 0, 1], [1, 1, 0]).edge_order([2, 0, 1], [1, 1, 0]).tolist()
        [2, 1, 0]
        """
        return self._inner.edge_order(*_both_ends(sources, targets))

    def is_symmetric(self) -> bool:
        """Whether every edge stands beside its reverse."""
        return self._inner.is_symmetric()

    def symmetrise(self) -> Graph:
        """The same with the reverse of every edge."""
        made = Graph(self._inner.symmetrise())
        made._reordered = self._reordered
        return made

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges)"


class Dataset(_Counted):
    """A graph with features, labels and splits, in memory or mapped from a folder.

    ``x`` is a row per node, or a SciPy matrix, or what SciPy makes one of: ``((data, indices, indptr), shape)``, with
    columns in order; ``categories`` are small whole numbers that stand for themselves, a row per node. ``y`` of whole
    numbers are classes (-1: not known), ``y`` with several columns of 0 and 1 are labels of each node, and ``y`` of
    other numbers are values to predict (NaN: not known). ``masks`` are three masks or arrays of ids.

    ``edge_attr`` is a row per edge of ``edge_index``, two arrays of sources and targets; without that, per edge of
    ``graph.indices``. With ``graph_ptr`` these are many graphs, of which number g has the nodes from ``graph_ptr[g]`` up
    to ``graph_ptr[g + 1]``: ``y`` and masks are then of graphs. ``links`` are splits of pairs of nodes, where links are
    predicted: ``{"name": {"train": pairs, "valid": pairs, "test": pairs}}``, and ``"valid_neg"`` and ``"test_neg"`` where
    pairs that are no links are given; triples of head, relation and tail where ``edge_types`` name relations.
    ``node_types`` are a name, a count and rows, or None, for each type of nodes, whose nodes follow one another;
    ``edge_types`` are names, and a number for each edge of ``edge_index``.

    >>> import graphweft as gw, numpy as np
    >>> g = gw.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    >>> d = gw.Dataset(g, x=np.eye(4, dtype=np.float32), y=[0, 1, 0, 1], masks=([0, 1], [2], [3]))
    >>> d.num_classes
    2
    """

    _inner: _graphweft.Dataset

    def __init__(
        self,
        graph: Graph,
        *,
        x: Any = None,
        y: Any = None,
        masks: Sequence[Any] | None = None,
        splits: Mapping[str, Sequence[Any]] | None = None,
        edge_attr: Any = None,
        edge_index: Any = None,
        categories: Any = None,
        graph_ptr: Any = None,
        links: Mapping[str, Mapping[str, Any]] | None = None,
        node_types: Sequence[tuple[str, int, Any]] = (),
        edge_types: tuple[Sequence[str], Any] | None = None,
        name: str = "dataset",
    ) -> None:
        builder = _graphweft.DatasetBuilder(name, graph._inner)
        count, noun = graph.num_nodes, "node"
        if x is not None:
            _add_features(builder, x, count)
        if categories is not None:
            _add_categories(builder, categories, count)
        if edge_attr is not None:
            _add_edge_features(builder, graph, edge_attr, edge_index)
        for kind, nodes, values in node_types:
            own = None if values is None else np.ascontiguousarray(_array(values), dtype=np.float32)
            builder.node_type(kind, nodes, own)
        if edge_types is not None:
            builder.edge_types(list(edge_types[0]), _edge_codes(graph, edge_types[1], edge_index))
        if graph_ptr is not None:
            first = _ids(graph_ptr, "graph_ptr", np.uint64)
            builder.graphs(first)
            count, noun = max(len(first) - 1, 0), "graph"
        if y is not None:
            _add_labels(builder, y, count, noun)
        named = dict(splits or {})
        if masks is not None:
            named["default"] = masks
        for split, parts in named.items():
            if len(parts) != 3:
                raise InputError(f"split {split!r} has {len(parts)} parts", field="masks", remedy="give train, valid and test")
            builder.split(split, *(_nodes(part, count, split) for part in parts))
        for split, pairs in (links or {}).items():
            builder.links(split, _pairs(split, pairs))
        self._inner = builder.build()

    @classmethod
    def _of(cls, inner: _graphweft.Dataset) -> Dataset:
        made = cls.__new__(cls)
        made._inner = inner
        return made

    @classmethod
    def from_pyg(cls, data: Any, name: str = "dataset", *, splits: Mapping[str, Sequence[Any]] | None = None) -> Dataset:
        """PyTorch Geometric's data: a ``Data`` with ``edge_index``, ``x``, ``y``, ``edge_attr`` and masks; a list of
        them, a ``Batch`` or a data set, which become many graphs; or the three that ``RandomLinkSplit`` makes.
        """
        from . import _pyg

        return _pyg.from_pyg(data, name, splits)

    @classmethod
    def generate(cls, spec: str, seed: int = 0) -> Dataset:
        """A generated one, as ``sbm:2000:5:10``."""
        return cls._of(_graphweft.Dataset.generate(spec, seed))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes it as a dataset folder, whole or not at all."""
        self._inner.save(os.fspath(folder))

    def export(self, format: str, path: str | os.PathLike[str], *, split: str | None = None) -> list[str]:  # noqa: A002
        """Writes it for other programs: ``"csv"``, ``"tsv"`` and ``"parquet"`` are a folder of tables, with a
        ``schema.toml`` by which ``import_data("table", …)`` reads them back; ``"npz"`` is a file of arrays and
        ``"metis"`` one of the graph alone. Of several splits, this one or the first. Gives what was left out, in words.
        """
        return self._inner.export(format, os.fspath(path), split=split)

    def to_pyg(self) -> Any:
        """The same as a ``torch_geometric.data.Data``; of many graphs a list of them."""
        from . import _pyg

        return _pyg.to_pyg(self)

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
    def num_features(self) -> int:
        """Columns of the features."""
        return self._inner.num_features

    @property
    def num_classes(self) -> int:
        """Classes, or labels or values per node or graph."""
        return self._inner.num_classes

    @property
    def task(self) -> str:
        """What is predicted: ``"node-classification"``, ``"node-regression"``, ``"graph-classification"``,
        ``"graph-regression"`` or ``"link"``.
        """
        return self._inner.task

    @property
    def edge_attr(self) -> Array | None:
        """Features of edges in the order of ``graph.indices``: a read-only view, or None."""
        return self._inner.edge_features

    @property
    def categories(self) -> Array | None:
        """Categories of nodes, a row for each, or None."""
        return self._inner.categories

    @property
    def graph_ptr(self) -> Array | None:
        """Of many graphs, the first node of each and how many nodes there are; None if there is one."""
        return self._inner.graphs

    @property
    def num_graphs(self) -> int:
        """How many graphs there are."""
        first = self._inner.graphs
        return 1 if first is None else len(first) - 1

    @property
    def node_types(self) -> list[tuple[str, int, Array | None]]:
        """Types of nodes: name, how many, and their features; nodes of a type follow one another."""
        return list(self._inner.node_types)

    @property
    def edge_types(self) -> tuple[list[str], Array]:
        """Names of the types of edges, and the number of that of each edge, in the order of ``graph.indices``."""
        return self._inner.edge_types

    @property
    def links(self) -> dict[str, dict[str, Array]]:
        """Splits of links by name: pairs of nodes by the name of the part."""
        return {name: dict(parts) for name, parts in self._inner.links}

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
        """Classes, rows of labels, or values, of graphs where there are many; None if nothing is known."""
        for found in (self._inner.labels, self._inner.label_rows, self._inner.values):
            if found is not None:
                return found
        return None

    @property
    def splits(self) -> dict[str, tuple[Array, Array, Array]]:
        """Ids of train, valid and test by the name of the split: read-only views."""
        return {name: (train, valid, test) for name, train, valid, test in self._inner.splits}

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features)"


def open(folder: str | os.PathLike[str]) -> Dataset:  # noqa: A001 - gw.open is what it does.
    """A dataset folder, mapped: nothing is read before it is used."""
    return Dataset._of(_graphweft.Dataset.open(os.fspath(folder)))


def _add_features(builder: _graphweft.DatasetBuilder, x: Any, nodes: int) -> None:
    if hasattr(x, "tocsr"):
        csr = _sorted(x.tocsr())
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
    builder.rows("features", np.ascontiguousarray(array, dtype=np.float32))


def _add_categories(builder: _graphweft.DatasetBuilder, categories: Any, nodes: int) -> None:
    array = _array(categories)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise InputError("categories are not rows of whole numbers", field="categories", remedy="give a row per node")
    _same_rows("categories", array.shape[0], nodes)
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.uint16).max):
        raise InputError("a category is not between 0 and 65535", field="categories", remedy="number the categories of each column from 0")
    builder.categories(np.ascontiguousarray(array, dtype=np.uint16))


def _add_edge_features(builder: _graphweft.DatasetBuilder, graph: Graph, edge_attr: Any, edge_index: Any) -> None:
    rows = _by_edge("edge_attr", graph, edge_attr, edge_index)
    rows = rows.reshape(-1, 1) if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise InputError(f"edge_attr has {rows.ndim} dimensions", field="edge_attr", remedy="give a row per edge")
    builder.rows("edge_features", np.ascontiguousarray(rows, dtype=np.float32))


def _edge_codes(graph: Graph, types: Any, edge_index: Any) -> Array:
    codes = _by_edge("edge_types", graph, types, edge_index)
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or codes.size and not 0 <= codes.min() <= codes.max() < 2**16:
        raise InputError("types of edges are not numbers from 0 to 65535", field="edge_types", remedy="give the place of each type's name")
    return np.ascontiguousarray(codes, dtype=np.uint16)


def _by_edge(field: str, graph: Graph, values: Any, edge_index: Any) -> Array:
    """What is known of edges, in the order of the graph's."""
    array = _array(values)
    if array.shape[:1] != (graph.num_edges,):
        problem = f"{field} has the shape {array.shape}, and the graph {graph.num_edges} edges"
        raise InputError(problem, field=field, remedy="give a row per edge")
    if edge_index is not None:
        return array[graph.edge_order(*edge_index)]
    if graph._reordered:
        remedy = f"give edge_index=(sources, targets), the edges that {field} has rows for"
        raise InputError("edges of the graph are not in the order in which they were given", field="edge_index", remedy=remedy)
    return array


def _pairs(split: str, parts: Mapping[str, Any]) -> list[Array | None]:
    """Pairs, or triples, of a split of links by their place."""
    names = ("train", "valid", "test", "valid_neg", "test_neg")
    wrong = [part for part in parts if part not in names]
    missing = [part for part in names[:3] if part not in parts]
    if wrong or missing:
        problem = f"split {split!r} has a part {wrong[0]!r}" if wrong else f"split {split!r} has no {missing[0]}"
        raise InputError(problem, field="links", remedy=f"its parts are {', '.join(names)}, and the last two need not be there")
    found: list[Array | None] = []
    for part in names:
        array = None if parts.get(part) is None else _array(parts[part])
        if array is None:
            found.append(None)
            continue
        if array.ndim != 2 or array.shape[1] not in (2, 3) or found and found[0] is not None and array.shape[1] != found[0].shape[1]:
            problem = f"{part} of split {split!r} has the shape {array.shape}"
            raise InputError(problem, field=part, remedy="give a row of two nodes, or of head, relation and tail, for each link; of an edge_index its transpose")
        found.append(np.ascontiguousarray(array, dtype=np.int64))
    return found


def _add_labels(builder: _graphweft.DatasetBuilder, y: Any, count: int, noun: str) -> None:
    array = _array(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    _same_rows("y", array.shape[0] if array.ndim else 0, count, noun)
    if array.ndim == 1 and array.dtype.kind in "iub":
        builder.labels(np.ascontiguousarray(array, dtype=np.int64))
    elif array.ndim == 2 and _are_labels(array):
        builder.rows("label_rows", np.ascontiguousarray(array, dtype=np.float32))
    else:
        builder.rows("values", np.ascontiguousarray(array.reshape(count, -1), dtype=np.float32))


def _are_labels(array: Array) -> bool:
    """Whether there is nothing but 0, 1 and what is not known."""
    return array.dtype.kind in "iub" or bool((np.isin(array, (0, 1, -1)) | np.isnan(array)).all())


def _same_rows(name: str, rows: int, count: int, noun: str = "node") -> None:
    if rows != count:
        has = f"the graph {count} nodes" if noun == "node" else f"there are {count} {noun}s"
        raise InputError(f"{name} has {rows} rows, and {has}", field=name, remedy=f"give a row per {noun}")


def _nodes(part: Any, nodes: int, split: str) -> Array:
    """Ids of a mask, or ids as they are."""
    array = _array(part)
    if array.dtype == np.bool_:
        if array.shape != (nodes,):
            raise InputError(f"a mask of split {split!r} has the shape {array.shape}", field="masks", remedy=f"give {nodes} values")
        return np.flatnonzero(array).astype(np.int64)
    return np.ascontiguousarray(array, dtype=np.int64)
