"""Queries: views in their place, every table at one snapshot, run by Spark."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.sql.counts import counted_table
from acid_platform.sql.scopes import full_name, stored_tables
from acid_platform.sql.sources import FILE_NAME, ROW_ID, Source, bind
from acid_platform.sql.unknown_names import unknown_name
from acid_platform.sql.views import expand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from acid_platform.engine.query import SourceRead
    from acid_platform.engine.scan import TableScan
    from acid_platform.metastore.records import TableRecord
    from acid_platform.sql.catalog import Catalog
    from acid_platform.warehouse import Warehouse

Scans = Callable[[Sequence[tuple["TableRecord", str | None]]], "list[TableScan]"]
"""Scans of several tables at one snapshot: a transaction's, or a fresh one under a lease."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A query in Spark's SQL, and what it reads of each table by its placeholder."""

    text: str
    reads: Mapping[str, SourceRead]
    sources: tuple[Source, ...]


def plan(catalog: Catalog, query: exp.Query, scans: Scans) -> Planned:
    """Raises NoSuchTable, UnknownColumn, InvalidDefinition, SnapshotExpired."""
    whole = expand(query, catalog.current_database, catalog.view_query)
    if wrong := unknown_name(whole, catalog.columns, catalog.current_database):
        from acid_platform.engine.query import unresolved_column

        raise unresolved_column(wrong.name, list(wrong.known))
    bound = bind(whole, placeholder(), catalog.columns, catalog.current_database)
    return Planned(bound.text, reads_of(catalog, bound.sources, scans), bound.sources)


def tables_of(catalog: Catalog, query: exp.Query) -> list[str]:
    """The tables that a query reads, also behind views: a lease protects them from its start.

    Raises NoSuchTable, InvalidDefinition.
    """
    database = catalog.current_database
    whole = expand(query, database, catalog.view_query)
    return sorted({catalog.record(full_name(one, database)).name for one in stored_tables(whole)})


def placeholder() -> str:
    return f"acid_{secrets.token_hex(6)}"


def reads_of(catalog: Catalog, sources: Sequence[Source], scans: Scans) -> dict[str, SourceRead]:
    from acid_platform.engine.query import SourceRead

    if not sources:
        return {}
    found = scans([(catalog.record(one.table), one.where) for one in sources])
    return {
        one.placeholder: SourceRead(
            scan, one.columns, one.where, ROW_ID in one.virtual, FILE_NAME in one.virtual
        )
        for one, scan in zip(sources, found, strict=True)
    }


def run(warehouse: Warehouse, catalog: Catalog, query: exp.Query, scans: Scans) -> DataFrame:
    """Raises NoSuchTable, UnknownColumn, InvalidExpression."""
    from acid_platform.engine.query import run_query

    planned = plan(catalog, query, scans)
    return run_query(warehouse.spark, planned.text, planned.reads)


def counted(warehouse: Warehouse, catalog: Catalog, query: exp.Query) -> DataFrame | None:
    """The answer to `SELECT count(*) FROM t`, out of footers; None for any other query."""
    found = counted_table(query)
    if found is None or catalog.full(found.table) in catalog.views:
        return None
    rows = warehouse.leases.count(catalog.record(found.table).name)
    return warehouse.spark.createDataFrame([(rows,)], f"`{found.name}` bigint")
