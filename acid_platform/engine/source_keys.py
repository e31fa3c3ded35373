"""The keys by which rows are looked for and inserted, as regions of a table's rows (P51)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from acid_platform.engine.merge_clauses import MergeAction, MergeClause
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.scan.row_regions import FIRST_DAY, NUMBERS
from acid_platform.transactions.regions import (
    EVERY,
    MOST_KEYS,
    MOST_SPANS,
    ColumnSpans,
    KeyHashes,
    Region,
    Value,
)

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

    def take(self, source: pa.Table) -> None:
        names = {name.lower(): place for place, name in enumerate(source.column_names)}
        known = {own: names[other] for own, other in self.pairs.items() if other in names}
        self._rows = pa.table({own: source.column(place) for own, place in known.items()})

    def bound(self, bounds: Mapping[str, tuple[Any, Any]]) -> None:
        """The lowest and the highest values of columns of the source, by their names."""
        self._bounds = bounds

    def sought(self) -> Region:
        """The rows that ON may match."""
        if self._rows is not None:
            return region_of_keys(self._rows, self.columns, stored=False)
        spans = {}
        kinds = {column.name: column.type.kind for column in self.columns}
        for own, other in self.pairs.items():
            low, high = (_value(bound) for bound in (self._bounds or {}).get(other, (None, None)))
            if low is not None and high is not None and _alike(low, kinds[own]):
                spans[own] = ColumnSpans.of([(low, high)])
        return Region(spans)

    def inserted(self) -> KeyHashes | None:
        """The keys of the inserted rows, if each of them gets those of its source row."""
        inserts = [one for one in self.clauses if one.action is MergeAction.INSERT]
        if self._rows is None or not all(map(self._inserts_keys, inserts)):
            return None
        return region_of_keys(self._rows, self.columns, stored=True).keys

    def _inserts_keys(self, clause: MergeClause) -> bool:
        if clause.values is None:
            return all(own == other for own, other in self.pairs.items())
        from acid_platform.errors import InvalidExpression
        from acid_platform.predicates.analysis import parsed
        from acid_platform.scan.file_pruning import qualified

        values = {name.lower(): text for name, text in clause.values.items()}
        side = self.aliases[1].lower()
        try:
            return all(
                own in values and qualified(parsed(values[own])) == (side, other)
                for own, other in self.pairs.items()
            )
        except InvalidExpression:
            return False


def region_of_keys(rows: pa.Table, columns: Sequence[Column], stored: bool) -> Region:
    """The region of the table's rows that have the values of one of these rows, whose columns are
    some of the table's; rows with NULL have none.

    `stored`: the values are those to be stored, which a column of another type may change.
    """
    import pyarrow.compute as pc

    kinds = {column.name: column for column in columns}
    known = {
        name: rows.column(name)
        for name in rows.column_names
        if name in kinds and _comparable(rows.schema.field(name).type, kinds[name], stored)
    }
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
                    spans[name] = ColumnSpans.of((one, one) for one in dict.fromkeys(each))
    for name, column in known.items():
        if name not in spans:
            ends = pc.min_max(column)
            low, high = (_value(ends[end].as_py()) for end in ("min", "max"))
            spans[name] = ColumnSpans.of([] if low is None else [(low, high)])
    return Region(spans, keys)


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
