"""What an UPDATE or MERGE may assign, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from acid_platform.engine.scans import TableScan
from acid_platform.errors import BucketColumnUpdate, InvalidExpression, PartitionColumnUpdate
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.types import Column
from acid_platform.reading.known_columns import require_columns, unknown_column


def wanted_assignments(
    assignments: Mapping[str, str], scan: TableScan, buckets: Bucketing | None, table: str
) -> dict[str, str]:
    """The assignments of SET, with names in lower case.

    Raises InvalidExpression if there is none, PartitionColumnUpdate, BucketColumnUpdate,
    UnknownColumn.
    """
    partition = {column.name for column in scan.partition_columns}
    wanted = {name.lower(): text for name, text in assignments.items()}
    if not wanted:
        raise InvalidExpression(f"UPDATE of {table} assigns nothing; give {{'column': 'SQL'}}")
    for name in wanted:
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
    return wanted


def inserted_values(
    values: Mapping[str, str] | None,
    source: Iterable[str],
    known: Sequence[Column],
    table: str,
) -> dict[str, str]:
    """The SQL of the columns that a clause WHEN NOT MATCHED gives, by name in lower case.

    `values` None: the columns of the source, by name. Raises UnknownColumn.
    """
    given = (
        {name.lower(): f"`{name}`" for name in source}
        if values is None
        else {name.lower(): text for name, text in values.items()}
    )
    require_columns(given, known, table)
    return given
