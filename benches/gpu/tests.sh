#!/usr/bin/env bash
# Every test that needs a GPU, for a machine that has one but no Rust. Here, `tests.sh pack FILE` builds and strips the
# test binaries and puts them into FILE, which runs by itself. There, from the root of a copy of this tree at the same
# path (goldens are read from it), `FILE run [SECONDS]` runs each in a process of its own, with a limit of SECONDS
# (default 400), several at once, and says how it ended and how long it took; exit 1 if one failed. `FILE check
# [SECONDS]` does so with the small cases of every kernel under compute-sanitizer's memcheck and racecheck; racecheck,
# which is slow, leaves out the many shapes of attention and aggregation, whose kernels have a small case too. CUDA's
# libraries must be where the loader finds them. Under MPS (`nvidia-cuda-mps-control -d`) processes share the GPU.
set -euo pipefail

pack() {
    local folder
    folder=$(mktemp -d)
    # The whole workspace, as test.sh builds it: nothing is built twice.
    cargo test --no-run --locked --workspace --lib --bins --tests --message-format json |
        python3 -c '
import json, sys
for line in map(json.loads, sys.stdin):
    target = line.get("target", {})
    if line.get("executable") and line["profile"]["test"]:
        print(target["name"], line["executable"])' | sort -u |
        while read -r name path; do
            # Only those with a test that needs a GPU; their names all say so.
            [[ $("$path" --list --ignored) == *gpu* ]] || continue
            strip -o "$folder/test-$name" "$path"
        done
    strip -o "$folder/graphweft" target/debug/graphweft # the tests of the program start it
    # This script up to its last line, then what it unpacks.
    { cat "$0" && tar cz -C "$folder" .; } >"$1"
    chmod +x "$1"
    rm -r "$folder"
    ls -l "$1"
}

# each LIMIT COMMAND…: every such test under COMMAND in a process of its own, twelve at a time; those that fill the GPU
# afterwards, alone.
each() {
    local limit=$1 count=0 alone=() binary name test
    shift
    unpack
    for binary in "$here"/test-$BINARIES; do
        # shellcheck disable=SC2086 # several words
        for name in $("$binary" --list --ignored $FILTER | sed -n 's/: test$//p'); do
            count=$((count + 1))
            if [[ $name == *full* ]]; then
                alone+=("$binary $name")
                continue
            fi
            one "$binary" "$name" "$limit" "$@" &
            [ "$(jobs -rp | wc -l)" -lt 12 ] || wait -n
        done
    done
    wait
    for test in "${alone[@]}"; do one "${test% *}" "${test#* }" "$limit" "$@"; done
    echo "$count tests, $(wc -l <"$here/failed") failed"
    [ ! -s "$here/failed" ] || grep -h -A12 "panicked\|========= Invalid\|========= Error" "$logs"/* | head -n 100
    [ $count -gt 0 ] && [ ! -s "$here/failed" ]
}

# one BINARY NAME LIMIT COMMAND…: one test, and a line on it.
one() {
    local binary=$1 name=$2 limit=$3 status=0 begun=$SECONDS log
    shift 3
    log="$logs/$(basename "$binary") $name"
    timeout "$limit" "$@" "$binary" --ignored --exact "$name" >"$log" 2>&1 || status=$?
    echo "${log##*/}: exit $status, $((SECONDS - begun)) s $(grep -o 'ERROR SUMMARY.*\|RACECHECK SUMMARY.*' "$log" || true)"
    [ $status = 0 ] || echo "$name" >>"$here/failed"
}

unpack() {
    [ -z "${here-}" ] || return 0
    here=$(mktemp -d) logs=$(mktemp -d)
    trap 'rm -r "$here"' EXIT
    sed '1,/^# What follows is packed.$/d' "$0" | tar xz -C "$here"
    : >"$here/failed"
    install -D "$here/graphweft" target/debug/graphweft
}

FILTER=${FILTER:-gpu} BINARIES='*'
status=0
case ${1-} in
pack) pack "${2:?a file}" ;;
run) each "${2:-400}" || status=1 ;;
check)
    BINARIES=graphweft_tensor
    FILTER="over_edges_on_a_gpu a_gpu_agrees_with_f64 many_rows captured"
    echo "== memcheck"
    each "${2:-400}" compute-sanitizer --error-exitcode 9 --tool memcheck || status=1
    echo "== racecheck"
    FILTER+=" --skip ops::attention::tests --skip ops::spmm"
    each "${2:-400}" compute-sanitizer --error-exitcode 9 --tool racecheck || status=1
    ;;
*) sed -n '2,8p' "$0" >&2; status=1 ;;
esac
exit $status
# What follows is packed.
