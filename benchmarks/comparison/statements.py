"""The statements that every contender runs, in each one's SQL."""

from __future__ import annotations

from typing import Literal

Dialect = Literal["spark", "duckdb", "datafusion"]

COLUMNS = (
    ("l_id", "bigint"),
    ("l_partkey", "int"),
    ("l_linenumber", "int"),
    ("l_quantity", "int"),
    ("l_extendedprice", "decimal(12,2)"),
    ("l_tax", "double"),
    ("l_shipdate", "date"),
    ("l_commit", "timestamp"),
    ("l_shipmode", "string"),
    ("l_returnflag", "string"),
    ("l_comment", "string"),
)
NAMES = tuple(name for name, _ in COLUMNS)
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
SMALL_ROWS, SMALL_INSERTS = 1000, 20
MERGED = ("l_extendedprice", "l_quantity", "l_comment")
"""The columns that MERGE takes from its source."""

WHERE = {"update": "l_id % 100 = 17", "delete_one": "l_id = 4242", "delete_5pct": "l_id % 20 = 7"}
ASSIGNED = {
    "l_extendedprice": "CAST(l_extendedprice + 1 AS DECIMAL(12,2))",
    "l_returnflag": "'U'",
}


def change(table: str, phase: str) -> str:
    """UPDATE or DELETE as every dialect writes it."""
    if phase == "update":
        values = ", ".join(f"{name} = {value}" for name, value in ASSIGNED.items())
        return f"UPDATE {table} SET {values} WHERE {WHERE[phase]}"
    return f"DELETE FROM {table} WHERE {WHERE[phase]}"


def merge(table: str, source: str) -> str:
    values = ", ".join(f"{name} = s.{name}" for name in MERGED)
    return (
        f"MERGE INTO {table} t USING {source} s ON t.l_id = s.l_id"
        f" WHEN MATCHED THEN UPDATE SET {values} WHEN NOT MATCHED THEN"
        f" INSERT ({', '.join(NAMES)}) VALUES ({', '.join(f's.{name}' for name in NAMES)})"
    )


def queries(table: str, rows: int) -> dict[str, str]:
    """The reads by name; each returns one row."""
    low = rows // 2
    return {
        "wide": f"SELECT {', '.join(f'max({name}) AS m_{name}' for name in NAMES)} FROM {table}",
        "narrow": f"SELECT sum(l_quantity) AS q FROM {table}",
        "count": f"SELECT count(*) AS n FROM {table}",
        "selective": f"SELECT count(*) AS n, sum(l_extendedprice) AS p FROM {table}"
        f" WHERE l_id BETWEEN {low} AND {low + 1000}",
    }


def first_row(table: str) -> str:
    return f"SELECT * FROM {table} LIMIT 1"


def sums(table: str) -> str:
    """Sums over columns that change when a value changes, in all dialects. Not timed."""
    sums = (
        "count(*)",
        "sum(l_id)",
        "sum(CAST(l_partkey AS BIGINT))",
        "sum(l_quantity * l_linenumber)",
        "sum(CAST(l_extendedprice * 100 AS BIGINT))",
        "sum(CAST(l_tax * 64 AS BIGINT))",
        "sum(length(l_comment))",
        "sum(CASE WHEN l_returnflag = 'U' THEN 1 ELSE 0 END)",
        "sum(l_id % 1009 * l_quantity)",
        "sum(l_id % 1039 * length(l_comment))",
    )
    columns = ", ".join(f"CAST({text} AS BIGINT) AS s{i}" for i, text in enumerate(sums))
    return f"SELECT {columns} FROM {table}"
