"""Running queries: views are expanded, all tables are read at one snapshot."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from acid_platform.config import Settings
from acid_platform.engine.arrow_reads import by_arrow
from acid_platform.engine.queries import SourceRead
from acid_platform.engine.recent import Recent
from acid_platform.engine.results import ArrowResult, Result
from acid_platform.layout.schema import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.reading.known_columns import unresolved_column
from acid_platform.sql.counts import counted_table
from acid_platform.sql.scopes import full_name, stored_tables
from acid_platform.sql.sources import Bound, Source, bind
from acid_platform.sql.unknown_names import unknown_name
from acid_platform.sql.views import expand
from acid_platform.storage.arrow_numpy import from_numpy

if TYPE_CHECKING:
    from acid_platform.engine.choice import Choice
    from acid_platform.engine.interface import Engine
    from acid_platform.engine.scans import TableScan
    from acid_platform.metastore.records import TableRecord
    from acid_platform.sql.catalog import Catalog
    from acid_platform.warehouse import Warehouse

Scans = Callable[[Sequence[tuple["TableRecord", str | None]]], "list[TableScan]"]
"""Plans scans of several tables at one snapshot, a transaction's or a lease's: takes (table,
condition) pairs."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A query in Spark SQL, and what it reads of each table, by placeholder."""

    text: str
    reads: Mapping[str, SourceRead]
    sources: tuple[Source, ...]
    settings: Settings

    def renamed(self) -> Planned:
        """The same with new placeholders."""
        text, prefix = self.text, placeholder()
        reads = {}
        for number, (name, read) in enumerate(self.reads.items()):
            reads[f"{prefix}_{number}"] = read
            text = re.sub(rf"\b{name}\b", f"{prefix}_{number}", text)
        return replace(self, text=text, reads=reads)


def plan(catalog: Catalog, query: exp.Query, scans: Scans) -> Planned:
    """Plans a query. Raises NoSuchTable, UnknownColumn, InvalidDefinition, SnapshotExpired."""
    bound = _bound(catalog, query)
    reads = reads_of(catalog, bound.sources, scans)
    return Planned(bound.text, reads, bound.sources, catalog.in_force)


_BOUND: Recent[object, tuple[exp.Query, Bound]] = Recent(256)
"""By the identity of the query, which is kept with it, the database, and the declarations of the
tables; only of queries without views."""


def _bound(catalog: Catalog, query: exp.Query) -> Bound:
    """The query over placeholders, which are the same when the same parsed query comes again.

    Raises NoSuchTable, UnknownColumn, InvalidDefinition.
    """
    database, names = catalog.current_database, names_in(catalog, query)
    key = None
    if catalog.all_tables(names):
        records = map(catalog.record, names)
        tables = tuple((record.name, record.table_id, record.version) for record in records)
        key = (id(query), database, catalog.metastore_id, tables)
        if (known := _BOUND.get(key)) is not None:
            return known[1]
    whole = expand(query, database, catalog.view_query)
    if wrong := unknown_name(whole, catalog.columns, database):
        raise unresolved_column(wrong.name, list(wrong.known))
    bound = bind(whole, placeholder(), catalog.columns, database)
    if key is not None:
        _BOUND.put(key, (query, bound))
    return bound


def names_in(catalog: Catalog, query: exp.Query) -> list[str]:
    """The full names of the tables and views that a query itself names."""
    database = catalog.current_database
    return sorted({catalog.full(full_name(table, database)) for table in stored_tables(query)})


def tables_of(catalog: Catalog, query: exp.Query) -> list[str]:
    """The tables that a query reads, also through views, so that a lease can protect them.

    Raises NoSuchTable, InvalidDefinition.
    """
    database = catalog.current_database
    whole = expand(query, database, catalog.view_query)
    return sorted(
        {catalog.record(full_name(table, database)).name for table in stored_tables(whole)}
    )


def placeholder() -> str:
    return f"acid_{secrets.token_hex(6)}"


def reads_of(catalog: Catalog, sources: Sequence[Source], scans: Scans) -> dict[str, SourceRead]:
    if not sources:
        return {}
    table_scans = scans([(catalog.record(source.table), source.where) for source in sources])
    return {
        source.placeholder: SourceRead(
            scan,
            source.columns,
            source.where,
            ROW_ID_COLUMN in source.virtual,
            FILE_NAME_COLUMN in source.virtual,
        )
        for source, scan in zip(sources, table_scans, strict=True)
    }


def run(warehouse: Warehouse, catalog: Catalog, query: exp.Query, scans: Scans) -> Result:
    """The rows of a query. Raises NoSuchTable, UnknownColumn, InvalidExpression, NeedsSpark."""
    return computed(warehouse, plan(catalog, query, scans))


def computed(warehouse: Warehouse, planned: Planned) -> Result:
    """The rows of a planned query, by the engine that its size and its words ask for."""

    def asked(engine: Engine, reason: str) -> Result:
        # Spark's views have the placeholders as names, and two threads may run one plan.
        own = planned if engine.name == "local" else planned.renamed()
        return engine.query(own.text, own.reads, reason)

    def query(choice: Choice) -> Result:
        result = asked(choice.engine, choice.reason)
        if choice.instead is None:
            return result
        other = choice.instead
        return result.or_else(lambda why: asked(other(), why))

    return warehouse.engines.run(
        query,
        planned.settings,
        read_bytes=sum(read.scan.read_bytes for read in planned.reads.values()),
    )


def count_from_footers(
    warehouse: Warehouse, catalog: Catalog, query: exp.Query, scans: Scans
) -> Result | None:
    """The result of `SELECT count(*) FROM t`, from footers; None for any other query."""
    counted = counted_table(query)
    if counted is None or catalog.view_query(catalog.full(counted.table)) is not None:
        return None
    (scan,) = scans([(catalog.record(counted.table), None)])
    rows = by_arrow(scan, ()).count()
    counts = pa.table({counted.name: from_numpy(np.array([rows], np.int64))})
    return ArrowResult(counts, lambda: warehouse.spark, "counted from footers")
