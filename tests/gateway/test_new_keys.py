"""Two transactions that bring one new key at once, of which one at least is another engine's: each
has looked for the key and not found it, so the second to commit is refused (P51)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, product
from typing import Any

import pytest

from acid_platform import Transaction, Warehouse
from acid_platform.errors import WriteConflict
from acid_platform.gateway.gateway_server import GatewayServer
from tests.conftest import few_then_more
from tests.gateway.clients import (
    ACQUIRED,
    DELETE,
    EXCL_WRITE,
    INSERT,
    SELECT,
    SHARED_READ,
    SHARED_WRITE,
    UPDATE,
    WAITING,
    Statement,
    connected,
    files,
    insert_events,
    m,
    new_partition,
)

_numbers = count(1)
Commit = Callable[[], object]
Begin = Callable[[Warehouse, Any, str, str], Commit]
"""Begins a statement that finds no row with the key and inserts one; returns its commit."""


def foreign(*locks: tuple[int, int]) -> Begin:
    """A statement of another engine with these locks (operation and type), up to its commit."""

    def begin(_: Warehouse, client: Any, name: str, partition: str) -> Commit:
        statement = Statement(client)
        for operation, lock in locks:
            statement.lock(name, operation, lock, dynamic=operation != SELECT)
        statement.sees(name)
        write_id = statement.allocate(name)
        where = f"{partition}/d{write_id}".lstrip("/")
        files(client, name).inserts(where, insert_events(write_id, [(1, "theirs")]))
        if partition:
            with suppress(m.AlreadyExistsException):
                client.add_partitions([new_partition(client, name, partition)])
            statement.dynamic(name, write_id, [partition], INSERT)
        return statement.commit

    return begin


def ours(does: Callable[[Transaction, str, str], object]) -> Begin:
    def begin(warehouse: Warehouse, _: Any, name: str, partition: str) -> Commit:
        txn = warehouse.transaction()
        does(txn, name, partition.removeprefix("p="))
        return txn.commit

    return begin


def row(p: str, v: str = "ours") -> dict[str, object]:
    return {"id": 1, "v": v, **({"p": p} if p else {})}


def _on(p: str) -> str:
    return "t.id = s.id" + " AND t.p = s.p" * bool(p)


def _upsert(txn: Transaction, name: str, p: str) -> None:
    txn.table(name).merge(
        [row(p)], _on(p), when_matched_update={"v": "s.v"}, when_not_matched_insert="*"
    )


def _delete_insert(txn: Transaction, name: str, p: str) -> None:
    txn.table(name).delete("id = 1" + f" AND p = '{p}'" * bool(p))
    txn.table(name).insert([row(p)])


def _insert_missing(txn: Transaction, name: str, p: str) -> None:
    where, more = ("id = 1", "") if not p else (f"id = 1 AND p = '{p}'", f", '{p}'")
    txn.sql(
        f"INSERT INTO {name} SELECT 1, 'ours'{more}"
        f" WHERE NOT EXISTS (SELECT 1 FROM {name} WHERE {where})"
    )


VERBS: dict[str, tuple[Begin, bool]] = {
    # the statement, and whether anybody can tell that it has looked for rows
    "INSERT by Trino": (foreign((INSERT, SHARED_READ)), False),
    "INSERT of what is missing by Trino": (
        foreign((INSERT, SHARED_READ), (SELECT, SHARED_READ)), True,
    ),
    "MERGE by Trino": (foreign((UPDATE, SHARED_READ), (SELECT, SHARED_READ)), True),
    "MERGE by Hive 4.2": (foreign((DELETE, SHARED_WRITE)), True),
    "MERGE by Hive 4.2 that only inserts": (foreign((INSERT, SHARED_WRITE)), False),
    "insert": (ours(lambda txn, name, p: txn.table(name).insert([row(p)])), False),
    "upsert": (ours(_upsert), True),
    "delete and insert": (ours(_delete_insert), True),
    "insert of what is missing": (ours(_insert_missing), True),
}  # fmt: skip

_SOONEST = [
    ("INSERT by Trino", "upsert"), ("upsert", "MERGE by Trino"),
    ("MERGE by Hive 4.2", "delete and insert"),
    ("INSERT of what is missing by Trino", "INSERT of what is missing by Trino"),
]  # fmt: skip
PAIRS = [
    pair
    for pair in product(VERBS, VERBS)
    if any(" by " in name for name in pair) and pair not in _SOONEST
]


@pytest.fixture
def other(server: GatewayServer) -> Iterator[Any]:
    with connected(server.address) as opened:
        yield opened


def commits(commit: Commit) -> bool:
    try:
        commit()
    except (WriteConflict, m.TxnAbortedException) as refused:
        assert "looked for rows" in str(getattr(refused, "message", refused))
        return False
    return True


@pytest.mark.parametrize("pair", few_then_more([*_SOONEST, *PAIRS], len(_SOONEST)), ids=" - ".join)
def test_P51_the_second_who_looked_for_a_key_and_brings_it_is_refused(
    warehouse: Warehouse, client: Any, other: Any, pair: tuple[str, str]
) -> None:
    (first, first_looks), (second, second_looks) = (VERBS[name] for name in pair)
    meets = first_looks and second_looks
    ours_too = not all(" by " in name for name in pair)
    for one, another in (("", ""), ("p=a", "p=a"), ("p=a", "p=b"))[: 2 + ours_too]:
        name = f"db.keys{next(_numbers)}"
        keys = ["p string"] if one else None
        table = warehouse.create_table(name, "id int, v string", partitioned_by=keys)
        ends = [first(warehouse, client, name, one), second(warehouse, other, name, another)]
        assert [commits(end) for end in ends] == [True, not (meets and one == another)]
        assert table.count() == (1 if meets and one == another else 2)


def test_P51_T34_a_merge_that_waited_by_hives_own_setting_begins_again(
    warehouse: Warehouse, client: Any
) -> None:
    """Under `hive.txn.xlock.mergeinsert` its lock keeps other writers out, and counts as one for
    UPDATE; it has looked before it gets the lock."""
    table = warehouse.create_table("db.waited_for", "id int, v string")
    txn = warehouse.transaction()
    _upsert(txn, table.name, "")
    merge = Statement(client)
    asked = merge.lock(table.name, INSERT, EXCL_WRITE)
    assert asked.state == WAITING
    txn.commit()
    assert merge.check(asked.lockid).state == ACQUIRED
    write_id = merge.allocate(table.name)
    files(client, table.name).inserts(f"d{write_id}", insert_events(write_id, [(1, "theirs")]))
    assert client.get_latest_txnid_in_conflict(merge.id) > merge.id
    with pytest.raises(m.TxnAbortedException):
        merge.commit()
    assert table.count() == 1
