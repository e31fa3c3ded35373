"""What readers of Iceberg and DuckLake in this process, and a plain DuckDB, find of a table."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThanOrEqual,
)
from pyiceberg.table import StaticTable

from tests.iceberg.found_rows import Condition, Row, shaped
from tests.iceberg.plain_duckdb import PlainDuckDB

_EXPRESSIONS = {">=": GreaterThanOrEqual, "<=": LessThanOrEqual, "=": EqualTo}


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows of a table at a snapshot."""

    name: str
    moment: int
    condition: Condition | None
    schema: pa.Schema
    """As we read them."""

    def __str__(self) -> str:
        where = f" where {self.condition.sql}" if self.condition else ""
        return f"{self.name} at {self.moment}{where}"

    def from_clause(self, source: str) -> str:
        where = f" WHERE {self.condition.sql}" if self.condition else ""
        return f"FROM {source}{where}"

    def shaped(self, rows: list[dict[str, Any]]) -> list[Row]:
        """The rows with values as ours, and with the columns that were found."""
        kinds = {field.name: field.type for field in self.schema}
        return [
            {name: shaped(each, kinds.get(name, pa.null())) for name, each in row.items()}
            for row in rows
        ]


Finds = Callable[[Asked], list[Row]]
"""Raises any error if the reader can't read them."""


def in_python(metadata: Mapping[str, str]) -> dict[str, Finds]:
    """pyiceberg and Polars, which load these metadata files of tables at once."""
    loaded = {name: StaticTable.from_metadata(file) for name, file in metadata.items()}

    def pyiceberg(asked: Asked) -> list[Row]:
        chosen: BooleanExpression = AlwaysTrue()
        if (condition := asked.condition) is not None:
            value = condition.value
            text = value.isoformat() if isinstance(value, datetime.date) else value
            chosen = _EXPRESSIONS[condition.how](condition.column, text)  # type: ignore[arg-type]
        read = loaded[asked.name].scan(row_filter=chosen, snapshot_id=asked.moment)
        return asked.shaped(read.to_arrow().to_pylist())

    def polars(asked: Asked) -> list[Row]:
        read = pl.scan_iceberg(loaded[asked.name], snapshot_id=asked.moment)
        if (condition := asked.condition) is not None:
            column, value = pl.col(condition.column), pl.lit(condition.value)
            read = read.filter(
                {">=": column >= value, "<=": column <= value, "=": column == value}[condition.how]
            )
        return asked.shaped(read.collect().to_arrow().to_pylist())

    return {"pyiceberg": pyiceberg, "Polars": polars}


def in_duckdb(
    duckdb: PlainDuckDB, metadata: Mapping[str, str], address: str, lake: str
) -> dict[str, Finds]:
    """A plain DuckDB that reads Iceberg's metadata files, from a REST catalog at this address, and
    this catalog of DuckLake."""
    by_rest = f"TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none'"
    iceberg = ("avro", "httpfs", "iceberg")
    places = {
        "DuckDB by path": (":memory:", "READ_WRITE", iceberg),
        "DuckDB by REST": ("acid", by_rest, iceberg),
        "DuckDB by DuckLake": (f"ducklake:{lake}", "READ_ONLY", ("ducklake",)),
    }
    attached = ""

    def find(reader: str, asked: Asked) -> list[Row]:
        nonlocal attached
        if attached != reader:
            place, options, extensions = places[reader]
            duckdb.attach(place, options, *extensions)
            attached = reader
        source = f"lake.{asked.name} AT (VERSION => {asked.moment})"
        if reader == "DuckDB by path":
            source = f"iceberg_scan('{metadata[asked.name]}', snapshot_from_id = {asked.moment})"
        return asked.shaped(duckdb.table(asked.from_clause(source)).to_pylist())

    return {reader: partial(find, reader) for reader in places}
