"""Caches of other people and dcd, in turn, on the same two disks of one guest: 4 KiB random writes, each with a flush.

The slow disk is /dev/vdb behind dm-delay, the cache disk is /dev/vda as it is. Each round makes each of them anew, measures, and
takes it down; rounds begin with another one each, so that whatever drifts hits all alike.
"""
import contextlib
import json
import os
import subprocess
import time

from .cases import Case
from .daemon import CACHE_DISK, DATA_DISK
from .problem import Failure, Skip

SLOW = "/dev/mapper/slow"
FIO = ["fio", "--name=peers", "--ioengine=io_uring", "--direct=1", "--rw=randwrite", "--bs=4k", "--iodepth=1", "--fsync=1",
       "--size=96M", "--time_based", "--ramp_time=1", "--output-format=json", "--randrepeat=0"]


def bench(guest):
    """All setups in alternation; figures go to the directory shared with the host."""
    guest.need("fio", "fio")
    guest.need("dmsetup", "dmsetup")
    guest.module("dm-mod")
    guest.module("dm-delay")
    blocks = sectors(DATA_DISK)
    delay = guest.settings["delay_ms"]
    guest.run("dmsetup", "create", "slow", "--noudevsync", "--table", f"0 {blocks} delay {DATA_DISK} 0 {delay}")
    guest.run("dmsetup", "mknodes")
    figures, skipped = [], {}
    wanted = [name for name in SETUPS if not guest.settings["only"] or name in guest.settings["only"]]
    for number in range(guest.settings["rounds"]):
        turn = number % len(wanted)
        for name in wanted[turn:] + wanted[:turn]:
            if name in skipped:
                continue
            try:
                with contextlib.ExitStack() as stack:
                    device = SETUPS[name](guest, stack)
                    figures.append({"round": number, "setup": name, **measure(guest, device)})
            except Skip as reason:
                skipped[name] = str(reason)
            except Failure as failure:
                # One that fails here leaves no figure, and the others go on.
                skipped[name] = f"failed: {failure}"
            with open(os.path.join(guest.share, "peers.json"), "w", encoding="utf-8") as out:
                json.dump({"figures": figures, "skipped": skipped, "delay_ms": delay}, out)
    guest.run("dmsetup", "remove", "--noudevsync", "slow")


CASE = Case("bench_peers", bench, timeout_s=7200)


def measure(guest, device):
    """Writes with a flush each: how many a second, and how long they take."""
    before = processor_s()
    begin = time.monotonic()
    done = guest.run(*FIO, f"--filename={device}", f"--runtime={guest.settings['seconds']}", timeout_s=600)
    wall = time.monotonic() - begin
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    return {"per_second": job["write"]["iops"], "write_us": job["write"]["clat_ns"]["mean"] / 1e3,
            "flush_us": job["sync"]["lat_ns"]["mean"] / 1e3, "processors": (processor_s() - before) / wall}


def processor_s():
    """Seconds that the processors have worked."""
    with open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def raw(_guest, _stack):
    """The slow disk alone."""
    return SLOW


def cache_disk(_guest, _stack):
    """The cache disk alone: no cache can be faster that writes each block there."""
    return CACHE_DISK


def pass_through(guest, stack):
    """dcd without a cache on the cache disk: what ublk and user space cost."""
    guest.module("ublk_drv")
    daemon = subprocess.Popen([guest.dcd, "serve", "--null", "--data-disk", CACHE_DISK, "--ublk", "--quiet"], stdout=subprocess.PIPE,
                              text=True)
    stack.callback(daemon.wait, 60)
    stack.callback(daemon.terminate)
    return dict(word.split("=", 1) for word in daemon.stdout.readline().split()[1:])["ublk"]


def dcd(guest, stack):
    """dcd over ublk, as it is by default."""
    guest.disks = (CACHE_DISK, (SLOW,))
    guest.run(guest.busybox, "dd", "if=/dev/zero", f"of={CACHE_DISK}", "bs=1M", "count=8")
    guest.run(guest.dcd, "create", "--cache-disk", CACHE_DISK, "--force", "--data-disk", SLOW)
    stack.callback(guest.stop, 300)
    return guest.serve()


def writecache(guest, stack):
    """dm-writecache."""
    guest.module("dm-writecache")
    guest.run("dd", "if=/dev/zero", f"of={CACHE_DISK}", "bs=1M", "count=4", "oflag=direct")
    return mapped(guest, stack, "peer", f"0 {sectors(SLOW)} writecache s {SLOW} {CACHE_DISK} 4096 0")


def dm_cache(guest, stack):
    """dm-cache, writing back, with its default policy."""
    guest.module("dm-cache")
    guest.module("dm-cache-smq")
    metadata = 16 << 11
    guest.run("dd", "if=/dev/zero", f"of={CACHE_DISK}", "bs=1M", "count=4", "oflag=direct")
    mapped(guest, stack, "peer-meta", f"0 {metadata} linear {CACHE_DISK} 0")
    mapped(guest, stack, "peer-data", f"0 {sectors(CACHE_DISK) - metadata} linear {CACHE_DISK} {metadata}")
    parts = "/dev/mapper/peer-meta /dev/mapper/peer-data"
    return mapped(guest, stack, "peer", f"0 {sectors(SLOW)} cache {parts} {SLOW} 128 1 writeback smq 0")


def bcache(guest, stack):
    """bcache, writing back, also what it takes for sequential."""
    make = guest.settings["make_bcache"]
    if not make or not os.path.exists(make):
        raise Skip("no make-bcache (Debian: bcache-tools)")
    guest.module("bcache")
    for disk in (CACHE_DISK, SLOW):
        guest.run("dd", "if=/dev/zero", f"of={disk}", "bs=1M", "count=2", "oflag=direct")
    guest.run(make, "--writeback", "-C", CACHE_DISK, "-B", SLOW)
    if not eventually(lambda: os.path.exists("/sys/fs/bcache/register"), 10):
        raise Failure(f"bcache has no way to register disks: {os.listdir('/sys/fs/bcache')}")
    for disk in (CACHE_DISK, SLOW):
        put("/sys/fs/bcache/register", disk)
    if not eventually(lambda: os.path.exists("/sys/block/bcache0/bcache/cache_mode")):
        raise Failure("bcache did not appear")
    stack.callback(eventually, lambda: not os.path.exists("/sys/block/bcache0"))
    stack.callback(lambda: [put(os.path.join("/sys/fs/bcache", name, "stop"), "1") for name in os.listdir("/sys/fs/bcache") if "-" in name])
    stack.callback(put, "/sys/block/bcache0/bcache/stop", "1")
    put("/sys/block/bcache0/bcache/cache_mode", "writeback")
    put("/sys/block/bcache0/bcache/sequential_cutoff", "0")
    return "/dev/bcache0"


SETUPS = {"raw": raw, "cache disk": cache_disk, "pass-through ublk": pass_through, "dcd": dcd, "bcache": bcache,
          "dm-writecache": writecache, "dm-cache": dm_cache}


def mapped(guest, stack, name, table):
    """A device of the device mapper, until the end of the stack."""
    guest.run("dmsetup", "create", name, "--noudevsync", "--table", table)
    stack.callback(guest.run, "dmsetup", "remove", "--noudevsync", "--retry", name, timeout_s=300)
    guest.run("dmsetup", "mknodes")
    return f"/dev/mapper/{name}"


def sectors(device):
    """Blocks of 512 bytes."""
    return int(subprocess.run(["blockdev", "--getsz", device], capture_output=True, text=True, check=True).stdout)


def put(path, value):
    """Writes to a file of the kernel."""
    try:
        file = os.open(path, os.O_WRONLY)
        try:
            os.write(file, value.encode())
        finally:
            os.close(file)
    except OSError as error:
        raise Failure(f"cannot write {value} to {path}: {error}") from error


def eventually(condition, patience_s=60):
    """Waits until something is so; whether it came to be."""
    until = time.monotonic() + patience_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    return condition()
