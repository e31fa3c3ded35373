"""Running and explaining queries: views are expanded, all tables are read at one snapshot."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acid_platform.base.config import Settings
from acid_platform.base.recent import Recent
from acid_platform.engine.reads import ChangeRead, Sources, TableRead
from acid_platform.engine.results import Result
from acid_platform.handles.snapshot_view import ScanRequest
from acid_platform.layout.schema import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.metastore.show_columns import Shown
from acid_platform.predicates.known_columns import unresolved_column
from acid_platform.sql.column_references import refuse_unknown_names
from acid_platform.sql.query_tables import Bound, QueryTable, bind
from acid_platform.sql.scopes import full_name, stored_tables
from acid_platform.sql.statements import Change
from acid_platform.sql.text import Query
from acid_platform.sql.time_travel import unmarked
from acid_platform.sql.views import tables_read
from acid_platform.tables.external_tables import open_external
from acid_platform.transactions.locks import Statement as Locked
from acid_platform.transactions.locks import lock_of

if TYPE_CHECKING:
    from acid_platform.engine.interface import Engine
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord, ViewRecord
    from acid_platform.scan.change_scan import ChangeScan
    from acid_platform.sql.catalog import Catalog
    from acid_platform.sql.commands import CommandRun


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


def explain(run: CommandRun, statement: Query | Change) -> Shown:
    """The explanation, in the single column `Explain`.

    Raises what the statement would raise before it runs.
    """
    text: list[str] = []
    parts = () if isinstance(statement, Query) else statement.parts
    records = [run.catalog.target(part.table) for part in parts]
    queries = [part.read_rows(record) for part, record in zip(parts, records, strict=True)]
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


def _changes(scan: ChangeScan, columns: Sequence[str] | None) -> Iterator[str]:
    files = sum(len(entity.parts) for entity in scan.entities)
    yield f"read the changes of {scan.table} by {len(scan.reader.stamps)} commits"
    yield f"  files: {files}, {scan.read_bytes} bytes"
    yield f"  columns: {'all' if columns is None else ', '.join(columns)}"
