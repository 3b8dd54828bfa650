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
            time.sleep(chance.uniform(0.2, 1.5))
            guest.kill()
            again = guest.again()
            guest.check(again == device, f"another device: {again}")
            done += 1
        code = load.wait(1200)
        with open("/run/fio.log", encoding="utf-8") as log:
            guest.check(code == 0, f"fio ended with {code} after {done} kills:\n{log.read()[-2000:]}")
    guest.stop()
    guest.say(f"{done} kills")


@case(timeout_s=3600)
def kill_while_taking_over(guest):
    """Each server but the last is killed while it takes the device over from the one before: the last one serves, nothing is lost."""
    fio = guest.need("fio", "fio")
    chance = random.Random(guest.settings["seed"])
    guest.create()
    device = guest.serve()
    load = subprocess.Popen([fio, "--name=k", f"--filename={device}", "--ioengine=io_uring", "--direct=1", "--rw=randwrite",
                             "--bs=4k", "--size=16M", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1", "--rate_iops=200",
                             "--eta=never", "--output=/run/fio.log"], stderr=subprocess.STDOUT)
    has_it = 0
    for done in range(guest.settings["cycles"]):  # noqa: B007
        time.sleep(chance.uniform(0.1, 0.5))
        guest.kill()
        for _ in range(chance.randrange(1, 4)):
            guest.begin_again()
            opened = guest.wait_for_server_end()
            # What is between opening the device and serving takes some milliseconds.
            time.sleep(opened * chance.choice((0, 0, chance.uniform(0, 0.005), chance.uniform(0, 0.05))))
            guest.kill()
            has_it += opened
        again = guest.again()
        guest.check(again == device, f"another device: {again}")
    code = load.wait(1200)
    with open("/run/fio.log", encoding="utf-8") as log:
        guest.check(code == 0, f"fio ended with {code} after {done + 1} rounds:\n{log.read()[-2000:]}")
    guest.stop()
    guest.check(has_it > 0, "no server was killed while it had the device")
    guest.say(f"{has_it} servers were killed when they had opened the device")


@case(timeout_s=3600)
def kill_under_ext4(guest):
    """kill -9 under a mounted ext4 that is being copied to: no error, fsck finds nothing, all is there."""
    journal = "^has_journal" if random.Random(guest.settings["seed"]).random() < 0.3 else "has_journal"
    kill_under_file_system(guest, "ext4", ["mkfs.ext4", "-q", "-E", "nodiscard", "-O", journal], ["fsck.ext4", "-fn"], "e2fsprogs",
                           "-o", "errors=remount-ro")


@case(timeout_s=3600)
def kill_under_xfs(guest):
    """kill -9 under a mounted xfs: the same."""
    kill_under_file_system(guest, "xfs", ["mkfs.xfs", "-q", "-f"], ["xfs_repair", "-n"], "xfsprogs")


@case(timeout_s=3600)
def kill_under_btrfs(guest):
    """kill -9 under a mounted btrfs, which has checksums of all data: the same."""
    kill_under_file_system(guest, "btrfs", ["mkfs.btrfs", "-q", "-f"], ["btrfs", "check", "--readonly"], "btrfs-progs")


def kill_under_file_system(guest, name, make, check, package, *options):
    """Copies trees while the daemon is killed as often as was asked for."""
    guest.need(make[0], package)
    guest.module(name)
    chance = random.Random(guest.settings["seed"])
    guest.create()
    device = guest.serve("--quiet")
    guest.run(*make, device)
    guest.mount(device, "/run/fs", "-t", name, *options)
    cycles, done, rounds = guest.settings["cycles"], 0, 0
    while done < cycles:
        rounds += 1
        load = subprocess.Popen(["sh", "-c", f"rm -rf /run/fs/{rounds % 3}; mkdir /run/fs/{rounds % 3}; "
                                 f"cp -r /etc/terminfo /etc/init.d /usr/share/perl5/Debian /run/fs/{rounds % 3}/ 2>/run/cp.log; "
                                 "code=$?; sync; exit $code"])
        while load.poll() is None and done < cycles:
            time.sleep(chance.uniform(0.05, 0.6))
            guest.kill()
            again = guest.again()
            guest.check(again == device, f"another device: {again}")
            done += 1
        code = load.wait(600)
        if code != 0:
            with open("/run/cp.log", encoding="utf-8") as log:
                raise Failure(f"the copy ended with {code} after {done} kills: {log.read()[-1000:]}")
        with open("/proc/sys/vm/drop_caches", "w", encoding="utf-8") as caches:
            caches.write("3")
        guest.run("diff", "-r", "/etc/terminfo", f"/run/fs/{rounds % 3}/terminfo", timeout_s=600)
    guest.umount("/run/fs")
    guest.run(*check, device, timeout_s=600)
    guest.stop()
    guest.say(f"{done} kills, {rounds} copies")


# Parts of one device in MiB: fio on the first, a file system on each of the others, as small as their programs make them.
PARTS = (("raw", 32), ("ext4", 48), ("xfs", 304), ("btrfs", 120))
FIO_LOOP = """
while [ ! -e /run/enough ]; do
    fio --name=k --filename={device} --ioengine=io_uring --direct=1 --rw=randwrite --bs=4k --size=8M --iodepth=16 --fsync=16 \
        --verify=crc32c --verify_fatal=1 --rate_iops=300 --randrepeat=0 --eta=never --output=/run/raw.log || exit 1
    echo >>/run/raw.rounds
done
"""
COPY_LOOP = """
cd {directory}
while [ ! -e /run/enough ]; do
    rm -rf copy && cp -r /etc/init.d /usr/share/perl5/Debian copy.new 2>&1 && mv copy.new copy && sync -f . || exit 1
    echo 1 >/proc/sys/vm/drop_caches
    diff -r /usr/share/perl5/Debian copy/Debian || exit 1
    echo >>/run/{name}.rounds
done
"""


@case(timeout_s=7200)
def kill_under_all(guest):
    """kill -9 under fio with checksums, ext4, xfs and btrfs at once, on parts of one device: no error, nothing lost."""
    for program, package in (("fio", "fio"), ("dmsetup", "dmsetup"), ("mkfs.xfs", "xfsprogs"), ("mkfs.btrfs", "btrfs-progs")):
        guest.need(program, package)
    guest.module("dm-mod")
    chance = random.Random(guest.settings["seed"])
    guest.create()
    device = guest.serve("--quiet")
    loads, at = {}, 0
    for name, mib in PARTS:
        guest.run("dmsetup", "create", name, "--noudevsync", "--table", f"0 {mib << 11} linear {device} {at << 11}")
        at += mib
    guest.run("dmsetup", "mknodes")
    for name, _ in PARTS:
        part, directory = f"/dev/mapper/{name}", f"/run/{name}"
        script = FIO_LOOP.format(device=part)
        if name != "raw":
            guest.module(name)
            guest.run(f"mkfs.{name}", *(["-q", "-E", "nodiscard"] if name == "ext4" else ["-q", "-f"]), part, timeout_s=300)
            guest.mount(part, directory, "-t", name, *(["-o", "errors=remount-ro"] if name == "ext4" else []))
            os.mkdir(f"{directory}/copy.new")
            script = COPY_LOOP.replace("cp -r", "mkdir -p copy.new && cp -r").format(directory=directory, name=name)
        with open(f"/run/{name}.out", "w", encoding="utf-8") as out:
            loads[name] = subprocess.Popen(["sh", "-c", script], stdout=out, stderr=subprocess.STDOUT)
    for number in range(guest.settings["cycles"]):
        time.sleep(chance.uniform(0.05, 1))
        guest.kill()
        again = guest.again()
        guest.check(again == device, f"another device: {again}")
        check_loads(guest, loads, number + 1)
    with open("/run/enough", "w", encoding="utf-8"):
        pass
    for load in loads.values():
        load.wait(900)
    rounds = check_loads(guest, loads, guest.settings["cycles"])
    for name, check in (("ext4", ["fsck.ext4", "-fn"]), ("xfs", ["xfs_repair", "-n"]), ("btrfs", ["btrfs", "check", "--readonly"])):
        guest.umount(f"/run/{name}")
        guest.run(*check, f"/dev/mapper/{name}", timeout_s=600)
    for name, _ in PARTS:
        guest.run("dmsetup", "remove", "--noudevsync", "--retry", name)
    guest.stop()
    guest.say(f"{guest.settings['cycles']} kills; rounds of each load: {rounds}")


def check_loads(guest, loads, kills):
    """None of them has ended with an error. How often each has come round."""
    rounds = {}
    for name, load in loads.items():
        if load.poll() not in (None, 0):
            with open(f"/run/{name}.out", encoding="utf-8", errors="replace") as out:
                guest.check(False, f"{name} ended with {load.returncode} after {kills} kills: {out.read()[-1500:]}")
        rounds[name] = 0
        if os.path.exists(f"/run/{name}.rounds"):
            rounds[name] = os.path.getsize(f"/run/{name}.rounds")
    return rounds


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
