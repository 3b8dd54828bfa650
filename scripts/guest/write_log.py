"""What dm-log-writes has logged, replayed: the states that a disk may have after a power cut.

The kernel logs the writes of an epoch, from one flush to the next, when the flush ends, in the order in which they were done. A disk
that loses its power after a flush has all writes before it, and of those after it any.
"""
import struct
from dataclasses import dataclass

SUPERBLOCK, ENTRY = struct.Struct("<QQQI"), struct.Struct("<QQQQ")
MAGIC, VERSION = 0x6A736677736872, 1
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


@dataclass
class Entry:
    """A write, a discard, a flush, or a mark that somebody set."""

    offset: int
    length: int
    flags: int
    # Where its bytes are in the log.
    data_at: int
    mark: str


class WriteLog:
    """The log on a disk."""

    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)
        magic, version, self.count, self.sector_bytes = SUPERBLOCK.unpack(self.read(0, SUPERBLOCK.size))
        if (magic, version) != (MAGIC, VERSION):
            raise ValueError(f"{path} is no log of writes: magic {magic:x}, version {version}")

    def read(self, offset, length):
        """Whole sectors are read, as the disk has it."""
        self.file.seek(offset)
        content = b""
        while len(content) < length:
            more = self.file.read(length - len(content))
            if not more:
                raise ValueError(f"the log ends at {offset + len(content)}")
            content += more
        return content

    def entries(self):
        """All, in order."""
        at = self.sector_bytes
        for _ in range(self.count):
            head = self.read(at, 512)
            sector, sectors, flags, data_bytes = ENTRY.unpack_from(head)
            mark = head[ENTRY.size:ENTRY.size + data_bytes].rstrip(b"\0").decode() if flags & MARK else ""
            at += self.sector_bytes
            length = sectors * self.sector_bytes
            yield Entry(sector * self.sector_bytes, length, flags, at, mark)
            if not flags & (DISCARD | MARK):
                at += length

    def apply(self, entry, image):
        """Does to the bytes of a disk what was done to the disk."""
        if entry.flags & MARK or not entry.length:
            return
        end = entry.offset + entry.length
        image[entry.offset:end] = bytes(entry.length) if entry.flags & DISCARD else self.read(entry.data_at, entry.length)
