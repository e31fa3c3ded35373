"""PostgreSQL's protocol, read-only: what drivers read, who may, and what strangers can do."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from acid_platform import Warehouse
from acid_platform.gateway import logins
from acid_platform.gateway.authorization import Authorizer, GrantFile
from acid_platform.gateway.client_connection import Bounds
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.logins import Tls, Users
from acid_platform.gateway.postgres_server import PostgresServer
from acid_platform.handles.reading_sessions import ReadingSession
from tests.conftest import a_warehouse
from tests.gateway.certificates import Authority

psycopg = pytest.importorskip("psycopg", reason="pip install 'acid-platform[postgres]'")
warehouse = a_warehouse("local")
_LONG = "SELECT count(*) FROM range(100000000000) AS r(n) WHERE hash(n) = 5"
"""It would compute for minutes."""


@contextmanager
def serving(
    warehouse: Warehouse,
    entry: Entry | None = None,
    authorizer: Authorizer | None = None,
    bounds: Bounds | None = None,
    seconds: float = 60,
) -> Iterator[PostgresServer]:
    server = PostgresServer(
        warehouse.metastore,
        lambda user, readable: ReadingSession(warehouse, user, readable),
        "127.0.0.1",
        0,
        bounds,
        entry,
        authorizer,
        seconds,
    )
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


@pytest.fixture(scope="module")
def filled(warehouse: Warehouse) -> Warehouse:
    orders = warehouse.create_table(
        "shop.orders",
        "id int, s string, amount decimal(9,2), at timestamp, ok boolean, tags array<string>,"
        " b binary, d double, n bigint, v varchar(9)",
        ["day date"],
        comment="all orders",
        comments={"s": "a text"},
    )
    row = {"s": "it's", "amount": "1.50", "at": "2024-01-02 03:04:05.25", "ok": True}
    more = {"tags": ["a", None], "b": b"\0\xff", "d": 0.5, "n": 1 << 40, "v": "v"}
    orders.insert([{"id": 1, **row, **more, "day": "2024-01-02"}])
    orders.insert([{"id": 2, "day": "2024-01-03"}])
    warehouse.create_table("default.plain", "id int").insert([{"id": 7}])
    warehouse.create_table("hr.salaries", "id int, pay int").insert([{"id": 1, "pay": 5}])
    return warehouse


@pytest.fixture(scope="module")
def server(filled: Warehouse) -> Iterator[PostgresServer]:
    with serving(filled) as running:
        yield running


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("people") / "users")
    for name in ("ann", "bob"):
        logins.add(path, name, f"{name} secret")
    return path


def port_of(server: PostgresServer) -> int:
    return int(server.host_and_port.rpartition(":")[2])


def connected(server: PostgresServer, user: str = "ann", **more: Any) -> Any:
    given = {"dbname": "acid", "connect_timeout": 30, "autocommit": True, **more}
    return psycopg.connect(host="127.0.0.1", port=port_of(server), user=user, **given)


def code_of(server: PostgresServer, query: str, **more: Any) -> str:
    """PostgreSQL's code of the error that a query gets."""
    with connected(server, **more) as client, pytest.raises(psycopg.Error) as refused:
        client.execute(query)
    return str(refused.value.sqlstate)


def read_to_the_end(client: socket.socket) -> None:
    with suppress(ConnectionError):
        while client.recv(65536):
            pass


ROW = (
    1, "it's", Decimal("1.50"), datetime(2024, 1, 2, 3, 4, 5, 250_000), True, ["a", None],
    b"\0\xff", 0.5, 1 << 40, "v", date(2024, 1, 2),
)  # fmt: skip


@pytest.mark.parametrize("binary", [False, pytest.param(True, marks=pytest.mark.more)])
def test_a_driver_reads_values_of_each_type(server: PostgresServer, binary: bool) -> None:
    with connected(server) as client:
        cursor = client.cursor(binary=binary)
        read = cursor.execute("SELECT * FROM shop.orders WHERE id <= %s ORDER BY id", (2,))
        assert read.fetchall() == [ROW, (2, *[None] * 9, date(2024, 1, 3))]
        amount = read.description[2]
        assert (amount.name, amount.type_code, amount.precision, amount.scale) == (
            "amount", 1700, 9, 2,
        )  # fmt: skip
        given = (5, "a'b", 2.5, Decimal("-0.0001"), date(1999, 12, 31), b"\1\0", None, True)
        shown = ", ".join(["%s"] * len(given))
        assert cursor.execute(f"SELECT {shown}", given).fetchone() == given
        few = "SELECT id FROM shop.orders WHERE id = ANY(%s) AND day >= %s"
        assert cursor.execute(few, ([1, 2], date(2024, 1, 3))).fetchall() == [(2,)]
        several = (
            "SELECT INTERVAL '1 month 3 days 04:05:06.7', TIME '10:11:12',"
            " '-inf'::DOUBLE, 12345678901234567890123::DECIMAL(38, 5), DATE '0044-03-15'"
        )
        interval, at, infinite, large, old = cursor.execute(several).fetchone()
        assert (interval.days, interval.seconds, str(at)) == (33, 14706, "10:11:12")
        assert (infinite, large, old) == (
            float("-inf"), Decimal("12345678901234567890123.00000"), date(44, 3, 15),
        )  # fmt: skip
        assert cursor.execute("SELECT * FROM range(10000)").fetchall() == [
            (number,) for number in range(10_000)
        ]


@pytest.mark.more
def test_writes_and_what_reaches_out_are_refused(server: PostgresServer) -> None:
    for query in (
        "INSERT INTO plain VALUES (1)",
        "DELETE FROM plain",
        "CREATE TABLE t (i int)",
        "DROP VIEW plain",
        "COPY plain TO '/tmp/x'",
        "ATTACH ':memory:' AS m",
        "SET memory_limit = '9GB'",
        "SELECT 1; DROP VIEW plain",
        "PRAGMA version",
        "CALL pragma_version()",
        "TRUNCATE plain",
        "WITH w AS (INSERT INTO plain VALUES (1) RETURNING id) SELECT * FROM w",
    ):
        assert code_of(server, query) in ("25006", "42704", "22000"), query
    for query in (
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_csv('https://example.org/x.csv')",
        "LOAD httpfs",
    ):
        assert code_of(server, query) in ("22000", "25006", "42P01"), query
    with connected(server) as client:
        assert client.execute("SELECT * FROM plain").fetchall() == [(7,)]


@pytest.mark.more
def test_P12_a_transaction_reads_one_snapshot_and_a_session_may_keep_one(
    server: PostgresServer, filled: Warehouse
) -> None:
    table = filled.create_table("shop.moving", "id int")
    count = "SELECT count(*) FROM shop.moving"
    with connected(server) as client, connected(server, autocommit=False) as other:
        assert client.execute(count).fetchone() == (0,)
        assert other.execute(count).fetchone() == (0,)
        client.execute("SET acid.as_of = 'now'")
        for number in range(3):
            table.insert([{"id": number}])
        table.compact(kind="major")
        assert other.execute(count).fetchone() == (0,)
        other.commit()
        assert other.execute(count).fetchone() == (3,)
        assert client.execute(count).fetchone() == (0,)
        client.execute("SET acid.as_of = '1'")
        assert client.execute(count).fetchone() == (1,)
        client.execute("RESET acid.as_of")
        assert client.execute(count).fetchone() == (3,)
    with connected(server, options="-c acid.as_of=2") as client:
        assert client.execute(count).fetchone() == (2,)


@pytest.mark.more
def test_P77_nothing_is_told_of_tables_that_a_user_may_not_read(
    filled: Warehouse, users: str, tmp_path: Path
) -> None:
    grants = tmp_path / "grants"
    grants.write_text("ann read shop.*\nbob read,insert *\nann insert hr.salaries\n")
    entry = Entry(None, Users(users))
    with serving(filled, entry, GrantFile(str(grants))) as server:
        seen = {}
        for user in ("ann", "bob"):
            with connected(server, user, password=f"{user} secret") as client:
                texts = []
                for query in (
                    "SELECT * FROM pg_catalog.pg_class",
                    "SELECT * FROM pg_attribute",
                    "SELECT * FROM pg_namespace",
                    "SELECT * FROM pg_tables",
                    "SELECT * FROM pg_description",
                    "SELECT * FROM information_schema.tables",
                    "SELECT * FROM information_schema.columns",
                    "SELECT * FROM information_schema.schemata",
                    "SELECT * FROM duckdb_tables()",
                    "SELECT * FROM duckdb_views()",
                    "SELECT * FROM duckdb_schemas()",
                    "SELECT 'hr.salaries'::regclass",
                    "SHOW ALL TABLES",
                ):
                    texts.append(str(client.execute(query).fetchall()))
                for query in ("FROM hr.salaries", "FROM query_table('hr.salaries')"):
                    try:
                        texts.append(str(client.execute(query).fetchall()))
                    except psycopg.Error:
                        assert user == "ann" or "query_table" in query
                seen[user] = "".join(texts)
        assert "salaries" in seen["bob"] and "orders" in seen["ann"]
        assert not {word for word in ("salaries", "'hr'", "pay") if word in seen["ann"]}
        with connected(server, "bob", password="bob secret") as client:
            assert client.execute("SELECT pay FROM hr.salaries").fetchall() == [(5,)]
            client.execute("BEGIN")
            client.execute("SELECT pay FROM hr.salaries")
            grants.write_text("bob read shop.orders\n")
            with pytest.raises(psycopg.Error, match="salaries"):
                client.execute("SELECT pay FROM hr.salaries")
        assert code_of(
            server, "SELECT * FROM hr.salaries", user="bob", password="bob secret"
        ) == code_of(server, "SELECT * FROM hr.nothing", user="bob", password="bob secret")


@pytest.mark.more
def test_P34_who_comes_in(filled: Warehouse, users: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.signs("server")
    entry = Entry(Tls(own.certificate, own.key), Users(users))
    with serving(filled, entry) as server:
        secure = {"sslmode": "require", "password": "ann secret"}
        with connected(server, **secure) as client:
            assert client.pgconn.ssl_in_use
            assert client.execute("SELECT current_user").fetchone() == ("ann",)
        for wrong, why in (
            ({"sslmode": "disable", "password": "ann secret"}, "TLS"),
            ({**secure, "password": "wrong"}, "wrong user or password"),
            ({**secure, "user": "nobody"}, "wrong user or password"),
            ({**secure, "dbname": "postgres"}, "no database 'postgres'"),
        ):
            with pytest.raises(psycopg.OperationalError, match=why):
                connected(server, **wrong)
        with connected(server, **secure) as client:
            logins.add(users, "ann", "another secret")
            with pytest.raises(psycopg.OperationalError):
                client.execute("SELECT 1")
        logins.add(users, "ann", "ann secret")


@pytest.mark.more
def test_a_statement_ends_by_cancel_by_its_time_and_with_its_client(filled: Warehouse) -> None:
    with serving(filled, seconds=1.5) as server, connected(server) as client:
        late = threading.Timer(0.5, client.cancel_safe)
        late.start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="the client canceled"):
            client.execute(_LONG)
        late.join()
        client.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match=r"0\.3 s"):
            client.execute(_LONG)
        client.execute("RESET ALL")
        with pytest.raises(psycopg.errors.QueryCanceled, match=r"1\.5 s"):
            client.execute(_LONG)
        assert client.execute("SELECT 5").fetchone() == (5,)
    with serving(filled, seconds=3600) as server:
        gone = [connected(server) for _ in range(4)]
        for client in gone:
            client.pgconn.send_query(_LONG.encode())
        time.sleep(0.5)
        for client in gone:
            client.close()
        with connected(server) as client:  # a thread is free again
            assert client.execute("SELECT id FROM plain").fetchone() == (7,)


@pytest.mark.more
def test_P75_strangers_hold_nothing_for_long(filled: Warehouse, users: str) -> None:
    bounds = Bounds(connections=16, login_seconds=1.0)
    start = struct.pack("!ii", 8 + 19, 196608) + b"user\0ann\0database\0a"
    with serving(filled, Entry(None, Users(users)), bounds=bounds) as server:
        for sent in (
            b"",
            b"\0\0\0",
            struct.pack("!ii", 1 << 30, 196608),
            start,
            b"GET / HTTP/1.1\r\n",
        ):
            with closing(socket.create_connection(("127.0.0.1", port_of(server)))) as client:
                client.settimeout(30)
                client.sendall(sent)
                read_to_the_end(client)
        crowd = [socket.create_connection(("127.0.0.1", port_of(server))) for _ in range(40)]
        with connected(server, password="ann secret") as client:
            assert client.execute("SELECT id FROM plain").fetchone() == (7,)
        for stranger in crowd:
            stranger.close()


@pytest.mark.more
def test_P65_bytes_of_any_kind_end_their_own_session_at_most(
    server: PostgresServer, filled: Warehouse
) -> None:
    chance = random.Random(5)
    start = b"user\0ann\0database\0acid\0\0"
    start = struct.pack("!ii", 8 + len(start), 196608) + start
    for _ in range(150):
        with closing(socket.create_connection(("127.0.0.1", port_of(server)))) as client:
            client.settimeout(30)
            sent = start if chance.random() < 0.8 else b""
            for _ in range(chance.randint(1, 6)):
                kind = chance.choice(b"QPBDECSHXFdcfp\0z").to_bytes(1, "big")
                body = chance.randbytes(chance.choice((0, 1, 5, 30)))
                if chance.random() < 0.5:
                    body = chance.choice(
                        (b"SELECT 1\0", b"\0SELECT $1\0\0\0", b"\0\0\0\0\0\0\0\0", b"S\0")
                    )
                length = len(body) + 4 if chance.random() < 0.9 else chance.randint(-5, 1 << 31 - 1)
                sent += kind + struct.pack("!i", length) + body
            with suppress(OSError):  # it was ended before all was sent
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
            read_to_the_end(client)
    with connected(server) as client:
        assert client.execute("SELECT id FROM plain").fetchone() == (7,)
