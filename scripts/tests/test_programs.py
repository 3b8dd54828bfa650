"""What a failed test program said is found among what it and others printed."""
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
