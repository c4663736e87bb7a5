"""One peer on a GPU: sparse attention forward and backward, or a training step of a 4-layer graph transformer.

    python peer.py attention|step pyg|compile f32|bf16 FOLDER

The models are those of ../peers (attention.py, layer.py): PyG's own message passing, or the scatter formulation through
torch.compile. In bf16 attention takes bf16 rows; the step runs under autocast with f32 parameters and fused AdamW.
Prints a line of JSON: milliseconds (median, timed by events), and the most memory that torch had taken, all in all.
"""

import json
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "peers"))

import attention
import layer
from graph import Graph


def widened(formulation):
    """The same in f32 whatever the rows are: torch.compile reads bf16 and adds in f32. Atomic sums in bf16 take seconds."""

    def prepare(graph):
        inner = formulation(graph)

        def attend(q, k, v):
            with torch.autocast("cuda", enabled=False):
                return inner(q.float(), k.float(), v.float()).to(q.dtype)

        return attend

    return prepare


attention.scatter = widened(attention.scatter)


def median_ms(run, warm=3, runs=9):
    times = []
    for k in range(warm + runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if k >= warm:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def on_gpu(folder):
    graph = Graph.read(folder)
    graph.indptr, graph.src, graph.dst = (x.cuda() for x in (graph.indptr, graph.src, graph.dst))
    torch.set_default_device("cuda")
    return graph


def attend(name, dtype, graph):
    function = attention.IMPLEMENTATIONS[name](graph)
    shape = (graph.nodes, attention.HEADS, attention.HIDDEN // attention.HEADS)
    qkv = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
    g = torch.randn(shape, dtype=dtype)
    return lambda: torch.autograd.grad(function(*qkv), qkv, g)


def step(name, dtype, graph):
    model, x = layer.stack(name, graph), torch.randn(graph.nodes, layer.HIDDEN)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def run():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def main():
    what, name, dtype, folder = sys.argv[1:]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    graph = on_gpu(folder)
    run = {"attention": attend, "step": step}[what](name, {"f32": torch.float32, "bf16": torch.bfloat16}[dtype], graph)
    try:
        ms = median_ms(run)
    except torch.OutOfMemoryError:
        print(json.dumps({"out_of_memory": True}))
        return
    print(json.dumps({"ms": ms, "bytes": torch.cuda.max_memory_allocated(), "edges": graph.edges}))


if __name__ == "__main__":
    main()
