"""Random synchronous writes of 4 KiB to a store at a distance: dcd, with its log in memory and on a disk, and s3backer in its honest mode; and the
disk of the log alone, which bounds what dcd can do with it."""
import contextlib

from bench_common.report import bar, each, medians, spread, table
from bench_common.system import tell

from .loads import synchronous_writes
from .stand import Dcd, bucket, plain_file, s3backer

SIZE_MIB = 1024
THEIRS = "s3backer --blockCacheSync"


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []
    with contextlib.ExitStack() as stack:
        far = stack.enter_context(bucket(settings, folder))
        in_memory = stack.enter_context(Dcd(settings, folder, "memory", "s3://bucket/memory", f"{SIZE_MIB}M"))
        on_disk = stack.enter_context(Dcd(settings, folder, "disk", "s3://bucket/disk", f"{SIZE_MIB}M", log_folder=settings.log_directory))
        theirs = stack.enter_context(s3backer(folder, "s3backer", far, SIZE_MIB))
        targets = {"dcd, log in memory": in_memory.uri, "dcd, log on a disk": on_disk.uri, THEIRS: theirs,
                   "that disk alone": stack.enter_context(plain_file(settings.log_directory, SIZE_MIB))}
        for number in range(settings.rounds):
            for name, target in targets.items():
                rounds.append({"name": name, "round": number, "iops": synchronous_writes(target, settings.seconds, SIZE_MIB)})
                tell(f"round {number + 1}: {name}: {rounds[-1]['iops']:.1f} writes/s")
                # What one leaves behind does not take from the next.
                in_memory.drain_s()
                on_disk.drain_s()
    found = medians(rounds, "iops")
    base = found[THEIRS]
    bars = [bar(f"synchronous writes, {name}, by s3backer", found[name] / base, least=50) for name in list(targets)[:2]]
    rows = [(name, f"{found[name]:.1f}", spread(each(rounds, name, "iops"), "{:.1f}"), f"{found[name] / base:.1f}") for name in targets]
    return {"rounds": rounds, "bars": bars, "text": table(("", "writes/s: median", "rounds", "by s3backer"), rows)}
