"""The operations as torch knows them. Torch makes the outputs, Graphweft's kernels write them.

What an operation gets: `graph`, the number of a graph (see `Adjacency`); a row per node of every other tensor. Of
attention, `dst` and `src` are q and k‖v for the score "dot", l and r for "gat" (with values `value`) and "gatv2" (with
`shared`, which all edges have; values are `value`, or r).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from ._adjacency import kernels_of

_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.int32: 3}
_Memory = tuple[int, int, int]
_Some: TypeAlias = "Tensor | None"


def compute_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which kernels compute with numbers that are stored so."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _memory(tensor: Tensor) -> _Memory:
    code = _CODES.get(tensor.dtype)
    if code is None:
        raise TypeError(f"graphweft.torch takes float32, float64 and bfloat16, not {tensor.dtype}")
    return tensor.data_ptr(), tensor.numel(), code


def _memory_of(tensor: _Some) -> _Memory | None:
    return None if tensor is None else _memory(tensor)


def _compact(tensor: _Some) -> _Some:
    return None if tensor is None else tensor.contiguous()


def _width(dst: Tensor, value: _Some, score: str) -> int:
    return int((value if score == "gat" and value is not None else dst).shape[1])


def _how(seed: _Some, dst: Tensor, value: _Some, score: str, heads: int, slope: float, dropout: float) -> Any:
    number = 0 if seed is None else int(seed.item()) % 2**64
    return score, heads, _width(dst, value, score), slope, dropout if seed is not None else 0.0, number


_CALL = (
    "Tensor graph, Tensor dst, Tensor src, Tensor? value, Tensor? shared, Tensor? bias, Tensor? seed, "
    "str score, int heads, float slope, float dropout"
)


@torch.library.custom_op("graphweft::attention", mutates_args=(), schema=f"({_CALL}) -> (Tensor, Tensor)")
def attention(
    graph: Tensor, dst: Tensor, src: Tensor, value: _Some, shared: _Some, bias: _Some, seed: _Some,
    score: str, heads: int, slope: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    operands = [_compact(t) for t in (dst, src, value, shared, bias)]
    out, lse = _attention_like(graph, dst, src, value, shared, bias, seed, score, heads, slope, dropout)
    how = _how(seed, dst, value, score, heads, slope, dropout)
    memory: Any = tuple(_memory_of(t) for t in operands)
    kernels_of(graph).attention(how, memory, _memory(out), _memory(lse))
    return out, lse


@attention.register_fake
def _attention_like(
    graph: Tensor, dst: Tensor, src: Tensor, value: _Some, shared: _Some, bias: _Some, seed: _Some,
    score: str, heads: int, slope: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    like = value if score == "gat" and value is not None else dst
    out = like.new_empty(dst.shape[0], like.shape[1])
    return out, dst.new_empty(dst.shape[0], heads, dtype=compute_type(dst.dtype))


@torch.library.custom_op(
    "graphweft::attention_backward",
    mutates_args=(),
    schema=f"({_CALL}, Tensor out, Tensor lse, Tensor g) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def attention_backward(
    graph: Tensor, dst: Tensor, src: Tensor, value: _Some, shared: _Some, bias: _Some, seed: _Some,
    score: str, heads: int, slope: float, dropout: float, out: Tensor, lse: Tensor, g: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    operands = [_compact(t) for t in (dst, src, value, shared, bias)]
    gradients = [None if t is None else torch.empty_like(t) for t in operands]
    saved = [t.contiguous() for t in (out, lse, g)]
    how = _how(seed, dst, value, score, heads, slope, dropout)
    memory: Any = tuple(_memory_of(t) for t in operands)
    places: Any = tuple(_memory_of(t) for t in gradients)
    kernels_of(graph).attention_backward(how, memory, [_memory(t) for t in saved], places)
    return tuple(dst.new_empty(0) if t is None else t for t in gradients)


@attention_backward.register_fake
def _attention_backward_like(
    graph: Tensor, dst: Tensor, src: Tensor, value: _Some, shared: _Some, bias: _Some, seed: _Some,
    score: str, heads: int, slope: float, dropout: float, out: Tensor, lse: Tensor, g: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    # Outputs of operations are contiguous whatever the operands are.
    return tuple(dst.new_empty(0) if t is None else t.new_empty(t.shape) for t in (dst, src, value, shared, bias))


def _attention_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.how = inputs[7:]


def _attention_gradients(ctx: Any, g: Tensor, _lse: Tensor) -> tuple[_Some, ...]:
    *operands, out, lse = ctx.saved_tensors
    found = attention_backward(*operands, *ctx.how, out, lse, g)
    wanted = ctx.needs_input_grad[1:6]
    gradients = (grad if wants else None for grad, wants in zip(found, wanted, strict=True))
    return (None, *gradients, None, None, None, None, None)


attention.register_autograd(_attention_gradients, setup_context=_attention_context)


@torch.library.custom_op(
    "graphweft::edge_sum",
    mutates_args=(),
    schema="(Tensor graph, Tensor x, Tensor? edge, Tensor? dst, Tensor? src, bool transpose) -> Tensor",
)
def edge_sum(graph: Tensor, x: Tensor, edge: _Some, dst: _Some, src: _Some, transpose: bool) -> Tensor:
    """Σ_j w_ij·x_j, or Σ_i w_ij·x_i; w is the product of what is given per edge, destination and source."""
    x, edge, dst, src = x.contiguous(), _compact(edge), _compact(dst), _compact(src)
    out = torch.empty_like(x)
    along = "transpose" if transpose else "edges"
    how = along, x.shape[1], _memory_of(edge), _memory_of(dst), _memory_of(src)
    kernels_of(graph).sum(how, _memory(x), _memory(out))
    return out


@edge_sum.register_fake
def _edge_sum_like(graph: Tensor, x: Tensor, edge: _Some, dst: _Some, src: _Some, transpose: bool) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op(
    "graphweft::edge_products",
    mutates_args=(),
    schema="(Tensor graph, Tensor x, Tensor g, Tensor edge, Tensor? dst, Tensor? src) -> Tensor",
)
def edge_products(graph: Tensor, x: Tensor, g: Tensor, edge: Tensor, dst: _Some, src: _Some) -> Tensor:
    """The gradient of the numbers on edges: g_i·x_j, times the factors."""
    x, g, dst, src = x.contiguous(), g.contiguous(), _compact(dst), _compact(src)
    out = torch.empty_like(edge, memory_format=torch.contiguous_format)
    how = "edges", x.shape[1], None, _memory_of(dst), _memory_of(src)
    kernels_of(graph).sum_weights(how, _memory(x), _memory(g), _memory(out))
    return out


@edge_products.register_fake
def _edge_products_like(graph: Tensor, x: Tensor, g: Tensor, edge: Tensor, dst: _Some, src: _Some) -> Tensor:
    return edge.new_empty(edge.shape)


def _edge_sum_context(ctx: Any, inputs: Any, output: Any) -> None:
    graph, x, edge, dst, src, ctx.transpose = inputs
    # x itself is needed by the gradient of the numbers on edges only.
    ctx.save_for_backward(graph, x if edge is not None else None, edge, dst, src)


def _edge_sum_gradients(ctx: Any, g: Tensor) -> tuple[_Some, ...]:
    graph, x, edge, dst, src = ctx.saved_tensors
    dx = edge_sum(graph, g, edge, dst, src, not ctx.transpose) if ctx.needs_input_grad[1] else None
    de = None
    if ctx.needs_input_grad[2]:
        rows, gradients = (g, x) if ctx.transpose else (x, g)
        de = edge_products(graph, rows, gradients, edge, dst, src)
    return None, dx, de, None, None, None


edge_sum.register_autograd(_edge_sum_gradients, setup_context=_edge_sum_context)


@torch.library.custom_op(
    "graphweft::edge_max", mutates_args=(), schema="(Tensor graph, Tensor x) -> (Tensor, Tensor)"
)
def edge_max(graph: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of every column over the sources, 0 where there are none, and whose it is."""
    x = x.contiguous()
    out, arg = torch.empty_like(x), torch.empty_like(x, dtype=torch.int32)
    kernels_of(graph).max(x.shape[1], _memory(x), _memory(out), _memory(arg))
    return out, arg


@edge_max.register_fake
def _edge_max_like(graph: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.int32)


@torch.library.custom_op(
    "graphweft::edge_max_backward", mutates_args=(), schema="(Tensor graph, Tensor g, Tensor arg) -> Tensor"
)
def edge_max_backward(graph: Tensor, g: Tensor, arg: Tensor) -> Tensor:
    g, arg = g.contiguous(), arg.contiguous()
    dx = torch.empty_like(g)
    kernels_of(graph).max_backward(g.shape[1], _memory(g), _memory(arg), _memory(dx))
    return dx


@edge_max_backward.register_fake
def _edge_max_backward_like(graph: Tensor, g: Tensor, arg: Tensor) -> Tensor:
    return g.new_empty(g.shape)


def _edge_max_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], output[1])


def _edge_max_gradients(ctx: Any, g: Tensor, _arg: _Some) -> tuple[_Some, ...]:
    graph, arg = ctx.saved_tensors
    return None, edge_max_backward(graph, g, arg)


edge_max.register_autograd(_edge_max_gradients, setup_context=_edge_max_context)
