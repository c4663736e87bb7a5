"""Sum over in-neighbours, rows of 128 f32: forward, and backward to the input.

    python spmm.py csr|dgl FOLDER THREADS

Every process first compares its implementation with the dense product on a small graph.
"""

import torch

from graph import Csr, Graph
from timing import report_operation

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
    return [torch.randn(nodes, HIDDEN, requires_grad=True)], torch.randn(nodes, HIDDEN)


def check(implementation):
    graph = Graph.small()
    ([x], g), dense = inputs(graph.nodes), graph.dense().float()
    got = implementation(graph)(x)
    torch.testing.assert_close(got, dense @ x, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.autograd.grad(got, x, g)[0], dense.t() @ g, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    report_operation("spmm", IMPLEMENTATIONS, check, inputs)
