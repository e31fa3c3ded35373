"""The rows that differ between two snapshots of a table, compared by value (P36)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acid_platform.base.errors import UnknownColumn
from acid_platform.engine.reads import TableRead

if TYPE_CHECKING:
    from acid_platform.engine.results import Result
    from acid_platform.scan.scans import Scan

_COUNT = "acid_count"

Query = Callable[[str, "Mapping[str, TableRead]"], "Result"]
"""Runs a SELECT in Spark's SQL whose tables are the keys of the mapping."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that only one of two snapshots has; a row that occurs n times more counts n times.

    A changed row counts as removed and as added.
    """

    table: str
    added: int
    removed: int
    rows: tuple[dict[str, Any], ...]
    """Some of them: `change` (`+` or `-`), the columns, and `times`."""
    only_before: tuple[str, ...] = ()
    """Columns that only the earlier declaration has; they are not compared."""
    only_after: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.table}: {self.added} rows added, {self.removed} removed"
        for names, which in ((self.only_before, "before"), (self.only_after, "after")):
            if names:
                text += f"; only {which}, and not compared: {', '.join(names)}"
        return text

    def as_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "added": self.added,
            "removed": self.removed,
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "rows": list(self.rows),
        }


def difference(query: Query, table: str, before: Scan, after: Scan, limit: int) -> Difference:
    """Compares the columns that both snapshots have; `limit`: how many rows to show.

    Raises UnknownColumn without such a column, and as a GROUP BY of the columns does.
    """
    names, others = _columns(after), _columns(before)
    common = [name for name in names if name in others]
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
    counts = query(
        f"SELECT sum(CASE WHEN {_COUNT} > 0 THEN {_COUNT} ELSE 0 END) AS added,"
        f" sum(CASE WHEN {_COUNT} < 0 THEN -{_COUNT} ELSE 0 END) AS removed"
        f" FROM ({differing}) AS e",
        reads,
    )
    ((added, removed),) = counts.collect()
    rows = query(differing, reads).to_arrow(limit).to_pylist() if limit else []
    return Difference(
        table,
        int(added or 0),
        int(removed or 0),
        tuple(_shown(row, common) for row in rows),
        tuple(name for name in others if name not in names),
        tuple(name for name in names if name not in others),
    )


def _columns(scan: Scan) -> list[str]:
    return [column.name for column in (*scan.columns, *scan.partition_columns)]


def _shown(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    times = row[_COUNT]
    values = {name: row[name] for name in columns}
    return {"change": "+" if times > 0 else "-", **values, "times": abs(times)}
