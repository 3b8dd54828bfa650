"""One boot of User Mode Linux: a process with the files of the host, disks that are files, and a directory shared with it."""
import os
import sys

from .. import machine

MEMORY_MIB = 3072
DISKS = ("ubda", "ubdb", "ubdc", "ubdd")
INIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "init.sh")
# Its memory is a file that nobody sees, and its disks may be as fast as memory: a power cut is none for the host.
IN_MEMORY = "/dev/shm"


class UmlMachine(machine.Machine):
    """From power-on to power-off."""

    def __init__(self, kernel, work, task, has_clock=False):
        """`has_clock`: programs read the clock without a system call (`clock.c`)."""
        self.has_clock = has_clock
        super().__init__(kernel, work, task)

    def facts(self, kernel):
        return {"built_in": kernel.built_in, "busybox": kernel.busybox}

    def words(self, kernel, accel, drives):
        python = next((path for path in ("/usr/bin/python3", sys.executable) if os.path.exists(path)), None)
        told = {"disks": ",".join(f"/dev/{name}" for name in DISKS), "busybox": kernel.busybox, "python": python, "share": self.share,
                "inside": os.path.join(machine.HERE, "inside.py"), **({"clock": kernel.clock} if self.has_clock else {})}
        return ["taskset", "-c", str(processor()), kernel.image, f"mem={MEMORY_MIB}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
                f"init={INIT}", "con=null", "con0=null,fd:1", "umid=guest", f"uml_dir={self.work}", "quiet", "panic=-1", "seccomp=auto",
                *(f"{name}={os.path.join(self.work, f'disk{number}.img')}" for number, name in enumerate(DISKS)),
                *(f"guest_{name}={value}" for name, value in told.items())]

    def environment(self):
        return {"TMPDIR": IN_MEMORY} if os.path.isdir(IN_MEMORY) else {}


def processor():
    """The one that the whole guest runs on. Between two, a system call, which is a change of processes, costs four times as much."""
    return max(os.sched_getaffinity(0))
