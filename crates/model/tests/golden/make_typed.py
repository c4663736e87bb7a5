"""Ten training steps of models that tell types of nodes and edges apart, by PyTorch Geometric, for tests/golden.rs.

Run after make.py, whose graph they share: python make_typed.py. Eleven nodes that follow one another are of one type.
Writes the same files per case as make.py; maps of types and relations are stored one below the other, [out, in] each.
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch.nn import Embedding, LayerNorm, Linear, Module, ModuleList, Parameter
from torch_geometric.nn import HeteroLinear, HGTConv, TransformerConv
from torch_geometric.utils import softmax

HERE = pathlib.Path(__file__).parent
STEPS, LR, DECAY, CLASSES, TYPES = 10, 0.01, 5e-4, 5, 4
torch.set_default_dtype(torch.float64)
torch.manual_seed(3)
load = lambda name: np.load(HERE / "graph" / f"{name}.npy")
X, LABEL, TRAIN = (torch.tensor(load(name)) for name in ["feat", "label", "train"])
N, FEATURES = X.shape
ptr, indices = load("indptr").astype(np.int64), load("indices").astype(np.int64)
EDGES = torch.tensor(np.stack([indices, np.repeat(np.arange(N), np.diff(ptr))]))
NODE_TYPE = torch.arange(N) // 11
FIRST = [11 * t for t in range(TYPES)]
COUNTS = [int((NODE_TYPE == t).sum()) for t in range(TYPES)]
# A relation is a pair of types that edges lead between.
ENDS = sorted({(int(NODE_TYPE[j]), int(NODE_TYPE[i])) for j, i in EDGES.T})
RELATION = torch.tensor([ENDS.index((int(NODE_TYPE[j]), int(NODE_TYPE[i]))) for j, i in EDGES.T])
EDGE_TYPE = (EDGES[0] + 2 * EDGES[1]) % TYPES  # As in make.py.


def case(name, toml, model):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "model.toml").write_text(toml.strip() + "\n")
    write = lambda file: save_file({k: v.detach().numpy().copy() for k, v in model.stored().items()}, folder / file)
    model.train()
    with torch.no_grad():  # Biases, scales and priors that do something.
        for key, p in model.named_parameters():
            if p.dim() == 1 or "p_rel" in key or "bias" in key:
                p += 0.1 * torch.randn_like(p)
    write("initial.safetensors")
    adam = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=DECAY)
    losses = []
    for _ in range(STEPS):
        adam.zero_grad()
        loss = F.cross_entropy(model()[TRAIN], LABEL[TRAIN])
        loss.backward()
        adam.step()
        losses.append(loss.item())
    np.save(folder / "losses.npy", np.array(losses))
    write("final.safetensors")
    print(name, losses[0], losses[-1])


def linear(name, module):
    return {f"{name}.weight": module.weight, f"{name}.bias": module.bias}


def by_type(name, module):
    """Of a HeteroLinear, which stores [in, out]."""
    found = {f"{name}.weight": module.weight.transpose(1, 2)}
    return found if module.bias is None else found | {f"{name}.bias": module.bias}


class Hgt(Module):
    def __init__(self, d, heads, layers, norm=False):
        super().__init__()
        names = [f"t{t}" for t in range(TYPES)]
        self.relations = [(names[s], "to", names[t]) for s, t in ENDS]
        self.input, self.output = Linear(FEATURES, d), Linear(d, CLASSES)
        self.convs = ModuleList(HGTConv(d, d, (names, self.relations), heads) for _ in range(layers))
        self.norms = ModuleList(LayerNorm(d) for _ in range(layers)) if norm else None
        self.edges = {}
        for r, (s, t) in enumerate(ENDS):
            self.edges[self.relations[r]] = EDGES[:, RELATION == r] - torch.tensor([[FIRST[s]], [FIRST[t]]])

    def forward(self):
        x = self.input(X).relu()
        for k, conv in enumerate(self.convs):
            parts = conv({f"t{t}": part for t, part in enumerate(x.split(COUNTS))}, self.edges)
            x = torch.cat([parts[f"t{t}"] for t in range(TYPES)])
            x = self.norms[k](x) if self.norms else x
        return self.output(x)

    def stored(self):
        all = linear("input", self.input) | linear("output", self.output)
        for k, conv in enumerate(self.convs):
            name, heads = f"convs.{k}", conv.heads
            three = [conv.kqv_lin.lins[f"t{t}"] for t in range(TYPES)]
            for at, part in enumerate(["k_lin", "q_lin", "v_lin"]):
                for what in ["weight", "bias"]:
                    all[f"{name}.{part}.{what}"] = torch.stack([getattr(m, what).chunk(3)[at] for m in three])
            for what in ["weight", "bias"]:
                all[f"{name}.out_lin.{what}"] = torch.stack(
                    [getattr(conv.out_lin.lins[f"t{t}"], what) for t in range(TYPES)]
                )
            for part in ["k_rel", "v_rel"]:
                weight = getattr(conv, part).weight
                by_head = weight.view(heads, len(ENDS), *weight.shape[1:]).transpose(0, 1)
                all[f"{name}.{part}.weight"] = by_head.transpose(2, 3)
            all[f"{name}.p_rel"] = torch.cat([conv.p_rel["__".join(r)] for r in self.relations])
            all[f"{name}.skip"] = torch.cat([conv.skip[f"t{t}"] for t in range(TYPES)])
            if self.norms:
                all |= linear(f"norms.{k}", self.norms[k])
        return all


case("hgt", 'name = "hgt"\nhidden = 16\nlayers = 2\nheads = 4', Hgt(16, 4, 2))
case("hgt-norm", 'name = "hgt"\nhidden = 12\nlayers = 3\nheads = 2\nnorm = "layer"', Hgt(12, 2, 3, norm=True))


class GtLayer(Module):
    """TransformerConv with a linear map for each type of nodes in place of each of its own."""

    def __init__(self, d, heads):
        super().__init__()
        self.conv = TransformerConv(d, d // heads, heads, root_weight=False)
        self.o = HeteroLinear(d, d, TYPES)
        for part in ["lin_query", "lin_key", "lin_value"]:
            setattr(self.conv, part, OfTypes(d))
        self.ffn1, self.ffn2 = Linear(d, 2 * d), Linear(2 * d, d)
        self.norm1, self.norm2 = LayerNorm(d), LayerNorm(d)

    def forward(self, x):
        x = self.norm1(x + self.o(self.conv(x, EDGES), NODE_TYPE))
        return self.norm2(x + self.ffn2(F.gelu(self.ffn1(x))))


class OfTypes(Module):
    def __init__(self, d):
        super().__init__()
        self.lin = HeteroLinear(d, d, TYPES)

    def forward(self, x):
        return self.lin(x, NODE_TYPE)


class Gt(Module):
    def __init__(self, d, heads, layers):
        super().__init__()
        self.input, self.output = Linear(FEATURES, d), Linear(d, CLASSES)
        self.layers = ModuleList(GtLayer(d, heads) for _ in range(layers))

    def forward(self):
        x = self.input(X)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)

    def stored(self):
        all = linear("input", self.input) | linear("output", self.output)
        for k, layer in enumerate(self.layers):
            for part in ["lin_query", "lin_key", "lin_value"]:
                all |= by_type(f"layers.{k}.conv.{part}", getattr(layer.conv, part).lin)
            all |= by_type(f"layers.{k}.o", layer.o)
            for part in ["ffn1", "ffn2", "norm1", "norm2"]:
                all |= linear(f"layers.{k}.{part}", getattr(layer, part))
        return all


case("gt-types", 'name = "gt"\nhidden = 16\nlayers = 2\nheads = 4', Gt(16, 4, 2))


class SimpleHgnConv(Module):
    """GATConv with embeddings of relations in its scores and a residual on its attention, which is not learned through."""

    def __init__(self, inputs, outputs, heads, width, residual):
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.lin = Linear(inputs, heads * outputs, bias=False)
        self.att_src, self.att_dst = (Parameter(torch.randn(1, heads, outputs) / 2) for _ in range(2))
        self.edge_emb, self.lin_edge = Embedding(TYPES, width), Linear(width, heads * width, bias=False)
        self.att_edge = Parameter(torch.randn(1, heads, width) / 2)
        self.res = Linear(inputs, heads * outputs, bias=False) if residual else None

    def forward(self, x, before, beta):
        z = self.lin(x).view(N, self.heads, self.outputs)
        e = self.lin_edge(self.edge_emb.weight).view(TYPES, self.heads, -1)
        terms = [(z * self.att_src).sum(-1)[EDGES[0]], (z * self.att_dst).sum(-1)[EDGES[1]], (e * self.att_edge).sum(-1)[EDGE_TYPE]]
        alpha = softmax(F.leaky_relu(sum(terms), 0.05), EDGES[1], num_nodes=N)
        if before is not None:
            alpha = (1 - beta) * alpha + beta * before
        rows = torch.zeros_like(z).index_add(0, EDGES[1], alpha[:, :, None] * z[EDGES[0]])
        rows = rows.reshape(N, -1)
        return rows if self.res is None else rows + self.res(x), alpha.detach()


class SimpleHgn(Module):
    def __init__(self, d, heads, layers, width, beta):
        super().__init__()
        self.input, self.beta = Linear(FEATURES, d), beta
        self.convs = ModuleList(SimpleHgnConv(d, d // heads, heads, width, k > 0) for k in range(layers))
        self.output = SimpleHgnConv(d, CLASSES, 1, width, True)

    def forward(self):
        x, alpha = self.input(X), None
        for conv in self.convs:
            x, alpha = conv(x, alpha, self.beta)
            x = F.elu(x)
        x, _ = self.output(x, None, self.beta)
        return x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def stored(self):
        return {k.replace("edge_emb.weight", "edge_emb"): v for k, v in self.state_dict().items()}


def simple_hgn(name, d, heads, layers, width, beta):
    toml = f'name = "simple-hgn"\nhidden = {d}\nlayers = {layers}\nheads = {heads}\nrelation_width = {width}\nbeta = {beta}'
    case(name, toml, SimpleHgn(d, heads, layers, width, beta))


simple_hgn("simple-hgn", 16, 4, 2, 6, 0.05)
simple_hgn("simple-hgn-3", 12, 2, 3, 5, 0.3)
