"""`graphweft.torch`: what torch asks of operations, equality with PyTorch Geometric, the same bits, what is refused."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")

import graphweft.torch as gt  # noqa: E402 - it imports torch.
from graphweft.torch import _ops as ops  # noqa: E402
from torch_cases import (  # noqa: E402
    CONVS, EDGE_DIMS, Model, beside_pyg, beside_pyg_with_edges, calls, compiled_equals, edges, step, tensor,
)  # fmt: skip

TYPES = [(torch.float32, 1e-5), (torch.float64, 1e-10)]


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


def test_gradients_have_no_gradients() -> None:
    """By either way to call an operation: never a number that is wrong."""
    adj, x = gt.Adjacency(edges(7, 25), 7), tensor(7, 4)
    both, of = torch.cat([x, x], 1), (None, None, None, None, None, "dot", 2, 0.0, 0.0)
    for out in (ops.attention(adj.number, x, both, *of)[0], gt.aggregate(x, adj, reduce="max"), ops.edge_max(adj.number, x)[0]):
        (g,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        with pytest.raises((NotImplementedError, RuntimeError), match="gradients of gradients|once_differentiable"):
            g.sum().backward()


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


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize(("name", "given"), CONVS)
def test_modules_equal_those_of_pyg(name: str, given: dict[str, Any], dtype: Any, tolerance: float) -> None:
    beside_pyg(name, given, dtype, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("given", [{}, {"improved": True}, {"add_self_loops": False}, {"normalize": False}])
def test_weights_of_edges_equal_those_of_pyg(given: dict[str, Any], dtype: Any, tolerance: float) -> None:
    weights = torch.rand(edges(60, 400, loops=5).shape[1], generator=torch.Generator().manual_seed(3)) + 0.1
    beside_pyg("GCNConv", given, dtype, tolerance, weights.to(dtype).requires_grad_())


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("given", EDGE_DIMS)
def test_features_of_edges_equal_those_of_pyg(given: dict[str, Any], dtype: Any, tolerance: float) -> None:
    beside_pyg_with_edges(given, dtype, tolerance)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_of_attention_with_features_of_edges(dropout: float) -> None:
    adj, n, h, c, f = gt.Adjacency(edges(7, 25, loops=3), 7), 7, 2, 3, 5
    attr, bias, weight = tensor(adj.num_edges, f).detach(), tensor(adj.num_edges, h), tensor(h * c, f)

    def run(q: Any, k: Any, v: Any, w: Any, b: Any) -> Any:
        return gt.attention(q, k, v, adj, bias=b, edge_attr=attr, edge_weight=w, dropout=dropout, seed=3)

    rows = [tensor(n, h, c, seed=k) for k in range(3)]
    assert torch.autograd.gradcheck(run, (*rows, weight, bias))


def test_features_of_edges_are_compiled_and_refused_by_name() -> None:
    adj, conv = gt.Adjacency(edges(9, 30), 9), gt.TransformerConv(4, 4, heads=2, edge_dim=3)
    x, attr = tensor(9, 4, dtype=torch.float32), tensor(adj.num_edges, 3, dtype=torch.float32)
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, adj, attr.detach()), conv(x, adj, attr.detach()), atol=1e-6)
    with pytest.raises(NotImplementedError, match="edge_attr"):
        conv(x, adj, attr)
    for wrong in (None, attr.detach()[1:]):
        with pytest.raises(ValueError, match="edge_attr"):
            conv(x, adj, wrong)
    q = x.view(9, 1, 4)
    with pytest.raises(ValueError, match="edge_weight"):
        gt.attention(q, q, q, adj, edge_attr=attr.detach(), edge_weight=torch.zeros(3, 4))
    with pytest.raises(NotImplementedError, match="edge_attr"):
        gt.attention(q, q, None, adj, score="gatv2", att=torch.ones(1, 4), edge_attr=attr, edge_weight=attr)


@pytest.mark.parametrize("name", ["TransformerConv", "GATConv", "GATv2Conv", "GCNConv", "SAGEConv"])
def test_bf16_is_near_f32(name: str) -> None:
    module = getattr(gt, name)(10, 8)
    index, x = edges(60, 400), tensor(60, 10, dtype=torch.float32)
    expected = module(x, index)
    out = module.bfloat16()(x.bfloat16(), index)
    assert out.dtype == torch.bfloat16
    assert float((out.float() - expected).abs().max()) < 0.06 * float(expected.abs().max())


def test_models_are_compiled_whole() -> None:
    compiled_equals("aot_eager", "cpu", 1e-6)


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


def test_both_ways_to_call_an_operation_give_the_same_bits() -> None:
    """Functions of autograd, and the registered operations that a mode or a compiler sees."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):  # type: ignore[misc]
        names: set[str] = set()

        def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.add(str(called))
            return called(*args, **(kwargs or {}))

    torch.manual_seed(0)
    module, adj = Model(), gt.Adjacency(edges(300, 9000), 300)
    direct, mode = step(module, module, adj), Seen()
    with mode:
        registered = step(module, module, adj)
    assert all(torch.equal(a, b) for a, b in zip(direct, registered, strict=True))
    asked = {f"graphweft.{name}.default" for name in ("attention", "attention_backward", "edge_sum", "edge_max")}
    assert asked <= mode.names


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
        ("edge_dim", lambda: gt.GATConv(4, 4, edge_dim=2)),
        ("edge_dim", lambda: gt.GATv2Conv(4, 4, edge_dim=2)),
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
        ops.attention(adj.number, x, x, None, None, None, None, None, "dot", 1, 0.0, 0.0)
    with pytest.raises(ValueError, match="dropout"):
        gt.attention(x[:, None], x[:, None], x[:, None], adj, dropout=2.0)
    with pytest.raises(RuntimeError, match="gone"):
        ops.edge_sum(torch.tensor([10**9]), x, None, None, None, False)


def test_importing_the_package_imports_no_torch() -> None:
    program = "import graphweft, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
