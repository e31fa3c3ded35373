"""How many rows of a table changed between two snapshots, and some of these changes (P39)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from acid_platform.scan.change_rows import CHANGE_TYPE, DELETE, INSERT, POSTIMAGE

if TYPE_CHECKING:
    from acid_platform.handles.table import Table


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

    def as_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "rows": list(self.rows),
        }


def change_counts(
    table: Table,
    since: int | datetime | str | None,
    until: int | datetime | str | None,
    limit: int,
) -> ChangeCounts:
    """Counts all changes; `limit`: how many to show. Raises as `Table.changes_arrow`."""
    counts: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    columns = None if limit else [CHANGE_TYPE]
    with table.changes_arrow(since, until, columns) as reader:
        for batch in reader:
            for counted in pc.value_counts(batch.column(CHANGE_TYPE)).to_pylist():
                counts[counted["values"]] += counted["counts"]
            rows += batch.slice(0, limit - len(rows)).to_pylist()
    return ChangeCounts(table.name, counts[INSERT], counts[POSTIMAGE], counts[DELETE], tuple(rows))
