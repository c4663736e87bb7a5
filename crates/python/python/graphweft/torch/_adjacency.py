"""A graph, prepared once for all operations over its edges."""

from __future__ import annotations

import itertools
import weakref

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .._graphweft import EdgeKernels, Graph

# Graphs by number. Operations of torch take tensors only, so a graph goes to them as a tensor that has its number.
_KERNELS: dict[int, EdgeKernels] = {}
_NUMBERS = itertools.count()
# What was made of an edge_index that was handed to a module, for the next layer and the next step.
_MADE: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


class _Number(np.ndarray):  # type: ignore[type-arg]
    """The number of a graph. Tensors made of it keep it alive, and it keeps the graph: also one that only backward has."""


def kernels_of(number: Tensor) -> EdgeKernels:
    """The graph that a tensor from `Adjacency.number` stands for."""
    found = _KERNELS.get(int(number.item()))
    if found is None:
        raise RuntimeError("the graph of this operation is gone: keep its Adjacency")
    return found


class Adjacency:
    """The edges of a graph by destination and by source, made once.

    ``edge_index`` has a row of sources and a row of destinations, as in PyTorch Geometric; parallel edges stay.
    Numbers on edges are given to operations in its order.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int | None = None) -> None:
        if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise ValueError("edge_index: expected a tensor of two rows, sources and destinations")
        if edge_index.is_floating_point() or edge_index.layout != torch.strided:
            raise ValueError("edge_index: expected whole numbers in a dense tensor")
        check_device("edge_index", edge_index)
        self.edge_index = edge_index.detach().long()
        empty = self.edge_index.numel() == 0
        least, most = (0, -1) if empty else (int(n) for n in self.edge_index.aminmax())
        self.num_nodes = most + 1 if num_nodes is None else num_nodes
        if least < 0 or most >= self.num_nodes or self.num_nodes >= 2**32 - 1:
            raise ValueError(f"edge_index: ids from {least} to {most} in a graph of {self.num_nodes} nodes")
        sources, targets = (row.contiguous().numpy().astype(np.uint32) for row in self.edge_index)
        graph = Graph.from_edges(sources, targets, self.num_nodes)
        degrees = np.diff(np.asarray(graph.indptr)).astype(np.float64)
        with np.errstate(divide="ignore"):
            inverse = np.where(degrees > 0, 1 / degrees, 0.0)
        self.inverse_degrees = torch.from_numpy(inverse)
        number = np.array([next(_NUMBERS)], dtype=np.int64).view(_Number)
        _KERNELS[int(number[0])] = EdgeKernels(graph)
        weakref.finalize(number, _KERNELS.pop, int(number[0]), None)
        self.number = torch.from_numpy(number)
        self._order: Tensor | None = None
        self._looped: Adjacency | None = None

    @property
    def num_edges(self) -> int:
        return int(self.edge_index.shape[1])

    @property
    def order(self) -> Tensor:
        """Which edge of ``edge_index`` stands at each place of the kernels' order, by destination and source."""
        if self._order is None:
            self._order = torch.argsort(self.edge_index[1] * self.num_nodes + self.edge_index[0], stable=True)
        return self._order

    @property
    def looped(self) -> Adjacency:
        """The same with exactly one edge from every node to itself, after all others; made at its first use."""
        if self._looped is None:
            if torch.compiler.is_compiling():
                raise NotImplementedError("edge_index: ask for adj.looped once before torch.compile, which cannot make it")
            others = self.edge_index[:, self.edge_index[0] != self.edge_index[1]]
            loops = torch.arange(self.num_nodes).expand(2, -1)
            self._looped = Adjacency(torch.cat([others, loops], 1), self.num_nodes)
        return self._looped

    def __repr__(self) -> str:
        return f"Adjacency({self.num_nodes} nodes, {self.num_edges} edges)"


def check_device(name: str, tensor: Tensor) -> None:
    if tensor.device.type not in ("cpu", "meta"):
        raise NotImplementedError(
            f"{name} is on {tensor.device}: graphweft.torch computes on the CPU only. "
            "Graphweft's CUDA kernels are not connected to torch's tensors yet; move the tensors with .cpu()"
        )


def adjacency_of(edge_index: Tensor | Adjacency, num_nodes: int) -> Adjacency:
    """What a module was given; made of a tensor once, as long as that lives and is not changed."""
    if isinstance(edge_index, Adjacency):
        if edge_index.num_nodes != num_nodes:
            raise ValueError(f"edge_index: a graph of {edge_index.num_nodes} nodes, but x has {num_nodes} rows")
        return edge_index
    if not isinstance(edge_index, Tensor):
        raise NotImplementedError(f"edge_index: expected a tensor or an Adjacency, not {type(edge_index).__name__}")
    if torch.compiler.is_compiling():
        raise NotImplementedError("edge_index: torch.compile needs an Adjacency that was made outside of what it compiles")
    version, made = _MADE.get(edge_index, (None, {}))
    if version != edge_index._version:
        version, made = edge_index._version, {}
        _MADE[edge_index] = (version, made)
    if num_nodes not in made:
        made[num_nodes] = Adjacency(edge_index, num_nodes)
    found: Adjacency = made[num_nodes]
    return found
