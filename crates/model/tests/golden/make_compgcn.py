"""Ten training steps of CompGCN by PyTorch, for tests/golden.rs: PyTorch Geometric has none.

Run: python make_compgcn.py   (needs torch, numpy, safetensors), after make.py, whose graph it reads. The edge j -> i has
type (j + 2i) mod 4; types 2 and 3 are the reverses.
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
TYPES, CLASSES, STEPS, LR, DECAY = 4, 5, 10, 0.01, 5e-4
torch.set_default_dtype(torch.float64)
torch.manual_seed(11)

load = lambda name: np.load(HERE / "graph" / f"{name}.npy")
X, LABEL, TRAIN = torch.tensor(load("feat")), torch.tensor(load("label")), torch.tensor(load("train"))
INDPTR = load("indptr").astype(np.int64)
N = len(INDPTR) - 1
SOURCE = torch.tensor(load("indices").astype(np.int64))
TARGET = torch.tensor(np.repeat(np.arange(N), np.diff(INDPTR)))
TYPE = (SOURCE + 2 * TARGET) % TYPES
BACK = TYPE >= TYPES // 2


def weights():
    """1/sqrt(d_i d_j) by direction; c is stored in f32, as ours is."""
    found = torch.zeros(len(SOURCE))
    for direction in (False, True):
        of = BACK == direction
        into = torch.bincount(TARGET[of], minlength=N).double()
        out = torch.bincount(SOURCE[of], minlength=N).double()
        found[of] = 1 / (into[TARGET[of]] * out[SOURCE[of]]).sqrt().float().double()
    return found


WEIGHT = weights()


def conv(x, r, p, name):
    messages = WEIGHT[:, None] * (x[SOURCE] - r[TYPE])
    sums = []
    for direction in (False, True):
        of = BACK == direction
        total = torch.zeros(N, x.shape[1]).index_add(0, TARGET[of], messages[of])
        sums.append(total @ p[f"{name}.weight"][int(direction)])
    return (sums[0] + sums[1] + x @ p[f"{name}.loop"]) / 3 + p[f"{name}.bias"]


def forward(p, layers):
    x, r = X @ p["lin_in.weight"].T + p["lin_in.bias"], p["relations"]
    for k in range(layers):
        name = f"local_convs.{k}"
        r = r @ p[f"{name}.relation"] if k > 0 else r
        x = conv(x, r, p, name).relu()
    return x @ p["pred_local.weight"].T + p["pred_local.bias"]


def case(name, hidden, layers):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "model.toml").write_text(f'name = "compgcn"\nhidden = {hidden}\nlayers = {layers}\n')
    new = lambda *shape: torch.randn(*shape) / shape[-1] ** 0.5
    p = {"lin_in.weight": new(hidden, X.shape[1]), "lin_in.bias": new(hidden), "relations": new(TYPES, hidden)}
    for k in range(layers):
        p |= {f"local_convs.{k}.weight": new(2, hidden, hidden), f"local_convs.{k}.loop": new(hidden, hidden)}
        p |= {f"local_convs.{k}.bias": new(hidden)} | ({f"local_convs.{k}.relation": new(hidden, hidden)} if k else {})
    p |= {"pred_local.weight": new(CLASSES, hidden), "pred_local.bias": new(CLASSES)}
    save_file({key: value.numpy().copy() for key, value in p.items()}, folder / "initial.safetensors")
    for value in p.values():
        value.requires_grad_()
    adam = torch.optim.Adam(p.values(), lr=LR, weight_decay=DECAY)
    losses = []
    while len(losses) < STEPS:
        loss = F.cross_entropy(forward(p, layers)[TRAIN], LABEL[TRAIN])
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
    np.save(folder / "losses.npy", np.array(losses))
    save_file({key: value.detach().numpy().copy() for key, value in p.items()}, folder / "final.safetensors")


case("compgcn", 8, 1)
case("compgcn-deep", 6, 3)
