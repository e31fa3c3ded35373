"""Resolving PARTITION (…) against a table: values as they appear in directory names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from acid_platform.errors import NoSuchPartition
from acid_platform.layout.partition_names import as_written, parse_partition, partition_name
from acid_platform.tables.record_layout import columns_of_record

if TYPE_CHECKING:
    from acid_platform.layout.types import Column
    from acid_platform.metastore.records import TableRecord
    from acid_platform.sql.statements import PartitionSpec


def fixed_values(spec: PartitionSpec, record: TableRecord) -> dict[str, str | None]:
    """The fixed values, in the table's column order. Raises NoSuchPartition for unknown columns."""
    _, keys = columns_of_record(record)
    names = [key.name for key in keys]
    for name in (*spec.fixed, *spec.dynamic):
        if name not in names:
            known = f"its partition columns are {', '.join(names)}" if names else "not partitioned"
            raise NoSuchPartition(f"{record.name} has no partition column {name!r}; {known}")
    return {
        key.name: as_written(spec.fixed[key.name], key, record.name)
        for key in keys
        if key.name in spec.fixed
    }


def whole_name(spec: PartitionSpec, record: TableRecord) -> str:
    """The name `year=2013/month=3`. Raises NoSuchPartition if a partition column has no value."""
    fixed = fixed_values(spec, record)
    missing = [name for name, _ in record.partition_columns if name not in fixed]
    if missing:
        raise NoSuchPartition(f"PARTITION of {record.name} needs a value for {', '.join(missing)}")
    return partition_name(fixed)


class Partitioned(Protocol):
    """A source of partitions: the metastore's current ones, or those of a snapshot."""

    def partitions(self, name: str) -> list[str]: ...


def matching(seen: Partitioned, record: TableRecord, spec: PartitionSpec) -> list[str]:
    """The partitions that match a spec, which may omit columns. Raises NoSuchPartition if none."""
    fixed = fixed_values(spec, record)
    _, keys = columns_of_record(record)
    names = [key.name for key in keys]
    partitions = []
    for partition in sorted(seen.partitions(record.name)):
        values = dict(zip(names, parse_partition(partition, names) or (), strict=False))
        if all(
            _same(values.get(key.name), fixed[key.name], key, record.name)
            for key in keys
            if key.name in fixed
        ):
            partitions.append(partition)
    if not partitions:
        raise NoSuchPartition(
            f"{record.name} has no partition {partition_name(fixed)}; SHOW PARTITIONS"
            f" {record.name} lists them"
        )
    return partitions


def _same(text: str | None, wanted: str | None, key: Column, table: str) -> bool:
    """Whether a directory's value equals the wanted value, however another engine spelled it."""
    try:
        return as_written(text, key, table) == wanted
    except NoSuchPartition:  # not a value of the column's type
        return text == wanted
