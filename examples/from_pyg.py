"""python from_pyg.py DATA.pt DIR: a PyTorch Geometric Data, as torch.save or pickle.dump wrote it, as a folder for graphweft train --data DIR.

The same from Python: write(data, "DIR"). Masks become the split "public", [N, S] ones the splits public-0, public-1, …; y of floats [N, C] is
several labels per node, NaN where one is not known; edge_attr follows its edges. Graphs of a list go to DIR/0, DIR/1, …, a folder each.
"""
import json, pathlib, pickle, sys, zipfile
import numpy as np


def write(data, folder):
    folder = pathlib.Path(folder)
    if isinstance(data, (list, tuple)):
        return [write(graph, folder / str(i)) for i, graph in enumerate(data)]
    plain = lambda x, dtype=None: np.ascontiguousarray(x.detach().cpu().numpy() if hasattr(x, "detach") else x, dtype)
    x, y, index, edge_attr = (getattr(data, name, None) for name in ("x", "y", "edge_index", "edge_attr"))
    masks = [getattr(data, f"{part}_mask", None) for part in ("train", "val", "test")]
    if index is None or len(index) != 2 or any(m is None for m in masks) != all(m is None for m in masks):
        raise ValueError("a Data needs edge_index [2, E], and either all of train_mask, val_mask and test_mask or none of them")
    (src, dst), n = plain(index, "i8"), int(getattr(data, "num_nodes", None) or x.shape[0])
    order, back = np.lexsort((src, dst)), np.lexsort((dst, src))
    arrays = {"indptr": np.searchsorted(dst[order], np.arange(n + 1)).astype("u8"), "indices": src[order].astype("u4" if n <= 2**32 else "i8")}
    if hasattr(x, "tocsr"):  # a SciPy matrix
        (x := x.tocsr(copy=True)).sum_duplicates()
        arrays |= {"feat_indptr": x.indptr.astype("u8"), "feat_indices": x.indices.astype("u4"), "feat_data": x.data.astype("f4")}
    elif x is not None:
        arrays["feat"] = plain(x, "f4")
    if y is not None:
        several = (y := plain(y)).ndim == 2 and y.shape[1] > 1
        arrays["label"] = y.astype("f4") if several else np.where(np.isnan(y), -1, y).reshape(n).astype("i8")
        if not several and (arrays["label"] != np.nan_to_num(y, nan=-1).reshape(n)).any():
            raise ValueError("y has fractions: expected a class for each node, or [N, C] of 0 and 1")
    if edge_attr is not None:
        arrays["edge_feat"] = plain(edge_attr, "f4").reshape(len(src), -1)[order]
    masks = [plain(m, bool).reshape(n, -1) for m in masks if m is not None]
    for split in range(masks[0].shape[1] if masks else 0):
        for part, mask in zip(("train", "valid", "test"), masks):
            arrays[f"split/public{'' if mask.shape[1] == 1 else f'-{split}'}/{part}"] = np.flatnonzero(mask[:, split])
    classes = 0 if y is None else arrays["label"].shape[1] if several else int(arrays["label"].max()) + 1
    symmetric = np.array_equal(src[order], dst[back]) and np.array_equal(dst[order], src[back])
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{name}.npy", array)
    counts = f"num_nodes = {n}\nnum_edges = {len(src)}\nnum_features = {0 if x is None else x.shape[1]}\nnum_classes = {classes}\n"
    (folder / "meta.toml").write_text(f"name = {json.dumps(folder.name)}\n{counts}symmetric = {str(symmetric).lower()}\n")


if __name__ == "__main__":
    path, target = sys.argv[1:]
    if zipfile.is_zipfile(path):  # what torch.save writes
        import torch
        write(torch.load(path, weights_only=False), target)
    else:
        write(pickle.loads(pathlib.Path(path).read_bytes()), target)
