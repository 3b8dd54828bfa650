"""The two disks that the peers share: those of the machine, or models of both that the guest makes itself.

Models are for a guest whose own disks answer at the pace of a process of the host: the cache disk is null_blk with a timer, and a
volatile cache, so that flushes reach it and take as long as a write; the slow disk is `dcd slow-disk` over ublk. Both keep their bytes in the
guest's memory.
"""
import contextlib
import os
import subprocess

from ..daemon import CACHE_DISK, DATA_DISK
from ..problem import Failure, Skip

CONFIGFS = "/sys/kernel/config"
NAME = "peers_cache"
# Of the slow disk; caches take the lowest that are free.
UBLK_NUMBER = 60
MIB = 1024


@contextlib.contextmanager
def disks(guest):
    """Paths of the cache disk and of the slow disk."""
    model = guest.settings.get("model")
    if not model:
        yield CACHE_DISK, DATA_DISK
        return
    with contextlib.ExitStack() as stack:
        yield null_disk(guest), slow_disk(guest, stack, model)


def null_disk(guest):
    """A disk of memory on which each operation takes some microseconds, however many are under way."""
    guest.module("null_blk")
    if not os.path.isdir(f"{CONFIGFS}/nullb"):
        guest.run("mount", "-t", "configfs", "config", CONFIGFS)
    place = f"{CONFIGFS}/nullb/{NAME}"
    os.mkdir(place)
    wanted = {"size": MIB, "memory_backed": 1, "cache_size": 64, "discard": 1, "irqmode": 2, "completion_nsec": guest.settings["cache_us"] * 1000,
              "submit_queues": 1, "hw_queue_depth": 128, "power": 1}
    for name, value in wanted.items():
        with open(f"{place}/{name}", "w", encoding="utf-8") as file:
            file.write(str(value))
    for path in (f"/dev/{NAME}", "/dev/nullb0"):
        if os.path.exists(path):
            return path
    raise Failure("null_blk has made no device")


def slow_disk(guest, stack, model):
    """A model of a mechanical disk in real time."""
    guest.module("ublk_drv")
    image = "/run/slow.img"
    with open(image, "wb") as file:
        file.truncate(MIB << 20)
    words = [guest.dcd, "slow-disk", "--model", model, "--disk", image, "--ublk", str(UBLK_NUMBER), "--quiet"]
    daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    stack.callback(daemon.wait, 60)
    stack.callback(daemon.terminate)
    if not daemon.stdout.readline().startswith("ready "):
        raise Skip(f"the slow disk did not start: {' '.join(words)}")
    return f"/dev/ublkb{UBLK_NUMBER}"
