#!/usr/bin/env bash
# Installs what the tests need, then runs all of them. Tests over the real graphs run where these are (GRAPHWEFT_SHARED, or
# ../shared beside this checkout) and are reported as skipped elsewhere.
set -euo pipefail
cd "$(dirname "$0")"

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

command -v cargo >/dev/null || { echo "install Rust first (rustup, stable toolchain)" >&2; exit 1; }
command -v cc >/dev/null || { as_root apt-get update -q && as_root apt-get install -qy build-essential; }
# Ranks as processes: an MPI, its launcher, and what reads its headers.
ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1 && command -v mpirun >/dev/null && command -v mpicc >/dev/null ||
  { as_root apt-get update -q && as_root apt-get install -qy libopenmpi-dev openmpi-bin libclang-dev; }
cargo nextest --version >/dev/null 2>&1 || cargo install cargo-nextest --locked

cargo nextest run --workspace --features graphweft/mpi --locked "$@"
cargo test --workspace --doc --locked --quiet
