"""A kernel that is a program: User Mode Linux, built once from a Debian source package that is pinned by its checksum.

The package comes from the archive that apt knows, into a directory of its own: neither apt's lists nor what is installed changes.
"""
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

from ..kernel import BUSYBOX, download
from ..problem import Failure, Skip

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = os.path.join(HERE, "kernel.config")
CLOCK = os.path.join(HERE, "clock.c")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Programs that the build needs, with their packages.
NEEDED = {"gcc": "gcc", "make": "make", "ld": "binutils", "bison": "bison", "flex": "flex", "bc": "bc", "xz": "xz-utils", "perl": "perl",
          "dpkg": "dpkg", "apt-get": "apt", "setpriv": "util-linux", "taskset": "util-linux"}
# Most of the source is for machines that this is not; Kconfig and Makefiles of it are needed all the same.
LEFT_OUT = ("*/drivers/gpu/*.[ch]", "*/drivers/net/ethernet/*.[ch]", "*/drivers/net/wireless/*.[ch]", "*/drivers/media/*.[ch]",
            "*/sound/*.[ch]", "*/Documentation/*.rst", "*/tools/testing/*", "*.dts", "*.dtsi")
# The same source makes the same program.
SAME_EACH_TIME = {"KBUILD_BUILD_TIMESTAMP": "2000-01-01", "KBUILD_BUILD_USER": "dcd", "KBUILD_BUILD_HOST": "dcd"}


@dataclass
class Source:
    """A Debian package with the source of a kernel."""

    package: str
    version: str
    sha256: str
    suite: str


PINNED = Source("linux-source-7.3", "7.3.4-1~bpo13+1", "703e369ddd4cce971452f5a593ee55df3a5c10c83caf0fa0df039633ed181ee3", "trixie-backports")


class Kernel:
    """A built kernel, and what goes with it."""

    def __init__(self, directory, version):
        self.directory, self.version = directory, version
        self.image = os.path.join(directory, "linux")
        self.busybox = os.path.join(directory, "busybox")
        with open(os.path.join(directory, "modules.builtin"), encoding="utf-8") as lines:
            self.built_in = sorted(os.path.basename(line.strip())[:-len(".ko")].replace("-", "_") for line in lines)


def prepare(cache, only_cached=False, source=PINNED):
    """The kernel; from the cache, if this one is in there."""
    directory = os.path.join(cache, "uml", f"{source.version}-{recipe(source)}")
    if not os.path.isdir(directory):
        if only_cached:
            raise Skip("no kernel of User Mode Linux has been built yet; `make test-guest GUEST_KIND=uml` does")
        check_programs()
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(directory), prefix="build-") as work:
            made = build(source, work, os.path.join(cache, "uml", "build.log"))
            os.rename(made, directory)
    return Kernel(directory, source.version)


def clock(work):
    """What is loaded into programs that are measured: a clock that is read without a system call, as on a real machine."""
    if not shutil.which("gcc"):
        raise Skip("no gcc here for the clock of the guest: apt-get install gcc, or --clock kernel")
    path = os.path.join(work, "clock.so")
    done = subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", path, CLOCK], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"the clock of the guest cannot be built:\n{done.stderr}")
    return path


def recipe(source):
    """Eight digits for all that makes the kernel what it is: another recipe is another kernel."""
    digest = hashlib.sha256(source.sha256.encode())
    with open(CONFIG, "rb") as file:
        digest.update(file.read())
    return digest.hexdigest()[:8]


def check_programs():
    """All that a build needs is there, or what is to be installed is said."""
    missing = sorted({package for program, package in NEEDED.items() if not shutil.which(program)})
    if not os.path.exists("/usr/include/string.h"):
        missing.append("libc6-dev")
    if missing:
        raise Skip(f"cannot build a kernel: apt-get install {' '.join(missing)}")
    if not os.path.exists(KEYRING):
        raise Skip(f"no {KEYRING}, which the source is checked with (Debian: debian-archive-keyring)")


def build(source, work, log_path):
    """Everything from the package to a directory with the kernel."""
    print(f"fetching {source.package} {source.version} and {BUSYBOX}, building (once; some minutes, on a busy machine half an hour; {log_path})", flush=True)
    package = fetch(source, work)
    download(BUSYBOX, work)
    tree, objects = os.path.join(work, "source"), os.path.join(work, "objects")
    with open(log_path, "w", encoding="utf-8") as log:
        unpack(source, package, tree, log)
        compile_kernel(tree, objects, log)
        return collect(work, objects, log)


def unpack(source, package, tree, log):
    """What is needed of the source; the package is removed."""
    os.makedirs(tree)
    left_out = " ".join(f"--exclude='{pattern}'" for pattern in LEFT_OUT)
    run(log, "bash", "-c", f"set -euo pipefail; dpkg --fsys-tarfile '{package}' | tar -xO './usr/src/{source.package}.tar.xz' | xz -dc"
        f" | tar -x -C '{tree}' --strip-components=1 {left_out}")
    os.remove(package)


def compile_kernel(tree, objects, log):
    """`linux`, and the list of what is built in."""
    make = ["nice", "make", "-s", "-C", tree, "ARCH=um", f"O={objects}"]
    run(log, *make, "allnoconfig", env={**os.environ, "KCONFIG_ALLCONFIG": CONFIG})
    check_config(os.path.join(objects, ".config"))
    run(log, *make, f"-j{len(os.sched_getaffinity(0))}", "linux", env={**os.environ, **SAME_EACH_TIME})


def collect(work, objects, log):
    """A directory with all that is kept."""
    made = os.path.join(work, "made")
    os.makedirs(made)
    run(log, "strip", "-o", os.path.join(made, "linux"), os.path.join(objects, "linux"))
    package = next(name for name in os.listdir(work) if name.startswith(BUSYBOX) and name.endswith(".deb"))
    run(log, "dpkg", "-x", os.path.join(work, package), os.path.join(work, "unpacked"))
    shutil.copy(os.path.join(work, "unpacked", "bin", "busybox"), made)
    shutil.copy(os.path.join(objects, "modules.builtin"), made)
    shutil.copy(os.path.join(objects, ".config"), os.path.join(made, "config"))
    return made


def run(log, *words, **more):
    """Runs a program to its end; what it says goes to the log."""
    log.flush()
    if subprocess.run(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, **more).returncode != 0:
        raise Failure(f"`{' '.join(words)}` failed:\n{tail(log.name)}")


def fetch(source, work):
    """The package, from the suite that has it; checked."""
    apt = os.path.join(work, "apt")
    for name in ("lists", "archives"):
        os.makedirs(os.path.join(apt, name, "partial"))
    with open(os.path.join(apt, "sources.list"), "w", encoding="utf-8") as out:
        out.write(f"deb [signed-by={KEYRING}] {mirror()} {source.suite} main\n")
    options = [f"Dir::Etc::sourcelist={apt}/sources.list", "Dir::Etc::sourceparts=/dev/null", f"Dir::State::lists={apt}/lists", f"Dir::Cache={apt}",
               # Its own user cannot write here.
               "APT::Sandbox::User="]
    words = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    for last in (["update"], ["download", f"{source.package}={source.version}"]):
        done = subprocess.run([*words, *last], cwd=work, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Skip(f"cannot fetch {source.package} {source.version} of {source.suite}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}; "
                       "if the archive has another one by now, its version and SHA-256 go into scripts/guest/uml/kernel.py")
    path = next(os.path.join(work, name) for name in os.listdir(work) if name.startswith(source.package) and name.endswith(".deb"))
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise Failure(f"{source.package} {source.version} is not the package that was pinned: SHA-256 expected {source.sha256}, found {found}")
    return path


def mirror():
    """Where apt has Debian from."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Label: Debian"],
                            capture_output=True, text=True, check=False).stdout.split()
    if not listed:
        raise Skip("apt knows no archive of Debian here (`apt-get update`, or another distribution)")
    return listed[0]


def check_config(path):
    """All that was asked for is in the kernel."""
    with open(path, encoding="utf-8") as file:
        found = set(file.read().splitlines())
    with open(CONFIG, encoding="utf-8") as file:
        missing = [line for line in file.read().splitlines() if line.startswith("CONFIG_") and line not in found]
    if missing:
        raise Failure(f"not in this kernel: {', '.join(missing)}")


def tail(path):
    """The end of a log."""
    with open(path, encoding="utf-8", errors="replace") as log:
        return "".join(log.readlines()[-20:])
