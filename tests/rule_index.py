"""What both rule indexes share: a rule has a test of its name, or the reason why it has none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """There is no such thing here, for this reason."""

    reason: str


@cache
def names() -> frozenset[str]:
    """Of all test functions of the repository."""
    return frozenset(
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    )


def numbered(letter: str, last: int) -> list[str]:
    return [f"{letter}{number}" for number in range(1, last + 1)]


def named(test: str) -> set[str]:
    """The rules in a test's name; `C13_to_C21` stands for all from 13 to 21."""
    found = set(test.split("_"))
    for low, high in re.findall(r"C(\d+)_to_C(\d+)", test):
        found |= {f"C{number}" for number in range(int(low), int(high) + 1)}
    return found


def require_test(of: str, found: str | NotBuilt) -> None:
    """The test is there, or the reason is a sentence."""
    if isinstance(found, NotBuilt):
        assert len(found.reason) > 20
    else:
        assert found in names(), f"{of}: there is no {found}"


def require_named(rule: str, found: str | NotBuilt) -> None:
    """As require_test, and the test's name has the rule's number."""
    require_test(rule, found)
    if not isinstance(found, NotBuilt):
        assert rule in named(found), f"{found} does not name {rule}"
