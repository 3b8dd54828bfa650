"""Runs fio, and takes what is compared from its JSON."""
import json

from .system import run


def fio(*words):
    """One run: its jobs by name. Rates in operations and bytes per second, times in milliseconds."""
    output = run("fio", "--output-format=json", "--group_reporting", *words)
    # Warnings may come before.
    document = json.loads(output[output.index("{"):])
    return {job["jobname"]: {kind: figures(job[kind]) for kind in ("read", "write") if job[kind]["total_ios"] > 0}
            for job in document["jobs"]}


def figures(part):
    """Of reads or writes."""
    times = part["clat_ns"]
    percentiles = times.get("percentile", {})
    return {"iops": part["iops"], "bytes_per_second": part["bw_bytes"], "mean_ms": times["mean"] / 1e6,
            "p99_ms": percentiles.get("99.000000", 0) / 1e6, "operations": part["total_ios"]}
