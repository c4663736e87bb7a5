#!/usr/bin/env python3
"""Makes the golden values that tests/golden.rs compares with: inputs, outputs and gradients of PyTorch and PyTorch
Geometric in float64.

    python3 -m venv venv && venv/bin/pip install torch torch_geometric numpy
    venv/bin/python crates/tensor/tests/golden/make.py

A folder per operation, a .npy file per array: x (and z, weight, ...) are inputs, g the gradient that comes in, y the output, d<name>
the gradient of an input. Running it again writes the same numbers.
"""
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GATv2Conv, SimpleConv, TransformerConv
from torch_geometric.nn.attention import SGFormerAttention
from torch_geometric.utils import softmax

torch.set_default_dtype(torch.float64)
HERE = Path(__file__).parent
GENERATOR = torch.Generator()


def numbers(*shape, scale=1.0):
    return scale * torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def save(op, **arrays):
    folder = HERE / op
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        array = array.detach().numpy() if torch.is_tensor(array) else np.asarray(array)
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array))


def golden(op, f, constants=None, **inputs):
    """Saves what f(**inputs, **constants) gives for a random gradient of its output."""
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    y = f(**leaves, **(constants or {}))
    if y.dim() == 0:
        y = y.reshape(1, 1)
    g = numbers(*y.shape)
    y.backward(g)
    gradients = {f"d{name}": x.grad for name, x in leaves.items()}
    save(op, **inputs, **(constants or {}), g=g, y=y, **gradients)


def activations():
    x = numbers(9, 21, scale=3.0)
    golden("gelu", lambda x: F.gelu(x), x=x)
    golden("relu", lambda x: F.relu(x), x=x)
    golden("leaky_relu", lambda x: F.leaky_relu(x, 0.2), x=x)
    golden("elu", lambda x: F.elu(x), x=x)


def linear():
    golden(
        "linear_gelu",
        lambda x, weight, bias: F.gelu(F.linear(x, weight, bias)),
        x=numbers(9, 7),
        weight=numbers(5, 7),
        bias=numbers(1, 5),
    )


def norms():
    d = 19
    weight, bias = numbers(1, d), numbers(1, d)
    golden(
        "layer_norm",
        lambda x, weight, bias: F.layer_norm(x, (d,), weight[0], bias[0]),
        x=numbers(7, d, scale=3.0) + 1.0,
        weight=weight,
        bias=bias,
    )
    golden(
        "post_norm",
        lambda x, z, weight, bias: F.layer_norm(x + z, (d,), weight[0], bias[0]),
        x=numbers(7, d),
        z=numbers(7, d),
        weight=weight,
        bias=bias,
    )
    running = {"mean": torch.zeros(d, dtype=torch.float64), "variance": torch.ones(d, dtype=torch.float64)}
    golden(
        "batch_norm",
        lambda x, weight, bias: F.batch_norm(
            x, running["mean"], running["variance"], weight[0], bias[0], training=True, momentum=1.0
        ),
        x=numbers(11, d, scale=2.0) - 1.0,
        weight=weight,
        bias=bias,
    )
    # With momentum 1 the running moments are those of the batch, the variance with n - 1.
    save("batch_norm", running_mean=running["mean"], running_variance=running["variance"])
    golden("l2_norm", lambda x: F.normalize(x), x=numbers(8, 13))


def losses():
    rows = np.array([0, 1, 3, 4, 6, 9], dtype=np.int64)
    weights = np.array([1.0, 0.5, 2.0, 1.5, 1.0, 0.25], dtype=np.float32)
    labels = np.array([3, -1, 0, 4, 1, 2, 0, 1, 1, 4], dtype=np.int64)
    w = torch.from_numpy(weights).double()

    def softmax(x):
        each = F.cross_entropy(x[rows], torch.from_numpy(labels[rows]), ignore_index=-1, label_smoothing=0.1, reduction="none")
        return (w * each).sum() / 4.5

    golden("cross_entropy", softmax, x=numbers(10, 5, scale=4.0))
    save("cross_entropy", rows=rows, weights=weights, labels=labels)

    targets = (numbers(10, 6) > 0).double()
    targets[2, 3], targets[3, 1], targets[9, 5], targets[0, 0] = -1.0, float("nan"), float("nan"), -1.0
    known = targets >= 0

    def binary(x):
        each = F.binary_cross_entropy_with_logits(x, torch.where(known, targets, torch.zeros(())), reduction="none")
        each = torch.where(known, each, torch.zeros((), dtype=torch.float64))
        return (w[:, None] * each[rows]).sum() / 20.0

    golden("binary_cross_entropy", binary, x=numbers(10, 6, scale=4.0))
    save("binary_cross_entropy", rows=rows, weights=weights, targets=targets)


def squared_errors():
    rows = np.array([0, 2, 3, 5, 8], dtype=np.int64)
    weights = np.array([1.0, 0.5, 2.0, 1.5, 0.25], dtype=np.float32)
    w = torch.from_numpy(weights).double()
    targets = numbers(9, 3, scale=4.0)
    targets[2, 1], targets[5, 0], targets[4, 2] = float("nan"), float("nan"), float("nan")
    known = ~targets.isnan()

    def squared(x):
        each = F.mse_loss(x, torch.where(known, targets, x.detach()), reduction="none")
        return (w[:, None] * each[rows]).sum() / 15.0

    golden("mean_squared_error", squared, x=numbers(9, 3, scale=4.0))
    save("mean_squared_error", rows=rows, weights=weights, targets=targets)


def rows():
    index = torch.tensor([4, 0, 4, 2, 4, 1, 0])
    golden("gather", lambda x: x.index_select(0, index), x=numbers(6, 5))
    golden("scatter", lambda x: torch.zeros(6, 5, dtype=torch.float64).index_add(0, index, x), x=numbers(7, 5))
    save("gather", index=index)
    save("scatter", index=index)


def combinations():
    golden("combine", lambda x, z: 0.7 * x - 1.3 * z, x=numbers(5, 4), z=numbers(5, 4))
    golden("concat", lambda x, z: torch.cat([x, z], 1)[:, 2:6], x=numbers(5, 4), z=numbers(5, 3))


def optimizers():
    """Ten steps with given gradients, clipped to length 2."""
    start = [numbers(4, 3), numbers(1, 5)]
    gradients = [[numbers(*p.shape) for p in start] for _ in range(10)]
    makers = {
        "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1),
        "adam_w": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    }
    for name, make in makers.items():
        parameters = [p.clone().requires_grad_() for p in start]
        optimizer = make(parameters)
        for step in gradients:
            for p, g in zip(parameters, step):
                p.grad = g.clone()
            torch.nn.utils.clip_grad_norm_(parameters, 2.0)
            optimizer.step()
        save(f"optim_{name}", a=start[0], b=start[1], a_end=parameters[0], b_end=parameters[1])
        save(f"optim_{name}", a_gradients=torch.stack([g[0] for g in gradients]), b_gradients=torch.stack([g[1] for g in gradients]))


# Graph operations. Node 0 is isolated, 1 has edges out only, 2 edges in only; 5 hears everyone that speaks, most of
# them twice, and 7 speaks to everyone that hears; there are self-loops, parallel edges and some ordinary edges.
NODES, HEADS, WIDTH = 23, 2, 16
SPEAK, HEAR = [1, *range(3, NODES)], list(range(2, NODES))
EDGES = [(j, 5) for j in SPEAK] + [(j, 5) for j in SPEAK[3:]] + [(7, i) for i in HEAR]
EDGES += [(j, j) for j in (3, 5, 9, 9)] + [(4, 6), (4, 6), (4, 6), (12, 11), (12, 11)]
EDGES += [(3 + 7 * k % 20, 3 + 11 * k % 19) for k in range(1, 40)]
EDGES.sort(key=lambda edge: edge[::-1])  # by destination, then by source: the order of a CSR
SOURCE, TARGET = INDEX = torch.tensor(EDGES).t()


def heads(x):
    return x.view(len(x), HEADS, -1)


def graph():
    degree = torch.bincount(TARGET, minlength=NODES)
    save("graph", indptr=torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)]), indices=SOURCE)


def attention():
    """Attention by TransformerConv's messages. It has no term in the scores: with one, by the same softmax."""
    d = HEADS * WIDTH
    conv = TransformerConv(1, WIDTH, HEADS, root_weight=False)

    def plain(q, kv):
        query, key, value = heads(q), heads(kv[:, :d]), heads(kv[:, d:])
        return conv.propagate(INDEX, query=query, key=key, value=value, edge_attr=None).flatten(1)

    def biased(q, kv, bias):
        query, key, value = heads(q), heads(kv[:, :d]), heads(kv[:, d:])
        score = (query[TARGET] * key[SOURCE]).sum(2) / WIDTH**0.5 + bias
        alpha = softmax(score, TARGET, num_nodes=NODES)
        out = torch.zeros(NODES, HEADS, WIDTH, dtype=torch.float64)
        return out.index_add(0, TARGET, alpha[:, :, None] * value[SOURCE]).flatten(1)

    q, kv = numbers(NODES, d), numbers(NODES, 2 * d)
    golden("attention", plain, q=q, kv=kv)
    golden("attention_bias", biased, q=q, kv=kv, bias=numbers(len(EDGES), HEADS))
    feat = numbers(len(EDGES), 3)
    golden("attention_features", lambda q, kv, weight: biased(q, kv, feat @ weight.t()), q=q, kv=kv, weight=numbers(HEADS, 3))
    save("attention_features", feat=feat)


def gat():
    d = HEADS * WIDTH
    conv = GATConv(1, WIDTH, HEADS)

    def by_sums(l, r, z):
        alpha = conv.edge_updater(INDEX, alpha=(r, l), edge_attr=None, size=None)
        return conv.propagate(INDEX, x=(heads(z), heads(z)), alpha=alpha, size=None).flatten(1)

    golden("gat", by_sums, l=numbers(NODES, HEADS), r=numbers(NODES, HEADS), z=numbers(NODES, d))
    conv2 = GATv2Conv(1, WIDTH, HEADS)
    del conv2.att

    def by_rows(l, r, a):
        conv2.att = a[None]
        x = heads(r), heads(l)
        alpha = conv2.edge_updater(INDEX, x=x, edge_attr=None)
        return conv2.propagate(INDEX, x=x, alpha=alpha).flatten(1)

    golden("gatv2", by_rows, l=numbers(NODES, d), r=numbers(NODES, d), a=numbers(HEADS, WIDTH))


def spmm():
    x, weight = numbers(NODES, 21), numbers(len(EDGES), 1)
    for name in ("sum", "mean", "max"):
        golden(f"spmm_{name}", lambda x: SimpleConv(name)(x, INDEX), x=x)
    for name in ("sum", "mean"):
        golden(f"spmm_{name}_weights", lambda x, weight: SimpleConv(name)(x, INDEX, weight), x=x, weight=weight)
    target, source = numbers(NODES, 1), numbers(NODES, 1)
    factors = target[TARGET] * source[SOURCE]
    golden("spmm_sum_factors", lambda x: SimpleConv("sum")(x, INDEX, factors), x=x)
    save("spmm_sum_factors", dst=target, src=source)


def bag():
    """Sparse features as an EmbeddingBag: a bag per row, an embedding per column of the weight."""
    indptr = torch.tensor([0, 3, 3, 4, 9, 11])
    indices = torch.tensor([0, 4, 8, 2, 0, 1, 4, 6, 8, 4, 4])
    data = numbers(len(indices)).float()

    def sums(weight, bias):
        return F.embedding_bag(indices, weight.t(), indptr[:-1], mode="sum", per_sample_weights=data.double()) + bias

    golden("bag", sums, weight=numbers(19, 9), bias=numbers(1, 19))
    save("bag", indptr=indptr, indices=indices, data=data)


def global_attention():
    """Linear attention: plain, as SGFormer's authors have it, and as PyTorch Geometric's SGFormer has it."""
    d = HEADS * WIDTH

    def linear(q, k, v, own):
        s, z = torch.einsum("jhm,jhd->hmd", k, v), k.sum(0)
        above = own * v + torch.einsum("ihm,hmd->ihd", q, s)
        below = own + torch.einsum("ihm,hm->ih", q, z)
        return (above / below[:, :, None]).flatten(1)

    q, k, v = numbers(NODES, d), numbers(NODES, d), numbers(NODES, d)
    golden("global", lambda q, k, v: linear(heads(q), heads(k), heads(v), 0.0), q=q.sigmoid(), k=k.sigmoid(), v=v)
    golden("global_sgformer", lambda q, k, v: linear(heads(q / q.norm()), heads(k / k.norm()), heads(v), NODES), q=q, k=k, v=v)

    module = SGFormerAttention(7, 1, WIDTH)

    def by_module(x, q, k, v):
        weights = {"q.weight": q, "k.weight": k, "v.weight": v}
        return torch.func.functional_call(module, weights, (x[None],))[0]

    q, k, v = numbers(WIDTH, 7), numbers(WIDTH, 7), numbers(WIDTH, 7)
    golden("global_sgformer_module", by_module, x=numbers(NODES, 7), q=q, k=k, v=v)


PLAIN = [activations, linear, norms, losses, squared_errors, rows, combinations, optimizers]
for make in [*PLAIN, graph, attention, gat, spmm, bag, global_attention]:
    # Each on its own seed: adding one does not change the others.
    GENERATOR.manual_seed(sum(map(ord, make.__name__)))
    make()
