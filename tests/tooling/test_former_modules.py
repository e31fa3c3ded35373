"""What was built on modules of 0.1.0 finds their contents."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

from acid_platform.base import former_modules
from acid_platform.base.former_modules import _modules


def test_each_former_module_names_modules_that_are_there() -> None:
    for former, now in _modules().items():
        assert importlib.util.find_spec(f"acid_platform.{former}").loader.__class__ is (
            former_modules.FormerModules
        ), f"{former} is a module again: take it out"
        for name in now:
            spec = importlib.util.find_spec(f"acid_platform.{name}")
            assert spec and not isinstance(spec.loader, former_modules.FormerModules), former


@pytest.mark.parametrize(
    ("former", "name", "now"),
    [
        ("gateway.users", "add", "gateway.logins"),
        ("gateway.sasl", "client_opening", "gateway.framing"),
        ("gateway.shapes", "STORAGE", "gateway.protocol"),
        ("orc.tail", "stripes", "formats.orc.tail"),
        ("metastore.operations.history", "GetCursors", "metastore.operations.tables"),
    ],
)
def test_a_former_module_has_the_names_of_what_holds_them_now(
    former: str, name: str, now: str
) -> None:
    sys.modules.pop(f"acid_platform.{former}", None)
    with pytest.warns(DeprecationWarning, match=f"acid_platform.{former} is a part of .*{now}"):
        module = importlib.import_module(f"acid_platform.{former}")
    assert getattr(module, name) is getattr(importlib.import_module(f"acid_platform.{now}"), name)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from acid_platform.{former} import nothing")


def test_other_names_are_unknown_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"acid_platform\.nothing"):
        importlib.import_module("acid_platform.nothing")
