"""The states that a disk may have had, made again from a log of its writes, and a start of dcd on each of them.

This runs on the host, natively: hundreds of starts would take hours in an emulated guest.
"""
import json
import os
import random
import shutil
import socket
import struct
import subprocess

from .history import SECTOR_BYTES, SECTORS, History
from .problem import Failure
from .write_log import FLUSH, FUA, MARK, WriteLog

MIB = 1 << 20
REQUEST_MAGIC, REPLY_MAGIC = 0x25609513, 0x67446698


def check_logs(dcd, logs, work, say):
    """All logs that the guest left in a directory, each with what it is of. Raises Failure for the first wrong state."""
    states = 0
    names = sorted(name for name in os.listdir(logs) if name.endswith(".json"))
    for name in names:
        with open(os.path.join(logs, name), encoding="utf-8") as file:
            made = json.load(file)
        replay = Replay(dcd, work, made)
        checked = replay.check_states(WriteLog(os.path.join(logs, name.replace(".json", ".log"))))
        say(f"{name}: {made['begun']} changes, {checked} states, {' '.join(made['options'])}{', killed' if made['kill_at'] else ''}")
        if checked < 2:
            raise Failure(f"{name} has no flush")
        states += checked
    say(f"{states} states of {len(names)} workloads")
    if not names:
        raise Failure("the guest left no log")


class Replay:
    """One log."""

    def __init__(self, dcd, work, made):
        self.dcd, self.work, self.made = dcd, os.path.join(work, "replay"), made
        self.history, self.chance = History(made["seed"]), random.Random(made["seed"])

    def check_states(self, log):
        """Each state after a flush or a FUA write, and some with a part of what came then. How many."""
        entries = list(log.entries())
        image = bytearray((self.made["cache_mib"] + self.made["data_mib"]) * MIB)
        durable, is_served, checked = 0, False, 0
        for at, entry in enumerate(entries):
            log.apply(entry, image)
            if entry.mark.startswith("durable-"):
                durable, is_served = int(entry.mark.removeprefix("durable-")), True
            elif is_served and entry.flags & (FLUSH | FUA):
                self.check_state(image, durable, f"entry {at}, a flush")
                # Some of what was written before the next flush had ended.
                torn, is_torn = bytearray(image), False
                for later in entries[at + 1:]:
                    if later.flags & (FLUSH | FUA | MARK):
                        break
                    if self.chance.random() < 0.5:
                        log.apply(later, torn)
                        is_torn = True
                if is_torn:
                    self.check_state(torn, durable, f"entry {at} and some later ones")
                checked += 1 + is_torn
        return checked

    def check_state(self, image, durable, what):
        """A start on disks with these bytes, and sometimes another one after a kill."""
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(os.path.join(self.work, "memory"))
        cache_bytes = self.made["cache_mib"] * MIB
        for name, part in (("cache", image[:cache_bytes]), ("data", image[cache_bytes:])):
            with open(os.path.join(self.work, name), "wb") as disk:
                disk.write(part)
        wrong, at = self.history.check(self.serve_and_read(), durable, self.made["begun"])
        if wrong:
            raise Failure(f"{what}, {durable} durable: {wrong}; seed {self.made['seed']}, the disks are in {self.keep()}")
        # What was shown once is there after any other end (C9, C17).
        wrong, _ = self.history.check(self.serve_and_read(), at, at)
        if wrong:
            raise Failure(f"{what}: after another start {wrong}; seed {self.made['seed']}, the disks are in {self.keep()}")

    def keep(self):
        """The disks, for whoever looks for the mistake."""
        kept = f"{self.work}-failed"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.work, kept)
        return kept

    def serve_and_read(self):
        """What a start finds. It ends by a kill."""
        path = os.path.join(self.work, "nbd.sock")
        if os.path.exists(path):
            os.remove(path)
        # Memory does not outlive a power cut, but it does outlive a kill: so the directory is new for each state only.
        words = [self.dcd, "serve", "--cache-disk", os.path.join(self.work, "cache"), "--data-disk", os.path.join(self.work, "data"),
                 "--memory-directory", os.path.join(self.work, "memory"), "--nbd", f"unix:{path}", "--quiet", *self.made["options"]]
        with open(os.path.join(self.work, "log"), "a", encoding="utf-8") as log:
            # Without the host's record of pairs: these are copies of one pair, each other than the one before.
            daemon = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "DCD_STATE_DIRECTORY": ""})
        try:
            if not daemon.stdout.readline().startswith("ready "):
                with open(os.path.join(self.work, "log"), encoding="utf-8") as log:
                    raise Failure(f"no start: {log.read()[-1500:]}; seed {self.made['seed']}, the disks are in {self.keep()}")
            return read_export(path, SECTORS * SECTOR_BYTES)
        finally:
            daemon.kill()
            daemon.wait()
            daemon.stdout.close()


def read_export(path, length):
    """The first bytes of an NBD export: one read."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        stream = client.makefile("rwb")
        stream.read(18)
        # No zeroes after the answer; the export without a name.
        stream.write(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
        stream.flush()
        stream.read(10)
        stream.write(struct.pack(">IHHQQI", REQUEST_MAGIC, 0, 0, 1, 0, length))
        stream.flush()
        magic, error, _ = struct.unpack(">IIQ", stream.read(16))
        if magic != REPLY_MAGIC or error:
            raise Failure(f"a read of the export failed: magic {magic:x}, error {error}")
        return stream.read(length)
