"""A graph, prepared once for all operations over its edges."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .. import _cuda
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


def _current_stream(index: int) -> Callable[[], int]:
    """What gives the current stream of a GPU as CUDA names it. Torch's own short way, which Triton takes too."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return lambda: int(raw(index))
    return lambda: int(torch.cuda.current_stream(index).cuda_stream)


def _prepared(graph: Graph, device: torch.device) -> EdgeKernels:
    """The graph for kernels on a device; on a GPU, torch gives the memory that they need."""
    if device.type != "cuda":
        return EdgeKernels(graph)
    _cuda.load()
    index = torch.cuda.current_device() if device.index is None else device.index

    def memory(count: int) -> tuple[int, Tensor]:
        made = torch.empty(count, dtype=torch.uint8, device=device)
        return made.data_ptr(), made

    # Torch starts the GPU, and its allocator is asked before the engine is.
    torch.empty(1, device=device)
    return EdgeKernels.on_gpu(graph, index, _current_stream(index), memory)


class Adjacency:
    """The edges of a graph by destination and by source, made once, on the device of ``edge_index``.

    ``edge_index`` has a row of sources and a row of destinations, as in PyTorch Geometric; parallel edges stay.
    Numbers on edges are given to operations in its order.

    >>> import torch
    >>> import graphweft.torch as gt
    >>> adj = gt.Adjacency(torch.tensor([[0, 2], [1, 1]]), num_nodes=3)
    >>> adj, adj.looped
    (Adjacency(3 nodes, 2 edges, cpu), Adjacency(3 nodes, 5 edges, cpu))
    """

    def __init__(self, edge_index: Tensor, num_nodes: int | None = None) -> None:
        if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise ValueError("edge_index: expected a tensor of two rows, sources and destinations")
        if edge_index.is_floating_point() or edge_index.layout != torch.strided:
            raise ValueError("edge_index: expected whole numbers in a dense tensor")
        if edge_index.device.type not in ("cpu", "cuda"):
            raise NotImplementedError(
                f"edge_index is on {edge_index.device}: graphweft.torch computes on the CPU and on CUDA's GPUs"
            )
        self.edge_index = edge_index.detach().long()
        empty = self.edge_index.numel() == 0
        least, most = (0, -1) if empty else (int(n) for n in torch.stack(self.edge_index.aminmax()).tolist())
        self.num_nodes = most + 1 if num_nodes is None else num_nodes
        if least < 0 or most >= self.num_nodes or self.num_nodes >= 2**32 - 1:
            raise ValueError(f"edge_index: ids from {least} to {most} in a graph of {self.num_nodes} nodes")
        sources, targets = (row.contiguous().cpu().numpy() for row in self.edge_index)
        graph = Graph.from_edges(sources, targets, self.num_nodes)
        self._finish(graph, torch.from_numpy(np.diff(graph.indptr.astype(np.int64))))

    def _finish(self, graph: Graph, degrees: Tensor) -> None:
        self._graph, self._degrees = graph, degrees.to(self.device)
        self.kernels = _prepared(graph, self.device)
        number = np.array([next(_NUMBERS)], dtype=np.int64).view(_Number)
        _KERNELS[int(number[0])] = self.kernels
        weakref.finalize(number, _KERNELS.pop, int(number[0]), None)
        self.number = torch.from_numpy(number)
        self._factors: dict[tuple[torch.dtype, float], Tensor] = {}
        self._order: Tensor | None = None
        self._looped: Adjacency | None = None

    @property
    def device(self) -> torch.device:
        """Where the operations compute."""
        return self.edge_index.device

    @property
    def num_edges(self) -> int:
        """How many edges there are."""
        return int(self.edge_index.shape[1])

    def to(self, device: torch.device | str | int) -> Adjacency:
        """The same on another device; itself, if it is there."""
        edge_index = self.edge_index.to(device)
        if edge_index.device == self.device:
            return self
        made = Adjacency.__new__(Adjacency)
        made.edge_index, made.num_nodes = edge_index, self.num_nodes
        made._finish(self._graph, self._degrees)
        return made

    def powers(self, exponent: float, dtype: torch.dtype) -> Tensor:
        """The numbers of edges into each node to a negative power; 0 where there are none."""
        made = self._factors.get((dtype, exponent))
        if made is None:
            made = self._degrees.double().pow(exponent).masked_fill(self._degrees == 0, 0.0).to(dtype)
            if not torch.compiler.is_compiling():
                self._factors[dtype, exponent] = made
        return made

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
            loops = torch.arange(self.num_nodes, device=self.device).expand(2, -1)
            self._looped = Adjacency(torch.cat([others, loops], 1), self.num_nodes)
        return self._looped

    def __repr__(self) -> str:
        return f"Adjacency({self.num_nodes} nodes, {self.num_edges} edges, {self.device})"


def check_device(name: str, tensor: Tensor, adj: Adjacency) -> None:
    """Operands must be where the graph is."""
    if tensor.device != adj.device and tensor.device.type != "meta":
        raise ValueError(f"{name} is on {tensor.device} and the graph on {adj.device}: adj.to({str(tensor.device)!r})")


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
