"""Sequential and random reads and writes of 4 KiB to files of ext4, on RAID 1, RAID 5 and a tiered volume with hints.

Sequential ones go through the kernel's cache, as those of the paper's tool; random ones past it, sixteen at a time, because
a cache as large as this machine's would put them in order. No log: what is compared is where the blocks lie.

New files are written on dhisfs, too: there a file has its hint before it has blocks, from its folder, and its metadata is
written along with its data, as in the paper.
"""
import contextlib
import os
import time

from bench_common.fio import fio
from bench_common.report import bar, each, medians, spread, table
from bench_common.system import tell

from .postmark import make_dhisfs, mounted_dhisfs
from .stand import in_turns, stands

WANTED = {name: {"sets": name, "flags": ("--no-log",)} for name in ("raid1", "raid5", "tiered")}
# With the log in front, for comparison; no bar speaks of it.
WANTED["tiered, log"] = {"sets": "tiered", "log_mib": 512}
# The file of each, and what is said of it: it decides between RAID 1 and RAID 5.
KINDS = {
    "sequential read": ("sequential", "important,sequential"),
    "sequential write": ("sequential", "important,sequential"),
    "random read": ("random", "important,random"),
    "random write": ("random", "important,random"),
}
# New files on dhisfs, by their size: one, or many of which each is safe before the next.
NEW = {"one new file": 256, "new files of 1 MiB": 1}
ON_DHISFS = {name: {"sets": name.split(",")[0], "flags": ("--no-log",), "over_nbd": True} for name in ("raid5, dhisfs", "tiered, dhisfs")}
LINE = 4096


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []
    with contextlib.ExitStack() as stack:
        served = stands(stack, settings, folder, WANTED)
        for name, one in served.items():
            fill(settings, name, one)
        for number in range(settings.rounds):
            for kind in KINDS:
                for name, one in in_turns(served, number):
                    rounds.append({"name": f"{kind}/{name}", "round": number, **load(settings, kind, one)})
                    tell(f"round {number + 1}: {kind}, {name}: {rounds[-1]['mib_per_second']:.2f} MiB/s")
    with contextlib.ExitStack() as stack:
        on_dhisfs = stands(stack, settings, folder, ON_DHISFS)
        for one in on_dhisfs.values():
            make_dhisfs(one)
        for number in range(settings.rounds):
            for kind, size_mib in NEW.items():
                for name, one in in_turns(on_dhisfs, number):
                    rounds.append({"name": f"{kind}/{name}", "round": number, **new_files(settings, one, size_mib)})
                    tell(f"round {number + 1}: {kind}, {name}: {rounds[-1]['mib_per_second']:.2f} MiB/s")
    found = medians(rounds, "mib_per_second")
    bars, rows = [], []
    for kind in KINDS:
        raid1, raid5, tiered = (found[f"{kind}/{name}"] for name in ("raid1", "raid5", "tiered"))
        bars.append(bar(f"{kind}, hinted by the better of RAID 1 and 5", tiered / max(raid1, raid5), least=0.95))
        if kind == "sequential write":
            bars.append(bar("sequential write, hinted by RAID 5", tiered / raid5, least=1.16))
        rows += [(kind, name, f"{found[f'{kind}/{name}']:.2f}", spread(each(rounds, f"{kind}/{name}", "mib_per_second"), "{:.2f}"),
                  f"{found[f'{kind}/{name}'] / max(raid1, raid5):.2f}") for name in served]
    for kind in NEW:
        raid5, tiered = (found[f"{kind}/{name}"] for name in ON_DHISFS)
        bars.append(bar(f"{kind} on dhisfs, hinted by RAID 5", tiered / raid5, least=1.16))
        rows += [(kind, name, f"{found[f'{kind}/{name}']:.2f}", spread(each(rounds, f"{kind}/{name}", "mib_per_second"), "{:.2f}"),
                  f"{found[f'{kind}/{name}'] / raid5:.2f}") for name in ON_DHISFS]
    return {"rounds": rounds, "bars": bars, "text": table(("", "", "MiB/s: median", "rounds", "by the better"), rows)}


def fill(settings, name, stand):
    """The file system and its files, each where its hint wants it."""
    tell(f"filling {name}")
    stand.make_file_system()
    with stand.mounted() as root:
        for file, hint in dict(KINDS.values()).items():
            stand.make_file(os.path.join(root, file), settings.file_mib, hint if name.startswith("tiered") else None)
        if name.startswith("tiered"):
            stand.hint("metadata", root)
    stand.drain()
    stand.settle()


def load(settings, kind, stand):
    """One kind once, with nothing in memory before."""
    with stand.mounted() as root:
        path = os.path.join(root, KINDS[kind][0])
        before = stand.counters()
        if kind.startswith("sequential"):
            result = sequential(settings, kind, path)
        else:
            job = fio("--name=load", f"--filename={path}", f"--rw={'randread' if kind == 'random read' else 'randwrite'}", "--bs=4k",
                      "--direct=1", "--ioengine=libaio", "--iodepth=16", "--randrepeat=0", "--norandommap", "--time_based",
                      f"--runtime={settings.seconds}", f"--size={settings.file_mib}m")["load"]
            result = job["read" if kind == "random read" else "write"]
            result["mib_per_second"] = result["bytes_per_second"] / (1 << 20)
        after = stand.counters()
    stand.drain()
    keys = ("member_reads", "member_writes", "member_write_bytes", "stripe_jobs", "journal_bytes", "cache_data_disk_flushes")
    return {**result, **{key: after[key] - before[key] for key in keys if key in after}}


def sequential(settings, kind, path):
    """All of the file, 4 KiB a call; a write ends with what is safe."""
    block = os.urandom(LINE)
    begin = time.monotonic()
    with open(path, "rb" if kind == "sequential read" else "r+b", buffering=0) as file:
        for _ in range(settings.file_mib << 20 >> 12):
            if kind == "sequential read":
                file.read(LINE)
            else:
                file.write(block)
        if kind == "sequential write":
            os.fsync(file.fileno())
    wall_s = time.monotonic() - begin
    return {"wall_s": wall_s, "mib_per_second": settings.file_mib / wall_s}


def new_files(settings, stand, size_mib):
    """As much as the file of the others, in files that are not there yet, 4 KiB a call; each is safe before the next begins."""
    block = os.urandom(LINE)
    size_mib = min(size_mib, settings.file_mib)
    with mounted_dhisfs(stand, sync=False) as root:
        folder = os.path.join(root, "new")
        os.mkdir(folder)
        if stand.name.startswith("tiered"):
            os.setxattr(folder, "user.dcd.hint", b"important,sequential")
        before = stand.counters()
        begin = time.monotonic()
        for number in range(settings.file_mib // size_mib):
            with open(os.path.join(folder, str(number)), "xb", buffering=0) as file:
                for _ in range(size_mib << 20 >> 12):
                    file.write(block)
                os.fsync(file.fileno())
        wall_s = time.monotonic() - begin
        after = stand.counters()
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        os.rmdir(folder)
    keys = ("member_reads", "member_writes", "member_write_bytes", "stripe_jobs")
    return {"wall_s": wall_s, "mib_per_second": settings.file_mib / wall_s, **{key: after[key] - before[key] for key in keys}}
