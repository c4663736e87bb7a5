"""Convolutions with the arguments and the parameters' names of PyTorch Geometric, over Graphweft's kernels.

`edge_index` may be an `Adjacency`. A tensor is made one at its first use, which later layers and steps find again.
What these modules cannot do is refused with the name of the argument.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import _ops
from ._adjacency import Adjacency, adjacency_of, check_device
from ._functions import aggregate, attention, check_edges, drawn_seed, with_edges

_Edges: TypeAlias = "Tensor | Adjacency"


def _refuse(module: nn.Module, arguments: dict[str, Any]) -> None:
    """`arguments` are those that the module takes as PyG does but has no kernel for, where they are not None."""
    for name, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"{type(module).__name__}: graphweft.torch does not support the argument {name}")


def _one_width(module: nn.Module, in_channels: Any) -> int:
    """Graphs between two kinds of nodes, and widths that are found at the first call, are not for these modules."""
    if not isinstance(in_channels, int) or in_channels < 1:
        raise NotImplementedError(
            f"{type(module).__name__}: graphweft.torch supports in_channels as one positive number only"
        )
    return in_channels


def _adjacency(module: nn.Module, x: Any, edge_index: _Edges) -> Adjacency:
    if not isinstance(x, Tensor) or x.dim() != 2:
        raise NotImplementedError(f"{type(module).__name__}: graphweft.torch supports x as one matrix only")
    adj = adjacency_of(edge_index, int(x.shape[0]))
    check_device("x", x, adj)
    return adj


def _glorot(weight: Tensor) -> None:
    bound = math.sqrt(6.0 / (weight.shape[-2] + weight.shape[-1]))
    nn.init.uniform_(weight, -bound, bound)


def _projection(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A linear layer that starts as PyG's with `glorot`."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    _glorot(layer.weight)
    return layer


class TransformerConv(nn.Module):
    """`torch_geometric.nn.TransformerConv`. Features of edges have no gradient; their weight has one."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        _refuse(self, kwargs)
        inputs, width = _one_width(self, in_channels), heads * out_channels
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.dropout, self.root_weight = concat, dropout, root_weight
        self.beta = beta and root_weight
        self.lin_key = nn.Linear(inputs, width, bias=bias)
        self.lin_query = nn.Linear(inputs, width, bias=bias)
        self.lin_value = nn.Linear(inputs, width, bias=bias)
        self.edge_dim = edge_dim
        self.lin_edge = None if edge_dim is None else nn.Linear(edge_dim, width, bias=False)
        outputs = width if concat else out_channels
        # PyG has it without root_weight too.
        self.lin_skip = nn.Linear(inputs, outputs, bias=bias)
        self.lin_beta = nn.Linear(3 * outputs, 1, bias=False) if self.beta else None

    def reset_parameters(self) -> None:
        for layer in (self.lin_key, self.lin_query, self.lin_value, self.lin_edge, self.lin_skip, self.lin_beta):
            if layer is not None:
                layer.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: _Edges, edge_attr: Tensor | None = None, return_attention_weights: bool | None = None
    ) -> Tensor:
        _refuse(self, {"return_attention_weights": return_attention_weights})
        adj, dropout = _adjacency(self, x, edge_index), self.dropout if self.training else 0.0
        if (edge_attr is None) != (self.lin_edge is None):
            raise ValueError("TransformerConv: edge_attr is needed where there is an edge_dim, and nowhere else")
        query = self.lin_query(x)
        # Keys and values side by side, as the kernel reads them, by one product.
        weight = torch.cat([self.lin_key.weight, self.lin_value.weight])
        bias = None if self.lin_key.bias is None else torch.cat([self.lin_key.bias, self.lin_value.bias])
        both = F.linear(x, weight, bias)
        seed = drawn_seed(dropout, x.device)
        if edge_attr is None or self.lin_edge is None or adj.num_edges == 0:
            out = _ops.attend(adj, query, both, None, None, None, None, seed, "dot", self.heads, 0.0, dropout)
        else:
            features = check_edges("edge_attr", edge_attr, adj)
            out = with_edges(adj, query, both, features, self.lin_edge.weight, self.heads, None, seed, dropout)
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(1)
        if not self.root_weight:
            return out
        skip = self.lin_skip(x)
        if self.lin_beta is None:
            return out + skip
        beta = self.lin_beta(torch.cat([out, skip, out - skip], -1)).sigmoid()
        return beta * skip + (1 - beta) * out


class _Gat(nn.Module):
    """What GAT and GATv2 share: heads side by side or their mean, a residual, a bias."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int,
        concat: bool,
        negative_slope: float,
        dropout: float,
        add_self_loops: bool,
        bias: bool,
        residual: bool,
        refused: dict[str, Any],
    ) -> None:
        super().__init__()
        _refuse(self, refused)
        inputs = _one_width(self, in_channels)
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        self.negative_slope, self.dropout, self.add_self_loops = negative_slope, dropout, add_self_loops
        self.residual = residual
        outputs = out_channels * (heads if concat else 1)
        self.res = _projection(inputs, outputs) if residual else None
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                _glorot(parameter)

    def edges(self, x: Tensor, edge_index: _Edges) -> Adjacency:
        adj = _adjacency(self, x, edge_index)
        return adj.looped if self.add_self_loops else adj

    def finish(self, rows: Tensor, x: Tensor) -> Tensor:
        out = rows.flatten(1) if self.concat else rows.mean(1)
        if self.res is not None:
            out = out + self.res(x)
        return out if self.bias is None else out + self.bias


class GATConv(_Gat):
    """`torch_geometric.nn.GATConv`, without features of edges."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        # fill_value says what features new loops get: of no matter where edges have none.
        refused = {"edge_dim": edge_dim, **kwargs}
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops, bias, residual, refused
        )
        self.lin = _projection(in_channels, heads * out_channels)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: _Edges,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Tensor:
        _refuse(self, {"edge_attr": edge_attr, "size": size, "return_attention_weights": return_attention_weights})
        adj = self.edges(x, edge_index)
        z = self.lin(x).view(-1, self.heads, self.out_channels)
        rows = attention(
            (z * self.att_dst).sum(-1),
            (z * self.att_src).sum(-1),
            z,
            adj,
            score="gat",
            negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.finish(rows, x)


class GATv2Conv(_Gat):
    """`torch_geometric.nn.GATv2Conv`, without features of edges."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        # fill_value as in GATConv.
        refused = {"edge_dim": edge_dim, **kwargs}
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops, bias, residual, refused
        )
        self.share_weights = share_weights
        # As in PyG, l is of sources, whose rows are the values too, and r of destinations.
        self.lin_l = _projection(in_channels, heads * out_channels, bias)
        self.lin_r = self.lin_l if share_weights else _projection(in_channels, heads * out_channels, bias)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: _Edges, edge_attr: Tensor | None = None, return_attention_weights: bool | None = None
    ) -> Tensor:
        _refuse(self, {"edge_attr": edge_attr, "return_attention_weights": return_attention_weights})
        adj = self.edges(x, edge_index)
        src = self.lin_l(x).view(-1, self.heads, self.out_channels)
        dst = src if self.share_weights else self.lin_r(x).view(-1, self.heads, self.out_channels)
        rows = attention(
            dst,
            src,
            None,
            adj,
            score="gatv2",
            att=self.att,
            negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.finish(rows, x)


class GCNConv(nn.Module):
    """`torch_geometric.nn.GCNConv`. `cached` changes nothing: an Adjacency is made once anyway."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        _refuse(self, kwargs)
        self.add_self_loops = normalize if add_self_loops is None else add_self_loops
        if self.add_self_loops and not normalize:
            raise ValueError("GCNConv: add_self_loops needs normalize")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.improved, self.cached, self.normalize = improved, cached, normalize
        self.lin = _projection(_one_width(self, in_channels), out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def reset_parameters(self) -> None:
        _glorot(self.lin.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: _Edges, edge_weight: Tensor | None = None) -> Tensor:
        adj = _adjacency(self, x, edge_index)
        weight: Tensor | str | None = "gcn" if self.normalize else None
        if edge_weight is not None:
            if edge_weight.numel() != adj.num_edges:
                raise ValueError(f"edge_weight: {edge_weight.numel()} numbers for {adj.num_edges} edges")
            weight = self._normalised(adj, edge_weight.reshape(-1)) if self.normalize else edge_weight
        if self.add_self_loops:
            adj = adj.looped
        out = aggregate(self.lin(x), adj, weight=weight)
        return out if self.bias is None else out + self.bias

    def _normalised(self, adj: Adjacency, weight: Tensor) -> Tensor:
        """w / √(d_i·d_j) with sums of weights as degrees; a loop that was there keeps its weight, others have 1, or 2 in
        an improved layer.
        """
        sources, targets = adj.edge_index
        if self.add_self_loops:
            loop = sources == targets
            new = weight.new_full((adj.num_nodes,), 2.0 if self.improved else 1.0)
            loops = new.index_put((sources[loop],), weight[loop])
            weight, adj = torch.cat([weight[~loop], loops]), adj.looped
            sources, targets = adj.edge_index
        # Torch's own sums over a GPU's threads are not the same every time.
        degrees = aggregate(weight.new_ones(adj.num_nodes, 1), adj, weight=weight).flatten()
        roots = degrees.pow(-0.5)
        roots = roots.masked_fill(roots == math.inf, 0.0)
        return roots[sources] * weight * roots[targets]


class SAGEConv(nn.Module):
    """`torch_geometric.nn.SAGEConv` with the aggregations sum (or add), mean and max."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggr: str = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if aggr not in ("add", "sum", "mean", "max"):
            raise NotImplementedError(f"SAGEConv: graphweft.torch supports aggr as sum, mean or max, not {aggr!r}")
        _refuse(self, kwargs)
        inputs = _one_width(self, in_channels)
        self.in_channels, self.out_channels, self.aggr = in_channels, out_channels, aggr
        self.normalize, self.root_weight, self.project = normalize, root_weight, project
        if project:
            self.lin = nn.Linear(inputs, inputs)
        self.lin_l = nn.Linear(inputs, out_channels, bias=bias)
        if root_weight:
            self.lin_r = nn.Linear(inputs, out_channels, bias=False)

    def reset_parameters(self) -> None:
        for layer in self.children():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def forward(self, x: Tensor, edge_index: _Edges, size: tuple[int, int] | None = None) -> Tensor:
        _refuse(self, {"size": size})
        adj = _adjacency(self, x, edge_index)
        rows = self.lin(x).relu() if self.project else x
        out = self.lin_l(aggregate(rows, adj, reduce="sum" if self.aggr == "add" else self.aggr))
        if self.root_weight:
            out = out + self.lin_r(x)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out
