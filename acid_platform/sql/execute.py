"""Runs one statement: a SELECT at one snapshot of all its tables, or a listing."""

from __future__ import annotations

import difflib
import secrets
from typing import TYPE_CHECKING

from acid_platform.errors import NoSuchTable
from acid_platform.sql.counts import counted_table
from acid_platform.sql.shows import show
from acid_platform.sql.sources import bind
from acid_platform.sql.statements import Query, Show, parse

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from sqlglot import exp

    from acid_platform.metastore.records import TableRecord
    from acid_platform.warehouse import Warehouse


def run(warehouse: Warehouse, statement: str) -> DataFrame | pd.DataFrame:
    """A Spark DataFrame for a SELECT, a pandas DataFrame for SHOW and DESCRIBE.

    A table without a database is in `default`. All tables of a SELECT are read at one snapshot,
    taken now and kept by a read lease like that of `Table.read` (P12, P18). Raises
    UnsupportedStatement, NoSuchTable, UnknownColumn, InvalidExpression.
    """
    parsed = parse(statement)
    match parsed:
        case Show():
            return show(warehouse, parsed)
        case Query():
            return _select(warehouse, parsed.tree)


def _select(warehouse: Warehouse, tree: exp.Query) -> DataFrame:
    from acid_platform.engine.query import run_query

    if counted := counted_table(tree):
        rows = warehouse.count(table_record(warehouse, counted.table))
        return warehouse.spark.createDataFrame([(rows,)], f"`{counted.name}` bigint")
    bound = bind(tree, f"acid_{secrets.token_hex(6)}")
    records = {one.table: table_record(warehouse, one.table) for one in bound.sources}
    scans = []
    if bound.sources:
        scans = warehouse.leased_scans([(records[one.table], one.where) for one in bound.sources])
    frames = {
        source.placeholder: (scan, source.row_id)
        for source, scan in zip(bound.sources, scans, strict=True)
    }
    return run_query(warehouse.spark, bound.text, frames)


def table_record(warehouse: Warehouse, name: str) -> TableRecord:
    """Raises NoSuchTable, with the nearest name there is."""
    full = name if "." in name else f"default.{name}"
    try:
        return warehouse.metastore.table(full)
    except NoSuchTable as error:
        near = _nearest(full, warehouse.tables())
        hint = f"did you mean {near}?" if near else "SHOW DATABASES and SHOW TABLES list them"
        raise NoSuchTable(f"there is no table {full}; {hint}") from error


def _nearest(full: str, known: list[str]) -> str | None:
    """The table with the most similar name; of several, the one in the same database."""
    database, _, table = full.partition(".")
    short = [one.partition(".")[2] for one in known]
    similar = difflib.get_close_matches(table, short)
    ranked = sorted(
        (one for one in known if one.partition(".")[2] in similar),
        key=lambda one: (similar.index(one.partition(".")[2]), not one.startswith(f"{database}.")),
    )
    return ranked[0] if ranked else None
