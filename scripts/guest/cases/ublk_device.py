"""The ublk device: what it says of itself, what comes of requests, file systems on it, its end."""
import errno
import json
import mmap
import os
import signal
import subprocess

from ..daemon import CACHE_DISK, CONTROL, DATA_DISK, MORE_DISKS
from . import case

MIB = 1 << 20
VOLUME = """\
extent = "64k"
[[set]]
level = 5
"""


@case(is_quick=True)
def smoke(guest):
    """mkfs, mount, copy, unmount, mount, compare; SIGTERM removes the device; the next start shows the same."""
    guest.create()
    device = guest.serve()
    guest.run("mkfs.ext4", "-q", "-E", "nodiscard", device)
    guest.mount(device, "/run/fs")
    guest.run("cp", "-r", "/etc/init.d", "/etc/terminfo", "/run/fs/")
    guest.umount("/run/fs")
    guest.mount(device, "/run/fs")
    guest.run("diff", "-r", "/etc/init.d", "/run/fs/init.d")
    guest.umount("/run/fs")
    guest.stop()
    guest.check(not os.path.exists(device), f"{device} is there after the end")
    device = guest.serve()
    guest.run("fsck.ext4", "-fn", device)
    guest.mount(device, "/run/fs")
    guest.run("diff", "-r", "/etc/init.d", "/run/fs/init.d")
    guest.umount("/run/fs")
    guest.stop()


@case()
def limits(guest):
    """Sizes, limits and cache of the device are those of the data-disk and the frontend."""
    guest.create()
    device = guest.serve()
    guest.check(queue(device, "logical_block_size") == 512, "logical blocks are not those of the data-disk")
    guest.check(queue(device, "physical_block_size") == queue(DATA_DISK, "physical_block_size"), "physical blocks differ")
    guest.check(queue(device, "write_cache") == "write back", "the kernel would not flush")
    guest.check(queue(device, "fua") == 1, "no FUA")
    guest.check(queue(device, "max_sectors_kb") == 1024, f"max_sectors_kb {queue(device, 'max_sectors_kb')}")
    guest.check(queue(device, "discard_max_bytes") > MIB, "no discard")
    guest.check(queue(device, "write_zeroes_max_bytes") > MIB, "no write-zeroes")
    guest.check(size_of(device) == size_of(DATA_DISK), "the size is not that of the data-disk")
    guest.stop()
    # Read-only, with a number.
    device = guest.serve("--read-only", device="--ublk 7")
    guest.check(device == "/dev/ublkb7", f"asked for number 7, got {device}")
    guest.check(read_sysfs(device, "ro") == "1", "not read-only")
    guest.stop()


@case()
def flush_and_fua(guest):
    """Flushes and FUA of the kernel reach the engine: they are durable before they are answered."""
    guest.create()
    device = guest.serve("--max-delay", "20s", "--idle-max", "60s")
    before = commits(guest)
    for number in range(4):
        write(device, number * 4096, b"\x11" * 4096, os.O_DIRECT)
    same = commits(guest)
    guest.check(same == before, f"writes alone were committed: {before} -> {same}")
    with open(device, "rb") as file:
        os.fsync(file.fileno())
    flushed = commits(guest)
    guest.check(flushed > same, "a flush was not committed")
    # O_DSYNC on a block device is a write with FUA.
    write(device, MIB, b"\x22" * 4096, os.O_DIRECT | os.O_DSYNC)
    guest.check(commits(guest) > flushed, "a write with FUA was not committed")
    guest.stop()


@case()
def discard_and_zeroes(guest):
    """Discarded and zeroed ranges read as zeroes, their neighbours stay, also after a restart."""
    guest.create()
    device = guest.serve()
    guest.run("dd", "if=/dev/urandom", "of=/run/pattern", "bs=1M", "count=8")
    guest.run("dd", "if=/run/pattern", f"of={device}", "bs=1M", "oflag=direct")
    guest.run("blkdiscard", "-o", str(MIB), "-l", str(MIB), device)
    guest.run("blkdiscard", "-z", "-o", str(3 * MIB + 512), "-l", str(MIB), device)
    with open("/run/pattern", "rb") as file:
        expected = bytearray(file.read())
    expected[MIB:2 * MIB] = bytes(MIB)
    expected[3 * MIB + 512:4 * MIB + 512] = bytes(MIB)

    def compare(when):
        with open(device, "rb") as file:
            guest.check(file.read(8 * MIB) == expected, f"other bytes than were written, {when}")

    compare("at once")
    guest.stop()
    device = guest.serve()
    compare("after a restart")
    guest.stop()


@case()
def large_writes_bypass(guest):
    """Writes as long as `bypass-threshold` reach the daemon in one piece, and go past the log."""
    guest.create()
    device = guest.serve("--quiet", "--idle-min", "300s", "--idle-max", "300s")
    guest.run("dd", "if=/dev/urandom", "of=/run/pattern", "bs=1M", "count=8")
    guest.run("dd", "if=/run/pattern", f"of={device}", "bs=1M", "oflag=direct", "conv=fsync")
    # Those that touch a witness are logged.
    bypasses = guest.status()["counters"]["bypasses"]
    guest.check(bypasses >= 4, f"{bypasses} of 8 writes of 1 MiB went past the log")
    guest.run("cmp", "-n", str(8 * MIB), "/run/pattern", device)
    # What is shorter, or does not begin where a line begins, is logged.
    guest.run("dd", "if=/run/pattern", f"of={device}", "bs=512k", "count=2", "oflag=direct")
    guest.run("dd", "if=/run/pattern", f"of={device}", "bs=1M", "count=1", "oflag=direct,seek_bytes", "seek=512")
    guest.check(guest.status()["counters"]["bypasses"] == bypasses, "short or unaligned writes went past the log")
    guest.stop()


@case(timeout_s=600)
def fio_verify(guest):
    """fio writes with checksums, several at a time, and reads all back."""
    fio = guest.need("fio", "fio")
    guest.create()
    device = guest.serve()
    for name, words in {
        "small": ["--rw=randwrite", "--bs=512-16k", "--bsrange=512-16k", "--size=48M", "--io_size=24M", "--iodepth=16", "--fsync=32"],
        "large": ["--rw=write", "--bs=1M", "--size=128M", "--iodepth=8"],
    }.items():
        guest.run(fio, f"--name={name}", f"--filename={device}", "--ioengine=io_uring", "--direct=1", "--verify=crc32c",
                  "--verify_fatal=1", "--do_verify=1", f"--randseed={guest.settings['seed']}", *words, timeout_s=400)
    guest.stop()


@case(timeout_s=900)
def file_systems(guest):
    """ext4, xfs and btrfs: copy a tree, unmount, check, mount, compare; in turn on one device."""
    guest.create()
    device = guest.serve()
    tried = 0
    for name, words, check in (
        ("ext4", ["mkfs.ext4", "-q", "-F"], ["fsck.ext4", "-fn"]),
        ("xfs", ["mkfs.xfs", "-q", "-f"], ["xfs_repair", "-n"]),
        ("btrfs", ["mkfs.btrfs", "-q", "-f"], ["btrfs", "check", "--readonly"]),
    ):
        guest.need(words[0], {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}[name])
        guest.module(name)
        guest.run(*words, device)
        for number in range(2):
            guest.mount(device, "/run/fs", "-t", name)
            guest.run("cp", "-r", "/etc/terminfo", "/etc/init.d", f"/run/fs/{number}" if number else "/run/fs/")
            if number == 0:
                os.mkdir("/run/fs/1")
            guest.umount("/run/fs")
            guest.run(*check, device)
        guest.mount(device, "/run/fs", "-t", name)
        guest.run("diff", "-r", "/etc/init.d", "/run/fs/1/init.d")
        guest.umount("/run/fs")
        tried += 1
    guest.check(tried == 3, "not all were tried")
    guest.stop()


@case(timeout_s=900)
def fsx(guest):
    """fsx, on the device itself."""
    program = guest.settings["fsx"]
    guest.check_tool(program, "no fsx: `make tools` builds it")
    guest.create()
    device = guest.serve()
    config = "/run/fsx.toml"
    with open(config, "w", encoding="utf-8") as out:
        out.write('flen = 33554432\nblockmode = true\n[opsize]\nmax = 131072\nalign = 512\n[weights]\ntruncate = 0\nread = 3\n'
                  'write = 3\nmapread = 1\nmapwrite = 1\nfsync = 0.5\nfdatasync = 0.5\npunch_hole = 1\ninvalidate = 0.5\n'
                  'posix_fadvise = 1\n')
    guest.run(program, "-f", config, "-N", "3000", "-S", str(guest.settings["seed"]), "-P", "/run", device, timeout_s=800)
    guest.stop()


@case(timeout_s=600)
def volume_of_three(guest):
    """A RAID 5 volume of three disks behind one device: fio verify, kill -9, fio verify."""
    fio = guest.need("fio", "fio")
    with open("/run/volume.toml", "w", encoding="utf-8") as out:
        out.write(VOLUME)
    guest.create("--volume", "/run/volume.toml", data_disks=(DATA_DISK, *MORE_DISKS))
    device = guest.serve()
    load = [fio, "--name=v", f"--filename={device}", "--ioengine=io_uring", "--direct=1", "--rw=randwrite", "--bs=4k", "--size=32M",
            "--io_size=12M", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1"]
    guest.run(*load, timeout_s=300)
    guest.kill()
    device = guest.again()
    guest.run(*load, "--verify_only", timeout_s=300)
    # The kernel marks what a file system writes as metadata, such as its superblock; fio's blocks were not.
    guest.check("metadata" not in attributes(guest, 0), "metadata before there is a file system")
    guest.run("mkfs.xfs", "-q", "-f", device)
    guest.module("xfs")
    guest.mount(device, "/run/fs", "-t", "xfs")
    guest.run("cp", "-r", "/etc/init.d", "/run/fs/")
    guest.umount("/run/fs")
    guest.check("metadata" in attributes(guest, 0), f"the superblock of xfs is {attributes(guest, 0)}")
    guest.stop()


@case(timeout_s=600)
def errors_reach_users(guest):
    """A disk that fails: each request is answered, with an error or with what was written, and none is left waiting."""
    fio = guest.need("fio", "fio")
    guest.create()
    device = guest.serve("--io-timeout", "3s", "--idle-max", "300s", "--idle-min", "300s", faults=True)
    for block in range(16):
        write(device, block * 4096, b"\x33" * 4096, os.O_DIRECT | os.O_DSYNC)
    reads = [fio, "--name=e", f"--filename={device}", "--ioengine=io_uring", "--direct=1", "--rw=randrw", "--bs=4k", "--offset=64M",
             "--size=64M", "--io_size=8M", "--iodepth=32", "--continue_on_error=all", "--ignore_error=EIO,EIO"]
    # What is in the log is read all the same; elsewhere there are errors, and fio comes to its end.
    guest.faults(data="read eio")
    guest.check(read(device, 0) == b"\x33" * 4096, "what is in the log was not read")
    guest.check(fails(device, 128 * MIB), "a block of a failing data-disk was read")
    guest.run(*reads, timeout_s=120, may_fail=True)
    guest.faults(data="read hang")
    guest.check(fails(device, 160 * MIB), "a block of a hanging data-disk was read")
    guest.faults()
    guest.check(read(device, 200 * MIB) == bytes(4096), "no zeroes after the end of the faults")
    guest.check(fails_to_write(guest, device), "a flush was answered although the cache-disk fails")
    guest.check(read(device, 0) == b"\x33" * 4096, "the device does not answer after errors")
    guest.faults()
    guest.kill()
    again = guest.again()
    guest.check(read(again, 0) == b"\x33" * 4096, "what was flushed is lost")
    write(again, 0, b"\x44" * 4096, os.O_DIRECT | os.O_DSYNC)
    guest.stop()


@case()
def in_use_at_the_end(guest):
    """SIGTERM with a mounted file system leaves the device; the next start takes it over and nobody sees an error."""
    guest.create()
    device = guest.serve()
    guest.run("mkfs.ext4", "-q", "-E", "nodiscard", device)
    guest.mount(device, "/run/fs")
    guest.run("cp", "-r", "/etc/init.d", "/run/fs/")
    guest.stop()
    guest.check(os.path.exists(device), f"{device} was taken away from a mounted file system")
    listed = json.loads(guest.run(guest.dcd, "ublk", "list", "--json").stdout)
    guest.check([one["served_by"] for one in listed] == [None], f"listed as {listed}")
    again = guest.serve()
    guest.check(again == device, f"another device: {again}")
    guest.run("cp", "-r", "/etc/terminfo", "/run/fs/")
    guest.run("sync")
    guest.umount("/run/fs")
    guest.run("fsck.ext4", "-fn", device)
    guest.stop()


@case()
def restart_leaves_the_device(guest):
    """SIGUSR1 leaves the device to those who have it open without a claim; as something else it is not taken over."""
    guest.create()
    device = guest.serve()
    # Not closed by itself when the case fails: that would wait for somebody to serve the device.
    user = os.open(device, os.O_RDWR)
    os.pwrite(user, b"\x51" * 4096, 0)
    guest.stop(by=signal.SIGUSR1)
    guest.check(os.path.exists(device), f"{device} was taken away from somebody who has it open")
    words = ["--cache-disk", CACHE_DISK, "--data-disk", DATA_DISK, "--ublk", str(guest.number)]
    refused = guest.run(guest.dcd, "serve", *words, "--read-only", may_fail=True)
    guest.check(refused.returncode == 1 and "for reading only" in refused.stderr, f"taken over: {refused.stderr}")
    again = guest.again()
    guest.check(again == device, f"another device: {again}")
    os.pwrite(user, b"\x52" * 4096, 4096)
    os.fsync(user)
    guest.check(os.pread(user, 8192, 0) == b"\x51" * 4096 + b"\x52" * 4096, "not what was written")
    os.close(user)
    guest.stop()
    guest.check(not os.path.exists(device), "not removed when nobody uses it")


@case()
def refusals(guest):
    """A device of somebody else, a device that is served, and one that nobody serves: refused or removed, with words."""
    guest.create()
    device = guest.serve()
    first = guest.daemon
    # Served: neither taken nor removed.
    done = guest.run(guest.dcd, "ublk", "remove", str(guest.number), may_fail=True)
    guest.check(done.returncode == 1 and "is served by process" in done.stderr, done.stderr)
    other = ["--cache-disk", "/run/other.img", "--data-disk", MORE_DISKS[0]]
    guest.run(guest.dcd, "create", *other, "--cache-size", "32M")
    done = guest.run(guest.dcd, "serve", *other, "--ublk", str(guest.number), may_fail=True)
    guest.check(done.returncode == 1 and "is served by process" in done.stderr, done.stderr)
    # Left by a dead server: not another cache's.
    guest.kill()
    done = guest.run(guest.dcd, "serve", *other, "--ublk", str(guest.number), may_fail=True)
    guest.check(done.returncode == 1 and "belongs to something else" in done.stderr, done.stderr)
    done = guest.run(guest.dcd, "ublk", "remove", str(guest.number))
    guest.check("removed" in done.stdout and not os.path.exists(device), "not removed")
    done = guest.run(guest.dcd, "ublk", "remove", str(guest.number), may_fail=True)
    guest.check(done.returncode == 1 and "no ublk device" in done.stderr, done.stderr)
    guest.check(first.returncode is not None, "the first daemon lives")
    guest.serve()
    guest.stop()


@case()
def detach_ends_the_device(guest):
    """`dcd detach` drains, removes the device, and the data-disk alone has the file system."""
    guest.create()
    device = guest.serve()
    guest.run("mkfs.ext4", "-q", "-E", "nodiscard", device)
    guest.mount(device, "/run/fs")
    guest.run("cp", "-r", "/etc/init.d", "/run/fs/")
    guest.umount("/run/fs")
    guest.run(guest.dcd, "detach", "--control", CONTROL)
    guest.check(guest.daemon.wait(60) == 0, "the daemon ended with an error")
    guest.daemon = None
    guest.check(not os.path.exists(device), f"{device} is there after a detach")
    guest.mount(DATA_DISK, "/run/fs", "-o", "ro")
    guest.run("diff", "-r", "/etc/init.d", "/run/fs/init.d")
    guest.umount("/run/fs")


def fails_to_write(guest, device):
    """Whether a write with FUA fails once the cache-disk, which is dirty, fails."""
    guest.faults(cache="write eio\nflush eio")
    try:
        write(device, 0, b"\x33" * 4096, os.O_DIRECT | os.O_DSYNC)
        return False
    except OSError:
        return True


def read(device, offset):
    """4 KiB, past the kernel's cache."""
    memory = mmap.mmap(-1, 4096)
    file = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        os.preadv(file, [memory], offset)
        return memory[:]
    finally:
        os.close(file)
        memory.close()


def fails(device, offset):
    """Whether a read fails with EIO."""
    try:
        read(device, offset)
        return False
    except OSError as error:
        return error.errno == errno.EIO


def attributes(guest, block):
    """What the volume knows of a block."""
    answer = guest.ask({"volume": {"get-attributes": {"block": block}}})
    guest.check(answer["ok"], f"{answer}")
    return answer["attributes"]


def commits(guest):
    """How often the cache-disk was made durable."""
    counters = guest.status()["counters"]
    return counters["cache_disk_flushes"] + counters["cache_disk_fua_writes"]


def queue(device, name):
    """A limit of a device, as the kernel tells it."""
    value = read_sysfs(device, f"queue/{name}")
    return int(value) if value.isdigit() else value


def read_sysfs(device, name):
    """A fact of a device, as the kernel tells it."""
    with open(f"/sys/block/{os.path.basename(device)}/{name}", encoding="utf-8") as file:
        return file.read().strip()


def size_of(device):
    """Bytes of a device."""
    return int(subprocess.run(["blockdev", "--getsize64", device], capture_output=True, text=True, check=True).stdout)


def write(device, offset, data, flags):
    """One write of whole pages, past the kernel's cache if the flags say so."""
    memory = mmap.mmap(-1, len(data))
    memory.write(data)
    file = os.open(device, os.O_WRONLY | flags)
    try:
        os.pwritev(file, [memory], offset)
    finally:
        os.close(file)
        memory.close()
