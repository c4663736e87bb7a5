#!/usr/bin/env bash
# Every test that needs a GPU, for a machine that has one but no Rust. Here, `tests.sh pack FILE` builds and strips the test binaries
# and puts them into FILE, which runs by itself. There, from the root of a copy of this tree at the same path (goldens are read from
# it), `FILE run [SECONDS]` runs them, each with a limit of SECONDS (default 400), all at once, and says how each ended; exit 1 if one
# failed. `FILE check [SECONDS]` runs the small cases of every kernel under compute-sanitizer's memcheck and racecheck, each in a process of
# its own, and says how long it took; racecheck, which is slow, leaves out the many shapes of attention and aggregation, whose kernels have
# a small case too. CUDA's libraries must be where the loader finds them.
set -euo pipefail

pack() {
    local folder
    folder=$(mktemp -d)
    cargo test --no-run --locked -p graphweft-tensor -p graphweft-model -p graphweft-parallel -p graphweft-train -p graphweft-plan -p graphweft \
        --features "${FEATURES:-graphweft/cuda}" --message-format json |
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

# all LIMIT COMMAND…: every packed binary with such a test under COMMAND, at once.
all() {
    local limit=$1 failed=0
    shift
    unpack
    for binary in "$here"/test-*; do
        # shellcheck disable=SC2086 # several words
        [[ $("$binary" --list --ignored $FILTER) == *": test"* ]] || continue
        (
            name=$(basename "$binary") status=0
            # shellcheck disable=SC2086
            timeout "$limit" "$@" "$binary" --ignored --test-threads 4 $FILTER >"$logs/$name" 2>&1 || status=$?
            echo "$name: exit $status, $(grep -E '^test result|SUMMARY' "$logs/$name" | tail -n 2 | tr '\n' ' ')"
            exit $status
        ) &
    done
    for job in $(jobs -p); do wait "$job" || failed=1; done
    finish $failed
}

# each LIMIT COMMAND…: every such test of operations under COMMAND in a process of its own, twelve at a time.
each() {
    local limit=$1 failed=0 count=0
    shift
    unpack
    # shellcheck disable=SC2086 # several words
    for name in $("$here/test-graphweft_tensor" --list --ignored $FILTER | sed -n 's/: test$//p'); do
        (
            status=0 begun=$SECONDS
            timeout "$limit" "$@" "$here/test-graphweft_tensor" --ignored --exact "$name" >"$logs/$name" 2>&1 || status=$?
            echo "$name: exit $status, $((SECONDS - begun)) s, $(grep -E '^test result|SUMMARY' "$logs/$name" | tail -n 2 | tr '\n' ' ')"
            exit $status
        ) &
        count=$((count + 1))
        [ $count -le 12 ] || wait -n || failed=1
    done
    while [ -n "$(jobs -rp)" ]; do wait -n || failed=1; done
    for job in $(jobs -p); do wait "$job" || failed=1; done
    finish $failed
}

unpack() {
    here=$(mktemp -d) logs=$(mktemp -d)
    sed '1,/^# What follows is packed.$/d' "$0" | tar xz -C "$here"
    install -D "$here/graphweft" target/debug/graphweft
}

finish() {
    [ "$1" = 0 ] || grep -h -A12 "panicked\|========= Invalid\|========= Error" "$logs"/* | head -n 100
    rm -r "$here"
    return "$1"
}

FILTER=${FILTER:-gpu}
status=0
case ${1-} in
pack) pack "${2:?a file}" ;;
run) all "${2:-400}" || status=1 ;;
check)
    FILTER="over_edges_on_a_gpu a_gpu_agrees_with_f64 many_rows recorded"
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
