"""Errors that both engines raise for rows and statements, in one wording."""

from __future__ import annotations

from acid_platform.errors import ConstraintViolated, SourceRowsAmbiguous, WrongType

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
