"""Sum over in-neighbours, rows of 128 f32: forward, and backward to the input.

    python spmm.py csr|dgl FOLDER THREADS

Every process first compares its implementation with the dense product on a small graph.
"""

import torch

from graph import Csr, Graph
from timing import Peak, arguments, clocked, median_ms, report

HIDDEN = 128


def csr(graph):
    pattern, ones = Csr(graph), torch.ones(graph.edges)
    forward, transpose = pattern.matrix(ones), pattern.transpose(ones)

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return forward @ x

        @staticmethod
        def backward(ctx, g):
            return transpose @ g

    return Sum.apply


def dgl(graph):
    from dgl import ops

    g = graph.dgl()
    return lambda x: ops.copy_u_sum(g, x)


IMPLEMENTATIONS = {"csr": csr, "dgl": dgl}


def inputs(nodes):
    return torch.randn(nodes, HIDDEN, requires_grad=True), torch.randn(nodes, HIDDEN)


def check(implementation):
    graph = Graph.small()
    (x, g), dense = inputs(graph.nodes), graph.dense().float()
    got = implementation(graph)(x)
    torch.testing.assert_close(got, dense @ x, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.autograd.grad(got, x, g)[0], dense.t() @ g, rtol=1e-4, atol=1e-4)


def main():
    name, folder = arguments(IMPLEMENTATIONS)
    check(IMPLEMENTATIONS[name])
    peak = Peak()
    graph = Graph.read(folder)
    aggregate = IMPLEMENTATIONS[name](graph)
    x, g = inputs(graph.nodes)

    def run():
        out, forward = clocked(lambda: aggregate(x))
        _, backward = clocked(lambda: torch.autograd.grad(out, x, g))
        return forward, backward

    forward, backward = median_ms(run)
    report(op="spmm", impl=name, edges=graph.edges, forward_ms=forward, backward_ms=backward, peak_mib=peak.mib())


if __name__ == "__main__":
    main()
