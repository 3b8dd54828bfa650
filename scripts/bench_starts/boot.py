"""Boots of a Debian guest from the modelled disk over NBD.

QEMU starts the kernel itself, so the record begins with the root file system, as the paper's began after the IDE driver.
Without KVM the processor is emulated and some ten times slower than the disk's times suppose: wall time says nothing, and
pauses between reads are longer, so that the drive's read-ahead and dcd have more time than on a real machine.
"""
import contextlib
import os
import signal
import subprocess
import threading
import time

from bench_common.system import UNTIL_OUR_DEATH, Problem, require, tell

from . import image
from .measure import figures, session
from .requests import Requests, likeness

BOOT_TIMEOUT_S = 600
POWER_OFF_TIMEOUT_S = 120
MEMORY_MIB = 1024


def measure(settings):
    """All boots: a list of one dictionary each, and the variants that were skipped."""
    require("qemu-system-x86_64")
    path = image.build("boot", settings.work, settings.suite, settings.mirror)
    settings.over_nbd = True
    boots, last = [], {}
    with session(settings, path) as (served, skipped):
        for one in served:
            boots += teach(one)
        for number in range(settings.rounds):
            turn = number % len(served)
            for one in served[turn:] + served[:turn]:
                wall_s, requests = boot(one)
                name = one.variant.name
                boots.append(figures("boot", name, number, wall_s, requests))
                if name in last:
                    boots[-1]["likeness"] = likeness(last[name], requests)
                last[name] = requests
                tell(f"round {number + 1}: boot, {name}: {wall_s:.0f} s, disk {boots[-1]['disk_ms'] / 1e3:.2f} s, "
                     f"{boots[-1]['reads']} reads")
    return boots, skipped


def teach(served):
    """Boots before the measured ones; returns those that were recorded."""
    variant, recorded = served.variant, []
    if variant.record:
        tell(f"{variant.name}: recording a boot")
        wall_s, requests = boot(served, served.sequence_recorder("boot"))
        recorded.append(figures("boot", f"{variant.name}, while recording", 0, wall_s, requests))
    for number in range(variant.learn):
        tell(f"{variant.name}: boot {number + 1}, not measured")
        boot(served)
    time.sleep(variant.settle_s)
    return recorded


def boot(served, recorder=()):
    """Boots to the marker: wall seconds and requests up to it. The recorder, if any, sees the way down, too."""
    settings = served.settings
    if settings.restart:
        served.stop()
        served.start()
    with served.recording() as recording:
        begin = time.monotonic()
        guest = Guest([*recorder, *command(settings, served.nbd)], os.path.join(settings.work, "boot-console.log"))
        try:
            found = guest.marker.wait(BOOT_TIMEOUT_S)
        except BaseException:
            guest.kill()
            raise
        wall_s = time.monotonic() - begin
    guest.finish()
    if not found or not guest.has_booted:
        raise Problem(f"the guest did not boot ({served.variant.name}): {guest.tail()}")
    return wall_s, Requests(recording.path)


def command(settings, socket):
    """The guest: one virtio disk, a serial console, nothing else that is slow to emulate."""
    # TCG has no cmpxchg16b that Debian's QEMU and every kernel agree on.
    processor = {"tcg": ("tcg,thread=multi", "max,-cx16"), "kvm": ("kvm", "host")}[settings.accel]
    return [*UNTIL_OUR_DEATH, "qemu-system-x86_64", "-accel", processor[0], "-cpu", processor[1], "-smp", "2", "-m", str(MEMORY_MIB),
            "-display", "none", "-monitor", "none", "-nodefaults", "-serial", "stdio", "-no-reboot",
            "-kernel", os.path.join(settings.work, "vmlinuz"), "-initrd", os.path.join(settings.work, "initrd.img"),
            "-append", "root=/dev/vda ro console=ttyS0 quiet panic=-1 fsck.mode=skip",
            "-drive", f"file=nbd+unix:///?socket={socket},format=raw,if=virtio,cache=none"]


class Guest:
    """QEMU, with a thread that reads the serial console until the marker, and on to the end."""

    def __init__(self, words, log):
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        # Set at the marker, and at the end if there is none.
        self.marker = threading.Event()
        self.has_booted = False
        self.lines = []
        self.log = open(log, "wb")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.log.write(line)
            self.log.flush()
            self.lines = [*self.lines[-20:], line.decode(errors="replace").strip()]
            if image.BOOT_MARKER.encode() in line:
                self.has_booted = True
                self.marker.set()
        self.log.close()
        self.marker.set()

    def finish(self):
        """Lets it power off, which leaves a clean file system for the next boot."""
        try:
            self.process.wait(POWER_OFF_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            tell("the guest does not power off")
            self.kill()
        self.reader.join(5)

    def kill(self):
        # With a recorder in front, QEMU is its child: all of the session.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tail(self):
        return " / ".join(self.lines[-8:])
