"""Cora from NumPy arrays, in ten lines: `python cora.py FOLDER`, which has arrays of the graph, words and labels."""

import sys

import graphweft as gw
import numpy as np

a = {name: np.load(f"{sys.argv[1]}/{name}.npy") for name in ("indptr", "indices", "feat_indptr", "feat_indices", "label")}
nodes, words = len(a["indptr"]) - 1, len(a["feat_indices"])
graph = gw.Graph.from_edges(a["indices"], np.repeat(np.arange(nodes), np.diff(a["indptr"].astype(np.int64))), nodes)
x = ((np.ones(words), a["feat_indices"], a["feat_indptr"]), (nodes, int(a["feat_indices"].max()) + 1))
masks = [np.load(f"{sys.argv[1]}/split/public/{part}.npy") for part in ("train", "valid", "test")]
data = gw.Dataset(graph, x=x, y=a["label"], masks=masks)
run = gw.train(data, model="gcn", epochs=20, hidden=16, lr=0.01)
