"""What cases need in the guest: the daemon on its device, programs, and comparisons."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time

from . import host
from .problem import Failure, Skip

# What the disks of this guest are called is known to what has booted it.
CACHE_DISK, DATA_DISK, *MORE_DISKS = os.environ.get("GUEST_DISKS", "/dev/vda,/dev/vdb,/dev/vdc,/dev/vdd").split(",")
CONTROL = "/run/dcd.ctl"
FAULTS = {"cache": "/run/cache.faults", "data": "/run/data.faults"}
# Emulation is slow, and the machine below may be busy.
PATIENCE_S = 120


class Guest:
    """One case's view of the guest."""

    def __init__(self, task, share, case):
        self.dcd, self.busybox, self.settings, self.share = task["dcd"], task["busybox"], task["settings"], share
        self.case, self.daemon, self.mounts, self.number = case, None, [], None
        self.asked = 0
        self.kept = os.path.join(share, "kept")
        self.built_in = task.get("built_in")
        self.log_path = f"/run/{case}.log"
        self.disks, self.options = (CACHE_DISK, (DATA_DISK,)), ()

    def host(self, *words):
        """Has the daemon on the host do something: serve, kill, ... (`HostDaemon`). What it says."""
        answer = host.ask(self.share, self.asked, words, PATIENCE_S)
        self.asked += 1
        if "failed" in answer:
            raise Failure(f"{words[0]} on the host: {answer['failed']}")
        return answer["done"]

    # Programs

    def module(self, name):
        """Loads a module of the kernel, if it is not built in."""
        if self.built_in is not None:
            if name.replace("-", "_") not in self.built_in:
                raise Skip(f"no {name} in this kernel")
            return
        done = subprocess.run([self.busybox, "modprobe", name], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Skip(f"no module {name} in this kernel: {done.stderr.strip()}")

    def need(self, program, package):
        """The path of a program of the host."""
        path = shutil.which(program)
        if not path:
            raise Skip(f"no {program} here (Debian: {package})")
        return path

    def run(self, *words, timeout_s=PATIENCE_S, may_fail=False, **more):
        """Runs a program to its end and returns it."""
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False, **more)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"no end of `{' '.join(words)}` after {timeout_s} s") from late
        if done.returncode != 0 and not may_fail:
            raise Failure(f"`{' '.join(words)}` ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def check(self, is_right, message):
        """Fails the case if something is not as it must be."""
        if not is_right:
            raise Failure(message)

    def check_tool(self, path, reason):
        """Skips the case if a program is not there."""
        if not path or not os.path.exists(path):
            raise Skip(reason)

    # The daemon

    def create(self, *options, data_disks=(DATA_DISK,), cache_disk=CACHE_DISK):
        """A new cache, and a data-disk of zeroes."""
        for disk in (cache_disk, *data_disks):
            self.run(self.busybox, "blkdiscard", disk, may_fail=True)
        words = [self.dcd, "create", "--cache-disk", cache_disk, "--force", *options]
        for disk in data_disks:
            words += ["--data-disk", disk]
        self.run(*words)
        self.disks = (cache_disk, data_disks)

    def serve(self, *options, device="--ublk", control=CONTROL, faults=False):
        """Starts the daemon and returns the path of its block device. With `faults` both disks fail as FAULTS says."""
        self.begin(*options, device=device, control=control, faults=faults)
        line = self.daemon.stdout.readline()
        if not line.startswith("ready "):
            self.daemon.wait()
            raise Failure(f"the daemon did not start (exit {self.daemon.returncode}):\n{self.daemon_messages()}")
        words = dict(word.split("=", 1) for word in line.split()[1:])
        self.options = options
        path = words.get("ublk")
        if path:
            self.number = int(path.rsplit("b", 1)[1])
        return path

    def begin(self, *options, device="--ublk", control=CONTROL, faults=False):
        """Starts the daemon, and does not wait until it serves."""
        self.module("ublk_drv")
        cache_disk, data_disks = self.disks
        if faults:
            self.faults()
            cache_disk = f"faulty:{cache_disk},control={FAULTS['cache']}"
            data_disks = [f"faulty:{disk},control={FAULTS['data']}" for disk in data_disks]
        words = [self.dcd, "serve", "--cache-disk", cache_disk, *device.split(), "--control", control, *options]
        for disk in data_disks:
            words += ["--data-disk", disk]
        log = open(self.log_path, "a", encoding="utf-8")
        self.daemon = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()

    def faults(self, cache="", data=""):
        """From now on the disks fail so; rules as in docs/operations.md. They are looked at every 50 ms."""
        for name, rules in (("cache", cache), ("data", data)):
            with open(FAULTS[name], "w", encoding="utf-8") as out:
                out.write(rules + "\n")
        time.sleep(0.5)

    def again(self):
        """Starts it once more, on the device that it had."""
        return self.serve(*self.options, device=f"--ublk {self.number}")

    def begin_again(self):
        """Begins to start it once more."""
        self.begin(*self.options, device=f"--ublk {self.number}")

    def wait_for_server_end(self):
        """Waits until the daemon has opened its end of the device; whether it lives then."""
        path, directory = f"/dev/ublkc{self.number}", f"/proc/{self.daemon.pid}/fd"
        while self.daemon.poll() is None:
            # One may be closed while we look.
            with contextlib.suppress(FileNotFoundError):
                if any(os.readlink(f"{directory}/{name}") == path for name in os.listdir(directory)):
                    return True
        return False

    def kill(self):
        """Kills the daemon where it stands."""
        self.daemon.kill()
        self.daemon.wait()

    def stop(self, timeout_s=PATIENCE_S, by=signal.SIGTERM):
        """Ends the daemon in order."""
        self.daemon.send_signal(by)
        try:
            code = self.daemon.wait(timeout_s)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"the daemon has not ended after {timeout_s} s") from late
        self.check(code == 0, f"the daemon ended with {code}:\n{self.daemon_messages()}")
        self.daemon = None

    def status(self):
        """What the daemon tells about itself."""
        return json.loads(self.run(self.dcd, "status", "--json", "--control", CONTROL).stdout)

    def ask(self, question):
        """An answer of the control socket."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(CONTROL)
            control.sendall(json.dumps(question).encode() + b"\n")
            with control.makefile(encoding="utf-8") as answers:
                return json.loads(answers.readline())

    def daemon_messages(self):
        """The end of what the daemons of this case have said."""
        with contextlib.suppress(OSError), open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()[-3000:]
        return ""

    # File systems

    def mount(self, device, directory, *options):
        """Mounts, until the end of the case or `umount`."""
        os.makedirs(directory, exist_ok=True)
        self.run("mount", *options, device, directory)
        self.mounts.append(directory)

    def umount(self, directory):
        """Unmounts."""
        self.run("umount", directory)
        self.mounts.remove(directory)

    def clear(self):
        """Takes down what the case left."""
        for directory in reversed(self.mounts):
            subprocess.run(["umount", "-l", directory], capture_output=True, check=False, timeout=PATIENCE_S)
        self.mounts = []
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.wait(20)
            if self.daemon.poll() is None:
                self.kill()
        self.remove_devices()
        # What was mapped upon what was mapped goes first.
        for _ in range(3):
            subprocess.run(["dmsetup", "remove_all", "--noudevsync"], capture_output=True, check=False, timeout=PATIENCE_S)

    def remove_devices(self):
        """Removes ublk devices that nobody serves."""
        for name in [name for name in os.listdir("/dev") if name.startswith("ublkb")]:
            subprocess.run([self.dcd, "ublk", "remove", name[len("ublkb"):]], capture_output=True, check=False, timeout=PATIENCE_S)

    def say(self, text):
        """A line for whoever runs the cases."""
        with open(os.path.join(self.share, "results.jsonl"), "a", encoding="utf-8") as out:
            out.write(json.dumps({"said": f"{self.case}: {text}"}) + "\n")

    # Power

    def cut(self):
        """Has the host take the power away. Never returns."""
        with open(os.path.join(self.share, "cut"), "w", encoding="utf-8"):
            pass
        while True:
            time.sleep(1)

    def note(self, name, value):
        """Keeps a value for after a power cut."""
        path = os.path.join(self.kept, f"{self.case}-{name}")
        with open(path + ".new", "w", encoding="utf-8") as out:
            json.dump(value, out)
            out.flush()
            os.fsync(out.fileno())
        os.rename(path + ".new", path)

    def noted(self, name):
        """What was kept, or None."""
        path = os.path.join(self.kept, f"{self.case}-{name}")
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)
