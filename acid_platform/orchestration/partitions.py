"""Dagster's partition keys as partitions of the table: what `partition_expr` says."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from acid_platform.errors import InvalidDefinition, NoSuchPartition
from acid_platform.layout.partitions import DEFAULT_PARTITION, as_written, parse_partition
from acid_platform.layout.types import INTEGRAL, Column

PartitionText = str | Mapping[str, str]
"""`day`, `month=%Y-%m` or `year=%Y/month=%m`; for a multi-partitioned asset one per dimension."""

_DEFAULT_CODES = {"date": "%Y-%m-%d", "timestamp": "%Y-%m-%d %H:%M:%S"}
_SAMPLE = datetime.timedelta(days=400)
"""Keys of so long a time show whether two of them name one partition of the table."""


@dataclass(frozen=True, slots=True)
class Part:
    """One partition column and where its value comes from: a dimension ('' if there is but one),
    as the start of its time window in a strftime code, or as the key itself."""

    column: Column
    dimension: str
    windows: dg.TimeWindowPartitionsDefinition | None = None
    code: str = ""
    dynamic: bool = False
    """Which keys there will be is not known: each has to be written as its directory is."""

    def value(self, key: str, table: str) -> str:
        """As Spark writes it into the directory's name. Raises NoSuchPartition."""
        if isinstance(key, dg.MultiPartitionKey):
            key = key.keys_by_dimension[self.dimension]
        if self.windows and self.code:
            key = self.windows.time_window_for_partition_key(key).start.strftime(self.code)
        text = as_written(key, self.column, table)
        if text is None or text == DEFAULT_PARTITION:
            raise NoSuchPartition(
                f"the key {key!r} of {table} names no value of {self.column.name}: the partition"
                f" {DEFAULT_PARTITION} is that of NULL; choose another key"
            )
        if self.dynamic and text != key:
            raise NoSuchPartition(
                f"the key {key!r} of {table} would be the partition {self.column.name}={text}, as"
                f" the key {text!r} is, so that each would replace the other's rows; name it"
                f" {text!r}"
            )
        return text


@dataclass(frozen=True, slots=True)
class Scope:
    """The partitions of a table that one run replaces: values of partition columns, one set for
    each partition key."""

    table: str
    columns: tuple[str, ...]
    """All partition columns of the table, in order."""
    values: Mapping[str, Mapping[str, str]]
    """Partition key → values of the columns that `partition_expr` names, maybe not all."""
    quoted: frozenset[str] = frozenset()
    """Columns whose values are texts in SQL."""

    def holds(self, partition: str) -> bool:
        return any(_matches(self._parsed(partition), one) for one in self.values.values())

    def of_key(self, key: str, partitions: Sequence[str]) -> list[str]:
        """Those of the table's partitions that belong to a key."""
        return [one for one in partitions if _matches(self._parsed(one), self.values[key])]

    def _parsed(self, partition: str) -> dict[str, str | None]:
        return dict(zip(self.columns, parse_partition(partition, self.columns) or (), strict=False))

    @property
    def single(self) -> Mapping[str, str] | None:
        """The values of the one partition that the run replaces, if it is exactly one."""
        distinct = list(self.values.values())
        return distinct[0] if len(distinct) == 1 and set(distinct[0]) == {*self.columns} else None

    @property
    def constants(self) -> dict[str, str]:
        """Columns that have one value in the whole run: rows need not carry them."""
        sets = list(self.values.values())
        return {
            name: value
            for name, value in sets[0].items()
            if all(one[name] == value for one in sets)
        }

    @property
    def where(self) -> str:
        """SQL for the rows of these partitions; other partitions are not read."""
        names = list(next(iter(self.values.values())))
        if len(names) == 1:
            listed = ", ".join(
                literal(one[names[0]], names[0] in self.quoted) for one in self.values.values()
            )
            return f"`{names[0]}` IN ({listed})"
        return " OR ".join(
            "("
            + " AND ".join(
                f"`{name}` = {literal(value, name in self.quoted)}" for name, value in one.items()
            )
            + ")"
            for one in self.values.values()
        )


def literal(value: str, quoted: bool) -> str:
    """A value in SQL."""
    if not quoted:
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _matches(found: Mapping[str, str | None], wanted: Mapping[str, str]) -> bool:
    return all(found.get(name) == value for name, value in wanted.items())


@dataclass(frozen=True, slots=True)
class PartitionExpr:
    """How the partition keys of an asset name partitions of its table, checked when it is made."""

    table: str
    columns: tuple[Column, ...]
    parts: tuple[Part, ...]

    @classmethod
    def parse(
        cls,
        text: PartitionText,
        definition: dg.PartitionsDefinition[str],
        columns: Sequence[Column],
        table: str,
    ) -> PartitionExpr:
        """`columns`: the table's partition columns. Raises InvalidDefinition."""
        by_dimension = _by_dimension(text, definition, table)
        parts = [
            part
            for dimension, (form, one) in by_dimension.items()
            for part in _parts(form, dimension, one, columns, table)
        ]
        names = [one.column.name for one in parts]
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidDefinition(f"partition_expr of {table} names {', '.join(twice)} twice")
        made = cls(table, tuple(columns), tuple(parts))
        for dimension, (_, one) in by_dimension.items():
            made._refuse_collisions(dimension, one)
        return made

    def scope(self, keys: Sequence[str]) -> Scope:
        """What a run of these keys replaces. Raises NoSuchPartition."""
        quoted = frozenset(
            one.name
            for one in self.columns
            if one.type.kind not in (*INTEGRAL, "float", "double", "decimal")
        )
        return Scope(
            self.table,
            tuple(one.name for one in self.columns),
            {
                str(key): {one.column.name: one.value(key, self.table) for one in self.parts}
                for key in keys
            },
            quoted,
        )

    def _refuse_collisions(self, dimension: str, definition: dg.PartitionsDefinition[str]) -> None:
        """Two keys with one partition: materializing one would remove the rows of the other."""
        seen: dict[tuple[str, ...], str] = {}
        parts = [one for one in self.parts if one.dimension == dimension]
        for key in _sample(definition):
            values = tuple(one.value(key, self.table) for one in parts)
            if values in seen:
                named = "/".join(
                    f"{one.column.name}={value}" for one, value in zip(parts, values, strict=True)
                )
                raise InvalidDefinition(
                    f"partition_expr of {self.table}: the keys {seen[values]} and {key} are both"
                    f" {named}, so that each would replace the other's rows; name more of the time"
                    " (year=%Y/month=%m), or let the asset take txn and write what it has to"
                )
            seen[values] = key


def _by_dimension(
    text: PartitionText, definition: dg.PartitionsDefinition[str], table: str
) -> dict[str, tuple[str, dg.PartitionsDefinition[str]]]:
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        if not isinstance(text, str):
            raise InvalidDefinition(
                f"partition_expr of {table} has to be a text: its asset has one dimension"
            )
        return {"": (text, definition)}
    dimensions = {one.name: one.partitions_def for one in definition.partitions_defs}
    if isinstance(text, str) or set(text) != set(dimensions):
        raise InvalidDefinition(
            f"partition_expr of {table} has to name each dimension of its asset:"
            f" {{{', '.join(f'{name!r}: …' for name in dimensions)}}}"
        )
    return {name: (text[name], one) for name, one in dimensions.items()}


def _parts(
    form: str,
    dimension: str,
    definition: dg.PartitionsDefinition[str],
    columns: Sequence[Column],
    table: str,
) -> Iterator[Part]:
    known = {one.name: one for one in columns}
    for segment in form.split("/"):
        name, _, code = segment.partition("=")
        column = known.get(name.strip().lower())
        if column is None:
            raise InvalidDefinition(
                f"partition_expr of {table}: {name!r} is no partition column of it; they are"
                f" {', '.join(known) or 'none, the table is not partitioned'}"
            )
        if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
            if code:
                raise InvalidDefinition(
                    f"partition_expr of {table}: {segment!r} has a code, but its partitions are no"
                    f" time windows; write {name!r}, the key is the value"
                )
            yield Part(
                column, dimension, dynamic=isinstance(definition, dg.DynamicPartitionsDefinition)
            )
            continue
        kind = column.type.kind
        code = code or _DEFAULT_CODES.get(kind, "")
        if not code and kind != "string":
            raise InvalidDefinition(
                f"partition_expr of {table}: say how a time becomes {column}, as in"
                f" '{name}=%m' or '{name}=%Y%m%d'"
            )
        yield Part(column, dimension, definition, code)


def _sample(definition: dg.PartitionsDefinition[str]) -> Iterable[str]:
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        return ()
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        keys = definition.get_partition_keys(current_time=definition.start + _SAMPLE)
        return dict.fromkeys([*keys[:500], *keys[-900:]])  # of hourly ones: the same days next year
    return definition.get_partition_keys()
