"""Running and explaining queries: views are expanded, all tables are read at one snapshot.

Aggregates of a whole table, or of some of its partitions, may be told by the records of its files:
`SELECT count(*), min(a), max(b) FROM t WHERE p = 1`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from acid_platform.base.config import Settings
from acid_platform.base.first_use import Recent, lent_threads, usable_cores
from acid_platform.engine.interface import ArrowResult, ChangeRead, Result, Sources, TableRead
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.handles.snapshot_views import ScanRequest
from acid_platform.layout.acid_keys import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column
from acid_platform.metastore.client import lineage_events
from acid_platform.metastore.operations.listings import Shown
from acid_platform.predicates.known_columns import unresolved_column
from acid_platform.scan.recorded_ranges import RecordedFile, recorded_count, recorded_extreme
from acid_platform.scan.scans import ArrowScan
from acid_platform.sql.catalog import self_contained, tables_read
from acid_platform.sql.column_references import refuse_unknown_names
from acid_platform.sql.query_tables import Bound, QueryTable, bind
from acid_platform.sql.scopes import bare_condition, full_name, stored_tables
from acid_platform.sql.statements import Change, rows_read
from acid_platform.sql.text import Query
from acid_platform.sql.text import query as parsed_query
from acid_platform.sql.time_travel import changes_between, stored_name, unmarked
from acid_platform.tables.external_tables import open_external
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.transactions.concurrency import Statement as Locked
from acid_platform.transactions.concurrency import lock_of
from acid_platform.values.arrow_types import from_numpy

if TYPE_CHECKING:
    from acid_platform.engine.interface import Engine
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord, ViewRecord
    from acid_platform.scan.change_scan import ChangeScan
    from acid_platform.sql.catalog import Catalog
    from acid_platform.sql.statements import CommandRun


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query, and what it reads of each table, by the placeholder in its text."""

    text: str
    reads: Sources
    sources: tuple[QueryTable, ...]
    settings: Settings

    def renamed(self) -> PlannedQuery:
        """This query with new placeholders for its tables."""
        text, prefix = self.text, placeholder()
        reads: dict[str, TableRead | ChangeRead] = {}
        for number, (name, read) in enumerate(self.reads.items()):
            reads[f"{prefix}_{number}"] = read
            text = re.sub(rf"\b{name}\b", f"{prefix}_{number}", text)
        return replace(self, text=text, reads=reads)


def plan(catalog: Catalog, query: Query) -> PlannedQuery:
    """Plans a query at the snapshot of the catalog.

    Raises NoSuchTable, UnknownColumn, InvalidDefinition, SnapshotExpired.
    """
    bound = _bound(catalog, query)
    reads = reads_of(catalog, bound.sources)
    return PlannedQuery(bound.text, reads, bound.sources, catalog.in_force)


_BOUND: Recent[object, tuple[Query, Bound]] = Recent(256)
"""By the identity of the query, which is kept with it, the database, and the declarations of the
tables; only of queries without views."""


def _bound(catalog: Catalog, query: Query) -> Bound:
    """The query over placeholders, which are the same when the same parsed query comes again.

    Raises NoSuchTable, UnknownColumn, InvalidDefinition.
    """
    database, names = catalog.current_database, names_in(catalog, query)
    key = None
    if catalog.all_tables(names):
        records = map(catalog.record, names)
        tables = tuple((record.name, record.table_id, record.version) for record in records)
        key = (id(query), database, catalog.metastore_id, tables)
        if (last := _BOUND.get(key)) is not None:
            return last[1]
    refuse_unknown_names(query.tree, catalog.columns, database)
    bound = bind(query, placeholder(), catalog.columns, database, catalog.view_query)
    if key is not None:
        _BOUND.put(key, (query, bound))
    return bound


def names_in(catalog: Catalog, query: Query) -> list[str]:
    """The full names of the tables and views that a query itself names."""
    database = catalog.current_database
    return sorted({catalog.full(full_name(table, database)) for table in stored_tables(query.tree)})


def tables_of(catalog: Catalog, query: Query) -> list[str]:
    """The tables that a query reads, also through views, so that a lease can protect them.

    Raises NoSuchTable, InvalidDefinition.
    """
    names = tables_read(query, catalog.current_database, catalog.view_query)
    return sorted({catalog.record(name).name for name in names if not catalog.external(name)})


def placeholder() -> str:
    return f"acid_{secrets.token_hex(6)}"


def reads_of(catalog: Catalog, sources: Sequence[QueryTable]) -> dict[str, TableRead | ChangeRead]:
    """What each source reads. Raises UnknownColumn for `row__id` of a change."""
    reads: dict[str, TableRead | ChangeRead] = {}
    stored = []
    for source in sources:
        external, changed = catalog.external(source.table), catalog.changes(source.table)
        if external is not None:
            reads[source.placeholder] = _external_read(external, source)
        elif changed is None:
            stored.append(source)
        elif source.virtual:
            raise unresolved_column(source.virtual[0], [each.name for each in changed.columns])
        else:
            reads[source.placeholder] = ChangeRead(changed, source.columns)
    requests = [
        ScanRequest(catalog.record(source.table), source.where, catalog.past(source.table))
        for source in stored
    ]
    for source, scan in zip(stored, catalog.scans(requests), strict=True):
        reads[source.placeholder] = TableRead(
            scan,
            source.columns,
            source.where,
            ROW_ID_COLUMN in source.virtual,
            FILE_NAME_COLUMN in source.virtual,
        )
    return {source.placeholder: reads[source.placeholder] for source in sources}


def _external_read(table: ViewRecord, source: QueryTable) -> TableRead:
    """The files of an external table as they are now. Raises UnknownColumn for `row__id`."""
    if ROW_ID_COLUMN in source.virtual:
        raise unresolved_column(ROW_ID_COLUMN, [name for name, _ in table.columns])
    scan = open_external(table, source.where)
    return TableRead(
        scan, source.columns, source.where, file_name=FILE_NAME_COLUMN in source.virtual
    )


def run(warehouse: Warehouse, catalog: Catalog, query: Query, named: bool = True) -> Result:
    """The rows of a query. Raises NoSuchTable, UnknownColumn, InvalidExpression, NeedsSpark,
    UnsupportedStatement.

    `named`: whether the columns need the names that Spark gives them.
    """
    return computed(warehouse, plan(catalog, query), named)


def computed(warehouse: Warehouse, planned: PlannedQuery, named: bool = True) -> Result:
    """The rows of a planned query, by the engine that its size and its words ask for."""

    def asked(engine: Engine, reason: str) -> Result:
        # Spark's views have the placeholders as names, and two threads may run one plan.
        own = planned if engine.name == "local" else planned.renamed()
        return engine.query(own.text, own.reads, reason, named)

    read_bytes = sum(read.scan.read_bytes for read in planned.reads.values())
    return warehouse.engines.query(asked, planned.settings, read_bytes)


def deriving(catalog: Catalog, query: object, names: Sequence[str]) -> AbstractContextManager[None]:
    """A block that writes the rows of a query into the columns `names`; a collector of lineage is
    told so, if there is one."""

    def origin() -> lineage_events.RowOrigin | None:
        from acid_platform.sql.scripts import column_lineage  # only a collector asks for it

        if not isinstance(query, Query):
            return None
        alone = self_contained(query, catalog.current_database, catalog.declared)
        read = {stored_name(full_name(table, "")) for table in stored_tables(alone.tree)}
        known = {name: list(catalog.columns(name)) for name in read}
        own = read & catalog.temporary.keys()

        def columns() -> lineage_events.Columns:
            sources = column_lineage(alone, known.__getitem__).values()
            if len(sources) != len(names):
                return {}
            kept = ([pair for pair in pairs if pair[0] not in own] for pairs in sources)
            return dict(zip(names, kept, strict=True))

        tables = {*known, *tables_of(catalog, query)} - own
        return lineage_events.RowOrigin(query.text, frozenset(tables), columns)

    return lineage_events.deriving(origin)


def explain(run: CommandRun, statement: Query | Change) -> Shown:
    """The explanation, in the single column `Explain`.

    Raises what the statement would raise before it runs.
    """
    text: list[str] = []
    parts = () if isinstance(statement, Query) else statement.parts
    records = [run.catalog.target(part.table) for part in parts]
    queries = [rows_read(part, record) for part, record in zip(parts, records, strict=True)]
    asked = [statement] if isinstance(statement, Query) else list(filter(None, queries))
    changed = [record.name for record in records]
    with run.session.reading(run.catalog, asked, changed) as at_snapshot:
        for part in parts:
            text += _locks(run.warehouse, at_snapshot.target(part.table), part.lock)
        for each in asked:
            planned = plan(at_snapshot, each)
            for source in planned.sources:
                read = planned.reads[source.placeholder]
                external = at_snapshot.external(source.table) is not None
                text += _read(source.table, read, external)
            result = computed(run.warehouse, planned)
            text += [f"engine: {result.engine} ({result.reason})", "", *result.plan().splitlines()]
    return Shown.lines("Explain", text)


def _locks(warehouse: Warehouse, record: TableRecord, statement: Locked) -> Iterator[str]:
    settings = warehouse.metastore.in_force.lock_settings
    lock, operation = lock_of(statement, settings)
    scope = "partition" if record.partitioned else "table"
    yield f"write {record.name}: lock {lock.name}, operation {operation.name.lower()}"
    yield f"  first committer wins per {scope}"


def _read(table: str, read: TableRead | ChangeRead, external: bool) -> Iterator[str]:
    if isinstance(read, ChangeRead):
        yield from _changes(read.scan, read.columns)
        return
    scan = read.scan
    files = sum(len(entity.sources.inserts) for entity in scan.entities)
    name, as_of = unmarked(table)
    past = "" if as_of is None else f" as of {as_of}"
    yield f"read {name}{past} " + ("as its files are now" if external else f"at {scan.write_ids}")
    if scan.partition_columns:
        names = [entity.partition for entity in scan.entities]
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        yield f"  partitions: {len(names)}" + (f" ({shown})" if names else "")
    yield f"  files: {files}, {scan.read_bytes} bytes"
    yield f"  columns: {'all' if read.columns is None else ', '.join(read.columns)}"
    yield f"  condition in the scan: {read.where or 'none'}"
    if read.where is not None and scan.format.name == "parquet" and files <= _FILES_OPENED:
        from acid_platform.engine.local.computation import arrow_scan_of

        found = [each.pieces() for each in arrow_scan_of(read).files_read()]
        some, every = (sum(numbers) for numbers in zip(*found, strict=True)) if found else (0, 0)
        yield f"  row groups: {some} of {every}, by the bounds of their values"


_FILES_OPENED = 100
"""EXPLAIN opens no more files to tell how many row groups a condition leaves."""


def _changes(scan: ChangeScan, columns: Sequence[str] | None) -> Iterator[str]:
    files = sum(len(entity.parts) for entity in scan.entities)
    yield f"read the changes of {scan.table} by {len(scan.reader.stamps)} commits"
    yield f"  files: {files}, {scan.read_bytes} bytes"
    yield f"  columns: {'all' if columns is None else ', '.join(columns)}"


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
        in_doubt = sum(file.source.rows or 0 for file in files or () if not file.whole)
        worth_it = files and in_doubt >= ROWS_FOR_EACH * unproven
        if files and here and unproven and worth_it:
            values = _read_extremes(arrow_scan, asked.aggregates, values, files, columns)
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


def _read_extremes(
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

    with lent_threads(usable_cores()) as pool:
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
