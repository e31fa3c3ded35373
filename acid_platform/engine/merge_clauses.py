"""UPDATE and MERGE, whichever engine runs them: the clauses of a MERGE, what may be assigned, and
the keys by which a MERGE looks for rows and inserts them, as regions of the table (P51).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from acid_platform.base.arguments import nearest_name, require_texts
from acid_platform.errors import (
    BucketColumnUpdate,
    InvalidExpression,
    PartitionColumnUpdate,
    UnknownColumn,
)
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import INTEGRAL, Column, HiveType, require_columns, unknown_column
from acid_platform.scan.row_regions import FIRST_DAY, NUMBERS
from acid_platform.scan.scans import Scan
from acid_platform.transactions.row_sets import (
    EVERY,
    MOST_KEYS,
    MOST_SPANS,
    ColumnSpans,
    KeyHashes,
    Region,
    Value,
)
from acid_platform.values.arrow_types import arrow_type

VALUES = "a dict of columns and SQL texts, such as {'v': 's.v'}"


class MergeAction(Enum):
    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN [NOT] MATCHED [BY SOURCE] [AND condition] THEN action; the first clause that applies to
    a row is used.

    `values`: column, or field of a struct such as `s.a` → SQL over `t` and `s`; None in an UPDATE
    or INSERT means all columns by name. `by_source`: it is for the table's rows that no row of the
    source matches, and its SQL reads `t` alone.
    """

    action: MergeAction
    values: Mapping[str, str] | None = None
    condition: str | None = None
    by_source: bool = False

    def __post_init__(self) -> None:
        """Raises InvalidExpression for a condition that is not text, such as True, and for what
        needs a row of the source where there is none."""
        require_texts("values", self.values, VALUES, InvalidExpression)
        if self.condition is not None and not isinstance(self.condition, str):
            raise InvalidExpression(
                f"the condition of WHEN … THEN {self.action.name} is {self.condition!r}: write SQL"
                " text such as 's.gone', or 'true' for all rows"
            )
        if self.by_source and (
            self.action is MergeAction.INSERT
            or (self.action is MergeAction.UPDATE and self.values is None)
        ):
            what = "INSERT" if self.action is MergeAction.INSERT else "UPDATE SET *"
            raise InvalidExpression(
                f"WHEN NOT MATCHED BY SOURCE THEN {what} has no row of the source to read; use"
                " DELETE, or UPDATE SET column = value"
            )

    @property
    def takes_all(self) -> bool:
        """Whether it takes all columns of the source, by name."""
        return self.values is None and self.action is not MergeAction.DELETE

    @property
    def rows(self) -> str:
        """The rows that it is for, as SQL says it."""
        if self.by_source:
            return "NOT MATCHED BY SOURCE"
        return "NOT MATCHED" if self.action is MergeAction.INSERT else "MATCHED"


def merge_clauses(
    update: Mapping[str, str] | Literal["*"] | None,
    delete: str | None,
    insert: Mapping[str, str] | Literal["*"] | None,
) -> Iterator[MergeClause]:
    """The clauses of the short form: a row that the delete condition accepts is not updated."""
    if delete is not None:
        yield MergeClause(MergeAction.DELETE, None, delete)
    for name, values in (("when_matched_update", update), ("when_not_matched_insert", insert)):
        if values != "*":
            require_texts(name, values, f"'*', or {VALUES}", InvalidExpression)
    if update is not None:
        yield MergeClause(MergeAction.UPDATE, None if update == "*" else update)
    if insert is not None:
        yield MergeClause(MergeAction.INSERT, None if insert == "*" else insert)


def require_reachable(clauses: Sequence[MergeClause]) -> None:
    """Raises InvalidExpression for a clause that no row reaches: one before it, for the same rows,
    has no condition."""
    unconditional: dict[str, MergeClause] = {}
    for clause in clauses:
        if clause.rows in unconditional:
            words = f"WHEN {clause.rows}"
            raise InvalidExpression(
                f"MERGE: {words} THEN {clause.action.name} is never reached, since {words} THEN"
                f" {unconditional[clause.rows].action.name} before it takes every row; give that"
                " one a condition, or leave one out"
            )
        if clause.condition is None:
            unconditional[clause.rows] = clause


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """Rows that a MERGE changed."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0


def wanted_assignments(
    assignments: Mapping[str, str], scan: Scan, buckets: Bucketing | None, table: str
) -> dict[str, str]:
    """The assignments of SET, with names in lower case; a field of a struct is named `s.a`.

    Raises InvalidExpression if there is none or two of one value, PartitionColumnUpdate,
    BucketColumnUpdate, UnknownColumn.
    """
    partition = {column.name for column in scan.partition_columns}
    expressions = _by_column(assignments, table)
    if not expressions:
        raise InvalidExpression(f"UPDATE of {table} assigns nothing; give {{'column': 'SQL'}}")
    for name, text in expressions.items():
        if re.fullmatch(r"\s*\d{4}-\d\d-\d\d\s*", text):
            raise InvalidExpression(
                f"UPDATE of {table}: {name} = {text.strip()} is a subtraction; a date and a text"
                f" stand in quotes: '{text.strip()}'"
            )
        if name in partition:
            raise PartitionColumnUpdate(
                f"{name!r} is a partition column of {table}: UPDATE can't move a row to another"
                " partition; delete the row and insert it again in one transaction"
            )
    for target in targets_of(expressions, scan.columns, table):
        if buckets and target.column.name in buckets.columns:
            raise BucketColumnUpdate(
                f"{target.value.name!r} decides the bucket of a row of {table}: UPDATE can't move a"
                " row to another bucket; delete the row and insert it again in one transaction"
            )
    return expressions


@dataclass(frozen=True, slots=True)
class SetTarget:
    """What SET gives a value: a column, or a field of one that is a struct, at any depth."""

    column: Column
    fields: tuple[str, ...] = ()
    """The names from the column down to the field."""

    @property
    def value(self) -> Column:
        """The name as SET spells it, with the type of its values."""
        kind = self.column.type
        for name in self.fields:
            kind = dict(kind.children)[name]
        return Column(".".join((self.column.name, *self.fields)), kind)


def targets_of(
    names: Iterable[str], columns: Sequence[Column], table: str
) -> tuple[SetTarget, ...]:
    """What names of SET mean, in lower case: `v`, or `s.a`; in the order of the columns.

    Raises UnknownColumn, InvalidExpression for a field beside a value of what holds it.
    """
    places = {column.name: index for index, column in enumerate(columns)}
    targets = [_target(name, columns, table) for name in names]
    targets.sort(key=lambda target: (places[target.column.name], target.fields))
    for before, after in pairwise(targets):
        part = after.fields[: len(before.fields)] == before.fields
        if before.column == after.column and part:
            raise InvalidExpression(
                f"SET of {table} gives {before.value.name} a value, and {after.value.name}, which"
                " is a part of it; set one of them"
            )
    return tuple(targets)


def _target(name: str, columns: Sequence[Column], table: str) -> SetTarget:
    for column in columns:
        if column.name == name:
            return SetTarget(column)
    for column in columns:
        if name.startswith(f"{column.name}.") and column.type.kind == "struct":
            rest = name.removeprefix(f"{column.name}.")
            if (fields := _fields(column.type, rest)) is not None:
                return SetTarget(column, fields)
            raise UnknownColumn(
                f"{table} has no column {name!r}: the fields of {column.name} are {column.type}"
            )
    raise unknown_column(name, table, columns)


def _fields(kind: HiveType, path: str) -> tuple[str, ...] | None:
    """The names of a path such as `a.b` below a struct, whose names may have dots; None: there is
    no such field."""
    for name, child in kind.children if kind.kind == "struct" else ():
        if path == name:
            return (name,)
        if path.startswith(f"{name}."):
            below = _fields(child, path.removeprefix(f"{name}."))
            if below is not None:
                return (name, *below)
    return None


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
    columns, such as the `op` of a change feed. One that no expression of the statement reads and
    that is called nearly as a column of the table that the source lacks is that one, misspelt.
    Raises UnknownColumn, InvalidExpression for a column that is given two values.
    """
    if clause.values is not None:
        values = _by_column(clause.values, table)
        require_columns(values, columns, table)
        return {**defaults, **values}
    names = {column.name for column in columns}
    own = [name for name in source if name.lower() in names]
    others = [name for name in source if name.lower() not in names]
    missing = sorted(names - {name.lower() for name in own})
    if others and missing:
        from acid_platform.predicates.analysis import columns_of  # the parser loads slowly
        from acid_platform.scan.change_scan import CHANGE_COLUMNS

        read = {column.name for column in CHANGE_COLUMNS}
        for text in expressions:
            named = columns_of(text)
            read |= {name.lower() for name in others} if named is None else named
        for name in others:
            if name.lower() not in read and nearest_name(name.lower(), missing):
                raise unknown_column(name, table, columns)
    return {**defaults, **{name.lower(): quoted(name) for name in own}}


def values_of_all(
    columns: Sequence[Column], source: Iterable[str], alias: str, table: str
) -> dict[str, str]:
    """The values of `UPDATE SET *` and `INSERT *`: of each column, the source's of that name.

    `alias`: what expressions call the source. Other columns of the source are not read. Raises
    UnknownColumn for columns that the source lacks.
    """
    spelled = {name.lower(): name for name in source}
    if missing := [column.name for column in columns if column.name not in spelled]:
        raise UnknownColumn(
            f"MERGE into {table}: * takes all columns by name, and the source has no"
            f" {', '.join(missing)}; name the columns to set, each with its value"
        )
    return {column.name: f"{quoted(alias)}.{quoted(spelled[column.name])}" for column in columns}


def expressions_of(on: str, clauses: Iterable[MergeClause]) -> list[str]:
    """All SQL texts of a MERGE."""
    texts = [on]
    for clause in clauses:
        texts += [clause.condition] if clause.condition is not None else []
        texts += (clause.values or {}).values()
    return texts


_MOST_HASHED = 100_000
"""More rows are told by their lowest and highest values alone."""


@dataclass(slots=True)
class SourceKeys:
    """What a MERGE looks for: the table's rows with the values of its source's keys.

    `pairs`: the table's columns that ON demands to be equal to columns of the source. The engine
    gives the source by `take`, or the bounds of its columns by `bound`; what it does not give is
    not known. Regions are computed when they are asked for, which is only if the commit needs them.
    """

    columns: Sequence[Column]
    pairs: Mapping[str, str]
    clauses: Sequence[MergeClause]
    aliases: tuple[str, str]
    _rows: pa.Table | None = None
    _bounds: Mapping[str, tuple[Any, Any]] | None = None
    _found: tuple[list[str], Region] | None = None
    """The columns that `sought` knew, and their region."""

    def take(self, source: pa.Table) -> None:
        names = {name.lower(): index for index, name in enumerate(source.column_names)}
        known = {own: names[other] for own, other in self.pairs.items() if other in names}
        self._rows = pa.table({own: source.column(column) for own, column in known.items()})

    def bound(self, bounds: Mapping[str, tuple[Any, Any]]) -> None:
        """The lowest and the highest values of columns of the source, by their names."""
        self._bounds = bounds

    def sought(self) -> Region:
        """The rows that ON may match."""
        if self._rows is not None:
            region = region_of_keys(self._rows, self.columns, stored=False)
            self._found = _known_columns(self._rows, self.columns, stored=False), region
            return region
        spans = {}
        kinds = {column.name: column.type.kind for column in self.columns}
        for own, other in self.pairs.items():
            low, high = (_value(bound) for bound in (self._bounds or {}).get(other, (None, None)))
            if low is not None and high is not None and _alike(low, kinds[own]):
                spans[own] = ColumnSpans.of([(low, high)])
        return Region(spans)

    def brought(self) -> KeyHashes | None:
        """The keys of the inserted and updated rows, if each has those of its source row."""
        if self._rows is None or self.pairs.keys() & self.assigned():
            return None
        for clause in self.clauses:
            if clause.action is MergeAction.INSERT:
                if not all(self._gives(clause, own) for own in self.pairs):
                    return None
            elif clause.action is MergeAction.UPDATE and clause.by_source:
                return None
        if self._found and self._found[0] == _known_columns(self._rows, self.columns, stored=True):
            return self._found[1].keys
        return region_of_keys(self._rows, self.columns, stored=True).keys

    def assigned(self) -> set[str]:
        """The columns of the table to which UPDATE gives other values than ON demands."""
        columns = set[str]()
        for clause in self.clauses:
            if clause.action is MergeAction.UPDATE:
                same = {own for own in self.pairs if self._gives(clause, own) and self._equals(own)}
                columns |= assigned_columns(clause.values or (), self.columns) - same
        return columns

    def _equals(self, own: str) -> bool:
        """Whether a value of the source that ON finds equal to the column's is stored as this."""
        column = next(column for column in self.columns if column.name == own)
        if self._rows is not None:
            given = self._rows.schema.field(own).type
            return given == arrow_type(column.type) or _comparable(given, column, stored=False)
        low, _ = (self._bounds or {}).get(self.pairs[own], (None, None))
        value = _value(low)
        return value is not None and _alike(value, column.type.kind)

    def _gives(self, clause: MergeClause, own: str) -> bool:
        """Whether a clause gives a column what ON compares it with."""
        if clause.values is None:
            return own == self.pairs[own]
        from acid_platform.predicates.analysis import parsed
        from acid_platform.scan.recorded_ranges import qualified

        values = {name.lower(): text for name, text in clause.values.items()}
        try:
            source = self.aliases[1].lower(), self.pairs[own]
            return own in values and qualified(parsed(values[own])) == source
        except InvalidExpression:
            return False


def assigned_columns(names: Iterable[str], columns: Sequence[Column]) -> set[str]:
    """The columns that SET names, or fields of them. Raises as `targets_of`."""
    targets = targets_of(map(str.lower, names), columns, "")
    return {target.column.name for target in targets}


def region_of_keys(rows: pa.Table, columns: Sequence[Column], stored: bool) -> Region:
    """The region of the table's rows that have the values of one of these rows, whose columns are
    some of the table's; rows with NULL have none.

    `stored`: the values are those to be stored, which a column of another type may change.
    """
    import pyarrow.compute as pc

    known = {name: rows.column(name) for name in _known_columns(rows, columns, stored)}
    if not known:
        return EVERY
    spans, keys = {}, None
    if rows.num_rows <= _MOST_HASHED:
        distinct = pa.table(known).group_by(list(known)).aggregate([]).drop_null()
        if distinct.num_rows <= MOST_KEYS:
            values = {name: _values(distinct.column(name)) for name in known}
            keys = KeyHashes.of(list(values), zip(*values.values(), strict=True))
            for name, each in values.items():
                if len(set(each)) <= MOST_SPANS:
                    spans[name] = ColumnSpans.of((value, value) for value in dict.fromkeys(each))
    for name, column in known.items():
        if name not in spans:
            ends = pc.min_max(column)
            low, high = (_value(ends[end].as_py()) for end in ("min", "max"))
            spans[name] = ColumnSpans.of([] if low is None else [(low, high)])
    return Region(spans, keys)


def _known_columns(rows: pa.Table, columns: Sequence[Column], stored: bool) -> list[str]:
    """The names of those columns of the rows whose values tell those of the table."""
    kinds = {column.name: column for column in columns}
    return [
        field.name
        for field in rows.schema
        if field.name in kinds and _comparable(field.type, kinds[field.name], stored)
    ]


def _comparable(given: pa.DataType, column: Column, stored: bool) -> bool:
    """Whether values of this type equal those of the column exactly if they are the same value;
    `stored`: also whether the column stores them as they are."""
    kind = column.type.kind
    if pa.types.is_integer(given):
        return kind in NUMBERS
    if pa.types.is_decimal(given):
        finer = kind == "decimal" and given.scale > column.type.sizes[1]
        return kind in NUMBERS and not (stored and (kind in INTEGRAL or finer))
    if pa.types.is_date32(given):
        return kind == "date"
    texts = pa.types.is_string(given) or pa.types.is_large_string(given)
    return texts and (kind == "string" or (kind == "varchar" and not stored))


def _values(column: pa.ChunkedArray) -> list[Value]:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[Value] = column.to_pylist()
    return values


def _value(given: Any) -> Value | None:
    if isinstance(given, datetime.date):
        return given.toordinal() - FIRST_DAY
    return given if isinstance(given, int | Decimal | str) else None


def _alike(value: Value, kind: str) -> bool:
    """Whether a bound that Spark gave compares as values of the column do."""
    return kind in ("string", "varchar") if isinstance(value, str) else kind in (*NUMBERS, "date")


def names_of(pairs: Mapping[str, str], columns: Iterable[str]) -> list[str]:
    """The columns of a source, as it spells them, whose bounds a MERGE may tell."""
    wanted = set(pairs.values())
    return [name for name in columns if name.lower() in wanted]
