"""Attention and sums over edges, as functions."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _ops
from ._adjacency import Adjacency, check_device


def drawn_seed(dropout: float, device: torch.device) -> Tensor | None:
    """A seed from torch's generator, so that torch.manual_seed decides it. It stays a tensor, on the device: compiled
    code and captured graphs draw it anew every time.
    """
    return torch.randint(0, 2**62, (1,), device=device) if dropout > 0 else None


def with_edges(
    adj: Adjacency, query: Tensor, both: Tensor, edge_attr: Tensor, weight: Tensor, heads: int, bias: Tensor | None, seed: Tensor | None,
    dropout: float,
) -> Tensor:  # fmt: skip
    """Attention by dot products with keys k + W·e and values v + W·e, without a tensor of edges × columns.

    q·(k + W e) is q·k + (Wᵀ q)·e, and Σ α (v + W e) is Σ α v + W (Σ α e): so Wᵀ q goes behind each head of a query, and
    the kernel gives Σ α e behind each head of its output.
    """
    nodes, columns, features = query.shape[0], query.shape[1] // heads, int(edge_attr.shape[1])
    if edge_attr.requires_grad:
        raise NotImplementedError("edge_attr: graphweft.torch has no gradient of features of edges: give edge_attr.detach()")
    per_head = weight.view(heads, columns, features).to(query.dtype)
    q = query.view(nodes, heads, columns)
    tail = torch.einsum("nhc,hcf->nhf", q, per_head)
    wide = torch.cat([q, tail, tail.new_zeros(nodes, heads, -features % 4)], 2)
    rows = edge_attr.to(_ops.compute_type(query.dtype)).index_select(0, adj.order)
    out = _ops.attend(adj, wide.flatten(1), both, None, None, bias, rows, seed, "dot", heads, 0.0, dropout)
    out = out.view(nodes, heads, -1)
    sums = out[:, :, columns : columns + features]
    return (out[:, :, :columns] + torch.einsum("nhf,hcf->nhc", sums, per_head)).flatten(1)


def check_edges(name: str, edge_attr: Tensor, adj: Adjacency) -> Tensor:
    """Features as a row per edge, where the graph is."""
    rows = edge_attr.unsqueeze(-1) if edge_attr.dim() == 1 else edge_attr
    if rows.dim() != 2 or rows.shape[0] != adj.num_edges or rows.shape[1] == 0:
        raise ValueError(f"{name}: expected a row for each of {adj.num_edges} edges, not {tuple(edge_attr.shape)}")
    check_device(name, rows, adj)
    return rows


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    adj: Adjacency,
    *,
    score: str = "dot",
    att: Tensor | None = None,
    negative_slope: float = 0.2,
    bias: Tensor | None = None,
    edge_attr: Tensor | None = None,
    edge_weight: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = None,
) -> Tensor:
    """Softmax attention of every node over the edges into it: nodes × heads × columns.

    ``score`` says what an edge j → i scores for a head:

    * ``"dot"``: query_i·key_j / √columns, all of nodes × heads × columns;
    * ``"gat"``: LeakyReLU(query_i + key_j), both of nodes × heads;
    * ``"gatv2"``: att·LeakyReLU(query_i + key_j), with ``att`` of heads × columns; without ``value``, key is it.

    ``bias``, edges × heads, is added. ``edge_attr``, edges × features, adds ``edge_weight``·features to keys and values
    of the score "dot"; ``edge_weight`` is heads·columns × features, as the weight of a linear layer, and has a gradient,
    which ``edge_attr`` has not. ``dropout`` drops weights; the same ``seed`` drops the same ones, and none takes
    one from torch's generator. Parallel edges are dropped together.

    >>> import torch
    >>> import graphweft.torch as gt
    >>> adj = gt.Adjacency(torch.tensor([[0, 2], [1, 1]]), num_nodes=3)
    >>> q = torch.ones(3, 1, 2)
    >>> gt.attention(q, q, torch.tensor([[[1.0, 0.0]], [[5.0, 5.0]], [[0.0, 1.0]]]), adj)[1].tolist()
    [[0.5, 0.5]]
    """
    check_device("query", query, adj)
    if score not in ("dot", "gat", "gatv2"):
        raise ValueError(f'score: "dot", "gat" or "gatv2", not {score!r}')
    if value is None and score != "gatv2":
        raise ValueError(f"value: needed for the score {score!r}")
    if (att is not None) != (score == "gatv2"):
        raise ValueError('att: needed for the score "gatv2", and for no other')
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout: a number from 0 to 1, not {dropout}")
    if (edge_attr is None) != (edge_weight is None):
        raise ValueError("edge_attr and edge_weight: give both or none")
    if edge_attr is not None and score != "dot":
        raise NotImplementedError('edge_attr: graphweft.torch has features of edges for the score "dot" only')
    rows = key if value is None else value
    if rows.dim() != 3:
        raise ValueError("value: expected nodes × heads × columns")
    heads, columns = int(rows.shape[1]), int(rows.shape[2])
    # Scores of GAT are in the type of the computation, as is what all edges share.
    exact = _ops.compute_type(rows.dtype)
    if score == "gat":
        dst, src = query.flatten(1).to(exact), key.flatten(1).to(exact)
    elif score == "dot" and value is not None:
        dst, src = query.flatten(1), torch.cat([key.flatten(1), value.flatten(1)], 1)
    else:
        dst, src = query.flatten(1), key.flatten(1)
    if bias is not None:
        bias = bias.to(exact).index_select(0, adj.order)
    if isinstance(seed, int):
        seed = torch.tensor([seed % 2**63])
    elif seed is None:
        seed = drawn_seed(dropout, rows.device)
    shared = None if att is None else att.reshape(heads, columns).to(exact)
    values = value.flatten(1) if value is not None and score != "dot" else None
    seed = seed if dropout > 0 else None
    if edge_attr is None or edge_weight is None or adj.num_edges == 0:
        out = _ops.attend(adj, dst, src, values, shared, bias, None, seed, score, heads, negative_slope, dropout)
    else:
        features = check_edges("edge_attr", edge_attr, adj)
        if edge_weight.shape != (heads * columns, features.shape[1]):
            problem = f"expected {heads * columns} × {features.shape[1]} numbers, not {tuple(edge_weight.shape)}"
            raise ValueError(f"edge_weight: {problem}")
        out = with_edges(adj, dst, src, features, edge_weight, heads, bias, seed, dropout)
    return out.view(-1, heads, columns)


def aggregate(x: Tensor, adj: Adjacency, *, reduce: str = "sum", weight: Tensor | str | None = None) -> Tensor:
    """What the sources of every node come to: ``reduce`` is "sum", "mean" or "max". Nodes without any get 0.

    ``weight`` multiplies a sum or a mean: a number per edge, which may have a gradient, or ``"gcn"``: 1/√(d_i·d_j)
    with the numbers of edges into both ends. Among equal maxima the smallest id has the gradient.

    >>> import torch
    >>> import graphweft.torch as gt
    >>> adj = gt.Adjacency(torch.tensor([[0, 2], [1, 1]]), num_nodes=3)
    >>> gt.aggregate(torch.tensor([[1.0], [2.0], [4.0]]), adj, reduce="max").flatten().tolist()
    [0.0, 4.0, 0.0]
    """
    check_device("x", x, adj)
    if x.dim() != 2 or x.shape[0] != adj.num_nodes:
        raise ValueError(f"x: expected a row for each of {adj.num_nodes} nodes, not {tuple(x.shape)}")
    if reduce == "max":
        if weight is not None:
            raise NotImplementedError("weight: the maximum takes none")
        return _ops.max_edges(adj, x)
    if reduce not in ("sum", "mean"):
        raise ValueError(f'reduce: "sum", "mean" or "max", not {reduce!r}')
    exact = _ops.compute_type(x.dtype)
    edge = dst = src = None
    if isinstance(weight, Tensor):
        if weight.numel() != adj.num_edges:
            raise ValueError(f"weight: {weight.numel()} numbers for {adj.num_edges} edges")
        edge = weight.reshape(-1).to(exact).index_select(0, adj.order)
    elif weight == "gcn":
        dst = src = adj.powers(-0.5, exact)
    elif weight is not None:
        raise ValueError(f'weight: a tensor or "gcn", not {weight!r}')
    if reduce == "mean":
        inverse = adj.powers(-1.0, exact)
        dst = inverse if dst is None else dst * inverse
    return _ops.sum_edges(adj, x, edge, dst, src)
