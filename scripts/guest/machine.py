"""The guest as the host sees it: QEMU, its disks, and a directory shared with it. Another kind of machine is in `uml`.

The host's file system is the guest's root, read only below a layer in memory, so that everything installed here is at hand
there. Without KVM that boots a stock kernel the processor is emulated: times measured inside say little about real ones.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from .problem import Skip

HERE = os.path.dirname(os.path.abspath(__file__))
# cache-disk and data-disks, in the order of /dev/vda, /dev/vdb, ...
DISKS_MIB = (192, 512, 320, 320)
MEMORY_MIB = 2048
# Persistent memory: what is stored there stays, as on a disk.
PMEM_MIB = 64


class Machine:
    """One boot of the guest, from power-on to power-off."""

    def __init__(self, kernel, work, task, accel="tcg", host=None, drives=None):
        """`host`: a daemon on the host, whose volume is a disk too. `drives`: other drives than the files of `make_disks`, by
        their number, in the words of QEMU."""
        self.work, self.host = work, host
        self.share = os.path.join(work, "share")
        self.console_path = os.path.join(work, "console.log")
        os.makedirs(self.share, exist_ok=True)
        for name in os.listdir(self.share):
            if name != "kept":
                remove(os.path.join(self.share, name))
        os.makedirs(os.path.join(self.share, "kept"), exist_ok=True)
        with open(os.path.join(self.share, "task.json"), "w", encoding="utf-8") as out:
            json.dump({**task, **self.facts(kernel)}, out)
        self.results_read, self.is_cut = 0, False
        self.console = open(self.console_path, "ab")
        # It dies with us, whatever we die of.
        words = [*(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []), *self.words(kernel, accel, drives)]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.console, stderr=self.console, start_new_session=True,
                                        env={**os.environ, **self.environment()})

    def facts(self, kernel):
        """What the programs in the guest are told of it."""
        return {"modules": kernel.modules, "busybox": kernel.busybox}

    def words(self, kernel, accel, drives):
        """What is started."""
        return [*command(kernel, self.work, accel, drives), *(self.host.qemu_words(kernel) if self.host else [])]

    def environment(self):
        """Of what is started, besides ours."""
        return {}

    def results(self):
        """What cases have told since the last call."""
        path = os.path.join(self.share, "results.jsonl")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as lines:
            whole = [line for line in lines if line.endswith("\n")]
        new = whole[self.results_read:]
        self.results_read = len(whole)
        return [json.loads(line) for line in new]

    def is_running(self):
        """Whether it is switched on."""
        if self.is_cut:
            return False
        # Without reaping it: until `cut`, nobody else can get its number, nor that of its group.
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def let_host_answer(self):
        """Does what the guest asks of the daemon on the host."""
        if self.host:
            self.host.answer(self.share)

    def wants_cut(self):
        """A case waits for the power to be cut."""
        return os.path.exists(os.path.join(self.share, "cut"))

    def cut(self):
        """Takes the power away, once: nothing in the guest learns of it."""
        if self.is_cut:
            return
        self.is_cut = True
        # All that it has started, and nothing less than that: a guest that hangs takes no other signal.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.console.close()

    def wait_off(self, patience_s):
        """Waits for it to switch itself off; whether it did."""
        try:
            return wait(lambda: not self.is_running(), patience_s)
        finally:
            self.cut()

    def tail(self, lines=15):
        """The end of its console."""
        with open(self.console_path, "rb") as console:
            text = console.read()[-8000:].decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def make_disks(work, sizes_mib=DISKS_MIB):
    """New, empty disks; and nothing kept of what was on the old ones."""
    remove(os.path.join(work, "share", "kept"))
    sizes = {f"disk{number}.img": size_mib for number, size_mib in enumerate(sizes_mib)}
    for name, size_mib in {**sizes, "pmem.img": PMEM_MIB}.items():
        path = os.path.join(work, name)
        remove(path)
        with open(path, "wb") as disk:
            disk.truncate(size_mib << 20)


def command(kernel, work, accel, drives=None):
    """The words that start QEMU."""
    qemu = shutil.which("qemu-system-x86_64")
    if not qemu:
        raise Skip("no qemu-system-x86_64 here (Debian: qemu-system-x86)")
    # With cx16 the emulation of QEMU 7.2 panics this kernel. Several threads: else one stuck core holds up all.
    processor = ["-accel", "tcg,thread=multi", "-cpu", "max,-cx16"] if accel == "tcg" else ["-accel", accel, "-cpu", "host"]
    python = next((path for path in ("/usr/bin/python3", sys.executable) if os.path.exists(path)), None)
    append = (f"console=ttyS0 quiet panic=-1 guest_python={python} guest_inside={os.path.join(HERE, 'inside.py')} "
              f"guest_busybox={kernel.busybox}")
    words = [qemu, "-machine", "pc,nvdimm=on", *processor, "-smp", "2", "-m", f"{MEMORY_MIB},slots=1,maxmem={2 * MEMORY_MIB}M",
             "-display", "none", "-monitor", "none", "-nodefaults", "-serial", "stdio", "-no-reboot",
             "-kernel", kernel.image, "-initrd", kernel.initramfs, "-append", append,
             "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
             "-virtfs", f"local,path={os.path.join(work, 'share')},mount_tag=share,security_model=none"]
    pmem = os.path.join(work, "pmem.img")
    words += ["-object", f"memory-backend-file,id=pmem,share=on,mem-path={pmem},size={PMEM_MIB}M", "-device", "nvdimm,memdev=pmem"]
    for number in range(len(DISKS_MIB)):
        # A power cut kills QEMU, not the host, so what it wrote is there; flushing on the host would only cost time.
        file = f"file={os.path.join(work, f'disk{number}.img')},format=raw,cache=unsafe,discard=unmap"
        words += ["-drive", f"{(drives or {}).get(number, file)},if=none,id=d{number}",
                  "-device", f"virtio-blk-pci,drive=d{number},serial=guest-disk-{number}"]
    return words


def remove(path):
    """Removes a file or a directory, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def wait(condition, patience_s, pause_s=0.1):
    """Waits until `condition()` is true; whether it came to be."""
    until = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(pause_s)
    return True
