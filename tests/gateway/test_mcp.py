"""MCP: what an agent finds by the official SDK's own client, over HTTP and over stdin."""

from __future__ import annotations

import asyncio
import base64
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acid_platform import Warehouse
from acid_platform.base.location import Location
from acid_platform.cli.mcp_command import agent_tools
from acid_platform.gateway import logins
from acid_platform.gateway.authorization import Authorizer, Caller, GrantFile
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.logins import Users
from acid_platform.gateway.rest_catalog import RestCatalog
from acid_platform.gateway.rest_server import RestServer
from tests.conftest import a_warehouse
from tests.gateway.test_postgres import filled

pytest.importorskip("mcp", reason="pip install 'acid-platform[mcp]'")
import httpx2
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

__all__ = ["filled", "warehouse"]
pytestmark = pytest.mark.more
warehouse = a_warehouse("local")
_LONG = "SELECT count(*) FROM range(100000000000) AS r(n) WHERE hash(n) = 5"


@contextmanager
def serving(
    warehouse: Warehouse,
    entry: Entry | None = None,
    authorizer: Authorizer | None = None,
    seconds: float = 60,
) -> Iterator[RestServer]:
    from acid_platform.gateway.mcp_server import answer_http

    place = Location.of(warehouse.path)
    tools = agent_tools(warehouse, place, 64, seconds, authorizer)

    def tell(table: str, _branch: str) -> tuple[str, bytes]:
        raise AssertionError(table)

    catalog = RestCatalog(warehouse.metastore, tell, authorizer)
    server = RestServer(catalog, "127.0.0.1", 0, None, entry, partial(answer_http, tools))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


Calls = Callable[[ClientSession], Awaitable[Any]]


def asked(server: RestServer, calls: Calls, user: str = "") -> Any:
    """What the calls return, in a session of the SDK's client."""
    pair = base64.b64encode(f"{user}:{user} secret".encode()).decode()
    headers = {"Authorization": f"Basic {pair}"} if user else {}

    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as client,
            streamable_http_client(f"{server.address}/mcp", http_client=client) as streams,
            ClientSession(*streams[:2]) as session,
        ):
            await session.initialize()
            return await calls(session)

    return asyncio.run(run())


def tool(server: RestServer, name: str, user: str = "", **given: Any) -> Any:
    """What a tool gives, or the text of its error."""

    async def call(session: ClientSession) -> Any:
        found = await session.call_tool(name, given)
        return found.content[0].text if found.is_error else found.structured_content

    return asked(server, call, user)


def test_an_agent_finds_tables_and_reads_rows(filled: Warehouse) -> None:
    with serving(filled) as server:

        async def names(session: ClientSession) -> list[str]:
            return [each.name for each in (await session.list_tools()).tools]

        assert asked(server, names) == ["tables", "columns", "history", "findings", "query"]
        [orders] = tool(server, "tables", database="shop")["tables"]
        assert (orders["table"], orders["comment"]) == ("shop.orders", "all orders")
        columns = tool(server, "columns", table="shop.orders")["columns"]
        assert columns[1] == {
            "column": "s", "type": "string", "comment": "a text", "partition": False,
        }  # fmt: skip
        assert columns[-1]["partition"] and columns[-1]["column"] == "day"
        assert [
            row["write_id"] for row in tool(server, "history", table="shop.orders")["history"]
        ] == [2, 1]
        assert "all is well" in tool(server, "findings")["verdict"]
        query = "SELECT id, amount, ok, tags, n, day FROM shop.orders ORDER BY id;"
        found = tool(server, "query", sql=query)
        assert found["rows"][0] == [1, "1.50", True, '["a",null]', 1 << 40, "2024-01-02"]
        assert (len(found["rows"]), found["more"]) == (2, False)
        assert found["columns"][1] == {"column": "amount", "type": "DECIMAL(9,2)"}
        few = tool(server, "query", sql="SELECT * FROM range(10000)", rows=3)
        assert (few["rows"], few["more"]) == ([[0], [1], [2]], True)
        assert tool(server, "query", sql="SELECT 'NaN'::DOUBLE")["rows"] == [["NaN"]]
        assert tool(server, "query", sql="SELECT id FROM plain", as_of="now")["rows"] == [[7]]


def test_what_an_agent_may_not_do_is_said(filled: Warehouse) -> None:
    with serving(filled, seconds=0.5) as server:
        for sql, why in (
            ("DELETE FROM plain", "read-only"),
            ("SELECT * FROM read_text('/etc/passwd')", ""),
            ("SELECT 1; SELECT 2", "one SELECT"),
            ("SELECT ?", "no parameters"),
            ("SELECT * FROM nothing", "nothing"),
            ("SELECT repeat('x', 1000000)", "bytes"),
            ("SELECT count(DISTINCT hash(n)) FROM range(50000000) r(n)", ""),
            (_LONG, "longer than 0.5 s"),
        ):
            found = tool(server, "query", sql=sql)
            assert isinstance(found, str) and why in found, (sql, found)
        for name, given in (
            ("drop", {}), ("query", {}), ("query", {"sql": 5}), ("columns", {"table": "a.b"}),
            ("query", {"sql": "SELECT 1", "rows": 0}),
            ("query", {"sql": "FROM plain", "as_of": "xy"}),
        ):  # fmt: skip
            assert isinstance(tool(server, name, **given), str), name
        assert tool(server, "query", sql="SELECT 5")["rows"] == [[5]]


def test_P77_an_agent_has_the_grants_of_its_user(filled: Warehouse, tmp_path: Path) -> None:
    users, grants = tmp_path / "users", tmp_path / "grants"
    for name in ("ann", "bob"):
        logins.add(str(users), name, f"{name} secret")
    grants.write_text("ann read shop.*\nann insert hr.salaries\nbob read *\n")
    entry = Entry(None, Users(str(users)))
    with serving(filled, entry, GrantFile(str(grants))) as server:
        seen = [
            tool(server, "tables", "ann"),
            tool(server, "query", "ann", sql="SELECT * FROM information_schema.tables"),
            tool(server, "query", "ann", sql="SELECT * FROM duckdb_views()"),
        ]
        assert "shop.orders" in str(seen) and "salaries" not in str(seen)
        for name, given in (
            ("columns", {"table": "hr.salaries"}),
            ("history", {"table": "hr.salaries"}),
        ):
            found = tool(server, name, "ann", **given)
            hidden = tool(server, name, "ann", table="hr.nothing")
            assert found == hidden.replace("nothing", "salaries")
        assert "pay" not in tool(server, "query", "ann", sql="SELECT * FROM hr.salaries")
        assert "may not read all" in tool(server, "findings", "ann")
        assert tool(server, "query", "bob", sql="SELECT pay FROM hr.salaries")["rows"] == [[5]]
        assert "verdict" in tool(server, "findings", "bob")
        for user in ("", "eve"):
            with pytest.raises(BaseException, match=r"401|Unauthorized|unhandled"):
                tool(server, "tables", user)


def test_web_pages_and_other_methods_are_refused(filled: Warehouse) -> None:
    with serving(filled) as server:
        for method, headers, status in (
            ("POST", {"Origin": "https://example.org"}, 403),
            ("GET", {}, 405),
            ("DELETE", {}, 405),
        ):
            answer = httpx2.request(method, f"{server.address}/mcp", headers=headers)
            assert answer.status_code == status


def test_an_agent_starts_acid_mcp(filled: Warehouse) -> None:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "acid_platform", "--warehouse", filled.path, "mcp"],
    )

    async def run() -> Any:
        async with stdio_client(command) as streams, ClientSession(*streams) as session:
            await session.initialize()
            return (await session.call_tool("query", {"sql": "FROM plain"})).structured_content

    assert asyncio.run(run())["rows"] == [[7]]


def test_a_call_needs_no_sdk(filled: Warehouse) -> None:
    tools = agent_tools(filled, Location.of(filled.path), 64, 60)
    assert tools.call("query", {"sql": "SELECT 1 AS one"}, Caller("here"))["rows"] == [[1]]
