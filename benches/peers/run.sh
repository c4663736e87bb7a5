#!/usr/bin/env bash
# Graphweft beside PyG, DGL and torch on the same graph folders, on this machine's CPU: ./run.sh [--fresh] [GRAPH…]
#
# Everything is kept under target/peers: two Python environments, the graphs, and results.jsonl with one line per
# finished measurement. A second run goes on where the first one stopped; --fresh measures all of it again, on newly
# generated graphs. LIMIT_S (default 120) is the time that one process may take, PYTHON the interpreter for the
# environments; ONLY, a regular expression over the lines of progress, leaves out what it does not match, e.g.
# ONLY='^gat .* 2 threads' (what was measured earlier stays in the table). The table goes to stdout and, once it is
# whole, to RESULTS.md.
set -euo pipefail
cd "$(dirname "$0")/../.."

fresh=
if [ "${1-}" = --fresh ]; then fresh=1; shift; fi
[ $# -gt 0 ] || set -- rmat:15:16+loops rmat:15:50+loops rmat:17:16+loops rmat:17:50+loops

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# environment NAME MODULE PACKAGE…: a virtual environment in which MODULE can be imported.
environment() {
    local dir=target/peers/$1 module=$2
    shift 2
    [ -e "$dir/ready" ] && return
    echo "installing $dir" >&2
    rm -rf "$dir"
    "${PYTHON:-python3}" -m venv "$dir"
    "$dir/bin/pip" install --quiet "$@"
    DGLBACKEND=pytorch "$dir/bin/python" -W ignore -c "import $module"
    touch "$dir/ready"
}

tcmalloc() { PATH=$PATH:/sbin ldconfig -p | awk '/libtcmalloc_minimal\.so\.4 / && !found++ { print $NF }'; }

mkdir -p target/peers/graphs
environment torch torch_geometric torch torch_geometric numpy
# 2.2.1 is the newest torch that DGL's wheel has a graphbolt library for; `import dgl` needs the rest without saying so.
environment dgl dgl dgl==2.1.0 torch==2.2.1 'torchdata<0.8' 'numpy<2' pandas pydantic pyyaml packaging
if [ -z "$(tcmalloc)" ]; then as_root apt-get install -qy libtcmalloc-minimal4 >&2; fi
cargo build --release --locked

if [ -n "$fresh" ]; then rm -rf target/peers/results.jsonl target/peers/graphs/*; fi
for graph in "$@"; do
    folder=target/peers/graphs/$graph
    [ -e "$folder" ] || target/release/graphweft generate "$graph" -o "$folder" >&2
done
TCMALLOC=$(tcmalloc) exec python3 benches/peers/measure.py "$@"
