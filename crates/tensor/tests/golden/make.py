#!/usr/bin/env python3
"""Makes the golden values that tests/golden.rs compares with: inputs, outputs and gradients of PyTorch in float64.

    python3 -m venv venv && venv/bin/pip install torch numpy && venv/bin/python crates/tensor/tests/golden/make.py

A folder per operation, a .npy file per array: x (and z, weight, ...) are inputs, g the gradient that comes in, y the output, d<name>
the gradient of an input. Running it again writes the same numbers.
"""
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

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


for make in [activations, linear, norms, losses, rows, combinations, optimizers]:
    # Each on its own seed: adding one does not change the others.
    GENERATOR.manual_seed(sum(map(ord, make.__name__)))
    make()
