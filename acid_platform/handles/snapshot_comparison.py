"""What differs between two snapshots of a table: its rows by value, or how many changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from acid_platform.base.config import Settings
from acid_platform.engine.choice import Engines
from acid_platform.engine.interface import TableRead
from acid_platform.errors import UnknownColumn
from acid_platform.handles.read_verbs import Reads
from acid_platform.metastore.pasts import SnapshotName
from acid_platform.metastore.records import PastTable
from acid_platform.scan.change_scan import CHANGE_TYPE, DELETE, INSERT, POSTIMAGE
from acid_platform.scan.scans import Scan

_COUNT = "acid_count"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """Rows that only one of two snapshots has; a row that occurs n times more counts n times.

    A changed row counts as removed and as added.
    """

    table: str
    added: int
    removed: int
    only_before: tuple[str, ...]
    """Columns that only the earlier declaration has; they are not compared."""
    only_after: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    """Some of them: `change` (`+` or `-`), the columns, and `times`."""

    def __str__(self) -> str:
        text = f"{self.table}: {self.added} rows added, {self.removed} removed"
        for names, which in ((self.only_before, "before"), (self.only_after, "after")):
            if names:
                text += f"; only {which}, and not compared: {', '.join(names)}"
        return text


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Rows that were inserted, updated and deleted; `rows` are some of the changes."""

    table: str
    inserted: int
    updated: int
    deleted: int
    rows: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        return (
            f"{self.table}: {self.inserted} rows inserted, {self.updated} updated,"
            f" {self.deleted} deleted"
        )


def others_between(before: PastTable | None, after: PastTable | None) -> frozenset[str]:
    """The names that stand for different columns in two snapshots of a table; None is now."""
    pasts = sorted(filter(None, (before, after)), key=lambda past: past.pin.moment)
    return pasts[0].given_up_until(pasts[1] if len(pasts) > 1 else None) if pasts else frozenset()


def row_difference(
    engines: Engines,
    settings: Settings,
    before: Scan,
    after: Scan,
    table: str,
    limit: int,
    different: frozenset[str] = frozenset(),
) -> RowDifference:
    """Compares the columns that both snapshots have, without those of `different`, whose names mean
    others; `limit`: how many rows to show.

    Raises UnknownColumn without such a column, and as a GROUP BY of the columns does.
    """
    names, others = _columns(after), _columns(before)
    common = [name for name in names if name in others and name not in different]
    if not common:
        raise UnknownColumn(f"{table}: the two snapshots have no column in common")
    reads = {
        "acid_before": TableRead(before, tuple(common)),
        "acid_after": TableRead(after, tuple(common)),
    }
    columns = ", ".join(f"`{name}`" for name in common)
    differing = (
        f"SELECT {columns}, sum({_COUNT}) AS {_COUNT} FROM ("
        f"SELECT {columns}, 1 AS {_COUNT} FROM acid_after"
        f" UNION ALL SELECT {columns}, -1 AS {_COUNT} FROM acid_before) AS d"
        f" GROUP BY {columns} HAVING sum({_COUNT}) <> 0"
    )
    counts = engines.select(
        f"SELECT sum(CASE WHEN {_COUNT} > 0 THEN {_COUNT} ELSE 0 END) AS added,"
        f" sum(CASE WHEN {_COUNT} < 0 THEN -{_COUNT} ELSE 0 END) AS removed"
        f" FROM ({differing}) AS e",
        reads,
        settings,
    )
    ((added, removed),) = counts.collect()
    rows = engines.select(differing, reads, settings).to_arrow(limit).to_pylist() if limit else []
    return RowDifference(
        table,
        int(added or 0),
        int(removed or 0),
        tuple(name for name in others if name not in common),
        tuple(name for name in names if name not in common),
        tuple(_shown(row, common) for row in rows),
    )


def _columns(scan: Scan) -> list[str]:
    return [column.name for column in (*scan.columns, *scan.partition_columns)]


def _shown(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    times = row[_COUNT]
    values = {name: row[name] for name in columns}
    return {"change": "+" if times > 0 else "-", **values, "times": abs(times)}


def change_counts(
    table: Reads, since: SnapshotName | None, until: SnapshotName | None, limit: int
) -> ChangeCounts:
    """Counts all changes; `limit`: how many to show. Raises as `Reads.changes_arrow`."""
    counts: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    columns = None if limit else [CHANGE_TYPE]
    with table.changes_arrow(since, until, columns) as reader:
        for batch in reader:
            for counted in pc.value_counts(batch.column(CHANGE_TYPE)).to_pylist():
                counts[counted["values"]] += counted["counts"]
            rows += batch.slice(0, limit - len(rows)).to_pylist()
    return ChangeCounts(table.name, counts[INSERT], counts[POSTIMAGE], counts[DELETE], tuple(rows))
