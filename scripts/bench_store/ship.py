"""Scattered dirty lines of 4 KiB: how long it takes until all of them are in the store.

dcd is drained to the store, and to s3backer's file; s3backer alone takes the same lines one at a time, which is what somebody who
waits for each does, and 20 at a time, as many as it sends at once.
"""
import contextlib

from bench_common.distance import between, of_verb
from bench_common.report import bar, each, medians, spread, table
from bench_common.system import tell

from .loads import LINE, scattered, write_file, write_scattered
from .stand import Dcd, bucket, s3backer

SIZE_MIB = 1024
COUNT = 2000
OURS = "dcd to the store"


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []

    def note(name, number, far, before, seconds, count=COUNT):
        puts = of_verb(between(before, far.counts()), "PUT")
        rounds.append({"name": name, "round": number, "seconds": seconds * COUNT / count, "written": count, "puts": puts})
        tell(f"round {number + 1}: {name}: {seconds:.2f} s for {count} lines, {puts} PUTs")

    # Nothing is shipped before it is asked for.
    late = ("--ship-within", "1h")
    in_place = ("--bypass-threshold", "1G", "--idle-min", "1h", "--idle-max", "1h")
    with contextlib.ExitStack() as stack:
        far = stack.enter_context(bucket(settings, folder))
        ours = stack.enter_context(Dcd(settings, folder, "ours", "s3://bucket/ours", f"{SIZE_MIB}M", flags=late))
        file = stack.enter_context(s3backer(folder, "s3backer-below", far, SIZE_MIB))
        alone = stack.enter_context(s3backer(folder, "s3backer-alone", far, SIZE_MIB))
        over = stack.enter_context(Dcd(settings, folder, "over", file, flags=in_place))
        for number in range(settings.rounds):
            offsets = scattered(COUNT, SIZE_MIB, number)
            write_scattered(ours.daemon.nbd, offsets)
            before = far.counts()
            note(OURS, number, far, before, ours.drain_s())
            write_scattered(over.daemon.nbd, offsets)
            before = far.counts()
            note("dcd to s3backer", number, far, before, over.drain_s())
            for threads in (1, 20):
                before = far.counts()
                # The same offsets in one round: lines of which s3backer has the old content, for a second time.
                seconds, count = write_file(alone, offsets, threads, settings.patience)
                note(f"s3backer alone, {threads} at a time", number, far, before, seconds, count)
    found, puts = medians(rounds, "seconds"), medians(rounds, "puts")
    bars = [bar(f"{COUNT * LINE / 1e6:.1f} MB scattered, {name} by {OURS}, seconds", found[name] / found[OURS], least=100)
            for name in found if name != OURS]
    rows = [(name, f"{found[name]:.2f}", spread(each(rounds, name, "seconds"), "{:.2f}"), f"{puts[name]:.0f}", f"{found[name] / found[OURS]:.0f}")
            for name in found]
    return {"rounds": rounds, "bars": bars, "text": table(("", "s: median", "rounds", "PUTs", "by dcd"), rows)}
