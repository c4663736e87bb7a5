"""Graphweft's fused operations over edges for PyTorch: nothing of the size of edges times columns is ever made.

``Adjacency`` prepares a graph once; ``attention`` and ``aggregate`` are operations that autograd and ``torch.compile``
understand; the modules have PyTorch Geometric's arguments and names of parameters. On the CPU, in f32, f64 and bf16.
The same arguments give the same bits, forward and backward.

>>> import torch
>>> import graphweft.torch as gt
>>> adj = gt.Adjacency(torch.tensor([[0, 2], [1, 1]]), num_nodes=3)
>>> gt.aggregate(torch.tensor([[1.0], [2.0], [4.0]]), adj).flatten().tolist()
[0.0, 5.0, 0.0]
"""

from ._adjacency import Adjacency
from ._functions import aggregate, attention
from ._modules import GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv

__all__ = ["Adjacency", "GATConv", "GATv2Conv", "GCNConv", "SAGEConv", "TransformerConv", "aggregate", "attention"]
