"""PostMark on a disk, and on the null layer stacked on that disk, as the paper stacks DPROTO on one.

The disk is a model behind `dcd slow-disk`, FUSE and a loop device: the kernel has no other way to a disk in its times. The layer
is `dcd serve --null` on that loop device, with FUSE and a loop device of its own, so what is measured is all that it takes to go
through one more program. What that takes where the disk takes no time is measured as well: a loop device on the image itself against the layer on that.
"""
import contextlib
import os
import time

from bench_common.daemon import Daemon
from bench_common.memory import Group
from bench_common.report import bar, each, medians, spread, table
from bench_common.system import loop_device, mounted, run, tell

from .postmark import postmark

TITLES = {"disk": "modelled disk", "null": "the null layer on it", "memory": "image in memory", "memory, null": "the null layer on it"}


def measure(settings, folder):
    """All rounds, bars, and text."""
    rounds = []
    with contextlib.ExitStack() as stack:
        model = f"model:{settings.disk_model}:{image(settings, folder, 'disk')}"
        disk = stack.enter_context(served(settings, folder, "disk", "slow-disk", "--disk", model))
        memory = stack.enter_context(loop_device(image(settings, folder, "memory")))
        for number in range(settings.rounds):
            # All is made anew on the same blocks, in turns, so that no place on the disk is anybody's.
            for name in TITLES if number % 2 == 0 else reversed(TITLES):
                plain = memory if name.startswith("memory") else disk
                rounds.append({"name": name, "round": number, **load(settings, folder, plain, name.endswith("null"))})
                tell(f"round {number + 1}: {TITLES[name]} ({name}): {rounds[-1]['wall_s']:.2f} s")
    found = medians(rounds, "wall_s")
    bars = [bar("null layer by the modelled disk", found["null"] / found["disk"], most=1.036)]
    rows = [(f"{TITLES[name]}", f"{found[name]:.2f}", spread(each(rounds, name, "wall_s"), "{:.2f}"),
             f"{found[name] / found['disk' if name in ('disk', 'null') else 'memory'] - 1:+.1%}") for name in TITLES]
    return {"rounds": rounds, "bars": bars, "text": table(("PostMark on", "s: median", "rounds", "over the plain one"), rows)}


def image(settings, folder, name):
    path = os.path.join(folder, f"{name}.img")
    with open(path, "wb") as file:
        file.truncate(settings.member_mib << 20)
    return path


@contextlib.contextmanager
def served(settings, folder, name, *words):
    """The loop device of a daemon."""
    daemon = Daemon(settings.dcd, name, os.path.join(folder, name), over_nbd=False)
    try:
        daemon.start([*words, "--quiet"])
        daemon.set_queue(read_ahead_kb=128, scheduler="mq-deadline")
        yield daemon.device
    finally:
        daemon.stop()


def load(settings, folder, device, through_null):
    """PostMark on a new ext2, until all of it is on the disk: what the kernel holds would be the load of the next."""
    with contextlib.ExitStack() as stack:
        if through_null:
            device = stack.enter_context(served(settings, folder, "null", "serve", "--null", "--data-disk", device))
        run("mkfs.ext2", "-q", "-F", "-b", "4096", "-E", "nodiscard", device)
        run("blockdev", "--flushbufs", device)
        root = stack.enter_context(mounted(device, os.path.join(folder, "postmark", "root"), "-o", "noatime"))
        where = os.path.join(root, "postmark")
        os.mkdir(where)
        begin = time.monotonic()
        # As the paper's machine, with less memory than its files.
        group = stack.enter_context(Group(settings.null_memory_mib << 20))
        done = postmark(where, settings.null_files, settings.null_transactions, 400_000, 600_000, group.join)
        run("sync", "--file-system", where)
        return {**done, "wall_s": time.monotonic() - begin}
