"""Signals at seeded moments: a run that is resumed ends with the same bytes; other commands end at once and leave
nothing."""

import functools
import os
import shutil
import signal
import time
from pathlib import Path

from .room import Case, Failed, Room, fingerprint, tail, unchanged

# Long enough to be hit, about half a second.
EPOCHS = 600
RUN = ("train", "--model", "gcn", f"train.epochs={EPOCHS}", "run.checkpoint_every=50", "run.keep=3", "model.hidden=16",
       "train.dropout=0.3")
SAME = ("model.safetensors", "metrics.jsonl", "predictions.npy")
AT_ONCE_S = 5.0
# Commands that take seconds when nobody stops them; the import is the shortest.
LONG = {
    "generate": ["generate", "rmat:21:16:f=16", "-o", "out"],
    "generate-sbm": ["generate", "sbm:1000000:10:30:f=32", "-o", "out"],
    "import": ["import", "edge-list", "edges.txt", "-o", "out", "--memory", "1MiB"],
    "partition": ["partition", "--graph", "rmat:20:16", "-p", 8, "-o", "part"],
    "partition-metis": ["partition", "--graph", "rmat:19:16", "--symmetrise", "--method", "metis", "-p", 8, "-o",
                        "part"],
    "plan": ["plan", "--graph", "rmat:19:16:f=8:c=4", "--ranks", 8, "--profile", "h200x8", "--plot", "p.svg"],
    "plan-calibrate": ["plan", "--calibrate", "-o", "machine.toml"],
    "info": ["info", "--graph", "rmat:19:16", "--partition", "--plot", "p.svg"],
    "bench": ["bench", "train", "--graph", "rmat:16:16:f=64:c=8"],
    "train-before": ["train", "--graph", "rmat:15:16:f=8:c=4", "--model", "gt", "-o", "out", "model.hidden=32"],
    "train-encoding": ["train", "--graph", "sbm:100000:4:20:f=8", "encoding.laplacian=64", "-o", "out"],
}  # fmt: skip


def cases(_seed: int) -> list[Case]:
    found = []
    for which in ("SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"):
        for k in range(5):
            found.append(Case(f"kills/{which}-{k}", functools.partial(killed, which)))
    for ranks, strategy in ((2, "halo"), (2, "ring")):
        for which in ("SIGTERM", "SIGKILL"):
            found.append(Case(f"kills/{which}-{strategy}", functools.partial(killed, which, ranks=ranks,
                                                                             strategy=strategy)))
    found.append(Case("kills/SIGKILL-many-times", many_times))
    found.append(Case("kills/SIGTERM-seeds", of_seeds))
    found.append(Case("kills/SIGTERM-twice", twice))
    found.append(Case("kills/SIGTERM-of-endless", endless))
    found.append(Case("kills/SIGHUP-under-nohup", nohup))
    for name in LONG:
        which = "SIGHUP" if name in ("generate-sbm", "info") else "SIGINT" if name == "partition-metis" else "SIGTERM"
        found.append(Case(f"kills/{which}-of-{name}", functools.partial(stopped, name, which)))
    found.append(Case("kills/SIGTERM-of-predict", of_predict))
    return found


def whole(room: Room, *more) -> float:
    """The same run without an interruption; how long it took."""
    began = time.monotonic()
    room.run(*RUN, "--data", room.base / "plain", "-o", "whole", *more)
    return time.monotonic() - began


def same(room: Room) -> None:
    for name in SAME:
        if (room / "run" / name).read_bytes() != (room / "whole" / name).read_bytes():
            raise Failed(f"{name} differs from that of a run that was not interrupted")
    lost = steps(room / "whole") - steps(room / "run")
    if lost:
        raise Failed(f"a run that was not interrupted has checkpoints {sorted(lost)} too")


def steps(run: Path) -> set[str]:
    """Its checkpoints. Who is killed after the last one, before old ones are removed, leaves one more."""
    return {path.name for path in (run / "checkpoints").iterdir()}


def interrupt(room: Room, which: str, after: float, *args) -> None:
    """Starts, waits, sends. A signal before the program listens may end it as signals do."""
    process = room.start(*args)
    time.sleep(after)
    os.kill(process.pid, getattr(signal, which))
    sent = time.monotonic()
    ended = room.wait(process)
    if time.monotonic() - sent > AT_ONCE_S:
        raise Failed(f"it took {time.monotonic() - sent:.1f} s to stop")
    room.said.append(f"  {which} after {after:.3f} s: exit {ended.code}")
    if which == "SIGKILL":
        return
    listened = ended.code != -getattr(signal, which) or "epoch" in ended.err or (room / "run/metrics.jsonl").exists()
    if listened:
        room.judge(ended, {0, 75})
        room.nothing_left()


def killed(which, room: Room, ranks=1, strategy="auto"):
    more = ["--ranks", ranks, "--strategy", strategy] if ranks > 1 else []
    seconds = whole(room, *more)
    interrupt(room, which, room.rng.uniform(0.02, 0.9) * seconds, *RUN, "--data", room.base / "plain", "-o", "run",
              *more)
    resume(room, *more)
    same(room)
    if which != "SIGKILL" and steps(room / "run") != steps(room / "whole"):
        raise Failed(f"other checkpoints than those of a run that was not interrupted: {sorted(steps(room / 'run'))}")


def resume(room: Room, *more) -> None:
    """Goes on, or begins where nothing was left to go on from."""
    begun = (room / "run/config.toml").exists()
    if not begun:
        shutil.rmtree(room / "run", ignore_errors=True)
    room.run(*RUN, "--data", room.base / "plain", "-o", "run", *(["--resume"] if begun else []), *more)


def many_times(room: Room):
    seconds = whole(room)
    for _ in range(6):
        begun = ["--resume"] if (room / "run/config.toml").exists() else []
        interrupt(room, "SIGKILL", room.rng.uniform(0.05, 0.6) * seconds, *RUN, "--data", room.base / "plain", "-o",
                  "run", *begun)
    resume(room)
    same(room)
    room.nothing_left()


def of_seeds(room: Room):
    """Between and inside seeds."""
    args = (*RUN, "train.epochs=100", "--seeds", 3, "--data", room.base / "plain")
    began = time.monotonic()
    room.run(*args, "-o", "whole")
    seconds = time.monotonic() - began
    interrupt(room, "SIGTERM", room.rng.uniform(0.2, 0.8) * seconds, *args, "-o", "run")
    begun = (room / "run/config.toml").exists()
    room.run(*args, "-o", "run", *(["--resume"] if begun else []))
    for seed in range(3):
        for name in SAME:
            if (room / f"run/seed-{seed}/{name}").read_bytes() != (room / f"whole/seed-{seed}/{name}").read_bytes():
                raise Failed(f"seed-{seed}/{name} differs from that of a run that was not interrupted")


def twice(room: Room):
    """The second signal ends it at once; what is there can still be resumed."""
    whole(room)
    process = room.start(*RUN, "--data", room.base / "plain", "-o", "run")
    time.sleep(room.rng.uniform(0.05, 0.3))
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGTERM)
    ended = room.wait(process)
    if "panicked" in ended.err:
        raise Failed(tail(ended.err))
    resume(room)
    same(room)


def nohup(room: Room):
    """Who started it with nohup wants it to go on when the terminal is gone."""
    seconds = whole(room)
    process = room.start(*RUN, "--data", room.base / "plain", "-o", "run", ignored=[signal.SIGHUP])
    time.sleep(0.4 * seconds)
    os.kill(process.pid, signal.SIGHUP)
    room.judge(room.wait(process), 0)
    same(room)


def endless(room: Room):
    """More epochs than anybody has time for cost nothing before they are trained."""
    process = room.start("train", "--data", room.base / "plain", "--model", "gcn", "-o", "run",
                         f"train.epochs={10**9}", "model.hidden=8")
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGTERM)
    room.judge(room.wait(process), 75, names=["--resume"])
    room.nothing_left()


def stopped(name, which, room: Room):
    """Ends soon after the signal, by the signal or with its own exit code, and leaves nothing, hidden or not."""
    args = LONG[name]
    if name == "import":
        count = 5_000_000
        numbers = [room.rng.randrange(300_000) for _ in range(1000)]
        lines = "".join(f"{a} {numbers[-i]}\n" for i, a in enumerate(numbers))
        with open(room / "edges.txt", "w") as file:
            for _ in range(count // 1000):
                file.write(lines)
    before = fingerprint(room.path)
    process = room.start(*args, file_size=8 << 30)
    # After it has begun to listen: before that, any program ends as the system says.
    time.sleep(room.rng.uniform(0.1, 0.25) if name == "import" else room.rng.uniform(0.3, 1.2))
    os.kill(process.pid, getattr(signal, which))
    sent = time.monotonic()
    ended = room.wait(process)
    took = time.monotonic() - sent
    room.said.append(f"  {which}: exit {ended.code} after {took:.1f} s")
    if took > AT_ONCE_S:
        raise Failed(f"it took {took:.1f} s to stop")
    if ended.code == 0:
        return
    room.nothing_left()
    after = fingerprint(room.path)
    after.pop("tmp", None)
    before.pop("tmp", None)
    left = sorted(after.keys() - before.keys())
    if name.startswith("train"):
        left = [key for key in left if not key.startswith("out")]
    if left:
        raise Failed(f"{left[0]} was left behind")
    if ended.code > 0:
        room.judge(ended, 75)


def of_predict(room: Room):
    """A file that was there stays until the new one is whole."""
    room.copy("run")
    (room / "p.npy").write_text("old")
    before = fingerprint(room / "p.npy")
    process = room.start("predict", "run", "--graph", "sbm:500000:4:6:f=8", "-o", "p.npy")
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGTERM)
    ended = room.wait(process, 10)
    if ended.code != 0:
        unchanged(room / "p.npy", before, "p.npy")
    room.nothing_left()


