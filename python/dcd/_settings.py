"""Keywords as words of the command line, which the native part reads as ``dcd`` itself does."""

from __future__ import annotations

import datetime
import difflib
import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _dcd
from ._errors import SettingError


@functools.cache
def kinds(verb: str) -> Mapping[str, str]:
    """What each setting of a verb takes: ``flag``, ``value``, ``values``, ``repeated``."""
    return {name: kind for name, kind, _ in _dcd.settings(verb)}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime.timedelta):
        microseconds = value // datetime.timedelta(microseconds=1)
        return f"{microseconds}us"
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    # Numbers of numpy and the like.
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return _text(name, item())
    expected = "a text, a number, a timedelta or a path"
    raise SettingError("setting", f"{name}: expected {expected}, found {type(value).__name__}")


def _several(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes | os.PathLike) or not isinstance(value, Iterable):
        return [value]
    values = list(value)
    if not values:
        raise SettingError("setting", f"{name}: expected one value at least, found none")
    return values


def words(verb: str, settings: Mapping[str, Any]) -> list[str]:
    """The words of the command line for those settings."""
    known = kinds(verb)
    found: list[str] = []
    for name, value in settings.items():
        kind = known.get(name)
        if kind is None:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "settings are: " + ", ".join(known)
            raise SettingError("setting", f"{name}: there is no such setting", hint)
        flag = "--" + name.replace("_", "-")
        if kind == "values":
            if value is not None:
                texts = ["none" if it is None else _text(name, it) for it in _several(name, value)]
                found.append(f"{flag}={','.join(texts)}")
        elif value is None:
            continue
        elif kind == "flag":
            if not isinstance(value, bool):
                raise SettingError(
                    "setting", f"{name}: expected True or False, found {type(value).__name__}"
                )
            if value:
                found.append(flag)
        elif kind == "repeated":
            found += [f"{flag}={_text(name, it)}" for it in _several(name, value)]
        else:
            found.append(f"{flag}={_text(name, value)}")
    if any("\0" in word for word in found):
        raise SettingError("setting", "a setting has a NUL character in it")
    return found
