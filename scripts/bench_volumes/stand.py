"""A volume that is served: members that are files in memory behind disk models, and a cache-disk as fast as memory."""
import contextlib
import json
import os
import subprocess
import time

from bench_common.daemon import Daemon
from bench_common.system import UNTIL_OUR_DEATH, Problem, mounted, run, tell

# What the members are cut into. Nothing is known of data without hints, which then goes to RAID 0, or to the only set there is.
SETS = {
    "raid0": [{"level": 0}],
    "raid1": [{"level": 1, "copies": 2}],
    "raid5": [{"level": 5}],
    "tiered": [{"level": 1, "copies": 2, "share": "30%"}, {"level": 5, "share": "40%"}, {"level": 0}],
}
SETTLE_TIMEOUT_S = 600
# md's default for a RAID 5 of six: two stripes.
READ_AHEAD_KB = 640
JOURNAL_MIB = 64
# As few tables of inodes as do.
FILES_MAX = 20_000


def toml(sets, **keys):
    """The file for `dcd create --volume`."""
    lines = [f"{name.replace('_', '-')} = {json.dumps(value)}" for name, value in keys.items()]
    for one in SETS[sets]:
        lines += ["[[set]]", *(f"{name} = {json.dumps(value)}" for name, value in one.items())]
    return "\n".join(lines) + "\n"


class Stand:
    """A volume with disks of its own; a context that serves it.

    `flags` are those of `dcd serve`; `keys` those of the volume's file; `nvram_mib` the size of a memory in front of the log.
    """

    def __init__(self, settings, folder, name, sets, flags=(), over_nbd=False, log_mib=512, keys=None, nvram_mib=0):
        self.settings, self.name, keys = settings, name, keys or {}
        # PostMark takes no path with a space.
        self.folder = os.path.join(folder, name.replace(", ", "-").replace(" ", "-"))
        self.root = os.path.join(self.folder, "root")
        self.daemon = Daemon(settings.dcd, name, self.folder, over_nbd)
        members = [os.path.join(self.folder, f"member{number}.img") for number in range(settings.members)]
        for member in members:
            with open(member, "wb") as file:
                file.truncate(settings.member_mib << 20)
        description = os.path.join(self.folder, "volume.toml")
        with open(description, "w") as file:
            # Moving what got its hint late is preparation here, and not measured.
            file.write(toml(sets, **{"migrate_max": "1G", "journal": f"{JOURNAL_MIB}M", **keys}))
        cache = os.path.join(self.folder, "cache.img")
        disks = [word for member in members for word in ("--data-disk", member)]
        run(settings.dcd, "create", "--cache-disk", cache, "--cache-size", f"{log_mib + self.tables_mib(settings, keys)}M", "--no-fill", "--volume", description,
            *disks)
        if nvram_mib:
            nvram = os.path.join(self.folder, "nvram.img")
            with open(nvram, "wb") as file:
                file.truncate(nvram_mib << 20)
            flags = (*flags, "--nvram", nvram, "--nvram-survives", "power")
        model = [word for member in members for word in ("--data-disk", f"model:{settings.disk_model}:{member}")]
        self.words = ["serve", "--cache-disk", cache, *model, "--memory-directory", folder, "--quiet", *flags]

    @staticmethod
    def tables_mib(settings, keys):
        """What the volume takes of the cache-disk beside the log: four bytes for each line and eight for each extent, twice."""
        lines = settings.members * settings.member_mib * 256
        extents = lines // (int(keys.get("extent", "64k")[:-1]) // 4)
        return JOURNAL_MIB + (2 * (4 * lines + 8 * extents) >> 20) * 11 // 10 + 24

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *reason):
        self.stop()

    def start(self):
        """Serves it; a loop device reads ahead as md would."""
        self.daemon.start(self.words)
        if not self.daemon.over_nbd:
            self.daemon.set_queue(read_ahead_kb=READ_AHEAD_KB, scheduler="mq-deadline")

    def stop(self):
        """Stops it in order."""
        self.daemon.stop()

    def ask(self, *words):
        """A command that speaks to the daemon; what it prints as JSON."""
        return json.loads(run(self.settings.dcd, *words, "--control", self.daemon.control, "--json"))

    def counters(self):
        """The cache's and the volume's, in one dictionary."""
        status = self.ask("status")
        cache = {f"cache_{name}": value for name, value in status["counters"].items()}
        return {**cache, **status["volume"]["counters"]}

    def drain(self):
        """All that is in the log goes to the members."""
        run(self.settings.dcd, "drain", "--control", self.daemon.control)

    def settle(self):
        """Waits until nothing is moved from set to set any more."""
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while self.ask("volume", "status")["migrations_waiting"] > 0:
            if time.monotonic() > end:
                raise Problem(f"{self.name}: still moving after {SETTLE_TIMEOUT_S} s")
            time.sleep(0.2)

    def make_file(self, path, size_mib, hint):
        """A file full of data. It has its blocks first, then its hint if there is one, so that nothing has to be moved."""
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_mib << 20)
            os.fsync(file.fileno())
        if hint:
            self.hint("set", hint, path)
        block = os.urandom(1 << 20)
        with open(path, "r+b") as file:
            for _ in range(size_mib):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    def hint(self, *words):
        """`dcd hint ...`."""
        run(self.settings.dcd, "hint", *words, "--control", self.daemon.control)

    def make_file_system(self):
        """ext4 without a journal, which is ext2 with extents: a file can have its blocks, and its hint, before it has data."""
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-N", FILES_MAX, "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard",
            self.daemon.device)

    @contextlib.contextmanager
    def mounted(self, *options):
        """Its file system, cold: the device forgets what it had."""
        run("blockdev", "--flushbufs", self.daemon.device)
        with mounted(self.daemon.device, self.root, "-o", ",".join(("noatime", *options))) as root:
            yield root

    @contextlib.contextmanager
    def watched(self, root, rules):
        """`dcd hint watch` for as long as the block runs."""
        command = [*UNTIL_OUR_DEATH, self.settings.dcd, "hint", "watch", root, "--rules", rules, "--sync", "--control",
                   self.daemon.control]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        try:
            if not process.stdout.readline().startswith("ready"):
                raise Problem(f"dcd hint watch: {process.stderr.read().strip()}")
            yield
        finally:
            process.terminate()
            process.communicate(timeout=60)


def in_turns(served, number):
    """Names and stands in the order of this round: another is first each time."""
    names = list(served)
    turn = number % len(names)
    return [(name, served[name]) for name in names[turn:] + names[:turn]]


def stands(stack, settings, folder, wanted):
    """Enters stands by name: a dictionary of them."""
    tell(f"making {', '.join(wanted)}")
    return {name: stack.enter_context(Stand(settings, folder, name, **how)) for name, how in wanted.items()}
