"""Programs, mounts and loop devices, each with the way back that every exit takes."""
import contextlib
import fcntl
import os
import pty
import shutil
import subprocess
import sys
import termios
import threading
import time

# What cleaning up may have to wait for: a file system whose last reference goes a moment after its programs.
BUSY_TRIES = 50
BUSY_PAUSE_S = 0.2
# In the environment: the mounts of this process are its own.
OWN_MOUNTS = "DCD_BENCH_OWN_MOUNTS"
# Before a command: should this program be killed, that ends, too.
UNTIL_OUR_DEATH = ("setpriv", "--pdeathsig", "TERM")
# Reads a line, which comes at an orderly end. Without it, it unmounts what is mounted on */root in the folder for twenty seconds.
GUARD = """read -r line && exit
for try in $(seq 100); do
    for point in "$0"/*/root; do umount --recursive "$point" 2>/dev/null; done
    sleep 0.2
done
for point in "$0"/*/root; do umount --recursive --lazy "$point" 2>/dev/null; done"""


class Problem(Exception):
    """Something that the user can do something about, in one line."""


def tell(text):
    """Progress; results alone go to stdout."""
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr, flush=True)


def require(*programs):
    """Names the Debian packages of programs that are missing."""
    packages = {"mmdebstrap": "mmdebstrap", "qemu-system-x86_64": "qemu-system-x86", "mkfs.ext4": "e2fsprogs",
                "losetup": "mount", "chroot": "coreutils", "fio": "fio",
                "postmark": "postmark", "cc": "gcc", "make": "make", "setpriv": "util-linux"}
    missing = sorted({packages[program] for program in programs if not shutil.which(program)})
    if missing:
        raise Problem(f"missing; as root: apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise Problem("loop devices, mounts and chroot need root")


def enter_own_mounts():
    """Runs this program anew where nobody else sees what it mounts.

    A mount that another namespace has a copy of (every build in a chroot makes one) keeps its caches when it is unmounted here.
    And should this program be killed, its mounts go with it, and so do the disks, which are in a tmpfs.
    """
    if os.environ.get(OWN_MOUNTS) is None:
        os.environ[OWN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


def run(*command, **options):
    """Runs a command whose failure is a problem; returns what it printed."""
    command = [str(part) for part in command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          **options)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()[-15:]
        raise Problem(f"{' '.join(command[:6])} ended with {done.returncode}:\n  " + "\n  ".join(lines))
    return done.stdout


def unmount(folder):
    """Unmounts, or in the end takes the mount away from the tree: nothing is left behind."""
    for _ in range(BUSY_TRIES):
        if subprocess.run(["umount", folder], stderr=subprocess.DEVNULL).returncode == 0:
            return
        if not os.path.ismount(folder):
            return
        time.sleep(BUSY_PAUSE_S)
    run("umount", "--lazy", folder)
    raise Problem(f"{folder} was in use for {BUSY_TRIES * BUSY_PAUSE_S:.0f} s; its mount goes when that ends")


@contextlib.contextmanager
def mounted(source, folder, *options):
    """A mount for as long as the block runs."""
    os.makedirs(folder, exist_ok=True)
    run("mount", *options, source, folder)
    try:
        yield folder
    finally:
        unmount(folder)


@contextlib.contextmanager
def mounted_root(device, folder):
    """A root file system that programs can be started in by chroot.

    The kernel's work after a mount, reading all bitmaps ahead, is left out: it belongs to the boot.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(mounted(device, folder, "-t", "ext4", "-o", "noinit_itable,no_prefetch_block_bitmaps"))
        for name, kind in (("proc", ("-t", "proc")), ("dev", ("--rbind", "--make-rslave"))):
            point = os.path.join(folder, name)
            # Before the first system is installed there is nothing to mount on; the installer brings its own.
            if os.path.isdir(point):
                run("mount", *kind, "proc" if name == "proc" else "/dev", point)
                stack.callback(unmount_tree, point)
        yield folder


@contextlib.contextmanager
def guarded(folder):
    """Should this program be killed: unmounts the file systems of the served disks, for which dcd waits, told to stop.

    It must not be left to the kernel: a dcd that is the last in its mount namespace would unmount a file system that it
    serves itself, and wait for itself for ever.
    """
    guard = subprocess.Popen(["sh", "-c", GUARD, folder], stdin=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield
    finally:
        guard.communicate("done\n")


def unmount_tree(folder):
    """Unmounts what is mounted on this folder and below it."""
    if subprocess.run(["umount", "--recursive", folder], stderr=subprocess.DEVNULL).returncode != 0:
        run("umount", "--recursive", "--lazy", folder)


@contextlib.contextmanager
def loop_device(path):
    """A loop device on a file for as long as the block runs."""
    device = run("losetup", "--find", "--show", path).strip()
    try:
        yield device
    finally:
        run("losetup", "--detach", device)


def copy_sparse(source, target):
    """Copies only what is not zero."""
    run("cp", "--sparse=always", source, target)


class OnTerminal:
    """A command with a terminal of its own, as editors want; what it prints is kept for error messages."""

    def __init__(self, command, environment=None, before=lambda: None):
        main, other = pty.openpty()
        termios.tcsetwinsize(main, (25, 80))
        self.printed = b""

        def in_child():
            # It becomes /dev/tty of the new session.
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            before()

        self.process = subprocess.Popen([str(part) for part in command], stdin=other, stdout=other, stderr=other,
                                        env=environment, start_new_session=True, preexec_fn=in_child)
        os.close(other)
        self.main = main
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        # The end of the last writer shows as an error on a terminal.
        with contextlib.suppress(OSError):
            while piece := os.read(self.main, 1 << 16):
                self.printed = (self.printed + piece)[-4000:]

    def wait(self, timeout_s):
        """Waits for the end; returns the exit code."""
        try:
            return self.process.wait(timeout_s)
        finally:
            self.end()

    def end(self):
        """Ends it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(1)
        if self.main is not None:
            os.close(self.main)
            self.main = None

    def tail(self):
        """The last lines it printed."""
        return self.printed.decode(errors="replace").strip()[-600:]
