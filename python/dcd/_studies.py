"""The studies: what ``dcd simulate``, ``sweep``, ``advise``, ``trace summary`` do, with the same settings."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from . import _dcd
from ._errors import Error, SettingError, make
from ._progress import Progress, ProgressCallback
from ._settings import words
from ._trace import TraceLike, resolve

_TEXT_COLUMNS = ("load", "disk", "policy", "groups_at_once", "hot_zone", "destage", "sequences", "settings", "error")


def _with_load(trace: TraceLike, settings: Mapping[str, Any]) -> tuple[dict[str, Any], _dcd.Requests | None]:
    if trace is not None:
        if "trace" in settings:
            raise SettingError("setting", "trace: it is given twice", "by its place, or by its name")
        settings = {"trace": trace, **settings}
    path, memory = resolve(settings.get("trace"), settings.get("format"))
    return {**settings, "trace": path}, memory


def _named(facts: dict[str, Any], trace: TraceLike) -> dict[str, Any]:
    """A file that was read here has its name all the same."""
    if facts.get("trace") == "in memory" and isinstance(trace, str | os.PathLike):
        facts["trace"] = os.fsdecode(trace)
    return facts


def simulate(
    trace: TraceLike = None,
    /,
    *,
    progress: bool | ProgressCallback | None = None,
    then: TraceLike = None,
    **settings: Any,
) -> dict[str, Any]:
    """Replays a trace, or a made-up ``workload``, on a disk model, in simulated time.

    Settings are those of ``dcd simulate`` with ``_`` for ``-``: ``disk`` is needed; sizes are
    numbers of bytes or texts (``"64M"``), times texts or timedeltas. What comes back is what
    ``dcd simulate --json`` prints.
    """
    settings, memory = _with_load(trace, settings)
    then_path, then_memory = resolve(then, settings.get("format"))
    if then_path is not None:
        settings["then"] = then_path
    with Progress(progress) as native:
        facts = json.loads(_dcd.simulate(words("simulate", settings), memory, then_memory, native))
    return _named(facts, settings["trace"])


def sweep(
    trace: TraceLike = None, /, *, progress: bool | ProgressCallback | None = None, **settings: Any
) -> pa.Table:
    """Simulates every combination of settings: those with several values span a grid.

    Settings are those of ``dcd sweep``; None in a list is the disk without one (``nvram=[None,
    "256k"]``). One row for each point, in the order of the grid, with the columns of the files that
    ``dcd sweep`` writes; ``error`` tells why a row has no results.
    """
    settings, memory = _with_load(trace, settings)
    with Progress(progress) as native:
        rows = json.loads(_dcd.sweep(words("sweep", settings), memory, native))
    return _table(list(rows[0]), _with_names(rows, settings["trace"]))


def merge(tables: Iterable[pa.Table], trace: TraceLike = None, /, **settings: Any) -> pa.Table:
    """Puts the tables of all shards of a sweep together, as one :func:`sweep` gives it.

    Trace and settings are those of the sweep, without ``shard``. As with ``dcd sweep --merge``, a
    row that is missing, there twice, or of another sweep is an error.
    """
    if "shard" in settings:
        raise SettingError("setting", "shard: what is put together is the whole sweep", "leave shard out")
    settings, memory = _with_load(trace, settings)
    columns, grid = _dcd.grid(words("sweep", settings), memory)
    labels = _with_names(json.loads(grid), settings["trace"])
    places = {tuple(row.values()): place for place, row in enumerate(labels)}
    found: dict[int, dict[str, Any]] = {}
    table_of: dict[int, int] = {}
    for number, table in enumerate(tables):
        if table.column_names != columns:
            raise make("shard", f"table {number}: these are not the columns of this sweep", _MERGE_HINT)
        for row in table.to_pylist():
            place = places.get(tuple(row[name] for name in labels[0]))
            if place is None:
                raise make("shard", f"table {number}: this row is not of this sweep: {_described(row, labels[0])}", _MERGE_HINT)
            if place in found:
                text = f"tables {table_of[place]} and {number} both have the row {_described(row, labels[0])}"
                raise make("shard", text, "give each shard once, and those of one number of shards only")
            found[place], table_of[place] = row, number
    missing = [place for place in range(len(labels)) if place not in found]
    if missing:
        first = _described(labels[missing[0]], labels[0])
        text = f"{len(missing)} of {len(labels)} rows are missing, the first is {first}"
        raise make("shard", text, "give the tables of all shards")
    return _table(columns, [found[place] for place in range(len(labels))])


_MERGE_HINT = "give the tables of this sweep's shards, and the settings that they were made with"


def _described(row: Mapping[str, Any], labels: Iterable[str]) -> str:
    return " ".join(f"{name}={row[name]}" for name in labels if row[name] is not None)


def _with_names(rows: list[dict[str, Any]], trace: TraceLike) -> list[dict[str, Any]]:
    """A file that was read here has its name all the same."""
    if isinstance(trace, str | os.PathLike):
        for row in rows:
            if row["load"] == "in memory":
                row["load"] = os.fsdecode(trace)
    return rows


def _table(names: list[str], rows: list[dict[str, Any]]) -> pa.Table:
    arrays = []
    for name in names:
        values = [row[name] for row in rows]
        if name in _TEXT_COLUMNS:
            kind = pa.string()
        elif any(isinstance(value, float) for value in values):
            kind = pa.float64()
        else:
            kind = pa.int64()
        arrays.append(pa.array(values, kind))
    return pa.Table.from_arrays(arrays, names=names)


class Advice(dict[str, Any]):
    """What ``dcd advise --json`` prints; ``page`` is the HTML page with plots."""

    page: str

    def __init__(self, facts: Mapping[str, Any], page: str) -> None:
        super().__init__(facts)
        self.page = page

    def __str__(self) -> str:
        recommendation = self["recommendation"]
        return "\n".join([recommendation["sentence"], *recommendation["details"]])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page; an earlier page of advice is overwritten, nothing else is."""
        beginning = _dcd.PAGE_BEGINNING
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                if file.read(len(beginning)) != beginning:
                    raise Error(
                        "file",
                        f"{os.fspath(path)} is there, and was not written by advise",
                        "nothing was changed; choose another path",
                    )
        except FileNotFoundError:
            pass
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page)


def advise(
    trace: TraceLike = None, /, *, progress: bool | ProgressCallback | None = None, **settings: Any
) -> Advice:
    """Tells what a log in front of ``disk`` would do for a load: one recommendation, which may be not to use one.

    Settings are those of ``dcd advise``, without ``live``, ``out``.
    """
    settings, memory = _with_load(trace, settings)
    with Progress(progress) as native:
        facts, page = _dcd.advise(words("advise", settings), memory, native)
    return Advice(json.loads(facts), page)


def trace_summary(
    trace: TraceLike = None,
    /,
    *,
    burst_gap: datetime.timedelta = datetime.timedelta(milliseconds=100),
    progress: bool | ProgressCallback | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """What a trace is like: mix, sizes, bursts, overwrites, working set, as ``dcd trace summary --json`` tells it.

    A silence of more than ``burst_gap`` ends a burst.
    """
    settings, memory = _with_load(trace, settings)
    gap_ns = burst_gap // datetime.timedelta(microseconds=1) * 1000
    if not 0 <= gap_ns < 2**63:
        raise SettingError("setting", f"burst_gap: expected a time from 0, found {burst_gap}")
    with Progress(progress) as native:
        facts = json.loads(_dcd.summary(words("load", settings), memory, gap_ns, native))
    return _named(facts, settings["trace"])


def stack_distances(
    trace: TraceLike = None,
    /,
    *,
    operations: str = "all",
    line_bytes: int = 4096,
    progress: bool | ProgressCallback | None = None,
    **settings: Any,
) -> pa.Table:
    """The share of lines that a least-recently-used memory finds, by its size, out of one reading.

    Columns ``size_bytes`` and ``hit_ratio``: a memory of that size or more, up to the next one,
    finds that share. ``operations``: ``all``, ``reads`` or ``writes``. Beyond two million lines a
    sample of them is followed; metadata ``sampled`` tells which share (``1.0``: all of it is exact).
    """
    settings, memory = _with_load(trace, settings)
    arguments = words("load", settings)
    if not isinstance(line_bytes, int) or not 0 <= line_bytes < 2**63:
        raise SettingError("setting", f"line_bytes: expected a power of two, found {line_bytes!r}")
    with Progress(progress) as native:
        sizes, ratios, sampled = _dcd.stack_distances(arguments, memory, str(operations), line_bytes, native)
    table = pa.table({"size_bytes": pa.array(sizes, pa.uint64()), "hit_ratio": pa.array(ratios, pa.float64())})
    return table.replace_schema_metadata({"sampled": str(sampled)})
