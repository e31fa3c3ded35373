"""Aggregates of a whole table, or of some of its partitions, that the records of its files tell:
`SELECT count(*), min(a), max(b) FROM t WHERE p = 1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from acid_platform.base.per_process import usable_cores
from acid_platform.engine.results import ArrowResult, Result
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.handles.snapshot_view import ScanRequest
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.recorded_values import RecordedFile, recorded_count, recorded_extreme
from acid_platform.sql.pruning import bare_condition
from acid_platform.sql.text import Query
from acid_platform.sql.text import query as parsed_query
from acid_platform.sql.time_travel import changes_between, unmarked
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.arrow_numpy import from_numpy

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.sql.catalog import Catalog

ROWS_FOR_EACH = 150_000
"""For each column that is looked through, the files with deletes must have this many rows: if they
have fewer, the engine reads all columns at once in less time."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count`, `min` or `max` of a column, or `count(*)`, and the name of the result's column."""

    function: str
    column: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Aggregated:
    """A query that has nothing but aggregates of one table."""

    table: str
    aggregates: tuple[Aggregate, ...]
    where: exp.Expr | None = None
    """A condition over bare names of the table's columns."""

    @property
    def only_counts(self) -> bool:
        return all(each.column is None for each in self.aggregates)


def from_records(warehouse: Warehouse, catalog: Catalog, query: Query) -> Result | Query:
    """The result of a query, if the records of files prove all of it; else the query that remains,
    with the proven aggregates as literals."""
    asked = aggregated(query.tree)
    if asked is None:
        return query
    full = catalog.full(asked.table)
    if changes_between(asked.table) is not None or catalog.view(full) or catalog.external(full):
        return query
    record, where = catalog.record(asked.table), asked.where
    own, keys = columns_of_record(record)
    columns = {column.name: column for column in own}
    if any(each.column not in columns for each in asked.aggregates if each.column is not None):
        return query
    predicate = None
    if where is not None:  # the translation takes long to import
        from acid_platform.predicates.arrow_predicates import predicate_or_none

        predicate = predicate_or_none(where, keys)
        if predicate is None:
            return query
    text = None if where is None else where.sql(dialect="spark")
    (scan,) = catalog.scans([ScanRequest(record, text, catalog.past(asked.table))])
    arrow_scan = ArrowScan(scan, (), predicate)
    here = warehouse.engines.reads_here(catalog.in_force, scan.read_bytes)
    if asked.only_counts:
        values: list[pa.Scalar | None] = [_count(arrow_scan.count())] * len(asked.aggregates)
    else:
        kept = arrow_scan.kept_files()
        files = None if kept is None else [RecordedFile.of(file) for file in kept]
        values = [
            None if files is None else _proven(each, files, columns) for each in asked.aggregates
        ]
        unproven = sum(value is None for value in values)
        worth_it = files and _rows_in_doubt(files) >= ROWS_FOR_EACH * unproven
        if files and here and unproven and worth_it:
            values = _read(arrow_scan, asked.aggregates, values, files, columns)
    proven = [value for value in values if value is not None]
    if len(proven) == len(values):
        arrays = [pa.repeat(value, 1) for value in proven]
        names = [each.name for each in asked.aggregates]
        why = "answered from the records of files"
        return ArrowResult(pa.Table.from_arrays(arrays, names), lambda: warehouse.spark, why)
    if not proven or unmarked(asked.table)[1] is not None:
        return query
    return _with_literals(query.tree, asked, values, columns)


def _count(rows: int) -> pa.Scalar:
    return from_numpy(np.array([rows], np.int64))[0]


def _proven(
    aggregate: Aggregate, files: list[RecordedFile], columns: dict[str, Column]
) -> pa.Scalar | None:
    column = None if aggregate.column is None else columns[aggregate.column]
    if aggregate.function == "count":
        rows = recorded_count(files, column)
        return None if rows is None else _count(rows)
    assert column is not None
    return recorded_extreme(files, column, aggregate.function == "max")


def _rows_in_doubt(files: list[RecordedFile]) -> int:
    return sum(file.source.rows or 0 for file in files if not file.whole)


def _read(
    scan: ArrowScan,
    aggregates: Sequence[Aggregate],
    values: Sequence[pa.Scalar | None],
    files: list[RecordedFile],
    columns: dict[str, Column],
) -> list[pa.Scalar | None]:
    """The values, and those bounds that few stripes tell, where the records do not prove them."""

    def extreme(aggregate: Aggregate, value: pa.Scalar | None) -> pa.Scalar | None:
        if value is not None or aggregate.column is None or aggregate.function == "count":
            return value
        greatest = aggregate.function == "max"
        with suppress(UnsupportedLayout, NeedsSpark):  # an engine says what is wrong, or can do it
            return recorded_extreme(files, columns[aggregate.column], greatest, scan)
        return None

    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(extreme, aggregates, values))


def _with_literals(
    tree: exp.Query,
    asked: Aggregated,
    values: list[pa.Scalar | None],
    columns: dict[str, Column],
) -> Query:
    """The query with the values that are known in the place of their aggregates."""
    items = []
    for item, aggregate, value in zip(tree.expressions, asked.aggregates, values, strict=True):
        text = item.unalias().sql(dialect="spark")
        if value is not None:
            kind = "bigint"
            if aggregate.function != "count" and aggregate.column is not None:
                kind = str(columns[aggregate.column].type)
            written = _literal(value)
            if not written.endswith(" '"):  # of such a literal it is asked whether it is a CHAR
                text = f"CAST({written} AS {kind})"
        items.append(f"{text} AS {quoted(aggregate.name)}")
    rest = "".join(
        f" {tree.args[clause].sql(dialect='spark')}"
        for clause in ("from_", "where")
        if tree.args.get(clause)
    )
    return parsed_query(f"SELECT {', '.join(items)}{rest}")


def _literal(value: pa.Scalar) -> str:
    """What becomes the value when it is cast to its type."""
    known = value.as_py()
    if isinstance(known, int) and abs(known) < 1 << 63:  # a text of digits takes longer to cast
        return str(known)
    return "NULL" if known is None else sql_string(str(known))


def aggregated(tree: exp.Query) -> Aggregated | None:
    """What a query aggregates, if it has nothing but `count`, `min` and `max` of columns of one
    table, perhaps with a WHERE that compares columns and literals; None for any other query."""
    if not isinstance(tree, exp.Select):
        return None
    used = {name for name, value in tree.args.items() if value}
    if used - {"expressions", "from_", "kind", "where"}:
        return None
    source = tree.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return None
    if {name for name, value in table.args.items() if value} - {"this", "db", "alias"}:
        return None
    aggregates = tuple(_aggregates(tree, table))
    if not aggregates or len(aggregates) < len(tree.expressions):
        return None
    where = tree.args.get("where")
    condition = None if where is None else bare_condition(where.this, table)
    if where is not None and condition is None:
        return None
    name = f"{table.db}.{table.name}" if table.db else table.name
    return Aggregated(name.lower(), aggregates, condition)


def _aggregates(tree: exp.Select, table: exp.Table) -> Iterator[Aggregate]:
    """The columns of the result that are such aggregates."""
    for item in tree.expressions:
        call = item.unalias()
        if not isinstance(call, exp.Count | exp.Min | exp.Max):
            continue
        function, argument = call.key, call.this
        parts = {name for name, value in call.args.items() if value}
        if isinstance(argument, exp.Star) and function == "count":
            if not argument.args.get("except_"):
                yield Aggregate("count", None, item.alias or "count(1)")
        elif isinstance(argument, exp.Column) and parts <= {"this", "big_int"}:
            own = argument.table.lower() in ("", table.alias_or_name.lower())
            if own and isinstance(argument.this, exp.Identifier) and not argument.args.get("db"):
                name = item.alias or f"{function}({argument.name})"
                yield Aggregate(function, argument.name.lower(), name)
