"""What ALTER TABLE makes of the columns of a table, and of which old ones their values are. Pure.

Files name their columns, and every reader, Hive and Trino too, finds a column by the name in the
file's footer. So a column that gets another name, or whose name becomes free for another one, needs
files that are written again; everything else is a change of the declaration alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from acid_platform.base.arguments import require_kind, require_list
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import parse_columns
from acid_platform.metastore.records import TableRecord
from acid_platform.tables.declaration import (
    change_column,
    check_columns,
    comments_of,
    declared_type,
    require_wider,
    widened,
)


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A table before and after a change. `names`: of each column that has values before and after
    it, the old and the new name, in the order of the new ones.

    Raises InvalidDefinition if a constraint names a column that goes.
    """

    before: TableRecord
    after: TableRecord
    names: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        present = dict((*self.after.columns, *self.after.partition_columns))
        for constraint in self.before.constraints:
            for column in constraint.columns:
                if column not in present:
                    raise InvalidDefinition(
                        f"{self.before.name}: column {column!r} can't go, since constraint"
                        f" {constraint.name} names it; ALTER TABLE … DROP CONSTRAINT first"
                    )

    @property
    def renames(self) -> bool:
        """Whether a column has another name, or none any more: readers find columns by name."""
        return dict(self.names) != {name: name for name, _ in self.before.columns}

    @property
    def moves(self) -> bool:
        """Whether a column has another place, by which some files know it."""
        old = [name for name, _ in self.before.columns]
        return [name for name, _ in self.after.columns[: len(old)]] != old


_NAME = "the name of a column"
Changing: TypeAlias = Callable[[TableRecord], ColumnChange]
"""Computes the change of a declaration. Raises UnknownColumn, InvalidDefinition."""


def added(columns: str, comments: Mapping[str, str] | None = None) -> Changing:
    """ADD COLUMNS: `"note string"`."""

    def change(record: TableRecord) -> ColumnChange:
        staying = tuple((name, name) for name, _ in record.columns)
        return ColumnChange(record, widened(record, columns, comments), staying)

    return change


def changed(
    old: str, column: str, after: str | None = None, comment: str | None = None
) -> Changing:
    """CHANGE: a column gets a name, a type and perhaps a place; `after` empty: the first one.

    `comment` None: it stays; empty: there is none any more.
    """
    new, *more = parse_columns(column)
    if more:
        raise InvalidDefinition(
            f"{column!r} declares {1 + len(more)} columns, and {old} becomes one; write one"
        )
    require_kind("old", old, str, _NAME, InvalidDefinition)
    require_kind("after", after, (str, type(None)), _NAME, InvalidDefinition)

    def change(record: TableRecord) -> ColumnChange:
        check_columns(record.name, [new])
        FileFormat.of(record.properties).refuse((new,))
        made = change_column(record, old.lower(), new, after and after.lower(), comment)
        return ColumnChange(
            record,
            made,
            tuple((old.lower() if name == new.name else name, name) for name, _ in made.columns),
        )

    return change


def altered(
    old: str, new: str | None = None, after: str | None = None, comment: str | None = None
) -> Changing:
    """A column gets another name (None: it stays), place or comment, and keeps its type."""

    require_kind("old", old, str, _NAME, InvalidDefinition)
    require_kind("new", new, (str, type(None)), _NAME, InvalidDefinition)

    def change(record: TableRecord) -> ColumnChange:
        column = f"{quoted(old if new is None else new)} {declared_type(record, old.lower())}"
        return changed(old, column, after, comment)(record)

    return change


def typed(old: str, kind: str) -> Changing:
    """ALTER COLUMN … TYPE."""
    return changed(old, f"{quoted(old)} {kind}")


def dropped(names: Sequence[str]) -> Changing:
    """DROP COLUMN."""
    require_list("names", names, "each name as an argument of its own", InvalidDefinition)
    gone = [name.lower() for name in names]

    def change(record: TableRecord) -> ColumnChange:
        if not gone:
            raise InvalidDefinition(f"{record.name}: name the columns that go")
        for name in gone:
            declared_type(record, name)
        columns = tuple(pair for pair in record.columns if pair[0] not in gone)
        if not columns:
            raise InvalidDefinition(f"{record.name} would have no column; use DROP TABLE")
        return _with_columns(record, columns, record.comments)

    return change


def replaced(columns: str, comments: Mapping[str, str] | None = None) -> Changing:
    """REPLACE COLUMNS: columns that are not listed go, and new ones are NULL. As in Hive, a column
    has the comment that is given now, or none."""
    listed = parse_columns(columns)

    def change(record: TableRecord) -> ColumnChange:
        check_columns(record.name, listed)
        FileFormat.of(record.properties).refuse(listed)
        keys, present = dict(record.partition_columns), dict(record.columns)
        for column in listed:
            if column.name in keys:
                raise InvalidDefinition(
                    f"{record.name} is partitioned by {column.name}; leave it out of the columns"
                )
            if column.name in present:
                require_wider(record, column.name, column)
        texts = comments_of(record.name, listed, comments or {})
        of_keys = {name: text for name, text in record.comments.items() if name in keys}
        new = tuple((column.name, str(column.type)) for column in listed)
        return _with_columns(record, new, {**of_keys, **texts})

    return change


def _with_columns(
    record: TableRecord, columns: tuple[tuple[str, str], ...], comments: Mapping[str, str]
) -> ColumnChange:
    """The change to columns of which those that were there before keep their names."""
    names, before = dict(columns), dict(record.columns)
    for name in record.bucket_columns:
        if name not in names:
            raise InvalidDefinition(
                f"{record.name}: {name} decides the bucket of each row and can't be dropped"
            )
    every = {*names, *dict(record.partition_columns)}
    remaining_comments = {name: text for name, text in comments.items() if name in every}
    return ColumnChange(
        record,
        replace(record, columns=columns, comments=remaining_comments),
        tuple((name, name) for name in names if name in before),
    )
