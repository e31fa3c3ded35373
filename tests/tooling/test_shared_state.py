"""No thread adds to a value of another one: `total += …` reads, computes and stores apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "acid_platform"
ON_ONE_THREAD = {"gateway/gateway_server.py: self.counters.failed_logins"}
"""Run by the gateway's event loop, which has one thread."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def additions(source: str) -> Iterator[str]:
    """The targets of `+=` and the like in functions inside of functions that are not their own.

    Such a function is what a pool of threads is given.
    """

    def visit(node: ast.AST, around: tuple[Function, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield from visit(child, (*around, child))
                continue
            if isinstance(child, ast.AugAssign) and len(around) > 1:
                base: ast.expr = child.target
                while isinstance(base, ast.Subscript | ast.Attribute):
                    base = base.value
                shared = base is not child.target or _is_nonlocal(around[-1], base)
                if shared and isinstance(base, ast.Name) and base.id not in _own(around[-1]):
                    yield ast.unparse(child.target)
            yield from visit(child, around)

    yield from visit(ast.parse(source), ())


def _own(function: Function) -> set[str]:
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    outer = {
        name for node in ast.walk(function) if isinstance(node, ast.Nonlocal) for name in node.names
    }
    return (stored | {one.arg for one in function.args.args}) - outer


def _is_nonlocal(function: Function, base: ast.expr) -> bool:
    return isinstance(base, ast.Name) and any(
        base.id in node.names for node in ast.walk(function) if isinstance(node, ast.Nonlocal)
    )


@pytest.mark.more
def test_nothing_is_added_to_what_threads_share() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {target}"
        for path in PACKAGE.rglob("*.py")
        for target in additions(path.read_text())
    }
    assert found - ON_ONE_THREAD == set()
    assert found >= ON_ONE_THREAD, "an exception that is no longer needed"


@pytest.mark.parametrize(
    "line", ["found[place] += 1", "found.rows += 1", "nonlocal found\n        found += 1"]
)
def test_such_an_addition_is_seen(line: str) -> None:
    outer = "def outer(found, place):\n    def work():\n"
    assert list(additions(f"{outer}        {line}\n"))
    assert not list(additions(f"{outer}        found = []\n        found[0] += 1\n"))
