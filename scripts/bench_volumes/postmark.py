"""PostMark on a synchronous mount: metadata goes through the log, or a memory in front of it, and all else does not, against no
log at all.

The paper compares ext2 over DHIS without a cache with its own file system over DHIS with one. Here each file system is compared
with itself: ext4 without a journal with `dcd hint`, and dhisfs.
"""
import contextlib
import os
import subprocess
import time

from bench_common.report import bar, each, medians, spread, table
from bench_common.system import UNTIL_OUR_DEATH, Problem, run, tell, unmount

from .stand import in_turns, stands

KEYS = {"extent": "4k", "selective_caching": True}
PLAIN, CACHED = ("--no-log",), ("--bypass-threshold", "4k")
# What goes past the log in the second of each is what is no metadata: every write is of 4 KiB or more.
WANTED = {
    "ext4, no log": {"sets": "tiered", "keys": KEYS, "flags": PLAIN},
    "ext4, metadata cached": {"sets": "tiered", "keys": KEYS, "flags": CACHED},
    "ext4, metadata in memory": {"sets": "tiered", "keys": KEYS, "flags": CACHED, "nvram_mib": 8},
    "dhisfs, no log": {"sets": "tiered", "keys": KEYS, "flags": PLAIN, "over_nbd": True},
    "dhisfs, metadata cached": {"sets": "tiered", "keys": KEYS, "flags": CACHED, "over_nbd": True},
    "dhisfs, metadata in memory": {"sets": "tiered", "keys": KEYS, "flags": CACHED, "nvram_mib": 8, "over_nbd": True},
    "ext4, all cached": {"sets": "tiered", "keys": {"extent": "4k"}},
}


def postmark(folder, files, transactions, low, high, before=None):
    """Runs it in an empty folder: its wall time, and what it says. `before` is called in its process."""
    commands = f"""set location {folder}
set number {files}
set transactions {transactions}
set size {low} {high}
set buffering false
set seed 42
run
quit
"""
    begin = time.monotonic()
    output = subprocess.run(["postmark"], input=commands, capture_output=True, text=True, preexec_fn=before).stdout
    wall_s = time.monotonic() - begin
    # What it cannot do it leaves out, and counts.
    if "deleted" not in output or "\t0 deleted" in output:
        raise Problem(f"postmark: {output[-500:]}")
    return {"wall_s": wall_s, "output": output}


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []
    with contextlib.ExitStack() as stack:
        served = stands(stack, settings, folder, WANTED)
        for name, one in served.items():
            one.make_file_system() if name.startswith("ext4") else make_dhisfs(one)
        for number in range(settings.rounds):
            for name, one in in_turns(served, number):
                rounds.append({"name": name, "round": number, **load(settings, name, one)})
                tell(f"round {number + 1}: {name}: {rounds[-1]['wall_s']:.1f} s")
    found = medians(rounds, "wall_s")
    bars = [bar(f"{kind}, metadata {where}: without by with, 1.37 is 37 % faster",
                found[f"{kind}, no log"] / found[f"{kind}, metadata {where}"], least=1.37)
            for kind in ("ext4", "dhisfs") for where in ("cached", "in memory")]
    rows = [(name, f"{found[name]:.1f}", spread(each(rounds, name, "wall_s"), "{:.1f}"),
             f"{medians(rounds, 'cache_writes')[name]:.0f}, {medians(rounds, 'cache_bypasses')[name]:.0f}",
             f"{medians(rounds, 'member_writes')[name]:.0f}") for name in served]
    return {"rounds": rounds, "bars": bars,
            "text": table(("", "s: median", "rounds", "writes, those past the log", "writes of members"), rows)}


def load(settings, name, stand):
    """PostMark once, in an empty folder of a file system that was mounted for it."""
    with contextlib.ExitStack() as stack:
        if name.startswith("ext4"):
            root = stack.enter_context(stand.mounted("sync"))
            stand.hint("metadata", root)
            stand.settle()
        else:
            root = stack.enter_context(mounted_dhisfs(stand))
        where = os.path.join(root, "postmark")
        os.mkdir(where)
        before = stand.counters()
        done = postmark(where, settings.postmark_files, settings.postmark_transactions, 10_000, 20_000)
        after = stand.counters()
        os.rmdir(where)
    stand.drain()
    keys = ("cache_writes", "cache_bypasses", "cache_flushes", "cache_fuas", "cache_data_disk_flushes", "member_reads",
            "member_writes", "stripe_jobs", "journal_records")
    return {**done, **{key: after[key] - before[key] for key in keys if key in after}}


def make_dhisfs(stand):
    run(stand.settings.dcd, "dhisfs", "mkfs", "--control", stand.daemon.control, "--nbd", stand.daemon.nbd)


@contextlib.contextmanager
def mounted_dhisfs(stand, sync=True):
    """A dhisfs for as long as the block runs; with `sync` every change is durable before its program goes on."""
    os.makedirs(stand.root, exist_ok=True)
    command = [*UNTIL_OUR_DEATH, stand.settings.dcd, "dhisfs", "mount", "--control", stand.daemon.control, "--nbd",
               stand.daemon.nbd, *(["--sync"] if sync else []), stand.root]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        if not process.stdout.readline().startswith("mounted"):
            raise Problem(f"dcd dhisfs mount: {process.stderr.read().strip()}")
        yield stand.root
    finally:
        if process.poll() is None:
            unmount(stand.root)
        process.communicate(timeout=120)
