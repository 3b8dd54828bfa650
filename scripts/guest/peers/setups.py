"""What is compared. Each makes a block device of the stand's two disks, and is taken down when the stack ends.

The cache disk of a stand is the guest's, or something made of it. A setup has a way to be emptied: everything
that is dirty goes to the slow disk, as fast as it likes, and the call returns when that is so.
"""
import contextlib
import os
import subprocess
import time
from dataclasses import dataclass

from ..daemon import CACHE_DISK, DATA_DISK
from ..problem import Failure, Skip

PATIENCE_S = 300


@dataclass
class Stand:
    """Two disks, and who makes something of them."""

    guest: object
    stack: contextlib.ExitStack
    cache_disk: str = CACHE_DISK
    slow_disk: str = DATA_DISK

    def run(self, *words, **more):
        """Runs a program to its end."""
        return self.guest.run(*words, timeout_s=PATIENCE_S, **more)

    def mapped(self, name, table):
        """A device of the device mapper, until the end of the stack."""
        self.run("dmsetup", "create", name, "--noudevsync", "--table", table)
        self.stack.callback(self.run, "dmsetup", "remove", "--noudevsync", "--retry", name)
        self.run("dmsetup", "mknodes")
        return f"/dev/mapper/{name}"

    def erase(self, disk, mib=4):
        """Nothing that anybody would know again."""
        self.run("dd", "if=/dev/zero", f"of={disk}", "bs=1M", f"count={mib}", "oflag=direct")


@dataclass
class Peer:
    """A device that is measured."""

    path: str
    # Brings all that is dirty to the slow disk; None: nothing ever is.
    drain: object = None
    # What makes `drain` begin at once; called before anything is dirty.
    prepare_drain: object = None


def raw(stand):
    """The slow disk alone."""
    return Peer(stand.slow_disk)


def cache_disk(stand):
    """The cache disk alone: no cache can be faster that writes each block there."""
    return Peer(stand.cache_disk)


def pass_through(stand):
    """dcd without a cache on the cache disk: what ublk and user space cost."""
    stand.guest.module("ublk_drv")
    words = [stand.guest.dcd, "serve", "--null", "--data-disk", stand.cache_disk, "--ublk", "--quiet"]
    daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    stand.stack.callback(daemon.wait, 60)
    stand.stack.callback(daemon.terminate)
    return Peer(dict(word.split("=", 1) for word in daemon.stdout.readline().split()[1:])["ublk"])


def dcd(stand):
    """dcd over ublk, as it is by default."""
    guest = stand.guest
    stand.erase(stand.cache_disk, 8)
    stand.run(guest.dcd, "create", "--cache-disk", stand.cache_disk, "--force", "--data-disk", stand.slow_disk)
    dcd_again(stand)
    return Peer(f"/dev/ublkb{guest.number}", lambda: stand.run(guest.dcd, "drain", "--control", "/run/dcd.ctl"))


def dcd_again(stand):
    """Starts the cache that is there."""
    guest = stand.guest
    guest.disks = (stand.cache_disk, (stand.slow_disk,))
    stand.stack.callback(guest.stop, PATIENCE_S)
    return guest.serve("--quiet")


def writecache(stand):
    """dm-writecache."""
    stand.erase(stand.cache_disk)
    path = writecache_again(stand)
    return Peer(path, lambda: stand.run("dmsetup", "message", "peer", "0", "flush"))


def writecache_again(stand):
    """Starts the cache that is there."""
    stand.guest.module("dm-writecache")
    return stand.mapped("peer", f"0 {sectors(stand.slow_disk)} writecache s {stand.slow_disk} {stand.cache_disk} 4096 0")


def dm_cache(stand):
    """dm-cache, writing back, with its default policy."""
    stand.erase(stand.cache_disk)
    path = dm_cache_again(stand)
    return Peer(path, lambda: dm_cache_clean(stand))


def dm_cache_again(stand):
    """Starts the cache that is there."""
    stand.guest.module("dm-cache")
    stand.guest.module("dm-cache-smq")
    metadata = 16 << 11
    stand.mapped("peer-meta", f"0 {metadata} linear {stand.cache_disk} 0")
    stand.mapped("peer-data", f"0 {sectors(stand.cache_disk) - metadata} linear {stand.cache_disk} {metadata}")
    return stand.mapped("peer", dm_cache_table(stand, "smq"))


def dm_cache_table(stand, policy):
    parts = "/dev/mapper/peer-meta /dev/mapper/peer-data"
    return f"0 {sectors(stand.slow_disk)} cache {parts} {stand.slow_disk} 128 1 writeback {policy} 0"


def dm_cache_clean(stand):
    """With its policy that only cleans; afterwards with the usual one again."""
    def change(policy):
        stand.run("dmsetup", "reload", "peer", "--table", dm_cache_table(stand, policy))
        stand.run("dmsetup", "suspend", "--noudevsync", "peer")
        stand.run("dmsetup", "resume", "--noudevsync", "peer")

    def dirty():
        return int(stand.run("dmsetup", "status", "peer").stdout.split()[13])

    change("cleaner")
    if not eventually(lambda: dirty() == 0, PATIENCE_S):
        raise Failure(f"dm-cache has {dirty()} dirty blocks after {PATIENCE_S} s of cleaning")
    change("smq")


def bcache(stand):
    """bcache, writing back, also what it takes for sequential."""
    make = stand.guest.settings["make_bcache"]
    if not make or not os.path.exists(make):
        raise Skip("no make-bcache (Debian: bcache-tools)")
    stand.guest.module("bcache")
    for disk in (stand.cache_disk, stand.slow_disk):
        stand.erase(disk, 2)
    # Its usual buckets are half a megabyte, of which it wants a few hundred.
    bucket = "512k" if sectors(stand.cache_disk) >= 512 << 11 else "64k"
    stand.run(make, "--writeback", "--bucket", bucket, "-C", stand.cache_disk, "-B", stand.slow_disk)
    path = bcache_again(stand)
    return Peer(path, bcache_clean, bcache_wake)


def bcache_again(stand):
    """Starts the cache that is there."""
    stand.guest.module("bcache")
    if not eventually(lambda: os.path.exists("/sys/fs/bcache/register"), 10):
        raise Failure(f"bcache has no way to register disks: {os.listdir('/sys/fs/bcache')}")
    for disk in (stand.cache_disk, stand.slow_disk):
        put("/sys/fs/bcache/register", os.path.realpath(disk))
    if not eventually(lambda: os.path.exists("/sys/block/bcache0/bcache/cache_mode")):
        raise Failure("bcache did not appear")
    stack = stand.stack
    stack.callback(eventually, lambda: not os.path.exists("/sys/block/bcache0"))
    stack.callback(lambda: [put(os.path.join("/sys/fs/bcache", name, "stop"), "1") for name in os.listdir("/sys/fs/bcache") if "-" in name])
    stack.callback(put, "/sys/block/bcache0/bcache/stop", "1")
    put("/sys/block/bcache0/bcache/cache_mode", "writeback")
    put("/sys/block/bcache0/bcache/sequential_cutoff", "0")
    return "/dev/bcache0"


def bcache_wake():
    """Its thread sleeps for `writeback_delay` when it has found nothing dirty, and nothing wakes it: others would have drained by then."""
    path = "/sys/block/bcache0/bcache/writeback_delay"
    asleep_s = int(get(path).split()[0])
    put(path, "1")
    time.sleep(asleep_s)


def bcache_clean():
    """Writes back without regard to others; afterwards as usual again."""
    at = "/sys/block/bcache0/bcache"
    before = {name: get(f"{at}/{name}").split()[0] for name in ("writeback_percent", "writeback_delay")}
    for name in before:
        put(f"{at}/{name}", "0")
    if not eventually(lambda: get(f"{at}/state") == "clean", PATIENCE_S):
        raise Failure(f"bcache is {get(f'{at}/state')} after {PATIENCE_S} s, dirty: {get(f'{at}/dirty_data')}")
    for name, value in before.items():
        put(f"{at}/{name}", value)


def writeboost(stand):
    """dm-writeboost as it is by default, from a module that the user has built for the guest's kernel."""
    stand.erase(stand.cache_disk)
    return Peer(writeboost_again(stand), lambda: stand.run("dmsetup", "message", "peer", "0", "drop_caches"))


def writeboost_again(stand):
    """Starts the cache that is there."""
    module = stand.guest.settings["writeboost"]
    if not module:
        raise Skip("no module of dm-writeboost: --writeboost FILE")
    stand.guest.module("dm-mod")
    stand.guest.module("libcrc32c")
    if not os.path.exists("/sys/module/dm_writeboost"):
        stand.run(stand.guest.busybox, "insmod", module)
    return stand.mapped("peer", f"0 {sectors(stand.slow_disk)} writeboost {stand.slow_disk} {stand.cache_disk}")


SETUPS = {"raw": raw, "cache disk": cache_disk, "pass-through ublk": pass_through, "dcd": dcd, "bcache": bcache,
          "dm-writecache": writecache, "dm-cache": dm_cache, "dm-writeboost": writeboost}
# Those that have something to do after a power cut: how what is there starts again.
AGAIN = {"dcd": dcd_again, "bcache": bcache_again, "dm-writecache": writecache_again, "dm-cache": dm_cache_again,
         "dm-writeboost": writeboost_again}


def sectors(device):
    """Blocks of 512 bytes."""
    return int(subprocess.run(["blockdev", "--getsz", device], capture_output=True, text=True, check=True).stdout)


def get(path):
    """What a file of the kernel says."""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


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
