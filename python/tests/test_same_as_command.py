"""What Python gives is what the command gives for the same settings, number for number."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dcd
import pyarrow as pa
import pyarrow.csv as pv
import pytest

ZIPF = "zipf,requests=4000,rate=60,span=512m,seed=5"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, []),
        ({"nvram": "256k"}, ["--nvram", "256k"]),
        ({"nvram": "64k", "policy": "lru", "bound": True}, ["--nvram", "64k", "--policy", "lru", "--bound"]),
        ({"nvram": 262144, "policy": "stack", "hot_zone": "25"}, ["--nvram", "256k", "--policy", "stack", "--hot-zone", "25"]),
        (
            {"nvram": "1m", "policy": "wstf", "high": 80, "low": 30, "idle": datetime.timedelta(milliseconds=5), "age_max": "3s"},
            ["--nvram", "1m", "--policy", "wstf", "--high", "80", "--low", "30", "--idle", "5ms", "--age-max", "3s"],
        ),
        (
            {"cache_disk": "64M", "cache_disk_profile": "sata-ssd", "ack": "durable", "destage": "lifo", "seed": 9},
            ["--cache-disk", "64M", "--cache-disk-profile", "sata-ssd", "--ack", "durable", "--destage", "lifo", "--seed", "9"],
        ),
        (
            {"cache_disk": "512M", "read_area": "128M", "one_disk": True, "hot_blocks": True, "closed_loop": True},
            ["--cache-disk", "512M", "--read-area", "128M", "--one-disk", "--hot-blocks", "on", "--closed-loop"],
        ),
        (
            {"cache_disk": "512M", "read_area": "128M", "sequences": "detect", "passes": 3, "stretch": 2.5, "requests": 1500},
            ["--cache-disk", "512M", "--read-area", "128M", "--sequences", "detect", "--passes", "3", "--stretch", "2.5", "--requests", "1500"],
        ),
    ],
)
def test_simulate(settings: dict[str, Any], words: list[str], command: Callable[..., Any]) -> None:
    found = dcd.simulate(workload=ZIPF, disk="hp-97560", **settings)
    assert found == command("simulate", "--workload", ZIPF, "--disk", "hp-97560", *words)
    assert found["requests"] == min(4000, settings.get("requests", 4000))


def test_simulate_a_trace(trace: Path, command: Callable[..., Any]) -> None:
    words = ["simulate", "--trace", str(trace), "--device", "1", "--disk", "wd-4tb", "--cache-disk", "32M"]
    expected = command(*words)
    found = dcd.simulate(trace, device=1, disk="wd-4tb", cache_disk="32M")
    assert found == expected
    # The same requests out of memory, and out of a file of Parquet, whose name is told.
    table = dcd.read_trace(trace)
    found = dcd.simulate(table, device="1", disk="wd-4tb", cache_disk="32M")
    assert found == {**expected, "trace": "in memory"}
    parquet = trace.with_suffix(".parquet")
    dcd.write_trace(table, parquet)
    found = dcd.simulate(trace=parquet, device=1, disk="wd-4tb", cache_disk="32M")
    assert found == {**expected, "trace": str(parquet)}


def test_sequences_with_another_start(trace: Path, command: Callable[..., Any], load: pa.Table, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    lines = trace.read_text().splitlines()
    other.write_text("\n".join([lines[0], *lines[500:1500]]) + "\n")
    caches = ["--cache-disk", "256M", "--read-area", "64M", "--device", "0", "--sequences", "record-then-replay"]
    expected = command("simulate", "--trace", str(trace), "--then", str(other), "--disk", "wd-4tb", "--closed-loop", *caches)
    settings: dict[str, Any] = {
        "disk": "wd-4tb", "closed_loop": True, "cache_disk": "256M", "read_area": "64M", "device": 0, "sequences": "record-then-replay"
    }
    assert dcd.simulate(trace, then=other, **settings) == expected
    found = dcd.simulate(dcd.read_trace(trace), then=dcd.read_trace(other), **settings)
    assert found == {**expected, "trace": "in memory"}


def test_sweep(command: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    words = ["--disk", "hp-97560,wd-4tb", "--nvram", "none,128k,256k", "--policy", "lru,auto,stack", "--hot-zone", "auto,50", "--stretch", "0,1"]
    expected = command("sweep", "--workload", ZIPF, "--workload", "uniform,requests=500", *words, "--out", str(out))
    found = dcd.sweep(
        workload=[ZIPF, "uniform,requests=500"],
        disk=["hp-97560", "wd-4tb"],
        nvram=[None, "128k", 262144],
        policy=["lru", "auto", "stack"],
        hot_zone=["auto", 50],
        stretch=[0, 1],
        jobs=2,
    )
    assert found.to_pylist() == expected["rows"]
    assert found.num_rows == 2 * 2 * 2 * (1 + 2 * 4)
    # The types are those of the columns, whatever rows there are.
    assert found.schema.field("hot_zone").type == pa.string()
    assert found.schema.field("disk_writes").type == pa.int64()
    # Out of the file they are the same numbers.
    read = pv.read_csv(out)
    assert read.column("write_response_ms").to_pylist() == found.column("write_response_ms").to_pylist()


def test_shards(trace: Path, command: Callable[..., Any], tmp_path: Path) -> None:
    # "none" has no results of the memory, and those of a memory are numbers and fractions: types are those of all rows.
    grid: dict[str, Any] = {"disk": ["hp-97560", "wd-4tb"], "nvram": [None, "128k"], "policy": ["lru", "stack"], "device": 0, "stretch": [1, 0.5]}
    words = ["--disk", "hp-97560,wd-4tb", "--nvram", "none,128k", "--policy", "lru,stack", "--device", "0", "--stretch", "1,0.5"]
    expected = command("sweep", "--trace", str(trace), *words, "--out", str(tmp_path / "one.csv"))["rows"]
    assert dcd.sweep(trace, **grid).to_pylist() == expected
    parquet = trace.with_suffix(".merge.parquet")
    dcd.write_trace(dcd.read_trace(trace), parquet)
    for load in (trace, parquet, dcd.read_trace(trace)):
        whole = dcd.sweep(load, **grid)
        for count in (1, 3, 12):
            tables = [dcd.sweep(load, **grid, shard=f"{index}/{count}") for index in range(count)]
            assert sum(table.num_rows for table in tables) == 12
            assert dcd.merge(reversed(tables), load, **grid).equals(whole)
    loads = [ZIPF, "uniform,requests=500"]
    tables = [dcd.sweep(workload=loads, disk="hp-97560", nvram=["64k", "1m"], shard=f"{index}/2") for index in range(2)]
    assert dcd.merge(tables, workload=loads, disk="hp-97560", nvram=["64k", "1m"]).equals(
        dcd.sweep(workload=loads, disk="hp-97560", nvram=["64k", "1m"])
    )


def test_advise(command: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "advice.html"
    words = ["--disk", "wd-4tb", "--cache-disk", "16M,64M", "--cache-disk-profile", "sata-ssd", "--ack", "memory,durable"]
    expected = command("advise", "--workload", ZIPF, *words, "--out", str(page))
    found = dcd.advise(workload=ZIPF, disk="wd-4tb", cache_disk=["16M", "64M"], cache_disk_profile="sata-ssd", ack=["memory", "durable"])
    assert expected.pop("page") == str(page)
    assert found == expected
    assert found.page == page.read_text()
    assert found["recommendation"]["sentence"] in str(found)
    saved = tmp_path / "mine.html"
    found.save(saved)
    found.save(saved)
    assert saved.read_text() == found.page
    saved.write_text("something else")
    with pytest.raises(dcd.Error, match="was not written by advise") as caught:
        found.save(saved)
    assert caught.value.code == "file"
    assert saved.read_text() == "something else"


def test_trace_summary(trace: Path, command: Callable[..., Any]) -> None:
    expected = command("trace", "summary", str(trace), "--burst-gap", "1ms")
    gap = datetime.timedelta(milliseconds=1)
    assert dcd.trace_summary(trace, burst_gap=gap) == expected
    # A table has no format.
    assert expected.pop("format") == "csv"
    assert dcd.trace_summary(dcd.read_trace(trace), burst_gap=gap) == {**expected, "trace": "in memory"}


def test_disks(command: Callable[..., Any], tmp_path: Path) -> None:
    listed = command("disk", "list")
    found = dcd.disks().to_pylist()
    assert [{name: value for name, value in row.items() if value is not None} for row in found] == listed
    assert dcd.Disk("wd-4tb").facts == command("disk", "show", "wd-4tb")
    measured = tmp_path / "measured.csv"
    rows = ["op,blkno_512,bcount_512,measured_us,next_inter_us"]
    rows += [f"{'RW'[n % 2]},{n * 100_003 % 2_000_000},16,{12_000 + n * 7},20000" for n in range(200)]
    measured.write_text("\n".join(rows) + "\n")
    expected = command("disk", "validate", "--disk", "hp-97560", "--trace", str(measured))
    assert dcd.Disk("hp-97560").validate(measured) == expected
    assert expected["requests"] == 200


def test_names_are_those_of_the_command(command: Callable[..., Any]) -> None:
    for study in ("simulate", "sweep", "advise"):
        assert {"disk", "cache_disk", "workload", "format"} <= set(dcd.settings(study))
        assert all(dcd.settings(study)[name] for name in ("disk", "cache_disk")), study
    assert set(dcd.policies()) == {"auto", "lru", "fifo", "stf", "wstf", "lst", "stack", "age-size", "gds"}
    for policy in dcd.policies():
        facts = dcd.simulate(workload="uniform,requests=200", disk="hp-97560", nvram="64k", policy=policy)
        assert facts["requests"] == 200
    assert set(dcd.policies("destage")) == {"fifo", "lifo", "least-valid", "ordered"}
    assert set(dcd.policies("ack")) == {"memory", "log", "durable"}
    for workload in dcd.policies("workload"):
        assert dcd.generate(f"{workload},requests=50" if workload != "users" else "users", requests=50).num_rows == 50
