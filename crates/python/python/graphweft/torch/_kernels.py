"""Torch's tensors as the engine takes them, and the calls: torch makes what is written, the engine writes it.

What an operation gets: `graph`, the kernels of a graph; a row per node of every other tensor. Of attention, `dst` and
`src` are q and k‖v for the score "dot", l and r for "gat" (with values `value`) and "gatv2" (with `shared`, which all
edges have; values are `value`, or r). With features of edges, `edges`, there are as many numbers behind each head of q
and of the output as there are features, and zeros up to a multiple of four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .._graphweft import EdgeKernels

_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.int32: 3}
_Memory = tuple[int, int, int]
Some: TypeAlias = "Tensor | None"
# GPUs load so many bytes at once.
_ALIGNED = 16


def compute_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which kernels compute with numbers that are stored so."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _memory(tensor: Tensor) -> _Memory:
    code = _CODES.get(tensor.dtype)
    if code is None:
        raise TypeError(f"graphweft.torch takes float32, float64 and bfloat16, not {tensor.dtype}")
    return tensor.data_ptr(), tensor.numel(), code


def _memory_of(tensor: Some) -> _Memory | None:
    return None if tensor is None else _memory(tensor)


def _compact(tensor: Tensor) -> Tensor:
    """Its rows side by side, from where kernels can load them."""
    if not tensor.is_contiguous():
        return tensor.contiguous()
    return tensor.clone() if tensor.is_cuda and tensor.data_ptr() % _ALIGNED else tensor


def _maybe(tensor: Some) -> Some:
    return None if tensor is None else _compact(tensor)


def _how(edges: Some, seed: Some, width: int, score: str, heads: int, slope: float, dropout: float) -> Any:
    features = _memory_of(edges)
    if seed is None or dropout == 0.0:
        return score, heads, width, slope, 0.0, 0, features
    if seed.is_cuda:
        return score, heads, width, slope, dropout, (seed.data_ptr(), 1, 0), features
    return score, heads, width, slope, dropout, int(seed.item()) % 2**64, features


def like_attention(dst: Tensor, value: Some, score: str, heads: int) -> tuple[Tensor, Tensor]:
    """Memory for what attention gives. Operands have their rows side by side."""
    like = value if score == "gat" and value is not None else dst
    lse = torch.empty((dst.shape[0], heads), dtype=compute_type(dst.dtype), device=dst.device)
    return torch.empty_like(like, memory_format=torch.contiguous_format), lse


def attention(
    graph: EdgeKernels, operands: Sequence[Some], edges: Some, seed: Some,
    score: str, heads: int, slope: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The output, and the log-sum-exp of the scores."""
    dst, src, value, shared, bias = operands
    assert dst is not None and src is not None
    dst, src, value, shared, bias = _compact(dst), _compact(src), _maybe(value), _maybe(shared), _maybe(bias)
    out, lse = like_attention(dst, value, score, heads)
    memory: Any = (_memory(dst), _memory(src), _memory_of(value), _memory_of(shared), _memory_of(bias))
    # Kept here until the call is made.
    edges = _maybe(edges)
    graph.attention(_how(edges, seed, out.shape[1], score, heads, slope, dropout), memory, _memory(out), _memory(lse))
    return out, lse


def attention_backward(
    graph: EdgeKernels, operands: Sequence[Some], saved: Sequence[Tensor], edges: Some, seed: Some,
    score: str, heads: int, slope: float, dropout: float,
) -> list[Some]:  # fmt: skip
    """The gradients of the operands, from the output, the log-sum-exp and the output's gradient."""
    operands = [_maybe(t) for t in operands]
    gradients = [None if t is None else torch.empty_like(t) for t in operands]
    out, lse, g = (_compact(t) for t in saved)
    edges = _maybe(edges)
    how = _how(edges, seed, out.shape[1], score, heads, slope, dropout)
    memory: Any = tuple(_memory_of(t) for t in operands)
    places: Any = tuple(_memory_of(t) for t in gradients)
    graph.attention_backward(how, memory, [_memory(out), _memory(lse), _memory(g)], places)
    return gradients


def edge_sum(graph: EdgeKernels, x: Tensor, edge: Some, dst: Some, src: Some, transpose: bool) -> Tensor:
    """Σ_j w_ij·x_j, or Σ_i w_ij·x_i; w is the product of what is given per edge, destination and source."""
    x, edge, dst, src = _compact(x), _maybe(edge), _maybe(dst), _maybe(src)
    out = torch.empty_like(x)
    along = "transpose" if transpose else "edges"
    how = along, x.shape[1], _memory_of(edge), _memory_of(dst), _memory_of(src)
    graph.sum(how, _memory(x), _memory(out))
    return out


def edge_products(graph: EdgeKernels, x: Tensor, g: Tensor, edge: Tensor, dst: Some, src: Some) -> Tensor:
    """The gradient of the numbers on edges: g_i·x_j, times the factors."""
    x, g, dst, src = _compact(x), _compact(g), _maybe(dst), _maybe(src)
    out = torch.empty_like(edge, memory_format=torch.contiguous_format)
    how = "edges", x.shape[1], None, _memory_of(dst), _memory_of(src)
    graph.sum_weights(how, _memory(x), _memory(g), _memory(out))
    return out


def edge_max(graph: EdgeKernels, x: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of every column over the sources, 0 where there are none, and whose it is."""
    x = _compact(x)
    out, arg = torch.empty_like(x), torch.empty_like(x, dtype=torch.int32)
    graph.max(x.shape[1], _memory(x), _memory(out), _memory(arg))
    return out, arg


def edge_max_backward(graph: EdgeKernels, g: Tensor, arg: Tensor) -> Tensor:
    """The gradient of x, of a maximum whose gradient is g."""
    g, arg = _compact(g), _compact(arg)
    dx = torch.empty_like(g)
    graph.max_backward(g.shape[1], _memory(g), _memory(arg), _memory(dx))
    return dx
