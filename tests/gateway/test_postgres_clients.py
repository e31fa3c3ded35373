"""What real clients send through PostgreSQL's protocol, and what they are answered.

recorded/postgres_queries.json has the queries that psql 15.18 sent for \\d, \\dt, \\l and the like,
SQLAlchemy 2.1 for its inspector, pgjdbc 42.7.4 for its metadata, and four of Grafana's form, with
the names, types (by PostgreSQL's numbers) and rows of the answers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acid_platform import Warehouse
from acid_platform.gateway.postgres_server import PostgresServer
from tests.gateway.test_postgres import connected, filled, psycopg, server, warehouse

__all__ = ["filled", "server", "warehouse"]
RECORDED = json.loads((Path(__file__).parent / "recorded/postgres_queries.json").read_text())


@pytest.mark.more
def test_queries_of_real_clients_are_answered(server: PostgresServer) -> None:
    assert len(RECORDED) >= 40
    with connected(server) as client:
        for query in RECORDED:
            cursor = psycopg.RawCursor(client)
            cursor.execute(query["sql"])
            columns = [f"{column.name} {column.type_code}" for column in cursor.description]
            rows = [
                [None if value is None else str(value) for value in row]
                for row in cursor.fetchall()
            ]
            assert columns == query["columns"], query
            ordered = "order by" in query["sql"].lower()
            wanted = query["rows"]
            key = str
            assert rows == wanted if ordered else sorted(rows, key=key) == sorted(wanted, key=key)


@pytest.mark.more
def test_sqlalchemy_reflects_tables(server: PostgresServer, filled: Warehouse) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://ann@{server.host_and_port}/acid")
    try:
        found = sqlalchemy.inspect(engine)
        assert {"default", "shop", "hr"} <= set(found.get_schema_names())
        assert "orders" in found.get_table_names(schema="shop")
        kinds = {
            column["name"]: str(column["type"])
            for column in found.get_columns("orders", schema="shop")
        }
        assert kinds == {
            "id": "INTEGER", "s": "TEXT", "amount": "NUMERIC(9, 2)", "at": "TIMESTAMP",
            "ok": "BOOLEAN", "tags": "JSON", "b": "BYTEA", "d": "DOUBLE PRECISION",
            "n": "BIGINT", "v": "VARCHAR(9)", "day": "DATE",
        }  # fmt: skip
        assert found.get_table_comment("orders", schema="shop") == {"text": "all orders"}
        assert not found.get_indexes("orders", schema="shop")
        orders = sqlalchemy.Table(
            "orders", sqlalchemy.MetaData(), schema="shop", autoload_with=engine
        )
        with engine.connect() as connection:
            few = sqlalchemy.select(orders.c.id, orders.c.amount).where(orders.c.s == "it's")
            assert [row.id for row in connection.execute(few)] == [1]
    finally:
        engine.dispose()
