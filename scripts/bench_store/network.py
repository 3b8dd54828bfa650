"""Random synchronous writes of 4 KiB to a disk of another machine, with dcd in front, and alone.

A file in memory behind nbdkit, at a distance of its own. `rbd.py` does the same with images of a real Ceph.
"""
import contextlib
import os

from bench_common.distance import Distance
from bench_common.report import bar, each, medians, spread, table
from bench_common.system import tell

from .loads import synchronous_writes
from .stand import Dcd, answers, free_port, process, until

SIZE_MIB = 1024
ALONE = "alone"


@contextlib.contextmanager
def disk(settings, folder, name):
    """A URI of a disk at the distance."""
    image = os.path.join(folder, f"{name}.img")
    with open(image, "wb") as file:
        file.truncate(SIZE_MIB << 20)
    port = free_port()
    with process("nbdkit", "-f", "-i", "127.0.0.1", "-p", port, "file", image):
        until("nbdkit answers", lambda: answers(port))
        with Distance(port, settings.network_round_trip_ms) as far:
            yield f"nbd://127.0.0.1:{far.port}"


def measure(settings, folder, disk=disk):
    """All rounds, bars, and text. `disk` gives a URI of a disk at the distance."""
    rounds = []
    with contextlib.ExitStack() as stack:
        alone, behind, behind_disk = (stack.enter_context(disk(settings, folder, name)) for name in ("alone", "behind", "behind-disk"))
        ours = stack.enter_context(Dcd(settings, folder, "memory", behind))
        on_disk = stack.enter_context(Dcd(settings, folder, "disk", behind_disk, log_folder=settings.log_directory))
        targets = {"dcd, log in memory": ours.uri, "dcd, log on a disk": on_disk.uri, ALONE: alone}
        for number in range(settings.rounds):
            for name, target in targets.items():
                rounds.append({"name": name, "round": number, "iops": synchronous_writes(target, settings.seconds, SIZE_MIB)})
                tell(f"round {number + 1}: {name}: {rounds[-1]['iops']:.0f} writes/s")
                ours.drain_s()
                on_disk.drain_s()
    found = medians(rounds, "iops")
    bars = [bar(f"synchronous writes, {name}, by the disk alone", found[name] / found[ALONE], least=5) for name in list(targets)[:2]]
    rows = [(name, f"{found[name]:.0f}", spread(each(rounds, name, "iops")), f"{found[name] / found[ALONE]:.1f}") for name in targets]
    return {"rounds": rounds, "bars": bars, "text": table(("", "writes/s: median", "rounds", "by the disk alone"), rows)}
