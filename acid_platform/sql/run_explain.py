"""EXPLAIN: what a statement would lock and read, the engine and its plan; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from acid_platform.engine.reads import ChangeRead
from acid_platform.metastore.shown import Shown
from acid_platform.sql import run_queries
from acid_platform.sql.statements import Change
from acid_platform.sql.text import Query
from acid_platform.sql.time_travel import unmarked
from acid_platform.transactions.locks import Statement as Locked
from acid_platform.transactions.locks import lock_of

if TYPE_CHECKING:
    from acid_platform.engine.reads import TableRead
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord
    from acid_platform.scan.change_scan import ChangeScan
    from acid_platform.sql.catalog import Catalog
    from acid_platform.sql.sql_session import SqlSession


def explain(session: SqlSession, catalog: Catalog, statement: Query | Change) -> Shown:
    """The explanation, in the single column `Explain`.

    Raises what the statement would raise before it runs.
    """
    text: list[str] = []
    parts = () if isinstance(statement, Query) else statement.parts
    records = [catalog.target(part.table) for part in parts]
    queries = [part.read_rows(record) for part, record in zip(parts, records, strict=True)]
    asked = [statement] if isinstance(statement, Query) else list(filter(None, queries))
    with session.reading(catalog, asked, [record.name for record in records]) as at_snapshot:
        for part in parts:
            text += _locks(session.warehouse, at_snapshot.target(part.table), part.lock)
        for each in asked:
            planned = run_queries.plan(at_snapshot, each)
            for source in planned.sources:
                read = planned.reads[source.placeholder]
                external = at_snapshot.external(source.table) is not None
                text += _read(source.table, read, external)
            result = run_queries.computed(session.warehouse, planned)
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
