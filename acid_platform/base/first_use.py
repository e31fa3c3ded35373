"""Packages whose modules are loaded when one of their names is first used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def names_in(package: str, *modules: str) -> Callable[[str], Any]:
    """A package's `__getattr__`: looks for a name in one of its modules after the other, and loads
    no more of them than it has to."""

    def look_for(name: str) -> Any:
        if not name.startswith("_"):
            for module in modules:
                names = vars(import_module(f"{package}.{module}"))
                if name in names:
                    return vars(import_module(package)).setdefault(name, names[name])
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return look_for
