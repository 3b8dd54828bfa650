#!/usr/bin/env bash
# Line coverage of the engine by fuzzing alone: no unit test and no conversation test counts.
# scripts/coverage.sh [FILE]: the table of files goes to standard output, every line with its count to FILE.
#
# What runs: the four searches of `dcd fuzz`, and the corpus of the byte fuzzer. Sizes are those after which
# more runs find no new line. COVERAGE_RUNS is for the random search; the others are fixed.
# Not counted: other crates; nvram, which has property tests.
set -euo pipefail
cd "$(dirname "$0")/.."
lines=${1:-}

if ! cargo llvm-cov --version > /dev/null 2>&1; then
    echo "coverage needs cargo-llvm-cov: cargo install cargo-llvm-cov --locked" >&2
    exit 1
fi
if [ ! -x "$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-cov" ]; then
    echo "coverage needs llvm-cov of this toolchain: rustup component add llvm-tools" >&2
    exit 1
fi

# In a directory of its own (target/llvm-cov-target). What earlier measurements counted is forgotten.
cargo llvm-cov clean --profraw-only
fuzz() { cargo llvm-cov run --locked --quiet --release --package dcd-cache --no-report -- fuzz "$@"; }
fuzz --runs "${COVERAGE_RUNS:-1000}"
fuzz --pairs --runs 1
fuzz --sweep --runs 20
fuzz --exhaustive 3
# The corpus only, without mutations for a time: what a machine's speed decides is no figure.
DCD_BYTE_FUZZ_SECONDS=0 cargo llvm-cov test --locked --quiet --release --package dcd-byte-fuzz --test corpus --no-report

report() { cargo llvm-cov report --release --ignore-filename-regex 'crates/dcd(-byte-fuzz|-daemon|-fuzz|-sim)?/|nvram/' "$@"; }
[ -z "$lines" ] || report --text --output-path "$lines"
# Columns: file, then total, missed and share of regions, functions and lines.
report
