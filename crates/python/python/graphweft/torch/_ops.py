"""The operations as torch knows them: registered ones, for `torch.compile` and whoever else looks at what is called,
and the same as functions of autograd, which cost a call less.

Registered ones get `graph` as a tensor that has its number (see `Adjacency`). What tensors are is in `_kernels`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd.function import once_differentiable

from . import _kernels
from ._adjacency import Adjacency, kernels_of
from ._kernels import Some, compute_type

_ORDINARY = (Tensor, torch.nn.Parameter)
_CALL = (
    "Tensor graph, Tensor dst, Tensor src, Tensor? value, Tensor? shared, Tensor? bias, Tensor? edges, Tensor? seed, "
    "str score, int heads, float slope, float dropout"
)


# The library of our operations, as long as this module lives.
_LIBRARY = torch.library.Library("graphweft", "DEF")  # noqa: TOR901


def _registered(name: str, schema: str, kernel: Any, like: Any, *, is_gradient: bool = False) -> Any:
    """An operation that torch knows: what it computes, and what that looks like. Gradients have none."""
    _LIBRARY.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"graphweft::{name}", like, lib=_LIBRARY)
    operation = getattr(torch.ops.graphweft, name).default
    if is_gradient:
        _differentiable(name, operation, lambda *_: None, _no_second)
    return operation


def _no_second(*_: Any) -> Any:
    raise NotImplementedError("graphweft.torch has no gradients of gradients")


def _differentiable(name: str, operation: Any, context: Any, gradients: Any) -> None:
    """What `torch.library.register_autograd` does, without its search through arguments: a call is recorded for half of
    what that takes.
    """

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                output = operation(*inputs)
            context(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            return gradients(ctx, *given)

    def record(*inputs: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs):
            return Recorded.apply(*inputs)
        with torch._C._AutoDispatchBelowAutograd():
            return operation(*inputs)

    _LIBRARY.impl(name, record, "Autograd")


def _way(*tensors: Some) -> str:
    """How an operation is called: "watched" if somebody else than autograd wants to know of it (a compiler, a mode, a
    transformation), "recorded" if autograd does, else "plain".
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or _functorch.maybe_current_level():
        return "watched"
    way = "plain"
    for t in tensors:
        if t is None:
            continue
        if type(t) not in _ORDINARY:
            return "watched"
        if t.requires_grad:
            way = "recorded"
    return way if torch.is_grad_enabled() else "plain"


def _applied(function: type[torch.autograd.Function]) -> Any:
    """What records it, without what torch does before for transformations: there are none, see `_way`."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def _attention(
    graph: Tensor, dst: Tensor, src: Tensor, value: Some, shared: Some, bias: Some, edges: Some, seed: Some,
    score: str, heads: int, slope: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    operands = dst, src, value, shared, bias
    return _kernels.attention(kernels_of(graph), operands, edges, seed, score, heads, slope, dropout)


def _attention_like(
    graph: Tensor, dst: Tensor, src: Tensor, value: Some, shared: Some, bias: Some, edges: Some, seed: Some,
    score: str, heads: int, slope: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return _kernels.like_attention(dst, value, score, heads)


attention = _registered("attention", f"({_CALL}) -> (Tensor, Tensor)", _attention, _attention_like)


def _attention_backward(
    graph: Tensor, dst: Tensor, src: Tensor, value: Some, shared: Some, bias: Some, edges: Some, seed: Some,
    score: str, heads: int, slope: float, dropout: float, out: Tensor, lse: Tensor, g: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    operands, saved = (dst, src, value, shared, bias), (out, lse, g)
    found = _kernels.attention_backward(kernels_of(graph), operands, saved, edges, seed, score, heads, slope, dropout)
    return tuple(dst.new_empty(0) if t is None else t for t in found)


def _attention_backward_like(
    graph: Tensor, dst: Tensor, src: Tensor, value: Some, shared: Some, bias: Some, edges: Some, seed: Some,
    score: str, heads: int, slope: float, dropout: float, out: Tensor, lse: Tensor, g: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    # Outputs of operations are contiguous whatever the operands are.
    return tuple(dst.new_empty(0) if t is None else t.new_empty(t.shape) for t in (dst, src, value, shared, bias))


attention_backward = _registered(
    "attention_backward",
    f"({_CALL}, Tensor out, Tensor lse, Tensor g) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _attention_backward,
    _attention_backward_like,
    is_gradient=True,
)


def _attention_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.how = inputs[8:]


def _attention_gradients(ctx: Any, g: Tensor, _lse: Tensor) -> tuple[Some, ...]:
    *operands, out, lse = ctx.saved_tensors
    found = attention_backward(*operands, *ctx.how, out, lse, g)
    wanted = ctx.needs_input_grad[1:6]
    gradients = (grad if wants else None for grad, wants in zip(found, wanted, strict=True))
    # Features of edges have none: see `attend`.
    return (None, *gradients, *[None] * 6)


_differentiable("attention", attention, _attention_context, _attention_gradients)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adj: Adjacency, how: Any, edges: Some, seed: Some, *operands: Some) -> Tensor:
        out, lse = _kernels.attention(adj.kernels, operands, edges, seed, *how)
        ctx.save_for_backward(edges, seed, *operands, out, lse)
        ctx.adj, ctx.how = adj, how
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Some, ...]:
        edges, seed, *operands, out, lse = ctx.saved_tensors
        found = _kernels.attention_backward(ctx.adj.kernels, operands, (out, lse, g), edges, seed, *ctx.how)
        wanted = ctx.needs_input_grad[4:]
        return (None, None, None, None, *(grad if wants else None for grad, wants in zip(found, wanted, strict=True)))


_record_attention = _applied(_Attention)


def attend(
    adj: Adjacency, dst: Tensor, src: Tensor, value: Some, shared: Some, bias: Some, edges: Some, seed: Some,
    score: str, heads: int, slope: float, dropout: float,
) -> Tensor:  # fmt: skip
    """Attention, by whatever way costs least."""
    if edges is not None and edges.requires_grad:
        raise NotImplementedError("edge_attr: graphweft.torch has no gradient of features of edges: give edge_attr.detach()")
    way = _way(dst, src, value, shared, bias, edges)
    out: Tensor
    if way == "watched":
        out, _ = attention(adj.number, dst, src, value, shared, bias, edges, seed, score, heads, slope, dropout)
        return out
    how = score, heads, slope, dropout
    if way == "recorded":
        out = _record_attention(adj, how, edges, seed, dst, src, value, shared, bias)
        return out
    return _kernels.attention(adj.kernels, (dst, src, value, shared, bias), edges, seed, *how)[0]


def _edge_sum(graph: Tensor, x: Tensor, edge: Some, dst: Some, src: Some, transpose: bool) -> Tensor:
    return _kernels.edge_sum(kernels_of(graph), x, edge, dst, src, transpose)


def _edge_sum_like(graph: Tensor, x: Tensor, edge: Some, dst: Some, src: Some, transpose: bool) -> Tensor:
    return x.new_empty(x.shape)


edge_sum = _registered(
    "edge_sum",
    "(Tensor graph, Tensor x, Tensor? edge, Tensor? dst, Tensor? src, bool transpose) -> Tensor",
    _edge_sum,
    _edge_sum_like,
)


def _edge_products(graph: Tensor, x: Tensor, g: Tensor, edge: Tensor, dst: Some, src: Some) -> Tensor:
    return _kernels.edge_products(kernels_of(graph), x, g, edge, dst, src)


def _edge_products_like(graph: Tensor, x: Tensor, g: Tensor, edge: Tensor, dst: Some, src: Some) -> Tensor:
    return edge.new_empty(edge.shape)


edge_products = _registered(
    "edge_products",
    "(Tensor graph, Tensor x, Tensor g, Tensor edge, Tensor? dst, Tensor? src) -> Tensor",
    _edge_products,
    _edge_products_like,
    is_gradient=True,
)


def _edge_sum_context(ctx: Any, inputs: Any, output: Any) -> None:
    graph, x, edge, dst, src, ctx.transpose = inputs
    # x itself is needed by the gradient of the numbers on edges only.
    ctx.save_for_backward(graph, x if edge is not None else None, edge, dst, src)


def _edge_sum_gradients(ctx: Any, g: Tensor) -> tuple[Some, ...]:
    graph, x, edge, dst, src = ctx.saved_tensors
    dx = edge_sum(graph, g, edge, dst, src, not ctx.transpose) if ctx.needs_input_grad[1] else None
    de = None
    if ctx.needs_input_grad[2]:
        rows, gradients = (g, x) if ctx.transpose else (x, g)
        de = edge_products(graph, rows, gradients, edge, dst, src)
    return None, dx, de, None, None, None


_differentiable("edge_sum", edge_sum, _edge_sum_context, _edge_sum_gradients)


class _EdgeSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adj: Adjacency, x: Tensor, edge: Some, dst: Some, src: Some) -> Tensor:
        ctx.save_for_backward(x if edge is not None else None, edge, dst, src)
        ctx.adj = adj
        return _kernels.edge_sum(adj.kernels, x, edge, dst, src, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Some, ...]:
        x, edge, dst, src = ctx.saved_tensors
        _, wants_x, wants_edge, *_ = ctx.needs_input_grad
        dx = _kernels.edge_sum(ctx.adj.kernels, g, edge, dst, src, True) if wants_x else None
        de = _kernels.edge_products(ctx.adj.kernels, x, g, edge, dst, src) if wants_edge else None
        return None, dx, de, None, None


_record_sum = _applied(_EdgeSum)


def sum_edges(adj: Adjacency, x: Tensor, edge: Some, dst: Some, src: Some) -> Tensor:
    """The weighted sum to destinations, by whatever way costs least."""
    way = _way(x, edge, dst, src)
    out: Tensor
    if way == "watched":
        out = edge_sum(adj.number, x, edge, dst, src, False)
        return out
    if way == "recorded":
        out = _record_sum(adj, x, edge, dst, src)
        return out
    return _kernels.edge_sum(adj.kernels, x, edge, dst, src, False)


def _edge_max(graph: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return _kernels.edge_max(kernels_of(graph), x)


def _edge_max_like(graph: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.int32)


edge_max = _registered("edge_max", "(Tensor graph, Tensor x) -> (Tensor, Tensor)", _edge_max, _edge_max_like)


def _edge_max_backward(graph: Tensor, g: Tensor, arg: Tensor) -> Tensor:
    return _kernels.edge_max_backward(kernels_of(graph), g, arg)


def _edge_max_backward_like(graph: Tensor, g: Tensor, arg: Tensor) -> Tensor:
    return g.new_empty(g.shape)


edge_max_backward = _registered(
    "edge_max_backward",
    "(Tensor graph, Tensor g, Tensor arg) -> Tensor",
    _edge_max_backward,
    _edge_max_backward_like,
    is_gradient=True,
)


def _edge_max_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], output[1])


def _edge_max_gradients(ctx: Any, g: Tensor, _arg: Some) -> tuple[Some, ...]:
    graph, arg = ctx.saved_tensors
    return None, edge_max_backward(graph, g, arg)


_differentiable("edge_max", edge_max, _edge_max_context, _edge_max_gradients)


class _EdgeMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adj: Adjacency, x: Tensor) -> Tensor:
        out, arg = _kernels.edge_max(adj.kernels, x)
        ctx.save_for_backward(arg)
        ctx.adj = adj
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Some, ...]:
        (arg,) = ctx.saved_tensors
        return None, _kernels.edge_max_backward(ctx.adj.kernels, g, arg)


_record_max = _applied(_EdgeMax)


def max_edges(adj: Adjacency, x: Tensor) -> Tensor:
    """The maximum over sources, by whatever way costs least."""
    way = _way(x)
    out: Tensor
    if way == "watched":
        out, _ = edge_max(adj.number, x)
        return out
    if way == "recorded":
        out = _record_max(adj, x)
        return out
    return _kernels.edge_max(adj.kernels, x)[0]


__all__ = ["attend", "compute_type", "max_edges", "sum_edges"]
