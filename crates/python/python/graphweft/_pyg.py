"""PyTorch Geometric's data, there and back. What a dataset cannot hold is refused by name, never left out silently."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._data import Array, Dataset, Graph, _array
from ._errors import InputError

log = logging.getLogger("graphweft")
Splits = dict[str, Sequence[Any]]
_PARTS = ("train", "val", "test")
# What is taken over, or is another name of it.
_KNOWN = {"edge_index", "x", "y", "edge_attr", "edge_weight", "num_nodes", "ptr", "batch", *(f"{part}_mask" for part in _PARTS)}


def from_pyg(data: Any, name: str, splits: Mapping[str, Sequence[Any]] | None) -> Dataset:
    """One `Data`, many, or the three of a split of links."""
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        return _of_types(data, name, splits)
    several = _several(data)
    if several is None:
        return _of_one(data, name, splits)
    if len(several) == 3 and all(getattr(one, "edge_label_index", None) is not None for one in several):
        return _of_links(several, name)
    if splits is None and hasattr(data, "get_idx_split"):
        found = data.get_idx_split()
        splits = {"default": [found[part] for part in ("train", "valid", "test")]}
    return _of_many(several, name, splits)


def _several(data: Any) -> list[Any] | None:
    """The graphs, if these are many: a list, a batch, or one of PyG's data sets with more than one."""
    if isinstance(data, (list, tuple)):
        return list(data)
    if hasattr(data, "to_data_list") and getattr(data, "ptr", None) is not None:
        return list(data.to_data_list())
    library = sys.modules.get("torch_geometric.data")
    if library is not None and isinstance(data, library.Dataset):
        return [data[k] for k in range(len(data))]
    if getattr(data, "ptr", None) is not None:
        raise InputError("these are several graphs, and not a Batch", field="data", remedy="give a list of them")
    return None


def _edges(data: Any) -> Array:
    if getattr(data, "edge_index", None) is None:
        remedy = "give edge_index; of an adj_t, torch.stack(data.adj_t.t().coo()[:2])"
        raise InputError("the data have no edge_index", field="edge_index", remedy=remedy)
    return _array(data.edge_index)


def _edge_rows(data: Any) -> Array | None:
    """Features of edges; a weight is a column of them."""
    found = [getattr(data, field, None) for field in ("edge_attr", "edge_weight")]
    columns = [_array(values) for values in found if values is not None]
    columns = [values.reshape(len(values), -1) for values in columns]
    return np.concatenate(columns, axis=1) if columns else None


def _say_what_is_left(data: Any, more: set[str] | None = None) -> None:
    fields = data.keys() if callable(getattr(data, "keys", None)) else ()
    left = sorted(set(fields) - _KNOWN - (more or set()))
    if left:
        log.warning("from_pyg: a dataset has no place for %s", ", ".join(left))


def _masks(data: Any) -> list[Array] | None:
    found = [getattr(data, f"{part}_mask", None) for part in _PARTS]
    return None if any(mask is None for mask in found) else [_array(mask) for mask in found]


def _named(masks: list[Array]) -> Splits:
    """Splits of masks: one, or as many as these have columns. PyG's own data often have one test mask for all."""
    columns = max(mask.shape[1] if mask.ndim == 2 else 0 for mask in masks)
    if not columns:
        return {"default": masks}
    return {f"mask-{k}": [mask[:, k] if mask.ndim == 2 else mask for mask in masks] for k in range(columns)}


def _of_one(data: Any, name: str, splits: Mapping[str, Sequence[Any]] | None) -> Dataset:
    edges, masks = _edges(data), _masks(data)
    graph = Graph.from_edges(edges[0], edges[1], int(data.num_nodes))
    named = splits if splits is not None else _named(masks) if masks is not None else {}
    _say_what_is_left(data)
    return Dataset(
        graph, x=getattr(data, "x", None), y=getattr(data, "y", None), splits=named, edge_attr=_edge_rows(data), edge_index=edges, name=name
    )


def _of_types(data: Any, name: str, splits: Mapping[str, Sequence[Any]] | None) -> Dataset:
    """A `HeteroData`: nodes of a type follow one another, and one type has the labels."""
    kinds = list(data.node_types)
    counts = [int(data[kind].num_nodes) for kind in kinds]
    first = dict(zip(kinds, np.concatenate([[0], np.cumsum(counts)])))
    total, features, edges, types = sum(counts), [], [], []
    for number, (source, _, target) in enumerate(data.edge_types):
        store = data[data.edge_types[number]]
        edges.append(_edges(store) + np.array([[first[source]], [first[target]]]))
        types.append(np.full(edges[-1].shape[1], number))
        features.append(_edge_rows(store))
    if not edges:
        raise InputError("there are no edges", field="edge_index", remedy="give at least one type of edges")
    labelled = [kind for kind in kinds if getattr(data[kind], "y", None) is not None]
    if len(labelled) > 1:
        problem = f"nodes of several types have y: {', '.join(labelled)}"
        raise InputError(problem, field="y", remedy="leave it to the type that is predicted")
    y, named = None, splits
    if labelled:
        own = data[labelled[0]]
        begin, known = int(first[labelled[0]]), _array(own.y)
        whole = known.ndim == 1 and known.dtype.kind in "iub"
        y = np.full((total, *known.shape[1:]), -1 if whole else np.nan, dtype=known.dtype if whole else np.float32)
        y[begin : begin + len(known)] = known
        masks = _masks(own)
        if named is None and masks is not None:
            named = {split: [np.flatnonzero(part) + begin for part in parts] for split, parts in _named(masks).items()}
    index = np.concatenate(edges, axis=1)
    graph = Graph.from_edges(index[0], index[1], total)
    return Dataset(
        graph,
        y=y,
        splits=named,
        edge_attr=_joined("edge_attr", features),
        edge_index=index,
        node_types=[(kind, count, getattr(data[kind], "x", None)) for kind, count in zip(kinds, counts)],
        edge_types=(["__".join(kind) for kind in data.edge_types], np.concatenate(types)),
        name=name,
    )


def _of_many(several: Sequence[Any], name: str, splits: Mapping[str, Sequence[Any]] | None) -> Dataset:
    """Graphs side by side. Labels and masks are of graphs: each has one row of `y`, and masks of one value."""
    if not several:
        raise InputError("there is no graph", field="data", remedy="give at least one")
    counts = [int(one.num_nodes) for one in several]
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    edges = np.concatenate([_edges(one) + start for one, start in zip(several, first)], axis=1)
    rows = {
        "x": _joined("x", [getattr(one, "x", None) for one in several]),
        "edge_attr": _joined("edge_attr", [_edge_rows(one) for one in several]),
        "y": _joined("y", [_row_of_graph(k, one) for k, one in enumerate(several)]),
    }
    named = splits if splits is not None else _masks_of_graphs(several)
    _say_what_is_left(several[0])
    graph = Graph.from_edges(edges[0], edges[1], int(first[-1]))
    return Dataset(
        graph, x=rows["x"], y=rows["y"], edge_attr=rows["edge_attr"], edge_index=edges, graph_ptr=first, splits=named, name=name
    )


def _masks_of_graphs(several: Sequence[Any]) -> Splits:
    masks = [_masks(one) for one in several]
    there = [mask for mask in masks if mask is not None]
    if not there:
        return {}
    if len(there) < len(several) or any(part.shape[:1] != (1,) for mask in there for part in mask):
        problem = "masks are not of graphs: each graph needs a train_mask, a val_mask and a test_mask of one row"
        raise InputError(problem, field="masks", remedy="give splits={name: (train, valid, test)}, ids of graphs")
    return _named([np.concatenate([mask[part] for mask in there]) for part in range(3)])


def _row_of_graph(number: int, data: Any) -> Array | None:
    if getattr(data, "y", None) is None:
        return None
    label = _array(data.y)
    if label.ndim == 0 or label.ndim == 1 and label.size == 1:
        return label.reshape(1)
    if label.ndim == 2 and label.shape[0] == 1:
        return label
    problem = f"y of graph {number} has the shape {label.shape}: a row per graph is needed"
    raise InputError(problem, field="y", position=f"graph {number}", remedy="set y to [1] or [1, labels]; labels of nodes are for one graph")


def _joined(field: str, parts: Sequence[Any]) -> Array | None:
    """All rows, one below the other; None where no graph has any."""
    missing = [k for k, part in enumerate(parts) if part is None]
    if len(missing) == len(parts):
        return None
    if missing:
        problem = f"graph {missing[0]} has no {field}, and others have"
        raise InputError(problem, field=field, position=f"graph {missing[0]}", remedy="give it to all graphs, or to none")
    arrays = [_array(part) for part in parts]
    wrong = [k for k, array in enumerate(arrays) if array.shape[1:] != arrays[0].shape[1:]]
    if wrong:
        problem = f"{field} of graph {wrong[0]} has the shape {arrays[wrong[0]].shape}, and of graph 0 {arrays[0].shape}"
        raise InputError(problem, field=field, position=f"graph {wrong[0]}", remedy="give all graphs as many columns")
    return np.concatenate(arrays)


def _of_links(parts: Sequence[Any], name: str) -> Dataset:
    """What `RandomLinkSplit` makes. Messages go along the edges of the first; its pairs that are no links are not needed,
    as training draws its own.
    """
    found: dict[str, Any] = {}
    for part, data in zip(("train", "valid", "test"), parts):
        pairs = _array(data.edge_label_index).T
        label = getattr(data, "edge_label", None)
        links = np.ones(len(pairs), dtype=bool) if label is None else _array(label) > 0
        found[part] = pairs[links]
        if part != "train" and not links.all():
            found[f"{part}_neg"] = pairs[~links]
    data = parts[0]
    edges = _edges(data)
    graph = Graph.from_edges(edges[0], edges[1], int(data.num_nodes))
    # Labels of nodes are not what is predicted.
    _say_what_is_left(data, {"edge_label", "edge_label_index"})
    return Dataset(
        graph, x=getattr(data, "x", None), edge_attr=_edge_rows(data), edge_index=edges, links={"default": found}, name=name
    )


def to_pyg(dataset: Dataset) -> Any:
    """A `Data`; of many graphs a list of them, of a graph with types a `HeteroData`."""
    import torch
    from torch_geometric.data import Data

    if dataset.node_types:
        return _to_types(dataset)

    def tensor(values: Any) -> Any:
        return torch.from_numpy(np.array(values.toarray() if hasattr(values, "toarray") else values))

    indptr, edges = dataset.graph.indptr.astype(np.int64), _ends_of(dataset)
    first = dataset.graph_ptr
    whole = first is None
    nodes = np.array([0, dataset.num_nodes]) if first is None else first.astype(np.int64)
    of_nodes = {"x": dataset.x, "categories": None if dataset.categories is None else dataset.categories.astype(np.int64)}
    masks = _as_masks(dataset, dataset.num_nodes if whole else dataset.num_graphs)
    made = []
    for k, (begin, end) in enumerate(zip(nodes[:-1], nodes[1:])):
        own = slice(indptr[begin], indptr[end])
        data = Data(edge_index=tensor(edges[:, own] - begin), num_nodes=int(end - begin))
        rows = {field: values[begin:end] for field, values in of_nodes.items() if values is not None}
        if dataset.edge_attr is not None:
            rows["edge_attr"] = dataset.edge_attr[own]
        here = slice(None) if whole else slice(k, k + 1)
        rows |= {} if dataset.y is None else {"y": dataset.y[here]}
        rows |= {f"{part}_mask": mask[here] for part, mask in masks.items()}
        for field, values in rows.items():
            data[field] = tensor(values)
        made.append(data)
    if dataset.links:
        made[0]["links"] = {split: {part: tensor(pairs).T for part, pairs in parts.items()} for split, parts in dataset.links.items()}
    return made[0] if whole else made


def _ends_of(dataset: Dataset) -> Array:
    """An `edge_index`, in the order of the graph's indices."""
    indptr = dataset.graph.indptr.astype(np.int64)
    targets = np.repeat(np.arange(dataset.num_nodes), indptr[1:] - indptr[:-1])
    return np.stack([dataset.graph.indices.astype(np.int64), targets])


def _to_types(dataset: Dataset) -> Any:
    import torch
    from torch_geometric.data import HeteroData

    made, begins, begin = HeteroData(), [], 0
    masks = _as_masks(dataset, dataset.num_nodes)
    y = dataset.y
    for kind, count, rows in dataset.node_types:
        here = slice(begin, begin + count)
        begins.append(begin)
        made[kind].num_nodes = count
        if rows is not None:
            made[kind].x = torch.from_numpy(np.array(rows))
        known = y is not None and bool(np.any(y[here] != -1 if y.dtype.kind == "i" else ~np.isnan(y[here])))
        if y is not None and known:
            made[kind].y = torch.from_numpy(np.array(y[here]))
        for part, mask in masks.items():
            if known:
                made[kind][f"{part}_mask"] = torch.from_numpy(mask[here].copy())
        begin += count
    names, codes = dataset.edge_types
    ends = _ends_of(dataset)
    kinds = [kind for kind, _, _ in dataset.node_types]
    for number, name in enumerate(names):
        own = codes == number
        pair = ends[:, own]
        if name.count("__") == 2:
            source, relation, target = name.split("__")
            of = [kinds.index(source), kinds.index(target)]
        elif own.any():
            # Of others, the edges tell which nodes they are between.
            relation, of = name, [int(np.searchsorted(begins, end, side="right")) - 1 for end in pair[:, 0]]
        else:
            raise InputError(f"type {name!r} has no edges, so it is between no types", field="edge_types", remedy="leave it out")
        store = made[kinds[of[0]], relation, kinds[of[1]]]
        store.edge_index = torch.from_numpy(pair - np.array([[begins[of[0]]], [begins[of[1]]]]))
        if dataset.edge_attr is not None:
            store.edge_attr = torch.from_numpy(dataset.edge_attr[own])
    return made


def _as_masks(dataset: Dataset, count: int) -> dict[str, Array]:
    """Masks by part; of several splits a column each, in the order of their names, as PyG has it."""
    splits = list(dataset.splits.values())
    if not splits:
        return {}
    masks = {part: np.zeros((count, len(splits)), dtype=bool) for part in _PARTS}
    for column, split in enumerate(splits):
        for part, ids in zip(_PARTS, split):
            masks[part][ids, column] = True
    return {part: mask[:, 0] if len(splits) == 1 else mask for part, mask in masks.items()}
