"""Why a table does not take a value or a row, in one wording for both engines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType

import pyarrow as pa

from acid_platform.base.visible import nearest_name
from acid_platform.errors import (
    AcidError,
    ConstraintViolated,
    SourceRowsAmbiguous,
    UnknownColumn,
    WrongType,
)
from acid_platform.layout.types import Column, HiveType
from acid_platform.values.arrow_numpy import values_of


class Unfit(Exception):
    """A value that the declared type does not take: why, where inside of the column, which row.

    `path` is the way below the column, such as `.o[].name`; `row` counts from 0, None if unknown.
    """

    def __init__(self, why: str, row: int | None = None, unknown_field: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.row = row
        self.path = ""
        self.unknown_field = unknown_field

    def after(self, rows: int) -> Unfit:
        """The fault with its row counted from so many rows before."""
        self.row = None if self.row is None else self.row + rows
        return self

    def error(self, column: Column, table: str) -> AcidError:
        """As users see it."""
        place = f"{column.name}{self.path}"
        if self.unknown_field:
            return UnknownColumn(f"column {place!r} of {table}: {self.why}")
        where = [f"at {place}"] if self.path else []
        where += [] if self.row is None else [f"in row {self.row + 1}"]
        suffix = f" ({', '.join(where)})" if where else ""
        return WrongType(
            f"column {column.name!r} of {table} is {column.type}: {self.why}{suffix};"
            " convert it first"
        )


@lru_cache(4096)
def spelled_fields(names: Sequence[str], struct: HiveType) -> Mapping[str, str]:
    """For each field of the struct that `names` has: how it is spelled there.

    Raises Unfit for a name that the struct lacks, and for a field that is given twice.
    """
    fields = [name for name, _ in struct.children]
    spelled: dict[str, str] = {}
    for name in names:
        field = name.lower()
        if field not in fields:
            near = nearest_name(field, fields)
            hint = f"; did you mean {near!r}?" if near else ""
            raise Unfit(
                f"no field {name!r}; its fields are {', '.join(fields)}{hint}", unknown_field=True
            )
        if field in spelled:
            raise Unfit(
                f"the field {field!r} is given twice, as {spelled[field]!r} and {name!r}",
                unknown_field=True,
            )
        spelled[field] = name
    return MappingProxyType(spelled)


@contextmanager
def below(part: str, offsets: pa.Array | None = None) -> Iterator[None]:
    """Adds this part to the path of what the block refuses; `offsets` are those of the lists whose
    elements it converts."""
    try:
        yield
    except Unfit as fault:
        fault.path = part + fault.path
        if offsets is not None and fault.row is not None:
            fault.row = row_of(offsets, fault.row)
        raise


def row_of(offsets: pa.Array, position: int) -> int:
    """The row of a list or map array that holds the value at a position."""
    return bisect_right(values_of(offsets), position) - 1


LONGEST_SHOWN = 100
"""How many characters of a value the message of a violated constraint shows."""


def other_partition(table: str, column: str, value: str, partition: str) -> str:
    """What is wrong with a row that belongs to another partition than the one that is written."""
    return f"a row for {table} has {column}={value}, the partition has {partition}"


def refuse_other_partition(what: str) -> WrongType:
    return WrongType(f"{what}; correct the row, or write it into its own partition")


def refuse_too_long(what: str) -> WrongType:
    """`what`: such as `column c of db.t takes char(3), a value has 5 characters`."""
    return WrongType(f"{what}; cut it with left(value, length), or use a string column")


def constraint_violated(what: str) -> ConstraintViolated:
    """`what`: such as `constraint c of db.t, CHECK (n > 0), is violated by a row with n=-1`."""
    return ConstraintViolated(f"{what}; the statement wrote nothing")


def refuse_timestamp(what: str) -> WrongType:
    """`what`: such as `column c has 1969-12-31 23:59:59.5`."""
    return WrongType(
        f"{what}, which ORC files can't store (they would say 1970): round it to"
        " the second, or store it in an insert-only table of another format"
    )


def refuse_early_day(what: str) -> WrongType:
    """`what`: such as `column c has -290308-12-21`."""
    return WrongType(
        f"{what}, which ORC files can't store (they count early days in the Julian calendar): store"
        " NULL or a later day, or use an insert-only table of another format"
    )


def source_rows_ambiguous(
    table: str, count: int, key: tuple[int, int, int], on: str
) -> SourceRowsAmbiguous:
    """`count` source rows of a MERGE would change the row with the row id `key`."""
    return SourceRowsAmbiguous(
        f"MERGE into {table}: {count} source rows match one row of it"
        f" (row__id {key}); make the source unique in the columns of {on!r}"
    )
