"""What the tests of `graphweft.torch` share: graphs, operands, calls, models, and the comparison with PyTorch Geometric."""

from __future__ import annotations

from typing import Any

import graphweft.torch as gt
import torch
import torch_geometric.nn as pyg
from graphweft.torch import _ops as ops

def edges(nodes: int, count: int, loops: int = 0, device: str = "cpu") -> Any:
    """Edges at random, some of them parallel, none into the last node but some loops."""
    random = torch.Generator().manual_seed(1)
    index = torch.randint(0, nodes - 1, (2, count), generator=random)
    index = index[:, index[0] != index[1]]
    index[0, 0] = nodes - 1
    return torch.cat([index, torch.arange(loops).expand(2, -1)], 1).to(device)


def tensor(*shape: int, dtype: Any = None, seed: int = 0, device: str = "cpu") -> Any:
    random = torch.Generator().manual_seed(seed + sum(shape))
    made = torch.randn(*shape, generator=random, dtype=torch.float64).to(device, dtype or torch.float64)
    return made.requires_grad_()


_tensor = tensor


def calls(dtype: Any, device: str = "cpu") -> dict[str, Any]:
    """Arguments of every operation, of each kind."""

    def tensor(*shape: int, **how: Any) -> Any:
        return _tensor(*shape, device=device, **how)

    adj, n, heads, c = gt.Adjacency(edges(9, 30, device=device), 9), 9, 2, 4
    number, exact = adj.number, ops.compute_type(dtype)
    row, bias = tensor(n, heads * c, dtype=dtype), tensor(adj.num_edges, heads, dtype=exact)
    column, seed = tensor(n, 1, dtype=exact)[:, 0].detach(), torch.tensor([5], device=device)
    left, right = tensor(n, heads, dtype=exact), tensor(n, heads, dtype=exact, seed=1)
    both, shared = tensor(n, 2 * heads * c, dtype=dtype), tensor(heads, c, dtype=exact)
    # Three features, and a zero behind them.
    wide, features = tensor(n, heads * (c + 4), dtype=dtype), tensor(adj.num_edges, 3, dtype=exact).detach()
    attend = {
        "dot": (row, both, None, None, None, None, None, "dot", heads, 0.0, 0.0),
        "dropped": (row, both, None, None, bias, None, seed, "dot", heads, 0.0, 0.4),
        "edges": (wide, both, None, None, None, features, None, "dot", heads, 0.0, 0.0),
        "dropped edges": (wide, both, None, None, bias, features, seed, "dot", heads, 0.0, 0.4),
        "gat": (left, right, row, None, bias, None, seed, "gat", heads, 0.2, 0.4),
        "gatv2": (row, tensor(n, 8, dtype=dtype, seed=1), None, shared, None, None, None, "gatv2", heads, 0.2, 0.0),
    }
    listed: dict[str, Any] = {name: (ops.attention, (number, *given)) for name, given in attend.items()}
    for name, given in attend.items():
        out, lse = ops.attention(number, *given)
        back = tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in (*given, out, lse, torch.ones_like(out)))
        listed[f"{name} backward"] = (ops.attention_backward, (number, *back))
    weight = tensor(adj.num_edges, dtype=exact)
    listed["sum"] = (ops.edge_sum, (number, row, weight, column, None, False))
    listed["adjoint"] = (ops.edge_sum, (number, row, weight, column, column, True))
    listed["products"] = (ops.edge_products, (number, row.detach(), row.detach(), weight.detach(), column, None))
    listed["max"] = (ops.edge_max, (number, row))
    listed["max backward"] = (ops.edge_max_backward, (number, row.detach(), ops.edge_max(number, row)[1]))
    return listed


CONVS: list[Any] = [
    ("TransformerConv", {"heads": 3}),
    ("TransformerConv", {"heads": 2, "concat": False, "beta": True}),
    ("TransformerConv", {"heads": 2, "root_weight": False, "bias": False}),
    ("TransformerConv", {"heads": 2, "concat": True, "beta": True}),
    ("GATConv", {"heads": 3}),
    ("GATConv", {"heads": 2, "concat": False, "residual": True, "negative_slope": 0.1}),
    ("GATConv", {"heads": 2, "add_self_loops": False, "bias": False}),
    ("GATv2Conv", {"heads": 3}),
    ("GATv2Conv", {"heads": 2, "concat": False, "residual": True, "add_self_loops": False}),
    ("GATv2Conv", {"heads": 2, "share_weights": True, "bias": False}),
    ("GCNConv", {}),
    ("GCNConv", {"improved": True}),
    ("GCNConv", {"add_self_loops": False, "bias": False}),
    ("GCNConv", {"normalize": False}),
    ("SAGEConv", {}),
    ("SAGEConv", {"aggr": "max", "normalize": True}),
    ("SAGEConv", {"aggr": "add", "root_weight": False, "project": True}),
]


def beside_pyg_with_edges(given: dict[str, Any], dtype: Any, tolerance: float, device: str = "cpu") -> None:
    """Features of edges, parallel ones and loops among them."""
    attr = tensor(edges(60, 400, loops=5).shape[1], given["edge_dim"], dtype=dtype, device=device).detach()
    beside_pyg("TransformerConv", given, dtype, tolerance, attr, device=device)


EDGE_DIMS: list[Any] = [
    {"edge_dim": 1, "heads": 3},
    {"edge_dim": 4, "heads": 2, "concat": False, "beta": True},
    {"edge_dim": 7, "heads": 2, "root_weight": False, "bias": False},
]


def beside_pyg(
    name: str, given: dict[str, Any], dtype: Any, tolerance: float, *numbers: Any, device: str = "cpu"
) -> None:
    """Outputs and all gradients, relative to the largest of each."""
    theirs = getattr(pyg, name)(10, 8, **given).to(device, dtype)
    ours = getattr(gt, name)(10, 8, **given).to(device, dtype)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) and set(ours.state_dict()) == set(theirs.state_dict())
    index, found = edges(60, 400, loops=5, device=device), []
    for module in (theirs, ours):
        x = tensor(60, 10, dtype=dtype, device=device)
        extra = [t.detach().clone().requires_grad_(t.requires_grad) for t in numbers]
        out = module(x, index, *extra)
        (out * tensor(*out.shape, dtype=dtype, seed=9, device=device).detach()).sum().backward()
        of = {parameter: value.grad for parameter, value in module.named_parameters()}
        found.append({"out": out, "x": x.grad, **{f"extra {k}": t.grad for k, t in enumerate(extra)}, **of})
    for what, expected in found[0].items():
        got = found[1][what]
        if expected is None or got is None:
            # What is not used has no gradient, or one of zeros.
            assert all(t is None or not t.any() for t in (expected, got)), what
            continue
        scale = max(1.0, float(expected.abs().max()))
        assert float((got - expected).abs().max()) <= tolerance * scale, what


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [
                gt.TransformerConv(8, 4, heads=2, dropout=0.2),
                gt.GATConv(8, 4, heads=2, dropout=0.2),
                gt.GATv2Conv(8, 4, heads=2),
                gt.GCNConv(8, 8),
                gt.SAGEConv(8, 8, aggr="max"),
            ]
        )

    def forward(self, x: Any, adj: Any) -> Any:
        for layer in self.layers:
            x = layer(x, adj).relu()
        return x


def step(run: Any, module: Any, adj: Any) -> list[Any]:
    torch.manual_seed(4)
    x = tensor(adj.num_nodes, 8, dtype=torch.float32, device=str(adj.device))
    module.zero_grad()
    out = run(x, adj)
    out.square().sum().backward()
    return [out.detach(), x.grad, *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


def compiled_equals(backend: str, device: str, tolerance: float) -> None:
    """A model of all modules, compiled whole: outputs and gradients are those of the model; with dropout they are finite."""
    torch.manual_seed(0)
    module, adj = Model().to(device), gt.Adjacency(edges(40, 200, device=device), 40)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    assert adj.looped.num_edges == adj.num_edges + 40, "and is there from now on, for GAT and GCN"
    module.eval()
    for got, expected in zip(step(compiled, module, adj), step(module, module, adj), strict=True):
        assert torch.allclose(got, expected, atol=tolerance)
    module.train()
    assert all(bool(t.isfinite().all()) for t in step(compiled, module, adj))
