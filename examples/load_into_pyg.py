"""python load_into_pyg.py RUN [DATASET]: a GCN, GraphSAGE or GAT that Graphweft trained, in PyTorch Geometric; PASS if logits agree."""
import pathlib, sys, tomllib
import numpy as np, torch
from safetensors.torch import load_file
from torch_geometric.nn.models import GAT, GCN, GraphSAGE
from torch_geometric.utils import add_remaining_self_loops, remove_self_loops, to_undirected

TOLERANCE = 1e-4  # of the largest logit: f32 rounds differently in both programs
run = pathlib.Path(sys.argv[1])
config = tomllib.loads((run / "config.toml").read_text())
keys, prepare = config["model"], config["data"]
data = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else prepare["path"])
ours = torch.from_numpy(np.load(run / "predictions.npy"))
weights = {name: t.float() for name, t in load_file(run / "model.safetensors").items()}
width = next(t.shape[1] for name, t in weights.items() if name.startswith("convs.0.lin") and t.dim() == 2)
load = lambda name: torch.from_numpy(np.load(data / f"{name}.npy").astype("i8" if "ind" in name else "f4"))
rows = lambda name: torch.repeat_interleave(torch.arange(len(ours)), load(name).diff())


def bag():
    dense = torch.zeros(len(ours), width)
    dense[rows("feat_indptr"), load("feat_indices")] = load("feat_data") if (data / "feat_data.npy").exists() else torch.tensor(1.0)
    return dense


x = load("feat") if (data / "feat.npy").exists() else bag()
edge_index = torch.stack([load("indices"), rows("indptr")])
# What the run did to the data is done here too.
if prepare["symmetrise"]:
    edge_index = to_undirected(edge_index, num_nodes=len(x))
if prepare["self_loops"] in ("add", "remove"):
    edge_index = remove_self_loops(edge_index)[0]
if prepare["self_loops"] == "add":
    edge_index = add_remaining_self_loops(edge_index, num_nodes=len(x))[0]
if prepare["normalise"] == "row":
    x = x / x.abs().sum(1, keepdim=True).clamp(min=1e-30)
own = {} if keys["name"] == "sage" else {"add_self_loops": False}  # the graph has those that it should have
kind, heads = {"gcn": (GCN, {}), "sage": (GraphSAGE, {}), "gat": (GAT, {"heads": keys.get("heads")})}[keys["name"]]
model = kind(x.shape[1], keys["hidden"], keys["layers"], ours.shape[1], act=keys["activation"], **heads, **own).eval()
model.load_state_dict(weights)
difference = ((model(x, edge_index) - ours).abs().max() / ours.abs().max()).item()
verdict = "PASS" if difference <= TOLERANCE else "FAIL"
print(f"{verdict}: the largest difference is {difference:.1e} of the largest logit, {TOLERANCE:.0e} is allowed")
sys.exit(verdict == "FAIL")
