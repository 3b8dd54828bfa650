"""The cases, by name. A case is a function that takes a `Guest`, and fails by raising `Failure`."""
import importlib
import os
import pkgutil

_CASES = {}


class Case:
    """One of them."""

    def __init__(self, name, function, timeout_s, is_quick=False, cuts=False, vhost_user=False, after=None):
        self.name = name
        self.function, self.timeout_s, self.is_quick, self.cuts = function, timeout_s, is_quick, cuts
        self.vhost_user, self.after = vhost_user, after
        self.about = (function.__doc__ or "").strip().splitlines()[0]


def case(timeout_s=300, is_quick=False, cuts=False, vhost_user=False, after=None):
    """Makes a case of a function. `cuts`: it asks for power cuts, and is called again after each, until it returns. `vhost_user`:
    its guest has a disk of a daemon on the host, which does what the guest asks for (`Guest.host`). `after`: what is to be done
    on the host when it has passed, with what it left there."""
    def add(function):
        name = f"{function.__module__.rsplit('.', 1)[1]}_{function.__name__}"
        one = Case(name, function, timeout_s, is_quick, cuts, vhost_user, after)
        _CASES[one.name] = one
        return function
    return add


def all_cases():
    """All, by name."""
    for module in pkgutil.iter_modules([os.path.dirname(__file__)]):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_CASES.items()))
