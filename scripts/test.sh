#!/usr/bin/env bash
# Runs all tests and ends with one line: N passed, N failed, N skipped.
# A test that this machine cannot run prints "skipped: REASON" and is counted as skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp) programs=$(mktemp)
trap 'rm -f "$log" "$programs"' EXIT
status=0

run() {
    echo "== $*"
    "$@" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" = 0 ] && return
    status=1
    echo "failed: $*" | tee -a "$log"
}

# In the order of speed: what is wrong is known early.
run scripts/lint-python.sh
run scripts/test-scripts.sh
# What is built in: licences, sources, known vulnerabilities.
run scripts/deny.sh
run scripts/test-programs build "$programs" --workspace --exclude dcd-fuzz --exclude dcd-store
# The fuzzer's seeds are far slower without optimisation.
run scripts/test-programs build "$programs" --release --package dcd-fuzz
# Mistakes made on purpose, which the fuzzer must find, in a copy of the sources. In a folder of its own: Cargo gives its
# libraries the names of ours, and the next run would link tests with those of the copy.
run cargo run --locked --quiet --package dcd-mistakes
run scripts/test-programs build "$programs" --release --manifest-path target/seeded-src/Cargo.toml --package dcd-fuzz \
    --test seeded --target-dir target/seeded
run scripts/test-programs run "$programs"
run cargo test --locked --workspace --exclude dcd-fuzz --exclude dcd-store --doc

# Documentation that links to nothing, or says nothing.
run make doc

# With Parquet, which is off by default; the workspace has its crate already. Object stores have a target of their own: make test-s3.
run cargo test --locked --workspace --exclude dcd-fuzz --exclude dcd-store --features dcd-cache/parquet --test parquet

# A few cases in a guest with ublk, if its kernel has been fetched before.
run scripts/test-guest --quick --cached --dcd target/debug/dcd

passed=$(grep -oE '^test result: .* [0-9]+ passed' "$log" | grep -oE '[0-9]+ passed' | awk '{n += $1} END {print n + 0}')
failed=$(grep -oE '^test result: .* [0-9]+ failed' "$log" | grep -oE '[0-9]+ failed' | awk '{n += $1} END {print n + 0}')
# The guest's cases tell of skipped ones apart; cargo's count as passed until they are subtracted below.
guest=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -1)
if [ -n "$guest" ]; then
    read -r guest_passed _ guest_failed _ guest_skipped _ <<<"$guest"
    passed=$((passed + guest_passed + guest_skipped)) failed=$((failed + guest_failed))
fi
reasons=$(grep -oP '(?<![-\w])skipped: .*' "$log" | sort -u)
skipped=$(printf '%s' "$reasons" | grep -c .)
# A test program that did not even build or that died counts as one failure.
if [ "$status" != 0 ] && [ "$failed" = 0 ]; then
    failed=1
fi
# Said again here, where they are looked for.
[ -z "$reasons" ] || printf '%s\n' "$reasons"
grep -E '^test .* \.\.\. FAILED|--- FAILED|^(failed|flaky): ' "$log"
echo "$((passed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
