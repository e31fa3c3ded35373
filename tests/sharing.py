"""Shares the tests between two processes: one gets all Spark tests, the other ones stay by file.

A plugin of pytest, named by the Makefile. Marks of xdist's own groups get lost with pytest 9.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent


@cache
def marked(file: str) -> frozenset[str]:
    """The functions of a file that have the mark `spark`; "pytestmark" if the whole file has it."""
    path = ROOT / file
    if path.suffix != ".py":
        return frozenset()
    names = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if _names_it(value):
                names.add(name)
            case ast.FunctionDef(name=name, decorator_list=marks) if any(map(_is_it, marks)):
                names.add(name)
    return frozenset(names)


def _is_it(mark: ast.expr) -> bool:
    return ast.unparse(mark) == "pytest.mark.spark"


def _names_it(value: ast.expr) -> bool:
    return any(_is_it(part) for part in ast.walk(value) if isinstance(part, ast.expr))


def share_of(node_id: str) -> str:
    """The group that must stay in one process: "spark", or the file.

    A parameter with the mark is told by its id, which contains `spark`.
    """
    file, _, test = node_id.partition("::")
    name, _, parameters = test.partition("[")
    if "spark" in parameters or {name, "pytestmark"} & marked(file):
        return "spark"
    return file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises UsageError for a Spark test that this module takes for another."""
    for item in items:
        if item.get_closest_marker("spark") and share_of(item.nodeid) != "spark":
            raise pytest.UsageError(f"{item.nodeid}: tests/sharing.py does not see its mark spark")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid)

    return Sharing(config, log)
