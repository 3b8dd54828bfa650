"""A data base's load: ten data files with readers and asynchronous writers, and a log that is written and waited for.

As FileBench's in the paper: random reads and writes of the data files, past the kernel's cache; ten writers; a log writer. Data
files are important, random and read-most, the log is important and sequential: both on RAID 5.
"""
import contextlib
import os

from bench_common.fio import fio
from bench_common.report import bar, each, medians, spread, table
from bench_common.system import tell

from .stand import in_turns, stands

DATA_FILES = 10
WRITERS = 10
WANTED = {name: {"sets": name, "flags": ("--no-log",)} for name in ("raid1", "raid5", "tiered")}
WANTED["tiered, log"] = {"sets": "tiered", "log_mib": 512}


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []
    with contextlib.ExitStack() as stack:
        served = stands(stack, settings, folder, WANTED)
        for name, one in served.items():
            fill(settings, name, one)
        for readers in settings.oltp_readers:
            for number in range(settings.rounds):
                for name, one in in_turns(served, number):
                    rounds.append({"name": f"{name}/{readers}", "round": number, **load(settings, one, readers)})
                    tell(f"round {number + 1}: {readers} readers, {name}: {rounds[-1]['iops']:.0f}/s")
    throughput, latency = medians(rounds, "iops"), medians(rounds, "mean_ms")
    bars, rows = [], []
    for readers in settings.oltp_readers:
        plain = f"raid5/{readers}"
        for name, most in (("tiered", 1.05), ("tiered, log", 1.0)):
            bars.append(bar(f"{readers} readers: {name}, throughput by RAID 5", throughput[f"{name}/{readers}"] / throughput[plain],
                            least=1 / most if most == 1.0 else 0.95))
            bars.append(bar(f"{readers} readers: {name}, latency by RAID 5", latency[f"{name}/{readers}"] / latency[plain], most=most))
        rows += [(readers, name, f"{throughput[f'{name}/{readers}']:.0f}", spread(each(rounds, f"{name}/{readers}", "iops")),
                  f"{latency[f'{name}/{readers}']:.1f}",
                  ", ".join(f"{medians(rounds, key)[f'{name}/{readers}']:.0f}" for key in ("read_iops", "write_iops", "log_iops")))
                 for name in served]
    head = ("readers", "", "operations/s: median", "rounds", "mean latency, ms", "reads, writes, writes of the log per second")
    return {"rounds": rounds, "bars": bars, "text": table(head, rows)}


def paths(root):
    return [os.path.join(root, f"data{number}") for number in range(DATA_FILES)], os.path.join(root, "log")


def fill(settings, name, stand):
    """The file system and its files, each where its hint wants it."""
    tell(f"filling {name}")
    stand.make_file_system()
    with stand.mounted() as root:
        data, log = paths(root)
        hints = dict.fromkeys(data, "important,random,read-most") | {log: "important,sequential"}
        for path, hint in hints.items():
            stand.make_file(path, settings.oltp_file_mib, hint if name.startswith("tiered") else None)
        if name.startswith("tiered"):
            stand.hint("metadata", root)
    stand.drain()
    stand.settle()


def load(settings, stand, readers):
    """Readers, writers and the log together."""
    with stand.mounted() as root:
        data, log = paths(root)
        common = (f"--filename={':'.join(data)}", "--direct=1", "--bs=4k", "--time_based", f"--runtime={settings.seconds}",
                  f"--size={settings.oltp_file_mib}m", "--randrepeat=0", "--norandommap", "--file_service_type=random")
        jobs = fio("--name=read", "--ioengine=psync", "--rw=randread", f"--numjobs={readers}", "--thread", *common,
                   # Each writer has one write under way and pauses, or there would be nothing but writes.
                   "--name=write", "--ioengine=psync", "--rw=randwrite", f"--numjobs={WRITERS}", "--thread", "--thinktime=20ms",
                   "--new_group", *common,
                   "--name=log", "--ioengine=psync", "--rw=write", "--bs=16k", "--thread", "--sync=1", "--thinktime=20ms", "--new_group",
                   f"--filename={log}", "--time_based", f"--runtime={settings.seconds}", f"--size={settings.oltp_file_mib}m")
    stand.drain()
    parts = {"read": jobs["read"]["read"], "write": jobs["write"]["write"], "log": jobs["log"]["write"]}
    iops = sum(part["iops"] for part in parts.values())
    mean_ms = sum(part["iops"] * part["mean_ms"] for part in parts.values()) / iops
    return {"iops": iops, "mean_ms": mean_ms, **{f"{name}_{key}": part[key] for name, part in parts.items()
                                                  for key in ("iops", "mean_ms", "p99_ms")}}
