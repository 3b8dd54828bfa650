"""The disks that are measured: ext4 over a whole WD400BB, filled and aged, with Debian's packages in it.

Free space is cut up by files that are made and half of them removed between one group of packages and the next,
as it comes to be in use. Those files are only allocated, never written: the image stays as small as its programs.
Everything made here comes from fixed seeds; the packages are those that Debian has that day.
"""
import contextlib
import os
import random
import shutil
import subprocess

from bench_common import c_project
from bench_common.system import Problem, copy_sparse, loop_device, mounted_root, require, run, tell

DISK_BYTES = 78_165_360 * 512  # the WD400BB's
# Files between the groups of packages: 2 GB a time, half of which goes again.
FILLER_BYTES_PER_STAGE = 2 << 30
FILLER_FOLDERS = 60
TREE_FILES = 20_000
TREE_FOLDERS = 400

# Groups of packages in the order in which they come onto the disk.
PROGRAM_STAGES = (
    ("vim", "make"),
    ("python3",),
    ("emacs-nox",),
    ("gcc", "libc6-dev"),
    ("git",),
    ("python3-numpy",),
    ("gimp",),
)
# A machine with the services of a small office; the kernel is started by QEMU and not read from the disk.
BOOT_STAGES = (
    ("systemd-sysv", "udev", "dbus", "kmod", "initramfs-tools", "linux-image-cloud-amd64"),
    ("login", "openssh-server", "rsyslog", "cron", "locales"),
    ("network-manager", "udisks2"),
    ("cups", "avahi-daemon"),
    ("postgresql",),
    ("apache2",),
)
BOOT_MARKER = "dcd-boot-is-done"


def build(name, work, suite, mirror):
    """Makes an image if the work directory has none; returns its path."""
    image = os.path.join(work, f"{name}.img")
    if os.path.exists(image):
        return image
    require("mmdebstrap", "mkfs.ext4", "losetup")
    os.makedirs(work, exist_ok=True)
    unfinished = image + ".unfinished"
    with contextlib.suppress(FileNotFoundError):
        os.remove(unfinished)
    tell(f"building {image}, once; some minutes")
    with open(unfinished, "wb") as file:
        file.truncate(DISK_BYTES)
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", unfinished)
    point = os.path.join(work, f"{name}.mnt")
    stages, finish = {"programs": (PROGRAM_STAGES, finish_programs), "boot": (BOOT_STAGES, finish_boot)}[name]
    with loop_device(unfinished) as device:
        with mounted_root(device, point) as root:
            run("mmdebstrap", "--variant=minbase", "--skip=check/empty", suite, root, *([mirror] if mirror else []))
        with mounted_root(device, point) as root:
            install_stages(root, stages)
            finish(root, work)
    # Written through the loop device, blocks of zeroes were allocated; the copy has only the others.
    copy_sparse(unfinished, unfinished + ".sparse")
    os.rename(unfinished + ".sparse", image)
    os.remove(unfinished)
    return image


def install_stages(root, stages):
    fillers = Fillers(root)
    in_root(root, "apt-get", "update", "-q")
    with open(os.path.join(root, "usr/sbin/policy-rc.d"), "w") as file:
        # No service is started while it is installed.
        file.write("#!/bin/sh\nexit 101\n")
        os.fchmod(file.fileno(), 0o755)
    for packages in stages:
        fillers.add()
        tell(f"installing {' '.join(packages)}")
        in_root(root, "apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)
        fillers.thin_out()
    in_root(root, "apt-get", "clean")
    os.remove(os.path.join(root, "usr/sbin/policy-rc.d"))


class Fillers:
    """Files that cut up the free space."""

    def __init__(self, root):
        self.folder = os.path.join(root, "home/filler")
        self.draw = random.Random(2005)
        self.files = []

    def add(self):
        size_sum = 0
        while size_sum < FILLER_BYTES_PER_STAGE:
            folder = os.path.join(self.folder, f"d{self.draw.randrange(FILLER_FOLDERS)}")
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"f{len(self.files):06}-{self.draw.randrange(10**6)}")
            # Mostly some 20 KiB, with a tail up to 64 MiB.
            size = min(int(self.draw.lognormvariate(10, 2.4)) + 1, 64 << 20)
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            self.files.append(path)
            size_sum += size

    def thin_out(self):
        self.draw.shuffle(self.files)
        half = len(self.files) // 2
        for path in self.files[half:]:
            os.remove(path)
        del self.files[half:]


def finish_programs(root, work):
    """The tree of git, the C project, and a first start of all, which leaves what programs keep."""
    from .tasks import STARTS

    tell("making the git tree and the C project")
    fill_tree(os.path.join(root, "srv/tree"))
    git = ("git", "-C", "/srv/tree")
    in_root(root, "git", "init", "-q", "/srv/tree")
    in_root(root, *git, "config", "user.email", "bench@example.org")
    in_root(root, *git, "config", "user.name", "bench")
    in_root(root, *git, "add", ".")
    in_root(root, *git, "commit", "-q", "-m", "all")
    c_project.write(os.path.join(root, "srv/project"))
    in_root(root, "make", "-s", "-j2", "-C", "/srv/project")
    for task in STARTS:
        tell(f"first start of {task.name}")
        in_root(root, *task.command, on_terminal=True)


def finish_boot(root, work):
    """What boots without a password and tells when it has; kernel and initrd go beside the image."""
    unit = f"""[Unit]
Description=Says that the boot is done, and powers off
After=multi-user.target serial-getty@ttyS0.service

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo {BOOT_MARKER} > /dev/ttyS0; sleep 3; systemctl poweroff --force'

[Install]
WantedBy=graphical.target
"""
    with open(os.path.join(root, "etc/systemd/system/boot-is-done.service"), "w") as file:
        file.write(unit)
    with open(os.path.join(root, "etc/fstab"), "w") as file:
        file.write("/dev/vda / ext4 defaults 0 1\n")
    with open(os.path.join(root, "etc/hostname"), "w") as file:
        file.write("bench\n")
    in_root(root, "systemctl", "enable", "boot-is-done.service")
    in_root(root, "systemctl", "set-default", "graphical.target")
    boot = os.path.join(root, "boot")
    for kind in ("vmlinuz", "initrd.img"):
        newest = max(name for name in os.listdir(boot) if name.startswith(kind))
        shutil.copyfile(os.path.join(boot, newest), os.path.join(work, kind))


def fill_tree(folder):
    """Many small files, as in a large source tree."""
    draw = random.Random(772)
    words = [f"word{number}" for number in range(2000)]
    folders = []
    for number in range(TREE_FOLDERS):
        parent = draw.choice(folders) if folders and draw.random() < 0.8 else folder
        folders.append(os.path.join(parent, f"part{number}"))
        os.makedirs(folders[-1])
    for number in range(TREE_FILES):
        size = min(int(draw.lognormvariate(8, 1)), 100_000)
        text = " ".join(draw.choices(words, k=size // 8 + 1))
        with open(os.path.join(draw.choice(folders), f"file{number}.c"), "w") as file:
            file.write(text + "\n")


def in_root(root, *command, on_terminal=False):
    """Runs a command in the image."""
    from bench_common.system import OnTerminal

    from .tasks import ENVIRONMENT

    if on_terminal:
        terminal = OnTerminal(["chroot", root, *command], ENVIRONMENT)
        try:
            code = terminal.wait(600)
        except subprocess.TimeoutExpired:
            code = "no answer"
        if code != 0:
            raise Problem(f"{command[0]} in the image: {code}: {terminal.tail()}")
        return
    run("chroot", root, *command, env=ENVIRONMENT)
