"""Small dataset folders, made with the standard library alone: the same bytes wherever this runs.

dense     features of f32, one class per node
sparse    features as CSR with values, one class per node, some nodes without a label
several   features of f32, three labels per node, some of them not known, and two splits
"""

import random
import struct

NODES = 240
CLASSES = 3
FEATURES = 24
NEIGHBOURS = 5
ROWS_OF_SPARSE = 4

CODES = {"<f4": "f", "<i8": "q", "<u8": "Q", "<u4": "I"}


def write_npy(path, dtype, shape, values):
    """An array as NumPy writes it, version 1."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    body = struct.pack(f"<{len(values)}{CODES[dtype]}", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body)


def neighbours(draw, classes):
    """Symmetric lists of neighbours: most edges stay inside a class."""
    found = [set() for _ in range(NODES)]
    for node in range(NODES):
        for _ in range(NEIGHBOURS):
            other = draw.randrange(NODES)
            if classes[other] != classes[node] and draw.random() < 0.7:
                other = (node + CLASSES * draw.randrange(1, NODES // CLASSES)) % NODES
            if other != node:
                found[node].add(other)
                found[other].add(node)
    return [sorted(of) for of in found]


def write_graph(folder, lists, columns, classes):
    folder.mkdir()
    indptr, indices = [0], []
    for of in lists:
        indices += of
        indptr.append(len(indices))
    write_npy(folder / "indptr.npy", "<u8", [NODES + 1], indptr)
    write_npy(folder / "indices.npy", "<u4", [len(indices)], indices)
    (folder / "meta.toml").write_text(
        f'name = "{folder.name}"\nnum_nodes = {NODES}\nnum_edges = {len(indices)}\nnum_features = {columns}\n'
        f'num_classes = {classes}\nsymmetric = true\ntask = "node-classification"\n'
    )


def write_split(folder, name, first):
    parts = {"train": [], "valid": [], "test": []}
    for node in range(NODES):
        part = ["train", "train", "train", "valid", "test"][(node + first) % 5]
        parts[part].append(node)
    for part, nodes in parts.items():
        (folder / "split" / name).mkdir(parents=True, exist_ok=True)
        write_npy(folder / "split" / name / f"{part}.npy", "<i8", [len(nodes)], nodes)


def dense_rows(draw, classes):
    return [draw.uniform(-1, 1) + (column % CLASSES == of) for of in classes for column in range(FEATURES)]


def write_sparse_rows(folder, draw, classes):
    indptr, indices, values = [0], [], []
    for of in classes:
        columns = {(CLASSES * draw.randrange(FEATURES // CLASSES) + of) % FEATURES for _ in range(ROWS_OF_SPARSE)}
        indices += sorted(columns)
        values += [0.5 + draw.random() for _ in columns]
        indptr.append(len(indices))
    write_npy(folder / "feat_indptr.npy", "<u8", [NODES + 1], indptr)
    write_npy(folder / "feat_indices.npy", "<u4", [len(indices)], indices)
    write_npy(folder / "feat_data.npy", "<f4", [len(values)], values)


def several_labels(draw, classes):
    def label(of, which):
        return float("nan") if draw.random() < 0.1 else float((of == which) != (draw.random() < 0.1))

    return [label(of, which) for of in classes for which in range(CLASSES)]


def make(folder):
    """Writes all of them below `folder`."""
    draw = random.Random(22)
    classes = [node % CLASSES for node in range(NODES)]
    lists = neighbours(draw, classes)

    write_graph(folder / "dense", lists, FEATURES, CLASSES)
    write_npy(folder / "dense/feat.npy", "<f4", [NODES, FEATURES], dense_rows(draw, classes))
    write_npy(folder / "dense/label.npy", "<i8", [NODES], classes)
    write_split(folder / "dense", "default", 0)

    write_graph(folder / "sparse", lists, FEATURES, CLASSES)
    write_sparse_rows(folder / "sparse", draw, classes)
    write_npy(folder / "sparse/label.npy", "<i8", [NODES], [of if draw.random() < 0.9 else -1 for of in classes])
    write_split(folder / "sparse", "default", 0)

    write_graph(folder / "several", lists, FEATURES, CLASSES)
    write_npy(folder / "several/feat.npy", "<f4", [NODES, FEATURES], dense_rows(draw, classes))
    write_npy(folder / "several/label.npy", "<f4", [NODES, CLASSES], several_labels(draw, classes))
    write_split(folder / "several", "public-0", 0)
    write_split(folder / "several", "public-1", 1)
