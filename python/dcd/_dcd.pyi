from collections.abc import Callable
from typing import Self, final

from typing_extensions import Buffer, disjoint_base

__all__ = [
    "PAGE_BEGINNING",
    "Column",
    "Disk",
    "Requests",
    "__version__",
    "_panic",
    "advise",
    "choices",
    "disks",
    "grid",
    "read",
    "settings",
    "simulate",
    "stack_distances",
    "summary",
    "sweep",
]

__version__: str
PAGE_BEGINNING: str

_Progress = Callable[[int, str, bool, int, int], object] | None

@final
class Column(Buffer): ...

@final
class Requests:
    def __new__(
        cls,
        times: Buffer,
        operations: Buffer,
        devices: Buffer,
        offsets: Buffer,
        sizes: Buffer,
        flags: Buffer,
        latencies: Buffer,
    ) -> Self: ...
    def __len__(self) -> int: ...

@disjoint_base
class Disk:
    def __new__(cls, profile: str, seed: int = 0) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def capacity_bytes(self) -> int: ...
    @property
    def now_ms(self) -> float: ...
    def reset(self) -> None: ...
    def service_time(
        self, operation: str, offset: int = 0, size: int = 4096, *, at_ms: float | None = None
    ) -> float: ...
    def _facts(self) -> str: ...
    def _service_times(self, requests: Requests, progress: _Progress) -> list[float]: ...
    def _validate(self, trace: str, progress: _Progress) -> str: ...

def settings(verb: str) -> list[tuple[str, str, str]]: ...
def choices(setting: str) -> list[tuple[str, str]]: ...
def disks() -> str: ...
def read(
    words: list[str], memory: Requests | None, limit: int | None, progress: _Progress
) -> tuple[int, list[Column]]: ...
def simulate(words: list[str], memory: Requests | None, then: Requests | None, progress: _Progress) -> str: ...
def sweep(words: list[str], memory: Requests | None, progress: _Progress) -> str: ...
def grid(words: list[str], memory: Requests | None) -> tuple[list[str], str]: ...
def advise(words: list[str], memory: Requests | None, progress: _Progress) -> tuple[str, str]: ...
def summary(words: list[str], memory: Requests | None, burst_gap_ns: int, progress: _Progress) -> str: ...
def stack_distances(
    words: list[str], memory: Requests | None, operations: str, line_bytes: int, progress: _Progress
) -> tuple[list[int], list[float], float]: ...
def _panic(text: str) -> None: ...
