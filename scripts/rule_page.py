"""The rules of docs/internal/rules.md as values.

tests/docs/test_rules.py holds the page, the code and the tests to each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "internal" / "rules.md"
_ROW = re.compile(r"\| \*\*(?P<id>[A-Z]\d{1,2})\*\* \| (?P<text>.+) \|")


@dataclass(frozen=True, slots=True)
class Rule:
    """What the platform guarantees, where that is enforced, and which tests prove it."""

    id: str
    sentence: str
    places: tuple[str, ...]
    """Modules in acid_platform, or `<module>: Class.function` in them; each names the id."""
    tests: tuple[str, ...]
    """Names of test functions; each has the id in its name or docstring."""


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """What Hive does under this number, and why it is not done here."""

    id: str
    reason: str


def entries(page: str) -> list[Rule | NotBuilt]:
    """The rows of the page in their order. Raises ValueError for a row that is not understood."""
    found: list[Rule | NotBuilt] = []
    for line in page.splitlines():
        if not line.startswith("| **"):
            continue
        row = _ROW.fullmatch(line)
        cells = [cell.strip() for cell in row["text"].split(" | ")] if row else []
        match row, cells:
            case re.Match(), [reason]:
                found.append(NotBuilt(row["id"], reason))
            case re.Match(), [sentence, places, tests]:
                found.append(Rule(row["id"], sentence, _codes(places), _codes(tests)))
            case _:
                raise ValueError(f"docs/internal/rules.md: not a row of rules: {line}")
    return found


def _codes(cell: str) -> tuple[str, ...]:
    return tuple(part.strip("`") for part in cell.split("<br>"))
