"""Declaring a table: what may be declared, as a value. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from acid_platform.compaction.states import Layout
from acid_platform.errors import InvalidDefinition, UnknownColumn
from acid_platform.layout.bucketing import refuse_unhashable
from acid_platform.layout.formats import ORC, FileFormat, is_insert_only
from acid_platform.layout.types import UNWRITABLE, Column, parse_columns
from acid_platform.metastore.records import TableRecord

RESERVED = ("row__id", "input__file__name")
_KINDS = ("default", "insert_only")


@dataclass(frozen=True, slots=True)
class Declaration:
    """Columns, partition columns, buckets and properties of a table to be."""

    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    properties: Mapping[str, str]
    bucket_columns: tuple[str, ...]
    bucket_count: int

    @property
    def arguments(self) -> tuple[
            list[tuple[str, str]], list[tuple[str, str]], dict[str, str], list[str], int]:
        """As the metastore's client takes them, after name and location."""
        own, keys = ([(one.name, str(one.type)) for one in columns]
                     for columns in (self.columns, self.partition_columns))
        return own, keys, dict(self.properties), list(self.bucket_columns), self.bucket_count

    @classmethod
    def of(
        cls, table: str, columns: tuple[Column, ...], partitioned_by: Sequence[str],
        clustered_by: tuple[Sequence[str], int] | None, properties: Mapping[str, str] | None,
        written_before: bool = False,
    ) -> Declaration:
        """`written_before`: types that are only read are allowed. Raises InvalidDefinition."""
        given = {"transactional": "true", **(properties or {})}
        clustered, buckets = clustered_by or ((), 0)
        names = tuple(one.lower() for one in clustered)
        keys = parse_columns(", ".join(partitioned_by)) if partitioned_by else ()
        _check_properties(table, given)
        FileFormat.of(given).refuse(columns)
        _check_columns(table, columns, keys, written_before)
        if names:
            if written_before and "bucketing_version" not in given:
                raise InvalidDefinition(
                    f"{table}: give properties={{'bucketing_version': '1' or '2'}} as the table has"
                    " it in Hive: without it rows would go to other buckets")
            given.setdefault("bucketing_version", "2")
            _check_buckets(table, columns, names)
        return cls(columns, keys, given, names, buckets)


def widened(record: TableRecord, columns: str, again: bool = False) -> TableRecord:
    """The table with more columns, as in `"note string"`.

    Raises UnknownColumn for a column that is there, unless it may be there `again` with its type.
    """
    known = {name: kind for name, kind in (*record.columns, *record.partition_columns)}
    new = []
    for column in parse_columns(columns):
        if column.name not in known:
            new.append((column.name, str(column.type)))
        elif not again or known[column.name] != str(column.type):
            raise UnknownColumn(f"{record.name} has a column {column.name!r}"
                                f" {known[column.name]} already")
    return replace(record, columns=(*record.columns, *new))


def _check_properties(table: str, given: Mapping[str, str]) -> None:
    Layout.of(given)
    if given["transactional"].lower() != "true":
        raise InvalidDefinition(f"{table}: every table here is transactional=true")
    kind = given.get("transactional_properties", "default").lower()
    if kind not in _KINDS:
        raise InvalidDefinition(
            f"{table}: transactional_properties={kind!r}; it is default or insert_only")
    if not is_insert_only(given) and FileFormat.of(given) != ORC:
        raise InvalidDefinition(
            f"{table}: {FileFormat.of(given).name} files hold no row identities; set"
            " transactional_properties=insert_only, or store the table as orc")


def _check_columns(
    table: str, columns: Sequence[Column], keys: Sequence[Column], written_before: bool
) -> None:
    for column in (*columns, *keys):
        bad = any(one.kind in UNWRITABLE for one in column.type.walk()) and not written_before
        if bad or column.name in RESERVED or column.name.startswith("__"):
            raise InvalidDefinition(
                f"{table}: column {column.name!r} {column.type} can't be declared;"
                + (" use string or timestamp" if bad else " the name is reserved"))
    for column in keys:
        if column.type.nested or column.name.startswith(("_", ".")):
            raise InvalidDefinition(f"{table}: {column} can't be a partition column: its"
                                    " directories would be hidden, or its type is nested")


def _check_buckets(table: str, columns: Sequence[Column], names: Sequence[str]) -> None:
    for name in names:
        found = next((one for one in columns if one.name == name), None)
        if found is None:
            raise InvalidDefinition(f"{table}: there is no column {name!r} to cluster by")
        refuse_unhashable(found.type)
