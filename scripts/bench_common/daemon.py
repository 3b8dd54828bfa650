"""A dcd that serves, from its ready line to its end, with what a crash of it leaves behind."""
import os
import re
import signal
import subprocess

from .system import UNTIL_OUR_DEATH, Problem, run, tell

STOP_TIMEOUT_S = 120


class Daemon:
    """`dcd serve` or `dcd slow-disk` over an NBD socket, or over FUSE with a loop device, in a folder of its own."""

    def __init__(self, dcd, name, folder, over_nbd):
        self.dcd, self.name, self.folder, self.over_nbd = dcd, name, folder, over_nbd
        self.nbd = os.path.join(folder, "nbd.sock")
        self.fuse = os.path.join(folder, "fuse")
        self.control = os.path.join(folder, "control.sock")
        self.process, self.device = None, None
        os.makedirs(self.fuse, exist_ok=True)

    def start(self, words):
        """Starts it with these words behind `dcd`, to which where to serve is added, and waits until it is ready."""
        where = ["--nbd", f"unix:{self.nbd}"] if self.over_nbd else ["--fuse", self.fuse, "--loop"]
        command = [*UNTIL_OUR_DEATH, self.dcd, *words, *where, "--control", self.control]
        self.errors = open(os.path.join(self.folder, "dcd.err"), "a+")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, start_new_session=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("ready"):
            self.stop()
            raise Problem(f"dcd does not start ({self.name}): {self.said()}")
        if not self.over_nbd:
            self.device = re.search(r"loop=(\S+)", ready).group(1)

    def set_queue(self, **values):
        """What Linux gives a disk of its kind by default; a loop device would read ahead much further."""
        queue = f"/sys/block/{os.path.basename(self.device)}/queue"
        for name, value in values.items():
            with open(f"{queue}/{name}", "w") as file:
                file.write(str(value))

    def stop(self):
        """Stops it in order."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                tell(f"dcd did not stop ({self.name}): {self.said()}")
        self.process.stdout.close()
        self.errors.close()
        self.process = None
        self.detach_leftovers()

    def detach_leftovers(self):
        """After a crash of dcd its loop device and its FUSE mount are still there."""
        file = os.path.join(self.fuse, "disk")
        for line in run("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").splitlines():
            if line.split()[1:] == [file]:
                run("losetup", "--detach", line.split()[0])
        # os.path.ismount does not see the mount of a dead FUSE server.
        with open("/proc/self/mounts") as mounts:
            if any(line.split()[1] == self.fuse for line in mounts):
                run("umount", "--lazy", self.fuse)

    def said(self):
        """The last it said on stderr."""
        with open(os.path.join(self.folder, "dcd.err")) as file:
            return " ".join(file.read().strip().splitlines()[-3:])
