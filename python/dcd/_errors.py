"""What can go wrong: a code for programs, a message, and what to do."""

from __future__ import annotations


class Error(Exception):
    """Something was not as it must be.

    ``code`` is a word that stays, for programs; ``message`` and ``hint`` are for people, and may
    change.
    """

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(code, message, hint)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class SettingError(Error, ValueError):
    """A setting that is not known, has a wrong value, or does not go with the others."""


class TraceError(Error, ValueError):
    """A trace that cannot be read, or a request in it that the disk cannot have."""


class BugError(Error, RuntimeError):
    """A mistake of dcd itself. The interpreter is unharmed."""


_CLASSES: dict[str, type[Error]] = {
    "setting": SettingError,
    "profile": SettingError,
    "workload": SettingError,
    "setup": SettingError,
    "bound": SettingError,
    "sequences": SettingError,
    "shard": SettingError,
    "trace": TraceError,
    "request": TraceError,
    "bug": BugError,
}


def make(code: str, message: str, hint: str | None = None) -> Error:
    """The exception of a code."""
    return _CLASSES.get(code, Error)(code, message, hint)
