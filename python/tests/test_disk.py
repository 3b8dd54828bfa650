"""Disk models."""

from __future__ import annotations

import math
from pathlib import Path

import dcd
import pyarrow as pa
import pytest


def test_service_times_follow_the_arm() -> None:
    disk = dcd.Disk("hp-97560")
    assert disk.name == "hp-97560"
    assert disk.capacity_bytes == disk.facts["capacity_bytes"] == 1_374_683_136 or disk.capacity_bytes > 10**9
    first = disk.service_time("read", 0, 4096)
    assert disk.now_ms == pytest.approx(first)
    far = disk.service_time("read", disk.capacity_bytes // 2, 4096)
    again = disk.service_time("read", disk.capacity_bytes // 2, 4096)
    # What it has in its buffer needs no arm.
    assert far > 5 > again > 0
    disk.reset()
    assert disk.now_ms == 0
    assert disk.service_time("read", 0, 4096) == first
    assert disk.service_time("flush") >= 0
    disk.service_time("write", 4096, 512, at_ms=1e6)
    assert disk.now_ms > 1e6


def test_the_mean_seek_is_that_of_the_profile() -> None:
    disk = dcd.Disk("hp-97560", seed=4)
    step = disk.capacity_bytes // 1009 // 4096 * 4096
    times = [disk.service_time("write", step * (n * 523 % 1009), 4096) for n in range(1000)]
    facts = disk.facts
    half_turn = 60_000 / facts["rpm"] / 2
    # Controller, bus and the turn under 4 KiB are on top of arm and half a turn.
    expected = facts["mean_seek_ms"] + half_turn
    assert expected < sum(times) / len(times) < expected + 8


def test_an_ssd_has_a_seed() -> None:
    def times(seed: int) -> list[float]:
        disk = dcd.Disk("nvme-ssd", seed=seed)
        return [disk.service_time("read", n * 4096) for n in range(50)]

    assert times(1) == times(1) != times(2)
    assert all(0 < time < 10 for time in times(1))


def test_service_times_of_a_trace() -> None:
    rows = {"t_ns": [0, 10**9, 10**9 + 1], "op": ["R", "W", "D"], "off": [0, 10**9 // 4096 * 4096, 0], "len": [4096, 4096, 4096]}
    disk = dcd.Disk("hp-97560")
    times = disk.service_times(pa.table(rows))
    one = disk.service_time("read", 0, 4096)
    two = disk.service_time("write", 10**9 // 4096 * 4096, 4096, at_ms=1000)
    assert times.to_pylist() == [one, two, 0.0]


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "one of mine"\n[simple]\ncapacity_bytes = 1000000\nchannels = 1\nread_us = { median = 100, p99 = 200 }\n'
        "write_us = { median = 50, p99 = 60 }\nread_bytes_per_second = 1e9\nwrite_bytes_per_second = 1e9\n"
    )
    disk = dcd.Disk(path)
    assert disk.title == "one of mine"
    assert "one of mine" in repr(disk)
    assert disk.capacity_bytes <= 1_000_000
    assert dcd.simulate(workload="uniform,requests=100,span=500k", disk=path)["requests"] == 100
    path.write_text("title = 1")
    with pytest.raises(dcd.SettingError) as caught:
        dcd.Disk(path)
    assert caught.value.code == "profile"
    assert "mine.toml:1" in caught.value.message


def test_what_a_disk_refuses() -> None:
    disk = dcd.Disk("hp-97560")
    with pytest.raises(dcd.TraceError, match="reach beyond the disk"):
        disk.service_time("read", disk.capacity_bytes, 4096)
    with pytest.raises(dcd.TraceError, match="no bytes"):
        disk.service_time("read", 0, 0)
    with pytest.raises(dcd.SettingError, match="operation"):
        disk.service_time("erase")
    for at_ms in (-1.0, math.nan, math.inf, 1e13):
        with pytest.raises(dcd.SettingError, match="at_ms"):
            disk.service_time("read", at_ms=at_ms)
    disk.service_time("read", 0, at_ms=50)
    with pytest.raises(dcd.SettingError, match="busy until"):
        disk.service_time("read", 0, at_ms=50)
    with pytest.raises(OverflowError):
        disk.service_time("read", -1)
    with pytest.raises(TypeError):
        disk.service_time(1)  # type: ignore[arg-type]
