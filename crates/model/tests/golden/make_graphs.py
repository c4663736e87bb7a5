"""Ten training steps of models that predict something of whole graphs, by PyTorch Geometric, for tests/golden.rs.

Run after make.py, whose graph they share: python make_graphs.py. Its nodes are taken as five graphs, one of a single
node; readouts do not care that edges lead from one to another. Writes the same files per case as make.py.
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch.nn import Linear, Module, ModuleDict, ModuleList, Parameter, Sequential
from torch_geometric.nn import AttentionalAggregation, BatchNorm, GATConv, GCNConv, GPSConv, GraphNorm, SAGEConv, Set2Set
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.nn.models import GIN

HERE = pathlib.Path(__file__).parent
STEPS, LR, DECAY, CLASSES = 10, 0.01, 5e-4, 3
torch.set_default_dtype(torch.float64)
torch.manual_seed(2)
load = lambda name: np.load(HERE / "graph" / f"{name}.npy")
X = torch.tensor(load("feat"))
N, FEATURES = X.shape
ptr, indices = load("indptr").astype(np.int64), load("indices").astype(np.int64)
EDGES = torch.tensor(np.stack([indices, np.repeat(np.arange(N), np.diff(ptr))]))
PTR = [0, 9, 10, 23, 31, 40]
BATCH = torch.repeat_interleave(torch.arange(5), torch.tensor(np.diff(PTR)))
LABEL = torch.tensor([0, 2, 1, 1, 2])
POOL = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


def named(name, value):
    """A parameter by our names: PyTorch's attention has the projections of queries, keys and values in one."""
    if "in_proj_" in name:
        stem, kind = name.split("in_proj_")
        return {f"{stem}{part}.{kind}": rows for part, rows in zip("qkv", value.chunk(3))}
    return {name.replace("attn.out_proj", "attn.attn_out"): value}


def save(path, model):
    state = [item for k, v in model.state_dict().items() for item in named(k, v).items()]
    save_file({k: v.numpy().copy() for k, v in state if "num_batches" not in k and "lin_skip" not in k}, path)


def case(name, toml, model):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "model.toml").write_text(toml.strip() + "\n")
    model.train()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p += 0.1 * torch.randn_like(p)
    save(folder / "initial.safetensors", model)
    adam = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=DECAY)
    losses = []
    for _ in range(STEPS):
        adam.zero_grad()
        loss = F.cross_entropy(model(X), LABEL)
        loss.backward()
        adam.step()
        losses.append(loss.item())
    np.save(folder / "losses.npy", np.array(losses))
    save(folder / "final.safetensors", model)
    print(name, losses[0], losses[-1])


class Plain(Module):
    """Convolutions with norm and ReLU after each, a readout, and a linear layer."""

    def __init__(self, convs, hidden, norm, readout):
        super().__init__()
        self.convs = ModuleList(convs)
        if norm:
            self.norms = ModuleList((GraphNorm if norm == "graph" else BatchNorm)(hidden) for _ in convs)
        self.readout = ModuleDict({"lin": Linear(2 * hidden if readout == "set" else hidden, CLASSES)})
        self.kind = readout
        if readout == "attention":
            self.readout["gate"] = Linear(hidden, 1, bias=False)
            # Not a module of ours: its names are not those of the readout.
            self.pool = [AttentionalAggregation(self.readout["gate"])]
        if readout == "set":
            self.pool = [Set2Set(hidden, 3)]
            self.readout["lstm"] = self.pool[0].lstm

    def forward(self, x):
        for k, conv in enumerate(self.convs):
            x = conv(x, EDGES)
            batch = [BATCH] if self.kind == "set" else []
            x = F.relu(self.norms[k](x, *batch) if hasattr(self, "norms") else x)
        pooled = self.pool[0](x, BATCH) if hasattr(self, "pool") else POOL[self.kind](x, BATCH)
        return self.readout["lin"](pooled)


class Every(Module):
    """GIN as published: the features and every layer are read out, each with a linear layer, and added up."""

    def __init__(self, hidden, layers, readout):
        super().__init__()
        self.convs = GIN(FEATURES, hidden, layers, norm="batch_norm").convs
        self.norms = ModuleList(BatchNorm(hidden) for _ in range(layers))
        widths = [FEATURES] + [hidden] * layers
        self.readout = ModuleDict({str(k): Linear(width, CLASSES) for k, width in enumerate(widths)})
        self.pool = POOL[readout]

    def forward(self, x):
        score = self.readout["0"](self.pool(x, BATCH))
        for k, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            x = F.relu(norm(conv(x, EDGES)))
            score = score + self.readout[str(k + 1)](self.pool(x, BATCH))
        return score


class Virtual(Module):
    """A linear layer, then convolutions before each of which a node of the graph's own is added, as in OGB's example."""

    def __init__(self, hidden, layers):
        super().__init__()
        self.lin_in = Linear(FEATURES, hidden)
        self.local_convs = ModuleList(GIN(hidden, hidden, 1, norm="batch_norm").convs[0] for _ in range(layers))
        self.bns = ModuleList(torch.nn.BatchNorm1d(hidden) for _ in range(layers))
        self.virtual = Module()
        self.virtual.start = Parameter(torch.zeros(hidden))
        for k in range(1, layers):
            update = Module()
            update.lins = ModuleList([Linear(hidden, 2 * hidden), Linear(2 * hidden, hidden)])
            update.norms = ModuleList([torch.nn.BatchNorm1d(2 * hidden), torch.nn.BatchNorm1d(hidden)])
            self.virtual.add_module(str(k), update)
        self.pred_local = Linear(hidden, CLASSES)

    def forward(self, x):
        x, v = self.lin_in(x), self.virtual.start.expand(5, -1)
        for k, (conv, norm) in enumerate(zip(self.local_convs, self.bns)):
            x = x + v[BATCH]
            if k + 1 < len(self.local_convs):
                update = getattr(self.virtual, str(k + 1))
                v = global_add_pool(x, BATCH) + v
                for lin, bn in zip(update.lins, update.norms):
                    v = F.relu(bn(lin(v)))
            x = F.relu(norm(conv(x, EDGES)))
        return self.pred_local(global_mean_pool(x, BATCH))


gin = lambda hidden, layers: list(GIN(FEATURES, hidden, layers, norm="batch_norm").convs)
case("graphs-gin", 'name = "gin"\nhidden = 8\nlayers = 2\nnorm = "batch"\nreadout = "sum"', Plain(gin(8, 2), 8, True, "sum"))
sage = [SAGEConv(FEATURES, 16), SAGEConv(16, 16)]
case("graphs-sage", 'name = "sage"\nhidden = 16\nlayers = 2\nreadout = "mean"', Plain(sage, 16, False, "mean"))
gcn = [GCNConv(FEATURES, 8, add_self_loops=False), GCNConv(8, 8, add_self_loops=False)]
case("graphs-gcn", 'name = "gcn"\nhidden = 8\nlayers = 2\nreadout = "max"', Plain(gcn, 8, False, "max"))
case("graphs-attention", 'name = "sage"\nhidden = 8\nlayers = 1\nreadout = "attention"', Plain([SAGEConv(FEATURES, 8)], 8, False, "attention"))
toml = 'name = "gin"\nhidden = 8\nlayers = 2\nnorm = "batch"\nreadout_from = "all"\nreadout = '
case("graphs-every", toml + '"sum"', Every(8, 2, "sum"))
case("graphs-every-mean", toml + '"mean"', Every(8, 2, "mean"))
keys = 'name = "gin"\nhidden = 8\nlayers = 3\nstack = "tuned"\ninput_linear = true\nnorm = "batch"\nvirtual_node = true'
case("graphs-virtual", keys, Virtual(8, 3))


class Gps(Module):
    """Softmax attention inside each graph beside convolutions, with a readout at the end."""

    def __init__(self, d, heads, layers, conv, norm, readout):
        super().__init__()
        self.input, self.output = Linear(FEATURES, d), Linear(2 * d if readout == "set" else d, CLASSES)
        self.convs = ModuleList(GPSConv(d, conv(d), heads, norm=norm) for _ in range(layers))
        self.kind = readout
        if readout == "set":
            self.pool = [Set2Set(d, 3)]
            self.readout = ModuleDict({"lstm": self.pool[0].lstm})

    def forward(self, x):
        x = self.input(x)
        for conv in self.convs:
            x = conv(x, EDGES, BATCH)
        return self.output(self.pool[0](x, BATCH) if self.kind == "set" else POOL[self.kind](x, BATCH))


norms = [SAGEConv(FEATURES, 8), SAGEConv(8, 8)]
case("graphs-norm", 'name = "sage"\nhidden = 8\nlayers = 2\nnorm = "graph"\nreadout = "set"', Plain(norms, 8, "graph", "set"))
keys = 'name = "gps"\nhidden = 16\nlayers = 2\nheads = 4\nreadout = "mean"'
case("graphs-gps", keys, Gps(16, 4, 2, lambda d: GCNConv(d, d), "batch_norm", "mean"))
keys = 'name = "gps"\nhidden = 8\nlayers = 2\nheads = 2\nlocal = "gat"\nnorm = "graph"\nreadout = "set"'
case("graphs-gps-set", keys, Gps(8, 2, 2, lambda d: GATConv(d, d // 2, 2), "graph_norm", "set"))
