"""python load_into_pyg.py RUN DATASET: a GCN, GraphSAGE or GAT that Graphweft trained, in PyTorch Geometric; its logits beside ours."""
import pathlib, sys, tomllib
import numpy as np, torch
from safetensors.torch import load_file
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

run, data = map(pathlib.Path, sys.argv[1:])
keys = tomllib.loads((run / "config.toml").read_text())["model"]
ours = torch.from_numpy(np.load(run / "predictions.npy"))
weights = {name: t.float() for name, t in load_file(run / "model.safetensors").items()}
width = next(t.shape[1] for name, t in weights.items() if name.startswith("convs.0.lin") and t.dim() == 2)
load = lambda name: torch.from_numpy(np.load(data / f"{name}.npy").astype("i8" if "ind" in name else "f4"))
word = lambda i, at: load("feat_data") if (data / "feat_data.npy").exists() else torch.ones(len(at))
bag = lambda i, at: torch.sparse_csr_tensor(i, at, word(i, at), (len(ours), width)).to_dense()
x = load("feat") if (data / "feat.npy").exists() else bag(load("feat_indptr"), load("feat_indices"))
edge_index = torch.stack([load("indices"), torch.repeat_interleave(torch.arange(len(x)), load("indptr").diff())])
kind, heads = {"gcn": (GCN, {}), "sage": (GraphSAGE, {}), "gat": (GAT, {"heads": keys.get("heads")})}[keys["name"]]
model = kind(x.shape[1], keys["hidden"], keys["layers"], ours.shape[1], act=keys["activation"], **heads).eval()
model.load_state_dict(weights)
print("largest difference:", (model(x, edge_index) - ours).abs().max().item())
