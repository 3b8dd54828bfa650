"""Disk models."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa

from . import _dcd
from ._errors import SettingError
from ._progress import Progress, ProgressCallback
from ._trace import TraceLike, read_trace, to_requests


class Disk(_dcd.Disk):
    """A disk on simulated time: the name of a profile (``disks()``), or the path of a TOML file.

    ``service_time("read", offset, size)`` is how long a request takes, in milliseconds, when all
    before it are done: the arm is where the last one left it. ``at_ms`` lets it come later.
    ``seed`` chooses the angle of the platters at the beginning, and the times of disks without an
    arm. Queues, and caches in front, are for ``simulate()``.
    """

    def __new__(cls, profile: str | os.PathLike[str], seed: int = 0) -> Disk:
        name = os.fsdecode(profile) if isinstance(profile, os.PathLike) else profile
        if not isinstance(name, str):
            raise SettingError("setting", f"profile: expected a name or a path, found {type(name).__name__}")
        if not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise SettingError("setting", f"seed: expected a number from 0, found {seed!r}")
        return super().__new__(cls, name, seed)

    @property
    def facts(self) -> dict[str, Any]:
        """What follows from the profile, as ``dcd disk show --json`` tells it."""
        return dict(json.loads(self._facts()))

    def service_times(
        self, trace: TraceLike, *, progress: bool | ProgressCallback | None = None
    ) -> pa.Array:
        """How long each request of a trace takes by itself, in milliseconds, on a disk that has done nothing yet.

        Each comes when it does in the trace, or when the one before is done.
        """
        requests = to_requests(read_trace(trace, progress=False))
        with Progress(progress) as native:
            return pa.array(self._service_times(requests, native), pa.float64())

    def validate(
        self, trace: str | os.PathLike[str], *, progress: bool | ProgressCallback | None = None
    ) -> dict[str, Any]:
        """How far the model is from service times measured on a real drive, as ``dcd disk validate --json`` tells it."""
        with Progress(progress) as native:
            return dict(json.loads(self._validate(os.fsdecode(trace), native)))


def disks() -> pa.Table:
    """The profiles that come with dcd, and what follows from each."""
    return pa.Table.from_pylist(_with_all_names(json.loads(_dcd.disks())))


def _with_all_names(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {name: None for row in rows for name in row}
    return [{**names, **row} for row in rows]
