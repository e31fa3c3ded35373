"""Mapping Dagster's partition keys to partitions of the table, by `partition_expr`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from acid_platform.errors import InvalidDefinition, NoSuchPartition
from acid_platform.layout.names import DEFAULT_PARTITION, as_written, parse_partition
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import INTEGRAL, Column

PartitionText = str | Mapping[str, str]
"""`day`, `month=%Y-%m` or `year=%Y/month=%m`; by dimension if the asset is multi-partitioned."""

_DEFAULT_CODES = {"date": "%Y-%m-%d", "timestamp": "%Y-%m-%d %H:%M:%S"}
_SAMPLE = datetime.timedelta(days=400)
"""Keys of this period are tried, to detect keys that name the same partition of the table."""


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A partition column and the source of its value.

    The value is the key of `dimension` ('' if there is only one); or, with `windows` and `code`,
    the start of the key's time window, formatted by strftime.
    """

    column: Column
    dimension: str
    windows: dg.TimeWindowPartitionsDefinition | None = None
    code: str = ""
    dynamic: bool = False
    """Whether keys are added later; each key must then be spelled like its directory."""

    def key(self, key: str) -> str:
        """The part of a key that is of the column's dimension."""
        if isinstance(key, dg.MultiPartitionKey):
            return str(key.keys_by_dimension[self.dimension])
        return key

    def value(self, key: str, table: str) -> str:
        """The value for a key, as Spark writes it into directory names. Raises NoSuchPartition."""
        key = self.key(key)
        if self.windows and self.code:
            key = self.windows.time_window_for_partition_key(key).start.strftime(self.code)
        text = as_written(key, self.column, table)
        if text is None or text == DEFAULT_PARTITION:
            raise NoSuchPartition(
                f"the key {key!r} of {table} is not a value of {self.column.name}, since the"
                f" partition {DEFAULT_PARTITION} is for NULL; choose another key"
            )
        if self.dynamic and text != key:
            raise NoSuchPartition(
                f"the keys {key!r} and {text!r} of {table} would both be the partition"
                f" {self.column.name}={text} and replace each other's rows; use the key {text!r}"
            )
        return text


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The time window of a partition key, as precise as the columns are that tell it."""

    codes: Mapping[str, str]
    """By column: the code of strftime."""
    start: datetime.datetime
    end: datetime.datetime

    @classmethod
    def of(cls, parts: Sequence[PartitionColumn], key: str) -> TimeSpan | None:
        """None if `parts`, which are those of one dimension, tell no time."""
        windows = parts[0].windows
        if windows is None:
            return None
        codes = {part.column.name: part.code or windows.fmt for part in parts}
        window = windows.time_window_for_partition_key(key)
        start, end = (
            _moment(codes, {name: at.strftime(code) for name, code in codes.items()})
            for at in (window.start, window.end)
        )
        return cls(codes, start, end) if start and end else None

    def holds(self, values: Mapping[str, str | None]) -> bool:
        """Whether a partition with these values begins inside of the window, not with it."""
        moment = _moment(self.codes, values)
        return moment is not None and self.start < moment < self.end


def _moment(codes: Mapping[str, str], values: Mapping[str, str | None]) -> datetime.datetime | None:
    """The time that values of columns tell; None if they tell none."""
    text = "/".join(str(values.get(name)) for name in codes)
    try:
        return datetime.datetime.strptime(text, "/".join(codes.values()))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """The partitions of a table that a run replaces: partition column values for each key."""

    table: str
    columns: tuple[str, ...]
    """All partition columns of the table, in order."""
    values: Mapping[str, Mapping[str, str]]
    """Partition key → values of the columns that `partition_expr` names, which may not be all."""
    quoted: frozenset[str] = frozenset()
    """Columns whose SQL literals are quoted."""
    spans: Mapping[str, Mapping[str, TimeSpan]] = field(default_factory=dict)
    """Partition key → what its time windows cover, by dimension."""

    def require_whole(self, partitions: Iterable[str]) -> None:
        """Raises InvalidDefinition if one of the table's partitions lies inside of the time of a
        key of the run, and is not what the key replaces: the table was filled by shorter times.
        """
        for key, spans in self.spans.items():
            inside = [
                partition
                for partition in partitions
                if (values := self._parsed(partition))
                and all(span.holds(values) for span in spans.values())
                and not self.holds(partition)
                and _matches(values, self._of_no_time(key))
            ]
            if inside:
                more = f" and {len(inside) - 1} more" if len(inside) > 1 else ""
                dropped = ", ".join(
                    f"{name} = {literal(value or '', name in self.quoted)}"
                    for name, value in self._parsed(inside[0]).items()
                )
                raise InvalidDefinition(
                    f"{self.table} has the partition {inside[0]}{more}, whose time the partition"
                    f" {key} of its asset covers but does not replace, so rows would be there twice"
                    " (a daily asset that became weekly?): give the asset its former partitions, or"
                    " another table, or drop what the run brings anew, such as by"
                    f" ALTER TABLE {self.table} DROP PARTITION ({dropped})"
                )

    def _of_no_time(self, key: str) -> dict[str, str]:
        timed = {name for span in self.spans[key].values() for name in span.codes}
        return {name: value for name, value in self.values[key].items() if name not in timed}

    def holds(self, partition: str) -> bool:
        """Whether the run replaces the partition."""
        return any(_matches(self._parsed(partition), values) for values in self.values.values())

    def of_key(self, key: str, partitions: Sequence[str]) -> list[str]:
        """The partitions that belong to a key."""
        return [
            partition
            for partition in partitions
            if _matches(self._parsed(partition), self.values[key])
        ]

    def _parsed(self, partition: str) -> dict[str, str | None]:
        return dict(zip(self.columns, parse_partition(partition, self.columns) or (), strict=False))

    @property
    def single(self) -> Mapping[str, str] | None:
        """The values of the partition that the run replaces, if it is exactly one."""
        distinct = list(self.values.values())
        return distinct[0] if len(distinct) == 1 and set(distinct[0]) == {*self.columns} else None

    @property
    def constants(self) -> dict[str, str]:
        """Columns with the same value in the whole run, which rows need not have."""
        sets = list(self.values.values())
        return {
            name: value
            for name, value in sets[0].items()
            if all(values[name] == value for values in sets)
        }

    @property
    def where(self) -> str:
        """SQL for the rows of these partitions, by which other partitions are pruned."""
        names = list(next(iter(self.values.values())))
        if len(names) == 1:
            listed = ", ".join(
                literal(values[names[0]], names[0] in self.quoted)
                for values in self.values.values()
            )
            return f"`{names[0]}` IN ({listed})"
        return " OR ".join(
            "("
            + " AND ".join(
                f"{quoted(name)} = {literal(value, name in self.quoted)}"
                for name, value in values.items()
            )
            + ")"
            for values in self.values.values()
        )


def literal(value: str, quoted: bool) -> str:
    """A value as a SQL literal."""
    return sql_string(value) if quoted else value


def _matches(values: Mapping[str, str | None], some: Mapping[str, str]) -> bool:
    return all(values.get(name) == value for name, value in some.items())


@dataclass(frozen=True, slots=True)
class PartitionExpr:
    """How the partition keys of an asset map to partitions of its table."""

    table: str
    columns: tuple[Column, ...]
    parts: tuple[PartitionColumn, ...]

    @classmethod
    def parse(
        cls,
        text: PartitionText,
        definition: dg.PartitionsDefinition[str],
        columns: Sequence[Column],
        table: str,
    ) -> PartitionExpr:
        """Parses `text`; `columns` are the table's partition columns. Raises InvalidDefinition."""
        by_dimension = _by_dimension(text, definition, table)
        parts = [
            part
            for dimension, (form, keys) in by_dimension.items()
            for part in _parts(form, dimension, keys, columns, table)
        ]
        names = [part.column.name for part in parts]
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidDefinition(f"partition_expr of {table} names {', '.join(twice)} twice")
        made = cls(table, tuple(columns), tuple(parts))
        for dimension, (_, keys) in by_dimension.items():
            made._refuse_collisions(dimension, keys)
        return made

    def scope(self, keys: Sequence[str]) -> PartitionScope:
        """The partitions that a run of these keys replaces. Raises NoSuchPartition."""
        quoted = frozenset(
            column.name
            for column in self.columns
            if column.type.kind not in (*INTEGRAL, "float", "double", "decimal")
        )
        return PartitionScope(
            self.table,
            tuple(column.name for column in self.columns),
            {
                str(key): {part.column.name: part.value(key, self.table) for part in self.parts}
                for key in keys
            },
            quoted,
            {str(key): self._spans(key) for key in keys},
        )

    def _spans(self, key: str) -> dict[str, TimeSpan]:
        spans = {}
        for dimension in {part.dimension for part in self.parts}:
            parts = [part for part in self.parts if part.dimension == dimension]
            if span := TimeSpan.of(parts, parts[0].key(key)):
                spans[dimension] = span
        return spans

    def _refuse_collisions(self, dimension: str, definition: dg.PartitionsDefinition[str]) -> None:
        """Raises InvalidDefinition if two keys have the same partition: each would lose rows."""
        key_of: dict[tuple[str, ...], str] = {}
        parts = [part for part in self.parts if part.dimension == dimension]
        for key in _sample(definition):
            values = tuple(part.value(key, self.table) for part in parts)
            if values in key_of:
                named = "/".join(
                    f"{part.column.name}={value}" for part, value in zip(parts, values, strict=True)
                )
                raise InvalidDefinition(
                    f"partition_expr of {self.table}: the keys {key_of[values]} and {key} are both"
                    f" {named} and would replace each other's rows; name more of the time"
                    " (year=%Y/month=%m), or let the asset take txn and write itself"
                )
            key_of[values] = key


def _by_dimension(
    text: PartitionText, definition: dg.PartitionsDefinition[str], table: str
) -> dict[str, tuple[str, dg.PartitionsDefinition[str]]]:
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        if not isinstance(text, str):
            raise InvalidDefinition(
                f"partition_expr of {table} must be a string, since its asset has one dimension"
            )
        return {"": (text, definition)}
    dimensions = {
        dimension.name: dimension.partitions_def for dimension in definition.partitions_defs
    }
    if isinstance(text, str) or set(text) != set(dimensions):
        raise InvalidDefinition(
            f"partition_expr of {table} must name each dimension of its asset:"
            f" {{{', '.join(f'{name!r}: …' for name in dimensions)}}}"
        )
    return {name: (text[name], definition) for name, definition in dimensions.items()}


def _parts(
    form: str,
    dimension: str,
    definition: dg.PartitionsDefinition[str],
    columns: Sequence[Column],
    table: str,
) -> Iterator[PartitionColumn]:
    by_name = {column.name: column for column in columns}
    for segment in form.split("/"):
        name, _, code = segment.partition("=")
        column = by_name.get(name.strip().lower())
        if column is None:
            raise InvalidDefinition(
                f"partition_expr of {table}: {name!r} is not a partition column of the table; they"
                f" are {', '.join(by_name) or 'none, the table is not partitioned'}"
            )
        if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
            if code:
                raise InvalidDefinition(
                    f"partition_expr of {table}: {segment!r} has a time format, but its partitions"
                    f" are not time windows; write {name!r}, the key is the value"
                )
            yield PartitionColumn(
                column, dimension, dynamic=isinstance(definition, dg.DynamicPartitionsDefinition)
            )
            continue
        kind = column.type.kind
        code = code or _DEFAULT_CODES.get(kind, "")
        if not code and kind != "string":
            raise InvalidDefinition(
                f"partition_expr of {table}: add a time format for {column}, such as"
                f" '{name}=%m' or '{name}=%Y%m%d'"
            )
        yield PartitionColumn(column, dimension, definition, code)


def _sample(definition: dg.PartitionsDefinition[str]) -> Iterable[str]:
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        return ()
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        keys = definition.get_partition_keys(current_time=definition.start + _SAMPLE)
        return dict.fromkeys([*keys[:500], *keys[-900:]])  # hourly keys: the same days next year
    return definition.get_partition_keys()
