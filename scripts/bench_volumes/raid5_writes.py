"""Small random writes to RAID 5, plain and through the log: a burst that the log takes, and a load that outlasts it."""
import contextlib

from bench_common.fio import fio
from bench_common.report import bar, each, medians, spread, table
from bench_common.system import tell

from .stand import in_turns, stands

WANTED = {
    "plain": {"sets": "raid5", "flags": ("--no-log",), "over_nbd": True},
    "burst": {"sets": "raid5", "over_nbd": True},
    "steady": {"sets": "raid5", "over_nbd": True},
}
TITLES = {"plain": "plain RAID 5", "burst": "a burst that the log takes", "steady": "longer than the log: steady"}


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []
    sizes = {"burst": 2 * settings.burst_mib, "steady": settings.steady_log_mib}
    how = {name: {**one, "log_mib": sizes.get(name, 64)} for name, one in WANTED.items()}
    with contextlib.ExitStack() as stack:
        served = stands(stack, settings, folder, how)
        for name, one in served.items():
            tell(f"filling {name}")
            run_fio(settings, one, "--rw=write", "--bs=1m", "--iodepth=4", "--end_fsync=1")
            one.drain()
        for number in range(settings.rounds):
            for name, one in in_turns(served, number):
                rounds.append({"name": name, "round": number, **load(settings, name, one)})
                tell(f"round {number + 1}: {TITLES[name]}: {rounds[-1]['iops']:.0f} writes/s")
    found = medians(rounds, "iops")
    bars = [bar(f"{TITLES[name]}, by plain RAID 5", found[name] / found["plain"], least=5) for name in ("burst", "steady")]
    head = ("", "4 KiB writes/s: median", "rounds", "mean response, ms", "by plain", "member I/Os and KiB per write")
    rows = [(TITLES[name], f"{found[name]:.0f}", spread(each(rounds, name, "iops")),
             f"{medians(rounds, 'mean_ms')[name]:.2f}", f"{found[name] / found['plain']:.1f}",
             f"{medians(rounds, 'member_ios_per_write')[name]:.2f}, {medians(rounds, 'member_kib_per_write')[name]:.1f}")
            for name in served]
    return {"rounds": rounds, "bars": bars, "text": table(head, rows)}


def run_fio(settings, stand, *words):
    return fio("--name=load", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={stand.daemon.nbd}",
               f"--size={settings.region_mib}m", *words)["load"]


def load(settings, name, stand):
    """One round; a steady one begins when the log is full, and none leaves anything behind for the next."""
    random = ("--rw=randwrite", "--bs=4k", "--iodepth=32", "--randrepeat=0", "--norandommap", "--random_generator=tausworthe64")
    if name == "burst":
        # As much as the log takes without destaging.
        load = (*random, f"--io_size={settings.burst_mib}m")
    else:
        if name == "steady":
            run_fio(settings, stand, *random, f"--io_size={2 * settings.steady_log_mib}m", "--runtime=60")
        # A full log swings: what came at once is emptied at once, about once in a minute.
        load = (*random, "--time_based", f"--runtime={settings.seconds * (12 if name == 'steady' else 1)}")
    before = stand.counters()
    result = run_fio(settings, stand, *load)["write"]
    after = stand.counters()
    ios = sum(after[key] - before[key] for key in ("member_reads", "member_writes"))
    written = after["member_write_bytes"] - before["member_write_bytes"]
    stand.drain()
    return {**result, "member_ios_per_write": ios / result["operations"],
            "member_kib_per_write": written / 1024 / result["operations"],
            "stripe_jobs_per_write": (after["stripe_jobs"] - before["stripe_jobs"]) / result["operations"]}
