"""Running queries: views are expanded, all tables are read at one snapshot."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from acid_platform.engine.queries import SourceRead
from acid_platform.engine.results import ArrowResult, Result
from acid_platform.layout.schema import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.reading.known_columns import unresolved_column
from acid_platform.sql.counts import counted_table
from acid_platform.sql.scopes import full_name, stored_tables
from acid_platform.sql.sources import Source, bind
from acid_platform.sql.time_travel import unmarked
from acid_platform.sql.unknown_names import unknown_name
from acid_platform.sql.views import expand
from acid_platform.storage.arrow_numpy import from_numpy
from acid_platform.tables.context import ScanRequest

if TYPE_CHECKING:
    from acid_platform.engine.scans import TableScan
    from acid_platform.sql.catalog import Catalog
    from acid_platform.warehouse import Warehouse

Scans = Callable[[Sequence[ScanRequest]], "list[TableScan]"]
"""Plans scans of several tables at one snapshot, a transaction's or a lease's."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A query in Spark SQL, and what it reads of each table, by placeholder."""

    text: str
    reads: Mapping[str, SourceRead]
    sources: tuple[Source, ...]


def plan(catalog: Catalog, query: exp.Query, scans: Scans) -> Planned:
    """Plans a query. Raises NoSuchTable, UnknownColumn, InvalidDefinition, SnapshotExpired."""
    whole = expand(query, catalog.current_database, catalog.view_query)
    if wrong := unknown_name(whole, catalog.columns, catalog.current_database):
        raise unresolved_column(wrong.name, list(wrong.known))
    bound = bind(whole, placeholder(), catalog.columns, catalog.current_database)
    return Planned(bound.text, reads_of(catalog, bound.sources, scans), bound.sources)


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
    table_scans = scans(
        [
            ScanRequest(catalog.record(source.table), source.where, catalog.past(source.table))
            for source in sources
        ]
    )
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

    return warehouse.engines.query(planned.text, planned.reads)


def count_from_footers(warehouse: Warehouse, catalog: Catalog, query: exp.Query) -> Result | None:
    """The result of `SELECT count(*) FROM t`, from footers; None for any other query."""
    counted = counted_table(query)
    if counted is None or catalog.full(counted.table) in catalog.views:
        return None
    _, as_of = unmarked(counted.table)
    rows = warehouse.leases.count(catalog.record(counted.table).name, as_of=as_of)
    counts = pa.table({counted.name: from_numpy(np.array([rows], np.int64))})
    return ArrowResult(counts, lambda: warehouse.spark, "counted from footers")
