"""python load_into_pyg.py RUN DATASET: our GCN, GraphSAGE or GAT (plain stack, dense features) in PyTorch Geometric, and its logits beside ours."""
import pathlib, sys, tomllib
import numpy as np, torch
from safetensors.torch import load_file
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

run, data = map(pathlib.Path, sys.argv[1:])
keys = tomllib.loads((run / "config.toml").read_text())["model"]
x, indptr, source = (torch.from_numpy(np.load(data / f"{f}.npy").astype(t)) for f, t in [("feat", "f4"), ("indptr", "i8"), ("indices", "i8")])
edge_index = torch.stack([source, torch.repeat_interleave(torch.arange(len(x)), indptr.diff())])
ours = torch.from_numpy(np.load(run / "predictions.npy"))
kind, more = {"gcn": (GCN, {}), "sage": (GraphSAGE, {}), "gat": (GAT, {"heads": keys.get("heads")})}[keys["name"]]
model = kind(x.shape[1], keys["hidden"], keys["layers"], ours.shape[1], act=keys["activation"], **more).eval()
model.load_state_dict({k: v.float() for k, v in load_file(run / "model.safetensors").items()})
with torch.no_grad():
    print("largest difference:", (model(x, edge_index) - ours).abs().max().item())
