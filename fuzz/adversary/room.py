"""A room is the temporary folder of one case; every command runs in it under limits, and is held to the rules of all
commands."""

import hashlib
import os
import random
import resource
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

CODES = {0, 1, 2, 3, 4, 5, 75}
DEADLINE_S = 30.0
ADDRESS_SPACE = 6 << 30
RESIDENT = 2 << 30
FILE_SIZE = 1 << 30
# What writers leave if they do not clean up.
LEFTOVERS = ((".graphweft-", ""), ("", ".partial"), (".step-", ""))


class Failed(Exception):
    """The program did what it must not."""


class Skipped(Exception):
    """This machine cannot ask the question."""


@dataclass
class Case:
    """One question to the program."""

    name: str
    body: Callable[["Room"], None]


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float
    peak: int


@dataclass
class Room:
    """Where a case happens."""

    program: Path
    path: Path
    base: Path
    rng: random.Random
    said: list[str] = field(default_factory=list)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def copy(self, fixture: str, name: str | None = None) -> Path:
        """A copy of a fixture, without the stamp of its validation."""
        to = self.path / (name or fixture)
        shutil.copytree(self.base / fixture, to, symlinks=True, ignore=shutil.ignore_patterns(".validated"))
        return to

    def start(self, *args, stdout=subprocess.PIPE, file_size=FILE_SIZE, ignored=()) -> subprocess.Popen:
        """Starts the program in this room. Signals go to its pid by `os.kill`: Popen would take its exit status away
        from `wait`."""
        words = [str(a) for a in args]
        self.said.append(shlex.join(["graphweft", *words]) if sum(map(len, words)) < 2000
                         else f"graphweft {words[0]} …")

        def limits():
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            # A file that grows beyond its limit is an error then, not a signal.
            for each in (signal.SIGXFSZ, *ignored):
                signal.signal(each, signal.SIG_IGN)

        scratch = self.path / "tmp"
        scratch.mkdir(exist_ok=True)
        around = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.base / "home"), "TMPDIR": str(scratch)}
        # A GPU's driver takes more address space than any limit here.
        around["CUDA_VISIBLE_DEVICES"] = ""
        around["GRAPHWEFT_CACHE"] = str(self.base / "cache")
        if "LD_LIBRARY_PATH" in os.environ:
            around["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        return subprocess.Popen(
            [self.program, *words], cwd=self.path, env=around, stdin=subprocess.DEVNULL, stdout=stdout,
            stderr=subprocess.PIPE, preexec_fn=limits, restore_signals=False,
        )  # fmt: skip

    def wait(self, process: subprocess.Popen, deadline=DEADLINE_S) -> Ended:
        """Waits for a command, and ends it where it does not end."""
        began, pieces = time.monotonic(), {stream: [] for stream in (process.stdout, process.stderr) if stream}
        with selectors.DefaultSelector() as both:
            for stream in pieces:
                both.register(stream, selectors.EVENT_READ)
            while both.get_map():
                left = began + deadline - time.monotonic()
                ready = both.select(max(left, 0))
                if not ready and left <= 0:
                    process.kill()
                    process.wait()
                    raise Failed(f"it did not end within {deadline:.0f} s")
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    pieces[key.fileobj].append(piece)
                    if not piece:
                        both.unregister(key.fileobj)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out, err = (b"".join(pieces.get(s, [])).decode(errors="replace") for s in (process.stdout, process.stderr))
        for stream in pieces:
            stream.close()
        return Ended(process.returncode, out, err, time.monotonic() - began, usage.ru_maxrss << 10)

    def run(self, *args, want=0, names=(), any_name=(), clean=True, deadline=DEADLINE_S, **how) -> Ended:
        """Runs a command that must end with one of `want`; `names` must stand in its message, and one of `any_name`."""
        ended = self.wait(self.start(*args, **how), deadline)
        self.judge(ended, want, names, any_name)
        if clean:
            self.nothing_left()
        return ended

    def judge(self, ended: Ended, want, names=(), any_name=()) -> None:
        """The rules of all commands."""
        wanted, err = ({want} if isinstance(want, int) else set(want)), ended.err
        for word in ("panicked at", "RUST_BACKTRACE", "memory allocation of"):
            if word in err:
                raise Failed(f"it panicked (exit {ended.code}): {tail(err)}")
        if ended.code < 0:
            raise Failed(f"it died by signal {-ended.code}: {tail(err)}")
        if ended.code not in CODES:
            raise Failed(f"exit {ended.code} is not documented: {tail(err)}")
        if ended.code not in wanted:
            raise Failed(f"exit {ended.code}, expected {sorted(wanted)}: {tail(err)}")
        if ended.peak > RESIDENT:
            raise Failed(f"it took {ended.peak >> 20} MiB of memory")
        if ended.code != 0:
            # The parser of the command line has its own form.
            usage = ended.code == 2 and ("Usage:" in err or "try '--help'" in err)
            # Who asked it to stop knows what to do; where a run can go on, a case asks for how.
            asked = ended.code == 75 and "error:" in err
            if not (usage or asked) and not ("error:" in err and "remedy:" in err):
                raise Failed(f"exit {ended.code} without an error and its remedy: {tail(err)}")
            for name in names:
                if name not in err:
                    raise Failed(f"the error does not name {name}: {tail(err)}")
            if any_name and not any(name in err for name in any_name):
                raise Failed(f"the error names none of {', '.join(any_name)}: {tail(err)}")

    def nothing_left(self) -> None:
        """Nothing half-written is in the room."""
        for folder, folders, files in os.walk(self.path):
            for name in folders + files:
                if any(name.startswith(a) and name.endswith(z) for a, z in LEFTOVERS):
                    raise Failed(f"{os.path.relpath(os.path.join(folder, name), self.path)} was left behind")
        left = os.listdir(self.path / "tmp") if (self.path / "tmp").exists() else []
        if left:
            raise Failed(f"tmp/{left[0]} was left behind")

    def absent(self, *names) -> None:
        """A refused command has made none of these."""
        for name in names:
            if os.path.lexists(self.path / name):
                raise Failed(f"{name} was made although the command failed")


def tail(text: str) -> str:
    """The part of a message that says most."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-4:])[:500] or "no message"


def fingerprint(path: Path, leave_out=(".validated",)) -> dict[str, str]:
    """What is in a folder or file: kind and content by name."""
    if path.is_file() and not path.is_symlink():
        return {".": hashlib.sha256(path.read_bytes()).hexdigest()}
    found = {}
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            if name in leave_out:
                continue
            at = Path(folder) / name
            key = str(at.relative_to(path))
            if at.is_symlink():
                found[key] = f"link to {os.readlink(at)}"
            elif at.is_file():
                found[key] = hashlib.sha256(at.read_bytes()).hexdigest()
            else:
                found[key] = "folder" if at.is_dir() else "special"
    return found


def unchanged(path: Path, before: dict[str, str], what: str) -> None:
    """Fails where a folder is not as it was."""
    after = fingerprint(path)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            state = "is new" if key not in before else "is gone" if key not in after else "has changed"
            raise Failed(f"{what}: {key} {state}")
