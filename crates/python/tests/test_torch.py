"""`graphweft.torch`: what torch asks of operations, equality with PyTorch Geometric, the same bits, what is refused."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pyg = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
gt = pytest.importorskip("graphweft.torch")
ops = pytest.importorskip("graphweft.torch._ops")

TYPES = [(torch.float32, 1e-5), (torch.float64, 1e-10)]


def edges(nodes: int, count: int, loops: int = 0) -> Any:
    """Edges at random, some of them parallel, none into the last node but some loops."""
    random = torch.Generator().manual_seed(1)
    index = torch.randint(0, nodes - 1, (2, count), generator=random)
    index = index[:, index[0] != index[1]]
    index[0, 0] = nodes - 1
    return torch.cat([index, torch.arange(loops).expand(2, -1)], 1)


def tensor(*shape: int, dtype: Any = None, seed: int = 0) -> Any:
    random = torch.Generator().manual_seed(seed + sum(shape))
    made = torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype or torch.float64)
    return made.requires_grad_()


def calls(dtype: Any) -> dict[str, Any]:
    """Arguments of every operation, of each kind."""
    adj, n, heads, c = gt.Adjacency(edges(9, 30), 9), 9, 2, 4
    number, exact = adj.number, ops.compute_type(dtype)
    row, bias = tensor(n, heads * c, dtype=dtype), tensor(adj.num_edges, heads, dtype=exact)
    column, seed = tensor(n, 1, dtype=exact)[:, 0].detach(), torch.tensor([5])
    left, right = tensor(n, heads, dtype=exact), tensor(n, heads, dtype=exact, seed=1)
    attend = {
        "dot": (row, tensor(n, 2 * heads * c, dtype=dtype), None, None, None, None, "dot", heads, 0.0, 0.0),
        "dropped": (row, tensor(n, 2 * heads * c, dtype=dtype), None, None, bias, seed, "dot", heads, 0.0, 0.4),
        "gat": (left, right, row, None, bias, seed, "gat", heads, 0.2, 0.4),
        "gatv2": (row, tensor(n, 8, dtype=dtype, seed=1), None, tensor(heads, c, dtype=exact), None, None, "gatv2",
                  heads, 0.2, 0.0),
    }  # fmt: skip
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", list(calls(torch.float64)))
def test_torch_accepts_every_operation(name: str, dtype: Any) -> None:
    operation, given = calls(dtype)[name]
    torch.library.opcheck(operation, given)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_of_attention(dropout: float) -> None:
    adj, n, h, c = gt.Adjacency(edges(7, 25, loops=3), 7), 7, 2, 3
    bias, att = tensor(adj.num_edges, h), tensor(h, c)
    rows, columns = [tensor(n, h, c, seed=k) for k in range(3)], [tensor(n, h, seed=k) for k in range(2)]

    def run(q: Any, k: Any, v: Any, b: Any, a: Any = None, **how: Any) -> Any:
        return gt.attention(q, k, v, adj, bias=b, att=a, dropout=dropout, seed=3, **how)

    check = torch.autograd.gradcheck
    assert check(lambda q, k, v, b: run(q, k, v, b), (*rows, bias))
    assert check(lambda q, k, v, b: run(q, k, v, b, score="gat"), (*columns, rows[0], bias))
    assert check(lambda q, k, b, a: run(q, k, None, b, a, score="gatv2"), (*rows[:2], bias, att))
    assert check(lambda q, k, v, b, a: run(q, k, v, b, a, score="gatv2"), (*rows, bias, att))


def test_gradients_of_sums() -> None:
    adj = gt.Adjacency(edges(7, 25, loops=3), 7)
    x, weight = tensor(7, 3), tensor(adj.num_edges)
    for reduce in ("sum", "mean"):
        assert torch.autograd.gradcheck(lambda x, w, r=reduce: gt.aggregate(x, adj, reduce=r, weight=w), (x, weight))
        assert torch.autograd.gradcheck(lambda x, r=reduce: gt.aggregate(x, adj, reduce=r, weight="gcn"), (x,))
    assert torch.autograd.gradcheck(lambda x: gt.aggregate(x, adj, reduce="max"), (x,))
    transposed = lambda x, w: ops.edge_sum(adj.number, x, w, None, None, True)  # noqa: E731
    assert torch.autograd.gradcheck(transposed, (x, weight))


def test_attention_equals_what_it_says() -> None:
    """A bias, which PyG has not, beside a dense softmax; numbers on edges are in the order of edge_index."""
    index, n, h, c = edges(8, 30, loops=2), 8, 2, 4
    adj, bias = gt.Adjacency(index, n), tensor(index.shape[1], h)
    q, k, v = (tensor(n, h, c, seed=s) for s in range(3))
    out = gt.attention(q, k, v, adj, bias=bias)
    for i in range(n):
        into = index[1] == i
        j = index[0][into]
        scores = (q[i] * k[j]).sum(-1) / c**0.5 + bias[into]
        expected = (scores.softmax(0)[..., None] * v[j]).sum(0)
        assert torch.allclose(out[i], expected, atol=1e-12), i


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
    ("GCNConv", {"add_self_loops": False, "bias": False}),
    ("GCNConv", {"normalize": False}),
    ("SAGEConv", {}),
    ("SAGEConv", {"aggr": "max", "normalize": True}),
    ("SAGEConv", {"aggr": "add", "root_weight": False, "project": True}),
]


def beside_pyg(name: str, given: dict[str, Any], dtype: Any, tolerance: float, *numbers: Any) -> None:
    """Outputs and all gradients, relative to the largest of each."""
    theirs = getattr(pyg, name)(10, 8, **given).to(dtype)
    ours = getattr(gt, name)(10, 8, **given).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) and set(ours.state_dict()) == set(theirs.state_dict())
    index, found = edges(60, 400, loops=5), []
    for module in (theirs, ours):
        x, extra = tensor(60, 10, dtype=dtype), [t.detach().clone().requires_grad_() for t in numbers]
        out = module(x, index, *extra)
        (out * tensor(*out.shape, dtype=dtype, seed=9).detach()).sum().backward()
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


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize(("name", "given"), CONVS)
def test_modules_equal_those_of_pyg(name: str, given: dict[str, Any], dtype: Any, tolerance: float) -> None:
    beside_pyg(name, given, dtype, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("given", [{}, {"add_self_loops": False}, {"normalize": False}])
def test_weights_of_edges_equal_those_of_pyg(given: dict[str, Any], dtype: Any, tolerance: float) -> None:
    weights = torch.rand(edges(60, 400, loops=5).shape[1], generator=torch.Generator().manual_seed(3)) + 0.1
    beside_pyg("GCNConv", given, dtype, tolerance, weights.to(dtype))


@pytest.mark.parametrize("name", ["TransformerConv", "GATConv", "GATv2Conv", "GCNConv", "SAGEConv"])
def test_bf16_is_near_f32(name: str) -> None:
    module = getattr(gt, name)(10, 8)
    index, x = edges(60, 400), tensor(60, 10, dtype=torch.float32)
    expected = module(x, index)
    out = module.bfloat16()(x.bfloat16(), index)
    assert out.dtype == torch.bfloat16
    assert float((out.float() - expected).abs().max()) < 0.06 * float(expected.abs().max())


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
    x = tensor(adj.num_nodes, 8, dtype=torch.float32)
    module.zero_grad()
    out = run(x, adj)
    out.square().sum().backward()
    return [out.detach(), x.grad, *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


def test_models_are_compiled_whole() -> None:
    torch.manual_seed(0)
    module, adj = Model(), gt.Adjacency(edges(40, 200), 40)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert adj.looped.num_edges == adj.num_edges + 40, "and is there from now on, for GAT and GCN"
    module.eval()
    for got, expected in zip(step(compiled, module, adj), step(module, module, adj), strict=True):
        assert torch.allclose(got, expected, atol=1e-6)
    module.train()
    assert all(bool(t.isfinite().all()) for t in step(compiled, module, adj))


def test_the_same_bits_twice() -> None:
    torch.manual_seed(0)
    module, adj = Model(), gt.Adjacency(edges(500, 60_000), 500)
    first, second = step(module, module, adj), step(module, module, adj)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_seeds_decide_what_is_dropped() -> None:
    adj = gt.Adjacency(edges(40, 400), 40)
    q, k, v = (tensor(40, 2, 4, seed=s).detach() for s in range(3))
    run = lambda **how: gt.attention(q, k, v, adj, dropout=0.5, **how)  # noqa: E731
    assert torch.equal(run(seed=1), run(seed=1)) and not torch.equal(run(seed=1), run(seed=2))
    torch.manual_seed(7)
    first = run()
    assert not torch.equal(first, run())
    torch.manual_seed(7)
    assert torch.equal(first, run())
    mean = torch.stack([run(seed=s) for s in range(400)]).mean(0)
    assert float((mean - gt.attention(q, k, v, adj)).abs().max()) < 0.5


def test_a_graph_lives_as_long_as_backward_needs_it() -> None:
    from graphweft.torch import _adjacency

    gc.collect()
    before = len(_adjacency._KERNELS)
    adj, x = gt.Adjacency(edges(9, 30), 9), tensor(9, 3)
    out = gt.aggregate(x, adj)
    del adj
    gc.collect()
    out.sum().backward()
    assert x.grad is not None
    del out
    gc.collect()
    assert len(_adjacency._KERNELS) == before


def test_an_edge_index_that_was_changed_is_made_anew() -> None:
    index, x = torch.tensor([[0], [1]]), torch.tensor([[1.0], [2.0]])
    conv = gt.SAGEConv(1, 1, root_weight=False, bias=False)
    torch.nn.init.ones_(conv.lin_l.weight)
    assert conv(x, index).flatten().tolist() == [0.0, 1.0]
    index.copy_(torch.tensor([[1], [0]]))
    assert conv(x, index).flatten().tolist() == [2.0, 0.0]


def test_memory_that_is_not_contiguous_or_aligned() -> None:
    adj = gt.Adjacency(edges(40, 200), 40)
    wide = tensor(40, 21, dtype=torch.float32).detach()
    assert torch.equal(gt.aggregate(wide[:, 1:17], adj), gt.aggregate(wide[:, 1:17].clone(), adj))
    flat = tensor(40 * 16 + 1, dtype=torch.float32).detach()[1:].view(40, 16)
    assert torch.equal(gt.aggregate(flat, adj), gt.aggregate(flat.clone(), adj))


def test_empty_graphs() -> None:
    adj = gt.Adjacency(torch.empty(2, 0, dtype=torch.long), 4)
    q = tensor(4, 2, 3)
    assert not gt.attention(q, q, q, adj).any() and not gt.aggregate(tensor(4, 3), adj, reduce="max").any()
    none = gt.Adjacency(torch.empty(2, 0, dtype=torch.long), 0)
    assert gt.aggregate(tensor(0, 3), none).shape == (0, 3)


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("edge_dim", lambda: gt.TransformerConv(4, 4, edge_dim=2)),
        ("edge_dim", lambda: gt.GATConv(4, 4, edge_dim=2)),
        ("edge_dim", lambda: gt.GATv2Conv(4, 4, edge_dim=2)),
        ("improved", lambda: gt.GCNConv(4, 4, improved=True)),
        ("aggr", lambda: gt.SAGEConv(4, 4, aggr="lstm")),
        ("flow", lambda: gt.SAGEConv(4, 4, flow="target_to_source")),
        ("in_channels", lambda: gt.SAGEConv((4, 4), 4)),
        ("in_channels", lambda: gt.GATConv(-1, 4)),
        ("x", lambda: gt.SAGEConv(4, 4)((torch.zeros(2, 4), torch.zeros(2, 4)), edges(5, 9))),
        ("return_attention_weights", lambda: gt.GATConv(4, 4)(torch.zeros(9, 4), edges(9, 9), None, None, True)),
    ],
)
def test_what_is_not_supported_is_named(what: str, make: Any) -> None:
    with pytest.raises(NotImplementedError, match=what):
        make()


def test_nonsense_is_refused() -> None:
    adj, x = gt.Adjacency(edges(9, 30), 9), tensor(9, 3)
    for wrong in (torch.zeros(3, 4), torch.tensor([[0], [-1]]), torch.zeros(2, 4)):
        with pytest.raises(ValueError, match="edge_index"):
            gt.Adjacency(wrong, 9)
    with pytest.raises(ValueError, match="edge_index"):
        gt.Adjacency(edges(9, 30), 3)
    with pytest.raises(ValueError, match="x"):
        gt.aggregate(x[:5], adj)
    with pytest.raises(ValueError, match="weight"):
        gt.aggregate(x, adj, weight=torch.ones(3))
    with pytest.raises(TypeError, match="float16"):
        gt.aggregate(x.half(), adj)
    with pytest.raises(ValueError, match="kv"):
        ops.attention(adj.number, x, x, None, None, None, None, "dot", 1, 0.0, 0.0)
    with pytest.raises(ValueError, match="dropout"):
        gt.attention(x[:, None], x[:, None], x[:, None], adj, dropout=2.0)
    with pytest.raises(RuntimeError, match="gone"):
        ops.edge_sum(torch.tensor([10**9]), x, None, None, None, False)


def test_importing_the_package_imports_no_torch() -> None:
    program = "import graphweft, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
