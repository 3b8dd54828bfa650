"""The paper's section 4.4, measured: all programs one after the other in little memory, and then again.

The second time reads what has been thrown out meanwhile. *Miss rate* is its reads by those of the same programs with an
empty cache and enough memory; *average access time* spreads its disk time over those, as the paper's formula does.
"""
import statistics

from bench_common.memory import Group
from bench_common.system import Problem, tell

from . import image
from .measure import session, start, teach
from .requests import Requests
from .tasks import STARTS

ENOUGH = "enough"


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
