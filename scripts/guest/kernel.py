"""A kernel for the guest: Debian's, with ublk, nbd and the caches of other people as modules.

It comes from the archive that apt knows, is unpacked once, and is kept: nothing is installed, the host's kernel plays no part.
"""
import gzip
import lzma
import os
import re
import shutil
import stat
import subprocess
import tempfile

from .problem import Skip

PACKAGE = re.compile(r"^(linux-image-(6\.12\.\d+\+deb\d+)-amd64-unsigned) ")
BUSYBOX = "busybox-static"
# What cases load, with what these need; all of Debian's modules would take half a gigabyte.
DIRECTORIES = ("arch/x86/crypto", "block", "crypto", "drivers/acpi/nfit", "drivers/block", "drivers/dax", "drivers/md",
               "drivers/nvdimm", "drivers/scsi", "drivers/virtio", "fs", "lib", "net/9p", "net/core", "net/sunrpc")
# Needed to see the host's files; the rest is loaded from there.
FOR_START = ("virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "overlay")
# Counts up when what is made here changes.
LAYOUT = 2


class Kernel:
    """An unpacked kernel: its image, its first file system, its modules."""

    def __init__(self, directory, version):
        self.directory, self.version = directory, version
        self.image = os.path.join(directory, "vmlinuz")
        self.initramfs = os.path.join(directory, "initramfs.gz")
        self.busybox = os.path.join(directory, "busybox")
        self.modules = os.path.join(directory, "lib", "modules", f"{version}-amd64")


def prepare(cache, wanted=None, only_cached=False):
    """The newest kernel that there is, or that of version `wanted`; from the cache if it is in there."""
    for name in sorted(os.listdir(cache) if os.path.isdir(cache) else (), key=order, reverse=True):
        version, _, layout = name.partition("-layout-")
        if layout == str(LAYOUT) and wanted in (None, version):
            return Kernel(os.path.join(cache, name), version)
    if only_cached:
        raise Skip("no guest kernel has been fetched yet; `make test-guest` does")
    package, version = find(wanted)
    os.makedirs(cache, exist_ok=True)
    directory = os.path.join(cache, f"{version}-layout-{LAYOUT}")
    with tempfile.TemporaryDirectory(dir=cache, prefix="unpack-") as work:
        print(f"fetching {package} and {BUSYBOX} (once)", flush=True)
        for name in (package, BUSYBOX):
            download(name, work)
        made = os.path.join(work, "made")
        unpack(work, made, version)
        os.rename(made, directory)
    return Kernel(directory, version)


def fetch_program(cache, package, path):
    """A program of a Debian package, unpacked beside the kernels; nothing is installed."""
    directory = os.path.join(cache, f"package-{package}")
    if not os.path.isdir(directory):
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="unpack-") as work:
            download(package, work)
            archive = next(name for name in os.listdir(work) if name.endswith(".deb"))
            subprocess.run(["dpkg", "-x", os.path.join(work, archive), os.path.join(work, "made")], check=True)
            os.rename(os.path.join(work, "made"), directory)
    return os.path.join(directory, path)


def find(wanted):
    """Name and version of the package."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise Skip("no apt-get and dpkg here to fetch a guest kernel with")
    found = search()
    if not found:
        # Lists may never have been fetched.
        subprocess.run(["apt-get", "update", "-q"], capture_output=True, check=False)
        found = search()
    found = [one for one in found if wanted in (None, one[1])]
    if not found:
        raise Skip(f"apt knows no linux-image-{wanted or '6.12.*+deb*'}-amd64-unsigned (Debian: bookworm-security, trixie)")
    return max(found, key=lambda one: order(one[1]))


def search():
    listed = subprocess.run(["apt-cache", "search", "--names-only", "^linux-image-6.12.*-amd64-unsigned"],
                            capture_output=True, text=True, check=False).stdout
    return [match.groups() for line in listed.splitlines() if (match := PACKAGE.match(line))]


def order(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def download(package, work):
    done = subprocess.run(["apt-get", "download", "-q", package], cwd=work, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise Skip(f"cannot fetch {package}: {reason[0]}")


def unpack(work, made, version):
    for name in os.listdir(work):
        if name.endswith(".deb"):
            into = os.path.join(work, "busybox" if name.startswith(BUSYBOX) else "kernel")
            subprocess.run(["dpkg", "-x", os.path.join(work, name), into], check=True)
    release = f"{version}-amd64"
    kernel, modules = os.path.join(work, "kernel"), os.path.join(made, "lib", "modules", release)
    os.makedirs(modules)
    shutil.copy(os.path.join(kernel, "boot", f"vmlinuz-{release}"), os.path.join(made, "vmlinuz"))
    shutil.copy(os.path.join(work, "busybox", "bin", "busybox"), os.path.join(made, "busybox"))
    packed = os.path.join(kernel, "lib", "modules", release)
    if not os.path.isdir(packed):
        packed = os.path.join(kernel, "usr", "lib", "modules", release)
    for name in os.listdir(packed):
        if name.startswith("modules."):
            shutil.copy(os.path.join(packed, name), modules)
    for directory in DIRECTORIES:
        for place, _, names in os.walk(os.path.join(packed, "kernel", directory)):
            into = os.path.join(modules, os.path.relpath(place, packed))
            os.makedirs(into, exist_ok=True)
            for name in names:
                copy_module(os.path.join(place, name), into)
    subprocess.run([os.path.join(made, "busybox"), "depmod", "-b", made, release], check=True, capture_output=True)
    write_initramfs(made, modules)


def copy_module(path, into):
    name = os.path.basename(path)
    if name.endswith(".ko.xz"):
        with lzma.open(path) as packed, open(os.path.join(into, name[:-3]), "wb") as plain:
            shutil.copyfileobj(packed, plain)
    elif name.endswith(".ko"):
        shutil.copy(path, into)


def needed(modules, names):
    """Files of modules in the order in which they can be loaded."""
    needs = {}
    with open(os.path.join(modules, "modules.dep"), encoding="utf-8") as lines:
        for line in lines:
            path, _, others = line.strip().partition(":")
            needs[path] = others.split()
    by_name = {os.path.basename(path)[:-3].replace("-", "_"): path for path in needs}
    ordered = []

    def add(path):
        for other in needs[path]:
            add(other)
        if path not in ordered:
            ordered.append(path)

    for name in names:
        if name.replace("-", "_") in by_name:  # else it is built in
            add(by_name[name.replace("-", "_")])
    return [os.path.join(modules, path) for path in ordered]


INIT = """#!/busybox sh
# Makes the host's files the root, with a layer in memory on top, and goes on there.
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sysfs /sys
/busybox mount -t devtmpfs dev /dev
for module in $(/busybox cat /modules.order); do /busybox insmod /$module; done
/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host || exec /busybox poweroff -f
/busybox mount -t tmpfs -o size=50% layer /layer
/busybox mkdir /layer/upper /layer/work
/busybox mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root || exec /busybox poweroff -f
for kept in dev proc sys; do /busybox mount --move /$kept /root/$kept; done
for fresh in run dev/shm; do
    /busybox mkdir -p /root/$fresh
    /busybox mount -t tmpfs fresh /root/$fresh
done
exec /busybox switch_root /root /bin/sh -c "$guest_python $guest_inside; exec $guest_busybox poweroff -f"
"""


# Its root is the disk of dcd, and nothing else.
DISK_INIT = """#!/busybox sh
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sysfs /sys
/busybox mount -t devtmpfs dev /dev
for module in $(/busybox cat /modules.order); do /busybox insmod /$module; done
for serial in /sys/block/vd*/serial; do
    case $(/busybox cat $serial) in dcd-*) disk=${serial%/serial} ;; esac
done
/busybox mount -t ext4 /dev/${disk##*/} /root || exec /busybox poweroff -f
for kept in dev proc sys; do /busybox mount --move /$kept /root/$kept; done
exec /busybox switch_root /root /sbin/init
"""


def write_disk_initramfs(kernel, path):
    """A first file system that goes on from the disk of dcd."""
    pack(path, DISK_INIT, needed(kernel.modules, ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")), kernel.busybox)


def write_initramfs(made, modules):
    pack(os.path.join(made, "initramfs.gz"), INIT, needed(modules, FOR_START), os.path.join(made, "busybox"))


def pack(target, init, files, busybox):
    order_file = "".join(f"{os.path.basename(path)}\n" for path in files).encode()
    with gzip.open(target, "wb", compresslevel=6) as out:
        archive = Archive(out)
        for directory in ("proc", "sys", "dev", "host", "layer", "root"):
            archive.add(directory, stat.S_IFDIR | 0o755, b"")
        archive.add("init", stat.S_IFREG | 0o755, init.encode())
        archive.add("modules.order", stat.S_IFREG | 0o644, order_file)
        for path in [busybox, *files]:
            with open(path, "rb") as content:
                archive.add(os.path.basename(path), stat.S_IFREG | 0o755, content.read())
        archive.end()


class Archive:
    """What the kernel unpacks as its first file system: cpio in its "newc" form."""

    def __init__(self, out):
        self.out, self.inode = out, 0

    def add(self, name, mode, content):
        self.inode += 1
        encoded = name.encode() + b"\0"
        numbers = (self.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % number for number in numbers)
        self.padded(header + encoded)
        self.padded(content)

    def end(self):
        self.add("TRAILER!!!", 0, b"")

    def padded(self, content):
        self.out.write(content + b"\0" * (-len(content) % 4))
