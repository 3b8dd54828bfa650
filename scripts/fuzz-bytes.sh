#!/usr/bin/env bash
# Runs each byte fuzz target under libFuzzer: scripts/fuzz-bytes.sh [TIME [TARGET...]], TIME as 30s or 5m.
# Ends with one line: N passed, N failed, N skipped. What is found lands in fuzz/artifacts/TARGET/, what
# reaches new code in fuzz/corpus/TARGET/, which git ignores.
set -uo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
shift || true
case "$time" in
    *m) seconds=$((${time%m} * 60)) ;;
    *) seconds=${time%s} ;;
esac
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v dcd-libfuzzer)
fi

reason=
if ! rustup run nightly rustc --version > /dev/null 2>&1; then
    reason="no nightly toolchain (rustup toolchain install nightly)"
elif ! cargo fuzz --version > /dev/null 2>&1; then
    reason="no cargo-fuzz (cargo install cargo-fuzz --locked)"
fi
if [ -n "$reason" ]; then
    echo "skipped: $reason; cargo test --locked -p dcd-byte-fuzz replays the corpus on any toolchain"
    echo "0 passed, 0 failed, ${#targets[@]} skipped"
    exit 0
fi

# Without AddressSanitizer: there is no unsafe code in what is fuzzed, and it is three times as fast.
fuzz() { (cd fuzz && cargo +nightly fuzz "$1" --fuzz-dir . --sanitizer none "${@:2}"); }
# cargo-fuzz has no --locked.
cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml > /dev/null || exit 1
fuzz build || exit 1
passed=0 failed=0
for target in "${targets[@]}"; do
    echo "== $target, $seconds s"
    mkdir -p "fuzz/corpus/$target"
    # An input may take 5 s, one allocation 64 MiB, all together 512 MiB.
    if fuzz run "$target" "corpus/$target" "../crates/dcd-byte-fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -timeout=5 -malloc_limit_mb=64 -rss_limit_mb=512 \
        -max_len=16384 -print_final_stats=1 -verbosity=0; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
