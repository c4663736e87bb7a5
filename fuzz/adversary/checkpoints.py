"""Damaged checkpoints and models, and runs resumed in ways they should not be."""

import functools
import json
import os
import shutil
import signal
import time
from pathlib import Path

from .arrays import npy, read
from .fixtures import EPOCHS, EVERY, TRAIN
from .room import Case, Failed, Room, fingerprint, tail, unchanged

FILES = (
    "model.safetensors", "best.safetensors", "optimizer.safetensors", "state.json", "config.toml", "plan.json",
    "partition.safetensors", "metrics.jsonl", "manifest.sha256",
)  # fmt: skip
NEWEST, OLDER = EPOCHS - EVERY, EPOCHS - 2 * EVERY
RESUME = (*TRAIN, "-o", "run", "--resume")
SAME = ("model.safetensors", "metrics.jsonl")


def cases(_seed: int) -> list[Case]:
    found = []

    def case(name, body, *args):
        found.append(Case(f"checkpoints/{name}", functools.partial(body, *args)))

    for name in FILES:
        for damage in ("flip", "cut", "empty", "missing", "grown"):
            case(f"newest/{name}-{damage}", newest_damaged, name, damage)
        case(f"all/{name}", all_damaged, name)
        case(f"eval/{name}", eval_damaged, name)
    for k in range(10):
        case(f"flips/model-{k}", model_flipped, "flip")
    for damage in ("cut", "empty", "grown"):
        case(f"model/{damage}", model_flipped, damage)
    for value in ("nan", "inf"):
        case(f"model/{value}", model_not_finite, value)
    for verb in ("eval", "predict"):
        for damage in ("flip", "cut", "missing", "no-folder"):
            case(f"seeds/{verb}-{damage}", seed_damaged, verb, damage)
    for name, body in {
        "typo": typo, "other-run": other_run, "own-checkpoint": own_checkpoint, "changed-data": changed_data,
        "moved-data": moved_data,
        "linked-data": linked_data, "other-graph": other_graph, "two-at-once": two_at_once, "existing": existing,
        "foreign": foreign,
        "config-edited": config_edited, "config-missing": config_missing, "all-missing": all_missing, "over": over,
        "longer": longer,
        "checkpoint-of-other-model": other_model, "metrics-cut": metrics_cut, "eval-while-unfinished": eval_unfinished,
        "checkpoints-is-file": checkpoints_is_file, "step-is-file": step_is_file, "changed-setting": changed_setting,
        "result-damaged": result_damaged, "plan-damaged": plan_damaged, "stray-names": stray_names,
    }.items():  # fmt: skip
        case(f"resume/{name}", body)
    return found


def unfinished(room: Room) -> Path:
    """A copy of the run as if it had been killed after its last but one checkpoint."""
    run = room.copy("run")
    shutil.rmtree(run / f"checkpoints/step-{EPOCHS:06}")
    for name in ("result.json", "model.safetensors", "predictions.npy", "curve.svg"):
        (run / name).unlink(missing_ok=True)
    return run


def again(room: Room, *more, want=0, **how):
    """Resumes on the data that the run was trained on."""
    return room.run(*RESUME, "--data", room.base / "plain", *more, want=want, **how)


def damage_file(path: Path, damage: str, room: Room) -> None:
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[room.rng.randrange(len(data))] ^= 1 << room.rng.randrange(8)
    elif damage == "cut":
        data = data[: room.rng.randrange(1, len(data))]
    elif damage == "empty":
        data = bytearray()
    elif damage == "grown":
        data += b"x"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data)


def step(run: Path, epoch: int) -> Path:
    return run / f"checkpoints/step-{epoch:06}"


def same_end(room: Room, run: Path) -> None:
    """The run ended with the bytes of the one that was never interrupted."""
    for name in SAME:
        if (run / name).read_bytes() != (room.base / "run" / name).read_bytes():
            raise Failed(f"{name} differs from that of a run that was not interrupted")


def newest_damaged(name, damage, room: Room):
    """The older one is taken, that is said, and the end is the same."""
    run = unfinished(room)
    damage_file(step(run, NEWEST) / name, damage, room)
    ended = again(room)
    if f"step-{NEWEST:06}" not in ended.err or f"step-{OLDER:06}" not in ended.err:
        raise Failed(f"it does not say which checkpoint is damaged and which is used: {tail(ended.err)}")
    same_end(room, run)


def all_damaged(name, room: Room):
    """Nothing is left to go on from: exit 3, and everything stays where it is."""
    run = unfinished(room)
    for folder in sorted((run / "checkpoints").iterdir()):
        damage_file(folder / name, room.rng.choice(("flip", "cut", "missing")), room)
    before = fingerprint(run)
    again(room, want=3, any_name=["checkpoint"])
    unchanged(run, before, "run")


def all_missing(room: Room):
    """Folders without anything in them were checkpoints once."""
    run = unfinished(room)
    for folder in (run / "checkpoints").iterdir():
        shutil.rmtree(folder)
        folder.mkdir()
    before = fingerprint(run)
    again(room, want=3, any_name=["checkpoint"])
    unchanged(run, before, "run")


def eval_damaged(name, room: Room):
    """A checkpoint by name is used as it is, or refused with the name of the file."""
    run = room.copy("run")
    damage_file(step(run, EPOCHS) / name, room.rng.choice(("flip", "cut", "missing")), room)
    verb = room.rng.choice((["eval"], ["predict", "-o", "p.npy"]))
    # The manifest is what says that a folder is a checkpoint.
    any_name = [name, "manifest"] if name != "manifest.sha256" else ["step-"]
    room.run(*verb, step(run, EPOCHS).relative_to(room.path), "--data", room.base / "plain", want=3, any_name=any_name)
    room.absent("p.npy")


def model_flipped(damage, room: Room):
    """No byte of a run's model changes unnoticed: refused with its name, or the same predictions."""
    run = room.copy("run")
    damage_file(run / "model.safetensors", damage, room)
    ended = room.run("predict", "run", "--data", room.base / "plain", "-o", "p.npy", want={0, 3},
                     names=["model.safetensors"])
    if ended.code == 0 and (room / "p.npy").read_bytes() != (run / "predictions.npy").read_bytes():
        raise Failed("a damaged model went unnoticed, and predicts something else")
    ended = room.run("eval", "run", "--data", room.base / "plain", want={0, 3}, names=["model.safetensors"])


def seed_damaged(verb, damage, room: Room):
    """One of several seeds is damaged: it is named, not left out of the mean."""
    seeds = room.copy("seeds")
    command = [verb, "seeds", "--data", room.base / "plain", *(["-o", "p.npy"] if verb == "predict" else [])]
    room.run(*command)
    (room / "p.npy").unlink(missing_ok=True)
    which = f"seed-{room.rng.randrange(3)}"
    if damage == "no-folder":
        shutil.rmtree(seeds / which)
    else:
        # Without the model, the checkpoint of the last epoch may serve.
        damage_file(seeds / which / "model.safetensors", damage, room)
    ended = room.run(*command, want={0, 3} if damage == "missing" else 3, names=[which])
    if ended.code != 0:
        room.absent("p.npy")


def model_not_finite(value, room: Room):
    """A file that was made elsewhere and has no hash, with weights that are no numbers: its logits are no result."""
    run = room.copy("run")
    data = bytearray((run / "model.safetensors").read_bytes())
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    first = next(about for name, about in sorted(head.items()) if name != "__metadata__")
    at = 8 + length + first["data_offsets"][0]
    data[at : at + 4] = {"nan": b"\0\0\xc0\x7f", "inf": b"\0\0\x80\x7f"}[value]
    (room / "bare").mkdir()
    (room / "bare/weights.safetensors").write_bytes(data)
    shutil.copy(run / "config.toml", room / "bare/config.toml")
    for verb in (["eval"], ["predict", "-o", "p.npy"]):
        room.run(*verb, "bare/weights.safetensors", "--data", room.base / "plain", want={1, 3},
                 any_name=["weights.safetensors", "finite"])
    room.absent("p.npy")


def typo(room: Room):
    """A folder that is not there is not gone on with. Who names the data as well may mean both: to begin, or to go on."""
    room.run("train", "--resume", "-o", "TYPO", want={2, 3}, names=["TYPO"])
    room.absent("TYPO", "runs")
    ended = room.run(*TRAIN, "--resume", "-o", "TYPO", "--data", room.base / "plain", want={0, 2, 3}, names=["TYPO"])
    if ended.code == 0 and "TYPO" not in ended.err:
        raise Failed("it began anew without saying so")


def other_run(room: Room):
    """A checkpoint of another run does not overwrite this one."""
    run = room.copy("run")
    other = room.copy("run2")
    before = fingerprint(run)
    checkpoint = step(other, OLDER).relative_to(room.path)
    room.run(*TRAIN, "-o", "run", f"--resume={checkpoint}", "--data", room.base / "plain", "--seed", 7, want={2, 3},
             names=["run"])
    unchanged(run, before, "run")
    room.run("train", "-o", "run", f"--resume={checkpoint}", want={2, 3}, names=["run"])
    unchanged(run, before, "run")


def own_checkpoint(room: Room):
    """From one of its own it may go back, and ends in the same way."""
    run = room.copy("run")
    room.run(*TRAIN, "-o", "run", f"--resume={step(run, OLDER).relative_to(room.path)}", "--data", room.base / "plain")
    same_end(room, run)


def changed_data(room: Room):
    """Other features under the same path: this is another run."""
    data = room.copy("plain", "mine")
    room.run(*TRAIN, "--data", "mine", "-o", "run")
    shutil.rmtree(step(room / "run", EPOCHS))
    (room / "run/result.json").unlink()
    descr, shape, elements = read((data / "feat.npy").read_bytes())
    elements[room.rng.randrange(len(elements))] += 1.0
    (data / "feat.npy").write_bytes(npy(descr, shape, elements))
    before = fingerprint(room / "run")
    room.run("train", "-o", "run", "--resume", want={2, 3}, any_name=["data", "mine"])
    unchanged(room / "run", before, "run")


def moved_data(room: Room):
    """Data that are not there are not replaced by others; where they are now, they may be named."""
    data = room.copy("plain", "mine")
    room.run(*TRAIN, "--data", "mine", "-o", "run")
    shutil.rmtree(step(room / "run", EPOCHS))
    (room / "run/result.json").unlink()
    os.rename(data, room / "moved")
    before = fingerprint(room / "run")
    room.run("train", "-o", "run", "--resume", want={2, 3}, names=["mine"])
    unchanged(room / "run", before, "run")
    if room.run("train", "-o", "run", "--resume", "--data", "moved", want={0, 2, 3}, any_name=["data"]).code == 0:
        same_end(room, room / "run")
    else:
        unchanged(room / "run", before, "run")


def linked_data(room: Room):
    """Another name of the same folder is the same folder."""
    room.copy("plain", "mine")
    (room / "link").symlink_to("mine")
    room.run(*TRAIN, "--data", "mine", "-o", "run")
    shutil.rmtree(step(room / "run", EPOCHS))
    (room / "run/result.json").unlink()
    room.run("train", "-o", "run", "--resume", "--data", "./link/../link")
    same_end(room, room / "run")


def other_graph(room: Room):
    run = unfinished(room)
    before = fingerprint(run)
    room.run(*RESUME, "--data", room.base / "other", want={2, 3}, any_name=["data", "other"])
    unchanged(run, before, "run")


def two_at_once(room: Room):
    """Of two processes in one folder, the second is refused."""
    first = room.start("train", "--data", room.base / "plain", "--model", "gcn", "-o", "run", "train.epochs=1000000",
                       "model.hidden=8")
    try:
        for _ in range(500):
            if (room / "run/metrics.jsonl").exists():
                break
            time.sleep(0.02)
        for more in ([], ["--resume"]):
            room.run(*TRAIN, "--data", room.base / "plain", "-o", "run", *more, want=2, names=["run"], clean=False)
    finally:
        os.kill(first.pid, signal.SIGTERM)
    room.judge(room.wait(first), 75)
    room.nothing_left()


def existing(room: Room):
    run = room.copy("run")
    before = fingerprint(run)
    room.run(*TRAIN, "--data", room.base / "plain", "-o", "run", want=2, names=["run"])
    unchanged(run, before, "run")


def foreign(room: Room):
    """A folder that no run has made is not written to."""
    (room / "home").mkdir()
    (room / "home/thesis.tex").write_text("precious")
    before = fingerprint(room / "home")
    for more in ([], ["--resume"]):
        room.run(*TRAIN, "--data", room.base / "plain", "-o", "home", *more, want={2, 3}, names=["home"])
    unchanged(room / "home", before, "home")


def config_edited(room: Room):
    """The file says something else than the checkpoints: refused, or said."""
    run = unfinished(room)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("hidden = 16", "hidden = 32"))
    ended = room.run("train", "-o", "run", "--resume", want={0, 2, 3}, any_name=["hidden", "config"])
    if ended.code == 0:
        same_end(room, run)


def config_missing(room: Room):
    """The checkpoints have it too: the run goes on as it was, or is refused; it does not become another one."""
    run = unfinished(room)
    (run / "config.toml").unlink()
    ended = room.run("train", "-o", "run", "--resume", want={0, 2, 3}, any_name=["config"])
    if ended.code == 0:
        same_end(room, run)


def over(room: Room):
    """A run that is over stays as it is."""
    run = room.copy("run")
    again(room)
    same_end(room, run)


def longer(room: Room):
    """More epochs are asked for: it goes on from where it ended."""
    run = room.copy("run")
    room.run("train", "-o", "run", "--resume", f"train.epochs={EPOCHS + EVERY}")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    if len(lines) != EPOCHS + EVERY or lines[:EPOCHS] != (room.base / "run/metrics.jsonl").read_text().splitlines():
        raise Failed("metrics.jsonl is not that of the first run, continued")


def other_model(room: Room):
    run = unfinished(room)
    before = fingerprint(run)
    room.run("train", "-o", "run", "--resume", "--model", "sage", want={2, 3}, any_name=["model"])
    unchanged(run, before, "run")


def changed_setting(room: Room):
    """Another learning rate: refused, or said; the user decides, not chance."""
    run = unfinished(room)
    before = fingerprint(run)
    ended = room.run("train", "-o", "run", "--resume", "train.lr=0.5", want={0, 2, 3}, any_name=["lr"])
    if ended.code != 0:
        unchanged(run, before, "run")


def metrics_cut(room: Room):
    """Lines beyond the checkpoint, half a line at the end: taken back to the checkpoint."""
    run = unfinished(room)
    data = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(data[: room.rng.randrange(len(data))])
    again(room)
    same_end(room, run)


def eval_unfinished(room: Room):
    unfinished(room)
    room.run("eval", "run", "--data", room.base / "plain")
    room.run("predict", "run", "--data", room.base / "plain", "-o", "p.npy")


def checkpoints_is_file(room: Room):
    run = unfinished(room)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").write_text("x")
    before = fingerprint(run)
    again(room, want={1, 2, 3}, names=["checkpoints"])
    unchanged(run, before, "run")


def step_is_file(room: Room):
    """Something in the place of the newest one: an older one is taken."""
    run = unfinished(room)
    shutil.rmtree(step(run, NEWEST))
    step(run, NEWEST).write_text("x")
    ended = again(room, want={0, 1, 2, 3}, any_name=[f"step-{NEWEST:06}"])
    if ended.code == 0:
        same_end(room, run)


def result_damaged(room: Room):
    run = room.copy("run")
    (run / "result.json").write_text("{")
    again(room, want={0, 3}, any_name=["result.json"])


def plan_damaged(room: Room):
    run = unfinished(room)
    (run / "plan.json").write_text("{")
    ended = again(room, want={0, 3}, any_name=["plan.json"])
    if ended.code == 0:
        same_end(room, run)


def stray_names(room: Room):
    """Names that look like checkpoints, or like what a killed run leaves."""
    run = unfinished(room)
    for name in ("step-", "step-x", f"step-{10**30}", "step--5", ".step-000099.partial", "notes.txt"):
        (run / "checkpoints" / name).mkdir()
    again(room, clean=False)
    same_end(room, run)
