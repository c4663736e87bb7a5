#!/usr/bin/env bash
# The whole way of a user: a source archive, a wheel that is built from it alone, an environment that has neither Rust
# nor CUDA nor torch, and ten lines that train there, bit for bit as the program does.
#
#     crates/python/clean.sh [PROFILE]
#
# PROFILE is `release`, as users get it, or `dev`, which takes a third of the time. GRAPHWEFT names a program to compare
# with, GRAPHWEFT_SHARED a folder with data/cora; without them a generated graph is trained on and compared with itself.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD profile=${1:-release}
clean=$root/target/clean
rm -rf "$clean" && mkdir -p "$clean"
tools=$root/target/wheel-venv
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/pip" install -q 'maturin>=1.9,<2'
say() { echo "$1: $(($(date +%s) - since)) s"; since=$(date +%s); }
since=$(date +%s)
"$tools/bin/maturin" sdist --out "$clean/sdist" >"$clean/sdist.log" 2>&1
say "source archive, $(du -h "$clean"/sdist/*.tar.gz | cut -f1)"
# No build isolation: maturin is there. What cargo makes lies beside everything else.
PATH="$tools/bin:$PATH" CARGO_TARGET_DIR="$root/target/clean-build" MATURIN_PEP517_ARGS="--profile $profile --locked" \
    "$tools/bin/pip" wheel -q --no-deps --no-build-isolation --wheel-dir "$clean" "$clean"/sdist/*.tar.gz
say "wheel from it, $profile, $(du -h "$clean"/*.whl | cut -f1)"
python3 -m venv "$clean/venv"
since=$(date +%s)
"$clean/venv/bin/pip" install -q "$clean"/*.whl
say "pip install"
# An environment in which no compiler and no other package can be found.
alone=(env -i HOME="$clean" PATH=/usr/bin:/bin "$clean/venv/bin/python" -I)
"${alone[@]}" -c '
import importlib.util, shutil, sys
assert shutil.which("cargo") is None and importlib.util.find_spec("torch") is None, "this environment is not clean"
import graphweft as gw
assert gw.__file__.startswith(sys.prefix), gw.__file__
print("graphweft", gw.__version__)'
cora=${GRAPHWEFT_SHARED:-$root/../shared}/data/cora
cd "$clean"
if [ -d "$cora" ] && [ -n "${GRAPHWEFT:-}" ]; then
    "${alone[@]}" -c "import runpy, sys, json; sys.argv[1:] = ['$cora']
print(json.dumps(runpy.run_path('$root/crates/python/examples/cora.py')['run'].losses))" | tail -1 >ours.json
    "$GRAPHWEFT" train --data "$cora" --model gcn --epochs 20 --hidden 16 --lr 0.01 -o program --json |
        "${alone[@]}" -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["loss"]))' >theirs.json
    cmp ours.json theirs.json
    echo "cora: the same 20 losses as the program, bit for bit"
else
    "${alone[@]}" -c 'import graphweft as gw
a, b = (gw.train("sbm:200:4:8:f=16", model="gcn", epochs=5, progress=False).losses for _ in range(2))
assert a == b and a[-1] < a[0]'
    echo "a generated graph: trained; there is no program or no data/cora to compare with"
fi
say "training"
