#!/usr/bin/env bash
# Builds the wheel, and with --sdist the source archive, into target/wheels.
# Needs Rust, Python and maturin (pip install maturin).
set -euo pipefail
cd "$(dirname "$0")"
maturin=${MATURIN:-maturin}
"$maturin" build --release --locked --out ../../target/wheels
[ "${1:-}" != --sdist ] || "$maturin" sdist --out ../../target/wheels
