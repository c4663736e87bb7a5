"""Sparse multi-head attention as a user of torch, PyG or DGL would write it: forward, and backward to q, k and v.

    python attention.py pyg|scatter|compile|csr|dgl FOLDER THREADS

Each function below prepares a graph and returns `attend(q, k, v)` over N x H x C tensors: the softmax over a node's
in-neighbours of q.k / sqrt(C), then the weighted sum of their v. No projection is timed. Every process first compares
its implementation with dense attention on a small graph, values and gradients.
"""

import math

import torch

from graph import Csr, Graph
from timing import report_operation

HEADS, HIDDEN = 8, 128


def scatter(graph):
    """Plain eager torch: gather rows per edge, reduce per destination."""
    n, src, dst = graph.nodes, graph.src, graph.dst

    def attend(q, k, v):
        scores = (q[dst] * k[src]).sum(-1) / math.sqrt(q.shape[-1])
        index = dst[:, None].expand_as(scores)
        top = scores.new_zeros(n, q.shape[1]).scatter_reduce(0, index, scores.detach(), "amax", include_self=False)
        weights = (scores - top[dst]).exp()
        total = torch.zeros_like(top).index_add(0, dst, weights)
        return torch.zeros_like(q).index_add(0, dst, v[src] * (weights / total[dst])[..., None])

    return attend


def compiled(graph):
    """The same, fused by torch.compile for these shapes."""
    return torch.compile(scatter(graph), dynamic=False, fullgraph=True)


def pyg(graph):
    """TransformerConv's own message, softmax and aggregation, given q, k and v."""
    from torch_geometric.nn import TransformerConv

    conv = TransformerConv(HIDDEN, HIDDEN // HEADS, heads=HEADS, root_weight=False)
    edge_index = torch.stack([graph.src, graph.dst])
    return lambda q, k, v: conv.propagate(edge_index, query=q, key=k, value=v, edge_attr=None)


def dgl(graph):
    """DGL's kernels, as its own transformer layers call them."""
    from dgl import ops

    g = graph.dgl()

    def attend(q, k, v):
        scores = ops.u_dot_v(g, k, q) / math.sqrt(q.shape[-1])
        return ops.u_mul_e_sum(g, v, ops.edge_softmax(g, scores))

    return attend


def csr(graph):
    """torch's sparse CSR products, head by head; the softmax over the stored values of each row."""
    pattern, dst, offsets = Csr(graph), graph.dst, graph.indptr
    zeros = pattern.matrix(torch.zeros(graph.edges))

    def sampled(a, b, scale=1.0):
        """a_i . b_j for every edge j -> i."""
        return torch.sparse.sampled_addmm(zeros, a, b.t(), beta=0.0, alpha=scale).values()

    def rows(reduce, x):
        """A reduction over each row, given back to its edges."""
        return torch.segment_reduce(x, reduce, offsets=offsets).index_select(0, dst)

    class Head(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.scale = 1 / math.sqrt(q.shape[-1])
            weights = sampled(q, k, ctx.scale)
            weights = weights.sub_(rows("max", weights)).exp_()
            weights /= rows("sum", weights)
            ctx.save_for_backward(q, k, v, weights)
            return pattern.matrix(weights) @ v

        @staticmethod
        def backward(ctx, g):
            q, k, v, weights = ctx.saved_tensors
            g = g.contiguous()
            d = sampled(g, v)
            d = d.sub_(rows("sum", weights * d)).mul_(weights).mul_(ctx.scale)
            return pattern.matrix(d) @ k, pattern.transpose(d) @ q, pattern.transpose(weights) @ g

    def attend(q, k, v):
        heads = zip(*(x.transpose(0, 1).contiguous() for x in (q, k, v)))
        return torch.stack([Head.apply(*head) for head in heads], 1)

    return attend


IMPLEMENTATIONS = {"pyg": pyg, "scatter": scatter, "compile": compiled, "csr": csr, "dgl": dgl}


def inputs(nodes):
    """q, k, v and the gradient of the output."""
    shape = (nodes, HEADS, HIDDEN // HEADS)
    return [torch.randn(shape, requires_grad=True) for _ in range(3)], torch.randn(shape)


def check(implementation):
    """Compares with dense attention in f64 on a small graph."""
    graph = Graph.small()
    qkv, g = inputs(graph.nodes)
    q, k, v = (x.detach().double().requires_grad_() for x in qkv)
    scores = torch.einsum("ihc,jhc->hij", q, k) / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~graph.dense(), -math.inf).softmax(-1).nan_to_num()
    wanted = torch.einsum("hij,jhc->ihc", weights, v)
    got = implementation(graph)(*qkv)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    grads = zip(torch.autograd.grad(got, qkv, g), torch.autograd.grad(wanted, (q, k, v), g.double()))
    for name, (one, other) in zip("qkv", grads):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5, msg=lambda m: f"gradient of {name}: {m}")


if __name__ == "__main__":
    report_operation("attention", IMPLEMENTATIONS, check, inputs)
