"""No answer of any call tells of what its user may not see (P77)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acid_platform.gateway.authorization import (
    THROUGH_GATEWAY,
    AccessRequest,
    Authorizer,
    Caller,
    GrantFile,
)
from acid_platform.gateway.gateway import CALLS, Gateway
from acid_platform.gateway.protocol import Call
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.messages import encode
from acid_platform.metastore.records import ClientInfo, LockRequest, ViewRecord
from tests.gateway.calls import named, sample
from tests.gateway.clients import m
from tests.gateway.test_protocol import message
from tests.metastore.local import LocalLink
from tests.metastore.world import E, R, World

EVE = Caller("10.0.0.7:1", "eve")
SECRET, ABSENT = "hidden", "absent"
"""Part of each name that eve may not learn, and as long a part of names of nothing."""
GRANT = "eve read shown.own\n"


def world(home: Path) -> World:
    """A table of eve's, and databases, tables, views, transactions and locks of others."""
    world = World()
    for database in ("shown", "hidden"):
        world.call("create_database", name=database, if_not_exists=False)
    for name in ("shown.own", "shown.hidden", "hidden.own", "hidden.hidden", "default.hidden"):
        world.create(name, True, location=str(home / name))
    view = ViewRecord("shown.hidden_view", "SELECT 1 AS hidden", (("hidden", "int"),))
    world.call("create_view", view=encode(view), if_not_exists=False, or_replace=False)
    info = ClientInfo(user="hidden_user", host="hidden_host", agent="hidden", description="")
    for description in ("", THROUGH_GATEWAY):
        other = {**encode(info), "description": description}
        (txn,) = world.call("open_batch", count=1, kind=0, info=other)["txns"]
        for lock in (LockRequest("hidden.own", R), LockRequest("hidden.*", R)):
            world.call("request_lock", txn=txn, locks=[encode(lock)], zero_wait=False)
    world.call(
        "request_lock", txn=txn, locks=[encode(LockRequest("shown.hidden", E))], zero_wait=False
    )
    world.call("add_partitions", name="hidden.own", partitions=["p=1"])
    world.request(table="hidden.own", partition="p=1")
    world.set("acid.gateway.users", "/hidden/users")
    return world


def by_grants(home: Path) -> Authorizer:
    (home / "grants").write_text(GRANT)
    return GrantFile(str(home / "grants"))


def by_function(_home: Path) -> Authorizer:
    def allows(asked: AccessRequest) -> bool:
        return (asked.user, asked.verb, asked.table) == ("eve", "read", "shown.own")

    return allows


@pytest.fixture(params=[by_grants, by_function])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Gateway:
    link: Any = LocalLink(world(tmp_path))
    return Gateway(Metastore(link, str(tmp_path)), 0, request.param(tmp_path))


def answers(gateway: Gateway, call: Call) -> bytes:
    return gateway.answer(message(call.name, *call.arguments), EVE)


def test_P77_no_call_lists_what_its_user_may_not_see(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """With patterns, empty texts and names of what eve may see."""
    caplog.set_level("CRITICAL")
    asked = [("*", "*", "*"), ("", "", ""), ("shown", "own", "*"), ("shown", "*", "x")]
    asked += [("default", "*", "acid.gateway.users"), ("acid.gateway.users", "x", "x")]
    for name in sorted(CALLS):
        for database, table, other in asked:
            told = answers(gateway, sample(name, named(database, table, other)))
            assert SECRET.encode() not in told, name


def test_P77_no_call_tells_whose_a_transaction_or_a_lock_is(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    for name in sorted(CALLS):
        for number in range(7):
            told = answers(gateway, sample(name, named("shown", "own", "x", number)))
            assert SECRET.encode() not in told, (name, number)


def test_P77_what_may_not_be_seen_is_answered_as_what_is_not_there(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    for name in sorted(set(CALLS) - {"open_txns"}):  # which numbers its answers
        for database, table in ((SECRET, "own"), (SECRET, SECRET), ("shown", SECRET)):
            names = [
                (database.replace(SECRET, text), table.replace(SECRET, text))
                for text in (SECRET, ABSENT)
            ]
            there, gone = (answers(gateway, sample(name, named(*pair))) for pair in names)
            assert there.replace(SECRET.encode(), ABSENT.encode()) == gone, name


def test_P77_eve_sees_her_own(gateway: Gateway) -> None:
    def ask(name: str, *arguments: Any) -> bytes:
        return gateway.answer(message(name, *arguments), EVE)

    assert b"shown" in ask("get_all_databases") and b"default" in ask("get_all_databases")
    assert b"own" in ask("get_all_tables", "shown")
    assert b"own" in ask("get_table_meta", "*", "*", None)
    assert b"shown" in ask("get_database", "shown")
    opened = gateway.begin(message("open_txns", m.OpenTxnRequest(1, "eve", "desk", "")), EVE)
    assert opened and b"desk" in ask("get_open_txns_info")
