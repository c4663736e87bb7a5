"""Ten training steps of every model by PyTorch Geometric, for tests/golden.rs.

Run: python make.py   (needs torch, torch_geometric, numpy, safetensors). Writes a folder per case beside this file:
model.toml (our keys), initial and final parameters, and the losses; and `graph/` with the data that all cases share.
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch.nn import BatchNorm1d, LayerNorm, Linear, Module, ModuleList, Parameter
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GATConv, GCN2Conv, GCNConv, GPSConv, RGCNConv, SAGEConv, TransformerConv
from torch_geometric.nn.attention import PerformerAttention
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE, Polynormer, SGFormer
from torch_geometric.transforms import SIGN
from torch_geometric.utils import softmax

HERE = pathlib.Path(__file__).parent
N, FEATURES, CLASSES, STEPS, LR, DECAY = 40, 12, 5, 10, 0.01, 5e-4
ROUNDS, FEWEST_BITS = 4, 10  # Of the keyed permutation.
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


def save(path, model, unused):
    # PyTorch fills in batch counters by itself; the skip connection of TransformerConv is there even where it is not
    # used.
    extra = ("num_batches", "lin_skip", *unused)
    state = {k: v.numpy().copy() for k, v in model.state_dict().items() if not any(e in k for e in extra)}
    if hasattr(model, "_global"):  # Polynormer's switch is part of what we save.
        state["phase"] = np.array([float(model._global)])
    save_file(state, path)


def case(name, toml, model, forward, unused=()):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "model.toml").write_text(toml.strip() + "\n")
    model.train()
    with torch.no_grad():  # Biases and scales that do something.
        for p in model.parameters():
            if p.dim() == 1:
                p += 0.1 * torch.randn_like(p)
    save(folder / "initial.safetensors", model, unused)
    adam = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=DECAY)
    losses = []
    for step in range(STEPS):
        adam.zero_grad()
        loss = F.cross_entropy(forward(model, step)[TRAIN], LABEL[TRAIN])
        loss.backward()
        adam.step()
        losses.append(loss.item())
    np.save(folder / "losses.npy", np.array(losses))
    save(folder / "final.safetensors", model, unused)
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


class Gcnii(Module):
    def __init__(self, d, layers, alpha, theta):
        super().__init__()
        self.lins = ModuleList([Linear(FEATURES, d), Linear(d, CLASSES)])
        self.convs = ModuleList(GCN2Conv(d, alpha, theta, k + 1) for k in range(layers))

    def forward(self, x, edge_index):
        x = first = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(x, first, edge_index).relu()
        return self.lins[1](x)


case("gcnii", 'name = "gcnii"\nhidden = 16\nlayers = 4\nalpha = 0.2\ntheta = 0.7', Gcnii(16, 4, 0.2, 0.7), lambda m, _: m(X, EDGE_INDEX))

ONE_GRAPH = torch.zeros(N, dtype=torch.long)
for heads in (1, 2):
    toml = f'name = "sgformer"\nhidden = 16\nlayers = 2\nheads = {heads}\ngraph_layers = 3\ngraph_weight = 0.7'
    model = SGFormer(FEATURES, 16, CLASSES, 2, heads, 0.0, 3, 0.0, 0.7)
    case(f"sgformer-{heads}", toml, model, lambda m, _: m(X, EDGE_INDEX, ONE_GRAPH))


def polynormer(name, keys, whole, heads=1, **kwargs):
    model = Polynormer(FEATURES, 16 // heads, CLASSES, 3, 2, 0.0, 0.0, 0.0, heads, **kwargs)
    model._global = whole
    toml = f'name = "polynormer"\nhidden = 16\nlayers = 3\nglobal_layers = 2\nwarm_up = {0 if whole else 100}\n' + keys
    # PyTorch Geometric has a layer that it does not use; with several heads its attention to all nodes does not fit.
    case(name, toml, model, lambda m, _: m(X, EDGE_INDEX, ONE_GRAPH), ("lin_in",))


polynormer("polynormer-local", "", False)
polynormer("polynormer", "beta = 0.8", True, beta=0.8)
# Self-loops are part of the data for us.
LOOPED = torch.cat([EDGE_INDEX[:, EDGE_INDEX[0] != EDGE_INDEX[1]], torch.arange(N).repeat(2, 1)], 1)
model = Polynormer(FEATURES, 16, CLASSES, 2, 1, 0.0, 0.0, 0.0, 1, local_attn=True)
model._global = True
toml = 'name = "polynormer"\nhidden = 16\nlayers = 2\nglobal_layers = 1\nwarm_up = 0\nlocal = "gat"'
case("polynormer-gat", toml, model, lambda m, _: m(X, LOOPED, ONE_GRAPH), ("lin_in",))


class Linear2All(PerformerAttention):
    """Linear attention with queries and keys made positive by a sigmoid; the rest of GPSConv is PyTorch Geometric's."""

    def __init__(self, d, heads):
        Module.__init__(self)
        self.heads = heads
        self.q, self.k, self.v, self.attn_out = (Linear(d, d) for _ in range(4))

    def forward(self, x, mask=None):
        split = lambda t: t.view(N, self.heads, -1)
        q, k, v = split(self.q(x[0]).sigmoid()), split(self.k(x[0]).sigmoid()), split(self.v(x[0]))
        scores = torch.einsum("ihc,jhc->ijh", q, k)
        out = torch.einsum("ijh,jhc->ihc", scores, v) / (scores.sum(1)[..., None] + 1e-6)
        return self.attn_out(out.reshape(N, -1))[None]


class Gps(Module):
    def __init__(self, d, heads, layers, conv, norm):
        super().__init__()
        self.input, self.output = Linear(FEATURES, d), Linear(d, CLASSES)
        self.convs = ModuleList(GPSConv(d, conv(d), heads, attn_type="performer", **norm) for _ in range(layers))
        for layer in self.convs:
            layer.attn = Linear2All(d, heads)

    def forward(self, x, edge_index):
        x = self.input(x)
        for conv in self.convs:
            x = conv(x, edge_index, ONE_GRAPH)
        return self.output(x)


case("gps", 'name = "gps"\nhidden = 16\nlayers = 2\nheads = 4', Gps(16, 4, 2, lambda d: GCNConv(d, d), {}), lambda m, _: m(X, EDGE_INDEX))
gat = lambda d: GATConv(d, d // 2, 2)
NODE = dict(norm="layer_norm", norm_kwargs=dict(mode="node"))
case("gps-gat", 'name = "gps"\nhidden = 8\nlayers = 2\nheads = 2\nlocal = "gat"\nnorm = "layer"', Gps(8, 2, 2, gat, NODE), lambda m, _: m(X, EDGE_INDEX))


def philox(seed, stream, counter):
    """Philox4x32-10, four words."""
    low = 0xFFFFFFFF
    a, b, c, d = counter & low, counter >> 32, stream & low, stream >> 32
    k0, k1 = seed & low, seed >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k0, q & low, (p >> 32) ^ d ^ k1, p & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return a, b, c, d


def permutation(n, seed, stream):
    """The keyed permutation of crates/graph/src/random.rs, as a list."""
    bits = max((n - 1).bit_length(), FEWEST_BITS)
    mask, shift = (1 << bits) - 1, (bits + 1) // 2
    keys = []
    for r in range(ROUNDS):
        a, b, c, d = philox(seed, stream, r)
        keys.append(((a | b << 32) & mask, c | d << 32 | 1))
    out = []
    for x in range(n):
        while True:
            for key, odd in keys:
                x = ((x ^ key) * odd) & mask
                x ^= x >> shift
            if x < n:
                break
        out.append(x)
    return out


def expander(count, seed):
    """The graph's edges with kind 0, those of random permutations with kind 1."""
    added = set()
    for k in range(count):
        for i, j in enumerate(permutation(N, seed, 0xE9A9 + (k << 32))):
            added |= {(i, j), (j, i)} if i != j else set()
    both = [(j, i, 0) for j, i in EDGES] + [(j, i, 1) for j, i in added]
    return torch.tensor(sorted(both, key=lambda e: (e[1], e[0], e[2]))).T


class ExphormerLayer(Module):
    """Softmax over neighbours, with a term for the kind of edge, and tokens; tokens see all nodes."""

    def __init__(self, d, heads, kinds):
        super().__init__()
        self.heads = heads
        self.conv = Module()
        for name in ("query", "key", "value"):
            self.conv.add_module(f"lin_{name}", Linear(d, d))
        self.edge = Linear(kinds, heads, bias=False)
        self.o, self.ffn1, self.ffn2 = Linear(d, d), Linear(d, 2 * d), Linear(2 * d, d)
        self.norm1, self.norm2 = LayerNorm(d), LayerNorm(d)

    def after(self, x, z):
        x = self.norm1(x + self.o(z))
        return self.norm2(x + self.ffn2(F.gelu(self.ffn1(x))))

    def forward(self, x, tokens, edges, kinds):
        both = torch.cat([x, tokens])
        q, k, v = (lin(both).view(len(both), self.heads, -1) for lin in self.conv.children())
        t = torch.arange(N, N + len(tokens))
        node = torch.arange(N)
        src = torch.cat([edges[0], t.repeat(N), node.repeat(len(t))])
        dst = torch.cat([edges[1], node.repeat_interleave(len(t)), t.repeat_interleave(N)])
        score = (q[dst] * k[src]).sum(-1) / q.shape[-1] ** 0.5
        score = torch.cat([score[: len(kinds)] + self.edge(kinds), score[len(kinds) :]])
        alpha = softmax(score, dst, num_nodes=len(both))
        z = torch.zeros_like(v).index_add(0, dst, alpha[..., None] * v[src]).reshape(len(both), -1)
        both = self.after(both, z)
        return both[:N], both[N:]


class Exphormer(Module):
    def __init__(self, d, heads, layers, tokens):
        super().__init__()
        self.input, self.output = Linear(FEATURES, d), Linear(d, CLASSES)
        self.tokens = Parameter(torch.randn(tokens, d))
        self.layers = ModuleList(ExphormerLayer(d, heads, 2) for _ in range(layers))

    def forward(self, x, edges):
        x, tokens = self.input(x), self.tokens
        kinds = F.one_hot(edges[2], 2).to(x.dtype)
        for layer in self.layers:
            x, tokens = layer(x, tokens, edges[:2], kinds)
        return self.output(x)


AUGMENTED = expander(2, 0)
toml = 'name = "exphormer"\nhidden = 16\nlayers = 3\nheads = 4\nexpander_degree = 2\nvirtual_nodes = 3'
case("exphormer", toml, Exphormer(16, 4, 3, 3), lambda m, _: m(X, AUGMENTED))


# Last, so that the others draw the numbers that they drew before it was here.
class Appnp(Module):
    def __init__(self, d, steps, alpha):
        super().__init__()
        self.lins = ModuleList([Linear(FEATURES, d), Linear(d, CLASSES)])
        self.propagate = APPNP(steps, alpha)

    def forward(self, x, edge_index):
        return self.propagate(self.lins[1](self.lins[0](x).relu()), edge_index)


case("appnp", 'name = "appnp"\nhidden = 16\nsteps = 5\nalpha = 0.2', Appnp(16, 5, 0.2), lambda m, _: m(X, EDGE_INDEX))


class Sign(Module):
    def __init__(self, d, hops):
        super().__init__()
        self.lins = ModuleList(Linear(FEATURES, d) for _ in range(hops + 1))
        self.mlp = ModuleList([Linear((hops + 1) * d, d), Linear(d, CLASSES)])

    def forward(self, hops):
        x = torch.cat([lin(x).relu() for lin, x in zip(self.lins, hops)], dim=1)
        return self.mlp[1](self.mlp[0](x).relu())


GATHERED = SIGN(2)(Data(x=X, edge_index=EDGE_INDEX.contiguous()))
HOPS = [X, GATHERED.x1, GATHERED.x2]
case("sign", 'name = "sign"\nhidden = 8\nlayers = 3\nhops = 2', Sign(8, 2), lambda m, _: m(HOPS))


# Features of edges: three numbers and two categories, which PyTorch Geometric gets one-hot. What is above does not
# depend on what is drawn here.
torch.manual_seed(2)
CATEGORIES = (4, 2)


def edge_features():
    rng = np.random.default_rng(5)
    numbers = rng.standard_normal((len(EDGES), 3)).astype(np.float32).astype(np.float64)
    ids = np.stack([rng.integers(0, count, len(EDGES)) for count in CATEGORIES], 1)
    np.save(HERE / "graph" / "edge_feat.npy", np.concatenate([numbers, ids], 1))
    one_hot = [np.eye(count)[ids[:, k]] for k, count in enumerate(CATEGORIES)]
    return torch.tensor(np.concatenate([numbers, *one_hot], 1))


EDGE_FEATURES = edge_features()


class GtEdgesLayer(GtLayer):
    def __init__(self, d, heads, norm):
        super().__init__(d, heads, norm)
        self.conv = TransformerConv(d, d // heads, heads, root_weight=False, edge_dim=EDGE_FEATURES.shape[1])

    def forward(self, x, edge_index):
        x = self.norm1(x + self.o(self.conv(x, edge_index, EDGE_FEATURES)))
        return self.norm2(x + self.ffn2(F.gelu(self.ffn1(x))))


class GtEdges(Gt):
    def __init__(self, d, heads, layers, norm):
        super().__init__(d, heads, layers, norm)
        self.layers = ModuleList(GtEdgesLayer(d, heads, norm) for _ in range(layers))


case("gt-edges", 'name = "gt"\nhidden = 16\nlayers = 2\nheads = 4', GtEdges(16, 4, 2, LayerNorm), lambda m, _: m(X, EDGE_INDEX))


torch.manual_seed(2)  # These cases draw the same numbers without the others.
TYPES = 4
EDGE_TYPE = torch.tensor([(j + 2 * i) % TYPES for j, i in EDGES])  # As in tests/golden.rs.


class Rgcn(Module):
    """RGCNConv and ReLU; in the tuned stack after one linear layer and before another."""

    def __init__(self, hidden, layers, tuned, **kwargs):
        super().__init__()
        if tuned:
            self.lin_in = Linear(FEATURES, hidden)
            self.local_convs = ModuleList(RGCNConv(hidden, hidden, TYPES, **kwargs) for _ in range(layers))
            self.pred_local = Linear(hidden, CLASSES)
        else:
            widths = [FEATURES, *[hidden] * (layers - 1), CLASSES]
            self.convs = ModuleList(RGCNConv(i, o, TYPES, **kwargs) for i, o in zip(widths, widths[1:]))

    def forward(self, x):
        if hasattr(self, "convs"):
            for k, conv in enumerate(self.convs):
                x = conv(F.relu(x) if k else x, EDGE_INDEX, EDGE_TYPE)
            return x
        x = self.lin_in(x)
        for conv in self.local_convs:
            x = F.relu(conv(x, EDGE_INDEX, EDGE_TYPE))
        return self.pred_local(x)


def rgcn(name, toml, *args, **kwargs):
    case(name, 'name = "rgcn"\n' + toml, Rgcn(*args, **kwargs), lambda m, _: m(X))


PLAIN = 'stack = "plain"\ninput_linear = false\n'
rgcn("rgcn", PLAIN + "hidden = 16\nlayers = 3", 16, 3, False)
rgcn("rgcn-bases", PLAIN + "hidden = 8\nlayers = 2\nbases = 3", 8, 2, False, num_bases=3)
rgcn("rgcn-tuned", "hidden = 8\nlayers = 2\nbases = 2", 8, 2, True, num_bases=2)
rgcn("rgcn-blocks", "hidden = 12\nlayers = 2\nblocks = 3", 12, 2, True, num_blocks=3)
