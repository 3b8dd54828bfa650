"""The ublk device over disks that fail (device mapper), and at its limits: sizes, discards, read-only, growth."""
import errno
import fcntl
import mmap
import os
import struct
import time

from ..daemon import CACHE_DISK, CONTROL, DATA_DISK
from ..history import BLKDISCARD, SECTOR_BYTES, History, read
from . import case

MIB = 1 << 20
DATA_MIB = 64
EAGER = ("--idle-max", "1ms", "--idle-min", "1ms")
CHANGES = 60
PATIENCE_S = 30


@case(timeout_s=600)
def flaky_data_disk(guest):
    """A data-disk that fails for a second again and again (dm-flakey): who writes does not see it, who reads what is only there can
    repeat that, and in the end all is on it (C24)."""
    guest.module("dm-flakey")
    table = f"0 {DATA_MIB << 11}"
    data = map_device(guest, "data", f"{table} linear {DATA_DISK} 0")
    guest.create(data_disks=(data,))
    device = guest.serve(*EAGER)
    reload_device(guest, "data", f"{table} flakey {DATA_DISK} 0 1 1")
    history = History(guest.settings["seed"])
    for number in range(1, CHANGES + 1):
        history.apply(device, number)
        time.sleep(0.05)
    wrong, _ = history.check(read_patiently(guest, device), CHANGES, CHANGES)
    guest.check(wrong is None, f"while the data-disk fails: {wrong}")
    failed = guest.status()["counters"]
    reload_device(guest, "data", f"{table} linear {DATA_DISK} 0")
    guest.run(guest.dcd, "detach", "--control", CONTROL)
    guest.daemon.wait(60)
    guest.daemon = None
    wrong, _ = history.check(read(data), CHANGES, CHANGES)
    guest.check(wrong is None, f"on the data-disk after a detach: {wrong}")
    guest.check(any(failed[name] for name in failed if "error" in name and "data" in name), f"the data-disk never failed: {failed}")


def read_patiently(guest, device):
    """Reads as soon as it can be: what is on the failing disk alone fails with it, and with nothing but EIO."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return read(device)
        except OSError as error:
            guest.check(error.errno == errno.EIO and time.monotonic() < until, f"a read failed: {error}")
            time.sleep(0.1)


@case(timeout_s=600)
def failing_cache_disk(guest):
    """A cache-disk that is gone from one moment on (dm-error): flushes fail or are true; when it is back, so is what was durable (C22)."""
    guest.run("dmsetup", "version")
    size = 64 << 11
    cache = map_device(guest, "cache", f"0 {size} linear {CACHE_DISK} 0")
    guest.create(cache_disk=cache)
    device = guest.serve("--idle-max", "300s", "--idle-min", "300s", "--io-timeout", "3s")
    history, durable, number = History(guest.settings["seed"]), 0, 0
    while number < CHANGES:
        number += 1
        durable = number if history.apply(device, number) else durable
    reload_device(guest, "cache", f"0 {size} error")
    failed = 0
    while number < 2 * CHANGES:
        number += 1
        try:
            durable = number if history.apply(device, number) else durable
        except OSError as error:
            guest.check(error.errno in (errno.EIO, errno.EROFS, errno.EPERM), f"a change failed with {error}")
            failed += 1
            break
    guest.check(failed, "no error was seen although the cache-disk was gone")
    reload_device(guest, "cache", f"0 {size} linear {CACHE_DISK} 0")
    guest.kill()
    device = guest.again()
    # The change that failed may have come about.
    wrong, _ = history.check(read(device), durable, number)
    guest.check(wrong is None, f"after the cache-disk was back: {wrong}")
    guest.stop()


@case()
def discard_limits(guest):
    """Discards: granularity, alignment and longest are what the kernel is told; odd ones, and those behind the end."""
    data = map_device(guest, "data", f"0 {(DATA_MIB << 11) + 7} linear {DATA_DISK} 0")
    guest.create(data_disks=(data,))
    device = guest.serve("--quiet")
    physical = queue(device, "physical_block_size")
    guest.check(queue(device, "discard_granularity") == physical, f"granularity {queue(device, 'discard_granularity')}")
    guest.check(sysfs(device, "discard_alignment") == "0", "discards are not aligned to the device")
    longest, zeroes = queue(device, "discard_max_bytes"), queue(device, "write_zeroes_max_bytes")
    guest.check(longest >= DATA_MIB * MIB and longest % physical == 0 and zeroes >= DATA_MIB * MIB, f"longest {longest}, {zeroes}")
    end = (DATA_MIB << 11) + 7
    guest.run("dd", "if=/dev/urandom", f"of={device}", "bs=1M", "count=4", "oflag=direct")
    before, ranges = content(device, 4 * MIB), ((1, 1), (9, 7), (17, 24), (100, 1000), (4000, 4192))
    for first, sectors in ranges:
        discard(device, first, sectors)
    found = content(device, 4 * MIB)
    for at in range(4 * MIB // SECTOR_BYTES):
        here = slice(at * SECTOR_BYTES, (at + 1) * SECTOR_BYTES)
        around = next(((first, sectors) for first, sectors in ranges if first <= at < first + sectors), None)
        granule = physical // SECTOR_BYTES
        is_whole = around and around[0] <= at // granule * granule and (at // granule + 1) * granule <= sum(around)
        # What is less than a granule may stay.
        may_be = [bytes(SECTOR_BYTES)] if is_whole else [before[here]] + ([bytes(SECTOR_BYTES)] if around else [])
        guest.check(found[here] in may_be, f"sector {at} after discards, which was {'in' if around else 'not in'} one")
    discard(device, end - 7, 7)
    for first, sectors in ((end, 8), (end - 3, 8)):
        guest.check(raises(errno.EINVAL, discard, device, first, sectors), f"a discard of {sectors} sectors from {first} of {end} was taken")
    # All of it, which is longer than one request of some kernels.
    guest.run(guest.busybox, "blkdiscard", device)
    guest.check(content(device, 4 * MIB) == bytes(4 * MIB), "not zero after a discard of everything")
    guest.stop()


@case()
def odd_sizes(guest):
    """A device that does not end at a multiple of 4 KiB: its last sectors, and requests of odd lengths, also over the end."""
    sectors = (DATA_MIB << 11) + 5
    data = map_device(guest, "data", f"0 {sectors} linear {DATA_DISK} 0")
    guest.create(data_disks=(data,))
    device = guest.serve("--quiet")
    guest.check(int(guest.run("blockdev", "--getsz", device).stdout) == sectors, "another size than the data-disk's")
    expected = {}
    for first, count in ((sectors - 5, 5), (sectors - 13, 3), (3, 1), (7, 9), (1023, 1023), (4097, 8)):
        put(device, first, bytes([first % 251 + 1]) * (count * SECTOR_BYTES))
        expected[first] = count
    for again in range(2):
        for first, count in expected.items():
            with open(device, "rb") as file:
                file.seek(first * SECTOR_BYTES)
                guest.check(file.read(count * SECTOR_BYTES) == bytes([first % 251 + 1]) * (count * SECTOR_BYTES),
                            f"sectors {first}+{count} differ, time {again}")
        guest.kill()
        device = guest.again()
    with open(device, "rb") as file:
        file.seek((sectors - 1) * SECTOR_BYTES)
        guest.check(len(file.read(8 * SECTOR_BYTES)) == SECTOR_BYTES, "a read over the end is not cut off there")
    guest.check(raises(errno.ENOSPC, put, device, sectors, bytes(SECTOR_BYTES)), "a write behind the end was taken")
    guest.run("mkfs.ext4", "-q", "-F", "-b", "1024", device)
    guest.run("fsck.ext4", "-fn", device)
    guest.stop()


@case()
def read_only(guest):
    """A read-only device: no write, discard or change of the flag; a file system on it can be mounted and read."""
    guest.create()
    device = guest.serve()
    guest.run("mkfs.ext4", "-q", "-E", "nodiscard", device)
    guest.mount(device, "/run/fs")
    guest.run("cp", "-r", "/etc/init.d", "/run/fs/")
    guest.umount("/run/fs")
    guest.stop()
    device = guest.serve("--read-only")
    for what in ((put, device, 0, bytes(SECTOR_BYTES)), (discard, device, 0, 8)):
        guest.check(any(raises(number, *what) for number in (errno.EPERM, errno.EACCES, errno.EROFS)), f"{what[0].__name__} was taken")
    guest.run("blockdev", "--setrw", device, may_fail=True)
    guest.check(any(raises(number, put, device, 0, bytes(SECTOR_BYTES)) for number in (errno.EPERM, errno.EACCES, errno.EROFS)),
                "a write was taken after --setrw")
    guest.mount(device, "/run/fs", "-o", "ro")
    guest.run("diff", "-r", "/etc/init.d", "/run/fs/init.d")
    guest.umount("/run/fs")
    guest.stop()


@case()
def grown_data_disk(guest):
    """A data-disk that has grown: a device from before is refused with words, one made anew has the new size and what was there."""
    table = "linear " + DATA_DISK + " 0"
    data = map_device(guest, "data", f"0 {DATA_MIB << 11} {table}")
    guest.create(data_disks=(data,))
    device = guest.serve("--quiet")
    history = History(guest.settings["seed"])
    for number in range(1, CHANGES + 1):
        history.apply(device, number)
    held = open(device, "rb")
    fcntl.flock(held, fcntl.LOCK_SH)
    guest.kill()
    reload_device(guest, "data", f"0 {2 * DATA_MIB << 11} {table}")
    words = ["--cache-disk", CACHE_DISK, "--data-disk", data]
    refused = guest.run(guest.dcd, "serve", *words, "--ublk", may_fail=True)
    guest.check(refused.returncode != 0 and "dcd grow" in refused.stderr, f"not refused: {refused.stderr}")
    guest.run(guest.dcd, "grow", *words)
    refused = guest.run(guest.dcd, "serve", *words, "--ublk", may_fail=True)
    guest.check(refused.returncode != 0 and "dcd ublk remove" in refused.stderr, f"the old device was taken: {refused.stderr}")
    held.close()
    guest.run(guest.dcd, "ublk", "remove", str(guest.number))
    device = guest.serve("--quiet")
    guest.check(int(guest.run("blockdev", "--getsz", device).stdout) == 2 * DATA_MIB << 11, "not the new size")
    wrong, _ = history.check(read(device), CHANGES, CHANGES)
    guest.check(wrong is None, f"after it has grown: {wrong}")
    put(device, (2 * DATA_MIB << 11) - 1, b"\x77" * SECTOR_BYTES)
    guest.stop()


def map_device(guest, name, table):
    """A device of the device mapper."""
    guest.need("dmsetup", "dmsetup")
    guest.module("dm-mod")
    guest.run("dmsetup", "create", name, "--noudevsync", "--table", table)
    guest.run("dmsetup", "mknodes")
    return f"/dev/mapper/{name}"


def reload_device(guest, name, table):
    """Another table, from now on."""
    guest.run("dmsetup", "reload", name, "--table", table)
    guest.run("dmsetup", "suspend", "--noudevsync", "--nolockfs", name)
    guest.run("dmsetup", "resume", "--noudevsync", name)


def put(device, first, data):
    """One write past the kernel's cache."""
    file = os.open(device, os.O_WRONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, len(data)) as memory:
            memory[:] = data
            if os.pwrite(file, memory, first * SECTOR_BYTES) != len(data):
                raise OSError(errno.EIO, "a short write")
    finally:
        os.close(file)


def discard(device, first, sectors):
    """One discard."""
    file = os.open(device, os.O_WRONLY)
    try:
        fcntl.ioctl(file, BLKDISCARD, struct.pack("=QQ", first * SECTOR_BYTES, sectors * SECTOR_BYTES))
    finally:
        os.close(file)


def raises(number, function, *arguments):
    """Whether it fails so."""
    try:
        function(*arguments)
        return False
    except OSError as error:
        return error.errno == number


def content(device, length):
    """Bytes from the beginning on, past the kernel's cache."""
    with mmap.mmap(-1, length) as memory:
        file = os.open(device, os.O_RDONLY | os.O_DIRECT)
        try:
            done = os.preadv(file, [memory], 0)
            if done != length:
                raise OSError(errno.EIO, f"{done} bytes read")
        finally:
            os.close(file)
        return memory[:]


def queue(device, name):
    """A limit of a device, as the kernel tells it."""
    return int(sysfs(device, f"queue/{name}"))


def sysfs(device, name):
    """A fact of a device, as the kernel tells it."""
    with open(f"/sys/block/{os.path.basename(device)}/{name}", encoding="utf-8") as file:
        return file.read().strip()
