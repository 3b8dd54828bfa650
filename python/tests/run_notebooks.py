"""Executes the notebooks that are named, each in a folder of its own; what fails is told with its cell."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def main(paths: list[str]) -> int:
    failed = 0
    for path in map(Path, paths):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}})
            try:
                client.execute()
            except CellExecutionError as problem:
                print(f"{path.name}: {problem}")
                failed += 1
                continue
        pictures = sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
        print(f"{path.name}: {len(notebook.cells)} cells, {pictures} pictures, {time.monotonic() - started:.1f} s")
        if not pictures:
            print(f"{path.name}: no picture was drawn")
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
