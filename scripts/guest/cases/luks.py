"""Both disks on LUKS, as docs/operations.md has it."""
import os

from ..daemon import CACHE_DISK, DATA_DISK
from . import case

KEY = "/run/luks.key"
TEXT = b"what nobody may find on a disk. "
BYTES = 4 << 20


@case()
def below_both_disks(guest):
    """A pair on dm-crypt: kill -9, detach and wipe as ever, and nothing that was written is plain on the disks below."""
    cryptsetup = guest.need("cryptsetup", "cryptsetup-bin")
    for module in ("dm_mod", "dm_crypt", "xts"):
        guest.module(module)
    with open(KEY, "w", encoding="utf-8") as out:
        out.write("a key")
    # Nobody is there who would make links.
    environment = {**os.environ, "DM_DISABLE_UDEV": "1"}
    for disk, name in ((CACHE_DISK, "fast"), (DATA_DISK, "slow")):
        guest.run(cryptsetup, "luksFormat", "-q", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
                  "--key-file", KEY, disk, env=environment)
        guest.run(cryptsetup, "open", "--key-file", KEY, disk, name, env=environment)
    fast, slow = "/dev/mapper/fast", "/dev/mapper/slow"
    guest.create(cache_disk=fast, data_disks=(slow,))
    device = guest.serve("--idle-max", "60s", "--idle-min", "60s")
    written = (TEXT * (BYTES // len(TEXT)))[:BYTES]
    with open(device, "r+b") as disk:
        disk.write(written)
        os.fsync(disk.fileno())
    guest.kill()
    device = guest.again()
    with open(device, "rb") as disk:
        guest.check(disk.read(BYTES) == written, "it does not read as it was written")
    guest.check(has_text(fast), "the log has not what was written: the case shows nothing")
    guest.stop()
    guest.run(guest.dcd, "detach", "--cache-disk", fast, "--data-disk", slow, "--wipe")
    with open(slow, "rb") as disk:
        guest.check(disk.read(BYTES) == written, "the data-disk has not what was written")
    guest.check(not has_text(fast), "the cache-disk is not wiped")
    for disk in (CACHE_DISK, DATA_DISK):
        guest.check(not has_text(disk), f"{disk} has it in plain text")


def has_text(path):
    """Whether the text is on a disk."""
    with open(path, "rb") as disk:
        while piece := disk.read(1 << 20):
            if TEXT in piece:
                return True
    return False
