"""One epoch of a 3-layer GCN, GraphSAGE or GAT on the full graph: forward, cross-entropy, backward, Adam.

    python models.py MODEL:pyg|csr|dgl FOLDER THREADS

128 features, hidden 128, 40 classes, dropout 0.1 between layers and on attention; GAT has 8 heads, concatenated, and in
the last layer their mean; `gat+linear` (DGL only) has three layers of 8 heads, concatenated, and a linear one. `pyg`
gives PyG's own models an edge list, `csr` a sparse matrix (GAT has no way to use one); `dgl` stacks DGL's layers. No layer adds self-loops: the folder has them. What depends on the graph alone is cached
where the library can cache it.
"""

import torch
from torch import nn

from graph import Csr, Graph
from timing import arguments, report_epoch

FEATURES, HIDDEN, CLASSES = 128, 128, 40
LAYERS, HEADS, DROPOUT = 3, 8, 0.1


def pyg(model, edges):
    """PyG's model over a list of edges or a sparse matrix: a function of the features, and its parameters."""
    from torch_geometric.nn import models

    kind, options = {
        "gcn": (models.GCN, {"cached": True, "add_self_loops": False}),
        "sage": (models.GraphSAGE, {}),
        "gat": (models.GAT, {"heads": HEADS, "act": "elu", "add_self_loops": False}),
    }[model]
    network = kind(FEATURES, HIDDEN, LAYERS, CLASSES, dropout=DROPOUT, **options)
    return lambda x: network(x, edges), network.parameters()


def edge_list(model, graph):
    return pyg(model, torch.stack([graph.src, graph.dst]))


def csr(model, graph):
    return pyg(model, Csr(graph).matrix(torch.ones(graph.edges)))


def dgl(model, graph):
    from dgl import nn as layers

    model, _, linear = model.partition("+")
    g = graph.dgl(numbered=model == "gat")

    def layer(inputs, outputs, last):
        if model == "gcn":
            return layers.GraphConv(inputs, outputs, allow_zero_in_degree=True)
        if model == "sage":
            return layers.SAGEConv(inputs, outputs, "mean")
        width = outputs if last and not linear else outputs // HEADS
        return layers.GATConv(inputs, width, HEADS, attn_drop=DROPOUT, allow_zero_in_degree=True)

    widths = [FEATURES] + [HIDDEN] * (LAYERS - 1) + [HIDDEN if linear else CLASSES]
    stack = nn.ModuleList(layer(*widths[k : k + 2], k + 1 == LAYERS) for k in range(LAYERS))
    if linear:
        stack.append(nn.Linear(HIDDEN, CLASSES))
    activation = nn.functional.elu if model == "gat" else nn.functional.relu

    def forward(x):
        for k, conv in enumerate(stack[:LAYERS]):
            x, last = conv(g, x), k + 1 == LAYERS and not linear
            if model == "gat":
                x = x.mean(1) if last else x.flatten(1)
            if not last:
                x = nn.functional.dropout(activation(x), DROPOUT)
        return stack[LAYERS](x) if linear else x

    return forward, stack.parameters()


IMPLEMENTATIONS = {
    f"{model}:{name}": (model, implementation)
    for model in ("gcn", "sage", "gat")
    for name, implementation in (("pyg", edge_list), ("csr", csr), ("dgl", dgl))
    if (model, name) != ("gat", "csr")
} | {"gat+linear:dgl": ("gat+linear", dgl)}


def epoch(name, graph):
    """A function that trains for one epoch and returns the loss."""
    model, implementation = IMPLEMENTATIONS[name]
    forward, parameters = implementation(model, graph)
    x, labels = torch.randn(graph.nodes, FEATURES), torch.arange(graph.nodes) * 7919 % CLASSES
    optimizer = torch.optim.Adam(parameters)

    def run():
        loss = nn.functional.cross_entropy(forward(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return run


def check(name):
    """Whether the model learns: some epochs on a small graph must lower the loss."""
    run = epoch(name, Graph.small())
    first = run()
    for _ in range(60):
        last = run()
    assert last < first - 0.1, f"the loss went from {first} to {last}"


def main():
    name, folder = arguments(IMPLEMENTATIONS)
    check(name)
    report_epoch("train", name, folder, epoch)


if __name__ == "__main__":
    main()
