"""The recipes of docs/cluster.md for Ray, Dask and Kubernetes, as they stand: what comes out is one sweep.

Those of Slurm and GNU parallel are run by crates/dcd/tests/cluster.rs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dcd
import pyarrow.parquet as pq
import pytest

GRID: dict[str, Any] = {
    "disk": "wd-4tb",
    "cache_disk": ["16M", "64M", "256M"],
    "segment": ["64k", "128k", "256k"],
    "destage": ["fifo", "least-valid"],
}
LOAD = "zipf,requests=2000,rate=200,span=1g,seed=7"


def blocks(heading: str, language: str) -> list[str]:
    """The blocks of code below a heading of the page."""
    documents = os.environ.get("DCD_DOCUMENTS")
    if not documents:
        pytest.skip("DCD_DOCUMENTS names no folder with cluster.md")
    text = (Path(documents) / "cluster.md").read_text()
    part = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [block.split("```")[0] for block in part.split(f"```{language}\n")[1:]]
    assert found, f"no {language} below {heading}"
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the trace, in CSV as the recipes call it."""
    program = os.environ.get("DCD_PROGRAM")
    if not program:
        pytest.skip("DCD_PROGRAM names no dcd to make the trace with")
    subprocess.run([program, "trace", "generate", LOAD, "load.csv.zst"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def run_script(folder: Path, heading: str, variables: dict[str, str]) -> None:
    """Runs a recipe in Python, and compares its table with one sweep."""
    (script,) = blocks(heading, "python")
    (folder / "recipe.py").write_text(script)
    line = [sys.executable, "recipe.py"]
    done = subprocess.run(line, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found = pq.read_table(folder / "all.parquet")
    whole = dcd.sweep(dcd.read_trace(folder / "load.csv.zst"), **GRID)
    assert found.num_rows == 18
    assert found.equals(whole), "the same rows, in the same order, of the same types"


def test_ray(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    # It tells its makers of each cluster.
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Not below `folder`: paths of sockets are short.
    place = tempfile.TemporaryDirectory(prefix="dcd-ray-", ignore_cleanup_errors=True)
    monkeypatch.setenv("RAY_TMPDIR", place.name)
    # Two nodes with a core each, so a task gets its trace from elsewhere.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        run_script(folder, "Ray", {"RAY_ADDRESS": cluster.address})
    finally:
        cluster.shutdown()
        place.cleanup()


def test_dask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Read when it is imported.
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", str(folder))
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        run_script(folder, "Dask", {"DASK_SCHEDULER_ADDRESS": cluster.scheduler_address})


def test_kubernetes(folder: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed").validate
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    program = os.environ["DCD_PROGRAM"]

    def run(job: dict[str, Any], index: int | None) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        words = [word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in container["command"]]
        assert words[0] == "dcd"
        environment = dict(os.environ) if index is None else {**os.environ, "JOB_COMPLETION_INDEX": str(index)}
        subprocess.run([program, *words[1:]], cwd=folder, env=environment, check=True, capture_output=True, timeout=300)

    jobs = [yaml.safe_load(text) for text in blocks("Kubernetes", "yaml")]
    for job in jobs:
        # Strict: fields that Kubernetes does not know are refused.
        validate(job, "1.29", strict=True)
        pod = job["spec"]["template"]["spec"]
        mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}
    sweep, merge = jobs
    assert sweep["spec"]["completionMode"] == "Indexed"
    for index in range(sweep["spec"]["completions"]):
        run(sweep, index)
    run(merge, None)
    words = [f"--{name.replace('_', '-')}={value if isinstance(value, str) else ','.join(value)}" for name, value in GRID.items()]
    line = [program, "sweep", "--trace", "load.csv.zst", *words, "--out", "one.csv"]
    subprocess.run(line, cwd=folder, check=True, capture_output=True, timeout=300)
    assert (folder / "all.csv").read_bytes() == (folder / "one.csv").read_bytes()
