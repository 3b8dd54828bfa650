"""Power cuts as a disk sees them: what was not flushed may be lost, in any selection; and cuts of the whole guest.

Cache-disk and data-disk are two parts of one disk whose writes are logged (dm-log-writes), so their order to each other is known.
Each state that this disk may have had is made again, from the log, on the host; a start there must find the
state after one of the changes, and none that was answered as durable may be missing (C2, C3, C9).
"""
import json
import os
import random
import time

from .. import replay
from ..daemon import CACHE_DISK, MORE_DISKS
from ..history import History, read
from . import case

MIB = 1 << 20
CACHE_MIB, DATA_MIB = 16, 2
LOGGED_DISK, LOG_DISK = CACHE_DISK, MORE_DISKS[0]
CHANGES = 40
# What histories differ in besides their seed: how writes are answered, and whether destaging goes on all the time.
EAGER = ("--idle-max", "1ms", "--idle-min", "1ms")
OPTIONS = (("--ack", "memory"), ("--ack", "memory", *EAGER), ("--ack", "log"), ("--ack", "log", *EAGER), ("--ack", "durable", *EAGER),
           ("--ack", "memory", "--max-delay", "1ms", *EAGER))


def check_logs(host):
    """On the host: a start in each state."""
    replay.check_logs(host.dcd, os.path.join(host.share, "kept"), host.work, host.say)


@case(timeout_s=7200, after=check_logs)
def log_writes(guest):
    """The cache-disk's writes replayed to each flush and FUA write: after each, a start finds a state that may be."""
    guest.need("dmsetup", "dmsetup")
    guest.module("dm-log-writes")
    chance = random.Random(guest.settings["seed"])
    for workload in range(guest.settings["workloads"]):
        seed, options = chance.randrange(1 << 30), OPTIONS[workload % len(OPTIONS)]
        kill_at = chance.randrange(1, CHANGES) if workload % 3 == 2 else 0
        log_bytes = logged_history(guest, History(seed), options, kill_at)
        kept = os.path.join(guest.kept, f"{workload:03}")
        with open(LOG_DISK, "rb") as log, open(f"{kept}.log", "wb") as out:
            out.write(log.read(log_bytes))
        with open(f"{kept}.json", "w", encoding="utf-8") as out:
            json.dump({"seed": seed, "begun": CHANGES, "options": options, "kill_at": kill_at, "cache_mib": CACHE_MIB,
                       "data_mib": DATA_MIB}, out)


def logged_history(guest, history, options, kill_at):
    """Makes the changes on a cache whose disk is logged. How long the log is in bytes."""
    for disk in (LOGGED_DISK, LOG_DISK):
        guest.run(guest.busybox, "blkdiscard", disk)
    map_device(guest, "logged", f"0 {(CACHE_MIB + DATA_MIB) << 11} log-writes {LOGGED_DISK} {LOG_DISK}")
    cache, data = parts(guest, "/dev/mapper/logged")
    guest.run(guest.dcd, "create", "--cache-disk", cache, "--segment-size", "128k", "--force", "--data-disk", data)
    guest.disks = (cache, (data,))
    device = guest.serve("--quiet", *options)
    with open(f"/sys/block/{os.path.basename(device)}/queue/discard_max_bytes", encoding="utf-8") as file:
        # From Linux 7 on dm-log-writes takes no requests to write zeroes, without which dcd offers no discard.
        history.has_discards = int(file.read()) > 0
    for number in range(1, CHANGES + 1):
        if history.apply(device, number):
            # All up to this change is durable, and was answered.
            guest.run("dmsetup", "message", "logged", "0", "mark", f"durable-{number}")
        if number == kill_at:
            guest.kill()
            guest.again()
    # As a power cut: what the daemon would still write is not written.
    guest.kill()
    guest.remove_devices()
    guest.run("dmsetup", "message", "logged", "0", "mark", "end")
    sectors = int(guest.run("dmsetup", "status", "logged").stdout.split()[-1])
    for name in ("cache", "data", "logged"):
        guest.run("dmsetup", "remove", "--noudevsync", "--retry", name)
    # With the mark that the end of the device writes.
    return (sectors << 9) + MIB


def parts(guest, disk):
    """Cache-disk and data-disk on one disk."""
    map_device(guest, "cache", f"0 {CACHE_MIB << 11} linear {disk} 0")
    map_device(guest, "data", f"0 {DATA_MIB << 11} linear {disk} {CACHE_MIB << 11}")
    return "/dev/mapper/cache", "/dev/mapper/data"


def map_device(guest, name, table):
    """A device of the device mapper."""
    guest.run("dmsetup", "create", name, "--noudevsync", "--table", table)
    guest.run("dmsetup", "mknodes")


@case(timeout_s=900, cuts=True)
def power_cut_prefix(guest):
    """The guest loses power under changes of all kinds, one after the other: what is found is the state after one of them."""
    cut = guest.noted("cut") or 0
    options = OPTIONS[cut % len(OPTIONS)]
    if cut == 0:
        guest.create()
    device = guest.serve("--quiet", *options)
    if cut > 0:
        # The number of a change says which cut it was before; older ones are below what was found then.
        history = History(guest.settings["seed"] + cut)
        wrong, _ = history.check(read(device), guest.noted("durable"), guest.noted("begun"))
        guest.check(wrong is None, f"after cut {cut}: {wrong}")
    if cut == guest.settings["cuts"]:
        guest.stop()
        return
    # From zeroes again, so that a history begins.
    guest.run(guest.busybox, "blkdiscard", "-z", "-l", str(MIB), device, may_fail=True)
    guest.run("dd", "if=/dev/zero", f"of={device}", "bs=64k", "count=8", "oflag=direct", "conv=fsync")
    guest.note("cut", cut + 1)
    history, number = History(guest.settings["seed"] + cut + 1), 0
    guest.note("durable", 0)
    end = time.monotonic() + random.Random(cut).uniform(2, 6)
    while time.monotonic() < end:
        number += 1
        if number % 8 == 1:
            # What may be on the disk is noted before it can be; once for some of them, as that takes time.
            guest.note("begun", number + 7)
        if history.apply(device, number):
            guest.note("durable", number)
    guest.cut()
