"""Traces as Arrow tables, and back."""

from __future__ import annotations

import os
import stat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import _dcd
from ._dcd import Requests
from ._errors import SettingError, TraceError
from ._progress import Progress, ProgressCallback
from ._settings import words

#: Columns of a trace, those of traces as Parquet: docs/traces.md tells what they mean.
TRACE_SCHEMA = pa.schema(
    [
        pa.field("t_ns", pa.uint64(), nullable=False),
        pa.field("op", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("dev", pa.uint32(), nullable=False),
        pa.field("off", pa.uint64(), nullable=False),
        pa.field("len", pa.uint64(), nullable=False),
        pa.field("fl", pa.uint8(), nullable=False),
        pa.field("lat_ns", pa.uint64()),
    ]
)
_OPERATIONS = pa.array(["R", "W", "D", "F"])
_LATENCY_UNKNOWN = 2**64 - 1
_HINT = "docs/traces.md has the columns; read_trace() makes such a table"


def _of_columns(given: tuple[int, list[_dcd.Column]]) -> pa.Table:
    count, columns = given
    times, operations, devices, offsets, sizes, flags, latencies, known = (pa.py_buffer(column) for column in columns)

    def plain(kind: pa.DataType, values: pa.Buffer) -> pa.Array:
        return pa.Array.from_buffers(kind, count, [None, values])

    arrays = [
        plain(pa.uint64(), times),
        pa.DictionaryArray.from_arrays(plain(pa.int8(), operations), _OPERATIONS),
        plain(pa.uint32(), devices),
        plain(pa.uint64(), offsets),
        plain(pa.uint64(), sizes),
        plain(pa.uint8(), flags),
        pa.Array.from_buffers(pa.uint64(), count, [known, latencies]),
    ]
    return pa.Table.from_arrays(arrays, schema=TRACE_SCHEMA)


#: A file, a table with the columns of a trace (pyarrow, pandas, polars: whatever Arrow takes), or :class:`Requests`.
TraceLike = Any


def to_requests(table: TraceLike) -> Requests:
    """Requests of a table, checked and in order of time, for several studies: each takes them as its trace.

    ``dev``, ``fl`` and ``lat_ns`` may be missing, other columns are not looked at.
    """
    if isinstance(table, Requests):
        return table
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif not isinstance(table, pa.Table):
        try:
            table = pa.table(table)
        except (TypeError, ValueError, pa.ArrowException) as problem:
            kind = type(table).__name__
            raise TraceError("trace", f"expected a path or a table, found {kind}: {problem}", _HINT) from None
    missing = [name for name in ("t_ns", "op", "off", "len") if name not in table.column_names]
    if missing:
        raise TraceError("trace", f"the table has no column {missing[0]}", _HINT)

    def column(name: str, kind: pa.DataType, unknown: int | None) -> memoryview:
        if name not in table.column_names:
            values = pa.repeat(pa.scalar(unknown, kind), table.num_rows)
        else:
            try:
                values = pc.cast(table.column(name), kind)
            except pa.ArrowException as problem:
                raise TraceError("trace", f"column {name}: expected {kind}: {problem}", _HINT) from None
            if values.null_count:
                if unknown is None or name != "lat_ns":
                    raise TraceError("trace", f"column {name}: there are rows without a value", _HINT)
                values = pc.fill_null(values, unknown)
        return _view(values, kind)

    operations = table.column("op")
    if pa.types.is_dictionary(operations.type):
        operations = pc.cast(operations, operations.type.value_type)
    try:
        places = pc.index_in(operations, value_set=_OPERATIONS.cast(operations.type))
    except pa.ArrowException:
        raise TraceError("trace", f"column op: expected text, found {operations.type}", _HINT) from None
    # Whatever is none of them is refused below, with its row.
    places = pc.cast(pc.fill_null(places, 255), pa.uint8())
    return Requests(
        column("t_ns", pa.uint64(), None),
        _view(places, pa.uint8()),
        column("dev", pa.uint32(), 0),
        column("off", pa.uint64(), None),
        column("len", pa.uint64(), None),
        column("fl", pa.uint8(), 0),
        column("lat_ns", pa.uint64(), _LATENCY_UNKNOWN),
    )


def _view(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> memoryview:
    """The numbers of a column where they lie."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], kind)
    size = kind.bit_width // 8
    buffer = values.buffers()[1]
    start, end = values.offset * size, (values.offset + len(values)) * size
    view = memoryview(b"" if buffer is None else buffer).cast("B")[start:end]
    return view.cast("B") if size == 1 else view.cast("I") if size == 4 else view.cast("Q")


def _is_parquet(path: str | os.PathLike[str]) -> bool:
    try:
        with open(path, "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(4) == b"PAR1"
    except OSError:
        # The native part says what is wrong.
        return False


def resolve(trace: TraceLike, format: object = None) -> tuple[str | os.PathLike[str] | None, Requests | None]:
    """What a trace is called, and its requests if they are in memory."""
    if trace is None:
        return None, None
    if not isinstance(trace, str | os.PathLike):
        return "in memory", to_requests(trace)
    if format in (None, "parquet") and _is_parquet(trace):
        names = list(TRACE_SCHEMA.names)
        try:
            file = pq.ParquetFile(trace)
            table = file.read(columns=[name for name in names if name in file.schema_arrow.names])
        except (pa.ArrowException, OSError) as problem:
            raise TraceError("trace", f"{os.fspath(trace)}: cannot read the Parquet trace: {problem}", _HINT) from None
        return trace, to_requests(table)
    return trace, None


def _read(
    settings: dict[str, object],
    memory: Requests | None,
    requests: int | None,
    progress: bool | ProgressCallback | None,
) -> pa.Table:
    if requests is not None and (not isinstance(requests, int) or requests < 0):
        raise SettingError("setting", f"requests: expected a number, found {requests!r}")
    with Progress(progress) as native:
        return _of_columns(_dcd.read(words("load", settings), memory, requests, native))


def read_trace(
    trace: TraceLike,
    *,
    format: str | None = None,
    device: int | str | None = None,
    requests: int | None = None,
    progress: bool | ProgressCallback | None = None,
) -> pa.Table:
    """Reads a trace of any of the formats of ``docs/traces.md`` into a table, or its first ``requests``.

    ``format`` and ``device`` are those of the command line. The table has the columns of
    :data:`TRACE_SCHEMA`.
    """
    path, memory = resolve(trace, format)
    return _read({"trace": path, "format": format, "device": device}, memory, requests, progress)


def generate(
    workload: str, *, requests: int | None = None, progress: bool | ProgressCallback | None = None
) -> pa.Table:
    """Makes up a trace: ``NAME[,KEY=VALUE...]``, as ``docs/workloads.md`` describes them."""
    return _read({"workload": workload}, None, requests, progress)


def write_trace(trace: TraceLike, path: str | os.PathLike[str]) -> None:
    """Writes a trace as Parquet, which builds of ``dcd`` with Parquet read, too; ``path`` must not exist."""
    table = read_trace(trace, progress=False)
    operations = table.column("op").cast(pa.string())
    table = table.set_column(1, pa.field("op", pa.string(), nullable=False), operations)
    with open(path, "xb") as file:
        pq.write_table(table, file, compression="snappy")
