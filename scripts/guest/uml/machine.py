"""One boot of User Mode Linux: a process with the files of the host, disks that are files, and a directory shared with it."""
import os
import subprocess
import sys
import tempfile

from .. import machine
from ..problem import Skip
from .kernel import clock

MEMORY_MIB = 3072
DISKS = ("ubda", "ubdb", "ubdc", "ubdd")
INIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "init.sh")
# It starts in a second or two, also on a busy machine; once in a while not at all.
START_PATIENCE_S, STARTS = 45, 3
# Its memory is a file that nobody sees.
IN_MEMORY = "/dev/shm"


class UmlMachine(machine.Machine):
    """From power-on to power-off."""

    def __init__(self, kernel, work, task, has_clock=False):
        """`has_clock`: programs read the clock without a system call (`clock.c`)."""
        self.has_clock = has_clock
        super().__init__(kernel, work, task)

    def has_started(self):
        """Whether its first program has."""
        return os.path.exists(os.path.join(self.share, "started"))

    def facts(self, kernel):
        return {"built_in": kernel.built_in, "busybox": kernel.busybox}

    def words(self, kernel, accel, drives):
        python = next((path for path in ("/usr/bin/python3", sys.executable) if os.path.exists(path)), None)
        told = {"disks": ",".join(f"/dev/{name}" for name in DISKS), "busybox": kernel.busybox, "python": python, "share": self.share,
                "inside": os.path.join(machine.HERE, "inside.py"), **({"clock": clock(self.work)} if self.has_clock else {})}
        return ["taskset", "-c", str(processor()), kernel.image, f"mem={MEMORY_MIB}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
                f"init={INIT}", "con=null", "con0=null,fd:1", "umid=guest", f"uml_dir={self.work}", "quiet", "panic=-1", "seccomp=auto",
                # File, none below it, serial number: disks without one are taken for the same.
                *(f"{name}={os.path.join(self.work, f'disk{number}.img')},,guest-disk-{number}" for number, name in enumerate(DISKS)),
                *(f"guest_{name}={value}" for name, value in told.items())]

    def environment(self):
        return {"TMPDIR": memory_directory()}


def start(kernel, work, task, has_clock=False):
    """A machine that has come to its first program; one that has not after a while is started again."""
    for left in reversed(range(STARTS)):
        begun = UmlMachine(kernel, work, task, has_clock)
        try:
            if machine.wait(lambda: begun.has_started() or not begun.is_running(), START_PATIENCE_S) or not left:  # noqa: B023
                return begun
        except BaseException:
            begun.cut()
            raise
        begun.cut()
        print(f"    the guest has not started within {START_PATIENCE_S} s; again", file=sys.stderr, flush=True)
    raise AssertionError("the last one is returned")


def memory_directory():
    """Where the file has room that is its memory: in memory, as in a container with 64 MiB of that it would die of a signal."""
    def room(directory):
        try:
            found = os.statvfs(directory)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize if os.access(directory, os.W_OK) else 0

    directories = (IN_MEMORY, tempfile.gettempdir(), "/var/tmp")
    return next((it for it in directories if room(it) >= MEMORY_MIB << 20), max(directories, key=room))


def disk_directory():
    """Where files can be zeroed in place, as its disks are; not in memory (tmpfs)."""
    for directory in (tempfile.gettempdir(), "/var/tmp"):
        if os.access(directory, os.W_OK):
            with tempfile.NamedTemporaryFile(dir=directory) as file:
                if subprocess.run(["fallocate", "--zero-range", "--length", "4096", file.name], capture_output=True, check=False).returncode == 0:
                    return directory
    raise Skip("no directory for disks whose file system can zero a part of a file (ext4 and xfs can): TMPDIR names one")


def processor():
    """The one that the whole guest runs on. Between two, a system call, which is a change of processes, costs four times as much."""
    return max(os.sched_getaffinity(0))
