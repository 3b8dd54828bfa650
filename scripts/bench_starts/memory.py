"""The paper's section 4.4, measured: all programs one after the other in little memory, and then again.

The second time reads what has been thrown out meanwhile. *Miss rate* is its reads by those of the same programs with an
empty cache and enough memory; *average access time* spreads its disk time over those, as the paper's formula does.
"""
import contextlib
import os
import statistics
import time

from . import image
from .measure import session, start, teach
from .requests import Requests
from bench_common.system import Problem, tell
from .tasks import STARTS

ENOUGH = "enough"


class Group:
    """A control group whose memory, page cache included, is limited."""

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes

    def __enter__(self):
        folder, name = memory_controller()
        self.folder = os.path.join(folder, f"dcd-bench-starts-{os.getpid()}")
        os.mkdir(self.folder)
        if self.limit_bytes is not None:
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(str(self.limit_bytes))
        return self

    def join(self):
        """The calling process, which is to run a program, and its children."""
        with open(os.path.join(self.folder, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))

    def peak_bytes(self):
        """The most that it had, page cache included; 0 where the kernel does not tell."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, name)) as file:
                return int(file.read())
        return 0

    def __exit__(self, *reason):
        # It is busy for a moment after its last process.
        for _ in range(50):
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
                return
            time.sleep(0.1)
        tell(f"cannot remove {self.folder}")


def memory_controller():
    """Folder of the memory controller, and the name of its limit: version 1 or 2."""
    with open("/proc/self/mounts") as file:
        mounts = [line.split() for line in file]
    for _, folder, kind, options, *_ in mounts:
        if kind == "cgroup" and "memory" in options.split(","):
            return folder, "memory.limit_in_bytes"
    for _, folder, kind, *_ in mounts:
        if kind == "cgroup2":
            with open(os.path.join(folder, "cgroup.controllers")) as file:
                if "memory" in file.read().split():
                    with open(os.path.join(folder, "cgroup.subtree_control"), "w") as control:
                        control.write("+memory")
                    return folder, "memory.max"
    raise Problem("no control group with the memory controller is mounted")


def measure(settings):
    """One dictionary for each variant and limit, and the variants that were skipped."""
    path = image.build("programs", settings.work, settings.suite, settings.mirror)
    tasks = [task for task in STARTS if not settings.only or task.name in settings.only]
    limits = {ENOUGH: None, **{f"{size} MiB": size << 20 for size in settings.memory_mib}}
    seen = {}
    with session(settings, path) as (served, skipped):
        for one in served:
            teach(one, tasks)
        for number in range(settings.rounds):
            for name, limit_bytes in limits.items():
                for one in served:
                    first, second, failed = twice(one, tasks, limit_bytes)
                    seen.setdefault((name, one.variant.name), []).append((first, second, failed))
                    tell(f"round {number + 1}: {name}, {one.variant.name}: {first['reads']}, then {second['reads']} reads")
    return [summary(name, variant, runs, seen[ENOUGH, variant]) for (name, variant), runs in seen.items()], skipped


def twice(served, tasks, limit_bytes):
    """All programs with nothing in memory, and once more: figures of both, and who did not fit into the memory."""
    figures, failed = [], set()
    with served.mounted() as root, Group(limit_bytes) as group:
        for _ in range(2):
            with served.recording() as recording:
                for task in tasks:
                    try:
                        start(served, task, ["chroot", root, *task.command], group.join)
                    except Problem as problem:
                        if limit_bytes is None:
                            raise
                        tell(str(problem))
                        failed.add(task.name)
            figures.append({**Requests(recording.path).figures(), "peak_bytes": group.peak_bytes()})
    return *figures, sorted(failed)


def summary(name, variant, runs, enough):
    def median(key, which):
        return statistics.median(run[which][key] for run in runs)

    reads_all = statistics.median(first["reads"] for first, _, _ in enough)
    bytes_all = statistics.median(first["read_bytes"] for first, _, _ in enough)
    reads, disk_ms = median("reads", 1), median("disk_ms", 1)
    return {
        "limit": name, "variant": variant, "starts": len(runs),
        "reads_first": median("reads", 0), "reads_second": reads, "disk_ms_second": disk_ms,
        "miss_rate": reads / reads_all, "miss_rate_bytes": median("read_bytes", 1) / bytes_all,
        "ms_per_miss": disk_ms / reads if reads else 0.0, "average_access_ms": disk_ms / reads_all,
        "peak_bytes": median("peak_bytes", 1),
        "failed": sorted(set().union(*(failed for _, _, failed in runs))),
    }
