"""Requests for each GB written, all of it in the store at the end: random and sequential writes of 4 KiB through a log of a quarter of them."""
import contextlib
import time

from bench_common.distance import between, of_verb
from bench_common.report import bar, table
from bench_common.system import tell

from .loads import fill
from .stand import Dcd, bucket

LOADS = {"random": "randwrite", "sequential": "write"}


def measure(settings, folder):
    """One round of each, bars, and text."""
    rounds = []
    for name, pattern in LOADS.items():
        with contextlib.ExitStack() as stack:
            far = stack.enter_context(bucket(settings, folder))
            log_mib = settings.log_mib
            ours = stack.enter_context(Dcd(settings, folder, "ours", "s3://bucket/ours", "4G", log_mib=log_mib))
            before, begin = far.counts(), time.monotonic()
            fill(ours.uri, pattern, 4096 if pattern == "randwrite" else settings.load_mib, settings.load_mib)
            written_s = time.monotonic() - begin
            ours.drain_s()
            counts = between(before, far.counts())
            written = settings.load_mib << 20
            puts = of_verb(counts, "PUT") / (written / 1e9)
            rounds.append({"name": name, "counts": counts, "puts_per_gb": puts, "written_s": written_s, "seconds": time.monotonic() - begin})
            tell(f"{name}: {puts:.0f} PUTs for each GB: {counts}")
    bars = [bar(f"PUTs for each GB, {one['name']}", one["puts_per_gb"], most=300) for one in rounds]
    rows = [(one["name"], f"{one['puts_per_gb']:.0f}", f"{one['seconds']:.0f}",
             ", ".join(f"{kind}: {number}" + (f" ({size / 1e6:.0f} MB)" if size > 1e6 else "") for kind, (number, size) in sorted(one["counts"].items())))
            for one in rounds]
    return {"rounds": rounds, "bars": bars, "text": table((f"{settings.load_mib} MiB", "PUTs for each GB", "s", "requests"), rows)}
