"""NBD in the guest: with QEMU's client, which needs no module, and with the kernel's."""

from ..daemon import DATA_DISK
from . import case


@case(is_quick=True)
def export_is_served(guest):
    """The real binary serves in the guest, and what was written is on the data-disk after a detach."""
    guest.need("qemu-io", "qemu-utils")
    guest.create()
    socket = "/run/nbd.sock"
    guest.serve("--nbd", f"unix:{socket}", device="")
    uri = f"nbd+unix:///?socket={socket}"
    guest.run("qemu-io", "-f", "raw", "-c", "write -P 0x5a 1M 64k", "-c", "flush", "-c", "read -P 0x5a 1M 64k", uri)
    guest.run(guest.dcd, "detach", "--control", "/run/dcd.ctl")
    guest.daemon.wait(60)
    with open(DATA_DISK, "rb") as disk:
        disk.seek(1 << 20)
        guest.check(disk.read(65536) == b"\x5a" * 65536, "the data-disk has not what was written")
    guest.daemon = None


@case()
def kernel_client(guest):
    """The kernel's NBD client: a file system on it; what was synchronised is there after kill -9; trimmed, detached, it is clean."""
    client = guest.need("nbd-client", "nbd-client")
    guest.module("nbd")
    guest.create()
    device, socket = "/dev/nbd0", "/run/nbd.sock"
    options = ("--nbd", f"unix:{socket}", "--max-delay", "20s", "--idle-max", "60s")

    def connect():
        guest.serve(*options, device="")
        guest.run(client, "-unix", socket, device)
        guest.check(queue("write_cache") == "write back", "the kernel would not flush")
        guest.check(queue("fua") == "1", "no FUA")
        guest.check(queue("discard_max_bytes") != "0", "no discard")

    def queue(name):
        with open(f"/sys/block/nbd0/queue/{name}", encoding="utf-8") as file:
            return file.read().strip()

    connect()
    guest.run("mkfs.ext4", "-q", device)
    guest.mount(device, "/run/fs")
    guest.run("cp", "-r", "/etc/init.d", "/etc/terminfo", "/run/fs/")
    guest.run("sync", "-f", "/run/fs")
    guest.kill()
    guest.umount("/run/fs")
    guest.run(client, "-d", device, may_fail=True)
    connect()
    guest.mount(device, "/run/fs")
    guest.run("diff", "-r", "/etc/init.d", "/run/fs/init.d")
    guest.run("diff", "-r", "/etc/terminfo", "/run/fs/terminfo")
    guest.run("rm", "-r", "/run/fs/terminfo")
    guest.run("fstrim", "/run/fs")
    guest.umount("/run/fs")
    guest.run(client, "-d", device)
    guest.run(guest.dcd, "detach", "--control", "/run/dcd.ctl")
    guest.daemon.wait(60)
    guest.daemon = None
    guest.run("fsck.ext4", "-fn", DATA_DISK)
