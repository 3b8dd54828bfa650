"""The simulator of dcd: disks, memory and logs in front of them, on traces of requests.

>>> import dcd
>>> dcd.simulate(workload="zipf,requests=1000", disk="hp-97560", nvram="256k")["requests"]
1000
"""

from __future__ import annotations

from . import _dcd
from ._dcd import Requests, __version__
from ._disk import Disk, disks
from ._errors import BugError, Error, SettingError, TraceError
from ._progress import ProgressCallback
from ._studies import Advice, advise, merge, simulate, stack_distances, sweep, trace_summary
from ._trace import TRACE_SCHEMA, TraceLike, generate, read_trace, to_requests, write_trace


def policies(setting: str = "policy") -> dict[str, str]:
    """What may be chosen for a setting, with a line about each: ``policy``, ``destage``, ``ack``, ``workload``."""
    found = dict(_dcd.choices(setting))
    if not found:
        raise SettingError(
            "setting", f"setting: nothing is chosen for {setting!r}", "policy, destage, ack or workload"
        )
    return found


def settings(study: str) -> dict[str, str]:
    """All settings of ``simulate``, ``sweep`` or ``advise``, with what each means."""
    found = {name: help for name, _, help in _dcd.settings(study)}
    if not found:
        raise SettingError("setting", f"study: there is no {study!r}", "simulate, sweep or advise")
    return found


__all__ = [
    "TRACE_SCHEMA",
    "Advice",
    "BugError",
    "Disk",
    "Error",
    "ProgressCallback",
    "Requests",
    "SettingError",
    "TraceError",
    "TraceLike",
    "__version__",
    "advise",
    "disks",
    "generate",
    "merge",
    "policies",
    "read_trace",
    "settings",
    "simulate",
    "stack_distances",
    "sweep",
    "to_requests",
    "trace_summary",
    "write_trace",
]
