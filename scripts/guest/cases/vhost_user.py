"""The volume as the disk of a virtual machine: the daemon is on the host, the case in the guest says when it dies."""
import glob
import json
import mmap
import os
import random
import shutil
import subprocess
import time

from .. import kernel
from ..problem import Failure
from . import case

MIB = 1 << 20
BLOCKS = 64


def disk(guest):
    """The device with dcd's serial number."""
    for serial in glob.glob("/sys/block/vd*/serial"):
        with open(serial, encoding="utf-8") as file:
            if file.read().startswith("dcd-"):
                return "/dev/" + serial.split("/")[3]
    raise Failure("no disk of dcd in this guest")


def sysfs(device, name, value=None):
    """Reads or writes what the kernel thinks of a disk."""
    with open(f"/sys/block/{device[5:]}/{name}", "w" if value else "r", encoding="utf-8") as file:
        return file.write(value) if value else file.read().strip()


def write_blocks(device, seed):
    """Numbered blocks, each answered before the next, none flushed. What is where."""
    written = {}
    file = os.open(device, os.O_RDWR | os.O_DIRECT)
    buffer = mmap.mmap(-1, 4096)
    for block in range(BLOCKS):
        written[block] = seed + block
        buffer[:] = written[block].to_bytes(8, "little") * 512
        os.pwrite(file, buffer, block * 4096)
    os.close(file)
    return written


def lost_blocks(device, written):
    """Which blocks are not what was written."""
    file = os.open(device, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 4096)
    lost = []
    for block, number in written.items():
        os.preadv(file, [buffer], block * 4096)
        if buffer[:] != number.to_bytes(8, "little") * 512:
            lost.append(block)
    os.close(file)
    return lost


@case(timeout_s=900, vhost_user=True)
def file_system(guest):
    """Limits, mkfs, mount, copy, compare, discard; a daemon that ends in order and comes back is not noticed."""
    device = disk(guest)
    for name, expected in {"queue/logical_block_size": "512", "cache_type": "write back", "queue/fua": "0", "ro": "0",
                           "queue/max_segments": "126", "size": str(512 * MIB // 512)}.items():
        found = sysfs(device, name)
        guest.check(found == expected, f"{name} is {found}, not {expected}")
    guest.check(int(sysfs(device, "queue/discard_max_bytes")) > MIB, "no discard")
    guest.check(int(sysfs(device, "queue/write_zeroes_max_bytes")) > MIB, "no write-zeroes")
    guest.check(len(os.listdir(f"/sys/block/{device[5:]}/mq")) == 2, "not two queues")
    guest.run("mkfs.ext4", "-q", device)
    guest.mount(device, "/run/fs")
    guest.run("cp", "-r", "/etc/init.d", "/etc/terminfo", "/run/fs/")
    guest.run("fstrim", "/run/fs", may_fail=True)
    guest.host("stop")
    # It waits for the daemon, and for QEMU to connect again.
    guest.host("serve")
    guest.umount("/run/fs")
    guest.run("fsck.ext4", "-fn", device)
    guest.mount(device, "/run/fs")
    guest.run("diff", "-r", "/etc/init.d", "/run/fs/init.d")
    guest.umount("/run/fs")


@case(timeout_s=3600, vhost_user=True)
def kill_under_fio(guest):
    """kill -9 of the daemon again and again under fio with checksums: no I/O error, nothing lost."""
    fio = guest.need("fio", "fio")
    device, chance = disk(guest), random.Random(guest.settings["seed"])
    cycles, done = guest.settings["cycles"], 0
    while done < cycles:
        load = subprocess.Popen([fio, "--name=k", f"--filename={device}", "--ioengine=libaio", "--direct=1", "--rw=randwrite",
                                 "--bs=4k", "--size=32M", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1",
                                 "--rate_iops=400", "--eta=never", "--output=/run/fio.log", f"--randseed={chance.randrange(1 << 30)}"],
                                stderr=subprocess.STDOUT)
        while load.poll() is None and done < cycles:
            time.sleep(chance.uniform(0.5, 3))
            guest.host("kill")
            guest.host("serve")
            done += 1
        code = load.wait(1200)
        with open("/run/fio.log", encoding="utf-8") as log:
            guest.check(code == 0, f"fio ended with {code} after {done} kills:\n{log.read()[-2000:]}")


@case(timeout_s=900, vhost_user=True)
def write_through(guest):
    """Without a write cache what is answered survives a power cut; with one and without a flush it does not have to."""
    device = disk(guest)
    guest.host("stop")
    guest.host("serve", "--max-delay", "1000s", "--idle-max", "1000s")
    # With a write cache: this is what the check below must be able to see.
    written = write_blocks(device, 1_000_000)
    guest.check(guest.host("lose_memory") > 0, "there was no memory to be lost")
    guest.host("serve")
    guest.check(lost_blocks(device, written), "nothing was lost that was never flushed: this case shows nothing")
    # Without.
    sysfs(device, "cache_type", "write through")
    guest.check(sysfs(device, "queue/write_cache") == "write through", "the kernel would still flush")
    before = guest.host("status")
    written = write_blocks(device, 2_000_000)
    guest.check(guest.host("lose_memory") > 0, "there was no memory to be lost")
    guest.host("serve")
    lost = lost_blocks(device, written)
    guest.check(not lost, f"blocks {lost} were answered and are lost; status before: {json.dumps(before)[:1000]}")
    # The next daemon has to know, and nobody tells it again.
    written = write_blocks(device, 3_000_000)
    guest.host("lose_memory")
    guest.host("serve")
    lost = lost_blocks(device, written)
    guest.check(not lost, f"after a restart blocks {lost} were answered and are lost")
    sysfs(device, "cache_type", "write back")


@case(timeout_s=600, vhost_user=True)
def grow(guest):
    """The volume grows while no daemon runs; the guest sees it as soon as one does."""
    device = disk(guest)
    before = int(sysfs(device, "size"))
    guest.host("stop")
    guest.host("grow", 768)
    guest.host("serve")
    expected = 768 * MIB // 512
    for _ in range(300):
        if int(sysfs(device, "size")) == expected:
            break
        time.sleep(0.1)
    found = int(sysfs(device, "size"))
    guest.check(found == expected, f"{before} blocks before, {found} now, not {expected}")
    file = os.open(device, os.O_RDWR | os.O_DIRECT)
    buffer = mmap.mmap(-1, 4096)
    buffer[:] = b"\x5a" * 4096
    os.pwrite(file, buffer, 700 * MIB)
    os.close(file)


# Reads its own program, writes, and tells the host as the harness does.
ROOT_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
cd /modules && for module in $(cat order); do insmod $module; done
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none share /share
tell() { echo "$1" >> /share/results.jsonl; }
tell '{"began": "vhost_user_boot"}'
outcome=failed
grep -q ' / ext4 rw' /proc/mounts && cp /bin/busybox /copy && sync && echo 3 > /proc/sys/vm/drop_caches && cmp /bin/busybox /copy && outcome=passed
tell "{\\"ended\\": \\"vhost_user_boot\\", \\"outcome\\": \\"$outcome\\", \\"reason\\": \\"\\", \\"log\\": \\"\\", \\"seconds\\": $(cut -d' ' -f1 /proc/uptime)}"
sync
poweroff -f
"""


@case(timeout_s=600, vhost_user=True, cuts=True)
def boot(guest):
    """A system is put on the volume, the power is cut after a sync, and the next boot has its root there."""
    device = disk(guest)
    guest.run("mkfs.ext4", "-q", device)
    guest.mount(device, "/run/fs")
    for name in ("bin", "sbin", "dev", "proc", "sys", "share", "modules"):
        os.mkdir(f"/run/fs/{name}")
    shutil.copy(guest.busybox, "/run/fs/bin/busybox")
    files = kernel.needed(f"/lib/modules/{os.uname().release}", ("9pnet_virtio", "9p"))
    for path in files:
        shutil.copy(path, "/run/fs/modules")
    with open("/run/fs/modules/order", "w", encoding="utf-8") as out:
        out.write("\n".join(os.path.basename(path) for path in files) + "\n")
    with open("/run/fs/sbin/init", "w", encoding="utf-8") as out:
        out.write(ROOT_INIT)
    os.chmod("/run/fs/sbin/init", 0o755)
    guest.run("sync")
    guest.host("be_root")
    guest.cut()
