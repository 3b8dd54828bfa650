"""Traces as tables."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import dcd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def test_a_trace_is_read_as_it_is(trace: Path) -> None:
    table = dcd.read_trace(trace)
    assert table.schema == dcd.TRACE_SCHEMA
    table.validate(full=True)
    with trace.open() as file:
        rows = list(csv.DictReader(file))
    first_us = float(rows[0]["t_us"])
    for row, found in zip(rows, table.to_pylist(), strict=True):
        assert found["t_ns"] == round((float(row["t_us"]) - first_us) * 1000)
        assert [found[name] for name in ("dev", "off", "len", "fl")] == [int(row[name]) for name in ("dev", "off", "len", "fl")]
        assert found["op"] == row["op"]
        assert found["lat_ns"] == (round(float(row["lat_us"]) * 1000) if row["lat_us"] else None)
    assert dcd.read_trace(trace, requests=10).to_pylist() == table.slice(0, 10).to_pylist()
    ones = dcd.read_trace(trace, device=1)
    assert set(ones.column("dev").to_pylist()) == {1}
    assert 600 < ones.num_rows < 700


def test_columns_are_not_copied(trace: Path) -> None:
    table = dcd.read_trace(trace)
    buffer = table.column("off").chunk(0).buffers()[1]
    assert not buffer.is_mutable
    assert memoryview(buffer).nbytes == 8 * table.num_rows
    # The columns live as long as somebody looks at them.
    values = table.column("off").to_pylist()
    view = memoryview(buffer).cast("Q")
    del table, buffer
    assert view.tolist() == values


def test_parquet_goes_round(trace: Path, tmp_path: Path) -> None:
    table = dcd.read_trace(trace)
    path = tmp_path / "load.parquet"
    dcd.write_trace(trace, path)
    assert dcd.read_trace(path).equals(table)
    assert dcd.read_trace(path, device="2").equals(dcd.read_trace(trace, device=2))
    with pytest.raises(FileExistsError):
        dcd.write_trace(trace, path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(dcd.TraceError, match="cannot read the Parquet trace"):
        dcd.read_trace(path)


def test_tables_of_others_are_taken() -> None:
    plain = pa.table({"t_ns": [2_000_000, 1_000_000, 2_000_000], "op": ["W", "R", "F"], "off": [8192, 0, 0], "len": [4096, 512, 0], "what": ["a", "b", "c"]})
    requests = dcd.to_requests(plain)
    assert len(requests) == 3
    assert dcd.to_requests(requests) is requests
    # In order of time, those of one time as they were; times count from the first.
    assert dcd.read_trace(requests).to_pylist() == [
        {"t_ns": 0, "op": "R", "dev": 0, "off": 0, "len": 512, "fl": 0, "lat_ns": None},
        {"t_ns": 1_000_000, "op": "W", "dev": 0, "off": 8192, "len": 4096, "fl": 0, "lat_ns": None},
        {"t_ns": 1_000_000, "op": "F", "dev": 0, "off": 0, "len": 0, "fl": 0, "lat_ns": None},
    ]
    facts = dcd.simulate(requests, disk="hp-97560")
    assert (facts["reads"], facts["writes"], facts["flushes"]) == (1, 1, 1)
    # Pieces, parts of them, record batches, and types that only need another width.
    pieces = pa.concat_tables([plain.slice(1, 1), plain.slice(0, 1), plain.slice(2, 1)])
    assert dcd.read_trace(pieces).equals(dcd.read_trace(plain))
    assert dcd.read_trace(pieces.slice(1)).num_rows == 2
    assert dcd.read_trace(plain.to_batches()[0]).equals(dcd.read_trace(plain))
    small = plain.set_column(3, "len", plain.column("len").cast(pa.int16()))
    assert dcd.read_trace(small).equals(dcd.read_trace(plain))
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        other = plain.set_column(1, "op", plain.column("op").cast(kind))
        assert dcd.read_trace(other).equals(dcd.read_trace(plain))
    known = plain.append_column("lat_ns", pa.array([5, None, 7], pa.int64()))
    assert dcd.read_trace(known).column("lat_ns").to_pylist() == [None, 5, 7]
    assert dcd.read_trace({name: plain.column(name) for name in plain.column_names}).num_rows == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": ["X", "R"]}, "row 0: op: expected R, W, D or F"),
        ({"op": [1, 2]}, "column op: expected text"),
        ({"op": ["R", None]}, "row 1: op"),
        ({"off": [-1, 0]}, "column off: expected uint64"),
        ({"off": [None, 0]}, "column off: there are rows without a value"),
        ({"off": [2**64 - 1, 0]}, "row 0: len: the request ends beyond"),
        ({"len": [2**31, 0]}, "row 0: len: expected at most 1073741824 bytes"),
        ({"len": ["a", "b"]}, "column len: expected uint64"),
        ({"fl": [64, 0]}, "row 0: fl: expected a sum"),
        ({"t_ns": None}, "the table has no column t_ns"),
    ],
)
def test_wrong_tables_are_refused(change: dict[str, Any], message: str) -> None:
    columns: dict[str, Any] = {"t_ns": [0, 1], "op": ["R", "W"], "off": [0, 4096], "len": [4096, 4096], **change}
    arrays = {name: pa.array(values, pa.uint64() if name == "off" and 2**64 - 1 in values else None) for name, values in columns.items() if values is not None}
    with pytest.raises(dcd.TraceError) as caught:
        dcd.simulate(pa.table(arrays), disk="hp-97560")
    assert message in caught.value.message
    assert caught.value.hint


def test_generate() -> None:
    table = dcd.generate("uniform,requests=500,reads=0")
    assert table.num_rows == 500
    assert set(table.column("op").to_pylist()) == {"W"}
    assert dcd.generate("snake", requests=7).num_rows == 7


def test_stack_distances_are_those_of_a_list(load: pa.Table) -> None:
    curve = dcd.stack_distances(load, operations="writes")
    assert curve.schema.metadata == {b"sampled": b"1.0"}
    stack: list[int] = []
    found: dict[int, int] = {}
    asked = 0
    for row in load.to_pylist():
        if row["op"] != "W":
            continue
        for line in range(row["off"] // 4096, (row["off"] + row["len"] - 1) // 4096 + 1):
            asked += 1
            if line in stack:
                place = stack.index(line)
                del stack[place]
                found[place + 1] = found.get(place + 1, 0) + 1
            stack.insert(0, line)
    assert found
    assert asked > 1000
    sizes, ratios = curve.column("size_bytes").to_pylist(), curve.column("hit_ratio").to_pylist()
    assert ratios[-1] == pytest.approx(sum(found.values()) / asked, abs=1e-12)
    # Steps of 1/64: whoever has the size of a step has all that is in it.
    for size, ratio in zip(sizes, ratios, strict=True):
        exact = sum(count for distance, count in found.items() if distance * 4096 <= size) / asked
        assert ratio == pytest.approx(exact, abs=1e-12), size


def test_a_parquet_file_may_have_more(load: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "more.parquet"
    pq.write_table(load.append_column("note", pa.array(["x"] * load.num_rows)), path, compression="zstd")
    assert dcd.read_trace(path).equals(load)
