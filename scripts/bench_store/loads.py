"""Loads, the same for all that is compared."""
import os
import random
import threading
import time

from bench_common.fio import fio

from .nbd import Client

LINE = 4096


def synchronous_writes(target, seconds, size_mib):
    """Random writes of 4 KiB, one at a time, each with a flush behind it. `target`: a URI of NBD, or a file. Writes a second."""
    # fio's nbd engine has no --fdatasync.
    engine = ("--ioengine=nbd", f"--uri={target}") if target.startswith("nbd") else ("--ioengine=psync", f"--filename={target}")
    job = fio("--name=load", "--thread", *engine, "--rw=randwrite", "--bs=4k", "--iodepth=1", "--fsync=1", f"--size={size_mib}m",
              "--randrepeat=0", "--norandommap", "--time_based", f"--runtime={seconds}")["load"]["write"]
    return job["iops"]


def fill(uri, pattern, size_mib, io_mib):
    """So much, 32 at a time."""
    random_ones = ("--randrepeat=0", "--norandommap", "--random_generator=tausworthe64") if pattern == "randwrite" else ()
    fio("--name=load", "--thread", "--ioengine=nbd", f"--uri={uri}", f"--rw={pattern}", "--bs=4k", "--iodepth=32", f"--size={size_mib}m",
        f"--io_size={io_mib}m", *random_ones)


def scattered(count, size_mib, seed):
    """Offsets of lines, no two of which are neighbours."""
    return [2 * line * LINE for line in random.Random(seed).sample(range((size_mib << 20) // LINE // 2), count)]


def write_scattered(path, offsets):
    """Over the socket of NBD at `path`, into a log: lines with contents of their own, and a flush."""
    client = Client(path)
    for offset in offsets:
        client.write(offset, os.urandom(LINE))
    client.flush()
    client.close()


def write_file(path, offsets, threads, patience_s):
    """The same to a file, so many at a time, each durable where writes are; then all of it synced. Seconds, and how many were
    written: not all, if that is not done in time."""
    content = [os.urandom(LINE) for _ in range(16)]
    begin = time.monotonic()
    file = os.open(path, os.O_WRONLY)
    written = [0] * threads

    def work(number):
        for offset in offsets[number::threads]:
            if time.monotonic() - begin > patience_s:
                return
            os.pwrite(file, content[offset // LINE % 16], offset)
            written[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    os.fsync(file)
    os.close(file)
    return time.monotonic() - begin, sum(written)
