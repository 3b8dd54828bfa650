"""A machine is lost: kill -9 of dcd under load, and another one with an empty log has the store; until the first read of it is answered."""
import contextlib
import os
import time

from bench_common.daemon import Daemon
from bench_common.report import bar, each, medians, spread, table
from bench_common.system import Problem, run, tell

from .loads import LINE, synchronous_writes
from .nbd import Client
from .stand import Dcd, bucket

SIZE_MIB = 1024
HOW = {"now": "--take-over=now", "lapsed": "--take-over"}
# A lease, and what clocks may differ by.
LEASE_S = 40


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []
    for number in range(settings.rounds):
        for name in HOW if number == 0 else ("now",):
            with contextlib.ExitStack() as stack:
                stack.enter_context(bucket(settings, folder))
                rounds.append({"name": name, "round": number, "seconds": lose_and_go_on(settings, folder, HOW[name])})
                tell(f"round {number + 1}: {HOW[name]}: {rounds[-1]['seconds']:.2f} s")
    found = medians(rounds, "seconds")
    bars = [bar("take-over, s", found["now"], most=5), bar("take-over when the lease has ended, s behind it", found["lapsed"] - LEASE_S, most=5)]
    rows = [(HOW[name], f"{found[name]:.2f}", spread(each(rounds, name, "seconds"), "{:.2f}")) for name in HOW]
    return {"rounds": rounds, "bars": bars, "text": table(("", "s: median", "rounds"), rows)}


def lose_and_go_on(settings, folder, how):
    """Seconds from the death to the first answer."""
    with Dcd(settings, folder, "lost", "s3://bucket/disk", f"{SIZE_MIB}M") as lost:
        client = Client(lost.daemon.nbd)
        client.write(0, b"\1" * LINE)
        client.flush()
        client.close()
        lost.drain_s()
        synchronous_writes(lost.uri, settings.seconds, SIZE_MIB)
        lost.lose_the_machine()
        begin = time.monotonic()
        place = os.path.join(folder, "other")
        other = Daemon(settings.dcd, "other", place, over_nbd=True)
        cache = os.path.join(place, "log.img")
        with open(cache, "wb") as file:
            file.truncate(settings.log_mib << 20)
        words = ["serve", "--cache-disk", cache, "--data-disk", "s3://bucket/disk", "--memory-directory", place, "--quiet", how]
        while True:
            try:
                other.start(words)
                break
            except Problem as problem:
                if "lease ends in" not in str(problem):
                    raise
                time.sleep(0.2)
        try:
            client = Client(other.nbd)
            found = client.read(0, LINE)
            took = time.monotonic() - begin
            client.close()
            if len(set(found)) != 1:
                raise AssertionError("half a line")
        finally:
            other.stop()
            run("rm", "-r", place)
    return took
