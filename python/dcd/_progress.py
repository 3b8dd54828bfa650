"""Progress: a bar of tqdm where somebody looks, or whatever is called."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

#: Called with what is done ("simulating"), how much of it is, and how much there is; the last may be 0, if it is not known.
ProgressCallback = Callable[[str, int, int], object]
Native = Callable[[int, str, bool, int, int], object]


def _somebody_looks() -> bool:
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class _Bar:
    """A bar for each stage."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._stage = 0
        self._bar: Any = None

    def __call__(self, stage: int, what: str, is_bytes: bool, done: int, total: int) -> None:
        if stage != self._stage:
            self.close()
            self._stage = stage
            self._bar = self._tqdm(
                desc=what, total=total or None, unit="B" if is_bytes else "", unit_scale=is_bytes, leave=False
            )
        if total and self._bar.total != total:
            self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Progress:
    """What the native part calls, for a ``with``."""

    def __init__(self, wanted: bool | ProgressCallback | None) -> None:
        self._bar: _Bar | None = None
        self.native: Native | None = None
        if callable(wanted):
            callback = wanted
            self.native = lambda stage, what, is_bytes, done, total: callback(what, done, total)
        elif wanted or (wanted is None and _somebody_looks()):
            try:
                with warnings.catch_warnings():
                    # Without ipywidgets it is a bar of text.
                    warnings.simplefilter("ignore")
                    from tqdm.auto import tqdm
            except ImportError:
                if wanted:
                    raise
                return
            self.native = self._bar = _Bar(tqdm)

    def __enter__(self) -> Native | None:
        return self.native

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
