"""`graphweft.torch` on a GPU: equality, streams, captured graphs, compilers, memory. Skipped where there is none."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

import graphweft.torch as gt  # noqa: E402 - it imports torch.
from torch_cases import (  # noqa: E402
    CONVS, EDGE_DIMS, Model, beside_pyg, beside_pyg_with_edges, calls, compiled_equals, edges, step, tensor,
)  # fmt: skip

GPU = "cuda:0"
# Some hundred milliseconds in which a stream does nothing else.
DELAY = 400_000_000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", list(calls(torch.float64)))
def test_torch_accepts_every_operation(name: str, dtype: Any) -> None:
    operation, given = calls(dtype, GPU)[name]
    torch.library.opcheck(operation, given)


@pytest.mark.parametrize(("name", "given"), CONVS)
def test_modules_equal_those_of_pyg(name: str, given: dict[str, Any]) -> None:
    # As on the CPU, also where PyG's own sums are in another order every time.
    beside_pyg(name, given, torch.float32, 1e-5, device=GPU)
    beside_pyg(name, given, torch.float64, 1e-10, device=GPU)


def test_weights_of_edges_equal_those_of_pyg() -> None:
    weights = torch.rand(edges(60, 400, loops=5).shape[1], generator=torch.Generator().manual_seed(3)) + 0.1
    for given in ({}, {"add_self_loops": False}, {"normalize": False}):
        beside_pyg("GCNConv", given, torch.float32, 1e-5, weights.to(GPU).requires_grad_(), device=GPU)


@pytest.mark.parametrize("given", EDGE_DIMS)
def test_features_of_edges_equal_those_of_pyg(given: dict[str, Any]) -> None:
    beside_pyg_with_edges(given, torch.float32, 1e-5, device=GPU)
    beside_pyg_with_edges(given, torch.float64, 1e-10, device=GPU)


@pytest.mark.parametrize("name", ["TransformerConv", "GATConv", "GATv2Conv", "GCNConv", "SAGEConv"])
def test_bf16_and_autocast_are_near_f32(name: str) -> None:
    module = getattr(gt, name)(10, 8).to(GPU)
    index, x = edges(60, 400, device=GPU), tensor(60, 10, dtype=torch.float32, device=GPU)
    expected = module(x, index)
    with torch.autocast("cuda", torch.bfloat16):
        cast = module(x, index)
        cast.float().square().sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())
    stored = module.bfloat16()(x.bfloat16(), index)
    assert stored.dtype == torch.bfloat16
    for out in (cast, stored):
        assert float((out.float() - expected).abs().max()) < 0.06 * float(expected.abs().max())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_in_f64(dropout: float) -> None:
    adj, n, h, c = gt.Adjacency(edges(7, 25, loops=3, device=GPU), 7), 7, 2, 3
    bias, att = tensor(adj.num_edges, h, device=GPU), tensor(h, c, device=GPU)
    rows = [tensor(n, h, c, seed=k, device=GPU) for k in range(3)]

    def run(q: Any, k: Any, v: Any, b: Any, a: Any = None, **how: Any) -> Any:
        return gt.attention(q, k, v, adj, bias=b, att=a, dropout=dropout, seed=3, **how)

    assert torch.autograd.gradcheck(lambda q, k, v, b: run(q, k, v, b), (*rows, bias))
    assert torch.autograd.gradcheck(lambda q, k, v, b, a: run(q, k, v, b, a, score="gatv2"), (*rows, bias, att))
    x, weight = tensor(7, 3, device=GPU), tensor(adj.num_edges, device=GPU)
    assert torch.autograd.gradcheck(lambda x, w: gt.aggregate(x, adj, reduce="mean", weight=w), (x, weight))
    assert torch.autograd.gradcheck(lambda x: gt.aggregate(x, adj, reduce="max"), (x,))


def test_a_seed_drops_the_same_here_as_on_the_cpu() -> None:
    on_cpu = gt.Adjacency(edges(40, 400), 40)
    on_gpu = on_cpu.to(GPU)
    q, k, v = (tensor(40, 2, 4, seed=s).detach() for s in range(3))
    expected = gt.attention(q, k, v, on_cpu, dropout=0.5, seed=11)
    got = gt.attention(q.to(GPU), k.to(GPU), v.to(GPU), on_gpu, dropout=0.5, seed=11)
    assert torch.allclose(got.cpu(), expected, atol=1e-12)
    drawn = gt.attention(q.to(GPU), k.to(GPU), v.to(GPU), on_gpu, dropout=0.5, seed=torch.tensor([11], device=GPU))
    assert not torch.equal(drawn, got), "bits beside the operands decide as they are"
    torch.manual_seed(7)
    first = gt.attention(q.to(GPU), k.to(GPU), v.to(GPU), on_gpu, dropout=0.5)
    torch.manual_seed(7)
    assert torch.equal(first, gt.attention(q.to(GPU), k.to(GPU), v.to(GPU), on_gpu, dropout=0.5))


def test_the_same_bits_twice() -> None:
    torch.manual_seed(0)
    module, adj = Model().to(GPU), gt.Adjacency(edges(500, 60_000, device=GPU), 500)
    first, second = step(module, module, adj), step(module, module, adj)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_work_goes_to_the_current_stream() -> None:
    """Operands come late, on a stream that is delayed: whoever did not wait for it would read zeros."""
    torch.manual_seed(0)
    module, adj = Model().to(GPU).eval(), gt.Adjacency(edges(500, 20_000, device=GPU), 500)
    values = tensor(500, 8, dtype=torch.float32, device=GPU).detach()
    expected, zeros = module(values, adj), module(torch.zeros_like(values), adj)
    assert not torch.equal(expected, zeros)
    torch.cuda.synchronize()
    side, x = torch.cuda.Stream(), torch.zeros_like(values)
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(side):
        began.record()
        torch.cuda._sleep(DELAY)
        x.copy_(values)
        out = module(x.requires_grad_(False), adj)
        ended.record()
    assert not ended.query(), "nobody waited for the delay"
    side.synchronize()
    assert began.elapsed_time(ended) > 50
    assert torch.equal(out, expected)


def test_a_graph_that_goes_is_not_given_away_too_early() -> None:
    index = edges(2000, 100_000, device=GPU)
    x = tensor(2000, 64, dtype=torch.float32, device=GPU).detach()
    expected = gt.aggregate(x, gt.Adjacency(index, 2000))
    for _ in range(5):
        adj, side = gt.Adjacency(index, 2000), torch.cuda.Stream()
        gt.aggregate(x, adj)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(DELAY // 10)
            out = gt.aggregate(x, adj)
        del adj
        gc.collect()
        taken = [torch.full((100_000,), 2**31 - 1, dtype=torch.int32, device=GPU) for _ in range(20)]
        torch.cuda.synchronize()
        assert torch.equal(out, expected) and taken


def test_steps_are_captured() -> None:
    """Forward and backward as a CUDA graph: with new operands it gives what eager gives, and draws dropouts anew."""
    torch.manual_seed(0)
    module, adj = Model().to(GPU), gt.Adjacency(edges(300, 9000, device=GPU), 300)
    x = tensor(300, 8, dtype=torch.float32, device=GPU).detach()

    def work() -> Any:
        module.zero_grad(set_to_none=False)
        out = module(x, adj)
        out.square().sum().backward()
        return out

    for training in (False, True):
        module.train(training)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = work()
        x.copy_(tensor(300, 8, dtype=torch.float32, seed=5, device=GPU).detach())
        found = []
        for _ in range(2):
            graph.replay()
            found.append([out.clone(), *(p.grad.clone() for p in module.parameters())])
        if training:
            assert not torch.equal(found[0][0], found[1][0]), "dropouts are drawn anew"
            continue
        expected = [work().detach(), *(p.grad for p in module.parameters())]
        for got in found:
            assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_a_capture_without_a_call_before_says_so() -> None:
    adj, x = gt.Adjacency(edges(50, 300, device=GPU), 50), tensor(50, 24, dtype=torch.float32, device=GPU).detach()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(Exception, match="once before the capture"), torch.cuda.graph(graph):
        gt.aggregate(x, adj)
    torch.cuda.synchronize()
    assert gt.aggregate(x, adj).shape == (50, 24)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_models_are_compiled_whole(backend: str) -> None:
    compiled_equals(backend, GPU, 1e-5)


def test_threads_with_streams_of_their_own() -> None:
    torch.manual_seed(0)
    module, adj = Model().to(GPU).eval(), gt.Adjacency(edges(500, 20_000, device=GPU), 500)
    x = tensor(500, 8, dtype=torch.float32, device=GPU).detach()
    expected, found = module(x, adj), {}

    def work(k: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                out = module(x, adj)
                (out.square().sum()).backward()
            torch.cuda.current_stream().synchronize()
            found[k] = out

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(found) == 4 and all(torch.equal(out, expected) for out in found.values())


def test_memory_is_torchs_and_nothing_is_as_large_as_edges_times_columns() -> None:
    nodes, count, width = 20_000, 2_000_000, 128
    index = torch.randint(0, nodes, (2, count), device=GPU)
    adj = gt.Adjacency(index, nodes)
    q, k, v = (torch.randn(nodes, 8, 16, device=GPU, requires_grad=True) for _ in range(3))
    gt.attention(q, k, v, adj).sum().backward()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    gt.attention(q, k, v, adj).sum().backward()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < count * width * 4 / 4
    del adj
    gc.collect()
    assert torch.cuda.memory_allocated() < before - count * 4, "the graph was torch's memory, and is given back"


def test_operands_elsewhere_are_refused() -> None:
    adj, x = gt.Adjacency(edges(9, 30, device=GPU), 9), tensor(9, 3, dtype=torch.float32)
    with pytest.raises(ValueError, match="graph on cuda:0"):
        gt.aggregate(x, adj)
    with pytest.raises(ValueError, match="graph on cpu"):
        gt.aggregate(x.to(GPU), adj.to("cpu"))
    flat = tensor(9 * 16 + 1, dtype=torch.float32, device=GPU).detach()[1:].view(9, 16)
    assert torch.equal(gt.aggregate(flat, adj), gt.aggregate(flat.clone(), adj)), "also where it is not aligned"
