"""Writes docs/tables.md from the objects that the code decides with.

Run `python -m scripts.print_tables` after a change of them; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from acid_platform.config import HONOURED, NO_EFFECT, REFUSED, TABLE_PROPERTIES
from acid_platform.transactions import Operation
from acid_platform.transactions.conflicts import CONFLICTING
from acid_platform.transactions.locks import (
    WAITS,
    LockSettings,
    LockType,
    Statement,
    lock_of,
)

TARGET = Path(__file__).resolve().parents[1] / "docs" / "tables.md"

_HEAD = """\
# Tables that decide

Printed from the code by `python -m scripts.print_tables`; a test fails when this page is older than
the code.
"""


def render() -> str:
    """The whole page."""
    parts = [
        _HEAD,
        "## Which lock waits for which\n",
        "Row: the lock that is asked for. Column: the lock that is held.\n",
        _matrix([one.name for one in LockType], [
            ["waits" if WAITS[asked, held] else "" for held in LockType] for asked in LockType]),
        "Two locks meet only on the same database, and there on the same table and partition, where"
        " one that names none meets all. A SHARED_READ of a whole database waits for, and holds"
        " back, other locks of the database only.\n",
        "## What a statement asks for\n",
        "`xlock.write` is the setting `hive.txn.xlock.write`. With `hive.txn.xlock.iow` false, an"
        " INSERT OVERWRITE takes EXCL_WRITE; with `hive.txn.xlock.mergeinsert` the inserts of a"
        " MERGE count as updates. Reads of a DataFrame take no lock: they hold a lease.\n",
        _table(("statement", "lock", "with xlock.write", "recorded as"), _statements()),
        "## Which commits conflict\n",
        "Row: mine. Column: what another transaction committed to the same partition since mine"
        " was opened. INSERT OVERWRITE and TRUNCATE count as update.\n",
        _matrix([one.name for one in Operation], [
            ["conflict" if CONFLICTING[mine, theirs] else "" for theirs in Operation]
            for mine in Operation]),
        "Besides: whatever has a write id below that of a committed overwrite of the same"
        " partition conflicts with it, an insert too, since the new base would hide it.\n",
        "## Settings that are honoured\n",
        _table(("setting", "default", "allowed"),
               [(_code(one.name), _code(one.default), one.allowed) for one in HONOURED]),
        "Table properties that are honoured: "
        + ", ".join(map(_code, TABLE_PROPERTIES)) + ", `orc.compress`.\n",
        "## Settings that are accepted without effect\n",
        _table(("setting", "default", "why nothing follows"),
               [(_code(one.name), _code(one.default), one.reason) for one in NO_EFFECT]),
        "## Settings that are refused unless they have the one value\n",
        _table(("setting", "value", "why"),
               [(_code(one.name), _code(one.default), one.reason) for one in REFUSED]),
    ]
    return "\n".join(parts)


def _statements() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in Statement:
        lock, operation = lock_of(one)
        strict, _ = lock_of(one, LockSettings(xlock_write=True))
        rows.append((one.value, lock.name, strict.name, operation.name))
    return rows


def _matrix(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _table(("", *names), [
        (f"**{name}**", *row) for name, row in zip(names, rows, strict=True)])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
                     for line in lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    TARGET.write_text(render())
