#!/usr/bin/env bash
# Runs byte fuzz targets under libFuzzer: scripts/fuzz-bytes.sh [TIME [TARGET...]]. TIME as 30s or 5m is for each target; as 8h it is for all
# together, in turns of five minutes, round after round. Ends with one line: N passed, N failed, N skipped.
#
# What reaches new code is kept in CORPUS/TARGET/ (target/byte-corpus without CORPUS) for the next run, and CORPUS/executions has the
# inputs that were run so far and the coverage of each target. What is found lands in fuzz/artifacts/TARGET/; a target that failed has
# no more turns.
set -uo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
shift || true
turn= total=
case "$time" in
    *h) total=$((${time%h} * 3600)) turn=300 ;;
    *m) turn=$((${time%m} * 60)) ;;
    *) turn=${time%s} ;;
esac
case "$turn$total" in
    '' | *[!0-9]*) echo "a time is 30s, 5m or 8h, not $time" >&2; exit 2 ;;
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

corpus=${CORPUS:-target/byte-corpus}
mkdir -p "$corpus"
corpus=$(cd "$corpus" && pwd)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Without AddressSanitizer: there is no unsafe code in what is fuzzed, and it is three times as fast.
fuzz() { (cd fuzz && cargo +nightly fuzz "$1" --fuzz-dir . --sanitizer none "${@:2}"); }
# cargo-fuzz has no --locked.
cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml > /dev/null || exit 1
fuzz build || exit 1

# TARGET and its executions so far, with the coverage at the end of the last turn.
note() { # TARGET
    local so_far new coverage
    so_far=$(awk -v target="$1" '$1 == target {print $2}' "$corpus/executions" 2> /dev/null)
    new=$(grep -oP 'number_of_executed_units: *\K[0-9]+' "$log" | tail -1)
    coverage=$(grep -oP ' cov: \K[0-9]+' "$log" | tail -1)
    {
        awk -v target="$1" '$1 != target' "$corpus/executions" 2> /dev/null
        echo "$1 $((${so_far:-0} + ${new:-0})) ${coverage:--}"
    } | sort > "$corpus/executions.new"
    mv "$corpus/executions.new" "$corpus/executions"
}

run() { # TARGET SECONDS
    echo "== $1, $2 s"
    mkdir -p "$corpus/$1"
    # An input may take 5 s, one allocation 64 MiB, all together 512 MiB.
    fuzz run "$1" "$corpus/$1" "../crates/dcd-byte-fuzz/corpus/$1" -- \
        -max_total_time="$2" -timeout=5 -malloc_limit_mb=64 -rss_limit_mb=512 \
        -max_len=16384 -print_final_stats=1 > "$log" 2>&1
    local status=$?
    note "$1"
    if [ "$status" = 0 ]; then tail -n 8 "$log"; else cat "$log"; fi
    return "$status"
}

begun=$SECONDS
declare -A failed=()
while :; do
    for target in "${targets[@]}"; do
        [ -z "${failed[$target]:-}" ] || continue
        if [ -n "$total" ]; then
            left=$((total - (SECONDS - begun)))
            [ "$left" -gt 0 ] || break 2
            run "$target" "$((left < turn ? left : turn))" || failed[$target]=yes
        else
            run "$target" "$turn" || failed[$target]=yes
        fi
    done
    if [ -z "$total" ] || [ ${#failed[@]} = ${#targets[@]} ]; then break; fi
done
echo "executions so far: $(awk '{sum += $2} END {printf "%d", sum}' "$corpus/executions"), in $corpus/executions by target"
echo "$((${#targets[@]} - ${#failed[@]})) passed, ${#failed[@]} failed, 0 skipped"
[ ${#failed[@]} = 0 ]
