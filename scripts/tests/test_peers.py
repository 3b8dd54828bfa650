"""What `make bench-peers` computes of its figures, how it waits and reads the time, and its kernel's recipe: `scripts/test-scripts.sh`."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench_peers import report  # noqa: E402
from guest import kinds, machine, peers  # noqa: E402
from guest.cases import all_cases  # noqa: E402
from guest.peers import files, steady  # noqa: E402
from guest.problem import Failure, Skip  # noqa: E402
from guest.uml import kernel as uml_kernel  # noqa: E402
from guest.uml import machine as uml_machine  # noqa: E402


def figures(setup, values, workload="w"):
    """So many rounds of one setup."""
    return [{"scenario": "s", "setup": setup, "workload": workload, "per_second": value, "cpu_ms_each": value % 7} for value in values]


class Steady(unittest.TestCase):
    """Intervals of medians."""

    def test_intervals_are_those_of_the_binomial_distribution(self):
        """From tables of the sign test: the values that bound the median with at least 95 %."""
        for count, place in ((5, None), (6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (50, 18)):
            values = list(range(1, count + 1))
            self.assertEqual(steady.interval(reversed(values)), place and (place, count + 1 - place), count)

    def test_spread_is_a_part_of_the_median(self):
        """Of all values where there are too few."""
        self.assertAlmostEqual(steady.spread([100, 110, 90]), 0.2)
        self.assertAlmostEqual(steady.spread([1000, 99, 100, 101, 100, 100, 100, 100, 1]), 0.02)
        self.assertEqual(steady.spread([0, 0, 0]), 0)

    def test_one_that_varies_is_enough_to_go_on(self):
        """All setups must be steady; figures that are beside the point need not."""
        calm, wild = figures("dcd", [100, 101] * 3), figures("bcache", [100, 120] * 3)
        self.assertTrue(steady.is_steady(calm, 0.03))
        self.assertFalse(steady.is_steady(calm + wild, 0.03))
        self.assertFalse(steady.is_steady(calm[:5], 0.03), "five values are no interval")
        self.assertFalse(steady.is_steady([], 0.03))

    def test_the_figures_of_the_workloads_are_known(self):
        """A main figure without a column would be measured and never shown."""
        self.assertLessEqual(set(steady.MAIN), {key for key, *_ in report.COLUMNS})


class Report(unittest.TestCase):
    """Tables."""

    def test_a_cell_has_its_median_and_its_width(self):
        """And the line above says what that is."""
        found = {"figures": figures("dcd", [100, 200, 300]) + figures("bcache", [90, 100, 110]), "skipped": {}, "kernel": "1", "guest": "g", "model": "m"}
        text = report.markdown(found)
        self.assertIn("| dcd | 200 (100 %) |", text)
        self.assertIn("| bcache | 100 (20 %) |", text)
        self.assertIn("medians of 3 rounds", text)
        self.assertIn("all values", text)
        found["figures"] = figures("dcd", range(100, 106))
        self.assertNotIn("all values", report.markdown(found))

    def test_what_cannot_be_told_apart_is_neither_met_nor_missed(self):
        """Intervals that overlap say nothing; too few rounds have none, and are taken as they are."""
        def verdict(ours, theirs):
            found = [{**figure, "scenario": "programs"} for figure in figures("dcd", ours) + figures("bcache", theirs)]
            text = report.markdown({"figures": found, "skipped": {}, "kernel": "1", "model": "m"})
            return next(line for line in text.splitlines() if line.startswith("| w, best peer")).split(" | ")[-1].rstrip(" |")
        self.assertEqual(verdict(range(100, 106), range(103, 109)), "not told apart")
        self.assertEqual(verdict(range(120, 126), range(103, 109)), "met")
        self.assertEqual(verdict(range(90, 96), range(103, 109)), "**missed**")
        self.assertEqual(verdict([100], [99]), "met")

    def test_nothing_measured_is_said(self):
        """All setups may have been skipped."""
        found = {"figures": [], "skipped": {"s: dcd": "why"}, "kernel": "1", "model": "m"}
        self.assertIn("skipped: s: dcd: why", report.markdown(found))


class Wait(unittest.TestCase):
    """The end of a process."""

    def test_the_code_is_the_one_of_the_process(self):
        """Also of one that has ended before."""
        process = subprocess.Popen(["sh", "-c", "exit 3"])
        time.sleep(0.2)
        self.assertEqual(files.wait(process, 10), 3)
        self.assertEqual(files.wait(subprocess.Popen(["true"]), 10), 0)

    def test_one_that_does_not_end_is_killed(self):
        """After the time that it has."""
        begin = time.monotonic()
        self.assertEqual(files.wait(subprocess.Popen(["sleep", "60"]), 0.1), -9)
        self.assertLess(time.monotonic() - begin, 30)


class Kinds(unittest.TestCase):
    """What is tried where."""

    def test_cuts_are_for_a_whole_machine(self):
        """And said, not passed over."""
        cut = all_cases()["ublk_recovery_power_cut"]
        self.assertIn("power cuts", kinds.Uml().cannot(cut))
        self.assertIsNone(kinds.Qemu().cannot(cut))
        self.assertIn("power cuts", kinds.Uml().cannot(peers.RECOVERY))
        self.assertIsNone(kinds.Uml().cannot(peers.BENCH))
        self.assertIsNone(kinds.Uml().cannot(all_cases()["ublk_device_smoke"]))


class UmlKernel(unittest.TestCase):
    """Its recipe, and the clock that goes with it."""

    def test_what_is_missing_is_named_by_its_package(self):
        """All at once."""
        with mock.patch.object(uml_kernel.shutil, "which", lambda program: None if program in ("xz", "bison") else program):
            with self.assertRaises(Skip) as skip:
                uml_kernel.check_programs()
        self.assertIn("apt-get install bison xz-utils", str(skip.exception))

    def test_a_line_of_the_configuration_that_came_to_nothing_is_named(self):
        """The kernel's own rules drop what depends on something that is off."""
        with open(uml_kernel.CONFIG, encoding="utf-8") as file:
            lines = file.read().splitlines()
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as made:
            made.write("\n".join(line for line in lines if line != "CONFIG_BCACHE=y"))
            made.flush()
            with self.assertRaises(Failure) as failure:
                uml_kernel.check_config(made.name)
        self.assertEqual(str(failure.exception), "not in this kernel: CONFIG_BCACHE=y")

    def test_another_source_is_another_kernel(self):
        """Else the cache would go on with the old one."""
        other = uml_kernel.Source("p", "1", "0" * 64, "s")
        self.assertNotEqual(uml_kernel.recipe(uml_kernel.PINNED), uml_kernel.recipe(other))

    @unittest.skipUnless(shutil.which("gcc") and os.uname().machine == "x86_64", "no gcc here, or no time stamp counter")
    def test_the_clock_is_that_of_the_kernel(self):
        """Read before and after by somebody who asks the kernel; also by a program that has its rate from the one before."""
        with tempfile.TemporaryDirectory() as work:
            clock = uml_kernel.clock(work)
            script = "import os, subprocess, sys, time; time.sleep(0.05); print(time.monotonic(), time.time(), os.environ['GUEST_NS_PER_TICK'], flush=True)\n"
            script += "if len(sys.argv) < 2: subprocess.run([sys.executable, '-c', sys.orig_argv[2], 'again'], check=True)"
            before = time.monotonic(), time.time()
            told = subprocess.run([sys.executable, "-c", script], env={**os.environ, "LD_PRELOAD": clock}, capture_output=True, text=True, check=True).stdout
            after = time.monotonic(), time.time()
        first, second = (line.split() for line in told.splitlines())
        self.assertEqual(first[2], second[2])
        for one in (first, second):
            for which in (0, 1):
                self.assertTrue(before[which] - 0.005 < float(one[which]) < after[which] + 0.005, f"{before} {one} {after}")


class Program(machine.Machine):
    """A guest that is a shell."""

    def __init__(self, work, script):
        self.script = script
        super().__init__(None, work, {})

    def facts(self, kernel):
        return {}

    def words(self, kernel, accel, drives):
        return ["sh", "-c", self.script]


class Cut(unittest.TestCase):
    """Whose group is killed."""

    def cuts(self, script, use):
        """How often a group was killed, and whether its leader was still there to hold the number."""
        kills = []

        def killpg(group, sign):
            kills.append(os.path.exists(f"/proc/{group}"))
            killed(group, sign)

        killed = os.killpg
        with tempfile.TemporaryDirectory() as work, mock.patch("os.killpg", killpg):
            use(Program(work, script))
        return kills

    def test_a_guest_that_has_ended_is_not_reaped_before_its_group_is_killed(self):
        """Its number may be that of another group afterwards."""
        def ended(guest):
            self.assertTrue(machine.wait(lambda: not guest.is_running(), 20))
            guest.cut()
            guest.cut()
            self.assertFalse(guest.is_running())

        def off(guest):
            self.assertTrue(guest.wait_off(20))
            guest.cut()

        def hanging(guest):
            self.assertTrue(guest.is_running())
            self.assertFalse(guest.wait_off(0.2))
            self.assertFalse(guest.is_running())
            self.assertEqual(guest.process.returncode, -9)

        self.assertEqual([self.cuts("exit 0", ended), self.cuts("exit 0", off), self.cuts("sleep 60", hanging)], [[True]] * 3)


class Memory(unittest.TestCase):
    """Where the memory of User Mode Linux is."""

    def test_it_is_where_it_has_room(self):
        """Containers have 64 MiB of /dev/shm."""
        def found(rooms):
            with mock.patch("os.statvfs", lambda path: mock.Mock(f_bavail=rooms.get(path, 0) << 8, f_frsize=4096)), \
                 mock.patch("os.access", lambda *_: True), mock.patch("tempfile.gettempdir", lambda: "/t"):
                return uml_machine.memory_directory()

        self.assertEqual(found({"/dev/shm": 9000, "/t": 9000}), "/dev/shm")
        self.assertEqual(found({"/dev/shm": 64, "/t": 9000}), "/t")
        self.assertEqual(found({"/dev/shm": 64, "/var/tmp": 9000}), "/var/tmp")
        self.assertEqual(found({"/dev/shm": 64, "/t": 65}), "/t")


if __name__ == "__main__":
    unittest.main()
