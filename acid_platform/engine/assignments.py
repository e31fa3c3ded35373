"""What an UPDATE or MERGE may assign, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from acid_platform.engine.merge_clauses import MergeClause
from acid_platform.errors import BucketColumnUpdate, InvalidExpression, PartitionColumnUpdate
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column
from acid_platform.predicates.analysis import columns_of
from acid_platform.predicates.known_columns import require_columns, unknown_column
from acid_platform.scan.change_rows import CHANGE_COLUMNS
from acid_platform.scan.scans import Scan


def wanted_assignments(
    assignments: Mapping[str, str], scan: Scan, buckets: Bucketing | None, table: str
) -> dict[str, str]:
    """The assignments of SET, with names in lower case.

    Raises InvalidExpression if there is none or two of one column, PartitionColumnUpdate,
    BucketColumnUpdate, UnknownColumn.
    """
    partition = {column.name for column in scan.partition_columns}
    expressions = _by_column(assignments, table)
    if not expressions:
        raise InvalidExpression(f"UPDATE of {table} assigns nothing; give {{'column': 'SQL'}}")
    for name in expressions:
        if name in partition:
            raise PartitionColumnUpdate(
                f"{name!r} is a partition column of {table}: UPDATE can't move a row to another"
                " partition; delete the row and insert it again in one transaction"
            )
        if buckets and name in buckets.columns:
            raise BucketColumnUpdate(
                f"{name!r} decides the bucket of a row of {table}: UPDATE can't move a row to"
                " another bucket; delete the row and insert it again in one transaction"
            )
        if name not in {column.name for column in scan.columns}:
            raise unknown_column(name, table, scan.columns)
    return expressions


def _by_column(assignments: Mapping[str, str], table: str) -> dict[str, str]:
    """The values by names in lower case. Raises InvalidExpression for `v` beside `V`."""
    values: dict[str, str] = {}
    for name, text in assignments.items():
        if name.lower() in values:
            raise InvalidExpression(f"column {name.lower()!r} of {table} is given two values")
        values[name.lower()] = text
    return values


def inserted_values(
    clause: MergeClause,
    source: Iterable[str],
    columns: Sequence[Column],
    table: str,
    expressions: Iterable[str],
    defaults: Mapping[str, str],
) -> dict[str, str]:
    """The SQL of the columns that a clause WHEN NOT MATCHED gives, by name in lower case, and of
    the `defaults` of others.

    A clause without values takes the columns of the source, by name. The source may have more
    columns: those that one of the statement's `expressions` reads, and those of a change feed. Any
    other is probably a column of the table, misspelt. Raises UnknownColumn, InvalidExpression for a
    column that is given twice.
    """
    if clause.values is not None:
        values = _by_column(clause.values, table)
        require_columns(values, columns, table)
        return {**defaults, **values}
    names = {column.name for column in columns}
    own = [name for name in source if name.lower() in names]
    others = [name for name in source if name.lower() not in names]
    if others:
        read = {column.name for column in CHANGE_COLUMNS}
        for text in expressions:
            named = columns_of(text)
            read |= {name.lower() for name in others} if named is None else named
        for name in others:
            if name.lower() not in read:
                raise unknown_column(name, table, columns)
    return {**defaults, **{name.lower(): quoted(name) for name in own}}


def expressions_of(on: str, clauses: Iterable[MergeClause]) -> list[str]:
    """All SQL texts of a MERGE."""
    texts = [on]
    for clause in clauses:
        texts += [clause.condition] if clause.condition is not None else []
        texts += (clause.values or {}).values()
    return texts
