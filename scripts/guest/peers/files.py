"""File systems for workloads, the trees that they unpack, and when their programs have ended."""
import contextlib
import os
import random
import select
import subprocess
import tarfile
import time

from ..problem import Failure
from .setups import PATIENCE_S

ROOT = "/run/fs"
MADE = "/run/made"


class Cost:
    """Processor time of the whole guest, from a moment on."""

    def __init__(self):
        self.begin()

    def begin(self):
        """From now on."""
        self.before = processor_s()

    def all(self):
        """Since then."""
        return {"cpu_s": processor_s() - self.before}

    def each(self, done):
        """Since then, for each of so many."""
        return {"cpu_ms_each": (processor_s() - self.before) / max(done, 1) * 1e3}


@contextlib.contextmanager
def file_system(stand, peer, *options, size="320M"):
    """A new ext4, mounted; what it costs from then on."""
    stand.run("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", peer.path, size)
    stand.guest.mount(peer.path, ROOT, *options)
    try:
        os.sync()
        yield Cost()
    finally:
        stand.guest.umount(ROOT)


def finished(commands, peer):
    """Runs all at once; seconds until each has ended and the file system is on the disk."""
    begin = time.monotonic()
    for together in (commands, [["sync", "-f", ROOT]]):
        running = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for words in together]
        for one, words in zip(running, together, strict=True):
            if wait(one, PATIENCE_S) != 0:
                raise Failure(f"`{' '.join(words)}` failed on {peer.path}")
    return time.monotonic() - begin


def wait(process, patience_s):
    """The exit code as soon as there is one: `wait(timeout)` looks every 50 ms."""
    pidfd = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if not poll.poll(patience_s * 1000):
            process.kill()
        return process.wait()
    finally:
        os.close(pidfd)


def archive(name, files, directories, longest, shortest=100):
    """An archive of small files, the same each time."""
    path = f"{MADE}/{name}.tar"
    if not os.path.exists(path):
        make_files(f"{MADE}/{name}", files, directories, longest, shortest)
        with tarfile.open(path, "w") as out:
            out.add(f"{MADE}/{name}", name)
    return path


def make_files(root, files, directories, longest, shortest=100):
    """So many in so many directories, of a length between the two."""
    chance = random.Random(1999)
    for number in range(files):
        directory = f"{root}/{number % directories}"
        os.makedirs(directory, exist_ok=True)
        with open(f"{directory}/{number}", "wb") as file:
            file.write(chance.randbytes(chance.randrange(shortest, longest)))


def processor_s():
    """Seconds that the processors have worked for tasks. Ticks, as in /proc/stat, miss what runs for less than one."""
    with open("/proc/schedstat", encoding="utf-8") as file:
        return sum(int(line.split()[7]) for line in file if line.startswith("cpu")) / 1e9
