"""Cold starts of each task on each variant, in turns, so that what changes on the machine meets all alike."""
import contextlib
import os
import shutil
import stat
import statistics
import subprocess
import tempfile
import time

from bench_common.system import OnTerminal, Problem, guarded, mounted, run, tell

from . import image, variants
from .requests import Requests, likeness
from .serving import Served
from .tasks import ENVIRONMENT

START_TIMEOUT_S = 900


@contextlib.contextmanager
def session(settings, image_path):
    """The variants that this dcd knows, each served with its own copy of the image, and those that it does not."""
    with tempfile.TemporaryDirectory(prefix="dcd-bench-starts-", dir=settings.fast) as folder, contextlib.ExitStack() as stack:
        if not settings.fast:
            stack.enter_context(mounted("tmpfs", folder, "-t", "tmpfs", "-o", "size=90%"))
        stack.enter_context(guarded(folder))
        served, skipped = [], {}
        for variant in variants.VARIANTS:
            if settings.variants and variant.name not in settings.variants:
                continue
            if reason := variants.missing(variant, settings.dcd):
                skipped[variant.name] = reason
                tell(f"{variant.name} is skipped: {reason}")
                continue
            check_room(folder, image_path)
            served.append(stack.enter_context(Served(variant, image_path, folder, settings)))
        if not served:
            raise Problem("no variant is left to measure")
        yield served, skipped
        if settings.keep:
            keep_recordings(folder, settings.keep)


def check_room(folder, image_path):
    needed = os.stat(image_path).st_blocks * 512
    if shutil.disk_usage(folder).free < needed + (1 << 30):
        raise Problem(f"{folder} has no room for another copy of {image_path}, {needed >> 20} MiB; --fast is another")


def keep_recordings(folder, target):
    for name in (variant.name for variant in variants.VARIANTS if os.path.isdir(f"{folder}/{variant.name}")):
        recordings = [file for file in os.listdir(f"{folder}/{name}") if file.endswith(".csv")]
        os.makedirs(f"{target}/{name}", exist_ok=True)
        for file in recordings:
            shutil.copy(f"{folder}/{name}/{file}", f"{target}/{name}/{file}")


def measure(settings, tasks, outdated=False):
    """All starts of these tasks: a list of one dictionary each, and the variants that were skipped.

    `outdated` moves a third of the programs' files after the variants have learned: what they know is wrong then.
    """
    path = image.build("programs", settings.work, settings.suite, settings.mirror)
    starts, last = [], {}
    with session(settings, path) as (served, skipped):
        for one in served:
            starts += teach(one, tasks)
            if outdated:
                move_files(one)
        for number in range(settings.rounds):
            turn = number % len(served)
            for task in tasks:
                for one in served[turn:] + served[:turn]:
                    wall_s, requests = cold_start(one, task)
                    key = (one.variant.name, task.name)
                    starts.append(figures(task.name, one.variant.name, number, wall_s, requests))
                    if key in last:
                        starts[-1]["likeness"] = likeness(last[key], requests)
                    last[key] = requests
                    tell(f"round {number + 1}: {task.name}, {one.variant.name}: {wall_s:.2f} s, "
                         f"disk {starts[-1]['disk_ms'] / 1e3:.2f} s, {starts[-1]['reads']} reads")
    return starts, skipped


def teach(served, tasks):
    """What a variant has seen before it is measured; returns the starts that were recorded, the paper's tracing time."""
    variant, recorded = served.variant, []
    if variant.record:
        for task in tasks:
            tell(f"{variant.name}: recording {task.name}")
            wall_s, requests = cold_start(served, task, served.sequence_recorder(task.name))
            recorded.append(figures(task.name, f"{variant.name}, while recording", 0, wall_s, requests))
            # Or what dcd copies now would be in the way of the next.
            time.sleep(variant.settle_s)
    for number in range(variant.learn):
        for task in tasks:
            tell(f"{variant.name}: start {number + 1} of {task.name}, not measured")
            cold_start(served, task)
    time.sleep(variant.settle_s)
    return recorded


def figures(task, variant, number, wall_s, requests):
    """All that is known of one start."""
    return {"task": task, "variant": variant, "round": number, "wall_s": wall_s,
            "recording": os.path.basename(requests.path), **requests.figures()}


def move_files(served):
    """Writes every third file that was ever read anew, as an update does: its blocks are others then."""
    tell(f"{served.variant.name}: moving a third of the files")
    with served.mounted() as root:
        paths = [os.path.join(folder, name) for top in ("usr/bin", "usr/lib", "usr/share")
                 for folder, _, names in os.walk(os.path.join(root, top)) for name in names]
        for path in [path for path in sorted(paths) if was_read(path)][::3]:
            # In this order the file is at no time missing or half there.
            shutil.copy2(path, path + ".new")
            os.replace(path + ".new", path)
    if served.variant.create:
        # Or reads would be answered by the log, which the plain disk does not have.
        run(served.settings.dcd, "drain", "--control", served.words["control"])


def was_read(path):
    """Relative access times: of what nobody read since it was installed, it is not later than the last change."""
    facts = os.lstat(path)
    return stat.S_ISREG(facts.st_mode) and facts.st_atime > facts.st_ctime


def cold_start(served, task, recorder=()):
    """Starts it with nothing of the disk in memory: wall seconds and requests."""
    if task.prepare:
        with served.mounted() as root:
            run("chroot", root, *task.prepare, env=ENVIRONMENT)
    if served.settings.restart:
        served.stop()
        served.start()
    with served.mounted() as root, served.recording() as recording:
        wall_s = start(served, task, [*recorder, "chroot", root, *task.command])
    return wall_s, Requests(recording.path)


def start(served, task, command, before=lambda: None):
    """Runs it to its end; a start that fails is a problem, not a figure."""
    begin = time.monotonic()
    terminal = OnTerminal(command, ENVIRONMENT, before)
    try:
        code = terminal.wait(START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        code = f"no end in {START_TIMEOUT_S} s"
    wall_s = time.monotonic() - begin
    if code != 0:
        raise Problem(f"{task.name} on {served.variant.name}: {code}: {terminal.tail()}")
    return wall_s


def medians(starts):
    """One dictionary for each task and variant, in the order in which they came first."""
    groups = {}
    for one in starts:
        groups.setdefault((one["task"], one["variant"]), []).append(one)
    results = []
    for (task, variant), group in groups.items():
        numbers = [key for key, value in group[0].items() if isinstance(value, (int, float)) and key != "round"]
        result = {"task": task, "variant": variant, "starts": len(group)}
        result.update({key: statistics.median(one[key] for one in group) for key in numbers})
        result["disk_ms_lowest"] = min(one["disk_ms"] for one in group)
        result["disk_ms_highest"] = max(one["disk_ms"] for one in group)
        alike = [one["likeness"] for one in group if "likeness" in one]
        if alike:
            result["likeness"] = {key: statistics.median(one[key] for one in alike) for key in alike[0]}
        results.append(result)
    return results
