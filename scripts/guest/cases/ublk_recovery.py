"""The ublk device when its daemon or its machine dies."""
import os
import random
import subprocess
import time

from ..problem import Failure
from . import case

MIB = 1 << 20


@case(timeout_s=3600)
def kill_under_fio(guest):
    """kill -9 again and again under fio with checksums: no I/O error, nothing lost."""
    fio = guest.need("fio", "fio")
    chance = random.Random(guest.settings["seed"])
    guest.create()
    device = guest.serve()
    cycles, done = guest.settings["cycles"], 0
    while done < cycles:
        # Its data is never written twice within a round, so what it verifies at the end is what it wrote.
        load = subprocess.Popen([fio, "--name=k", f"--filename={device}", "--ioengine=io_uring", "--direct=1", "--rw=randwrite",
                                 "--bs=4k", "--size=64M", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1",
                                 "--rate_iops=400", "--eta=never", "--output=/run/fio.log", f"--randseed={chance.randrange(1 << 30)}"],
                                stderr=subprocess.STDOUT)
        while load.poll() is None and done < cycles:
            time.sleep(chance.uniform(0.5, 3))
            guest.kill()
            again = guest.again()
            guest.check(again == device, f"another device: {again}")
            done += 1
        code = load.wait(1200)
        with open("/run/fio.log", encoding="utf-8") as log:
            guest.check(code == 0, f"fio ended with {code} after {done} kills:\n{log.read()[-2000:]}")
    guest.stop()


@case(timeout_s=3600)
def kill_under_file_system(guest):
    """kill -9 under a mounted ext4 that is being copied to: no error, fsck finds nothing, all is there."""
    chance = random.Random(guest.settings["seed"])
    guest.create()
    device = guest.serve()
    guest.run("mkfs.ext4", "-q", "-E", "nodiscard", "-O", "^has_journal" if chance.random() < 0.3 else "has_journal", device)
    guest.mount(device, "/run/fs", "-o", "errors=remount-ro")
    cycles, done, rounds = guest.settings["cycles"], 0, 0
    while done < cycles:
        rounds += 1
        load = subprocess.Popen(["sh", "-c", f"rm -rf /run/fs/{rounds % 3}; mkdir /run/fs/{rounds % 3}; "
                                 f"cp -r /etc/terminfo /etc/init.d /usr/share/perl5/Debian /run/fs/{rounds % 3}/ 2>/run/cp.log; "
                                 "code=$?; sync; exit $code"])
        while load.poll() is None and done < cycles:
            time.sleep(chance.uniform(0.2, 1.5))
            guest.kill()
            guest.again()
            done += 1
        code = load.wait(600)
        if code != 0:
            with open("/run/cp.log", encoding="utf-8") as log:
                raise Failure(f"the copy ended with {code} after {done} kills: {log.read()[-1000:]}")
        guest.run("diff", "-r", "/etc/terminfo", f"/run/fs/{rounds % 3}/terminfo", timeout_s=600)
    guest.umount("/run/fs")
    guest.run("fsck.ext4", "-fn", device)
    guest.stop()


@case(timeout_s=600, cuts=True)
def power_cut(guest):
    """The guest loses power under writes and flushes: what was flushed is there, and nothing that was never written."""
    cut = (guest.noted("cut") or 0)
    if cut == 0:
        guest.create()
    device = guest.serve()
    found = dict.fromkeys(range(BLOCKS), 0)
    if cut > 0:
        found = check_blocks(guest, device, guest.noted("flushed"), guest.noted("begun"))
    if cut == guest.settings["cuts"]:
        guest.stop()
        return
    guest.note("cut", cut + 1)
    write_until_cut(guest, device, cut, found)


BLOCKS = 64


def write_until_cut(guest, device, cut, newest):
    """Rounds of one block each: its number in the whole block. Now and then a flush, which is noted when it is done."""
    chance = random.Random(guest.settings["seed"] + cut)
    # Never used twice, also not a number that was lost.
    number = 1_000_000 * cut
    end = time.monotonic() + chance.uniform(3, 8)
    file = os.open(device, os.O_RDWR)
    while time.monotonic() < end:
        # What may be on the disk is noted before it can be; so much is cheap enough to be noted once for all of them.
        blocks = [chance.randrange(BLOCKS) for _ in range(8)]
        begun = dict(newest)
        for block in blocks:
            number += 1
            begun[block] = number
            newest[block] = number
        guest.note("begun", begun)
        for block in blocks:
            os.pwrite(file, newest[block].to_bytes(8, "little") * 512, block * 4096)
        os.fsync(file)
        guest.note("flushed", newest)
    # Some more that nobody waits for.
    for block in range(0, BLOCKS, 7):
        number += 1
        newest[block] = number
    guest.note("begun", newest)
    for block in range(0, BLOCKS, 7):
        os.pwrite(file, newest[block].to_bytes(8, "little") * 512, block * 4096)
    guest.cut()


def check_blocks(guest, device, flushed, begun):
    """Each block is whole, no older than flushed, no newer than begun. What they hold."""
    found = {}
    flushed = {int(block): number for block, number in flushed.items()}
    begun = {int(block): number for block, number in begun.items()}
    with open(device, "rb") as file:
        for block in range(BLOCKS):
            content = file.read(4096)
            number = int.from_bytes(content[:8], "little")
            guest.check(content == content[:8] * 512, f"block {block} is torn")
            least, most = flushed.get(block, 0), begun.get(block, 0)
            guest.check(least <= number <= most, f"block {block} has {number}, flushed was {least}, begun {most}")
            found[block] = number
    return found
