"""Runs the cases, several at a time, and says how it went."""

import argparse
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from . import checkpoints, commands, datasets, fixtures, imports, kills, outputs, own_data, parity, stamps, tables
from .room import Case, Failed, Room, Skipped, fingerprint, unchanged

FAMILIES = (datasets, stamps, commands, imports, own_data, tables, outputs, checkpoints, kills, parity)
ROOT = Path(__file__).resolve().parents[2]
LEAST = 400

# Set before the workers are forked.
_about: dict = {}


def main() -> int:
    # Started in the background or by nohup, these are ignored, and so would the program's processes that inherit it.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    args = arguments()
    program = args.program.resolve()
    if not program.is_file():
        print(f"there is no program {program}: build it with cargo build, or name it with --program", file=sys.stderr)
        return 2
    cases = [case for family in FAMILIES for case in family.cases(args.seed)]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    assert len(cases) >= LEAST, len(cases)
    chosen = [case for case in cases if re.search(args.only, case.name)]
    if args.list:
        print("\n".join(case.name for case in chosen))
        return 0
    root = Path(tempfile.mkdtemp(prefix="graphweft-adversary-"))
    print(f"{len(chosen)} of {len(cases)} cases, seed {args.seed}, {args.jobs} at a time, {program}", flush=True)
    began = time.monotonic()
    failures = attack(args, program, root, chosen)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    if failures:
        print(f"what failed is kept in {root}")
    else:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if failures else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Attacks the built program from outside.")
    parser.add_argument("--program", type=Path, default=ROOT / "target/debug/graphweft", help="the program to attack")
    parser.add_argument("--seed", type=int, default=21, help="other seeds draw other bytes, places and moments")
    parser.add_argument("--only", default="", metavar="REGEX", help="only cases whose names match")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="cases at a time")
    parser.add_argument("--list", action="store_true", help="only print the names of the cases")
    return parser.parse_args()


def attack(args: argparse.Namespace, program: Path, root: Path, chosen: list[Case]) -> int:
    """Runs the cases; prints failures as they come, all of them again at the end, and the summary."""
    base = root / "base"
    base.mkdir()
    try:
        fixtures.make(Room(program, base, base, random.Random(args.seed)))
    except (Failed, OSError) as e:
        print(f"the program cannot make what the cases start from: {e}\n0 passed, 1 failed, {len(chosen)} skipped")
        return 1
    _about.update(program=program, root=root, base=base, seed=args.seed, cases=chosen)
    kept = {name: fingerprint(base / name) for name in os.listdir(base) if name not in ("cache", "home")}
    results = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []

    def note(name: str, result: str, said: list[str], why: str):
        results[result] += 1
        if result == "failed":
            again = f"python3 fuzz/adversary.py --seed {args.seed} --program {program} --only '^{re.escape(name)}$'"
            failures.append("\n".join([f"FAILED {name}: {why}", *(f"    {line}" for line in said),
                                       f"    again: {again}"]))
            print(failures[-1], flush=True)
        elif result == "skipped":
            print(f"skipped {name}: {why}", flush=True)
        done = sum(results.values())
        if done % 50 == 0:
            print(f"  {done} of {len(chosen)}", flush=True)

    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        for result in pool.imap_unordered(one, range(len(chosen))):
            note(*result)
    for name, before in kept.items():
        try:
            unchanged(base / name, before, f"shared input {name}")
        except Failed as e:
            note(f"shared/{name}", "failed", [], str(e))
    if failures:
        print("\n" + "\n".join(failures))
    print(f"{results['passed']} passed, {results['failed']} failed, {results['skipped']} skipped")
    return len(failures)


def one(index: int) -> tuple[str, str, list[str], str]:
    """One case, in a worker."""
    case = _about["cases"][index]
    path = _about["root"] / (f"{index:03}-" + re.sub(r"[^\w.=-]+", "-", case.name)[:60])
    path.mkdir()
    room = Room(_about["program"], path, _about["base"], random.Random(f"{_about['seed']}/{case.name}"))
    try:
        case.body(room)
    except Failed as e:
        return case.name, "failed", room.said, str(e)
    except Skipped as e:
        shutil.rmtree(path, ignore_errors=True)
        return case.name, "skipped", room.said, str(e)
    except Exception as e:  # A mistake of ours is a failure too, and must not end the others.
        return case.name, "failed", room.said, f"the case itself failed: {type(e).__name__}: {e}"
    shutil.rmtree(path, ignore_errors=True)
    return case.name, "passed", room.said, ""
