"""One full-graph training step of a 4-layer graph transformer: forward, backward, AdamW.

    python layer.py pyg|compile|csr|dgl FOLDER THREADS

Hidden 128, 8 heads, FFN x 2 with GELU, residuals, LayerNorm after each, dropout 0.1; random input, mean of squares as
loss. The models differ in their attention only (attention.py, checked there); with `compile` the whole model goes
through torch.compile. PyG's TransformerConv without its root weight is these projections around its message passing.
"""

import torch
from torch import nn

import attention
from attention import HEADS, HIDDEN
from graph import Graph
from timing import arguments, report_epoch

LAYERS, DROPOUT = 4, 0.1


class Layer(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.qkv = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.ffn = nn.Sequential(nn.Linear(HIDDEN, 2 * HIDDEN), nn.GELU(), nn.Linear(2 * HIDDEN, HIDDEN))
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        q, k, v = (linear(x).view(len(x), HEADS, -1) for linear in self.qkv)
        x = self.norms[0](x + self.dropout(self.out(self.attend(q, k, v).reshape(x.shape))))
        return self.norms[1](x + self.dropout(self.ffn(x)))


def stack(name, graph):
    prepare = attention.scatter if name == "compile" else attention.IMPLEMENTATIONS[name]
    attend = prepare(graph)  # one for all layers: what it keeps of the graph is shared
    model = nn.Sequential(*(Layer(attend) for _ in range(LAYERS)))
    return torch.compile(model, dynamic=False, fullgraph=True) if name == "compile" else model


def step(name, graph):
    """A function that runs one training step and returns its loss."""
    model, x = stack(name, graph), torch.randn(graph.nodes, HIDDEN)
    optimizer = torch.optim.AdamW(model.parameters())

    def run():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return run


def main():
    name, folder = arguments(["pyg", "compile", "csr", "dgl"])
    step(name, Graph.small())()  # what is loaded or started once is not counted as memory of the step
    report_epoch("layer", name, folder, step)


if __name__ == "__main__":
    main()
