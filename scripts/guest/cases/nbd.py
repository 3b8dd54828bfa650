"""The kernel's NBD client: the harness itself, with a frontend that needs nothing of ublk."""
import os
import subprocess

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
    with open("/dev/vdb", "rb") as disk:
        disk.seek(1 << 20)
        guest.check(disk.read(65536) == b"\x5a" * 65536, "the data-disk has not what was written")
    guest.daemon = None
