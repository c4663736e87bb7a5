#!/usr/bin/env python3
"""Epochs of GIN on molecules beside PyTorch Geometric: speed.py --program GRAPHWEFT --data DIR [--threads T] [--batches 32 256] [--bonds]

DIR is ogbg-molhiv as a dataset folder (`graphweft import ogb ogbg-molhiv --symmetrise`). Both learn from its training graphs with GIN of
five layers, 300 wide, as in OGB's example, without features of bonds unless `--bonds` asks for them: categories of atoms (and in every
layer of bonds, before a ReLU: GINE) are looked up and added, batch norm in and after every convolution, dropout 0.5, the mean of the
nodes, one linear layer, Adam. An epoch is all batches with their loading; scores are not counted. Both run with the same threads and, where LD_PRELOAD names it, the same allocator (tcmalloc). The median of the epochs
after the first. Run it where torch and torch_geometric are installed and nothing else runs.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

EPOCHS = 4
SETTINGS = (
    "model.stack=tuned model.input_linear=true model.norm=batch model.readout=mean model.hidden=300 model.layers=5 "
    f"train.optimizer=adam train.lr=1e-3 train.dropout=0.5 train.metric=roc-auc train.epochs={EPOCHS} train.evaluate_every={EPOCHS}"
).split()


def ours(args, batch):
    """Seconds of epochs of the program."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [args.program, "train", "--data", args.data, "--model", "gin", *SETTINGS, f"train.batch={batch}",
                   f"model.edges={'use' if args.bonds else 'ignore'}",
                   "--threads", str(args.threads), "--device", args.device, "-o", run]
        subprocess.run(command, check=True, capture_output=True)
        lines = [json.loads(line) for line in (run / "times.jsonl").read_text().splitlines()]
    return [line["learn_ms"] / 1e3 for line in lines]


def theirs(args, batch):
    """Seconds of epochs of PyTorch Geometric."""
    import torch
    import torch.nn.functional as F
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import BatchNorm, GINConv, GINEConv, global_mean_pool

    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    load = lambda name: np.load(args.data / f"{name}.npy")
    cat, ptr, indptr, indices = load("cat").astype(np.int64), load("graph_ptr"), load("indptr"), load("indices").astype(np.int64)
    label = np.nan_to_num(load("graph_label").astype(np.float32).reshape(len(ptr) - 1, -1)[:, 0], nan=0.0)
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr.astype(np.int64)))
    edges = np.stack([indices, target])
    bonds = load("edge_cat").astype(np.int64) if args.bonds else np.zeros((len(indices), 0), np.int64)
    (split,) = sorted((args.data / "split").iterdir())
    graphs = []
    for g in np.load(split / "train.npy"):
        first, end = int(ptr[g]), int(ptr[g + 1])
        own = slice(int(indptr[first]), int(indptr[end]))
        of_edges = dict(edge_index=torch.tensor(edges[:, own] - first), edge_attr=torch.tensor(bonds[own]))
        graphs.append(Data(x=torch.tensor(cat[first:end]), y=torch.tensor([label[g]]), **of_edges))

    class Gin(torch.nn.Module):
        def __init__(self, width, layers):
            super().__init__()
            linear, norm, relu = torch.nn.Linear, torch.nn.BatchNorm1d, torch.nn.ReLU
            tables = lambda of: torch.nn.ModuleList(torch.nn.Embedding(int(size) + 1, width) for size in of.max(0, initial=0))
            self.atoms, self.bonds = tables(cat), torch.nn.ModuleList(tables(bonds) for _ in range(layers))
            mlp = lambda: torch.nn.Sequential(linear(width, width), norm(width), relu(), linear(width, width))
            self.convs = torch.nn.ModuleList((GINEConv if args.bonds else GINConv)(mlp()) for _ in range(layers))
            self.norms = torch.nn.ModuleList(BatchNorm(width) for _ in range(layers))
            self.out = linear(width, 1)

        def forward(self, data):
            x = sum(table(data.x[:, k]) for k, table in enumerate(self.atoms))
            x = F.dropout(x, 0.5, self.training)
            for conv, norm, bonds in zip(self.convs, self.norms, self.bonds):
                of_edges = [sum(table(data.edge_attr[:, k]) for k, table in enumerate(bonds))] if args.bonds else []
                x = F.dropout(F.relu(norm(conv(x, data.edge_index, *of_edges))), 0.5, self.training)
            return self.out(global_mean_pool(x, data.batch))

    model = Gin(300, 5).to(device)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(graphs, batch_size=batch, shuffle=True, num_workers=args.workers)
    seconds = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for data in loader:
            data = data.to(device)
            adam.zero_grad()
            F.binary_cross_entropy_with_logits(model(data)[:, 0], data.y).backward()
            adam.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="graphweft")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="processes that load for PyTorch Geometric")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bonds", action="store_true", help="with categories of bonds, where DIR has edge_cat.npy")
    parser.add_argument("--batches", type=int, nargs="*", default=[32, 256])
    args = parser.parse_args()
    print("| graphs in a batch | ours, s per epoch | PyTorch Geometric, s per epoch | times faster |\n|---|---|---|---|")
    for batch in args.batches:
        a, b = (median(seconds(args, batch)[1:]) for seconds in (ours, theirs))
        print(f"| {batch} | {a:.2f} | {b:.2f} | {b / a:.2f} |", flush=True)


if __name__ == "__main__":
    main()
