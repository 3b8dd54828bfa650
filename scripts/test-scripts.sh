#!/usr/bin/env bash
# Tests of what scripts/ computes. Ends with a line in the words of `cargo test`, which scripts/test.sh counts.
set -uo pipefail
cd "$(dirname "$0")/tests"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if python3 -B -m unittest > "$log" 2>&1; then
    echo "test result: ok. $(grep -oP '^Ran \K[0-9]+' "$log") passed; 0 failed"
else
    cat "$log"
    echo "test result: FAILED. 0 passed; 1 failed"
    exit 1
fi
