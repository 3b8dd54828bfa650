#!/usr/bin/env bash
# Builds the wheel of python/, installs it into a fresh environment, and runs there: its tests, which compare it with the
# command, and run the recipes of docs/cluster.md; mypy and stubtest; the notebooks. Ends with one line: N passed, N failed, N skipped. Without a package index all
# of it is skipped. DCD_PROGRAM is the dcd to compare with [default: target/debug/dcd, which is built].
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tools=$root/target/tools/python-wheel
passed=0 failed=0
skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
step() {
    echo "== $1"
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip "the Python package needs Python 3.11, and so do its tests"
if [ ! -x "$tools/bin/maturin" ]; then
    python3 -m venv "$tools" && "$tools/bin/pip" install --quiet 'maturin>=1.9,<2' ||
        skip "no package index can be reached, so the Python package is not built"
fi
if [ -z "${DCD_PROGRAM:-}" ]; then
    cargo build --locked --package dcd-cache || exit 1
    DCD_PROGRAM=$root/target/debug/dcd
fi
export DCD_PROGRAM

step "formatting of its Rust" cargo fmt --check --manifest-path python/Cargo.toml
step "clippy" env CARGO_TARGET_DIR="$root/target/python" cargo clippy --locked --quiet --manifest-path python/Cargo.toml -- --deny warnings

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# Locked: the versions are those of python/Cargo.lock. What is left of an earlier wheel is not installed.
rm -rf target/wheels
CARGO_TARGET_DIR=$root/target/python "$tools/bin/maturin" build --release --locked --compatibility pypi \
    --manifest-path python/Cargo.toml --out target/wheels || exit 1
wheel=$(ls target/wheels/dcd_cache-*.whl)
python3 -m venv "$place/venv"
bin=$place/venv/bin
"$bin/pip" install --quiet 'pyarrow>=15' || skip "no package index can be reached, so the Python package is not tested"
"$bin/pip" install --quiet "$wheel" || exit 1
# Alone first: it needs nothing but what it says.
cp -r python/tests python/notebooks "$place"
cd "$place"
step "the wheel alone" "$bin/python" -c 'import dcd; print(dcd.__version__, dcd.simulate(workload="uniform,requests=1000", disk="wd-4tb")["requests"])'
"$bin/pip" install --quiet -r "$root/python/requirements-test.txt" ||
    skip "no package index can be reached, so the Python package is not tested"

# One by one: what is not there for this Python or processor takes only its own recipe with it, whose test is skipped.
grep -v '^#' "$root/python/requirements-cluster.txt" | while read -r package; do
    "$bin/pip" install --quiet "$package" || echo "$package cannot be installed"
done
export DCD_DOCUMENTS=$root/docs

log=$place/pytest.log
"$bin/pytest" -q -rs -c /dev/null --rootdir "$place" -p no:cacheprovider tests 2>&1 | tee "$log"
[ "${PIPESTATUS[0]}" = 0 ] || failed=$((failed + 1))
count() { grep -oE "[0-9]+ $1" "$log" | tail -1 | grep -oE '[0-9]+' || echo 0; }
passed=$((passed + $(count passed)))
skipped=$(count skipped)
types=(--config-file "$root/python/pyproject.toml")
step "mypy" "$bin/mypy" "${types[@]}" --package dcd
step "mypy, tests" "$bin/mypy" "${types[@]}" tests
step "stubtest" "$bin/python" -m mypy.stubtest dcd._dcd
for notebook in notebooks/*.ipynb; do
    step "$(basename "$notebook")" "$bin/python" tests/run_notebooks.py "$notebook"
done
echo "$(basename "$wheel"), $(($(stat -c %s "$root/$wheel") / 1024)) KiB"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
