"""`gw.launch`: processes, what they are told, and what becomes of the others when one is lost. Needs no GPU: what is
launched here does not train.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from multiprocessing.popen_spawn_posix import Popen
from pathlib import Path

import graphweft as gw
import pytest


def tell(folder: str) -> None:
    """What a rank was told, in a file."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    Path(folder, os.environ["RANK"]).write_text(" ".join(os.environ[name] for name in names))


def fail(folder: str, seconds: float = 600) -> None:
    """The first rank ends badly, the other would wait for a long time."""
    if os.environ["RANK"] == "0":
        raise SystemExit(3)
    Path(folder, "waits").touch()
    time.sleep(seconds)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")


def test_every_rank_is_told_who_it_is(two_gpus: None, tmp_path: Path) -> None:
    gw.launch(tell, str(tmp_path))
    told = [(tmp_path / str(rank)).read_text().split() for rank in range(2)]
    assert [words[:3] for words in told] == [["0", "2", "0"], ["1", "2", "1"]]
    assert told[0][3:] == told[1][3:] and told[0][3] == "127.0.0.1"


def test_a_lost_rank_ends_the_others(two_gpus: None, tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(gw.RankLost, match="code 3"):
        gw.launch(fail, str(tmp_path))
    assert time.monotonic() - begin < 60


def test_a_rank_that_is_still_ending_is_waited_for(
    two_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process closes its files before the system says how it ended: whoever asks in between hears nothing."""
    poll = Popen.poll

    def late(process: Popen, flag: int = os.WNOHANG) -> int | None:
        """Nothing for those that do not wait, until somebody does."""
        return process.returncode if flag == os.WNOHANG else poll(process, flag)

    monkeypatch.setattr(Popen, "poll", late)
    with pytest.raises(gw.RankLost, match="code 3"):
        gw.launch(fail, str(tmp_path), 10)


def test_more_ranks_than_gpus_are_refused(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gw.UsageError, match="3 processes need a GPU each, and 2 are here"):
        gw.launch(tell, ranks=3)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(gw.UsageError, match="launcher"):
        gw.launch(tell)


PROGRAM = """
import graphweft as gw, sys
how = {"model": "gcn", "hidden": 8, "epochs": 3, "ranks": 2, "strategy": "halo", "progress": False}
print(gw.train("sbm:200:4:8:f=16", sys.argv[1], comm=sys.argv[2], **how).losses)
"""


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpiexec.mpich"])
def test_ranks_are_processes_of_mpi(launcher: str, tmp_path: Path) -> None:
    """A script that MPI's launcher starts trains as threads do, bit for bit, and every process has the result."""
    if shutil.which(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    # More processes than cores, also for root: what a test machine has.
    names = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
    env = os.environ | {f"OMPI_{name}": "1" for name in names} | {"OMPI_MCA_hwloc_base_binding_policy": "none"}

    def losses(command: list[str], comm: str) -> list[str]:
        command = [*command, sys.executable, "-c", PROGRAM, str(tmp_path / comm), comm]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=120).stdout.split("\n")[:-1]

    assert losses([launcher, "-n", "2"], "mpi") == losses([], "threads") * 2
