"""The rows of a past snapshot: how they differ from those of another, by value or by how many
changed, and a rollback, which makes them those of the present."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from acid_platform.base.config import Settings
from acid_platform.engine.choice import Engines
from acid_platform.engine.interface import TableRead
from acid_platform.errors import CompactionRefused, UnknownColumn, UnsupportedStatement
from acid_platform.formats.file_access import refuse_finer
from acid_platform.handles.read_verbs import Reads
from acid_platform.handles.row_statements import RowStatement, require_writable
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.layout.types import TIMESTAMPS, Column, parse_type
from acid_platform.metastore.pasts import AsOf, SnapshotName
from acid_platform.metastore.records import PastTable, TableRecord
from acid_platform.scan.change_scan import CHANGE_TYPE, DELETE, INSERT, POSTIMAGE
from acid_platform.scan.open import select_entities
from acid_platform.scan.scans import Scan
from acid_platform.tables.declaration import wider
from acid_platform.tables.record_layout import all_columns_of
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import Statement

COUNT = "acid_count"
"""The column of `differing_rows` that says how often."""
_SOURCE = "acid_source"
"""The name of the table in the query that copies rows of one."""


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
    names, others = column_names(after), column_names(before)
    common = [name for name in names if name in others and name not in different]
    if not common:
        raise UnknownColumn(f"{table}: the two snapshots have no column in common")
    reads = compared(before, after, common)
    differing = differing_rows(common)
    counts = engines.select(
        f"SELECT sum(CASE WHEN {COUNT} > 0 THEN {COUNT} ELSE 0 END) AS added,"
        f" sum(CASE WHEN {COUNT} < 0 THEN -{COUNT} ELSE 0 END) AS removed"
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


def compared(before: Scan, after: Scan, columns: Sequence[str]) -> dict[str, TableRead]:
    """What `differing_rows` reads."""
    return {
        "acid_before": TableRead(before, tuple(columns)),
        "acid_after": TableRead(after, tuple(columns)),
    }


def differing_rows(columns: Sequence[str]) -> str:
    """The query of the rows that differ, each with how many more times `acid_after` has it, which
    is below zero if the other one has."""
    names = ", ".join(f"`{name}`" for name in columns)
    return (
        f"SELECT {names}, sum({COUNT}) AS {COUNT} FROM ("
        f"SELECT {names}, 1 AS {COUNT} FROM acid_after"
        f" UNION ALL SELECT {names}, -1 AS {COUNT} FROM acid_before) AS d"
        f" GROUP BY {names} HAVING sum({COUNT}) <> 0"
    )


def column_names(scan: Scan) -> list[str]:
    return [column.name for column in (*scan.columns, *scan.partition_columns)]


def _shown(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    times = row[COUNT]
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


@dataclass(frozen=True, slots=True, eq=False)
class RollBackRows(RowStatement[int]):
    """Writes.rollback_to: overwrites the partitions that differ from then.

    The rows of then (P36) are copied into new bases, which Hive and others read as any overwrite.
    Partitions that no commit has touched since stay as they are.
    """

    as_of: AsOf

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        require_writable(record)
        view = work.view
        request = view.request(record.name, as_of=self.as_of)
        _require_types(request.table, record)
        own, then = all_columns_of(record), {each.name for each in all_columns_of(request.table)}
        if gone := sorted(then - {each.name for each in own}):
            raise UnknownColumn(
                f"{record.name} had the column {gone[0]} then, and has none of this name now; read"
                " the rows of then, and insert them"
            )
        given_up = request.past.given_up_until(None) if request.past else frozenset()
        if others := sorted(then & given_up):
            raise UnknownColumn(
                f"{record.name}: the column {others[0]} of then was renamed or dropped, and the one"
                " of this name now is another; read the rows of then, and insert them"
            )
        work.lock(record, Statement.INSERT_OVERWRITE)
        with view.checked():
            scan = view.scan(request)
            layout, lists = view.layout(record), view.lists(record.name)
            now = select_entities(layout, view.listings(layout), *lists)
        before = {entity.partition: entity.paths for entity in scan.entities}
        after = {name: directory.paths for name, directory in now.items()}
        names = sorted({*before, *after})  # a snapshot without a partition reads nothing of it
        changed = [name for name in names if before.get(name, ()) != after.get(name, ())]
        work.refuse_together(record, changed, overwrite=True)
        if not changed:
            return 0
        scan = replace(
            scan, entities=tuple(each for each in scan.entities if each.partition in changed)
        )
        columns = [column for column in own if column.name in then]
        count = overwrite_with(work, record, scan, columns, changed, "a rollback would")
        work.count(record.name, overwritten=count)
        return count


def _require_types(then: TableRecord, now: TableRecord) -> None:
    """Raises UnknownColumn for a column that meanwhile became another one of its name."""
    types = dict(now.columns)
    for name, kind in then.columns:
        old, new = parse_type(kind), parse_type(types.get(name, kind))
        if old != new and not wider(old, new):
            raise UnknownColumn(
                f"{now.name} had the column {name} {kind} then, and {name} is {types[name]} now;"
                " read the rows of then, and insert them"
            )


def overwrite_with(
    work: TransactionWork,
    record: TableRecord,
    scan: Scan,
    columns: Sequence[Column],
    emptied: Sequence[str],
    copying: str,
    fixed: Mapping[str, str | None] | None = None,
) -> int:
    """Overwrites partitions with the rows of a scan, as they are; returns how many.

    `copying`: who would truncate timestamps, such as `a rollback would`. Raises
    UnsupportedStatement for such.
    """
    _refuse_finer_rows(scan, copying)
    read = TableRead(scan, tuple(column.name for column in columns))
    rows = work.warehouse.engines.select(
        f"SELECT * FROM {_SOURCE}", {_SOURCE: read}, work.view.in_force
    )
    written = work.write(
        record,
        lambda engine, target: engine.overwrite(
            rows, target.without_defaults(), fixed or {}, emptied
        ),
        rows,
    )
    return work.report(record, RowOperation.UPDATE, written, overwrite=True)


def _refuse_finer_rows(scan: Scan, copying: str) -> None:
    """Raises UnsupportedStatement for timestamps that copying would truncate (P17)."""
    kinds = (kind.kind for column in scan.columns for kind in column.type.walk())
    if not any(kind in TIMESTAMPS for kind in kinds):
        return
    for entity in scan.entities:
        for source in entity.sources.inserts:
            try:
                refuse_finer(scan.files, source.path, scan.format.name, source.length)
            except CompactionRefused as error:
                raise UnsupportedStatement(
                    f"{source.path} holds timestamps with nanoseconds, which {copying} truncate to"
                    " microseconds; copy the rows with Hive"
                ) from error
