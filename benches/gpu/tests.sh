#!/usr/bin/env bash
# Every test that needs a GPU, for a machine that has one but no Rust: tests.sh pack FOLDER builds and strips the test binaries here;
# FOLDER/tests.sh run [SECONDS] runs them there, from the root of a copy of this tree at the same path (goldens are read from it), each
# with a limit of SECONDS (default 400), all at once, and says how each ended; exit 1 if one failed. FOLDER/tests.sh check does the same
# under compute-sanitizer's memcheck and racecheck, on the small cases. CUDA's libraries must be where the loader finds them.
set -euo pipefail

pack() {
    mkdir -p "$1"
    cargo test --no-run --locked -p graphweft-tensor -p graphweft-model -p graphweft-parallel -p graphweft-train -p graphweft \
        --features graphweft/cuda --message-format json |
        python3 -c '
import json, sys
for line in map(json.loads, sys.stdin):
    target = line.get("target", {})
    if line.get("executable") and line["profile"]["test"]:
        print(target["name"], line["executable"])' | sort -u |
        while read -r name path; do
            # Only those with a test that needs a GPU; their names all say so.
            [[ $("$path" --list --ignored) == *gpu* ]] || continue
            strip -o "$1/test-$name" "$path" && echo "$1/test-$name"
        done
    strip -o "$1/graphweft" target/debug/graphweft # the tests of the program start it
    cp "$0" "$1/tests.sh"
}

# all LIMIT COMMAND…: every packed binary under COMMAND, at once.
all() {
    local limit=$1 here failed=0
    shift
    here=$(cd "$(dirname "$0")" && pwd)
    logs=$(mktemp -d)
    [ -e target/debug/graphweft ] || install -D "$here/graphweft" target/debug/graphweft
    for binary in "$here"/test-*; do
        (
            name=$(basename "$binary") status=0
            # shellcheck disable=SC2086 # several words, or none
            timeout "$limit" "$@" "$binary" --ignored --test-threads 4 ${FILTER:-gpu} >"$logs/$name" 2>&1 || status=$?
            echo "$name: exit $status, $(grep -E '^test result|SUMMARY' "$logs/$name" | tail -n 2 | tr '\n' ' ')"
            exit $status
        ) &
    done
    for job in $(jobs -p); do wait "$job" || failed=1; done
    [ $failed = 0 ] || grep -h -A12 "panicked\|========= Invalid\|========= Error" "$logs"/* | head -n 100
    return $failed
}

case ${1-} in
pack) pack "${2:?a folder}" ;;
run) all "${2:-400}" ;;
check)
    FILTER="over_edges_on_a_gpu a_gpu_agrees_with_f64"
    for tool in memcheck racecheck; do echo "== $tool"; all "${2:-400}" compute-sanitizer --error-exitcode 9 --tool $tool; done ;;
*) sed -n '2,6p' "$0" >&2; exit 1 ;;
esac
