"""Every call of the gateway: who may make it, on what, and with whose transactions and locks.

docs/internal/rights.md is printed from the same rules: a call needs a line there and a test.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acid_platform import NoSuchTable, NotAuthorized, Warehouse
from acid_platform.gateway.authorization import (
    THROUGH_GATEWAY,
    AccessRequest,
    Caller,
    Grant,
    Guard,
    parse_grants,
)
from acid_platform.gateway.client_connection import Bounds, CallRates
from acid_platform.gateway.gateway import CALLS, Gateway
from acid_platform.gateway.needs import Need, needs_of_commit
from acid_platform.gateway.protocol import Call
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.transactions import GetLocks
from acid_platform.metastore.records import WriteReport
from acid_platform.transactions import RowOperation
from tests.gateway.calls import named, sample
from tests.gateway.clients import (
    COLUMNS,
    DELETE,
    EXCL_WRITE,
    EXCLUSIVE,
    INSERT,
    NO_TXN,
    SELECT,
    SHARED_READ,
    SHARED_WRITE,
    UPDATE,
    P,
    Statement,
    files,
    insert_events,
    m,
)
from tests.gateway.test_authorization import Refused, User
from tests.gateway.test_protocol import message
from tests.metastore.local import LocalLink
from tests.metastore.world import World

MINE, THEIRS, PLATFORMS, UNKNOWN = 1, 2, 3, 4
EVE, ANN = Caller("10.0.0.7:1", "eve"), Caller("10.0.0.8:1", "ann")
PUBLIC = {"nothing", "any verb"}


class _Metastore:
    """Knows three open transactions, and a lock of each and one without; counts questions."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def transactions(self) -> list[dict[str, Any]]:
        self.asked["transactions"] += 1
        return [
            {"txnid": MINE, "user": "eve for x", "description": THROUGH_GATEWAY},
            {"txnid": THEIRS, "user": "ann", "description": THROUGH_GATEWAY},
            {"txnid": PLATFORMS, "user": "eve", "description": ""},
        ]

    def call(self, operation: Any) -> list[Any]:
        assert isinstance(operation, GetLocks)
        self.asked["lock_states"] += 1
        return [SimpleNamespace(id=10 * txn, txn=txn) for txn in (MINE, THEIRS, PLATFORMS)] + [
            SimpleNamespace(id=40, txn=0)
        ]


class _Touched(_Metastore):
    """Remembers whether anything but the owners of transactions and locks was asked for."""

    touched = False

    def call(self, operation: Any) -> list[Any]:
        if isinstance(operation, GetLocks):
            return super().call(operation)
        self.touched = True
        raise NoSuchTable("there is none")

    def __getattr__(self, name: str) -> Any:
        self.touched = True
        raise NoSuchTable(f"no {name}")


def _with(name: str, txn: int, lock: int) -> Call:
    """The call for table safe.shut, with this transaction and this lock."""

    def value(field: str, kind: int) -> Any:
        low = field.lower()
        if low in ("txnid", "txnids", "txn_ids", "min", "max", "txn"):
            return txn
        if low == "lockid":
            return lock
        if low in ("fulltablenames", "fulltablename"):
            return "safe.shut"
        if low in ("tblnames", "tbl_names", "tablenames"):
            return "shut"
        return named("safe", "shut")(field, kind)

    return sample(name, value)


def _needs(call: Call) -> list[Need]:
    return CALLS[call.name].needs(call.arguments)


def _admit(guard: Guard, call: Call, caller: Caller) -> None:
    guard.admit(CALLS[call.name], call, caller)


def _admits(given: Iterable[tuple[str, str]], call: Call) -> bool:
    """Whether eve, who has these verbs on these tables, may make the call."""
    pairs = {*given}
    guard = Guard(_Metastore(), lambda asked: (asked.verb, asked.table) in pairs)  # type: ignore[arg-type]
    try:
        _admit(guard, call, EVE)
    except NotAuthorized as error:
        assert "eve may not" in str(error)
        return False
    return True


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call(name: str) -> None:
    call = _with(name, MINE, 10 * MINE)
    needs = _needs(call)
    if CALLS[name].rule.words == "nothing":
        assert not needs
    else:
        assert needs and all("safe." in need.table or need.table == "*.*" for need in needs)
    assert _admits([], call) is not bool(needs)
    for need in needs:
        others = [(verb.value, one.table) for one in needs if one != need for verb in one.verbs]
        wrong = [
            (verb, table)
            for verb in ("read", "insert", "update", "delete", "create", "alter", "drop", "admin")
            for table in (need.table, "safe.other", "other.shut")
            if table != need.table or verb not in need.verbs
        ]
        assert not _admits([*others, *wrong], call), need
        for verb in need.verbs:
            assert _admits([*others, (verb.value, need.table)], call), (need, verb)
    for uses, txn, lock in (
        (CALLS[name].txns, THEIRS, 10 * MINE),
        (CALLS[name].txns, PLATFORMS, 10 * MINE),
        (CALLS[name].own_lock, MINE, 10 * THEIRS),
        (CALLS[name].own_lock, MINE, 10 * PLATFORMS),
        (CALLS[name].own_lock, MINE, 40),
    ):
        guard = Guard(_Metastore())  # type: ignore[arg-type]
        strange = _with(name, txn, lock)
        if not uses:
            _admit(guard, strange, EVE)
            continue
        with pytest.raises(NotAuthorized, match=r"may not use|no client of it may use"):
            _admit(guard, strange, EVE)


VERBS = ("read", "insert", "update", "delete", "create", "alter", "drop", "admin")
LINES = ["", "eve all *", "eve all safe.*", "ann all *"] + [
    f"eve {verb} {where}" for verb in VERBS for where in ("safe.shut", "safe.*", "*", "other.*")
]
"""Files of grants: whose every line is a user of the gateway as far as a call can tell."""


@pytest.mark.more
def test_every_pair_of_user_and_call(caplog: pytest.LogCaptureFixture) -> None:
    """Through the whole gateway: whom the grants keep out learns and changes nothing."""
    caplog.set_level("CRITICAL")
    pairs: Counter[str] = Counter()
    metastore = _Touched()
    grants: list[Grant] = []
    gateway = Gateway(metastore, 0, lambda asked: any(one.gives(asked) for one in grants))  # type: ignore[arg-type]
    calls = [_with(name, MINE, 10 * MINE) for name in sorted(CALLS)]
    messages = [(call, message(call.name, *call.arguments)) for call in calls]
    for line in LINES:
        grants[:] = parse_grants(line, "grants")
        for call, sent in messages:
            may = all(
                any(
                    one.gives(AccessRequest("eve", "", verb, need.table, call.name))
                    for verb in need.verbs
                    for one in grants
                )
                for need in _needs(call)
            )
            metastore.touched = False
            answer = gateway.answer(sent, EVE)
            if b"the gateway has no call" in answer:
                assert not metastore.touched
                pairs["refused for everybody"] += 1
                continue
            assert (b"user eve may not " in answer) is not may, (line, call.name)
            assert may or not metastore.touched, (line, call.name)
            pairs["allowed" if may else "denied"] += 1
    assert pairs.total() == len(LINES) * len(CALLS)
    assert pairs["denied"] > 1500 and pairs["allowed"] > 1500, pairs


@pytest.mark.more
def test_no_call_names_a_place_outside_of_the_warehouse(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every text of every call, but for the names of its table, is a place elsewhere; then the
    names are, too."""
    caplog.set_level("CRITICAL")
    home, outside = tmp_path / "wh", tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    (home / "link").parent.mkdir()
    (home / "link").symlink_to(outside)
    world = World()
    for name in ("t", "u"):
        world.create(name, True, location=f"default.db/{name}")
    gateway = Gateway(Metastore(LocalLink(world), str(home)), 0)  # type: ignore[arg-type]
    places = [
        str(outside / "x"),
        f"file:{outside}/x",
        f"file://localhost{outside}/x",
        f"{home}/../outside/x",
        f"{home}/default.db/t/../../../outside",
        f"{home}/link/x",
        "../../outside",
        "%2e%2e/%2e%2e/outside",
        "s3://elsewhere/x",
        "/",
    ]
    refused: Counter[str] = Counter()
    for name in sorted(CALLS):
        table = "new" if name.startswith("create") else "t"
        for place in places:
            for database, named_table in (("default", table), (place, place)):
                call = sample(name, named(database, named_table, place))
                for sent in [call, *_managed(call)]:
                    answer = gateway.answer(message(name, *sent.arguments), ANN)
                    refused[name] += b"outside of the warehouse" in answer
    assert refused["create_table"] >= len(places), refused
    assert [one.name for one in outside.iterdir()] == ["kept"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["outside", "wh"]
    for table in world.state.tables.values():
        inside = (home / table.record.location).resolve()
        assert inside.is_relative_to(home) and not table.record.location.startswith("/"), table


def _managed(call: Call) -> Iterator[Call]:
    """The call again, with what a table has that the gateway makes, if it sends a table."""
    for argument in call.arguments:
        table = getattr(argument, "table", None) or argument
        if not isinstance(table, m.Table):
            continue
        table.parameters = {"transactional": "true"}
        table.tableType, table.sd.sortCols, table.sd.bucketCols = "MANAGED_TABLE", [], []
        table.sd.cols = [m.FieldSchema(name="id", type="int", comment="")]
        table.partitionKeys = []
        orc = "org.apache.hadoop.hive.ql.io.orc.OrcSerde"
        table.sd.serdeInfo = m.SerDeInfo(name="", serializationLib=orc, parameters={})
        yield call


def test_foreign_keys_are_told_to_whoever_may_see_the_table_that_has_them() -> None:
    of_child, of_parent = (
        Call("get_foreign_keys", 1, [m.ForeignKeysRequest(**names)])
        for names in (
            {"foreign_db_name": "safe", "foreign_tbl_name": "shut"},
            {"parent_db_name": "safe", "parent_tbl_name": "shut"},
        )
    )
    for verb in ("read", "insert"):
        assert _admits([(verb, "safe.shut")], of_child)
        assert not _admits([(verb, "safe.other")], of_child)
        # Every table may have keys that refer to the parent.
        assert not _admits([(verb, "safe.shut")], of_parent)
        assert _admits([(verb, "*.*")], of_parent)


@pytest.mark.parametrize("name", sorted(name for name, row in CALLS.items() if row.txns))
def test_without_a_login_the_platforms_transactions_are_out_of_reach(name: str) -> None:
    guard = Guard(_Metastore())  # type: ignore[arg-type]
    _admit(guard, _with(name, THEIRS, 10 * THEIRS), Caller("10.0.0.7:1"))
    with pytest.raises(NotAuthorized, match="not opened through the gateway"):
        _admit(guard, _with(name, PLATFORMS, 10 * MINE), Caller("10.0.0.7:1"))


def test_the_metastore_is_asked_once_however_many_transactions_a_call_names() -> None:
    metastore = _Metastore()
    guard = Guard(metastore)  # type: ignore[arg-type]
    request = m.AbortTxnsRequest(txn_ids=[MINE, *range(100, 200_100)])
    _admit(guard, Call("abort_txns", 1, [request]), EVE)
    assert metastore.asked == {"transactions": 1}
    request.txn_ids.append(THEIRS)
    with pytest.raises(NotAuthorized, match="may not use transaction 2, which another"):
        _admit(guard, Call("abort_txns", 1, [request]), EVE)


def test_a_lock_without_a_transaction_is_of_whoever_asked_for_it() -> None:
    guard = Guard(_Metastore())  # type: ignore[arg-type]
    locked = Call("lock", 1, [m.LockRequest(component=[], txnid=0)])
    guard.answered(locked, EVE, m.LockResponse(lockid=40, state=1))
    unlock = Call("unlock", 1, [m.UnlockRequest(lockid=40)])
    _admit(guard, unlock, EVE)
    with pytest.raises(NotAuthorized, match="may not use lock 40, which another"):
        _admit(guard, unlock, ANN)


_OWN = {SELECT: "read", INSERT: "insert", UPDATE: "update", DELETE: "delete"}
_CHANGE = "alter or drop or create"
LOCKS = [
    *((kind, op, [_OWN[op]]) for kind in (SHARED_READ, SHARED_WRITE, EXCL_WRITE, EXCLUSIVE)
      for op in (UPDATE, DELETE)),
    (SHARED_READ, SELECT, ["read"]),
    (SHARED_READ, INSERT, ["insert"]),
    (SHARED_READ, NO_TXN, ["read"]),
    (SHARED_WRITE, SELECT, ["read", "update"]),
    (SHARED_WRITE, INSERT, ["insert"]),
    (SHARED_WRITE, NO_TXN, ["update"]),
    (EXCL_WRITE, SELECT, ["read", "update"]),
    (EXCL_WRITE, INSERT, ["insert", "update"]),
    (EXCL_WRITE, NO_TXN, ["update"]),
    (EXCLUSIVE, SELECT, ["read", _CHANGE]),
    (EXCLUSIVE, INSERT, ["insert", _CHANGE]),
    (EXCLUSIVE, NO_TXN, [_CHANGE]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "operation", "expected"), LOCKS)
def test_a_lock_needs_the_verbs_of_its_operation_and_of_its_strength(
    kind: int, operation: int, expected: list[str]
) -> None:
    part = m.LockComponent(type=kind, level=2, dbname="db", tablename="t", operationType=operation)
    needs = _needs(Call("lock", 1, [m.LockRequest(component=[part], txnid=1)]))
    verbs = [list(need.verbs) for need in needs]
    assert [" or ".join(some) if len(some) < 7 else "read" for some in verbs] == expected


def _report(directory: str, overwrite: bool = False) -> WriteReport:
    return WriteReport(
        "db.t", None, RowOperation.INSERT, directory, RecordedFiles(()), overwrite=overwrite
    )


@pytest.mark.parametrize(
    ("directory", "overwrite", "verbs"),
    [
        ("delta_0000001_0000001_0000", False, {"insert", "update"}),
        ("delete_delta_0000001_0000001_0000", False, {"update", "delete"}),
        ("base_0000001", True, {"update", "delete"}),
    ],
)
def test_a_commit_needs_the_verbs_of_what_it_holds(
    directory: str, overwrite: bool, verbs: set[str]
) -> None:
    (need,) = needs_of_commit([_report(directory, overwrite)])
    assert need.table == "db.t" and {verb.value for verb in need.verbs} == verbs
    for verb in ("read", "insert", "update", "delete", "create", "alter", "drop", "admin"):
        guard = Guard(_Metastore(), lambda asked, verb=verb: asked.verb == verb)  # type: ignore[arg-type]
        if verb in verbs:
            guard.admit_commit([_report(directory, overwrite)], EVE)
        else:
            with pytest.raises(NotAuthorized, match="eve may not"):
                guard.admit_commit([_report(directory, overwrite)], EVE)


def _written(client: Any, table: str, operation: int, deletes: bool, inserts: bool) -> Statement:
    """A transaction that locked the table for the operation, and wrote delete events or rows."""
    statement = Statement(client)
    statement.query = "none of Trino"
    statement.lock(table, operation, SHARED_WRITE)
    write_id = statement.allocate(table)
    where = files(client, table)
    if inserts:
        where.inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
    if deletes:
        where.deletes(f"D{write_id}", [(1, P, 0)], write_id)
    return statement


@pytest.mark.more
@pytest.mark.parametrize(
    ("operation", "deletes", "inserts", "allowed"),
    [
        (INSERT, False, True, True),
        (INSERT, True, False, False),
        (INSERT, True, True, False),
        (DELETE, True, False, True),
        (DELETE, True, True, True),
        (UPDATE, True, True, True),
        (UPDATE, False, True, True),
    ],
)
def test_a_commit_holds_no_more_than_its_locks_announced(
    client: Any, warehouse: Warehouse, operation: int, deletes: bool, inserts: bool, allowed: bool
) -> None:
    name = f"db.announced_{operation}{deletes:d}{inserts:d}"
    table = warehouse.create_table(name, COLUMNS)
    table.insert([{"id": 7, "v": "old"}])
    statement = _written(client, name, operation, deletes, inserts)
    if allowed:
        statement.commit(finished=False)
    else:
        with pytest.raises(m.TxnAbortedException, match="more than the lock"):
            statement.commit(finished=False)
    kept = 0 if deletes and allowed else 1
    assert table.count() == kept + (1 if inserts and allowed else 0)


def test_a_right_that_was_taken_back_is_missed_at_the_commit(warehouse: Warehouse) -> None:
    given = {"read", "insert", "update", "delete", "alter", "create"}

    def allows(asked: AccessRequest) -> bool:
        return asked.verb in given

    ann = User(Gateway(warehouse.metastore, 0, allows), "ann")
    warehouse.create_table("db.taken_back", COLUMNS)
    statement = _written(ann, "db.taken_back", UPDATE, False, True)
    given -= {"insert", "update"}
    with pytest.raises(Refused, match="user ann may not insert or update"):
        statement.commit(finished=False)
    assert warehouse.table("db.taken_back").count() == 0


def test_nobody_says_of_anothers_write_that_it_is_finished(warehouse: Warehouse) -> None:
    gateway = Gateway(warehouse.metastore, 0)
    ann, eve = User(gateway, "ann"), User(gateway, "eve")
    warehouse.create_table("db.unfinished", COLUMNS)
    statement = Statement(ann)  # asks for its lock as Trino does
    statement.lock("db.unfinished", UPDATE)
    write_id = statement.allocate("db.unfinished")
    files(ann, "db.unfinished").inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
    mine = Statement(eve)
    mine.dynamic("db.unfinished", write_id, [], UPDATE)
    mine._allocated = [("db.unfinished", write_id)]
    mine.finish()
    with pytest.raises(Refused, match="before all its files were written"):
        statement.commit(finished=False)


def test_guesses_at_the_same_time_are_not_more_than_one_after_the_other() -> None:
    pace, checked = CallRates(Bounds(failures=10)), Counter[str]()

    def guess() -> None:
        if pace.begin_login("10.0.0.1"):
            checked["guesses"] += 1
            time.sleep(0.01)
            pace.end_login("10.0.0.1", failed=True)

    threads = [threading.Thread(target=guess) for _ in range(299)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert checked["guesses"] <= 10
    assert not pace.begin_login("10.0.0.1") and pace.begin_login("10.0.0.2")


def test_a_login_that_succeeds_does_not_count_and_ipv6_counts_by_network() -> None:
    pace = CallRates(Bounds(failures=2))
    for _ in range(50):
        assert pace.begin_login("::1")
        pace.end_login("::1", failed=False)
    for number in range(2):
        assert pace.begin_login(f"2001:db8:0:1::{number}")
        pace.end_login(f"2001:db8:0:1::{number}", failed=True)
    assert not pace.begin_login("2001:db8:0:1:ffff::9")
    assert pace.begin_login("2001:db8:0:2::9") and pace.begin_login("::ffff:10.0.0.1")
