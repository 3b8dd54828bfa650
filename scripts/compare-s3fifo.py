#!/usr/bin/env python3
"""Does dcd's S3-FIFO miss as often as that of libcachesim?

    pip install libcachesim
    cargo build --locked --release -p dcd-sim --example s3_fifo
    scripts/compare-s3fifo.py target/release/examples/s3_fifo [TRACE.csv ...]

Each read of a trace (the project's CSV, not compressed), cut into lines of 4 KiB, goes through both; so does each request, reads
and writes alike, because many traces of disks have few reads; and so do made-up ones. A line that is not found is
taken in. libcachesim takes in nothing when a tenth of the cache is not more than one line, so 20 lines are the
smallest. Ends with 1 if any count differs.
"""
import random
import subprocess
import sys

import libcachesim

LINE = 4096
SIZES = (20, 32, 128, 1000, 1024, 8192)
# With fewer, nearly all of what is compared is that each line is missed once.
LINES_MIN = 1000


def lines_of(path, ops):
    with open(path) as rows:
        names = rows.readline().strip().split(",")
        op, off, length = (names.index(name) for name in ("op", "off", "len"))
        lines = []
        for row in rows:
            fields = row.split(",")
            if fields[op] in ops and int(fields[length]) > 0:
                start = int(fields[off])
                lines += range(start // LINE, (start + int(fields[length]) - 1) // LINE + 1)
        return lines


def made_up(seed, shape, lines, count):
    draw = random.Random(seed)
    return [int(draw.paretovariate(shape) * 10) % lines for _ in range(count)]


def made_up_with_scans():
    """Lines that are read often, and every now and then 2,000 others one after the other."""
    draw, reads = random.Random(5), []
    for scan in range(40):
        reads += [int(draw.paretovariate(0.8) * 10) % 3000 for _ in range(5000)]
        reads += range(10_000 + scan % 7 * 1500, 12_000 + scan % 7 * 1500)
    return reads


def misses_of_libcachesim(lines, size):
    cache, misses = libcachesim.S3FIFO(cache_size=size), 0
    for number, line in enumerate(lines):
        request = libcachesim.Request()
        request.obj_id, request.obj_size, request.clock_time = line, 1, number
        misses += not cache.get(request)
    return misses


def misses_of_dcd(program, lines, size):
    rows = "".join(f"{line}\n" for line in lines)
    output = subprocess.run([program, "misses", str(size)], input=rows, text=True, capture_output=True, check=True)
    return (int(word) for word in output.stdout.split())


def main():
    program, *paths = sys.argv[1:]
    loads = {}
    for path in paths:
        for name, ops in (("reads", "R"), ("reads and writes", "RW")):
            lines = lines_of(path, ops)
            if len(lines) >= LINES_MIN:
                loads[f"{path}, {name}"] = lines
    loads["made up, hot"] = made_up(3, 0.6, 5000, 100_000)
    loads["made up, large"] = made_up(4, 0.3, 100_000, 300_000)
    loads["made up, scans"] = made_up_with_scans()
    different = 0
    for name, lines in loads.items():
        for size in SIZES:
            theirs = misses_of_libcachesim(lines, size)
            ours, refused = misses_of_dcd(program, lines, size)
            different += theirs != ours
            word = "equal" if theirs == ours else "DIFFERENT"
            print(f"{name}: {size} lines, {len(lines)} accesses: {theirs} and {ours} misses, {refused} refused: {word}")
    print(f"{len(loads) * len(SIZES)} compared, {different} different")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
