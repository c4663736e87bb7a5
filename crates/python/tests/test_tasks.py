"""Graphs, links and features of edges: from arrays to predictions; estimators of every task."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import graphweft as gw
import numpy as np
import pytest


def many(count: int = 60, numbers: bool = False) -> gw.Dataset:
    """Rings and stars of 4 to 8 nodes, whose nodes know their degree; or the mean of a number that nodes have."""
    random = np.random.default_rng(0)
    sizes = random.integers(4, 9, count)
    first = np.concatenate([[0], np.cumsum(sizes)])
    kind = np.arange(count) % 2
    sources, targets = [], []
    for start, size, star in zip(first, sizes, kind):
        nodes = start + np.arange(size)
        sources.append(nodes[1:] if star else nodes)
        targets.append(np.full(size - 1, start) if star else np.roll(nodes, 1))
    graph = gw.Graph.from_edges(np.concatenate(sources), np.concatenate(targets), int(first[-1])).symmetrise()
    degree = np.diff(graph.indptr.astype(np.int64))
    value = random.random(len(degree), dtype=np.float32)
    x = np.stack([degree == 1, degree == 2, degree > 2, value], 1).astype(np.float32)
    y = np.add.reduceat(value, first[:-1]) / sizes if numbers else kind
    masks = [np.flatnonzero(np.arange(count) // 2 % 3 == part) for part in range(3)]
    return gw.Dataset(graph, x=x, y=y, graph_ptr=first, masks=masks, name="shapes")


def linked() -> gw.Dataset:
    """Links inside four groups, of which some are held back."""
    made = gw.Dataset.generate("sbm:200:4:12:f=16")
    targets = np.repeat(np.arange(200), np.diff(made.graph.indptr.astype(np.int64)))
    pairs = np.stack([made.graph.indices.astype(np.int64), targets], 1)
    pairs = np.random.default_rng(1).permutation(pairs[pairs[:, 0] < pairs[:, 1]])
    valid, test, train = np.split(pairs, [100, 200])
    graph = gw.Graph.from_edges(train[:, 0], train[:, 1], 200).symmetrise()
    none = np.random.default_rng(2).integers(0, 200, (100, 2))
    links = {"own": {"train": train, "valid": valid, "test": test, "valid_neg": none, "test_neg": none[::-1]}}
    return gw.Dataset(graph, x=made.x, links=links, name="links")


def test_features_of_edges_follow_their_edges(tmp_path: Path) -> None:
    """Shuffled edges, parallel ones among them: each row stands where its edge stands, parallel ones in order."""
    random = np.random.default_rng(3)
    sources, targets = random.integers(0, 12, 300), random.integers(0, 12, 300)
    rows = np.stack([np.arange(300), sources, targets], 1).astype(np.float32)
    graph = gw.Graph.from_edges(sources, targets, 12)
    data = gw.Dataset(graph, edge_attr=rows, edge_index=(sources, targets))
    expected = rows[np.lexsort((sources, targets))]
    assert data.edge_attr is not None and np.array_equal(data.edge_attr, expected) and not data.edge_attr.flags.writeable
    assert np.array_equal(data.edge_attr[:, 1], graph.indices), "of the edges that the graph has there"
    data.save(tmp_path / "data")
    again = gw.open(tmp_path / "data")
    assert again.edge_attr is not None and np.array_equal(again.edge_attr, expected)
    # Without edge_index, rows are of graph.indices; where edges were given in another order, that must be said.
    assert gw.Dataset(gw.Graph.generate("grid:3:3"), edge_attr=np.arange(24.0)).edge_attr.shape == (24, 1)  # type: ignore[union-attr]
    for wrong in ({"edge_attr": rows}, {"edge_attr": rows[1:], "edge_index": (sources, targets)}):
        with pytest.raises(gw.InputError) as caught:
            gw.Dataset(graph, **wrong)
        assert caught.value.remedy
    with pytest.raises(gw.InputError, match="not the edges of the graph"):
        gw.Dataset(graph, edge_attr=rows, edge_index=(targets, sources))


def test_edges_with_features_are_learned_from(tmp_path: Path) -> None:
    """What is predicted is in the features of edges alone."""
    random = np.random.default_rng(5)
    sources, targets = random.integers(0, 200, 2000), random.integers(0, 200, 2000)
    y = random.integers(0, 2, 200)
    noise = random.normal(size=2000) * 0.1
    masks = (range(100), range(100, 150), range(150, 200))
    graph = gw.Graph.from_edges(sources, targets, 200)
    data = gw.Dataset(graph, x=np.ones((200, 1)), y=y, edge_attr=y[targets] + noise, edge_index=(sources, targets), masks=masks)
    run = gw.train(data, tmp_path / "run", model="gt", hidden=16, heads=2, layers=2, epochs=60, lr=0.01, progress=False)
    assert run.test > 90


@pytest.mark.parametrize("stored", [False, True])
def test_graphs_are_classified(stored: bool, tmp_path: Path) -> None:
    data = many()
    if stored:
        data.save(tmp_path / "data")
        data = gw.open(tmp_path / "data")
    assert (data.task, data.num_graphs, data.y.shape) == ("graph-classification", 60, (60,))  # type: ignore[union-attr]
    assert data.graph_ptr is not None and data.graph_ptr[-1] == data.num_nodes
    model = gw.GraphClassifier(model="gcn", hidden=16, epochs=60, lr=0.02, progress=False).fit(data)
    assert model.score() > 0.9 and model.predict_proba().shape == (60, 2)
    assert model.predict(data).shape == (60,) and model.predict_proba(many(10)).shape == (10, 2)
    assert gw.predict(model.run_, data).shape == (60, 2)  # type: ignore[arg-type]


def test_graphs_have_numbers_predicted() -> None:
    model = gw.GraphRegressor(model="gcn", hidden=16, epochs=60, lr=0.01, progress=False).fit(many(numbers=True))
    assert model.predict().shape == (60,) and model.score() < 0.15


def test_links_are_predicted(tmp_path: Path) -> None:
    data = linked()
    data.save(tmp_path / "data")
    again = gw.open(tmp_path / "data")
    assert (again.task, again.y) == ("link", None)
    for part, pairs in data.links["own"].items():
        assert np.array_equal(again.links["own"][part], pairs)
    model = gw.LinkPredictor(model="gcn", hidden=32, epochs=60, lr=0.01, embedding=16, progress=False).fit(again)
    assert model.score() > 0.7 and model.embed().shape == (200, 16)
    pairs = data.links["own"]["test"]
    likely = model.predict_proba(pairs)
    assert likely.shape == (100,) and ((likely > 0.5) == model.predict(pairs)).all()
    rows = model.embed()
    assert np.allclose(model.decision_function(pairs), (rows[pairs[:, 0]] * rows[pairs[:, 1]]).sum(1), atol=1e-5)
    for wrong in ([0, 1], [[0, 200]], [[0.5, 1.0]]):
        with pytest.raises(gw.UsageError, match="pairs"):
            model.predict(wrong)


def test_categories_of_nodes_are_kept() -> None:
    rows = np.array([[0, 300], [1, 2], [0, 0]])
    data = gw.Dataset(gw.Graph.from_edges([0], [1], 3), categories=rows)
    assert data.categories is not None and np.array_equal(data.categories, rows)
    for wrong in (rows - 1, rows + 2**16, rows[:2], rows * 0.5):
        with pytest.raises(gw.InputError, match="categor"):
            gw.Dataset(gw.Graph.from_edges([0], [1], 3), categories=wrong)


@pytest.mark.parametrize(
    ("what", "more"),
    [
        ("graph_ptr", {"graph_ptr": [0, 1, 5]}),
        ("2 rows", {"graph_ptr": [0, 1, 4], "y": [0, 1, 1]}),
        ("another graph", {"graph_ptr": [0, 1, 4], "y": [0, 1]}),
        ("no valid", {"links": {"own": {"train": [[0, 1]]}}}),
        ("'train_neg'", {"links": {"own": {"train": [[0, 1]], "valid": [], "test": [], "train_neg": []}}}),
        ("shape", {"links": {"own": {"train": [0, 1], "valid": [[0, 1]], "test": [[0, 1]]}}}),
        ("labels", {"links": {"own": {"train": [[0, 1]], "valid": [[0, 1]], "test": [[0, 1]]}}, "y": [0, 1, 1, 0]}),
    ],
)
def test_what_does_not_fit_together_is_named(what: str, more: dict[str, Any]) -> None:
    ring = gw.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    with pytest.raises(gw.InputError, match=what.replace("2 rows", "3 rows, and there are 2 graphs")) as caught:
        gw.Dataset(ring, **more)
    assert caught.value.remedy


def test_estimators_name_the_nearest_argument_and_the_right_estimator(tmp_path: Path) -> None:
    for make in (gw.NodeClassifier, gw.GraphRegressor, gw.LinkPredictor):
        with pytest.raises(gw.UsageError, match="did you mean hidden"):
            make(hiden=3)
    model = gw.NodeClassifier(epochs=2)
    with pytest.raises(gw.UsageError, match="did you mean epochs"):
        model.set_params(hidden=8, epoch=3)
    assert model.get_params()["hidden"] is None, "all or none"
    assert {"comm", "memory", "guard", "report", "emulate", "callbacks"} <= set(model.get_params())
    again = gw.NodeClassifier(**{name: value for name, value in model.get_params().items() if value is not None})
    assert again.get_params() == model.get_params()
    for data, right in [(many(4), "GraphClassifier"), (linked(), "LinkPredictor")]:
        with pytest.raises(gw.UsageError, match="these data are for") as caught:
            model.fit(data)
        assert right in str(caught.value.remedy)
    many(4).save(tmp_path / "data")
    with pytest.raises(gw.UsageError, match="graph-classification"):
        model.fit(os.fspath(tmp_path / "data"))
    with pytest.raises(gw.UsageError, match="part"):
        gw.NodeClassifier().score(part="tests")


def test_models_write_what_they_say_to_files(tmp_path: Path) -> None:
    """The forms of predictions, and links by the ids of pairs or as the best partners."""
    run = gw.train("sbm:60:3:4:f=8", tmp_path / "run", model="gcn", epochs=3, progress=False)
    written = gw.write_predictions(run, tmp_path / "labels.csv", what="labels")
    assert written["what"] == "labels" and len((tmp_path / "labels.csv").read_text().splitlines()) == 61
    gw.write_predictions(run.folder, tmp_path / "shares.npy", what="probabilities")
    assert np.array_equal(np.load(tmp_path / "shares.npy"), run.predictions(what="probabilities"))
    with pytest.raises(gw.UsageError, match="best"):
        gw.write_predictions(run, tmp_path / "none.csv", what="best")
    data = linked()
    data.save(tmp_path / "data")
    model = gw.LinkPredictor(model="gcn", hidden=8, epochs=3, embedding=4, progress=False).fit(tmp_path / "data")
    assert model.run_ is not None
    (tmp_path / "pairs.csv").write_text("0,1\n5,7\n")
    assert gw.write_links(model.run_, tmp_path / "scores.csv", pairs=tmp_path / "pairs.csv") == 2
    rows = np.loadtxt(tmp_path / "scores.csv", delimiter=",", skiprows=1)
    assert np.allclose(rows[:, 2], model.decision_function(rows[:, :2].astype(int)), atol=1e-4)
    assert gw.write_links(model.run_, tmp_path / "partners.csv", top=3) == 600
    for wrong in ({}, {"top": 3, "pairs": tmp_path / "pairs.csv"}, {"of": tmp_path / "pairs.csv"}):
        with pytest.raises(gw.UsageError, match="clear"):
            gw.write_links(model.run_, tmp_path / "no.csv", **wrong)


def test_folders_are_put_together_and_stored_by_part(tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two")):
        gw.generate("sbm:60:3:4:f=8", tmp_path / name, seed=seed)
    both = gw.import_data("union", [tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    assert (both.num_nodes, both.num_features) == (120, 8)
    assert gw.partition(tmp_path / "both", 4, order="bfs", chunks=True, memory=2**21)["chunks"] == 4
    divided = gw.partition(tmp_path / "both", 3, method="contiguous", balance="edges")
    assert divided["balance"] == "edges"
    with pytest.raises(gw.GraphweftError, match="replace"):
        gw.partition(tmp_path / "both", 3, method="contiguous")
    assert gw.partition(tmp_path / "both", 3, method="contiguous", replace=True)["balance"] == "nodes"
    for wrong in ({"balance": "luck"}, {"method": "luck"}, {"order": "luck"}):
        with pytest.raises(gw.GraphweftError, match="luck"):
            gw.partition("grid:4:4", 2, **wrong)  # type: ignore[arg-type]
    with pytest.raises(gw.UsageError, match="n-triples"):
        gw.import_data("excel", tmp_path / "one", tmp_path / "no")


def test_graphs_and_plans_are_looked_at_more_closely(tmp_path: Path) -> None:
    found = gw.info("grid:12:12", partitions=True, plot=tmp_path / "graph.svg")
    assert {one["parts"] for one in found["partitions"]} >= {2, 4} and (tmp_path / "graph.svg").is_file()
    plan = gw.plan("rmat:8:8", model="gcn", ranks=2, profile="16-cpu-10g", features=7, classes=3)
    assert (plan.data["features"], plan.data["classes"]) == (7, 3)
    described = gw.simulate("nodes=1e6,edges=2e7,features=64,classes=10", model="gcn", ranks=4, profile="16-cpu-10g")
    assert "<svg" in described.plot_scaling(tmp_path / "scaling.svg").read_text()
    assert gw.bench(None, "gemm", hidden=8, rows=64, out=8, runs=1)["op"] == "gemm"
    assert gw.bench("rmat:6:4", "layer", hidden=8, heads=2, layers=1, runs=1)["op"] == "layer"
    for op, data, more in (("spmm", "rmat:6:4", {"heads": 2}), ("gemm", "rmat:6:4", {}), ("layer", None, {})):
        with pytest.raises(gw.UsageError):
            gw.bench(data, op, **more)
    (tmp_path / "machine.toml").write_text("of somebody else")
    with pytest.raises(gw.GraphweftError, match="replace"):
        gw.calibrate(2, file=tmp_path / "machine.toml")
    assert (tmp_path / "machine.toml").read_text() == "of somebody else"
