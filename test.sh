#!/usr/bin/env bash
# Installs what the tests need, then runs all of them (--install: only that). Tests over the real graphs run where these
# are (GRAPHWEFT_SHARED, or ../shared beside this checkout) and are reported as skipped elsewhere. GPU kernels are
# compiled, not run, by NVIDIA's compiler from its Python package, if that can be installed (GRAPHWEFT_NVRTC names a
# folder that has it already); tests that need a GPU are reported as skipped: run the test binary with --ignored where
# there is one.
set -euo pipefail
cd "$(dirname "$0")"

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

command -v cargo >/dev/null || { echo "install Rust first (rustup, stable toolchain)" >&2; exit 1; }
command -v cc >/dev/null || { as_root apt-get update -q && as_root apt-get install -qy build-essential; }
# Ranks as processes: two MPIs with their launchers. Nothing of them is needed to build.
command -v mpirun.openmpi >/dev/null && command -v mpiexec.mpich >/dev/null ||
  { as_root apt-get update -q && as_root apt-get install -qy openmpi-bin mpich; }
command -v python3 >/dev/null || { as_root apt-get update -q && as_root apt-get install -qy python3; }
# The report page is tested in a browser.
missing=()
command -v chromium >/dev/null || missing+=(chromium)
# Node.js from elsewhere may bring its own npm, which Debian's would be in the way of.
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
[ ${#missing[@]} = 0 ] || { as_root apt-get update -q && as_root apt-get install -qy "${missing[@]}"; } ||
  echo "Chromium and Node.js were not installed" >&2
cargo nextest --version >/dev/null 2>&1 || cargo install cargo-nextest --locked
[ "${1:-}" != --install ] || exit 0

venv=target/venv
[ -x $venv/bin/python ] || python3 -m venv $venv 2>/dev/null || true
# The scripts of examples/ need NumPy and SciPy (GRAPHWEFT_PYTHON names a Python that has them already).
if [ -z "${GRAPHWEFT_PYTHON:-}" ]; then
    [ -x $venv/bin/pip ] && $venv/bin/pip install -q numpy scipy && export GRAPHWEFT_PYTHON=$PWD/$venv/bin/python ||
        echo "NumPy and SciPy were not installed" >&2
fi
# A third MPI, of the standard interface (GRAPHWEFT_MPICH names an environment that has it already).
[ -n "${GRAPHWEFT_MPICH:-}" ] ||
    { [ -x $venv/bin/pip ] && $venv/bin/pip install -q mpich && export GRAPHWEFT_MPICH=$PWD/$venv; } ||
    echo "MPICH of the Python package index was not installed" >&2
if [ -z "${GRAPHWEFT_NVRTC:-}" ]; then
    [ -x $venv/bin/pip ] && $venv/bin/pip install -q 'nvidia-cuda-nvrtc==13.0.*' || echo "NVRTC was not installed" >&2
    found=$(find "$PWD/$venv" -name 'libnvrtc.so.13' -print -quit 2>/dev/null || true)
    [ -z "$found" ] || export GRAPHWEFT_NVRTC=${found%/*}
fi
[ -z "${GRAPHWEFT_NVRTC:-}" ] || export LD_LIBRARY_PATH=$GRAPHWEFT_NVRTC${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

cargo nextest run --profile all --workspace --locked "$@"
cargo test --workspace --doc --locked --quiet
# What the tests have built, also where another folder was named for it.
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug
# The Python package as the tests have built it, in the virtual environment. With GRAPHWEFT_TORCH=1 its operations for
# PyTorch are tested too, in an environment of their own, which takes 6 GB and about 90 s to install; else their tests
# are reported as skipped.
if [ $# -eq 0 ] && [ -n "${GRAPHWEFT_TORCH:-}" ] && [ -z "${GRAPHWEFT_TORCH_PYTHON:-}" ]; then
    torch=target/torch-venv
    [ -x $torch/bin/python ] || python3 -m venv $torch || true
    $torch/bin/pip install -q scipy pandas polars pyarrow pytest mypy torch torch_geometric &&
        export GRAPHWEFT_TORCH_PYTHON=$PWD/$torch/bin/python || echo "PyTorch was not installed" >&2
fi
python=${GRAPHWEFT_PYTHON:-}
if [ $# -eq 0 ] && [ -n "$python" ] && "$python" -m pip install -q pytest scipy networkx mypy; then
    cargo build --profile test --workspace --locked --quiet
    GRAPHWEFT_PYTHON=$python crates/python/test.sh "$built"
elif [ $# -eq 0 ]; then
    echo "skipped: the Python package, which needs Python with venv and pip"
fi
# The report page of the program that the tests have built, in a browser; pictures of it stay in target/report-page.
if [ $# -eq 0 ] && command -v node >/dev/null && command -v npm >/dev/null && command -v chromium >/dev/null; then
    mkdir -p target/report-browser && cp crates/report/browser/* target/report-browser/
    (cd target/report-browser && npm ci --silent --no-audit --no-fund)
    CHROMIUM=$(command -v chromium) GRAPHWEFT=$built/graphweft \
        SCREENSHOTS=$PWD/target/report-page node --test --test-concurrency=1 target/report-browser/*.test.mjs
elif [ $# -eq 0 ]; then
    echo "skipped: the report page in a browser, which needs Node.js and Chromium"
fi
# The program that the tests have built, attacked from outside; see fuzz/adversary/__init__.py.
[ $# -gt 0 ] || python3 fuzz/adversary.py --program "$built/graphweft"
