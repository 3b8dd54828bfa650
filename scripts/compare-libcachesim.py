#!/usr/bin/env python3
"""Do LRU and FIFO of dcd's non-volatile memory miss as often as those of libcachesim?

    pip install libcachesim
    scripts/compare-libcachesim.py target/release/dcd [TRACE.csv ...]

Each write of a trace (the project's CSV, not compressed), cut into lines of 4 KiB, goes through both, and so do 50,000
made-up ones. dcd writes behind (no thresholds), a line is a group, and requests come one after the other: then a write that does
not find its line is a miss. Ends with 1 if any count differs.
"""
import json
import random
import subprocess
import sys
import tempfile

import libcachesim

LINE = 4096
SIZES = (8, 32, 128, 1024)
POLICIES = {"lru": libcachesim.LRU, "fifo": libcachesim.FIFO}


def lines_of(path):
    with open(path) as rows:
        names = rows.readline().strip().split(",")
        op, off, length = (names.index(name) for name in ("op", "off", "len"))
        lines = []
        for row in rows:
            fields = row.split(",")
            if fields[op] == "W" and int(fields[length]) > 0:
                start = int(fields[off])
                lines += range(start // LINE, (start + int(fields[length]) - 1) // LINE + 1)
        return lines


def made_up():
    draw = random.Random(3)
    return [int(draw.paretovariate(0.6) * 10) % 5000 for _ in range(50_000)]


def misses_of_libcachesim(lines, policy, size):
    cache, misses = POLICIES[policy](cache_size=size), 0
    for number, line in enumerate(lines):
        request = libcachesim.Request()
        request.obj_id, request.obj_size, request.clock_time = line, 1, number
        misses += not cache.get(request)
    return misses


def misses_of_dcd(dcd, trace, policy, size):
    flags = f"--disk wd-4tb --closed-loop --group 4k --low 100 --high 100 --json --nvram {size * LINE} --policy {policy}"
    output = subprocess.run([dcd, "simulate", "--trace", trace, *flags.split()], capture_output=True, check=True)
    facts = json.loads(output.stdout)
    return facts["writes"] - facts["overwrites"]


def main():
    dcd, *paths = sys.argv[1:]
    loads = {path: lines_of(path) for path in paths}
    loads["made up"] = made_up()
    different = 0
    for name, lines in loads.items():
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
            trace.write("t_us,op,off,len\n")
            trace.writelines(f"{number},W,{line * LINE},{LINE}\n" for number, line in enumerate(lines))
            trace.flush()
            for size in SIZES:
                for policy in POLICIES:
                    theirs = misses_of_libcachesim(lines, policy, size)
                    ours = misses_of_dcd(dcd, trace.name, policy, size)
                    different += theirs != ours
                    word = "equal" if theirs == ours else "DIFFERENT"
                    print(f"{name}: {policy}, {size} lines, {len(lines)} writes: {theirs} and {ours} misses: {word}")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
