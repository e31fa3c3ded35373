"""The code reads each setting that is honoured (P9)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import acid_platform
from acid_platform.base.config import HONOURED, setting

SOURCES = sorted(Path(acid_platform.__file__).parent.rglob("*.py"))

ONE_VALUE = {"hive.txn.manager"}
"""Settings with a single allowed value: there is nothing to read."""


def read_names(tree: ast.Module) -> Iterator[str]:
    """Patterns of the texts in the code, without docstrings and without the declarations."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        declared = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Setting"
        if docstring or declared:
            skipped |= {id(part) for part in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"[\w.]+"
                for part in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            yield re.escape(node.value)


@pytest.mark.more
def test_P9_an_honoured_setting_is_read_somewhere() -> None:
    patterns = {
        pattern
        for path in SOURCES
        for pattern in read_names(ast.parse(path.read_text()))
        if pattern.startswith(("hive", "acid"))
    }
    names = {entry.name for entry in HONOURED} - ONE_VALUE
    unread = {name for name in names if not any(re.fullmatch(part, name) for part in patterns)}
    assert unread == set(), "nobody reads these"


@pytest.mark.parametrize("name", sorted(ONE_VALUE))
def test_P9_a_setting_of_one_value_refuses_every_other(name: str) -> None:
    assert len(setting(name).choices) == 1
