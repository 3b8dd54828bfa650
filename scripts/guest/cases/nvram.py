"""A memory in front of the log that is persistent memory: a file on a file system that is mounted with DAX."""
import os
import uuid

from ..machine import wait
from . import case
from .ublk_recovery import check_blocks, write_until_cut

DEVICE, DIRECTORY = "/dev/pmem0", "/run/pmem"
FRONT = f"{DIRECTORY}/front.img"


def mount(guest, is_new):
    """Mounts the file system on it."""
    for module in ("nfit", "nd_pmem"):
        guest.module(module)
    guest.check(wait(lambda: os.path.exists(DEVICE), 30), f"no {DEVICE}: the guest has no persistent memory")
    if is_new:
        make_pages()
        guest.check(wait(lambda: os.path.exists(DEVICE), 30), f"no {DEVICE} any more")
        guest.run("mkfs.ext4", "-q", "-b", "4096", DEVICE)
    guest.mount(DEVICE, DIRECTORY, "-o", "dax=always")
    if is_new:
        with open(FRONT, "wb") as file:
            file.truncate(8 << 20)


def make_pages():
    """Gives the memory what file systems need for DAX, as `ndctl create-namespace --mode=fsdax --map=mem` does; it is noted on it."""
    for path, word in (
        ("drivers/nd_pmem/unbind", "namespace0.0"),
        ("devices/pfn0.0/mode", "ram"),
        ("devices/pfn0.0/align", str(2 << 20)),
        ("devices/pfn0.0/uuid", str(uuid.uuid4())),
        ("devices/pfn0.0/namespace", "namespace0.0"),
        ("drivers/nd_pmem/bind", "pfn0.0"),
    ):
        with open(f"/sys/bus/nd/{path}", "w", encoding="utf-8") as file:
            file.write(word)


def is_mapped(guest):
    """Whether the daemon has it mapped so that the kernel vouches for it (`sf`: synchronous page faults)."""
    with open(f"/proc/{guest.daemon.pid}/smaps", encoding="utf-8") as lines:
        here = False
        for line in lines:
            if "-" in line.split(":")[0].split()[0] and "/" in line:
                here = line.rstrip().endswith(FRONT)
            if here and line.startswith("VmFlags:"):
                return "sf" in line.split()
    return False


@case(timeout_s=600, cuts=True)
def power_cut(guest):
    """On persistent memory nothing that was flushed is lost with the power, and it is not written as a disk would be."""
    cut = (guest.noted("cut") or 0)
    if cut == 0:
        guest.create()
    mount(guest, cut == 0)
    device = guest.serve("--nvram", FRONT, "--nvram-policy", "lru")
    guest.check(is_mapped(guest), f"{FRONT} is not mapped with MAP_SYNC")
    found = dict.fromkeys(range(64), 0)
    if cut > 0:
        guest.check(guest.status()["nvram"]["dirty_bytes"] > 0, "nothing was in it when the power went: the case shows nothing")
        found = check_blocks(guest, device, guest.noted("flushed"), guest.noted("begun"))
    if cut == guest.settings["cuts"]:
        guest.stop()
        guest.run(guest.dcd, "detach", "--cache-disk", guest.disks[0], "--data-disk", guest.disks[1][0])
        return
    guest.note("cut", cut + 1)
    write_until_cut(guest, device, cut, found)
