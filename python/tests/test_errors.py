"""What is wrong is an exception with code, message and hint; nothing kills the interpreter."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dcd
import pytest

LOAD = "uniform,requests=100"


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"disk": "hp-97560", "nvrm": 1}, "setting", ["nvrm: there is no such setting", "did you mean nvram?"]),
        ({"disk": "hp-97560", "json": True}, "setting", ["json: there is no such setting"]),
        ({"disk": "hp-97560", "live": "/dev/sda"}, "setting", ["live: there is no such setting"]),
        ({}, "setting", ["disk", "give it by its name"]),
        ({"disk": "no-such"}, "profile", ["there is no disk profile `no-such`", "dcd disk list"]),
        ({"disk": "/nowhere.toml"}, "profile", ["/nowhere.toml: cannot read the disk profile"]),
        ({"disk": "hp-97560", "nvram": "5q"}, "setting", ["'5q'", "'nvram'", "4k"]),
        ({"disk": "hp-97560", "nvram": -1}, "setting", ["'-1'"]),
        ({"disk": "hp-97560", "nvram": 0}, "setting", ["expected 512 bytes to 1T"]),
        ({"disk": "hp-97560", "nvram": "1m", "policy": "clock"}, "setting", ["'clock'", "policy", "lru"]),
        ({"disk": "hp-97560", "policy": "lru"}, "setting", ["nvram"]),
        ({"disk": "hp-97560", "nvram": "1m", "idle": 5}, "setting", ["idle", "5"]),
        ({"disk": "hp-97560", "nvram": "1m", "hot_zone": "10"}, "setting", ["hot_zone is only for policy stack", "leave hot_zone out"]),
        ({"disk": "hp-97560", "nvram": "1m", "high": 101}, "setting", ["101"]),
        ({"disk": "hp-97560", "cache_disk": "64k"}, "setup", ["cache_disk"]),
        ({"disk": "hp-97560", "cache_disk": "8M", "segment": "100k"}, "setup", ["segment"]),
        ({"disk": "hp-97560", "cache_disk": "8M", "sequences": "detect"}, "setting", ["sequences", "read_area"]),
        ({"disk": "hp-97560", "closed_loop": 1}, "setting", ["closed_loop: expected True or False, found int"]),
        ({"disk": "hp-97560", "closed_loop": True, "stretch": 2}, "setting", ["closed_loop", "stretch"]),
        ({"disk": "hp-97560", "stretch": float("nan")}, "setting", ["stretch", "above 0"]),
        ({"disk": ["hp-97560"]}, "setting", ["disk: expected a text, a number, a timedelta or a path, found list"]),
        ({"disk": b"hp-97560"}, "setting", ["found bytes"]),
        ({"disk": "hp\0"}, "setting", ["NUL"]),
        ({"disk": "hp-97560", "device": "1,2,3"}, "setting", ["device"]),
        ({"disk": "hp-97560", "format": "hp"}, "setting", ["format"]),
        ({"disk": "hp-97560", "seed": 2**64}, "setting", ["seed"]),
        ({"disk": "hp-97560", "cache_disk": "1P"}, "setup", ["cache_disk"]),
        ({"disk": "hp-97560", "cache_disk": "64M", "segment_buffers": 2**32 - 1}, "setting", ["segment_buffers"]),
    ],
)
def test_wrong_settings(settings: dict[str, Any], code: str, words: list[str]) -> None:
    with pytest.raises(dcd.SettingError) as caught:
        dcd.simulate(workload=LOAD, **settings)
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.code == code, error
    for word in words:
        assert word in str(error), error
    assert "--" not in error.message, "flags are told as names"
    assert "\n" not in error.message


def test_wrong_shards(trace: Path) -> None:
    grid: dict[str, Any] = {"disk": "hp-97560", "nvram": ["64k", "128k", "256k", "512k", "1m"], "device": 0}
    tables = [dcd.sweep(trace, **grid, shard=f"{index}/2") for index in range(2)]

    def refused(given: list[Any], words: list[str], **settings: Any) -> None:
        with pytest.raises(dcd.SettingError) as caught:
            dcd.merge(given, trace, **{**grid, **settings})
        assert caught.value.code in ("shard", "setting")
        for word in words:
            assert word in str(caught.value), caught.value

    refused([], ["5 of 5 rows are missing", "nvram_bytes=65536", "tables of all shards"])
    refused(tables[:1], ["2 of 5 rows are missing"])
    refused([*tables, tables[0]], ["tables 0 and 2 both have the row", "each shard once"])
    refused([*tables, dcd.sweep(trace, **grid)], ["tables 0 and 2 both have the row"])
    refused(tables, ["table 0: this row is not of this sweep"], disk="wd-4tb")
    # No column tells these.
    refused(tables, ["table 0: this row is not of this sweep"], seed=1)
    refused(tables, ["table 0: this row is not of this sweep"], device=None)
    refused(tables, ["1 of 6 rows are missing", "nvram_bytes=2097152"], nvram=[*grid["nvram"], "2m"])
    refused(tables, ["5 of 10 rows are missing"], cache_disk=["64M", None])
    refused([tables[0].drop_columns(["disk_writes"]), tables[1]], ["table 0: these are not the columns"])
    refused(tables, ["leave shard out"], shard="0/2")
    refused(tables, ["there is no such setting"], nvrm="1m")


def test_wrong_loads(tmp_path: Path) -> None:
    def refused(kind: type[dcd.Error], code: str, message: str, *arguments: Any, **settings: Any) -> None:
        with pytest.raises(kind) as caught:
            dcd.simulate(*arguments, disk="hp-97560", **settings)
        assert caught.value.code == code
        assert message in caught.value.message, caught.value

    refused(dcd.SettingError, "setting", "required")
    refused(dcd.SettingError, "setting", "workload", "load.csv", workload=LOAD)
    refused(dcd.SettingError, "setting", "no workload is called `nothing`", workload="nothing")
    refused(dcd.TraceError, "trace", "load.csv: cannot read the trace", tmp_path / "load.csv")
    refused(dcd.TraceError, "trace", "cannot read the trace", tmp_path)
    (tmp_path / "empty.csv").write_text("t_us,op,off,len\n")
    refused(dcd.TraceError, "trace", "no requests", tmp_path / "empty.csv")
    (tmp_path / "bad.csv").write_text("t_us,op,off,len\n1,R,0,512\n2,Q,0,512\n")
    refused(dcd.TraceError, "trace", "bad.csv:3:", tmp_path / "bad.csv")
    (tmp_path / "far.csv").write_text("t_us,op,off,len\n1,R,0,512\n2,R,99999999999999,512\n")
    refused(dcd.TraceError, "request", "far.csv:3:5: address: 512 bytes at", tmp_path / "far.csv")
    refused(dcd.TraceError, "request", "request 2 of the trace in memory: address", dcd.read_trace(tmp_path / "far.csv"))
    refused(dcd.TraceError, "trace", "there are no requests", dcd.read_trace(tmp_path / "far.csv", requests=1), device=7)
    refused(dcd.TraceError, "trace", "found object", object())
    refused(dcd.TraceError, "trace", "found int", 5)
    refused(dcd.SettingError, "setting", "trace: it is given twice", "load.csv", trace="load.csv")
    with pytest.raises(dcd.SettingError, match="expected a power of two"):
        dcd.stack_distances(workload=LOAD, line_bytes=1000)
    with pytest.raises(dcd.SettingError, match="expected reads, writes or all"):
        dcd.stack_distances(workload=LOAD, operations="both")
    with pytest.raises(dcd.SettingError, match="burst_gap"):
        dcd.trace_summary(workload=LOAD, burst_gap=-datetime.timedelta(1))
    with pytest.raises(dcd.SettingError, match="expected one value"):
        dcd.sweep(workload=LOAD, disk=[])
    with pytest.raises(dcd.SettingError, match="more shards than rows"):
        dcd.sweep(workload=LOAD, disk="hp-97560", shard="1/2")
    with pytest.raises(dcd.SettingError, match="nothing is chosen"):
        dcd.policies("disk")
    # What only one row cannot have is told in that row.
    rows = dcd.sweep(workload=LOAD, disk="hp-97560", cache_disk=["4M", "8G"]).to_pylist()
    assert rows[0]["error"] is None
    assert rows[1]["error"]
    assert rows[1]["requests"] is None


def test_a_panic_is_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native part panics where its own settings are not kept: a watcher that raises, and a model that is asked in the past."""
    for _ in range(3):
        with pytest.raises(dcd.BugError) as caught:
            dcd._dcd._panic("on purpose")
        assert caught.value.code == "bug"
        assert "on purpose" in caught.value.message
        assert "studies.rs" in caught.value.message
    assert dcd.simulate(workload=LOAD, disk="hp-97560")["requests"] == 100


LONG = "zipf,requests=100000000,span=1g"


def _studies() -> list[Callable[[Any], Any]]:
    return [
        lambda progress: dcd.simulate(workload=LONG, disk="hp-97560", closed_loop=True, progress=progress),
        lambda progress: dcd.simulate(workload=LONG, disk="wd-4tb", cache_disk="64M", closed_loop=True, progress=progress),
        lambda progress: dcd.sweep(workload=LONG, disk="hp-97560", nvram=["256k", "512k"], stretch=0, progress=progress),
        lambda progress: dcd.advise(workload=LONG, disk="hp-97560", progress=progress),
        lambda progress: dcd.stack_distances(workload=LONG, progress=progress),
        lambda progress: dcd.generate(LONG, progress=progress),
    ]


@pytest.mark.parametrize("number", range(len(_studies())))
def test_ctrl_c_ends_a_study(number: int) -> None:
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _studies()[number](False)
    timer.join()
    assert time.monotonic() - started < 5
    assert dcd.simulate(workload=LOAD, disk="hp-97560")["requests"] == 100


def test_progress_is_told_and_may_end_it() -> None:
    told: list[tuple[str, int, int]] = []
    dcd.simulate(workload="zipf,requests=400000,span=1g", disk="hp-97560", closed_loop=True, progress=lambda *seen: told.append(seen))
    assert {what for what, _, _ in told} == {"simulating"}
    done = [done for _, done, _ in told]
    assert done == sorted(done)
    assert told[-1][1:] == (told[-1][2], told[-1][2])

    class EnoughError(Exception):
        pass

    def enough(what: str, done: int, total: int) -> None:
        if done > 0:
            raise EnoughError

    for study in _studies()[:2]:
        with pytest.raises(EnoughError):
            study(enough)


def test_a_bar_of_tqdm(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    dcd.simulate(workload="zipf,requests=200000,span=1g", disk="hp-97560", closed_loop=True, progress=True)
    assert "simulating" in capfd.readouterr().err
    dcd.simulate(workload=LOAD, disk="hp-97560", progress=False)
    dcd.simulate(workload=LOAD, disk="hp-97560")
    assert capfd.readouterr().err == ""


def test_python_goes_on_meanwhile() -> None:
    """Other threads run while a study does, and studies run beside each other."""
    results: list[Any] = []

    def study() -> None:
        results.append(dcd.simulate(workload="zipf,requests=300000,span=1g,seed=2", disk="hp-97560", closed_loop=True, progress=False))

    threads = [threading.Thread(target=study) for _ in range(2)]
    for thread in threads:
        thread.start()
    rounds = 0
    while any(thread.is_alive() for thread in threads):
        rounds += 1
        time.sleep(0.001)
    assert rounds > 20
    assert results[0] == results[1]


def test_the_interpreter_may_end_while_a_study_runs() -> None:
    program = (
        "import sys, threading, time, dcd\n"
        f"threading.Thread(target=lambda: dcd.simulate(workload={LONG!r}, disk='hp-97560', closed_loop=True), daemon=True).start()\n"
        "time.sleep(float(sys.argv[1])); print('end')\n"
    )
    # The study asks for the interpreter now and then: the end has to meet that.
    for milliseconds in range(50, 250, 8):
        command = [sys.executable, "-c", program, str(milliseconds / 1000)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stdout) == (0, "end\n"), (milliseconds, done.stderr)


def test_the_example_of_the_package() -> None:
    import doctest

    found = doctest.testmod(dcd)
    assert (found.failed, found.attempted) == (0, 2)
