"""Medians of the guest's figures as Markdown, and the bars."""
import statistics

from guest.peers.steady import MAIN, interval, spread

PEERS = ("bcache", "dm-writecache", "dm-cache")
DCD, RAW, PASS_THROUGH, CACHE_DISK = "dcd", "raw", "pass-through ublk", "cache disk"
# Figures in the order of their columns: key, head, form, and whether more is better.
COLUMNS = (
    ("per_second", "per second", "{:.0f}", True), ("write_us", "write us", "{:.0f}", False), ("flush_us", "flush us", "{:.0f}", False),
    ("response_us", "response us", "{:.0f}", False), ("p99_us", "p99 us", "{:.0f}", False), ("read_mean_us", "read us", "{:.0f}", False),
    ("read_p99_us", "read p99 us", "{:.0f}", False), ("drain_s", "drained after s", "{:.1f}", False),
    ("disk_writes_each", "disk writes per block", "{:.2f}", False), ("untar_s", "untar s", "{:.2f}", False),
    ("copy_s", "copy s", "{:.2f}", False), ("remove_s", "remove s", "{:.2f}", False), ("clone_s", "clone s", "{:.3f}", False),
    ("install_s", "install s", "{:.3f}", False), ("unpack_s", "unpack s", "{:.3f}", False), ("fill_s", "filled after s", "{:.1f}", False),
    ("first_write_s", "first write after s", "{:.2f}", False), ("cpu_ms_each", "CPU ms each", "{:.2f}", False),
    ("cpu_s", "CPU s", "{:.2f}", False),
)


class Medians:
    """Of all rounds."""

    def __init__(self, figures):
        self.groups, self.order = {}, []
        for one in figures:
            place = (one["scenario"], one["workload"])
            if place not in self.order:
                self.order.append(place)
            for key, value in one.items():
                if isinstance(value, (int, float)):
                    self.groups.setdefault((*place, one["setup"], key), []).append(value)

    def get(self, scenario, workload, setup, key):
        """A median, or None."""
        group = self.groups.get((scenario, workload, setup, key))
        return statistics.median(group) if group else None

    def percent(self, scenario, workload, setup, key):
        """How wide the interval of the median is."""
        return 100 * spread(self.groups[scenario, workload, setup, key])

    def rounds(self):
        """The fewest and the most of a figure."""
        counts = [len(group) for group in self.groups.values()]
        return min(counts), max(counts)

    def all_have_intervals(self):
        """Whether there are rounds enough to say how far each median is to be trusted."""
        return all(interval(group) for group in self.groups.values())

    def setups(self, scenario, workload):
        """Who was measured, dcd and its yardsticks first."""
        known = {setup for (one, other, setup, _) in self.groups if (one, other) == (scenario, workload)}
        return [name for name in (RAW, CACHE_DISK, PASS_THROUGH, DCD, *PEERS) if name in known]

    def best_peer(self, scenario, workload, key, most):
        """Which of the kernel's caches has the best figure, or None."""
        found = [(value, peer) for peer in PEERS if (value := self.get(scenario, workload, peer, key)) is not None]
        return (max if most else min)(found)[1] if found else None

    def are_told_apart(self, scenario, workload, key, one, other):
        """Whether the medians of two setups have intervals that do not overlap; where there are none, they are taken as they are."""
        both = [interval(self.groups[scenario, workload, setup, key]) for setup in (one, other)]
        return None in both or both[0][1] < both[1][0] or both[1][1] < both[0][0]


def markdown(found):
    """Everything."""
    medians = Medians(found["figures"])
    lines = [f"Linux {found['kernel']}, {found.get('guest', 'QEMU, emulated')}; slow disk: model {found['model']}; {rounds(medians)}.", ""]
    for scenario, workload in medians.order:
        lines += workload_table(medians, scenario, workload)
    lines += bars(medians)
    lines += [f"\nskipped: {name}: {reason}" for name, reason in found["skipped"].items()]
    return "\n".join(lines)


def rounds(medians):
    """What stands in the cells."""
    if not medians.groups:
        return "nothing was measured"
    fewest, most = medians.rounds()
    times = f"{fewest} rounds" if fewest == most else f"{fewest} to {most} rounds"
    if most == 1:
        return "one round"
    what = "the interval in which it lies with 95 %" if medians.all_have_intervals() else "all values (or, of six and more, the interval in which it lies with 95 %)"
    return f"medians of {times}; beside them how wide {what} is, in percent of the median"


def workload_table(medians, scenario, workload):
    """Who did how well."""
    setups = medians.setups(scenario, workload)
    columns = [column for column in COLUMNS if any(medians.get(scenario, workload, setup, column[0]) is not None for setup in setups)]
    limit = medians.get(scenario, workload, CACHE_DISK, "per_second")
    heads = [head for _, head, _, _ in columns] + (["of the cache disk"] if limit else [])
    lines = [f"**{scenario}: {workload}**", "", "| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for setup in setups:
        cells = []
        for key, _, form, _ in columns:
            value = medians.get(scenario, workload, setup, key)
            width = f" ({medians.percent(scenario, workload, setup, key):.0f} %)" if value is not None and key in MAIN and medians.rounds()[1] > 1 else ""
            cells.append("" if value is None else form.format(value) + width)
        if limit:
            cells.append(f"{medians.get(scenario, workload, setup, 'per_second') / limit:.2f}")
        lines.append(f"| {setup} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def bars(medians):
    """What dcd is to reach, and what it has."""
    rows = []

    def bar(what, found, wanted):
        if found is not None:
            times, is_clear = found
            verdict = "met" if times >= wanted else "**missed**"
            rows.append(f"| {what} | {times:.2f} | {wanted:g} | {verdict if is_clear else 'not told apart'} |")

    def ratio(scenario, workload, key, more, against=None):
        against = against or medians.best_peer(scenario, workload, key, more)
        ours, theirs = (medians.get(scenario, workload, setup, key) for setup in (DCD, against))
        if not ours or not theirs:
            return None
        return ours / theirs if more else theirs / ours, medians.are_told_apart(scenario, workload, key, DCD, against)

    each = "a flush after each"
    bar("write + flush, best peer", ratio("fast cache disk", each, "per_second", True), 1.3)
    bar("write + flush, pass-through ublk", ratio("fast cache disk", each, "per_second", True, PASS_THROUGH), 1.1)
    bar("write + flush, slow cache disk, best peer", ratio("slow cache disk", each, "per_second", True), 1.8)
    for scenario, workload in medians.order:
        for step in ("untar_s", "copy_s", "remove_s", "clone_s", "install_s", "unpack_s"):
            bar(f"{workload}: {step[:-2]}, best peer", ratio(scenario, workload, step, False), 1)
        if scenario == "programs":
            bar(f"{workload}, best peer", ratio(scenario, workload, "per_second", True), 1)
    bar("reads while it drains: p99, best peer", ratio("drain", "drain", "read_p99_us", False), 1)
    bar("disk writes of the drain, best peer", ratio("drain", "drain", "disk_writes_each", False), 1)
    bar("full cache, raw disk", ratio("full cache", "full", "per_second", True, RAW), 1)
    if not rows:
        return []
    return ["**Bars**: so many times as good as", "", "| | found | wanted | |", "|---|---|---|---|", *rows]
