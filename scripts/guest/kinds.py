"""The kinds of guests: where their kernels come from, how they are booted, and what is not to be tried in them."""
import os

from . import kernel, machine
from .uml import kernel as uml_kernel
from .uml import machine as uml_machine


class Qemu:
    """QEMU with a kernel of Debian."""

    words = "QEMU, emulated"
    # Nothing is measured more often than was asked for.
    most_rounds = None

    def prepare(self, settings):
        """The kernel."""
        return kernel.prepare(settings.cache, settings.kernel, settings.cached)

    def directory(self):
        """Where its disks may be, or None: anywhere."""

    def boot(self, guest_kernel, work, task, settings, host=None, drives=None):
        """Switches it on."""
        return machine.Machine(guest_kernel, work, task, settings.accel, host, drives)

    def cannot(self, case):  # pylint: disable=unused-argument
        """Why a case is not for this guest, or None."""


class Uml:
    """User Mode Linux with a kernel built from Debian's source."""

    words = "User Mode Linux"
    most_rounds = 15

    def prepare(self, settings):
        """The kernel."""
        return uml_kernel.prepare(settings.cache, settings.cached)

    def directory(self):
        """Where its disks may be."""
        return uml_machine.disk_directory()

    def boot(self, guest_kernel, work, task, settings, host=None, drives=None):  # pylint: disable=unused-argument
        """Switches it on."""
        return uml_machine.start(guest_kernel, work, task, getattr(settings, "clock", "kernel") == "tsc")

    def cannot(self, case):
        """Why a case is not for this guest, or None."""
        if case.cuts:
            return "power cuts are for the guest of QEMU"
        if case.vhost_user:
            return "disks of vhost-user are for the guest of QEMU"
        return None


KINDS = {"qemu": Qemu, "uml": Uml}


def add_arguments(add):
    """What both programs take that boot guests."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    asked = os.environ.get("GUEST_KIND") or "qemu"
    add("--kind", choices=KINDS, default=asked, help="qemu: a whole machine, emulated; uml: User Mode Linux, built from source once, nearly as fast as "
        "this machine, without power cuts, modules and a second processor (default: %(default)s)")
    add("--kernel", metavar="VERSION", help="of qemu, like 6.12.117+deb12 (default: the newest in the cache, else that apt knows)")
    add("--cache", default=os.path.join(cache, "dcd-guest"), help="kernels are kept here (default: %(default)s)")
    add("--cached", action="store_true", help="fetch and build nothing: skip all if no kernel is in the cache")
    add("--accel", choices=("tcg", "kvm"), default="tcg", help="of qemu; tcg: emulated (default: %(default)s)")


def kind_of(parser, settings):
    """The kind that was asked for; a default that is none of them is refused, too."""
    if settings.kind not in KINDS:
        parser.error(f"GUEST_KIND is {settings.kind}, expected {' or '.join(KINDS)}")
    if settings.kind == "uml" and settings.kernel:
        parser.error("--kernel is for --kind qemu: the other's is pinned (scripts/guest/uml/kernel.py)")
    return KINDS[settings.kind]()
