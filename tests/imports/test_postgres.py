"""`acid import` of a table of PostgreSQL, by ADBC.

adbc-driver-postgresql is of the extra `import`; without it, or without PostgreSQL, these tests are
left out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from acid_platform.handles.import_sources import PostgresSource
from tests.imports.conftest import Place
from tests.log.postgres_server import PostgresServer, missing

TABLE = ("--source-table", "public.orders")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    pytest.importorskip("adbc_driver_postgresql", reason="pip install 'acid-platform[import]'")
    if why := missing():
        pytest.skip(f"PostgreSQL: {why}")
    started = PostgresServer()
    started.start()
    yield started
    started.close()


@pytest.fixture
def execute(server: PostgresServer) -> Callable[[str], None]:
    from adbc_driver_postgresql import dbapi

    def run(statements: str) -> None:
        connection: Any = dbapi.connect(server.url())
        with connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS orders")
            cursor.execute(statements)
            connection.commit()

    return run


def test_a_table_of_postgresql(
    place: Place, server: PostgresServer, execute: Callable[[str], None]
) -> None:
    execute(
        "CREATE TABLE orders AS SELECT i AS id, (i / 7.0)::numeric(12, 2) AS amount,"
        " DATE '2024-01-01' + i % 300 AS day, TIMESTAMPTZ '2024-01-01 00:00:00.123456+02' AS at,"
        " 'x' || i AS name, '{\"a\": 1}'::jsonb AS json, ARRAY[i, NULL] AS list,"
        " i::smallint % 2 = 0 AS even, i / 3.0::float8 AS ratio FROM generate_series(1, 20000) i"
    )
    done = place.run("postgres", server.url(), *TABLE)
    assert (done["rows"], done["snapshot"]) == (20_000, None)
    assert done["source"] == f"postgres 127.0.0.1:{server.port}/postgres public.orders"
    assert place.columns() == (
        "id int, amount decimal(12,2), day date, at timestamp, name string, json string,"
        " list array<int>, even boolean, ratio double"
    )
    first = next(row for row in place.rows() if row["id"] == 1)
    assert first == {
        "id": 1,
        "amount": Decimal("0.14"),
        "day": dt.date(2024, 1, 2),
        "at": dt.datetime(2023, 12, 31, 22, 0, 0, 123456),
        "name": "x1",
        "json": '{"a": 1}',
        "list": [1, None],
        "even": False,
        "ratio": 1 / 3,
    }
    assert "--overwrite" in place.refused("postgres", server.url(), *TABLE)
    assert place.run("postgres", server.url(), *TABLE, "--overwrite")["rows"] == 20_000


def test_numbers_without_digits_need_a_declared_decimal(
    place: Place, server: PostgresServer, execute: Callable[[str], None]
) -> None:
    execute("CREATE TABLE orders AS SELECT 1 AS id, 12.345::numeric AS amount")
    error = place.refused("postgres", server.url(), *TABLE)
    assert "column 'amount' is" in error and "create the table" in error
    place.run("postgres", server.url(), *TABLE, "--schema", "id int, amount decimal(20,6)")
    assert place.rows() == [{"id": 1, "amount": Decimal("12.345000")}]
    execute("CREATE TABLE orders AS SELECT 1 AS id, 'NaN'::numeric AS amount")
    assert "amount" in place.refused("postgres", server.url(), *TABLE, "--overwrite")


@pytest.mark.parametrize("value", ["12::money", "'1 day'::interval", "'10.0.0.1'::inet"])
def test_types_without_a_match_are_refused_by_name(
    place: Place, server: PostgresServer, execute: Callable[[str], None], value: str
) -> None:
    execute(f"CREATE TABLE orders AS SELECT 1 AS id, {value} AS odd")
    assert "column 'odd'" in place.refused("postgres", server.url(), *TABLE)
    place.run("postgres", server.url(), *TABLE, "--columns", "id")
    assert place.rows() == [{"id": 1}]


def test_what_can_not_be_reached(place: Place, server: PostgresServer) -> None:
    assert "orders_none" in place.refused("postgres", server.url(), "--source-table", "orders_none")
    wrong = f"postgresql://acid:secret@127.0.0.1:{server.port}/nowhere"
    error = place.refused("postgres", wrong, *TABLE)
    assert "nowhere" in error and "secret" not in error
    assert "is no URI" in place.refused("postgres", "host=127.0.0.1", *TABLE)


def test_the_name_of_a_source_has_no_password(
    server: PostgresServer, execute: Callable[[str], None]
) -> None:
    execute("CREATE TABLE orders AS SELECT 1 AS id")
    url = server.url().replace("acid@", "acid:secret@")
    assert "secret" not in PostgresSource(url, "orders").name
