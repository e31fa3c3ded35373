"""Who may do what: grants, the function of a user's own, and other users' transactions (P34)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acid_platform import InvalidDefinition, Warehouse
from acid_platform.gateway.authorization import (
    AccessRequest,
    Authorizer,
    Caller,
    GrantFile,
    imported,
    parse_grants,
)
from acid_platform.gateway.gateway import CALLS, Gateway
from acid_platform.gateway.hive_client import _parted
from acid_platform.gateway.protocol import Call, known_calls
from tests.gateway.clients import (
    EXCLUSIVE,
    INSERT,
    SELECT,
    SHARED_READ,
    SHARED_WRITE,
    UPDATE,
    Statement,
    m,
    shown,
)
from tests.gateway.test_definitions import declared
from tests.gateway.test_protocol import message

Call_ = Callable[..., Any]


class Refused(Exception):
    """The answer is an exception; its text is the message."""


class User:
    """Calls a gateway as a user who has logged in, without a socket."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self._gateway, self.caller = gateway, Caller("10.0.0.7:4711", name)

    def __getattr__(self, name: str) -> Call_:
        def call(*arguments: Any) -> Any:
            from thriftpy2.protocol.binary import TBinaryProtocol
            from thriftpy2.thrift import TApplicationException, TMessageType
            from thriftpy2.transport import TMemoryBuffer

            answer = self._gateway.answer(message(name, *arguments), self.caller)
            protocol = TBinaryProtocol(TMemoryBuffer(answer))
            _, kind, _ = protocol.read_message_begin()
            if kind == TMessageType.EXCEPTION:
                failed = TApplicationException()
                failed.read(protocol)
                raise Refused(failed.message)
            result = getattr(m.ThriftHiveMetastore, f"{name}_result")()
            result.read(protocol)
            for _, field, *_ in result.thrift_spec.values():
                value = getattr(result, field)
                if field != "success" and value is not None:
                    raise Refused(f"{type(value).__name__}: {value.message}")
            return getattr(result, "success", None)

        return call


GRANTS = """
# people
ann   read          safe.open
etl   all           safe.*
bob   insert,create safe.open,safe.new,other.*
root  all           *
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grants") / "grants"
    path.write_text(GRANTS)
    return path


@pytest.fixture(scope="module")
def user(warehouse: Warehouse, file: Path) -> Iterator[Callable[[str], User]]:
    warehouse.create_table("safe.open", "id int, v string")
    warehouse.create_table("safe.shut", "id int, v string", partitioned_by=["p int"])
    gateway = Gateway(warehouse.metastore, 0.01, GrantFile(str(file)))
    yield lambda name: User(gateway, name)


def test_P34_denied_names_user_verb_and_table(user: Callable[[str], User]) -> None:
    ann, eve = user("ann"), user("eve")
    assert shown(ann, "safe.open").tableName == "open"
    with pytest.raises(Refused, match=r"MetaException: user ann may not read safe\.shut"):
        shown(ann, "safe.shut")
    with pytest.raises(Refused, match=r"MetaException: user eve may not read safe\.open"):
        shown(eve, "safe.open")
    with pytest.raises(Refused, match=r"MetaException: user ann may not drop safe\.open"):
        ann.drop_table("safe", "open", True)
    with pytest.raises(Refused, match=r"MetaException: user ann may not drop safe\.\*"):
        ann.drop_database("safe", True, True)
    assert "safe" in ann.get_all_databases() and "safe" not in eve.get_all_databases()


def test_P34_a_lock_needs_the_verb_of_its_operation(user: Callable[[str], User]) -> None:
    ann, bob, etl = user("ann"), user("bob"), user("etl")
    statement = Statement(ann)
    assert statement.lock("safe.open", SELECT).state == 1
    for operation, kind, verb in (
        (INSERT, SHARED_READ, "insert"),
        (UPDATE, SHARED_WRITE, "update"),
        (6, SHARED_WRITE, "update"),
        (6, EXCLUSIVE, "alter or drop or create"),
    ):
        with pytest.raises(Refused, match=rf"user ann may not {verb} safe\.open"):
            statement.lock("safe.open", operation, kind)
    with pytest.raises(Refused, match="user ann may not insert or update or delete"):
        statement.allocate("safe.open")
    of_bob = Statement(bob)
    assert of_bob.lock("safe.open", INSERT).state == 1
    with pytest.raises(Refused, match=r"user bob may not read safe\.open"):
        of_bob.lock("safe.open", SELECT)
    assert Statement(etl).lock("safe.shut", UPDATE, SHARED_WRITE).state == 1


def test_P34_a_rename_needs_the_right_to_make_the_new_name(user: Callable[[str], User]) -> None:
    etl = user("etl")
    new = shown(etl, "safe.shut")
    new.dbName = "other"
    with pytest.raises(Refused, match=r"user etl may not create other\.shut"):
        etl.alter_table("safe", "shut", new)


def test_P34_partitions_of_another_table_are_not_slipped_in(user: Callable[[str], User]) -> None:
    bob = user("bob")
    part = m.Partition(values=["1"], dbName="safe", tableName="shut")
    request = m.AddPartitionsRequest(dbName="safe", tblName="open", parts=[part], ifNotExists=False)
    for call, argument in (("add_partitions_req", request), ("add_partitions", [part])):
        with pytest.raises(Refused, match=r"user bob may not insert or alter safe\.shut"):
            getattr(bob, call)(argument)


def test_P34_others_transactions_are_out_of_reach(
    user: Callable[[str], User], warehouse: Warehouse, file: Path
) -> None:
    etl, bob, root = user("etl"), user("bob"), user("root")
    statement = Statement(etl)
    statement.lock("safe.open", INSERT)
    txn = statement.id
    # Another gateway knows of the transaction only by the metastore.
    elsewhere = User(Gateway(warehouse.metastore, 0.01, GrantFile(str(file))), "bob")
    for stranger in (bob, root, elsewhere):
        for call, request in (
            ("commit_txn", m.CommitTxnRequest(txnid=txn)),
            ("abort_txn", m.AbortTxnRequest(txnid=txn)),
            ("abort_txns", m.AbortTxnsRequest(txn_ids=[txn])),
            ("heartbeat", m.HeartbeatRequest(txnid=txn)),
        ):
            with pytest.raises(Refused, match=f"may not use transaction {txn}, which another"):
                getattr(stranger, call)(request)
    request = m.AllocateTableWriteIdsRequest(dbName="safe", tableName="open", txnIds=[txn])
    with pytest.raises(Refused, match=f"user bob may not use transaction {txn}"):
        bob.allocate_table_write_ids(request)
    User(Gateway(warehouse.metastore, 0.01, GrantFile(str(file))), "etl").commit_txn(
        m.CommitTxnRequest(txnid=txn)
    )
    with pytest.raises(Refused, match="NoSuchTxn"):
        bob.commit_txn(m.CommitTxnRequest(txnid=10**9))


def test_P34_grants_are_read_again_and_a_wrong_file_lets_nobody_do_anything(
    user: Callable[[str], User], file: Path
) -> None:
    ann = user("ann")
    try:
        file.write_text(GRANTS + "ann read safe.shut\n")
        assert shown(ann, "safe.shut").tableName == "shut"
        file.write_text(GRANTS + "ann reed safe.shut\n")
        with pytest.raises(Refused, match="line 7: there is no verb 'reed'"):
            shown(ann, "safe.open")
    finally:
        file.write_text(GRANTS)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ann read", "USER VERBS TABLES"),
        ("ann read safe", "is not database.table"),
        ("ann read safe.o*", "is not database.table"),
        ("ann look safe.open", "no verb 'look'"),
    ],
)
def test_P34_a_line_that_is_no_grant_is_named(line: str, told: str) -> None:
    with pytest.raises(InvalidDefinition, match=f"grants, line 1: .*{told}"):
        parse_grants(line, "grants")


def asked_of(asked: list[AccessRequest], allowed: bool | Exception) -> Authorizer:
    def authorizer(request: AccessRequest) -> bool:
        asked.append(request)
        if isinstance(allowed, Exception):
            raise allowed
        return allowed

    return authorizer


def test_P34_a_function_of_the_users_own_decides(warehouse: Warehouse) -> None:
    asked: list[AccessRequest] = []
    warehouse.create_table("safe.asked", "id int")
    able = User(Gateway(warehouse.metastore, 0, asked_of(asked, True)), "")
    assert shown(able, "safe.asked")
    assert asked == [AccessRequest("", "10.0.0.7:4711", "read", "safe.asked", "get_table_req")]
    failing = User(Gateway(warehouse.metastore, 0, asked_of([], ValueError("down"))), "ann")
    with pytest.raises(Refused, match="the authorizer failed: ValueError: down"):
        shown(failing, "safe.asked")
    with pytest.raises(Refused, match=r"the client at 10\.0\.0\.7 may not create made\.nothing"):
        User(Gateway(warehouse.metastore, 0, asked_of([], False)), "").create_table(
            declared("nothing")
        )
    found = imported("tests.gateway.test_authorization:truthy")
    assert found(asked[0]) is False


def truthy(_request: AccessRequest) -> Any:
    """Answers something that is not True: that is no permission."""
    return "yes"


def test_P34_every_declared_call_has_a_row_of_the_table() -> None:
    assert known_calls() == CALLS.keys()


def test_P34_a_call_without_its_arguments_needs_admin_or_everything() -> None:
    needed = {name: row.needs(_called(name).arguments) for name, row in CALLS.items()}
    free = {name for name, needs in needed.items() if not needs}
    for name in known_calls() - free:
        for need in needed[name]:
            assert "*" in need.table, name
    assert {"get_table", "lock", "create_table", "drop_table"}.isdisjoint(free - {"lock"})


def _called(name: str) -> Call:
    spec = getattr(m.ThriftHiveMetastore, f"{name}_args").thrift_spec
    return Call(name, 1, [None] * len(spec))


def test_bits_of_aborted_ids_are_read_as_java_writes_them() -> None:
    assert _parted([3, 4, 9], b"\x02") == ([3, 9], [4])
    assert _parted([3], None) == ([3], [])
