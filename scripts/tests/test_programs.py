"""What a failed test program said is found among what it and others printed."""
import contextlib
import io
import os
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

PATH = Path(__file__).resolve().parents[1] / "test-programs"
loader = SourceFileLoader("test_programs_script", str(PATH))
spec = spec_from_loader(loader.name, loader)
assert spec
programs = module_from_spec(spec)
loader.exec_module(programs)

SAID = """running 3 tests
test one_that_holds ... ok

thread 'one_that_fails' (12) panicked at tests/main.rs:40:9:
assertion `left == right` failed: dcd dhisfs mount: slow
  left: Some(1)
 right: Some(0)
stack backtrace:
   0: __rustc::rust_begin_unwind
test one_that_fails ... FAILED
test another_that_holds ... ok
"""


class Panics(unittest.TestCase):
    def test_the_reason_is_said_without_frames(self) -> None:
        self.assertEqual(programs.panics(SAID), [
            "thread 'one_that_fails' (12) panicked at tests/main.rs:40:9:",
            "assertion `left == right` failed: dcd dhisfs mount: slow",
            "  left: Some(1)",
            " right: Some(0)",
            "test one_that_fails ... FAILED",
        ])

    def test_a_long_reason_is_cut(self) -> None:
        long = "thread 'x' panicked at a.rs:1:1:\n" + "y" * 5000 + "\n" + "z\n" * 100
        said = programs.panics(long)
        self.assertEqual(len(said), programs.PANIC_LINES)
        self.assertLessEqual(max(map(len, said)), programs.PANIC_COLUMNS)

    def test_nothing_is_said_of_what_holds(self) -> None:
        self.assertEqual(programs.panics("test a ... ok\n"), [])


def runs(directory: str, *scripts: tuple[str, str]) -> "programs.Runs":
    """What becomes of programs; each is the text of a shell script."""
    found = []
    for number, (package, script) in enumerate(scripts):
        path = os.path.join(directory, f"p{number}")
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)
        found.append(programs.Program(package, f"p{number}", path, directory))
    ran = programs.Runs(found)
    for computes in (True, False):
        ran.run_lane(computes)
    ran.run_again()
    return ran


FAILS = "echo; echo test a ... FAILED; echo test result: FAILED. 0 passed; exit 101"


class Again(unittest.TestCase):
    def ran(self, *scripts: tuple[str, str]) -> "programs.Runs":
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
            return runs(directory, *scripts)

    def test_what_holds_alone_is_flaky_and_counted_once(self) -> None:
        once = f"if [ -e been ]; then echo; echo test result: ok. 1 passed; exit; fi; touch been; {FAILS}"
        ran = self.ran(("dcd", once), ("dcd", "exit 0"))
        self.assertEqual((len(ran.flaky), ran.failed), (1, []))
        self.assertEqual(ran.flaky[0][1], ["exit code 101", "test a ... FAILED"])

    def test_what_fails_twice_has_failed(self) -> None:
        ran = self.ran(("dcd", FAILS))
        self.assertEqual((ran.flaky, len(ran.failed)), ([], 1))

    def test_what_computes_has_no_second_run(self) -> None:
        once = f"if [ -e been ]; then exit; fi; touch been; {FAILS}"
        ran = self.ran(("dcd-engine", once))
        self.assertEqual((ran.flaky, len(ran.failed)), ([], 1))

    def test_a_first_run_is_not_counted(self) -> None:
        text = "running 1 test\ntest a ... FAILED\n\ntest result: FAILED. 0 passed; 1 failed\n"
        self.assertNotRegex(programs.once(text), r"(?m)^test result:|FAILED$")
