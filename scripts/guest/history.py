"""A history of changes of a device, one after the other, and whether what is found there is one of its beginnings.

Each sector that a change writes holds the number of the change. Changes are made from a seed, so whoever checks needs to know only
how many there may be, and how many were durable (contract C2, C3, C9).
"""
import fcntl
import mmap
import os
import random
import struct
from dataclasses import dataclass

SECTOR_BYTES = 512
# What changes happen to; small, so that they overwrite each other.
SECTORS = 1024
LONGEST_SECTORS = 128
BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F


@dataclass
class Change:
    """One of them, and what follows it."""

    kind: str
    first: int
    sectors: int
    fua: bool
    flushed: bool


class History:
    """The changes of a seed, from number 1 on."""

    def __init__(self, seed):
        self.chance, self.changes = random.Random(seed), []
        # Else zeroes are written in place of discards, which comes to the same.
        self.has_discards = True

    def change(self, number):
        """That of this number."""
        while len(self.changes) < number:
            self.changes.append(self.make())
        return self.changes[number - 1]

    def make(self):
        chance = self.chance
        kind = chance.choices(("write", "discard", "zero"), (8, 1, 1))[0]
        # Mostly small; of any length, and beginning at any sector.
        sectors = chance.choice((1, 2, 7, 8, 8, 8, 9, 16, chance.randint(1, LONGEST_SECTORS)))
        if kind == "discard":
            sectors = max(sectors // 8, 1) * 8
            first = chance.randrange((SECTORS - sectors) // 8 + 1) * 8
        else:
            first = chance.randrange(SECTORS - sectors + 1)
        return Change(kind, first, sectors, kind == "write" and chance.random() < 0.1, chance.random() < 0.12)

    def apply(self, device, number):
        """Makes one change and what follows it. Whether it is durable afterwards."""
        change = self.change(number)
        flags = os.O_RDWR | os.O_DIRECT | (os.O_DSYNC if change.fua else 0)
        file = os.open(device, flags)
        try:
            if change.kind == "write":
                with mmap.mmap(-1, LONGEST_SECTORS * SECTOR_BYTES) as memory:
                    memory[:change.sectors * SECTOR_BYTES] = sector(number) * change.sectors
                    with memoryview(memory) as view, view[:change.sectors * SECTOR_BYTES] as part:
                        written = os.pwrite(file, part, change.first * SECTOR_BYTES)
                if written != change.sectors * SECTOR_BYTES:
                    raise OSError(f"{written} bytes written of {change.sectors * SECTOR_BYTES}")
            else:
                code = BLKDISCARD if change.kind == "discard" and self.has_discards else BLKZEROOUT
                fcntl.ioctl(file, code, struct.pack("=QQ", change.first * SECTOR_BYTES, change.sectors * SECTOR_BYTES))
            if change.flushed:
                os.fsync(file)
        finally:
            os.close(file)
        return change.fua or change.flushed

    def check(self, content, durable, begun):
        """Why these bytes are not the state after a change from `durable` to `begun`, or None; and the number of that change."""
        found = numbers(content)
        state = [0] * SECTORS
        nearest = None
        for number in range(begun + 1):
            if number:
                change = self.change(number)
                value = number if change.kind == "write" else 0
                state[change.first:change.first + change.sectors] = [value] * change.sectors
            if number >= durable:
                if state == found:
                    return None, number
                wrong = [at for at in range(SECTORS) if state[at] != found[at]]
                if nearest is None or len(wrong) < len(nearest[1]):
                    nearest = number, wrong, state[wrong[0]]
        number, wrong, expected = nearest
        return (f"not the state after any change from {durable} to {begun}: nearest to {number}, of which {len(wrong)} sectors differ, "
                f"the first is {wrong[0]} with {found[wrong[0]]}, not {expected}"), number


def sector(number):
    """What a change writes."""
    return number.to_bytes(8, "little") * (SECTOR_BYTES // 8)


def read(device):
    """The bytes that a history changes."""
    with open(device, "rb", buffering=0) as file:
        content = b""
        while len(content) < SECTORS * SECTOR_BYTES:
            content += file.read(SECTORS * SECTOR_BYTES - len(content))
    return content


def numbers(content):
    """The number in each sector; -1: what no change writes."""
    found = []
    for at in range(SECTORS):
        one = content[at * SECTOR_BYTES:(at + 1) * SECTOR_BYTES]
        number = int.from_bytes(one[:8], "little")
        found.append(number if one == sector(number) else -1)
    return found
