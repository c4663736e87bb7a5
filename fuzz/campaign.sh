#!/usr/bin/env bash
# Runs every fuzz target for RUNS executions and writes fuzz/SUMMARY.md; of targets that are not run, it keeps what it
# says.
#
#   fuzz/campaign.sh [RUNS] [TARGET...]        default: 1000000, all targets
#
# Each target starts from the committed corpus; what it finds goes to fuzz/target/campaign and reproducers to
# fuzz/artifacts, neither of which is committed. Needs cargo-fuzz; uses a nightly toolchain if there is one.
set -euo pipefail
cd "$(dirname "$0")"

runs=${1:-1000000}
shift || true
mapfile -t targets < <(if [ $# -gt 0 ]; then printf '%s\n' "$@"; else basename -s .rs fuzz_targets/*.rs; fi)

if rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    build=(cargo +nightly fuzz build)
else
    export RUSTC_BOOTSTRAP=1
    build=(cargo fuzz build)
fi
for target in "${targets[@]}"; do "${build[@]}" "$target"; done
triple=$(rustc -vV | sed -n 's/^host: //p')

failed=0
commit=$(git rev-parse --short HEAD)
toolchain=$("${build[@]:0:${#build[@]}-2}" --version)
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
grep '^| [a-z]' SUMMARY.md 2>/dev/null | grep -v '^| target ' >"$rows" || true
for target in "${targets[@]}"; do
    work=target/campaign/$target
    rm -rf "$work"
    mkdir -p "$work" "artifacts/$target"
    before=$(find "artifacts/$target" -type f | wc -l)
    log=target/campaign/$target.log
    started=$(date +%s)
    # Temporary folders of the targets that need them lie in memory where the machine has such a place.
    TMPDIR=$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}") \
        "target/$triple/release/$target" "$work" "corpus/$target" -runs="$runs" -max_len=4096 -timeout=10 \
        -rss_limit_mb=2048 -artifact_prefix="artifacts/$target/" >"$log" 2>&1 || failed=1
    seconds=$(($(date +%s) - started))
    crashes=$(($(find "artifacts/$target" -type f | wc -l) - before))
    executions=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p;s/^#\([0-9]*\).*/\1/p' "$log" | tail -1)
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    rate=$((${executions:-0} / (seconds > 0 ? seconds : 1)))
    sed -i "/^| $target |/d" "$rows"
    echo "| $target | ${executions:-0} | $seconds | $rate | ${coverage:-0} | $crashes | $(date -u +%Y-%m-%d) | $commit |" | tee -a "$rows"
done
{
    echo "# Fuzz campaign"
    echo
    echo "\`fuzz/campaign.sh\`, last with $toolchain."
    echo
    echo "| target | executions | seconds | exec/s | coverage (edges) | crashes | date | commit |"
    echo "|---|---:|---:|---:|---:|---:|---|---|"
    LC_ALL=C sort "$rows"
} >SUMMARY.md
exit $failed
