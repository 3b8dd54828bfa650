"""How far medians can be trusted, and when there are rounds enough."""
import math
import statistics

# What a workload is about; the rest of its figures (percentiles, processor time) is beside that.
MAIN = ("per_second", "response_us", "untar_s", "copy_s", "remove_s", "clone_s", "install_s", "unpack_s", "drain_s", "first_write_s")
CONFIDENCE = 0.95


def interval(values):
    """Where the true median lies with 95 %: two of the values, whatever their distribution is. None of fewer than six, which cannot say."""
    ordered = sorted(values)
    found = None
    for below in range(len(ordered) // 2):
        # The chance that no more than `below` values are on one side of the median.
        outside = sum(math.comb(len(ordered), count) for count in range(below + 1)) / 2 ** len(ordered)
        if 1 - 2 * outside < CONFIDENCE:
            break
        found = ordered[below], ordered[-1 - below]
    return found


def spread(values):
    """The interval of the median, as a part of the median; of fewer than six values all that there are."""
    low, high = interval(values) or (min(values), max(values))
    median = statistics.median(values)
    return (high - low) / median if median else 0.0


def is_steady(figures, wanted):
    """Whether each main figure of each workload and setup has an interval, and none is wider than a part of its median."""
    groups = {}
    for figure in figures:
        for key in MAIN:
            if key in figure:
                groups.setdefault((figure["workload"], figure["setup"], key), []).append(figure[key])
    return bool(groups) and all(interval(values) and spread(values) < wanted for values in groups.values())
