"""Output paths that are no plain new files: never replaced, never half-written. Refused, or written through."""

import functools
import os
import stat
import subprocess
import threading
import time
from pathlib import Path

from .room import Case, Failed, Room, Skipped, fingerprint, tail, unchanged

# Commands that write one file, by the flag that names it.
FILES = {
    "predict": lambda to: ["predict", "run", "-o", to],
    "predict-csv": lambda to: ["predict", "run", "--what", "labels", "-o", to],
    "info-plot": lambda to: ["info", "--data", "plain", "--plot", to],
    "plan-plot": lambda to: ["plan", "--data", "plain", "--profile", "16-cpu-10g", "--model", "gcn", "--ranks", 2,
                             "--plot", to],
    "plan-scaling": lambda to: ["plan", "--simulate", "nodes=1e4,edges=1e5,features=8,classes=4,alpha=0.3", "--profile",
                                "h200x8",
                                "--ranks", 2, "--model", "gcn", "--scaling", to],
}  # fmt: skip
# Commands that make a folder.
FOLDERS = {
    "generate": lambda to: ["generate", "grid:9:9", "-o", to],
    "import": lambda to: ["import", "edge-list", "edges.txt", "-o", to],
    "partition": lambda to: ["partition", "--data", "plain", "-p", 2, "-o", to],
    "train": lambda to: ["train", "--data", "plain", "--model", "gcn", "train.epochs=2", "model.hidden=8", "-o", to],
}
BYTES = b"precious\n"


def cases(_seed: int) -> list[Case]:
    found = []
    for verb in FILES:
        for kind in ("fifo", "null", "full", "link", "dangling", "existing", "folder", "parent-file", "parent-missing",
                     "loop"):
            found.append(Case(f"outputs/{verb}-{kind}", functools.partial(file_one, verb, kind)))
        found.append(Case(f"outputs/{verb}-full-disk", functools.partial(full_disk, FILES[verb], target(verb))))
    for verb in FOLDERS:
        for kind in ("fifo", "null", "link", "dangling", "existing", "folder-with-file", "parent-file", "loop"):
            found.append(Case(f"outputs/{verb}-{kind}", functools.partial(folder_one, verb, kind)))
        found.append(Case(f"outputs/{verb}-full-disk", functools.partial(full_disk, FOLDERS[verb], "target")))
        found.append(Case(f"outputs/{verb}-limited", functools.partial(limited, FOLDERS[verb])))
    for kind in ("fifo", "null", "full", "link", "dangling", "existing", "folder", "parent-file", "parent-missing"):
        found.append(Case(f"outputs/log-{kind}", functools.partial(log_one, kind)))
    found.append(Case("outputs/stdout-full", stdout_full))
    found.append(Case("outputs/stdout-closed", stdout_closed))
    found.append(Case("outputs/run-full-disk-resumed", run_on_full_disk))
    found.append(Case("outputs/data-not-writable", not_writable))
    return found


def furnish(room: Room) -> None:
    for fixture in ("plain", "run"):
        room.copy(fixture)
    (room / "edges.txt").write_text("0 1\n1 2\n2 0\n")


def place(room: Room, kind: str, name: str = "target") -> str:
    """Puts something in the way and gives the path to write to."""
    at = room / name
    if kind == "fifo":
        os.mkfifo(at)
    elif kind in ("null", "full"):
        device(at, {"null": (1, 3), "full": (1, 7)}[kind])
    elif kind == "link":
        (room / "precious").write_bytes(BYTES)
        at.symlink_to("precious")
    elif kind == "dangling":
        at.symlink_to("nowhere")
    elif kind == "loop":
        at.symlink_to(name)
    elif kind in ("existing", "parent-file"):
        at.write_bytes(BYTES)
    elif kind in ("folder", "folder-with-file"):
        at.mkdir()
        (at / "precious").write_bytes(BYTES)
    return {"parent-file": f"{name}/{name}", "parent-missing": f"no/such/{name}"}.get(kind, name)


def device(at: Path, number: tuple[int, int]) -> None:
    """A device of our own: a program that replaces it must not be able to break the machine."""
    try:
        os.mknod(at, stat.S_IFCHR | 0o666, os.makedev(*number))
        os.close(os.open(at, os.O_WRONLY))
    except OSError as e:
        raise Skipped(f"no device can be made here: {e}") from e


def target(verb: str) -> str:
    """A name that the command takes."""
    return {"predict": "target.npy", "predict-csv": "target.csv"}.get(verb, "target.svg")


def file_one(verb, kind, room: Room):
    furnish(room)
    name = target(verb)
    to = place(room, kind, name)
    before, got = os.lstat(room / name) if os.path.lexists(room / name) else None, []
    reader = read_along(room / name, got) if kind == "fifo" else None
    want = {"null": {0, 2}, "fifo": {0, 2}, "link": {0, 2}, "dangling": {0, 1, 2}, "existing": {0, 2}, "full": {1, 2}}
    ended = room.run(*FILES[verb](to), want=want.get(kind, {1, 2, 3}), any_name=[to.split("/")[0], "svg", "npy", "csv"])
    if before is not None:
        after = os.lstat(room / name)
        if stat.S_IFMT(before.st_mode) != stat.S_IFMT(after.st_mode):
            raise Failed(f"the {kind} was replaced by another kind of file")
        if kind != "existing" and (before.st_ino, before.st_dev) != (after.st_ino, after.st_dev):
            raise Failed(f"the {kind} was replaced by another one")
    if reader is not None:
        reader.join()
        if ended.code == 0 and not any(got):
            raise Failed("exit 0, but nothing came through the fifo")
    kept = {"existing": name, "parent-file": name, "folder": f"{name}/precious", "link": "precious"}
    if kind in kept and (ended.code != 0 or kind == "folder") and (room / kept[kind]).read_bytes() != BYTES:
        raise Failed(f"{kept[kind]} was changed")
    if kind in ("link", "existing") and ended.code == 0 and (room / kept[kind]).read_bytes() == BYTES:
        raise Failed(f"exit 0, but nothing was written to {kept[kind]}")


def read_along(fifo: Path, got: list) -> threading.Thread:
    """Somebody who reads, as in `graphweft predict run -o >(…)`, without whom a writer would wait."""
    reader = threading.Thread(target=drain, args=(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), got), daemon=True)
    reader.start()
    return reader


def drain(end: int, got: list) -> None:
    """Reads what comes; ends when the other side has closed, or nobody has come for a while."""
    for _ in range(200):
        try:
            got.append(os.read(end, 1 << 16))
            if not got[-1] and any(got):
                break
        except BlockingIOError:
            pass
        time.sleep(0.01)
    os.close(end)


def log_one(kind, room: Room):
    """A log is added to what there is. Where it cannot be written that is said at once, not after the run."""
    furnish(room)
    to = place(room, kind)
    reader = read_along(room / "target", []) if kind == "fifo" else None
    want = {"fifo": {0, 2}, "full": {0, 1}, "null": {0, 2}, "link": {0, 2}, "dangling": {0, 2}, "existing": 0}
    before = os.lstat(room / "target") if os.path.lexists(room / "target") else None
    ended = room.run(*FOLDERS["train"]("out"), "--log", to, want=want.get(kind, {1, 2, 3}), any_name=[to, "log"])
    if reader:
        reader.join()
    if before and stat.S_IFMT(before.st_mode) != stat.S_IFMT(os.lstat(room / "target").st_mode):
        raise Failed(f"the {kind} was replaced by another kind of file")
    if kind in ("link", "existing") and not (room / "target").read_bytes().startswith(BYTES):
        raise Failed("what was in the file is gone")
    if ended.code != 0 and kind != "full":
        room.absent("out")


def folder_one(verb, kind, room: Room):
    furnish(room)
    to = place(room, kind)
    before = fingerprint(room.path)
    ended = room.run(*FOLDERS[verb](to), want={0, 1, 2, 3} if kind in ("dangling", "link") else {1, 2, 3},
                     names=["target"])
    if kind in ("dangling", "link") and ended.code == 0:
        if not (room / "target").is_symlink():
            raise Failed("the link was replaced")
        return
    unchanged(room.path, before | {"tmp": "folder"}, "after a refusal")


def full_disk(command, name, room: Room):
    """A disk of a few pages: an error with a remedy, and nothing stays on it."""
    furnish(room)
    disk = room / "disk"
    disk.mkdir()
    mount(disk)
    try:
        (disk / "precious").write_bytes(BYTES)
        with open(disk / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(512))
            except OSError:
                pass
        room.run(*command(f"disk/{name}"), want={1, 2, 4}, any_name=["disk", "space"])
        left = sorted(os.listdir(disk))
        if left not in (["filler", "precious"], ["filler", "precious", name]):
            raise Failed(f"on the full disk are {left}")
        if os.path.lexists(disk / name) and fingerprint(disk / name):
            raise Failed("on the full disk is a target that is half-written")
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def mount(at: Path, size="32k") -> None:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", at], capture_output=True, check=False)
    if done.returncode != 0:
        raise Skipped("no small disk can be mounted here")


def limited(command, room: Room):
    """Files that may not grow, which any user can ask of the system."""
    furnish(room)
    before = fingerprint(room.path)
    room.run(*command("target"), want={1, 2, 4}, any_name=["target", ".graphweft-"], file_size=100)
    made = room / "target"
    if made.exists() and any(path.is_file() and path.stat().st_size >= 100 for path in made.rglob("*")):
        raise Failed("target has a file that is cut")
    if command is not FOLDERS["train"]:
        unchanged(room.path, before | {"tmp": "folder"}, "after a failed write")


def stdout_full(room: Room):
    """A table that cannot be printed is a failure, not a success."""
    furnish(room)
    with open("/dev/full", "wb") as full:
        ended = room.wait(room.start("info", "--data", "plain", stdout=full))
    if ended.code != 1 or "panicked" in ended.err:
        raise Failed(f"exit {ended.code}, with stdout on a full disk: {tail(ended.err)}")


def stdout_closed(room: Room):
    """`graphweft info | head -0` is no failure that anybody wants to read about."""
    furnish(room)
    read, write = os.pipe()
    os.close(read)
    ended = room.wait(room.start("info", "--data", "plain", stdout=write))
    os.close(write)
    if ended.code != 0 or ended.err:
        raise Failed(f"exit {ended.code}, with nobody to read stdout: {tail(ended.err)}")


def run_on_full_disk(room: Room):
    """A run whose disk fills up fails with a remedy; with more space it goes on and ends with the same bytes."""
    room.copy("plain")
    disk = room / "disk"
    disk.mkdir()
    mount(disk, "120k")
    train = ["train", "--model", "gcn", "--data", "plain", "train.epochs=60", "run.checkpoint_every=5", "run.keep=9",
             "model.hidden=16"]
    try:
        room.run(*train, "-o", "disk/run", want={1, 4}, any_name=["disk", "space"])
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        room.run(*train, "-o", "disk/run", *(["--resume"] if (disk / "run/checkpoints").exists() else []))
        room.run(*train, "-o", "whole")
        for name in ("model.safetensors", "metrics.jsonl"):
            if (room / f"whole/{name}").read_bytes() != (disk / f"run/{name}").read_bytes():
                raise Failed(f"{name} differs from that of a run that was not interrupted")
        room.nothing_left()
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def not_writable(room: Room):
    """Data that may not be written to are used as they are; the stamp goes elsewhere."""
    folder = room.copy("plain")
    before = fingerprint(folder, ())
    for path in [folder, *folder.rglob("*")]:
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    room.run("info", "--data", "plain")
    room.run("partition", "--data", "plain", "-p", 2, want={0, 1} if os.geteuid() == 0 else 1)
    for path in [folder, *folder.rglob("*")]:
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    after = fingerprint(folder, ())
    if ".validated" in after or any(after.get(k) != v for k, v in before.items()):
        raise Failed("a folder that is marked read-only was written to")
