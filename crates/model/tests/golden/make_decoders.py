"""Ten training steps of every decoder and loss by PyTorch, for tests/golden.rs.

Run: python make_decoders.py   (needs torch, numpy, safetensors). Writes decoders/CASE.safetensors: initial and final
rows of nodes and parameters, and the losses. What is learned: twelve triples among nine nodes, with two pairs against
each where a loss takes some.
"""

import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent / "decoders"
NODES, COLUMNS, RELATIONS, STEPS, LR = 9, 6, 4, 10, 0.05
MARGIN, TEMPERATURE, SMOOTHING = 3.0, 0.7, 0.1
torch.set_default_dtype(torch.float64)
torch.manual_seed(5)

TRIPLES = [(k % NODES, k * 5 % RELATIONS, (k * k + 3) % NODES) for k in range(12)]
# Two pairs against each triple: the tail is another, then the head is.
AGAINST = [(h, r, (t + 4) % NODES) if way == 0 else ((h + 2) % NODES, r, t) for h, r, t in TRIPLES for way in (0, 1)]


def complex_product(x, r, sign):
    half = x.shape[1] // 2
    (a, b), (c, d) = (x[:, :half], x[:, half:]), (r[:, :half], sign * r[:, half:])
    return torch.cat([a * c - b * d, b * c + a * d], 1)


def query(decoder, x, parameters, r, sign):
    rows = parameters["decoder.relations"][r] if "decoder.relations" in parameters else None
    if decoder == "distmult":
        return x * rows
    if decoder == "complex":
        return complex_product(x, rows, sign)
    if decoder == "transe":
        return x + sign * rows
    if decoder == "rotate":
        return complex_product(x, torch.cat([rows.cos(), rows.sin()], 1), sign)
    return x


def pairs(decoder, q, y, parameters):
    if decoder in ("transe", "rotate"):
        return MARGIN - ((q - y) ** 2).sum(1).add(1e-12).sqrt()
    if decoder != "mlp":
        return (q * y).sum(1)
    z = q * y
    for k in range(3):
        z = z @ parameters[f"decoder.lins.{k}.weight"].T + parameters[f"decoder.lins.{k}.bias"]
        z = z.relu() if k < 2 else z
    return z[:, 0]


def columns(triples):
    return [list(column) for column in zip(*triples)]


def loss(decoder, name, x, parameters):
    h, r, t = columns(TRIPLES)
    score = lambda h, r, t: pairs(decoder, query(decoder, x[h], parameters, r, 1), x[t], parameters)
    positive = score(h, r, t)
    if name in ("logistic", "adversarial"):
        # Of the pairs against a triple, the second misses its head: so the query is of the tail.
        h2, r2, t2 = columns(AGAINST)
        tails = score(h2[::2], r2[::2], t2[::2])
        heads = pairs(decoder, query(decoder, x[t2[1::2]], parameters, r2[1::2], -1), x[h2[1::2]], parameters)
        negative = torch.stack([tails, heads], 1)
        weights = (TEMPERATURE * negative.detach()).softmax(1) if name == "adversarial" else torch.full_like(negative, 0.5)
        return (F.softplus(-positive).sum() + (weights * F.softplus(negative)).sum()) / len(TRIPLES)
    tails = query(decoder, x[h], parameters, r, 1) @ x.T
    heads = query(decoder, x[t], parameters, r, -1) @ x.T
    if name == "one":
        return (F.cross_entropy(tails, torch.tensor(t), reduction="sum") + F.cross_entropy(heads, torch.tensor(h), reduction="sum")) / 24
    targets = (1 - SMOOTHING) * F.one_hot(torch.tensor(t), NODES).double() + 1 / NODES
    return F.binary_cross_entropy_with_logits(tails, targets)


def case(decoder, name):
    parameters = {"rows": torch.randn(NODES, COLUMNS)}
    if decoder == "rotate":
        parameters["decoder.relations"] = (2 * torch.rand(RELATIONS, COLUMNS // 2) - 1) * math.pi
    elif decoder not in ("dot", "mlp"):
        parameters["decoder.relations"] = torch.randn(RELATIONS, COLUMNS)
    if decoder == "mlp":
        for k, (inputs, outputs) in enumerate([(COLUMNS, 5), (5, 5), (5, 1)]):
            parameters[f"decoder.lins.{k}.weight"] = torch.randn(outputs, inputs) / 2
            parameters[f"decoder.lins.{k}.bias"] = torch.randn(outputs) / 2
    arrays = {f"initial.{key}": p.numpy().copy() for key, p in parameters.items()}
    for p in parameters.values():
        p.requires_grad_()
    adam = torch.optim.Adam(parameters.values(), lr=LR)
    losses = []
    for _ in range(STEPS):
        adam.zero_grad()
        value = loss(decoder, name, parameters["rows"], parameters)
        value.backward()
        adam.step()
        losses.append(value.item())
    arrays |= {f"final.{key}": p.detach().numpy().copy() for key, p in parameters.items()}
    save_file(arrays | {"losses": np.array(losses)}, HERE / f"{decoder}-{name}.safetensors")


HERE.mkdir(exist_ok=True)
for decoder in ("dot", "mlp", "distmult", "complex", "transe", "rotate"):
    losses = ("logistic", "adversarial") + (("one", "some") if decoder in ("dot", "distmult", "complex") else ())
    for name in losses:
        case(decoder, name)
