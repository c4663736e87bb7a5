#!/usr/bin/env bash
# Builds the wheel, and with --sdist the source archive, into target/wheels, then checks that the wheel links nothing
# that a plain Linux lacks. Needs Rust and Python with venv; maturin is installed into target/wheel-venv unless MATURIN
# names one.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
maturin=${MATURIN:-}
if [ -z "$maturin" ]; then
    venv=$root/target/wheel-venv
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install -q 'maturin>=1.9,<2'
    maturin=$venv/bin/maturin
fi
# maturin names the oldest glibc that will do; --auditwheel=check fails where a library is linked that is not in the
# manylinux policy, instead of copying it into the wheel.
"$maturin" build --release --locked --auditwheel check --out "$root/target/wheels"
[ "${1:-}" != --sdist ] || "$maturin" sdist --out "$root/target/wheels"
ls -l "$root/target/wheels"
