"""`acid import`: brings the rows of a source into a table, in one commit, and compares both (P50).

What a table has got from a source is remembered by the commit itself, as the batches of a stream
are (P42): a source with snapshots is imported once for each of them, however often it is asked for.
Compared are counts, exact sums and bounds of columns, which don't depend on the order of the rows
or on the types in which the values come: an integer of a source and the decimal that a table made
of it have one sum."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.base.progress import tell
from acid_platform.errors import (
    AcidError,
    ImportRefused,
    InvalidDefinition,
    NoSuchPartition,
    NoSuchTable,
    PublicationFailed,
    TableExists,
)
from acid_platform.handles.import_sources import ImportSource
from acid_platform.handles.row_statements import RowStatement, require_rows_fit
from acid_platform.handles.transaction import TransactionTable, autocommit
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.layout.types import INTEGRAL, TIMESTAMPS, Column
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import Sink, SinkBatch
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.scans import ArrowScan
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import Statement
from acid_platform.values.arrow_types import declared_text, values_of
from acid_platform.values.fitting import BYTES_TYPES, TEXT_TYPES, is_one_of, plain_values
from acid_platform.values.row_streams import RowStream
from acid_platform.values.rows import column_names

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

_Sums = dict[str, Fraction]
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_HALF = 27
"""Bits of the lower part of a float's digits; sums of both parts are exact in 64 bits."""
_LOWEST = 1_100
"""No float has a lower exponent than minus this."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ColumnTotals:
    """For each of the columns: how many values are not NULL, and depending on its type their exact
    sum, the bytes of the texts, or the first and last time.

    `source`: the types in which the values are read at first. Where a value changes with its type,
    as a text that becomes a number, only the number of values is compared.
    """

    def __init__(self, columns: Sequence[Column], source: pa.Schema) -> None:
        kinds = {field.name.lower(): plain_values(pa.nulls(0, field.type)).type for field in source}
        self._measures = {
            column.name: _measure(column.type.kind, kinds[column.name])
            for column in columns
            if column.name in kinds
        }
        self.rows = 0
        self._counts: Counter[str] = Counter()
        self._sums: dict[tuple[str, str], Fraction] = {}
        self._ends: dict[str, tuple[Fraction, Fraction]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are measured."""
        return tuple(self._measures)

    def like(self) -> ColumnTotals:
        """Empty totals of the same measures."""
        other = ColumnTotals((), pa.schema([]))
        other._measures = self._measures
        return other

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            name = name.lower()
            if name not in self._measures:
                continue
            values = plain_values(array).drop_null()
            self._counts[name] += len(values)
            measure = self._measures[name]
            if measure is None or not len(values):
                continue
            if measure is ColumnMeasure.TIMES:
                first, last = _ends(values)
                low, high = self._ends.get(name, (first, last))
                self._ends[name] = min(low, first), max(high, last)
                continue
            for what, total in _SUMS[measure](values).items():
                self._sums[name, what] = self._sums.get((name, what), Fraction()) + total

    def figures(self) -> dict[str, object]:
        """Each figure by its name, such as `sum of amount`."""
        named: dict[str, object] = {"rows": self.rows}
        for name in self._measures:
            named[f"values of {name}"] = self._counts[name]
        for (name, what), total in self._sums.items():
            named[f"{what} of {name}"] = total
        for name, (first, last) in self._ends.items():
            named |= {f"first {name}": _Moment(first), f"last {name}": _Moment(last)}
        return named


def differences(source: Mapping[str, object], stored: Mapping[str, object]) -> list[str]:
    """What differs, such as `sum of amount: 12.50 in the source, 12.40 stored`."""
    return [
        f"{name}: {_shown(source.get(name))} in the source, {_shown(stored.get(name))} stored"
        for name in {**source, **stored}
        if source.get(name) != stored.get(name)
    ]


class _Moment(Fraction):
    """Seconds since 1970, UTC."""


def _shown(value: object) -> str:
    if isinstance(value, _Moment):
        micros = int(value * 10**6)
        try:
            return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(" ")
        except OverflowError:
            return f"{micros} µs after 1970"
    if isinstance(value, Fraction):
        with localcontext(prec=60):
            return str(Decimal(value.numerator) / value.denominator)
    return "none" if value is None else str(value)


# --- measures -------------------------------------------------------------------------------------


class ColumnMeasure(Enum):
    """What is compared of a column beside the number of its values."""

    WHOLE = "the sum of integers or decimals"
    DOUBLES = "the sum of floats"
    SINGLES = "the sum of floats, each as a column of `float` stores it"
    TEXTS = "the bytes of texts"
    TIMES = "the first and last date or time"


def _measure(kind: str, source: pa.DataType) -> ColumnMeasure | None:
    """What is compared of a column whose type in the table is `kind`."""
    exact = pa.types.is_integer(source) or pa.types.is_decimal(source)
    if kind in (*INTEGRAL, "decimal"):
        return ColumnMeasure.WHOLE if exact else None
    if kind in ("float", "double"):
        if not exact and not pa.types.is_floating(source):
            return None
        return ColumnMeasure.SINGLES if kind == "float" else ColumnMeasure.DOUBLES
    if kind in ("date", *TIMESTAMPS):
        timed = pa.types.is_date(source) or pa.types.is_timestamp(source)
        return ColumnMeasure.TIMES if timed else None
    if kind in ("string", "binary") and is_one_of(source, (*TEXT_TYPES, *BYTES_TYPES)):
        return ColumnMeasure.TEXTS
    return None


def _exact_sum(values: pa.Array) -> _Sums:
    if pa.types.is_decimal(values.type):
        return {"sum": Fraction(pc.sum(values.cast(pa.decimal256(76, values.type.scale))).as_py())}
    numbers = values_of(values)
    if numbers.itemsize < 8:
        return {"sum": Fraction(int(numbers.sum(dtype=np.int64)))}
    high, low = numbers >> 32, numbers & 0xFFFFFFFF  # whose sums don't overflow
    return {"sum": Fraction((int(high.sum()) << 32) + int(low.sum()))}


def _float_sum(values: pa.Array, single: bool = False) -> _Sums:
    """The exact sum of the finite numbers as they are stored, and how many are NaN or infinite."""
    if pa.types.is_integer(values.type):  # those that are not exact are refused
        return _exact_sum(values)
    if pa.types.is_decimal(values.type):
        numbers = np.array([float(value) for value in values.to_pylist()])
    else:
        numbers = values_of(values).astype(np.float64)
    if single:
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    fractions, exponents = np.frexp(finite)
    digits = np.ldexp(fractions, 53).astype(np.int64)
    group = exponents + _LOWEST  # bincount takes no negative numbers
    high = np.bincount(group, digits >> _HALF)
    low = np.bincount(group, digits & ((1 << _HALF) - 1))
    total = Fraction()
    for exponent in np.flatnonzero((high != 0) | (low != 0)).tolist():
        sum_of_digits = (int(high[exponent]) << _HALF) + int(low[exponent])
        total += sum_of_digits * Fraction(2) ** (exponent - _LOWEST - 53)
    others = {
        "number of NaN": np.isnan(numbers).sum(),
        "number of Infinity": np.isposinf(numbers).sum(),
        "number of -Infinity": np.isneginf(numbers).sum(),
    }
    return {"sum": total, **{what: Fraction(int(n)) for what, n in others.items() if n}}


def _text_bytes(values: pa.Array) -> _Sums:
    return {"bytes": Fraction(pc.sum(pc.binary_length(values)).as_py())}


def _ends(values: pa.Array) -> tuple[Fraction, Fraction]:
    """The first and last one, in seconds since 1970, UTC."""
    numbers = values_of(values)
    if pa.types.is_date32(values.type):
        unit = Fraction(86_400)
    else:
        unit = Fraction(1, _PER_SECOND["ms" if pa.types.is_date(values.type) else values.type.unit])
    return int(numbers.min()) * unit, int(numbers.max()) * unit


_SUMS: dict[ColumnMeasure, Callable[[pa.Array], _Sums]] = {
    ColumnMeasure.WHOLE: _exact_sum,
    ColumnMeasure.DOUBLES: _float_sum,
    ColumnMeasure.SINGLES: partial(_float_sum, single=True),
    ColumnMeasure.TEXTS: _text_bytes,
}


"""Takes what is done, the rows so far, and how many there are if that is known."""
_LONGEST = 280
"""Letters of a source's name under which a table remembers it."""
_AGREE = "counts and sums agree"


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import has done: `how` is `all`, `added` or `nothing new`."""

    table: str
    source: str
    snapshot: str | None
    how: str
    rows: int

    def __str__(self) -> str:
        at = f" at {self.snapshot}" if self.snapshot else ""
        if self.how == "nothing new":
            return f"{self.table} has the rows of {self.source}{at} already: nothing was imported"
        if self.how == "added":
            return f"{self.rows} rows of {self.source}{at} were added to {self.table}; {_AGREE}"
        return (
            f"{self.table} has the {self.rows} rows of {self.source}{at}, and no others; {_AGREE}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class ImportRows(RowStatement[Imported]):
    """`txn.run(ImportRows("shop.customers", DeltaSource("lake/customers")))`.

    Without `overwrite` no row of the table is replaced: the first import needs an empty table, and
    so does each import of a source without snapshots. From a source with snapshots, later imports
    insert the rows that it has added since, and nothing if there are none; they raise ImportRefused
    if it has changed other rows. With `overwrite` all rows of the table are replaced by those of
    the source.

    Values keep their types or are refused, as by `insert`. Raises PublicationFailed if the counts,
    sums or bounds of the columns differ between the source and what was stored, and then nothing is
    committed; ImportRefused, also for an error of the source; WrongType, UnknownColumn,
    NoSuchPartition, NeedsSpark for what only Spark can store.
    """

    source: ImportSource
    overwrite: bool = False

    def run(self, work: TransactionWork, record: TableRecord) -> Imported:
        last = self._last(work, record)
        since = None
        if not self.overwrite and TransactionTable(work, record.name).count():
            since = self._since(record, last)
        if since is not None and since == self.source.snapshot:
            return self._imported(record, "nothing new", 0)
        own, keys = columns_of_record(record)
        whole = since is None
        reader = self.source.rows((*own, *keys)) if whole else self.source.added(str(since))
        with reader:  # also after an error, whose frames would keep it
            names = column_names(reader.schema.empty_table())
            require_rows_fit(record, names)
            if missing := {column.name for column in keys} - {name.lower() for name in names}:
                raise NoSuchPartition(
                    f"{self.source.name} lacks {min(missing)!r}, a partition column of"
                    f" {record.name}: add it in a view of the source, or import into a table"
                    " without partitions"
                )
            totals = ColumnTotals((*own, *keys), reader.schema)
            rows = self._write(work, record, reader, totals, whole)
        self._compare(work, record, totals)
        number = 1 if last is None else last.batch + 1
        name, snapshot = _remembered(self.source), self.source.snapshot or ""
        work.sinks.append(SinkBatch(name, record.name, snapshot, number, rows, any_rows=True))
        return self._imported(record, "all" if whole else "added", rows)

    def _imported(self, record: TableRecord, how: str, rows: int) -> Imported:
        return Imported(record.name, self.source.name, self.source.snapshot, how, rows)

    def _last(self, work: TransactionWork, record: TableRecord) -> Sink | None:
        """What the last import from this source has committed."""
        name = _remembered(self.source)
        rows = work.warehouse.metastore.call(ops.GetSinks(record.name))
        return next((row.sink for row in rows if row.sink.sink == name), None)

    def _since(self, record: TableRecord, last: Sink | None) -> str:
        """The snapshot whose rows the table has. Raises ImportRefused if it has other rows."""
        if last is not None and self.source.snapshot is not None:
            return last.query
        why = (
            "and none of an import from there"
            if last is None
            else "and the source has no snapshots, by which new rows could be told from old ones"
        )
        raise ImportRefused(
            f"{record.name} has rows, {why}: to replace them all by those of {self.source.name},"
            " say --overwrite (overwrite=True), or import into another table"
        )

    def _write(
        self,
        work: TransactionWork,
        record: TableRecord,
        reader: pa.RecordBatchReader,
        totals: ColumnTotals,
        whole: bool,
    ) -> int:
        # An overwrite also of an empty table: it conflicts with whoever inserts meanwhile.
        work.lock(record, Statement.INSERT_OVERWRITE if whole else Statement.INSERT)
        layout = work.view.layout(record)
        emptied = sorted(layout.partitions) if record.partitioned else [""]
        work.refuse_together(record, emptied if whole else [""], overwrite=whole)

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in self.source.batches(reader):
                totals.add(batch)
                tell("importing", totals.rows, self.source.rows_known if whole else None)
                yield batch

        rows = RowStream(reader.schema, counted())
        with work.warehouse.using("local"):
            written = work.write(
                record,
                lambda engine, target: (
                    engine.overwrite(rows, target, {}, emptied)
                    if whole
                    else engine.insert(rows, target, {})
                ),
                rows,
            )
        operation = RowOperation.UPDATE if whole else RowOperation.INSERT
        count = work.report(record, operation, written, overwrite=whole)
        work.count(record.name, **{"overwritten" if whole else "inserted": count})
        return count

    def _compare(self, work: TransactionWork, record: TableRecord, expected: ColumnTotals) -> None:
        """Reads the files that were written, and nothing else of the table."""
        own = {(report.partition or "", report.directory) for report in work.view.reports}
        [scan] = work.view.scans([work.view.request(record.name)])
        entities = [
            replace(
                entity,
                sources=replace(
                    entity.sources,
                    inserts=tuple(
                        source
                        for source in entity.sources.inserts
                        if (entity.partition, source.directory) in own
                    ),
                ),
            )
            for entity in scan.entities
        ]
        stored = expected.like()
        mine = replace(scan, entities=tuple(entities))
        for batch in ArrowScan(mine, expected.names).batches():
            stored.add(batch)
            tell("comparing", stored.rows, expected.rows)
        if different := differences(expected.figures(), stored.figures()):
            raise PublicationFailed(
                f"{record.name} and {self.source.name} differ: {'; '.join(different[:5])}; nothing"
                " was committed, import again"
            )


def import_table(
    warehouse: Warehouse,
    name: str,
    source: ImportSource,
    overwrite: bool = False,
    schema: str | None = None,
) -> Imported:
    """Runs ImportRows as a transaction of its own; makes the table if it is not there.

    A table is made with the columns of the source, or with `schema`, such as `"id int"`. If the
    import then fails, that table is dropped again. Raises as ImportRows, and ImportRefused for a
    column whose type no table has.
    """
    new = False
    try:
        table = warehouse.table(name)
    except NoSuchTable:
        columns = schema or source_columns(source)
        try:
            table, new = warehouse.create_table(name, columns), True
        except TableExists:  # made meanwhile
            table = warehouse.table(name)
    statement = ImportRows(table.name, source, overwrite)
    try:
        return autocommit(warehouse, table.name, lambda txn: txn.run(statement))
    except BaseException:
        if new:
            with suppress(AcidError):
                warehouse.metastore.drop(table.name, wait=1.0, unwritten=True)
        raise


def source_columns(source: ImportSource) -> str:
    """The columns of a table for the source, as `create_table` takes them.

    Raises ImportRefused for a type that no table has, and if the source has no columns.
    """
    columns = []
    if not len(source.schema):
        raise ImportRefused(
            f"{source.name} has no rows, whose names would be the columns of a new table; say"
            ' which columns it has (--schema "id int, v string")'
        )
    for field in source.schema:
        try:
            if getattr(field.type, "extension_name", "") == "arrow.opaque":
                raise InvalidDefinition(
                    f"column {field.name!r} is {field.type}: its values have no type of Arrow"
                )
            columns.append(declared_text(pa.schema([field])))
        except InvalidDefinition as error:
            raise ImportRefused(
                f"{source.name}: {error}; name the other columns by --columns, cast it in a view of"
                " the source, or create the table with a type that holds it"
            ) from error
    return ", ".join(columns)


def _remembered(source: ImportSource) -> str:
    """The name of the sink; a long one ends with a checksum of the rest."""
    name = f"import {source.name}"
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 20]} {hashlib.sha256(name.encode()).hexdigest()[:16]}"
