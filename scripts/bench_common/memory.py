"""Programs in little memory: control groups."""
import contextlib
import os
import time

from .system import Problem, tell


class Group:
    """A control group whose memory, page cache included, is limited."""

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes

    def __enter__(self):
        folder, name = memory_controller()
        self.folder = os.path.join(folder, f"dcd-bench-{os.getpid()}")
        os.mkdir(self.folder)
        if self.limit_bytes is not None:
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(str(self.limit_bytes))
        return self

    def join(self):
        """The calling process, which is to run a program, and its children."""
        with open(os.path.join(self.folder, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))

    def peak_bytes(self):
        """The most that it had, page cache included; 0 where the kernel does not tell."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, name)) as file:
                return int(file.read())
        return 0

    def __exit__(self, *reason):
        # It is busy for a moment after its last process.
        for _ in range(50):
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
                return
            time.sleep(0.1)
        tell(f"cannot remove {self.folder}")


def memory_controller():
    """Folder of the memory controller, and the name of its limit: version 1 or 2."""
    with open("/proc/self/mounts") as file:
        mounts = [line.split() for line in file]
    for _, folder, kind, options, *_ in mounts:
        if kind == "cgroup" and "memory" in options.split(","):
            return folder, "memory.limit_in_bytes"
    for _, folder, kind, *_ in mounts:
        if kind == "cgroup2":
            with open(os.path.join(folder, "cgroup.controllers")) as file:
                if "memory" in file.read().split():
                    with open(os.path.join(folder, "cgroup.subtree_control"), "w") as control:
                        control.write("+memory")
                    return folder, "memory.max"
    raise Problem("no control group with the memory controller is mounted")
