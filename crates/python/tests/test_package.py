"""The package, from data in memory to predictions; each error class; what must not happen."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import graphweft as gw
import numpy as np
import pytest

SPEC = "sbm:200:4:8:f=16"


def dataset() -> gw.Dataset:
    return gw.Dataset.generate(SPEC)


def test_edges_become_a_graph_whose_arrays_are_views() -> None:
    graph = gw.Graph.from_edges([0, 1, 2, 2], [1, 2, 0, 1])
    assert (graph.num_nodes, graph.num_edges) == (3, 4)
    assert graph.indptr.tolist() == [0, 1, 3, 4]
    assert graph.indices.tolist() == [2, 0, 2, 1]
    assert not graph.indices.flags.writeable
    first, second = graph.indices, graph.indices
    assert first.ctypes.data == second.ctypes.data, "nothing is copied"
    del graph
    assert first.tolist() == [2, 0, 2, 1], "the array keeps its owner alive"


def test_other_libraries_give_the_same_graph() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.coo_matrix((np.ones(4), ([1, 2, 0, 1], [0, 1, 2, 2])), shape=(3, 3))
    assert gw.Graph.from_csr(matrix).indices.tolist() == [2, 0, 2, 1]
    networkx = pytest.importorskip("networkx")
    cycle = gw.Graph.from_networkx(networkx.cycle_graph(4))
    assert cycle.num_edges == 8 and cycle.is_symmetric()


def test_a_dataset_is_saved_and_opened_with_the_same_values(tmp_path: object) -> None:
    folder = os.path.join(str(tmp_path), "d")
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    graph = gw.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    data = gw.Dataset(graph, x=x, y=[0, 1, -1, 1], masks=([True, True, False, False], [2], [3]))
    data.save(folder)
    again = gw.open(folder)
    assert np.array_equal(again.x, x) and again.y is not None and again.y.tolist() == [0, 1, -1, 1]
    assert [part.tolist() for part in again.splits["default"]] == [[0, 1], [2], [3]]
    assert again.folder == folder and data.folder is None


def test_sparse_features_stay_sparse() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    x = scipy.random(5, 7, density=0.4, format="csr", dtype=np.float32, random_state=1)
    data = gw.Dataset(gw.Graph.from_edges([0, 1], [1, 2], 5), x=x)
    assert (data.x != x).nnz == 0


def test_training_from_python_gives_the_losses_of_the_program(tmp_path: object) -> None:
    program = os.environ.get("GRAPHWEFT")
    if not program:
        pytest.skip("GRAPHWEFT does not name the program")
    arguments = ["--graph", SPEC, "--model", "gcn", "--epochs", "8", "--lr", "0.01", "-o", f"{tmp_path}/program", "--json"]
    out = subprocess.run([program, "train", *arguments], capture_output=True, text=True, check=True).stdout
    run = gw.train(SPEC, f"{tmp_path}/python", model="gcn", epochs=8, lr=0.01, progress=False)
    assert run.losses == json.loads(out)["loss"], "bit for bit"
    data = gw.train(dataset(), f"{tmp_path}/memory", model="gcn", epochs=8, lr=0.01, progress=False)
    assert data.losses == run.losses


def test_a_run_is_resumed_evaluated_and_shown(tmp_path: object) -> None:
    seen = []
    run = gw.train(SPEC, f"{tmp_path}/run", model="gcn", epochs=4, progress=False, callbacks=seen.append)
    assert [e["epoch"] for e in seen if e["event"] == "epoch"] == [1, 2, 3, 4]
    longer = run.resume(epochs=7, progress=False)
    assert len(longer.losses) == 7 and longer.losses[:4] == run.losses[:4]
    assert abs(longer.evaluate()["test"] - longer.test) < 1e-9
    likely = longer.predictions(what="probabilities")
    assert likely.shape == (200, 4) and np.allclose(likely.sum(axis=1), 1, atol=1e-5)
    assert longer.report(f"{tmp_path}/page.html").stat().st_size > 50_000
    assert [one["state"] for one in gw.runs(str(tmp_path))] == ["finished"]


def test_estimators_fit_score_and_predict() -> None:
    data = dataset()
    model = gw.NodeClassifier(model="gcn", epochs=40, lr=0.01, progress=False).fit(data)
    assert model.score() > 0.5
    assert (model.predict(data) == model.predict_proba(data).argmax(axis=1)).all()
    assert model.get_params()["epochs"] == 40 and model.get_params()["hidden"] is None
    y = np.linspace(0, 1, 200, dtype=np.float32)
    numbers = gw.Dataset(data.graph, x=np.stack([y, 1 - y], 1), y=y, masks=(range(100), range(100, 150), range(150, 200)))
    fitted = gw.NodeRegressor(model="mlp", epochs=30, lr=0.01, progress=False).fit(numbers)
    assert fitted.predict().shape == (200,)


def test_several_ranks_and_seeds(tmp_path: object) -> None:
    run = gw.train(dataset(), f"{tmp_path}/run", model="gt", hidden=16, heads=2, epochs=3, ranks=2, strategy="halo", seeds=2, progress=False)
    assert len(run._seeds()) == 2 and run.plan()["ranks"] == 2


def test_a_plan_is_a_table() -> None:
    plan = gw.plan(dataset(), model="gt", ranks=4, profile="16-cpu-10g")
    assert plan.choice["strategy"] and len(plan.candidates) > 3
    assert "<table>" in plan._repr_html_() and plan.why


def test_graphs_are_divided_described_and_generated(tmp_path: object) -> None:
    assert gw.partition(dataset(), 3, method="contiguous")["parts"] == 3
    assert gw.info(SPEC)["nodes"] == 200
    assert gw.generate("grid:5:5", f"{tmp_path}/grid")["nodes"] == 25
    assert gw.doctor()["build"]


def test_every_error_has_its_class_and_says_where(tmp_path: object) -> None:
    with pytest.raises(gw.UsageError, match="did you mean hidden"):
        gw.train(SPEC, hiden=3)
    with pytest.raises(gw.GraphweftError) as caught:
        gw.train(SPEC, f"{tmp_path}/a", config={"train.lrr": 1})
    assert "train.lr" in str(caught.value)
    with pytest.raises(gw.InputError) as missing:
        gw.open(f"{tmp_path}/nothing")
    assert missing.value.remedy and isinstance(missing.value, ValueError)
    with pytest.raises(gw.InputError, match="element 1"):
        try:
            gw.Graph.from_edges([0, -1], [1, 0])
        except gw.InputError as error:
            raise gw.InputError(f"{error} {error.position}") from None
    with pytest.raises(gw.InputError) as bad:
        gw.Dataset(gw.Graph.from_edges([0], [1]), x=[[1.0], [float("nan")]])
    assert bad.value.field
    with pytest.raises(gw.DoesNotFit) as large:
        gw.train(SPEC, f"{tmp_path}/large", model="gcn", hidden=10**12, epochs=1, progress=False)
    assert isinstance(large.value, MemoryError) and "remedy" in str(large.value)
    with pytest.raises(gw.UsageError, match="fit"):
        gw.NodeClassifier().score()


@pytest.mark.parametrize("place", ["thread", "here"])
def test_a_panic_is_an_exception(place: str) -> None:
    with pytest.raises(gw.GraphweftError, match="asked for by a test") as caught:
        gw._runs._graphweft._panic_for_test(place)
    assert type(caught.value) is gw.GraphweftError and caught.value.remedy == "report this as a bug"


def test_what_a_callback_raises_ends_the_run(tmp_path: object) -> None:
    class Pruned(Exception):
        pass

    def prune(event: dict[str, object]) -> None:
        if event["event"] == "epoch" and event["epoch"] == 3:
            raise Pruned

    with pytest.raises(Pruned):
        gw.train(SPEC, f"{tmp_path}/run", epochs=100_000, progress=False, callbacks=prune)


def test_ctrl_c_leaves_a_checkpoint_and_the_run_goes_on(tmp_path: object) -> None:
    def interrupt() -> None:
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    begin = time.monotonic()

    def give_up(_: dict[str, object]) -> None:
        assert time.monotonic() - begin < 20, "nobody was interrupted"

    # Whoever starts tests in the background may have them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt) as caught:
            gw.train(SPEC, f"{tmp_path}/run", model="gcn", epochs=1_000_000, progress=False, callbacks=give_up)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 10
    assert "resume" in " ".join(getattr(caught.value, "__notes__", []))
    done = len(gw.Run(f"{tmp_path}/run").losses)
    assert len(gw.train(None, f"{tmp_path}/run", resume=True, epochs=done + 2, progress=False).losses) == done + 2


def test_two_threads_train_at_once(tmp_path: object) -> None:
    runs: dict[int, list[float]] = {}

    def work(k: int) -> None:
        runs[k] = gw.train(SPEC, f"{tmp_path}/{k}", model="gcn", epochs=5, progress=False).losses

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert runs[0] == runs[1]


def child(queue: multiprocessing.Queue[str]) -> None:
    try:
        dataset()
        queue.put("worked")
    except RuntimeError as error:
        queue.put(str(error))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_is_told_to_spawn() -> None:
    dataset()
    for method, expected in [("fork", "spawn"), ("spawn", "worked")]:
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        assert expected in queue.get(timeout=60)
        process.join()


def test_memory_does_not_grow_with_the_number_of_fits(tmp_path: object) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def fit(k: int) -> None:
        gw.train("sbm:60:3:4:f=8", f"{tmp_path}/{k}", model="gcn", hidden=8, epochs=1, progress=False)

    for k in range(20):
        fit(k)
    before = resident()
    for k in range(20, 80):
        fit(k)
    assert resident() - before < 16 * 2**20
