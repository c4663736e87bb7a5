"""PyG's graph transformer with its own TransformerConv and with ours: attention, the training step, the cost of a call.

    LD_PRELOAD=libtcmalloc_minimal.so.4 RAYON_NUM_THREADS=2 python benches/python/attention.py [--kernel PROGRAM]

Needs torch, torch_geometric and the package graphweft in a release build. The model is that of ../peers/layer.py: four
layers, hidden 128, 8 heads, FFN x 2, f32, 2 threads, on rmat:15:16. Both have the same weights and are timed in turns,
in one process: what else the machine does meets both. `--kernel` is `target/release/examples/kernel` (kernel.rs), which
times the same kernel from Rust. Prints a table of medians, with the fastest and the slowest run, and the time of
the processor, which is less sensitive to what else the machine does. A call is the fastest of 31 times 300.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import graphweft as gw
import numpy as np
import torch
import torch.nn.functional as F
from graphweft import torch as gt
from graphweft.torch import _ops
from torch import Tensor, nn
from torch_geometric import nn as pyg

HIDDEN, HEADS, LAYERS, DROPOUT = 128, 8, 4, 0.1
SMALL, CALLS = "rmat:6:4", 300


def edges(spec: str) -> tuple[Tensor, int]:
    graph = gw.Graph.generate(spec)
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr.astype(np.int64)))
    return torch.from_numpy(np.stack([graph.indices.astype(np.int64), targets])), graph.num_nodes


class Layer(nn.Module):
    def __init__(self, conv: type) -> None:
        super().__init__()
        self.conv = conv(HIDDEN, HIDDEN // HEADS, heads=HEADS, root_weight=False)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.ffn = nn.Sequential(nn.Linear(HIDDEN, 2 * HIDDEN), nn.GELU(), nn.Linear(2 * HIDDEN, HIDDEN))
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norms[0](x + F.dropout(self.out(self.conv(x, edge_index)), DROPOUT))
        return self.norms[1](x + F.dropout(self.ffn(x), DROPOUT))


class Transformer(nn.Module):
    def __init__(self, conv: type) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(conv) for _ in range(LAYERS))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index)
        return x


def step(model: nn.Module, x: Tensor, edge_index: Tensor) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters())

    def run() -> None:
        model(x, edge_index).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


@dataclass
class Times:
    """Milliseconds, sorted: of the clock, and of the processor for all threads, which does not see what else runs."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def in_turns(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    """The times of each, after one round that is not counted."""
    times = {name: Times() for name in runs}
    for round in range(rounds + 1):
        for name, run in runs.items():
            start, busy = time.perf_counter(), time.process_time()
            run()
            if round:
                times[name].clock.append((time.perf_counter() - start) * 1e3)
                times[name].processor.append((time.process_time() - busy) * 1e3)
    for of in times.values():
        of.clock.sort()
        of.processor.sort()
    return times


def attentions(edge_index: Tensor, nodes: int) -> dict[str, Callable[[], object]]:
    """Forward and backward, from q, k and v; no projection is timed."""
    shape = (nodes, HEADS, HIDDEN // HEADS)
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    both, g = torch.randn(nodes, 2 * HIDDEN, requires_grad=True), torch.randn(shape)
    conv = pyg.TransformerConv(HIDDEN, HIDDEN // HEADS, heads=HEADS, root_weight=False)
    adj = gt.Adjacency(edge_index, nodes)

    def theirs() -> object:
        out = conv.propagate(edge_index, query=q, key=k, value=v, edge_attr=None)
        return torch.autograd.grad(out.view(shape), (q, k, v), g)

    def fused() -> object:
        rows = q.flatten(1)
        out = _ops.attend(adj, rows, both, None, None, None, None, None, "dot", HEADS, 0.0, 0.0)
        return torch.autograd.grad(out, (q, both), g.flatten(1))

    return {
        "attention: PyG": theirs,
        "attention: ours, as TransformerConv calls it": fused,
        "attention: ours, `gt.attention(q, k, v)`": lambda: torch.autograd.grad(
            gt.attention(q, k, v, adj), (q, k, v), g
        ),
    }


def steps(edge_index: Tensor, nodes: int) -> dict[str, Callable[[], object]]:
    theirs, ours = Transformer(pyg.TransformerConv), Transformer(gt.TransformerConv)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(nodes, HIDDEN)
    with torch.no_grad():
        outputs = []
        for model in (theirs, ours):
            torch.manual_seed(1)
            outputs.append(model(x, edge_index))
    print(f"largest difference of the outputs: {float((outputs[0] - outputs[1]).abs().max()):.1e}\n")
    return {"step: PyG": step(theirs, x, edge_index), "step: ours": step(ours, x, edge_index)}


def call_us(kernel: str | None) -> dict[str, float]:
    """Microseconds of one small forward: from Rust, by the extension alone, and as functions and operations of torch."""
    edge_index, nodes = edges(SMALL)
    adj = gt.Adjacency(edge_index, nodes)
    q, both = torch.randn(nodes, HIDDEN), torch.randn(nodes, 2 * HIDDEN)
    wants = q.clone().requires_grad_()
    out, lse = torch.empty(nodes, HIDDEN), torch.empty(nodes, HEADS)
    kernels = adj.kernels
    memory = [(t.data_ptr(), t.numel(), 0) for t in (q, both, out, lse)]
    how = ("dot", HEADS, HIDDEN, 0.0, 0.0, 0, None)
    rest = (None, None, None, None, None, "dot", HEADS, 0.0, 0.0)

    def many(run: Callable[[], object]) -> Callable[[], object]:
        return lambda: [run() for _ in range(CALLS)] and None

    found = in_turns(
        {
            "extension": many(lambda: kernels.attention(how, (*memory[:2], None, None, None), *memory[2:])),
            "function": many(lambda: _ops.attend(adj, q, both, *rest)),
            "function, recorded by autograd": many(lambda: _ops.attend(adj, wants, both, *rest)),
            "registered operation": many(lambda: _ops.attention(adj.number, q, both, *rest)),
            "registered operation, recorded": many(lambda: _ops.attention(adj.number, wants, both, *rest)),
        },
        31,
    )
    times = {name: of.clock[0] * 1e3 / CALLS for name, of in found.items()}
    if kernel is not None:
        times = {"Rust": float(subprocess.run([kernel, SMALL], capture_output=True, check=True).stdout), **times}
    return times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--graph", default="rmat:15:16")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--kernel", help="the program that times the kernel from Rust")
    chosen = options.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    edge_index, nodes = edges(chosen.graph)
    with open("/proc/self/maps") as maps:
        allocator = "tcmalloc" if "tcmalloc" in maps.read() else "the system's allocator"
    print(f"{chosen.graph}: {nodes} nodes, {edge_index.shape[1]} edges; torch {torch.__version__}, {allocator}")
    print(f"threads: torch {torch.get_num_threads()}, rayon {os.environ.get('RAYON_NUM_THREADS', 'all')}; "
          f"load of the machine {os.getloadavg()[0]:.1f}")  # fmt: skip
    found = in_turns(steps(edge_index, nodes), chosen.rounds) | in_turns(attentions(edge_index, nodes), chosen.rounds)
    print("| | median ms | fastest | slowest | processor ms, median | PyG's / this: median | fastest | processor |")
    print("|---|---|---|---|---|---|---|---|")
    for name, times in found.items():
        theirs, median = found[name.split(":")[0] + ": PyG"], statistics.median
        clock, busy = median(times.clock), median(times.processor)
        ratios = median(theirs.clock) / clock, theirs.clock[0] / times.clock[0], median(theirs.processor) / busy
        print(f"| {name} | {clock:.1f} | {times.clock[0]:.1f} | {times.clock[-1]:.1f} | {busy:.1f} | "
              + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")  # fmt: skip
    print("\n| a call on " + SMALL + " | µs |\n|---|---|")
    for name, us in call_us(chosen.kernel).items():
        print(f"| {name} | {us:.1f} |")


if __name__ == "__main__":
    main()
