#!/usr/bin/env python3
"""What PyTorch Geometric itself gets where our score misses the published one: pyg.py --data DIR [--device cuda] [--seeds K] [--epochs E]

Chameleon-filtered, GCN of 5 × 512 on raw features, the settings of the row in run.py: symmetrised with self-loops, Adam, test at the
best validation. Prints a line per split and the mean over the ten.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

HIDDEN, LAYERS, DROPOUT = 512, 5, 0.2


class Network(torch.nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        widths = [inputs] + [HIDDEN] * LAYERS
        self.convs = torch.nn.ModuleList(GCNConv(a, b) for a, b in zip(widths, widths[1:]))
        self.out = torch.nn.Linear(HIDDEN, classes)

    def forward(self, x, edges):
        for conv in self.convs:
            x = F.dropout(F.relu(conv(x, edges)), DROPOUT, self.training)
        return self.out(x)


def edges_of(folder):
    """Both directions of every edge once, without self-loops: GCNConv adds these."""
    starts, sources = (np.load(folder / f"{name}.npy").astype(np.int64) for name in ("indptr", "indices"))
    targets = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    both = np.stack([np.concatenate([sources, targets]), np.concatenate([targets, sources])])
    return torch.tensor(np.unique(both[:, both[0] != both[1]], axis=1))


def features_of(folder, nodes):
    if (folder / "feat.npy").exists():
        return torch.tensor(np.load(folder / "feat.npy").astype(np.float32))
    starts, columns = (np.load(folder / f"feat_{name}.npy").astype(np.int64) for name in ("indptr", "indices"))
    values = np.load(folder / "feat_data.npy") if (folder / "feat_data.npy").exists() else np.ones(len(columns))
    rows = np.repeat(np.arange(nodes), np.diff(starts))
    x = np.zeros((nodes, columns.max() + 1), np.float32)
    x[rows, columns] = values
    return torch.tensor(x)


def best(network, graph, parts, epochs):
    x, edges, labels = graph
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005, weight_decay=1e-3)
    found = (-1.0, 0.0)
    for _ in range(epochs):
        network.train()
        optimizer.zero_grad()
        F.cross_entropy(network(x, edges)[parts["train"]], labels[parts["train"]]).backward()
        optimizer.step()
        network.eval()
        with torch.no_grad():
            right = (network(x, edges).argmax(1) == labels).float()
        valid, test = (right[parts[part]].mean().item() for part in ("valid", "test"))
        if valid > found[0]:
            found = (valid, test)
    return 100 * found[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    folder = args.data / "chameleon-filtered"
    labels = torch.tensor(np.load(folder / "label.npy").astype(np.int64))
    graph = [t.to(args.device) for t in (features_of(folder, len(labels)), edges_of(folder), labels)]
    means = []
    for split in range(10):
        load = lambda part: torch.tensor(np.load(folder / f"split/public-{split}/{part}.npy").astype(np.int64)).to(args.device)
        parts = {part: load(part) for part in ("train", "valid", "test")}
        scores = []
        for seed in range(args.seeds):
            torch.manual_seed(100 * split + seed)
            network = Network(graph[0].shape[1], int(labels.max()) + 1).to(args.device)
            scores.append(best(network, graph, parts, args.epochs))
        means.append(np.mean(scores))
        print(split, [round(score, 1) for score in scores], flush=True)
    print(f"test {np.mean(means):.2f} ± {np.std(means, ddof=1):.2f} over splits")


main()
