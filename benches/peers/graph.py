"""The graph of a benchmark: `indptr.npy` and `indices.npy` of a dataset folder, CSR by destination."""

from pathlib import Path

import numpy as np
import torch


class Graph:
    """Row i of the CSR lists the sources j of the edges j -> i. Edge arrays are in that order."""

    def __init__(self, indptr, indices):
        self.nodes, self.edges = len(indptr) - 1, len(indices)
        self.indptr = torch.from_numpy(np.asarray(indptr).astype(np.int64))
        self.src = torch.from_numpy(np.asarray(indices).astype(np.int64))
        self.dst = torch.repeat_interleave(torch.arange(self.nodes), self.indptr.diff())

    @staticmethod
    def read(folder):
        folder = Path(folder)
        return Graph(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"))

    @staticmethod
    def small():
        """Directed, with a hub, a node without in-edges and self-loops: what the checks run on."""
        dense = np.random.default_rng(0).random((40, 40)) < 0.15
        dense[7] = True
        dense[11] = False
        return Graph(np.concatenate([[0], dense.sum(1).cumsum()]), np.nonzero(dense)[1])

    def dense(self):
        """The adjacency matrix, destinations as rows."""
        a = torch.zeros(self.nodes, self.nodes, dtype=torch.bool)
        a[self.dst, self.src] = True
        return a

    def dgl(self, numbered=False):
        """With `numbered` the edge ids are written out: DGL's sum over a node's edges fails on a graph without them."""
        import dgl

        ids = torch.arange(self.edges if numbered else 0, dtype=torch.int32)
        csc = (self.indptr.int(), self.src.int(), ids)
        return dgl.graph(("csc", csc), num_nodes=self.nodes)


class Csr:
    """torch's sparse CSR matrices with the graph's pattern, and with the pattern of its transpose.

    Indices are 32 bits wide, so that MKL takes them without a conversion. The transpose is laid out once, as a training
    loop would do it: autograd through `torch.sparse.mm` would convert it again in every backward.
    """

    def __init__(self, graph):
        self.shape = (graph.nodes, graph.nodes)
        self.order = torch.argsort(graph.src, stable=True)
        counts = torch.bincount(graph.src, minlength=graph.nodes).cumsum(0)
        self.rows = (graph.indptr.int(), graph.src.int())
        self.columns = (torch.nn.functional.pad(counts, (1, 0)).int(), graph.dst[self.order].int())

    def matrix(self, values):
        return torch.sparse_csr_tensor(*self.rows, values, self.shape, check_invariants=False)

    def transpose(self, values):
        values = values.index_select(0, self.order)
        return torch.sparse_csr_tensor(*self.columns, values, self.shape, check_invariants=False)
