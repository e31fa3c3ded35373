"""What a query reads, as plain values for either engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.types import Column, HiveType
from acid_platform.scan.decode import PLACE
from acid_platform.scan.scans import Scan

if TYPE_CHECKING:
    from acid_platform.scan.change_scan import ChangeScan

ROW_ID = HiveType(
    "struct",
    (),
    (("writeid", HiveType("bigint")), ("bucketid", HiveType("int")), ("rowid", HiveType("bigint"))),
)
"""The type of ROW_ID_COLUMN."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """What a query reads of a table; `columns` None: all. The scan applies `where`."""

    scan: Scan
    columns: tuple[str, ...] | None = None
    where: str | None = None
    row_id: bool = False
    file_name: bool = False
    place: bool = False
    """Whether it reads PLACE, by which a second scan finds a row again."""


@dataclass(frozen=True, slots=True)
class ChangeRead:
    """What a query reads of the changes of a table; `columns` None: all."""

    scan: ChangeScan
    columns: tuple[str, ...] | None = None

    @property
    def file_name(self) -> bool:
        """Whether it reads the name of each row's file; a change has none."""
        return False


def columns_of(read: TableRead | ChangeRead) -> tuple[Column, ...]:
    """The columns of a source, as the query sees them."""
    if isinstance(read, ChangeRead):
        every = {column.name: column for column in read.scan.columns}
        return tuple(every[name.lower()] for name in (read.columns or every))
    scan = read.scan
    every = {column.name: column for column in (*scan.columns, *scan.partition_columns)}
    names = every if read.columns is None else (name.lower() for name in read.columns)
    chosen = tuple(every[name] for name in names)
    chosen += (PLACE,) * read.place
    return (*chosen, Column(ROW_ID_COLUMN, ROW_ID)) if read.row_id else chosen


Sources = Mapping[str, TableRead | ChangeRead]
"""By placeholder."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate that also reads other tables: `FROM <target> AS … WHERE …`.

    `target` and the keys of `sources` are placeholders in `text`. `pruning`: the part of the
    predicate that only reads the table itself. `values`: the names of more columns, which `text`
    begins with: what subqueries give the accepted rows. `columns`: those that `text` reads of the
    table, None: all.
    """

    text: str
    """What follows the columns of a SELECT that returns the accepted rows."""
    target: str
    sources: Sources
    pruning: str | None = None
    values: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None


Where = str | Condition | None
"""Which rows a statement changes; None: all rows."""
