"""Ten training steps of every model by PyTorch Geometric, for tests/golden.rs.

Run: python make.py   (needs torch, torch_geometric, numpy, safetensors). Writes a folder per case beside this file:
model.toml (our keys), initial and final parameters, and the losses; and `graph/` with the data that all cases share.
"""

import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch.nn import BatchNorm1d, LayerNorm, Linear, Module, ModuleList
from torch_geometric.nn import GCN2Conv, GCNConv, TransformerConv
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE, Polynormer, SGFormer
from torch_geometric.utils import softmax

HERE = pathlib.Path(__file__).parent
N, FEATURES, CLASSES, STEPS, LR, DECAY = 40, 12, 5, 10, 0.01, 5e-4
torch.set_default_dtype(torch.float64)
torch.manual_seed(1)


def graph():
    """Directed edges without duplicates: a hub, self-loops, isolated nodes."""
    rng = np.random.default_rng(3)
    edges = {(int(j), int(i)) for j, i in rng.integers(0, N - 4, (110, 2))}  # The last four nodes are isolated.
    edges |= {(j, 0) for j in range(1, 30)} | {(5, 5), (9, 9)}
    return sorted(edges, key=lambda e: (e[1], e[0]))


def write_graph(edges):
    folder = HERE / "graph"
    folder.mkdir(exist_ok=True)
    indptr = np.zeros(N + 1, np.uint64)
    for _, i in edges:
        indptr[i + 1] += 1
    np.save(folder / "indptr.npy", np.cumsum(indptr, dtype=np.uint64))
    np.save(folder / "indices.npy", np.array([j for j, _ in edges], np.uint32))
    rng = np.random.default_rng(4)
    x = rng.standard_normal((N, FEATURES))
    label = rng.integers(0, CLASSES, N)
    train = np.sort(rng.choice(N, 25, replace=False))
    for name, array in [("feat", x), ("label", label), ("train", train)]:
        np.save(folder / f"{name}.npy", array)
    return torch.tensor(x), torch.tensor(label), torch.tensor(train)


def save(path, model):
    # PyTorch fills in batch counters by itself; the skip connection of TransformerConv is there even where it is not used.
    extra = ("num_batches", "lin_skip")
    state = {k: v.numpy().copy() for k, v in model.state_dict().items() if not any(e in k for e in extra)}
    save_file(state, path)


def case(name, toml, model, forward, decay=DECAY):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "model.toml").write_text(toml.strip() + "\n")
    model.train()
    with torch.no_grad():  # Biases and scales that do something.
        for p in model.parameters():
            if p.dim() == 1:
                p += 0.1 * torch.randn_like(p)
    save(folder / "initial.safetensors", model)
    adam = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=decay)
    losses = []
    for step in range(STEPS):
        adam.zero_grad()
        loss = F.cross_entropy(forward(model, step)[TRAIN], LABEL[TRAIN])
        loss.backward()
        adam.step()
        losses.append(loss.item())
    np.save(folder / "losses.npy", np.array(losses))
    save(folder / "final.safetensors", model)
    print(name, losses[0], losses[-1])


EDGES = graph()
X, LABEL, TRAIN = write_graph(EDGES)
EDGE_INDEX = torch.tensor(EDGES).T
NODE_NORM = dict(norm="layer_norm", norm_kwargs=dict(mode="node"))


def basic(name, toml, kind, hidden, layers, **kwargs):
    model = kind(FEATURES, hidden, layers, CLASSES, **kwargs)
    case(name, toml, model, lambda m, _: m(X, EDGE_INDEX))


basic("gcn", 'name = "gcn"\nhidden = 16\nlayers = 3', GCN, 16, 3)
basic("gcn-narrow", 'name = "gcn"\nhidden = 8\nlayers = 2\nnorm = "batch"', GCN, 8, 2, norm="batch_norm")
basic("gcn-layer", 'name = "gcn"\nhidden = 16\nlayers = 2\nnorm = "layer"\nactivation = "gelu"', GCN, 16, 2, act="gelu", **NODE_NORM)
basic("sage", 'name = "sage"\nhidden = 16\nlayers = 3', GraphSAGE, 16, 3)
basic("sage-max", 'name = "sage"\nhidden = 8\nlayers = 2\naggregation = "max"', GraphSAGE, 8, 2, aggr="max")
basic("gat", 'name = "gat"\nhidden = 16\nlayers = 3\nheads = 4', GAT, 16, 3, heads=4, act="elu")
basic("gatv2", 'name = "gatv2"\nhidden = 16\nlayers = 2\nheads = 2', GAT, 16, 2, heads=2, act="elu", v2=True)
basic("gin", 'name = "gin"\nhidden = 16\nlayers = 2', GIN, 16, 2)
basic("gin-batch", 'name = "gin"\nhidden = 8\nlayers = 3\nnorm = "batch"', GIN, 8, 3, norm="batch_norm")


class Tuned(Module):
    """Convolution + linear branch, norm, ReLU; a linear layer last."""

    def __init__(self, conv, hidden, layers, norm, first):
        super().__init__()
        width = lambda k: FEATURES if k == 0 and not first else hidden
        if first:
            self.lin_in = Linear(FEATURES, hidden)
        self.local_convs = ModuleList(conv(width(k), hidden) for k in range(layers))
        self.lins = ModuleList(Linear(width(k), hidden) for k in range(layers))
        norms = ModuleList((LayerNorm if norm == "lns" else BatchNorm1d)(hidden) for _ in range(layers))
        self.add_module(norm, norms)
        self.norm = norm
        self.pred_local = Linear(hidden, CLASSES)

    def forward(self, x, edge_index):
        x = self.lin_in(x) if hasattr(self, "lin_in") else x
        for conv, lin, norm in zip(self.local_convs, self.lins, getattr(self, self.norm)):
            x = F.relu(norm(conv(x, edge_index) + lin(x)))
        return self.pred_local(x)


def tuned(name, toml, *args):
    case(name, toml, Tuned(*args), lambda m, _: m(X, EDGE_INDEX))


KEYS = 'stack = "tuned"\nresidual = true\n'
from torch_geometric.nn import GATConv, SAGEConv  # noqa: E402

tuned("tuned-gcn", KEYS + 'name = "gcn"\nhidden = 16\nlayers = 3\nnorm = "batch"', GCNConv, 16, 3, "bns", False)
tuned("tuned-sage", KEYS + 'name = "sage"\nhidden = 8\nlayers = 2\nnorm = "layer"\ninput_linear = true', SAGEConv, 8, 2, "lns", True)
gat = lambda i, o: GATConv(i, o // 4, heads=4, bias=False)
tuned("tuned-gat", KEYS + 'name = "gat"\nhidden = 16\nlayers = 2\nnorm = "layer"\nheads = 4\nactivation = "relu"', gat, 16, 2, "lns", False)


class GtLayer(Module):
    def __init__(self, d, heads, norm):
        super().__init__()
        self.conv = TransformerConv(d, d // heads, heads, root_weight=False)
        self.o, self.ffn1, self.ffn2 = Linear(d, d), Linear(d, 2 * d), Linear(2 * d, d)
        self.norm1, self.norm2 = norm(d), norm(d)

    def forward(self, x, edge_index):
        x = self.norm1(x + self.o(self.conv(x, edge_index)))
        return self.norm2(x + self.ffn2(F.gelu(self.ffn1(x))))


class Gt(Module):
    def __init__(self, d, heads, layers, norm):
        super().__init__()
        self.input = Linear(FEATURES, d)
        self.layers = ModuleList(GtLayer(d, heads, norm) for _ in range(layers))
        self.output = Linear(d, CLASSES)

    def forward(self, x, edge_index):
        x = self.input(x)
        for layer in self.layers:
            x = layer(x, edge_index)
        return self.output(x)


case("gt", 'name = "gt"\nhidden = 16\nlayers = 2\nheads = 4', Gt(16, 4, 2, LayerNorm), lambda m, _: m(X, EDGE_INDEX))
case("gt-batch", 'name = "gt"\nhidden = 8\nlayers = 2\nheads = 2\nnorm = "batch"', Gt(8, 2, 2, BatchNorm1d), lambda m, _: m(X, EDGE_INDEX))
