"""What a build writes to the members, on RAID 0, 1, 5, and on a tiered volume whose object files are temporary.

As in the paper the sources are elsewhere, in memory; only the build's folder is on the volume. The log is in front of all: it
holds what was written until `dcd hint watch` has said what it is. What counts is what the members were written until the log is
drained, the parity and second copies with it, and the fill of extents written for the first time.
"""
import contextlib
import os
import shutil
import time

from bench_common import c_project
from bench_common.report import bar, each, medians, spread, table
from bench_common.system import run, tell

from .stand import in_turns, stands

RULES = """[[rule]]
match = ["*.o", "*.d", "program"]
set = "temporary"
"""
KEYS = {"extent": "4k"}
WANTED = {name: {"sets": name, "keys": KEYS, "log_mib": 512} for name in ("raid0", "raid1", "raid5", "tiered")}
SECTOR = 512


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []
    sources = os.path.join(folder, "sources")
    c_project.write(sources)
    rules = os.path.join(folder, "rules.toml")
    with open(rules, "w") as file:
        file.write(RULES)
    with contextlib.ExitStack() as stack:
        served = stands(stack, settings, folder, WANTED)
        for one in served.values():
            one.make_file_system()
        for number in range(settings.rounds):
            for name, one in in_turns(served, number):
                rounds.append({"name": name, "round": number, **build(settings, one, sources, rules if name == "tiered" else None)})
                tell(f"round {number + 1}: {name}: {rounds[-1]['sectors']:.0f} sectors")
    found = medians(rounds, "sectors")
    bars = [bar("tiered by RAID 0", found["tiered"] / found["raid0"], most=1.07)]
    rows = [(name, f"{found[name]:.0f}", spread(each(rounds, name, "sectors")), f"{found[name] / found['raid0']:.2f}",
             f"{found[name] / found['tiered'] - 1:+.0%}", f"{medians(rounds, 'wall_s')[name]:.1f}") for name in served]
    return {"rounds": rounds, "bars": bars,
            "text": table(("", "sectors: median", "rounds", "by RAID 0", "against tiered", "s"), rows)}


def build(settings, stand, sources, rules):
    """One build in an empty folder, to the end of all that is written for it."""
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(stand.mounted())
        if rules:
            stack.enter_context(stand.watched(root, rules))
        where = os.path.join(root, "build")
        shutil.rmtree(where, ignore_errors=True)
        # Links, so that what make finds beside its Makefile is the sources.
        run("cp", "--recursive", "--symbolic-link", sources, where)
        run("sync", "--file-system", where)
        stand.drain()
        stand.settle()
        before = stand.counters()
        begin = time.monotonic()
        objects = " ".join(f"part{part}/f{number}.o" for part in range(settings.build_parts)
                           for number in range(c_project.FILES_PER_PART))
        run("make", "-s", "-j2", "-C", where, *objects.split())
        wall_s = time.monotonic() - begin
        run("sync", "--file-system", where)
        if rules:
            # Until the last file was looked at.
            time.sleep(2)
        stand.drain()
        stand.settle()
        after = stand.counters()
        moved = after["extents_moved"] - before["extents_moved"]
        objects = objects_of(stand, where) if rules else None
    return {"sectors": (after["member_write_bytes"] - before["member_write_bytes"]) / SECTOR, "wall_s": wall_s,
            "extents_moved": moved, "extents_mapped": after["extents_mapped"] - before["extents_mapped"], "objects": objects}


def objects_of(stand, where):
    """Where the objects lie: bytes in the region for temporary data, and all."""
    pieces = []
    for folder, _, names in os.walk(where):
        for name in names:
            if name.endswith(".o"):
                pieces += stand.ask("inspect", "--file", os.path.join(folder, name))["pieces"]
    return {"bytes": sum(piece["bytes"] for piece in pieces),
            "temporary_bytes": sum(piece["bytes"] for piece in pieces if piece["temporary"])}
