"""Several processes on this machine, a GPU each, that NCCL connects."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ._errors import RankLost, UsageError


def _devices() -> int:
    """How many GPUs there are; asked without CUDA, which must not be started before processes are."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return len([one for one in named.split(",") if one.strip()])
    folder = "/proc/driver/nvidia/gpus"
    return len(os.listdir(folder)) if os.path.isdir(folder) else 0


def _work(
    rank: int, ranks: int, port: int, secret: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    own = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in own.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", GRAPHWEFT_SECRET=secret)
    function(*arguments)


def launch(function: Callable[..., Any], *arguments: Any, ranks: int | None = None) -> None:
    """Calls ``function(*arguments)`` in a process per GPU; in it, train with ``config={"parallel.comm": "nccl"}``.

    The function must be one that a new process can import. Scripts that ``torchrun`` starts need no launch.
    """
    import multiprocessing
    import secrets
    import socket
    from multiprocessing.connection import wait

    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        raise UsageError("a launcher has started this process already", remedy="call the function itself")
    found = _devices()
    count = found if ranks is None else ranks
    if not 1 <= count <= found:
        what = f"{count} processes need a GPU each, and {found} are here" if count else "there is no GPU here"
        raise UsageError(what, field="ranks", remedy="on processors ranks are threads: gw.train(..., ranks=4)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    own = (count, port, secrets.token_hex(16), function, arguments)
    working = [spawn.Process(target=_work, args=(rank, *own)) for rank in range(count)]
    for process in working:
        process.start()
    left = {process.sentinel: process for process in working}
    try:
        while left:
            for sentinel in wait(list(left)):
                ended = left.pop(sentinel)  # type: ignore[arg-type]
                # A process closes its files before the system knows how it ended.
                ended.join()
                if ended.exitcode:
                    raise RankLost(f"{ended.name} ended with code {ended.exitcode}", remedy="see what it printed")
    finally:
        # The others would wait for the one that is lost.
        for process in left.values():
            process.terminate()
        for process in working:
            process.join()
