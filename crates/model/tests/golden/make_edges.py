"""Ten training steps of models with features of edges, by PyTorch Geometric, for tests/golden.rs.

Run: python make_edges.py. It runs make.py, whose graph and models these are, and writes the same files per case.
"""

import numpy as np
import torch
from torch.nn import Linear, ModuleList
from torch_geometric.nn import MLP, GATConv, GINEConv
from torch_geometric.nn.models import GAT, GIN
from torch_geometric.utils import softmax

from make import (
    AUGMENTED,
    CATEGORIES,
    CLASSES,
    EDGE_FEATURES,
    EDGE_INDEX,
    FEATURES,
    HERE,
    NODE,
    N,
    ONE_GRAPH,
    X,
    Exphormer,
    ExphormerLayer,
    F,
    Gps,
    case,
)

torch.manual_seed(3)
EDGE_DIM = dict(edge_dim=EDGE_FEATURES.shape[1])
# Loops would get means of features, where ours get zeros.
NO_LOOPS = dict(add_self_loops=False, **EDGE_DIM)


def with_edges(name, toml, model):
    case(name, toml, model, lambda m, _: m(X, EDGE_INDEX, edge_attr=EDGE_FEATURES))


with_edges("gat-edges", 'name = "gat"\nhidden = 16\nlayers = 3\nheads = 4', GAT(FEATURES, 16, 3, CLASSES, heads=4, act="elu", **NO_LOOPS))
with_edges("gatv2-edges", 'name = "gatv2"\nhidden = 16\nlayers = 2\nheads = 2', GAT(FEATURES, 16, 2, CLASSES, heads=2, act="elu", v2=True, **NO_LOOPS))


class GpsEdges(Gps):
    def forward(self, x, edge_index, edge_attr):
        x = self.input(x)
        for conv in self.convs:
            x = conv(x, edge_index, ONE_GRAPH, edge_attr=edge_attr)
        return self.output(x)


gat = lambda d: GATConv(d, d // 2, 2, **NO_LOOPS)
with_edges("gps-gat-edges", 'name = "gps"\nhidden = 8\nlayers = 2\nheads = 2\nlocal = "gat"\nnorm = "layer"', GpsEdges(8, 2, 2, gat, NODE))


torch.manual_seed(4)  # Whatever was drawn above.


# The features of an edge with its kind after the numbers; each column of categories has one more for added edges.
def edge_features_of(edges):
    given = iter(np.load(HERE / "graph" / "edge_feat.npy"))
    rows = []
    for kind in edges[2].tolist():
        row = np.array([0, 0, 0, *CATEGORIES], float) if kind else next(given)
        one_hot = [np.eye(count)[int(id)] for id, count in zip([kind, *row[3:]], (2, *(c + 1 for c in CATEGORIES)))]
        rows.append(np.concatenate([row[:3], *one_hot]))
    return torch.tensor(np.array(rows))


class ExphormerEdgesLayer(ExphormerLayer):
    """Features of edges in keys and values, as TransformerConv has them."""

    def __init__(self, d, heads, features):
        super().__init__(d, heads, 1)
        del self.edge
        self.conv.add_module("lin_edge", Linear(features, d, bias=False))

    def forward(self, x, tokens, edges, features):
        both = torch.cat([x, tokens])
        q, k, v = (getattr(self.conv, f"lin_{n}")(both).view(len(both), self.heads, -1) for n in ("query", "key", "value"))
        e = self.conv.lin_edge(features).view(len(features), self.heads, -1)
        t = torch.arange(N, N + len(tokens))
        node = torch.arange(N)
        src = torch.cat([edges[0], t.repeat(N), node.repeat(len(t))])
        dst = torch.cat([edges[1], node.repeat_interleave(len(t)), t.repeat_interleave(N)])
        e = torch.cat([e, e.new_zeros(len(src) - len(e), *e.shape[1:])])
        score = (q[dst] * (k[src] + e)).sum(-1) / q.shape[-1] ** 0.5
        alpha = softmax(score, dst, num_nodes=len(both))
        z = torch.zeros_like(v).index_add(0, dst, alpha[..., None] * (v[src] + e)).reshape(len(both), -1)
        both = self.after(both, z)
        return both[:N], both[N:]


class ExphormerEdges(Exphormer):
    def __init__(self, d, heads, layers, tokens, features):
        super().__init__(d, heads, layers, tokens)
        self.layers = ModuleList(ExphormerEdgesLayer(d, heads, features) for _ in range(layers))

    def forward(self, x, edges, features):
        x, tokens = self.input(x), self.tokens
        for layer in self.layers:
            x, tokens = layer(x, tokens, edges[:2], features)
        return self.output(x)


AUGMENTED_FEATURES = edge_features_of(AUGMENTED)
toml = 'name = "exphormer"\nhidden = 16\nlayers = 2\nheads = 4\nexpander_degree = 2\nvirtual_nodes = 3'
model = ExphormerEdges(16, 4, 2, 3, AUGMENTED_FEATURES.shape[1])
case("exphormer-edges", toml, model, lambda m, _: m(X, AUGMENTED, AUGMENTED_FEATURES))


torch.manual_seed(5)  # As above.


class GINE(GIN):
    supports_edge_attr = True

    def init_conv(self, inputs, outputs, **kwargs):
        mlp = MLP([inputs, outputs, outputs], act=self.act, norm=self.norm, norm_kwargs=self.norm_kwargs)
        return GINEConv(mlp, **kwargs)


with_edges("gin-edges", 'name = "gin"\nhidden = 16\nlayers = 3', GINE(FEATURES, 16, 3, CLASSES, **EDGE_DIM))
with_edges("gin-narrow-edges", 'name = "gin"\nhidden = 8\nlayers = 2\nnorm = "batch"', GINE(FEATURES, 8, 2, CLASSES, norm="batch_norm", **EDGE_DIM))


def gine(d):
    nn = MLP([d, d, d], norm=None)
    return GINEConv(nn, **EDGE_DIM)


with_edges("gps-gin-edges", 'name = "gps"\nhidden = 8\nlayers = 2\nheads = 2\nlocal = "gin"\nnorm = "layer"', GpsEdges(8, 2, 2, gine, NODE))
