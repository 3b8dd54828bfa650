"""Results as Markdown tables."""


def table(head, rows):
    """A Markdown table; the first column is text."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def faster(plain, one):
    """As the paper counts: 100 % is half the time."""
    return f"{(plain / one - 1) * 100:+.0f} %" if one else "-"


def times(plain, one):
    return f"{plain / one:.1f}" if one else "-"


def starts(results):
    """Wall and disk time of each task, on each variant against the plain disk; and how alike its starts are."""
    plain = {one["task"]: one for one in results if one["variant"] == "plain"}
    rows, alike = [], []
    for one in results:
        base = plain.get(one["task"], one)
        rows.append((
            one["task"], one["variant"], one["starts"], f"{one['wall_s']:.2f}", faster(base["wall_s"], one["wall_s"]),
            f"{one['disk_ms'] / 1e3:.2f}", f"{one['disk_ms_lowest'] / 1e3:.2f} to {one['disk_ms_highest'] / 1e3:.2f}",
            times(base["disk_ms"], one["disk_ms"]), f"{one['disk_ms'] / 10 / one['wall_s']:.0f} %",
            f"{one['reads']:.0f}", f"{one['read_bytes'] / 1e6:.1f}", f"{one['disk_ms'] / max(one['reads'], 1):.2f}",
            f"{one['seek_sectors'] / 1e6:.0f}"))
        if "likeness" in one:
            same = one["likeness"]
            alike.append((one["task"], one["variant"], *(f"{same[key] * 100:.1f} %" for key in same),
                          f"{one['read_bytes_median'] / 1024:.0f}", f"{one['pause_median_ms']:.2f}",
                          f"{one['overlapping_share'] * 100:.0f} %"))
    text = table(("task", "variant", "starts", "wall, s", "faster", "disk, s", "lowest to highest", "times less disk",
                  "disk of wall", "reads", "MB", "ms per read", "seek, M sectors"), rows)
    if alike:
        text += "\nHow alike one start is to the one before, and how it reads:\n\n"
        text += table(("task", "variant", "same blocks", "blocks in same order", "requests in same order",
                       "median read, KiB", "median pause, ms", "overlapping"), alike)
    return text


def memory(results):
    """The second round of starts at each limit of memory."""
    rows = [(one["limit"], one["variant"], one["starts"], f"{one['peak_bytes'] / (1 << 20):.0f}", f"{one['reads_first']:.0f}", f"{one['reads_second']:.0f}",
             f"{one['miss_rate'] * 100:.1f} %", f"{one['miss_rate_bytes'] * 100:.1f} %", f"{one['ms_per_miss']:.2f}",
             f"{one['average_access_ms']:.3f}", f"{one['disk_ms_second'] / 1e3:.2f}", " ".join(one["failed"]) or "-")
            for one in results]
    return table(("memory", "variant", "times", "most used, MiB", "reads, first", "reads, second", "miss rate", "of bytes", "ms per miss",
                  "average access, ms", "disk, s", "did not fit"), rows)
