#!/usr/bin/env bash
# Crashes the real binary again and again and ends with one line that counts.
#   scripts/crash-cycles.sh power-cut|kill|linearizability CYCLES [FOR [SEED]]
# With FOR (90s, 10m, 2h) it does rounds of a hundred cycles, each with the next seed, until the time
# is up; otherwise one round of CYCLES.
set -uo pipefail
cd "$(dirname "$0")/.."
cycles=$2 time=${3:-} seed=${4:-1999}
case $1 in
power-cut) filter=power_cuts ;;
kill) filter=kill ;;
linearizability) filter=one_disk ;;
*) echo "crash-cycles.sh: $1?" >&2 && exit 2 ;;
esac
seconds=0
if [ -n "$time" ]; then
    case $time in
    *h) seconds=$((${time%h} * 3600)) ;;
    *m) seconds=$((${time%m} * 60)) ;;
    *) seconds=${time%s} ;;
    esac
    cycles=100
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0 rounds=0
SECONDS=0
while :; do
    echo "== round $((rounds + 1)), DCD_SEED=$seed DCD_CYCLES=$cycles"
    DCD_SEED=$seed DCD_CYCLES=$cycles cargo test --locked --quiet --package dcd-cache --no-fail-fast \
        --test power_cut --test file_systems --test kill_modes --test linearizability \
        --test dhisfs_volume --test pauses \
        -- --nocapture --test-threads=2 "$filter" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" = 0 ] || status=1
    rounds=$((rounds + 1)) seed=$((seed + 1))
    [ "$SECONDS" -lt "$seconds" ] && [ "$status" = 0 ] || break
done
crashes=$(sed -n 's/^crashes: \([0-9]*\) .*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
pauses=$(sed -n 's/^pauses: \([0-9]*\) .*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
failed=$(grep -oE '[0-9]+ failed' "$log" | awk '{n += $1} END {print n + 0}')
skipped=$(grep -oE 'skipped: .*' "$log" | sort -u | wc -l)
echo "$1: $crashes crashes and $pauses pauses in $SECONDS s, $rounds rounds, $failed tests failed, $skipped skipped"
# Nothing crashed is nothing shown.
[ "$crashes" -gt 0 ] && exit "$status"
exit 1
