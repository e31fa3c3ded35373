"""The read-only REST catalog: what readers of Iceberg find, who may, and what strangers can do."""

from __future__ import annotations

import base64
import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from acid_platform import Warehouse
from acid_platform.gateway import logins
from acid_platform.gateway.authorization import Authorizer, GrantFile
from acid_platform.gateway.client_connection import Bounds
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.logins import Tls, Users
from acid_platform.gateway.rest_catalog import RestCatalog
from acid_platform.gateway.rest_server import RestServer
from acid_platform.handles.iceberg_export import told_metadata
from tests.conftest import a_warehouse
from tests.gateway.certificates import Authority

pytest.importorskip("fastavro", reason="pip install 'acid-platform[export]'")
pytestmark = pytest.mark.more
warehouse = a_warehouse("local")
TABLES = "/v1/namespaces/shop/tables"


@contextmanager
def serving(
    warehouse: Warehouse,
    entry: Entry | None = None,
    authorizer: Authorizer | None = None,
    bounds: Bounds | None = None,
) -> Iterator[RestServer]:
    def tell(table: str, branch: str) -> tuple[str, bytes]:
        if not branch:
            return told_metadata(warehouse, table)
        with Warehouse.open(warehouse.path, branch=branch) as on_branch:
            return told_metadata(on_branch, table)

    catalog = RestCatalog(warehouse.metastore, tell, authorizer)
    server = RestServer(catalog, "127.0.0.1", 0, bounds, entry)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


@pytest.fixture(scope="module")
def filled(warehouse: Warehouse) -> Warehouse:
    for name, kind in (("orders", "parquet"), ("people", "parquet"), ("old", "orc")):
        table = warehouse.create_table(
            f"shop.{name}", "id int, s string", properties={"acid.format": kind}
        )
        table.insert([{"id": number, "s": f"{name} {number}"} for number in range(5)])
    warehouse.create_table("other.t", "id int", properties={"acid.format": "parquet"})
    return warehouse


@pytest.fixture(scope="module")
def server(filled: Warehouse) -> Iterator[RestServer]:
    with serving(filled) as running:
        yield running


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("people") / "users")
    for name in ("ann", "bob", "eve"):
        logins.add(path, name, f"{name} secret")
    return path


def port_of(server: RestServer) -> int:
    return int(urlsplit(server.address).port or 0)


def asked(
    server: RestServer, method: str, path: str, login: str = "", body: str | None = None
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and the JSON of an answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=60)) as client:
        client.request(method, path, body, {"Authorization": login} if login else {})
        answer = client.getresponse()
        text = answer.read()
        return answer.status, dict(answer.getheaders()), json.loads(text) if text else None


def status(server: RestServer, method: str, path: str, login: str = "") -> int:
    return asked(server, method, path, login)[0]


def basic(name: str, password: str = "") -> str:
    pair = f"{name}:{password or f'{name} secret'}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def test_P80_a_branch_is_a_catalog(server: RestServer, filled: Warehouse) -> None:
    """By its name as the client's warehouse; what is done there is told, and nothing of it in
    another catalog."""
    rest = pytest.importorskip("pyiceberg.catalog.rest")
    table = filled.create_table(
        "shop.drafts", "id int, s string", ["day date"], properties={"acid.format": "parquet"}
    )
    table.insert([{"id": n, "s": "a", "day": f"2024-01-0{1 + n % 2}"} for n in range(9)])
    filled.branches.create("run/a-1")
    rows = {"everybody": table.to_arrow().to_pylist()}
    catalogs = {
        "everybody": rest.RestCatalog("acid", uri=server.address),
        "branch": rest.RestCatalog("acid", uri=server.address, warehouse="branch/run/a-1"),
    }

    def right() -> None:
        for who, catalog in catalogs.items():
            found = catalog.load_table("shop.drafts").scan().to_arrow().to_pylist()
            key = ("id", "s")
            assert sorted(found, key=lambda row: [row[name] for name in key]) == sorted(
                rows[who], key=lambda row: [row[name] for name in key]
            ), who

    rows["branch"] = rows["everybody"]
    right()
    with Warehouse.open(filled.path, branch="run/a-1") as branch:
        there = branch.table("shop.drafts")
        for step in (
            lambda: there.delete("id % 4 = 1"),
            lambda: there.update({"s": "'b'"}, where="id > 5"),
            lambda: there.insert([{"id": 20, "s": "c", "day": None}]),
            lambda: there.overwrite([{"id": 30, "s": "d"}], partition="day=2024-01-01"),
            lambda: table.insert([{"id": 40, "s": "e", "day": "2024-01-02"}]),
        ):
            step()
            rows = {
                "everybody": table.to_arrow().to_pylist(),
                "branch": there.to_arrow().to_pylist(),
            }
            right()
    assert catalogs["branch"].list_tables("shop") == catalogs["everybody"].list_tables("shop")
    told = Path(filled.path, "_iceberg")
    [directory] = told.glob("_branch_*")
    filled.branches.drop("run/a-1")
    filled.branches.create("other")
    other = rest.RestCatalog("acid", uri=server.address, warehouse="branch/other")
    assert other.load_table("shop.drafts").scan().to_arrow().num_rows == table.count()
    assert not directory.exists() and len([*told.glob("_branch_*")]) == 1
    filled.branches.drop("other")
    with pytest.raises(Exception, match="there is no branch"):
        catalogs["branch"].load_table("shop.drafts")
    assert status(server, "GET", "/v1/config?warehouse=branch/none") == 404
    assert status(server, "GET", "/v1/config?warehouse=acid") == 200
    filled.drop_table("shop.drafts")


def test_pyiceberg_reads_a_table_as_it_is_when_it_is_loaded(
    server: RestServer, filled: Warehouse
) -> None:
    rest = pytest.importorskip("pyiceberg.catalog.rest")
    catalog = rest.RestCatalog("acid", uri=server.address)
    table = filled.create_table(
        "shop.live", "id int, s string", ["day date"], properties={"acid.format": "parquet"}
    )
    for step in (
        lambda: table.insert(
            [{"id": n, "s": "a", "day": f"2024-01-0{1 + n % 2}"} for n in range(9)]
        ),
        lambda: table.delete("id % 4 = 1"),
        lambda: table.update({"s": "'b'"}, where="id > 5"),
        lambda: table.rename_column("s", "text"),
        lambda: table.insert([{"id": 20, "text": "c", "day": None}]),
        lambda: table.compact(kind="major"),
    ):
        step()
        found = catalog.load_table("shop.live").scan().to_arrow()
        rows = sorted(found.to_pylist(), key=lambda row: row["id"])
        assert rows == sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])

    assert set(catalog.list_namespaces()) >= {("shop",), ("other",)}
    assert set(catalog.list_tables("shop")) == {
        ("shop", "live"),
        ("shop", "orders"),
        ("shop", "people"),
    }
    assert catalog.table_exists("shop.live") and not catalog.table_exists("shop.none")
    with pytest.raises(Exception, match=r"read-only|does not support endpoint"):
        catalog.drop_table("shop.live")
    with pytest.raises(Exception, match=r"read-only|does not support endpoint"):
        catalog.create_namespace("more")
    with pytest.raises(Exception, match="SET FILEFORMAT PARQUET"):
        catalog.load_table("shop.old")
    loaded = catalog.load_table("shop.live")
    with (
        pytest.raises(Exception, match=r"read-only|does not support endpoint"),
        loaded.transaction() as change,
    ):
        change.set_properties(a="b")
    filled.drop_table("shop.live")


def test_routes_answer_by_their_names(server: RestServer) -> None:
    expected = {
        ("GET", "/v1/config?warehouse=x"): 200,
        ("GET", "/v1/namespaces/shop"): 200,
        ("HEAD", "/v1/namespaces/shop"): 200,
        ("GET", "/v1/namespaces/none"): 404,
        ("GET", "/v1/namespaces/none/tables"): 404,
        ("GET", "/v1/namespaces?parent=shop"): 200,
        ("GET", "/v1/namespaces/shop/views"): 200,
        ("GET", "/v1/namespaces/shop/views/v"): 404,
        ("GET", f"{TABLES}/orders"): 200,
        ("HEAD", f"{TABLES}/orders"): 204,
        ("HEAD", f"{TABLES}/none"): 404,
        ("GET", f"{TABLES}/..%2F..%2Fetc"): 404,
        ("GET", f"{TABLES}/old"): 400,
        ("GET", "/etc/passwd"): 404,
        ("GET", "/v1"): 404,
        ("POST", f"{TABLES}/orders/metrics"): 204,
        ("POST", f"{TABLES}/orders"): 403,
        ("POST", TABLES): 403,
        ("POST", "/v1/tables/rename"): 403,
        ("POST", "/v1/transactions/commit"): 403,
        ("DELETE", f"{TABLES}/orders"): 403,
        ("PUT", "/v1/namespaces/shop"): 403,
        ("GET", f"{TABLES}?pageSize=x"): 400,
        ("POST", "/v1/oauth/tokens"): 400,
    }
    assert {route: status(server, *route) for route in expected} == expected


def test_lists_come_in_pages_if_that_is_asked(server: RestServer) -> None:
    found, token = list[str](), ""
    while True:
        query = urlencode({"pageSize": 1, "pageToken": token})
        page = asked(server, "GET", f"{TABLES}?{query}")[2]
        found += [each["name"] for each in page["identifiers"]]
        token = page.get("next-page-token", "")
        if not token:
            break
    assert [name for name in found if name != "live"] == ["orders", "people"]
    whole = asked(server, "GET", "/v1/namespaces")[2]
    assert sorted(whole["namespaces"]) == whole["namespaces"] and "next-page-token" not in whole


def test_P77_grants_hold_on_every_route(filled: Warehouse, people: str, tmp_path: Path) -> None:
    grants = tmp_path / "grants"
    grants.write_text("ann read shop.orders\nbob insert shop.people\n")
    with serving(filled, Entry(users=Users(people)), GrantFile(str(grants))) as server:
        ann, bob, eve = map(basic, ("ann", "bob", "eve"))

        def tables(login: str) -> Any:
            answer = asked(server, "GET", TABLES, login)[2]
            return [each["name"] for each in answer.get("identifiers", ())]

        assert [tables(login) for login in (ann, bob, eve)] == [["orders"], ["people"], []]
        for login, names in ((ann, ["shop"]), (bob, ["shop"]), (eve, [])):
            found = asked(server, "GET", "/v1/namespaces", login)[2]["namespaces"]
            assert [name for (name,) in found if name != "default"] == names
        routes = {
            ("GET", f"{TABLES}/orders"): (200, 403, 403),
            ("HEAD", f"{TABLES}/orders"): (204, 403, 403),
            ("GET", f"{TABLES}/people"): (403, 403, 403),  # bob may insert, not read
            ("GET", f"{TABLES}/none"): (403, 403, 403),
            ("GET", "/v1/namespaces/shop"): (200, 200, 404),
            ("GET", "/v1/namespaces/other"): (404, 404, 404),
            ("GET", "/v1/namespaces/other/tables"): (404, 404, 404),
            ("GET", "/v1/namespaces/other/views"): (404, 404, 404),
            ("GET", "/v1/namespaces?parent=other"): (404, 404, 404),
            ("GET", "/v1/config"): (200, 200, 200),
            ("DELETE", f"{TABLES}/orders"): (403, 403, 403),
        }
        for route, codes in routes.items():
            assert tuple(status(server, *route, login) for login in (ann, bob, eve)) == codes, route
            assert status(server, *route) == 401, route
        grants.write_text("eve all *\n")
        time.sleep(0.01)
        assert status(server, "GET", f"{TABLES}/orders", ann) == 403
        assert status(server, "GET", f"{TABLES}/people", eve) == 200


def test_P77_who_has_no_password_or_has_lost_it_gets_nothing(
    filled: Warehouse, tmp_path: Path
) -> None:
    people = str(tmp_path / "users")
    logins.add(people, "ann", "first")
    with serving(filled, Entry(users=Users(people))) as server:
        code, headers, error = asked(server, "GET", "/v1/config")
        assert code == 401 and headers["WWW-Authenticate"].startswith("Basic")
        assert error["error"]["type"] == "NotAuthorizedException"
        form = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": "first"}
        code, headers, token = asked(server, "POST", "/v1/oauth/tokens", body=urlencode(form))
        assert code == 200 and headers["Cache-Control"] == "no-store"
        by_header = {"grant_type": "client_credentials"}, basic("ann", "first")
        assert asked(server, "POST", "/v1/oauth/tokens", by_header[1], urlencode(by_header[0]))[2]
        bearer = f"Bearer {token['access_token']}"
        assert status(server, "GET", f"{TABLES}/orders", bearer) == 200
        assert status(server, "GET", f"{TABLES}/orders", basic("ann", "first")) == 200
        for wrong in ("Bearer x", "Basic", "Basic ???", "Digest a", "Basic YQ==", bearer + "x"):
            assert status(server, "GET", "/v1/config", wrong) == 401, wrong
        logins.add(people, "ann", "second")  # another password ends both
        assert status(server, "GET", "/v1/config", bearer) == 401
        assert status(server, "GET", "/v1/config", basic("ann", "first")) == 401
        assert status(server, "GET", "/v1/config", basic("ann", "second")) == 200
        Path(people).write_text("not a line of users\n")
        assert status(server, "GET", "/v1/config", basic("ann", "second")) == 401


def test_P75_guesses_of_one_address_are_few(filled: Warehouse, people: str) -> None:
    with serving(filled, Entry(users=Users(people)), bounds=Bounds(failures=2)) as server:
        codes = [status(server, "GET", "/v1/config", basic("ann", f"{n}")) for n in range(4)]
        assert codes == [401, 401, 429, 429]


def test_P34_with_tls_a_certificate_or_a_password_lets_in(
    filled: Warehouse, people: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    own, client, stranger = (
        authority.signs("server"),
        authority.signs("bob"),
        Authority(tmp_path, "other").signs("bob", file="stranger"),
    )
    entry = Entry(Tls(own.certificate, own.key, authority.path), Users(people))
    grants = tmp_path / "grants"
    grants.write_text("bob read shop.orders\n")

    def code(server: RestServer, pair: Any = None, login: str = "") -> int:
        context = ssl.create_default_context(cafile=authority.path)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        port = port_of(server)
        with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context)) as client:
            client.request(
                "GET", f"{TABLES}/orders", None, {"Authorization": login} if login else {}
            )
            return client.getresponse().status

    with serving(filled, entry, GrantFile(str(grants))) as server:
        assert server.address.startswith("https://")
        assert code(server, client) == 200
        assert code(server, None, basic("bob")) == 200
        assert code(server, None, basic("ann")) == 403
        assert code(server) == 401
        with pytest.raises(OSError):
            code(server, stranger)
        with pytest.raises((OSError, http.client.HTTPException)):
            status(server, "GET", "/v1/config")  # in clear text


def test_P65_what_is_no_request_is_refused(server: RestServer) -> None:
    wrong = {
        b"GET /v1/config\r\n\r\n": 400,
        b"GET /v1/config HTTP/3\r\n\r\n": 400,
        b"GET /v1/config HTTP/1.1\r\na b\r\n\r\n": 400,
        b"GET /v1/config HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n": 400,
        b"POST /v1/x HTTP/1.1\r\nContent-Length: -1\r\n\r\n": 400,
        b"POST /v1/x HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n": 413,
        b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n": 411,
        b"GET /v1/config HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n": 431,
        b"GET //[/v1 HTTP/1.1\r\n\r\n": 400,
        b"GET /v1/config?" + b"a&" * 100 + b" HTTP/1.1\r\n\r\n": 400,
        "GET /v1/config HTTP/1.1\r\nA: ä\r\n\r\n".encode(): 400,
    }
    for sent, expected in wrong.items():
        with socket.create_connection(("127.0.0.1", port_of(server)), 30) as client:
            client.sendall(sent)
            first = client.recv(4096).split(b"\r\n")[0].split(b" ")
            assert int(first[1]) == expected, sent[:60]
    dice = random.Random(3)
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", port_of(server)), 30) as client:
            client.sendall(dice.randbytes(dice.randrange(1, 300)) + b"\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 4")
    assert status(server, "GET", "/v1/config") == 200


def test_P75_silent_connections_make_room(filled: Warehouse) -> None:
    with serving(filled, bounds=Bounds(connections=8)) as server:
        silent = [socket.create_connection(("127.0.0.1", port_of(server)), 30) for _ in range(40)]
        for each in silent[::2]:
            each.send(b"GET /v1/config HTTP/1.1\r\nHost: ")
        try:
            assert status(server, "GET", f"{TABLES}/orders") == 200
            assert len(server._open) <= 8
        finally:
            for each in silent:
                each.close()
