"""The cases that the guest runs for `make bench-peers`."""
import contextlib
import json
import os
import time

from ..cases import Case
from ..problem import Failure, Skip
from .disks import disks
from .setups import AGAIN, SETUPS, Stand
from .steady import is_steady
from .workloads import SCENARIOS, fio


def bench(guest):
    """All scenarios, in each all setups in turn; figures go to the directory shared with the host."""
    for program, package in (("fio", "fio"), ("dmsetup", "dmsetup"), ("mkfs.ext4", "e2fsprogs")):
        guest.need(program, package)
    guest.module("dm-mod")
    found = Found(guest)
    with disks(guest) as both:
        for name in guest.settings["scenarios"] or SCENARIOS:
            rounds(guest, name, both, found)


def rounds(guest, name, both, found):
    """Of one scenario: as many as were asked for, and more until medians are steady or there are enough."""
    scenario, settings = SCENARIOS[name], guest.settings
    setups = [setup for setup in settings["only"] or SETUPS if setup not in scenario.without]
    for number in range(max(settings["rounds"], settings["most_rounds"])):
        if number >= settings["rounds"] and is_steady(found.of(name), settings["steady"]):
            break
        guest.say(f"{name}: round {number + 1}")
        # Rounds begin with another one each, so that whatever drifts hits all alike.
        turn = number % len(setups)
        for setup in setups[turn:] + setups[:turn]:
            if not found.is_skipped(name, setup):
                with found.round(name, setup):
                    one_round(guest, name, setup, both, found)


def one_round(guest, name, setup, both, found):
    """A setup from nothing through the workloads of a scenario."""
    scenario = SCENARIOS[name]
    with contextlib.ExitStack() as stack:
        stand = Stand(guest, stack, *both)
        scenario.prepare(stand)
        peer = SETUPS[setup](stand)
        for workload, measure in scenario.workloads.items():
            if found.is_wanted(name, workload):
                with found.workload(name, workload):
                    found.add(scenario=name, setup=setup, workload=workload, **measure(stand, peer))


class Found:
    """Figures so far. Written after each, so that the host has them whatever happens."""

    def __init__(self, guest):
        self.path = os.path.join(guest.share, "peers.json")
        self.figures, self.skipped, self.workloads = [], {}, guest.settings["workload"]

    def add(self, **figure):
        self.figures.append(figure)
        self.write()

    def of(self, scenario):
        """The figures of one."""
        return [figure for figure in self.figures if figure["scenario"] == scenario]

    def is_wanted(self, scenario, workload):
        """Whether it was asked for, and can be measured here."""
        return f"{scenario}: {workload}" not in self.skipped and (not self.workloads or workload.startswith(tuple(self.workloads)))

    @contextlib.contextmanager
    def workload(self, scenario, workload):
        """One that lacks a program is left out of all setups."""
        try:
            yield
        except Skip as reason:
            self.skipped[f"{scenario}: {workload}"] = str(reason)

    def is_skipped(self, scenario, setup):
        return f"{scenario}: {setup}" in self.skipped

    @contextlib.contextmanager
    def round(self, scenario, setup):
        """One that fails leaves no more figures in this scenario, and the others go on."""
        try:
            yield
        except Skip as reason:
            self.skipped[f"{scenario}: {setup}"] = str(reason)
        except Failure as failure:
            self.skipped[f"{scenario}: {setup}"] = f"failed: {failure}"
        self.write()

    def write(self):
        with open(self.path + ".new", "w", encoding="utf-8") as out:
            json.dump({"figures": self.figures, "skipped": self.skipped}, out)
        os.rename(self.path + ".new", self.path)


def recovery(guest):
    """Dirty blocks, a power cut; then the time from the command that starts the cache to the first write that is durable."""
    setup = guest.settings["setup"]
    guest.need("fio", "fio")
    guest.module("dm-mod")
    with contextlib.ExitStack() as stack:
        stand = Stand(guest, stack)
        if guest.noted("cut") is None:
            peer = SETUPS[setup](stand)
            fio(stand, peer, "--rw=randwrite", "--iodepth=8", "--size=96M", f"--number_ios={guest.settings['dirty_blocks']}", "--end_fsync=1")
            guest.note("cut", True)
            guest.cut()
        begin = time.monotonic()
        path = AGAIN[setup](stand)
        file = os.open(path, os.O_WRONLY | os.O_DSYNC)
        os.pwrite(file, b"\x55" * 4096, 200 << 20)
        seconds = time.monotonic() - begin
        os.close(file)
        guest.note("seconds", seconds)


# As long as it says something now and then.
BENCH = Case("bench_peers", bench, timeout_s=1800)
RECOVERY = Case("bench_recovery", recovery, timeout_s=600, cuts=True)
