"""What is measured: a server of S3 behind a distance, a dcd with its data there, and s3backer."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time

from bench_common.daemon import Daemon
from bench_common.distance import Distance
from bench_common.system import UNTIL_OUR_DEATH, Problem, run, tell

ACCESS, SECRET, BUCKET = "cache", "disk-secret", "bucket"
PATIENCE_S = 60


def until(what, is_so, patience_s=PATIENCE_S):
    """Waits."""
    end = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > end:
            raise Problem(f"{what}: not within {patience_s} s")
        time.sleep(0.02)


def free_port():
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def process(*command, **options):
    """A program that is stopped at the end of the block."""
    child = subprocess.Popen([*UNTIL_OUR_DEATH, *map(str, command)], stdin=subprocess.DEVNULL, **options)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextlib.contextmanager
def plain_file(folder, size_mib):
    """A file that is written once."""
    path = os.path.join(folder, f"plain-{os.getpid()}.img")
    run("fio", "--name=fill", f"--filename={path}", "--rw=write", "--bs=1m", f"--size={size_mib}m", "--end_fsync=1")
    try:
        yield path
    finally:
        os.remove(path)


@contextlib.contextmanager
def bucket(settings, folder):
    """versitygw on a directory, at the distance, with an empty bucket. dcd finds it by the environment."""
    # Its attributes with the files, as behind `--sidecar` a kill may leave the ones without the others (docs/s3.md).
    root = os.path.join(folder, "s3")
    os.makedirs(os.path.join(root, BUCKET))
    port = free_port()
    line = (settings.versitygw, "--access", ACCESS, "--secret", SECRET, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet",
            "posix", root)
    with process(*line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        until("the server answers", lambda: answers(port))
        with Distance(port, settings.round_trip_ms, http=True) as far:
            os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{far.port}", AWS_REGION="us-east-1",
                              AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET)
            far.root = os.path.join(root, BUCKET)
            yield far
    shutil.rmtree(root)


class Dcd:
    """A dcd on a log of its own, for as long as the block runs; data_disk is a store or any other disk."""

    def __init__(self, settings, folder, name, data_disk, size=None, log_mib=None, log_folder=None, flags=()):
        self.settings, self.folder = settings, os.path.join(folder, name)
        self.daemon = Daemon(settings.dcd, name, self.folder, over_nbd=True)
        self.data_disk = data_disk
        self.cache = os.path.join(log_folder or self.folder, f"{name}-{os.getpid()}.log.img")
        self.flags = flags
        run(settings.dcd, "create", "--cache-disk", self.cache, "--cache-size", f"{log_mib or settings.log_mib}M", "--data-disk", data_disk,
            *(["--size", size] if size else []))

    def words(self, cache):
        """To serve it."""
        return ["serve", "--cache-disk", cache, "--data-disk", self.data_disk, "--memory-directory", self.folder, "--quiet", "--drain-timeout", "10m",
                *self.flags]

    def __enter__(self):
        self.daemon.start(self.words(self.cache))
        self.uri = f"nbd+unix:///?socket={self.daemon.nbd}"
        return self

    def __exit__(self, *reason):
        self.daemon.stop()
        os.remove(self.cache)

    def ask(self, *words):
        """A command that speaks to the daemon."""
        return run(self.settings.dcd, *words, "--control", self.daemon.control)

    def status(self):
        """As it tells it."""
        return json.loads(self.ask("status", "--json"))

    def drain_s(self):
        """How long it takes until all is in the data-disk."""
        begin = time.monotonic()
        self.ask("drain")
        return time.monotonic() - begin

    def lose_the_machine(self):
        """Kills it, and what has the store open for it; it leaves nothing in order."""
        os.killpg(self.daemon.process.pid, signal.SIGKILL)
        self.daemon.process.wait()


# Blocks of one line, all of them known from the beginning, and room for all in its cache: no read before a write, ever. It waits for
# nothing that stores with strong consistency, as S3 has had since 2020, do not need.
S3BACKER = ("--listBlocks", "--minWriteDelay=0", "--md5CacheSize=0", "--md5CacheTime=0",
            "--blockCacheWriteDelay=0", "--blockCacheSync")


@contextlib.contextmanager
def s3backer(folder, name, far, size_mib):
    """s3backer's file on the same server."""
    point = os.path.join(folder, name)
    os.makedirs(point)
    line = ("s3backer", "-f", "--quiet", f"--accessId={ACCESS}", f"--accessKey={SECRET}", f"--baseURL=http://127.0.0.1:{far.port}/", "--authVersion=aws4",
            f"--prefix={name}-", "--blockSize=4k", f"--size={size_mib}m", f"--blockCacheSize={size_mib << 8}",
            *S3BACKER, BUCKET, point)
    with open(os.path.join(folder, f"{name}.err"), "w+") as errors:
        child = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        try:
            file = os.path.join(point, "file")
            try:
                until("s3backer", lambda: child.poll() is not None or os.path.exists(file))
                if child.poll() is not None:
                    raise Problem("it has ended")
            except Problem as problem:
                errors.seek(0)
                raise Problem(f"s3backer does not start: {problem}: {errors.read()[-500:]}") from None
            yield file
        finally:
            subprocess.run(["fusermount3", "-u", "-q", point])
            try:
                child.wait(2 * PATIENCE_S)
            except subprocess.TimeoutExpired:
                tell(f"{name} did not stop")
                child.kill()
                child.wait()
