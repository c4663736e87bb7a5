"""PyG's graph transformer on a GPU with its own TransformerConv and with ours: the step, peak memory, a call.

    python benches/python/gpu.py [--graph rmat:20:16] [--rounds 7]

The model of attention.py (four layers, hidden 128, 8 heads, FFN x 2), eager, under bf16 autocast, with the same weights.
Ours is timed first and freed; a step is the median of the rounds after two that are not counted, by CUDA events. Memory
is the most that torch's allocator had in use during a step. All memory of our kernels is torch's.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

import torch
from attention import HEADS, HIDDEN, Transformer, edges
from graphweft import torch as gt
from graphweft.torch import _kernels, _ops
from torch import Tensor, nn
from torch_geometric import nn as pyg

CALLS = 200


def timed_steps(conv: type, state: dict[str, Tensor], x: Tensor, edge_index: object, rounds: int) -> dict[str, float]:
    """Milliseconds of steps, and bytes."""
    model = Transformer(conv).cuda()
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameters())
    times = []
    for number in range(rounds + 2):
        if number == 2:
            torch.cuda.reset_peak_memory_stats()
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x, edge_index).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ended.record()
        torch.cuda.synchronize()
        times.append(began.elapsed_time(ended))
    of = sorted(times[2:])
    return {
        "median ms": statistics.median(of), "fastest": of[0], "slowest": of[-1],
        "peak GiB": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip


def attention_alone(adj: gt.Adjacency, rounds: int) -> dict[str, float]:
    """Forward and backward of one attention in bf16, from q and k‖v."""
    n = adj.num_nodes
    q = torch.randn(n, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    both = torch.randn(n, 2 * HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    g, found = torch.randn_like(q), {}
    for name in ("forward", "forward and backward"):
        times = []
        for _ in range(rounds + 2):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            out = _ops.attend(adj, q, both, None, None, None, None, None, "dot", HEADS, 0.0, 0.0)
            if name != "forward":
                torch.autograd.grad(out, (q, both), g)
            ended.record()
            torch.cuda.synchronize()
            times.append(began.elapsed_time(ended))
        found[name] = statistics.median(times[2:])
    return found


def call_us() -> dict[str, float]:
    """Microseconds of the host for one small forward: by the extension, and as functions of torch."""
    edge_index, nodes = edges("rmat:6:4")
    adj = gt.Adjacency(edge_index.cuda(), nodes)
    q, both = torch.randn(nodes, HIDDEN, device="cuda"), torch.randn(nodes, 2 * HIDDEN, device="cuda")
    wants = q.clone().requires_grad_()
    out, lse = torch.empty_like(q), torch.empty(nodes, HEADS, device="cuda")
    memory = [_kernels._memory(t) for t in (q, both, out, lse)]
    how = ("dot", HEADS, HIDDEN, 0.0, 0.0, 0, None)
    rest = (None, None, None, None, None, "dot", HEADS, 0.0, 0.0)
    runs = {
        "the extension, as from Rust": lambda: adj.kernels.attention(how, (*memory[:2], None, None, None), *memory[2:]),
        "the function": lambda: _ops.attend(adj, q, both, *rest),
        "the same, recorded by autograd": lambda: _ops.attend(adj, wants, both, *rest),
        "the registered operation": lambda: _ops.attention(adj.number, q, both, *rest),
    }
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(12):
        for name, run in runs.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                run()
            took = (time.perf_counter() - start) / CALLS * 1e6
            torch.cuda.synchronize()
            if number > 1:
                found[name].append(took)
    return {name: statistics.median(of) for name, of in found.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--graph", default="rmat:20:16")
    options.add_argument("--rounds", type=int, default=7)
    chosen = options.parse_args()
    torch.manual_seed(0)
    print("| a call, host | µs |\n|---|---|")
    for name, us in call_us().items():
        print(f"| {name} | {us:.1f} |")
    start = time.perf_counter()
    edge_index, nodes = edges(chosen.graph)
    edge_index, made = edge_index.cuda(), time.perf_counter()
    adj = gt.Adjacency(edge_index, nodes)
    print(f"\n{chosen.graph}: {nodes} nodes, {edge_index.shape[1]} edges; torch {torch.__version__}, "
          f"{torch.cuda.get_device_name()}; generated in {made - start:.1f} s, Adjacency in "
          f"{time.perf_counter() - made:.1f} s")  # fmt: skip
    for name, ms in attention_alone(adj, chosen.rounds).items():
        print(f"attention, bf16, {name}: {ms:.2f} ms")
    x, state = torch.randn(nodes, HIDDEN, device="cuda"), Transformer(pyg.TransformerConv).state_dict()
    print("\n| step | " + " | ".join(("median ms", "fastest", "slowest", "peak GiB")) + " |\n|---|---|---|---|---|")
    found: dict[str, dict[str, float]] = {}
    givens: tuple[tuple[str, type[nn.Module], object], ...] = (
        ("ours", gt.TransformerConv, adj), ("PyG", pyg.TransformerConv, edge_index),
    )  # fmt: skip
    for name, conv, graph in givens:
        found[name] = timed_steps(conv, state, x, graph, chosen.rounds)
        print(f"| {name} | " + " | ".join(f"{number:.2f}" for number in found[name].values()) + " |")
        gc.collect()
        torch.cuda.empty_cache()
        if name == "ours":
            del adj, graph, givens
    ours, theirs = found["ours"], found["PyG"]
    print(f"\nstep: {theirs['median ms'] / ours['median ms']:.2f} times faster; "
          f"memory: 1/{theirs['peak GiB'] / ours['peak GiB']:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
