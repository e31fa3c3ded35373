"""Tables that the metastore knows and nobody has made a directory for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations import DeclareTable
from acid_platform.metastore.records import TableRecord

Columns = Sequence[tuple[str, str]]


def declare(
    metastore: Metastore,
    name: str,
    location: str,
    columns: Columns = (("id", "int"),),
    partition_columns: Columns = (),
    **more: Any,
) -> TableRecord:
    """`more`: other fields of the record. Raises TableExists, InvalidDefinition."""
    where = metastore.places.inward(location)
    record = TableRecord(0, name, where, tuple(columns), tuple(partition_columns), **more)
    return metastore.call(DeclareTable(record, if_not_exists=False))
