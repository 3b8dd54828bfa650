#!/usr/bin/env bash
# Changes the engine in one place at a time and sees whether a test notices: scripts/mutants.sh [SHARD]
# SHARD as 3/64: every 64th of all changes, from the third on. All of them take a day and more on one core.
#
# Judges are the tests of the engine and a small part of the fuzzer: some random runs, all sequences of two
# operations, one swept script, and the runs that once failed. What they miss is in
# target/mutants/mutants.out/missed.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
shard=${1:-0/64}

if ! cargo mutants --version > /dev/null 2>&1; then
    echo "mutants need cargo-mutants: cargo install cargo-mutants --locked" >&2
    exit 1
fi
mkdir -p target/mutants
# Line tables would double the time that linking takes.
export CARGO_PROFILE_DEV_DEBUG=false DCD_FUZZ_SEEDS=${DCD_FUZZ_SEEDS:-60} PROPTEST_CASES=${PROPTEST_CASES:-64}
# Left out: searches for a minute each, and what does not depend on the engine.
exec nice -n 10 cargo mutants --package dcd-engine --shard "$shard" --sharding round-robin --jobs 1 \
    --output target/mutants --no-shuffle --cargo-arg=--locked --timeout-multiplier 4 --minimum-test-timeout 60 -- \
    --lib --tests -- --skip all_sequences_of_three --skip every_io_of_forty --skip every_pair_of_faults
