"""A variant that is served: the modelled disk, dcd, the loop device or NBD socket, and recordings of its requests."""
import contextlib
import os
import signal
import subprocess
import time

from bench_common.daemon import Daemon
from bench_common.system import UNTIL_OUR_DEATH, Problem, copy_sparse, mounted_root, run, tell

FORGET_TIMEOUT_S = 10
# The command to record is sent and taken up in much less.
RECORDING_STARTS_S = 0.5


class Served:
    """One variant with an image of its own; a context that stops dcd, and with it its loop device."""

    def __init__(self, variant, image, folder, settings):
        self.variant, self.settings = variant, settings
        self.folder = os.path.join(folder, variant.name)
        self.root = os.path.join(self.folder, "root")
        self.daemon = Daemon(settings.dcd, variant.name, self.folder, settings.over_nbd)
        self.recordings = 0
        disk, cache = os.path.join(self.folder, "disk.img"), os.path.join(self.folder, "cache.img")
        copy_sparse(image, disk)
        self.words = {
            "data": f"model:{settings.disk_model}:{disk}",
            "cache": f"model:{settings.cache_model}:{cache}" if settings.cache_model != "none" else cache,
            "cache_size": settings.cache_size,
            "read_area": settings.read_area,
            "memory": folder,
            "control": self.daemon.control,
        }
        if variant.create:
            # The cache file itself is made without its model: only serving is measured.
            words = {**self.words, "cache": cache, "data": disk}
            run(settings.dcd, *self.filled(variant.create, words))

    @staticmethod
    def filled(command, words):
        return [part.format(**words) for part in command]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *reason):
        self.stop()

    @property
    def device(self):
        """Its loop device."""
        return self.daemon.device

    @property
    def nbd(self):
        """Its socket."""
        return self.daemon.nbd

    def start(self):
        """Starts dcd and waits until it is ready."""
        self.daemon.start(self.filled(self.variant.serve, self.words))
        if not self.settings.over_nbd:
            self.daemon.set_queue(read_ahead_kb=self.settings.read_ahead_kb, scheduler=self.settings.scheduler)

    def stop(self):
        """Stops dcd in order."""
        self.daemon.stop()

    @contextlib.contextmanager
    def mounted(self):
        """Its file system, with nothing of it in memory: it was not mounted before, and the device forgets what it had.

        `drop_caches` would do the same to all else that runs on the machine.
        """
        self.wait_until_forgotten()
        run("blockdev", "--flushbufs", self.device)
        with mounted_root(self.device, self.root) as root:
            yield root

    def wait_until_forgotten(self):
        """The file system itself goes with its last user, which may be a moment after unmounting."""
        end = time.monotonic() + FORGET_TIMEOUT_S
        while os.path.exists(f"/proc/fs/ext4/{os.path.basename(self.device)}"):
            if time.monotonic() > end:
                raise Problem(f"{self.device} is still in use after unmounting: its caches would not be cold")
            time.sleep(0.05)

    def sequence_recorder(self, name):
        """What to put before a command whose reads are to be a sequence."""
        words = {**self.words, "name": name}
        return [self.settings.dcd, *self.filled(self.variant.record, words)] if self.variant.record else []

    def recording(self):
        """A recording that begins now."""
        self.recordings += 1
        return Recording(self.settings.dcd, self.words["control"],
                         os.path.join(self.folder, f"requests-{self.recordings:04}.csv"))


class Recording:
    """Requests as the users of the served disk have them; ends with the block."""

    def __init__(self, dcd, control, path):
        self.command = [*UNTIL_OUR_DEATH, dcd, "trace", "record", "--control", control, path, "--for", "60m"]
        self.path = path

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True)
        time.sleep(RECORDING_STARTS_S)
        return self

    def __exit__(self, *reason):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=60)
        if self.process.returncode != 0 and reason[0] is None:
            raise Problem(f"dcd trace record: {errors.strip()}")
        if "lost" in output:
            tell(f"{self.path}: {output.strip()}")
