"""What is measured. A workload takes a stand and a device of it, and returns figures; a scenario is workloads on the same disks."""
import json
import os
import threading
import time
from dataclasses import dataclass

from . import programs
from .files import ROOT, archive, file_system, finished, processor_s
from .setups import eventually, sectors

FIO = ["fio", "--name=peers", "--ioengine=io_uring", "--direct=1", "--bs=4k", "--output-format=json", "--randrepeat=0"]
# Written at random; the rest of the slow disk is never written, so what is read there comes from it.
WRITTEN = "96M"
# Places in the statistics of a disk.
READS, WRITES = 0, 4


@dataclass
class Scenario:
    """Workloads that one device of each setup goes through, one after the other."""

    about: str
    # Makes the stand's cache disk what the scenario wants.
    prepare: object
    workloads: dict
    # Setups that it says nothing about.
    without: tuple = ()


# Workloads


def write_and_flush(every):
    """4 KiB at random places, with a flush after so many; 0: none at all."""
    def measure(stand, peer):
        words = ["--rw=randwrite", "--iodepth=1", f"--size={WRITTEN}", "--time_based", "--ramp_time=1",
                 f"--runtime={stand.guest.settings['seconds']}"]
        job, busy = fio(stand, peer, *words, *([f"--fsync={every}"] if every else []))
        writes = job["write"]
        flush_us = job["sync"]["lat_ns"]["mean"] / 1e3 if every else 0
        return {"per_second": writes["iops"], "write_us": writes["clat_ns"]["mean"] / 1e3, "flush_us": flush_us,
                "cpu_ms_each": busy / max(writes["total_ios"], 1) * 1e3}
    return measure


def bursts(stand, peer):
    """50 durable writes of 4 KiB, then a second of silence, as in the paper about Windows NT: the response time that a user sees."""
    words = ["--rw=randwrite", "--iodepth=1", f"--size={WRITTEN}", "--sync=dsync", "--thinktime=1s", "--thinktime_blocks=50",
             "--number_ios=250"]
    job, _ = fio(stand, peer, *words)
    return {"response_us": job["write"]["clat_ns"]["mean"] / 1e3, "p99_us": p99(job["write"])}


def fresh_reads(stand, peer):
    """Reads, one at a time, of 8 MiB that have just been written."""
    where = ["--offset=256M", "--size=8M"]
    fio(stand, peer, "--rw=randwrite", "--iodepth=8", "--end_fsync=1", *where)
    job, _ = fio(stand, peer, "--rw=randread", "--iodepth=1", "--time_based", "--runtime=4", *where)
    return {"per_second": job["read"]["iops"], "p99_us": p99(job["read"])}


def drain(stand, peer):
    """Random blocks are written; then everything goes to the slow disk while somebody reads what is only there."""
    blocks = stand.guest.settings["dirty_blocks"]
    if peer.prepare_drain:
        peer.prepare_drain()
    before = disk_requests(stand.slow_disk, WRITES)
    fio(stand, peer, "--rw=randwrite", "--iodepth=4", f"--size={WRITTEN}", f"--number_ios={blocks}", "--end_fsync=1")
    # Somebody reads before, all the while, and perhaps after: what counts is until the end of the drain, or ten seconds.
    reads = ["--rw=randread", "--iodepth=1", "--offset=512M", "--size=256M", "--time_based", "--runtime=10", "--rate_iops=40"]
    result, reads_before = {}, disk_requests(stand.slow_disk, READS)
    drainer = threading.Thread(target=time_drain, args=(stand, peer, reads_before, result))
    drainer.start()
    job, _ = fio(stand, peer, *reads)
    drainer.join()
    if "error" in result:
        raise result["error"]
    return {"read_p99_us": p99(job["read"]), "read_mean_us": job["read"]["clat_ns"]["mean"] / 1e3, "drain_s": result["seconds"],
            "disk_writes_each": (disk_requests(stand.slow_disk, WRITES) - before) / blocks}


def time_drain(stand, peer, reads_before, result):
    """How long it takes until nothing is dirty, from the first reads on."""
    eventually(lambda: disk_requests(stand.slow_disk, READS) > reads_before + 4)
    begin = time.monotonic()
    try:
        if peer.drain:
            peer.drain()
        else:
            with open(peer.path, "rb") as file:
                os.fsync(file.fileno())
    except Exception as error:  # pylint: disable=broad-except  # told to whoever waits
        result["error"] = error
    result["seconds"] = time.monotonic() - begin


def full(stand, peer):
    """Random writes with a flush after every 64, without end: what is left when the cache is full."""
    begin = time.monotonic()
    words = ["--rw=randwrite", "--iodepth=8", "--size=768M", "--fsync=64", "--time_based", "--norandommap"]
    # So much more than the cache disk holds, or so long.
    fio(stand, peer, *words, "--runtime=40", f"--io_size={2 * sectors(stand.cache_disk) // 2}k")
    filled = time.monotonic() - begin
    job, _ = fio(stand, peer, *words, "--runtime=15")
    return {"per_second": job["write"]["iops"], "fill_s": filled, "p99_us": p99(job["write"])}


def trees(users, *options):
    """Users unpack an archive, copy the tree and remove it, each in a directory of its own; ext4."""
    def measure(stand, peer):
        tree = archive("tree", 120, 8, 16000, 500)
        with file_system(stand, peer, *options, size="64M") as cost:
            for user in range(users):
                os.mkdir(f"{ROOT}/{user}")
            os.sync()
            cost.begin()
            figures = {}
            for name, words in (("untar", "tar xf {tree} -C {home}"), ("copy", "cp -r {home}/tree {home}/copy"),
                                ("remove", "rm -r {home}/tree {home}/copy")):
                commands = [words.format(tree=tree, home=f"{ROOT}/{user}").split() for user in range(users)]
                figures[f"{name}_s"] = finished(commands, peer)
            return {**figures, **cost.all()}
    return measure


# Disks


def fast(stand):
    """The cache disk as it is."""


def slow_cache(stand):
    """A cache disk on which each operation, a flush too, takes some milliseconds."""
    stand.guest.module("dm-delay")
    delay = stand.guest.settings["cache_delay_ms"]
    stand.cache_disk = stand.mapped("slow-cache", f"0 {sectors(stand.cache_disk)} delay {stand.cache_disk} 0 {delay}")


def small_cache(stand):
    """A cache disk that soon is full."""
    size = stand.guest.settings["small_cache_mib"] << 11
    stand.cache_disk = stand.mapped("small-cache", f"0 {size} linear {stand.cache_disk} 0")


SCENARIOS = {
    "fast cache disk": Scenario("4 KiB at random places", fast, {
        "a flush after each": write_and_flush(1), "after 8": write_and_flush(8), "after 64": write_and_flush(64),
        "no flush": write_and_flush(0), "bursts": bursts, "fresh reads": fresh_reads}),
    "slow cache disk": Scenario("each of its operations takes milliseconds", slow_cache, {"a flush after each": write_and_flush(1)}),
    "trees": Scenario("untar, copy and remove", fast, {
        "one user": trees(1), "four users": trees(4), "one user, synchronous": trees(1, "-o", "sync,dirsync"),
        "four users, synchronous": trees(4, "-o", "sync,dirsync")}),
    "programs": Scenario("databases, mail, versions, packages", fast, programs.WORKLOADS),
    "drain": Scenario("everything to the slow disk", fast, {"drain": drain}, without=("cache disk", "pass-through ublk")),
    "full cache": Scenario("a small cache disk", small_cache, {"full": full}, without=("cache disk", "pass-through ublk")),
}


# Figures


def fio(stand, peer, *words):
    """One run of fio: its job's figures, and the processor time of the whole guest."""
    before = processor_s()
    done = stand.guest.run(*FIO, f"--filename={peer.path}", *words, timeout_s=600)
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0], processor_s() - before


def p99(direction):
    """Of a fio job, in microseconds."""
    return direction["clat_ns"]["percentile"]["99.000000"] / 1e3


def disk_requests(device, which):
    """Reads or writes that a disk has got, after the kernel joined what lies side by side."""
    with open(f"/sys/block/{os.path.basename(device)}/stat", encoding="utf-8") as file:
        return int(file.read().split()[which])
