"""The daemon on the host, whose disk a guest has by vhost-user; cases in the guest say what becomes of it."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

from . import kernel
from .machine import MEMORY_MIB, remove

CACHE_MIB, DATA_MIB = 192, 512
# Others may use the machine.
PATIENCE_S = 120


class HostDaemon:
    """A pair of disks, the daemon on it, and the words that give the volume to a guest."""

    def __init__(self, dcd, work):
        self.dcd, self.work = dcd, os.path.join(work, "vhost-user")
        self.socket, self.control = self.path("vhost.sock"), self.path("control")
        self.log_path = self.path("daemon.log")
        self.daemon, self.options, self.answered, self.is_root = None, (), 0, False
        remove(self.work)
        os.makedirs(self.path("memory"))
        for name, size_mib in (("cache.img", CACHE_MIB), ("data.img", DATA_MIB)):
            with open(self.path(name), "wb") as disk:
                disk.truncate(size_mib << 20)
        self.run(self.dcd, "create", "--cache-disk", self.path("cache.img"), "--data-disk", self.path("data.img"))
        self.serve()

    def path(self, name):
        """A file of this daemon."""
        return os.path.join(self.work, name)

    def run(self, *words):
        """Runs a program to its end, which must be good; what it said."""
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"`{' '.join(words)}` ended with {done.returncode}: {done.stderr[-1000:]}")
        return done.stdout

    def qemu_words(self, guest_kernel):
        """What gives the volume to a guest: memory that is shared, the socket, the device. Each boot asks anew."""
        self.answered, words = 0, []
        if self.is_root:
            kernel.write_disk_initramfs(guest_kernel, self.path("initramfs.gz"))
            # The last one of each option counts.
            words = ["-initrd", self.path("initramfs.gz")]
        return [*words, "-object", f"memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on", "-numa", "node,memdev=memory",
                "-chardev", f"socket,id=dcd,path={self.socket},reconnect=1",
                "-device", "vhost-user-blk-pci,chardev=dcd,num-queues=2"]

    # What guests may ask for

    def serve(self, *options):
        """Starts the daemon, with the options of the last time if there are none."""
        self.options = options or self.options
        with open(self.log_path, "a", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(
                [self.dcd, "serve", "--cache-disk", self.path("cache.img"), "--data-disk", self.path("data.img"), "--vhost-user",
                 self.socket, "--control", self.control, "--memory-directory", self.path("memory"), *self.options],
                stdout=subprocess.PIPE, stderr=log, text=True)
        ready = self.daemon.stdout.readline()
        if not ready.startswith("ready "):
            raise RuntimeError(f"the daemon has not started: {self.messages()}")
        return ready

    def kill(self):
        """Kills the daemon where it stands."""
        self.daemon.kill()
        self.daemon.wait()

    def lose_memory(self):
        """Kills the daemon, and takes the memory that outlives it: to the pair that is a power cut."""
        self.kill()
        lost = os.listdir(self.path("memory"))
        for name in lost:
            os.remove(os.path.join(self.path("memory"), name))
        return len(lost)

    def stop(self):
        """Ends the daemon in order."""
        self.daemon.send_signal(signal.SIGTERM)
        return self.daemon.wait(PATIENCE_S)

    def grow(self, mib):
        """Makes the data-disk larger, while no daemon runs."""
        with open(self.path("data.img"), "r+b") as disk:
            disk.truncate(mib << 20)
        return self.run(self.dcd, "grow", "--cache-disk", self.path("cache.img"), "--data-disk", self.path("data.img"))

    def be_root(self):
        """The next boot has its root on the volume."""
        self.is_root = True

    def status(self):
        """What the daemon tells about itself."""
        return json.loads(self.run(self.dcd, "status", "--json", "--control", self.control))

    def answer(self, share):
        """Does what the guest asks for in the directory that is shared with it, if it asks."""
        path = os.path.join(share, f"ask-{self.answered}.json")
        if not os.path.exists(path):
            return
        with open(path, encoding="utf-8") as file:
            what, *words = json.load(file)
        assert what in ("serve", "kill", "lose_memory", "stop", "grow", "be_root", "status"), what
        try:
            answer = {"done": getattr(self, what)(*words)}
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            answer = {"failed": str(error)}
        answer_path = os.path.join(share, f"answer-{self.answered}.json")
        with open(answer_path + ".new", "w", encoding="utf-8") as out:
            json.dump(answer, out)
        os.rename(answer_path + ".new", answer_path)
        self.answered += 1

    def messages(self):
        """The end of what the daemon has said."""
        with contextlib.suppress(OSError), open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()[-3000:]
        return ""

    def end(self):
        """Ends the daemon, whatever it does."""
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.wait(20)
            if self.daemon.poll() is None:
                self.kill()
        shutil.rmtree(self.work, ignore_errors=True)


def ask(share, number, words, patience_s):
    """In the guest: has the host do something. What came of it."""
    path = os.path.join(share, f"ask-{number}.json")
    with open(path + ".new", "w", encoding="utf-8") as out:
        json.dump(words, out)
    os.rename(path + ".new", path)
    answer = os.path.join(share, f"answer-{number}.json")
    until = time.monotonic() + patience_s
    while not os.path.exists(answer):
        if time.monotonic() > until:
            return {"failed": f"no answer of the host after {patience_s} s"}
        time.sleep(0.1)
    with open(answer, encoding="utf-8") as file:
        return json.load(file)
