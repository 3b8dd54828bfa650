"""What all tests need: the command of the same sources, and a load."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dcd
import pytest


@pytest.fixture(scope="session")
def command() -> Callable[..., Any]:
    """Runs ``dcd`` and gives its JSON. The program is that of ``DCD_PROGRAM``."""
    program = os.environ.get("DCD_PROGRAM")
    if not program:
        pytest.skip("DCD_PROGRAM names no dcd to compare with")

    def run(*words: str, cwd: Path | None = None) -> Any:
        line = [program, *words, "--json"]
        done = subprocess.run(line, capture_output=True, text=True, cwd=cwd, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace as CSV: three disks, all kinds of requests, latencies of some."""
    path = tmp_path_factory.mktemp("trace") / "load.csv"
    rows = ["t_us,op,dev,off,len,fl,lat_us"]
    for number in range(2_000):
        operation = "RWWWFD"[number % 6]
        size = 0 if operation == "F" else 4096 * (1 + number % 4)
        offset = 0 if operation == "F" else (number * 7_919) % 5_000 * 8192
        latency = "" if number % 5 else f"{100 + number % 37}.5"
        rows.append(f"{number * 1500}.125,{operation},{number % 3},{offset},{size},{number % 2},{latency}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def load() -> Any:
    """Made-up requests as a table."""
    return dcd.generate("zipf,requests=3000,rate=100,reads=40,span=256m,seed=3")
