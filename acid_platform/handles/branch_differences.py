"""Two branches beside each other, or a branch and what everybody sees: the rows that only one side
shows, and the columns in which rows of one key differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from acid_platform.base.arguments import require_limit, require_list
from acid_platform.base.config import Settings
from acid_platform.engine.choice import Engines
from acid_platform.engine.interface import TableRead
from acid_platform.errors import NoSuchTable, UnknownColumn
from acid_platform.handles.past_rows import COUNT, column_names, compared, differing_rows
from acid_platform.handles.snapshot_views import ScanRequest, SnapshotView
from acid_platform.layout.acid_keys import decode_bucket
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import ConstraintKind
from acid_platform.metastore.branches import BranchRow, ChangedTwice
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.scans import Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.transactions import ValidWriteIdList
from acid_platform.transactions.row_sets import RowKey

Sides = tuple[SnapshotView, SnapshotView]


@dataclass(frozen=True, slots=True)
class BranchDifference:
    """How a table differs between this side and the other one.

    A row that occurs n times more counts n times. Rows are paired by a key: two that differ count
    as `changed`, if each side shows one differing row of this key, and else as rows of one side.
    """

    table: str
    only_here: int
    only_there: int
    changed: int
    columns: dict[str, int]
    """In how many of the changed rows each column differs, if in any."""
    columns_here: tuple[str, ...]
    """Columns that only this side has; they are not compared."""
    columns_there: tuple[str, ...]
    missing: str
    """The side without the table: `here`, `there`, or empty."""
    rows: tuple[dict[str, Any], ...]
    """Some of the rows, if both sides have the table: `side` (`here` or `there`), the columns,
    `times`, and `differs`, the columns in which a changed row differs; it is there twice, with the
    values of each side."""

    def __str__(self) -> str:
        if self.missing:
            side = "there" if self.missing == "here" else "here"
            return f"{self.table}: only {side}, {self.only_here + self.only_there} rows"
        text = f"{self.table}: {self.only_here} rows only here, {self.only_there} only there"
        text += f", {self.changed} changed"
        if self.columns:
            text += f" ({', '.join(f'{name} in {count}' for name, count in self.columns.items())})"
        for names, side in ((self.columns_here, "here"), (self.columns_there, "there")):
            if names:
                text += f"; only {side}, and not compared: {', '.join(names)}"
        return text

    @property
    def differs(self) -> bool:
        """Whether the sides show other rows or columns, or one of them no such table."""
        shown = (self.only_here, self.only_there, self.changed)
        return any((*shown, self.columns_here, self.columns_there, self.missing))


def one_difference(
    engines: Engines, sides: Sides, table: str, key: Sequence[str] | None, limit: int
) -> BranchDifference:
    """Compares a table by the columns that both sides have, of which `key` are some; None: the
    declared primary key. `limit`: how many rows and pairs of rows to show.

    Raises NoSuchTable if neither side has it, UnknownColumn for one of `key` that is not there, and
    as a GROUP BY of the columns does.
    """
    here, there = (_found(side, table) for side in sides)
    settings = sides[0].in_force
    if here is None or there is None:
        side, missing = (sides[1], "here") if here is None else (sides[0], "there")
        count = _count(engines, settings, side.scans([side.request(table)])[0])
        alone = (0, count) if here is None else (count, 0)
        return BranchDifference(table, *alone, 0, {}, (), (), missing, ())
    first, second = (side.scans([side.request(table)])[0] for side in sides)
    names, others = column_names(first), column_names(second)
    given_up = _other_columns(here, there)
    common = [name for name in names if name in others and name not in given_up]
    own = tuple(n for n in names if n not in common), tuple(n for n in others if n not in common)
    require_list("key", key, "a list of names, such as ['id']")
    require_limit(limit)
    if key is None:
        declared = [each for each in here.constraints if each.kind is ConstraintKind.PRIMARY_KEY]
        key = declared[0].columns if declared else ()
        key = key if set(key) <= set(common) else ()
    key = [name.lower() for name in key]
    if unknown := [name for name in key if name not in common]:
        raise UnknownColumn(
            f"{table}: {unknown[0]} can't be of the key, since it is no column of both sides; they"
            f" are {', '.join(common)}"
        )
    if not common:
        every = (_count(engines, settings, first), _count(engines, settings, second))
        return BranchDifference(table, *every, 0, {}, *own, "", ())
    reads, pairs = compared(second, first, common), _pairs(common, key)
    differing = ", ".join(
        f"sum(CASE WHEN b AND NOT e{n} THEN 1 ELSE 0 END) AS d{n}" for n in range(len(common))
    )
    counted = engines.select(
        "SELECT sum(CASE WHEN b THEN 0 ELSE coalesce(h, 0) END) AS only_here,"
        " sum(CASE WHEN b THEN 0 ELSE coalesce(t, 0) END) AS only_there,"
        f" sum(CASE WHEN b THEN 1 ELSE 0 END) AS changed, {differing} FROM ({pairs}) AS p",
        reads,
        settings,
    )
    ((only_here, only_there, changed, *by_column),) = counted.collect()
    rows = list[dict[str, Any]]()
    if limit:
        at = [common.index(name) for name in key] or range(len(common))
        order = ", ".join(f"coalesce(h{n}, t{n})" for n in at)
        shown = engines.select(f"SELECT * FROM ({pairs}) AS p ORDER BY {order}", reads, settings)
        for row in shown.to_arrow(limit).to_pylist():
            rows += _shown(row, common)
    columns = {name: int(n) for name, n in zip(common, by_column, strict=True) if n}
    counts = (int(only_here or 0), int(only_there or 0), int(changed or 0))
    return BranchDifference(table, *counts, columns, *own, "", tuple(rows))


def differences(
    engines: Engines, sides: Sides, tables: Sequence[str]
) -> Iterator[BranchDifference]:
    """The tables among these that differ; no file is read of one that both sides see with the same
    commits. Raises as `one_difference`."""
    for table in tables:
        here, there = (_found(side, table) for side in sides)
        if here is not None and here == there:
            first, second = (side.lists(table)[0] for side in sides)
            if first == second:
                continue
        found = one_difference(engines, sides, table, None, 0)
        if found.differs:
            yield found


def _found(side: SnapshotView, table: str) -> TableRecord | None:
    try:
        return side.table(table)
    except NoSuchTable:
        return None


def _other_columns(here: TableRecord, there: TableRecord) -> set[str]:
    """The names that stand for different columns of one table."""
    if here.table_id != there.table_id:
        return set()
    ids = [
        dict(zip((name for name, _ in each.columns), each.ids_of_columns, strict=True))
        for each in (here, there)
    ]
    return {name for name, number in ids[0].items() if ids[1].get(name, number) != number}


def _count(engines: Engines, settings: Settings, scan: Scan) -> int:
    reads = {"acid_rows": TableRead(scan, tuple(column_names(scan)))}
    return int(engines.select("SELECT count(*) FROM acid_rows", reads, settings).collect()[0][0])


def _pairs(columns: Sequence[str], key: Sequence[str]) -> str:
    """The query of the differing rows: `h0`, … are the values here and `t0`, … those there, `e0`, …
    whether they are the same, `h` and `t` how often, `b` whether both are rows of one key."""
    differing, names = differing_rows(columns), ", ".join(map(quoted, columns))
    by_key = ", ".join(map(quoted, key))
    sides = []
    for alias, sign, alone in (("h", "", 2), ("t", "-", 3)):
        single = f"sum({sign}{COUNT}) OVER (PARTITION BY {by_key}) = 1" if key else "false"
        sides.append(
            f"(SELECT {names}, {sign}{COUNT} AS {COUNT},"
            f" CASE WHEN {single} THEN 1 ELSE {alone} END AS acid_single"
            f" FROM ({differing}) AS d WHERE {sign}{COUNT} > 0) AS {alias}"
        )
    on = " AND ".join(f"h.{name} <=> t.{name}" for name in ("acid_single", *map(quoted, key)))
    values = ", ".join(
        f"{side}.{quoted(name)} AS {side}{n}" for n, name in enumerate(columns) for side in "ht"
    )
    same = ", ".join(f"h.{x} <=> t.{x} AS e{n}" for n, x in enumerate(map(quoted, columns)))
    return (
        f"SELECT {values}, {same}, h.{COUNT} AS h, t.{COUNT} AS t,"
        f" h.{COUNT} IS NOT NULL AND t.{COUNT} IS NOT NULL AS b"
        f" FROM {sides[0]} FULL OUTER JOIN {sides[1]} ON {on}"
    )


def _shown(row: dict[str, Any], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    values = {
        side: {name: row[f"{side}{n}"] for n, name in enumerate(columns)} for side in ("h", "t")
    }
    differs = [name for n, name in enumerate(columns) if row["b"] and not row[f"e{n}"]]
    for side, where in (("t", "there"), ("h", "here")):
        if row[side]:
            told = ", ".join(differs)
            yield {"side": where, **values[side], "times": row[side], "differs": told}


# --- its start ------------------------------------------------------------------------------------


def at_start(
    view: SnapshotView, branch: BranchRow, table: str, where: str | None = None
) -> ScanRequest:
    """What to read of a table as it was when the branch of this view was made."""
    now, _ = view.lists(table)
    hidden = {*now.open, *branch.write_ids.get(table, ())}
    start = ValidWriteIdList.of(now.table, now.high_watermark, hidden, now.aborted)
    return view.request(table, where, start)


_FIRST_COLUMNS = 4
_LONGEST_VALUE = 60


def rows_at_start(
    engines: Engines, view: SnapshotView, branch: BranchRow, changed: ChangedTwice
) -> str:
    """These rows as they were when the branch of this view was made, for people: the columns of the
    primary key, or the first ones; empty if none is found. Opens only files that may have them."""
    record = view.table(changed.table)
    scan = view.scan(at_start(view, branch, record.name))
    declared = [each for each in record.constraints if each.kind is ConstraintKind.PRIMARY_KEY]
    columns = declared[0].columns if declared else column_names(scan)[:_FIRST_COLUMNS]
    entities = tuple(
        entity.with_inserts(
            source
            for source in entity.sources.inserts
            if any(_may_have(source, key) for key in changed.rows)
        )
        for entity in scan.entities
        if entity.partition == (changed.partition or "")
    )
    keys = " OR ".join(
        f"(row__id.writeid = {write_id} AND row__id.bucketid = {bucket} AND row__id.rowid = {row})"
        for write_id, bucket, row in changed.rows
    )
    read = TableRead(replace(scan, entities=entities), tuple(columns), row_id=True)
    names = ", ".join(map(quoted, columns))
    with engines.using("local"):
        found = engines.select(
            f"SELECT {names} FROM acid_rows WHERE {keys}", {"acid_rows": read}, view.in_force
        )
        rows = found.to_arrow().to_pylist()
    texts = [[f"{name} = {_short(value)}" for name, value in row.items()] for row in rows]
    told = [f"({', '.join(values)})" for values in sorted(texts)]
    where = f"{record.name} {changed.partition or ''}".rstrip()
    return f"{where}: {'' if changed.exact else 'rows near '}{', '.join(told)}" if told else ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _may_have(source: SourceFile, key: RowKey) -> bool:
    write_id, bucket, _ = key
    number = decode_bucket(bucket).number
    return source.low <= write_id <= source.high and source.number in (None, number)
