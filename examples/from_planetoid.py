"""python from_planetoid.py RAW NAME DIR: Planetoid's pickled files RAW/ind.NAME.* as a folder for graphweft train --data DIR, with the public split.

Edges are symmetrised, self-loops and repetitions dropped, as PyTorch Geometric does. Test nodes that the files do not mention (CiteSeer has
15) are isolated, without features and label. Of what a pickle may call, only arrays and matrices are allowed.
"""
import pathlib, pickle, sys, types
import numpy as np, scipy.sparse
from from_pyg import write


class Arrays(pickle.Unpickler):
    def find_class(self, module, name):
        if name not in "_reconstruct ndarray dtype scalar csr_matrix list dict defaultdict object _reconstructor encode".split():
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        module = "scipy.sparse" if module.startswith("scipy.sparse") else module  # its older names for the same
        return super().find_class(module, name)


raw, name, target = sys.argv[1:]
file = lambda part: pathlib.Path(raw) / f"ind.{name}.{part}"
y, tx, ty, allx, ally, graph = (Arrays(open(file(p), "rb"), encoding="latin1").load() for p in ("y", "tx", "ty", "allx", "ally", "graph"))
test = np.loadtxt(file("test.index"), dtype=int)
n = max(int(test.max()) + 1, len(graph))
x, known = scipy.sparse.lil_matrix((n, allx.shape[1]), dtype="f4"), np.zeros((n, ally.shape[1]))
x[: allx.shape[0]], known[: len(ally)] = allx, ally
x[test], known[test] = tx, ty
src, dst = np.array([(i, j) for i, near in graph.items() for j in near if i != j]).T
both = np.unique(np.concatenate([src * n + dst, dst * n + src]))
parts = {"train": np.arange(len(y)), "val": np.arange(len(y), len(y) + 500), "test": test}
masks = {f"{part}_mask": np.isin(np.arange(n), nodes) for part, nodes in parts.items()}
label = np.where(known.any(1), known.argmax(1), -1)
write(types.SimpleNamespace(x=x.tocsr(), y=label, edge_index=np.stack([both // n, both % n]), num_nodes=n, **masks), target)
