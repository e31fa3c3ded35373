"""Our tables in another metastore, and the tables of another metastore here (P24, P34).

The other metastore is a gateway before a second warehouse, which does what Hive's would: it makes
tables over directories with data, and drops them without their files.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from acid_platform import NoSuchTable, Warehouse
from acid_platform.cli.main import main
from acid_platform.errors import MetastoreUnavailable
from acid_platform.gateway import adopting, protocol, registering
from acid_platform.gateway.gateway import CALLS, Gateway
from acid_platform.gateway.gateway_server import GatewayServer
from acid_platform.gateway.hive_client import Address, Hive, HiveRefused
from acid_platform.layout.types import Column, parse_type
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.tables import DeclareTable
from acid_platform.metastore.operations.transactions import (
    CommitTxn,
    GetLocks,
    GetTouched,
    GetWriteIdsUnder,
)
from acid_platform.services import cleaner
from acid_platform.tables.declaration import Declaration
from acid_platform.transactions import ValidWriteIdList
from tests.acid_files import P
from tests.conftest import temporary_warehouse
from tests.gateway.clients import (
    INSERT,
    Statement,
    begun,
    connected,
    files,
    insert_events,
    m,
    shown,
    trino_insert,
)
from tests.gateway.direct_tables import READABLE, abort_one, make_tables, put, rows


class AsHive(Gateway):
    """A gateway that defines tables as Hive's metastore does, and answers what it is told to."""

    extra: dict[str, Any]
    """Tables of kinds that we don't have, by name."""

    def create_table(self, new: Any) -> None:
        name = f"{new.dbName}.{new.tableName}"
        declared = Declaration.of(
            name,
            tuple(Column(one.name, parse_type(one.type)) for one in new.sd.cols),
            [f"{one.name} {one.type}" for one in new.partitionKeys or ()],
            (new.sd.bucketCols, new.sd.numBuckets) if new.sd.bucketCols else None,
            new.parameters,
            written_before=True,
        )
        location = self._metastore.places.inward(protocol.path(new.sd.location))
        self._metastore.call(DeclareTable(declared.record(name, location), False))

    def drop_table(self, database: str, name: str, delete: bool | None) -> None:
        assert delete is False, "the files are not Hive's"
        self._metastore.drop(f"{database}.{name}")  # nobody cleans this warehouse

    def commit_txn(self, request: Any) -> None:
        """Hive does not look at the files: it takes what it is told."""
        names = [one.table for one in self._metastore.call(GetTouched(request.txnid))]
        if any(registering.FROM in self._metastore.table(name).properties for name in names):
            self._metastore.call(CommitTxn(request.txnid))
        else:
            super().commit_txn(request)

    def get_all_tables(self, database: str) -> list[str]:
        return sorted({*super().get_all_tables(database), *self.extra})

    def get_table_req(self, request: Any) -> Any:
        if request.tblName in self.extra:
            return m.GetTableResult(table=self.extra[request.tblName])
        return super().get_table_req(request)


AS_HIVE = {
    name: replace(CALLS[name], answer=getattr(AsHive, name))
    for name in ("create_table", "drop_table", "commit_txn", "get_all_tables", "get_table_req")
}


@contextmanager
def as_hive(warehouse: Warehouse) -> Iterator[tuple[AsHive, GatewayServer]]:
    gateway = AsHive(warehouse.metastore, lock_wait=0.01)
    gateway.extra = {}
    server = GatewayServer(gateway, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        with mock.patch.dict(CALLS, AS_HIVE):
            yield gateway, server
    finally:
        server.stop()
        thread.join()


def run(warehouse: Warehouse, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--json", "--warehouse", str(warehouse.path)])


def listed(result: Result) -> dict[str, dict[str, Any]]:
    """The report by the names of its rows."""
    found = json.loads(result.output.splitlines()[0])
    return {row.get("table") or row["name"]: row for row in found}


def address(server: GatewayServer) -> str:
    return "thrift://{}:{}".format(*server.address)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A warehouse with tables of each kind; Hive and a third warehouse get them."""
    path = tmp_path_factory.mktemp("direct") / "our wh"
    with temporary_warehouse(path, engine="local") as warehouse:
        make_tables(warehouse)
        yield warehouse


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "hive", engine="local") as warehouse:
        yield warehouse


@pytest.fixture
def third(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "third", engine="local") as warehouse:
        yield warehouse


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "ours", engine="local") as warehouse:
        yield warehouse


@pytest.fixture
def server(other: Warehouse) -> Iterator[GatewayServer]:
    """What `other` is to Hive's clients."""
    with as_hive(other) as (_, started):
        yield started


@pytest.mark.slow
def test_P34_registered_tables_read_there_as_here_and_adopted_ones_again(
    ours: Warehouse, other: Warehouse, third: Warehouse
) -> None:
    """The third warehouse knows the files only by what Hive was told of them."""
    with as_hive(other) as (_, server):
        first = run(ours, "register", "--to", address(server))
        told = listed(first)
        assert first.exit_code == 1 and "not registered: s.csv" in first.output
        assert {name for name, row in told.items() if row["result"] == "registered"} == {*READABLE}
        assert "csv" in told["s.csv"]["note"]
        again = listed(run(ours, "register", "--to", address(server)))
        assert {again[name]["result"] for name in READABLE} == {"up to date"}
        refused = run(third, "adopt", "--from", address(server), "s")
        assert refused.exit_code == 1 and "only one may" in refused.output
        with Hive(Address(*server.address)) as hive:
            taken = adopting.adopt_database(third.metastore, hive, "s", registered=True)
            report = {row.name: row for row in taken}
        assert {row.result for row in report.values()} == {"adopted"}, report
        assert (report["s.aborted"].aborted, report["s.parts"].partitions) == (4, 3)
        for name in READABLE:
            assert rows(third, name) == rows(ours, name), name
        record = third.metastore.table("s.buckets")
        assert (record.bucket_count, record.properties["team"]) == (2, "x")
        assert "NO_CLEANUP" not in record.properties
        twice = listed(run(third, "adopt", "--from", address(server), "s"))
        assert {row["result"] for row in twice.values()} == {"there already"}


@pytest.mark.more
def test_P34_a_second_run_brings_write_ids_partitions_and_columns_up_to_date(
    here: Warehouse, server: GatewayServer, other: Warehouse
) -> None:
    table = here.create_table("s.grows", "id int", partitioned_by=["p int"])
    here.sql("INSERT INTO s.grows VALUES (1, 1)")
    told = run(here, "register", "--to", address(server), "s.grows")
    assert told.exit_code == 0, told.output
    here.sql("INSERT INTO s.grows VALUES (2, 2)")
    here.sql("ALTER TABLE s.grows ADD COLUMNS (v string)")
    row = listed(run(here, "register", "--to", address(server), "s.grows"))["s.grows"]
    assert (row["result"], row["partitions"], row["write_id"]) == ("registered", 2, 2)
    there = other.metastore.table("s.grows")
    assert there.columns == table.record.columns
    assert other.metastore.partitions("s.grows") == ["p=1", "p=2"]
    assert there.properties["NO_CLEANUP"] == "true"


@pytest.mark.more
def test_P34_only_decided_write_ids_are_registered(here: Warehouse, server: GatewayServer) -> None:
    table = here.create_table("s.busy", "id int")
    put(table, (1,))
    slow = here.transaction()
    with slow as txn:
        put(txn.table("s.busy"), (2,))
        put(table, (3,))
        row = listed(run(here, "register", "--to", address(server)))["s.busy"]
        assert row["write_id"] == 1 and "write id 2 is open here" in row["note"]
    row = listed(run(here, "register", "--to", address(server)))["s.busy"]
    assert row["write_id"] == 3 and not row["note"]


@pytest.mark.more
def test_P34_a_registration_that_was_killed_goes_on(
    here: Warehouse, server: GatewayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = here.create_table("s.cut", "id int, v string")
    for number in range(5):
        put(table, (number, "x"))
    abort_one(here, "s.cut")
    done: list[int] = []
    commit = Hive.commit

    def killed(self: Hive, txn: int) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(txn)
        commit(self, txn)

    monkeypatch.setattr(registering, "_BATCH", 4)
    monkeypatch.setattr(Hive, "commit", killed)
    host, port = server.address
    with Hive(Address(host, port)) as hive, pytest.raises(KeyboardInterrupt):
        list(registering.register(here.metastore, hive))
    monkeypatch.undo()
    with Hive(Address(host, port)) as hive:
        rest = [txn.id for txn in hive.call("get_open_txns_info").open_txns if txn.state == 3]
        hive.abort([txn for txn in rest if txn not in _registering(hive)])
        (row,) = registering.register(here.metastore, hive)
    assert (row.result, row.write_id, row.aborted) == ("registered", 6, 1), row.note


def _registering(hive: Hive) -> set[int]:
    """The transactions of write ids; the lock's would end by itself."""
    rows_ = hive.call("get_open_txns_info").open_txns
    return {row.id for row in rows_ if "/" in (row.agentInfo or "")}


@pytest.mark.more
def test_P34_what_differs_there_is_refused_and_made_anew_when_told_to(
    here: Warehouse, server: GatewayServer
) -> None:
    table = here.create_table("s.differs", "id int, v string")
    put(table, (1, "a"))
    assert run(here, "register", "--to", address(server)).exit_code == 0
    with connected(server.address) as client:  # an engine there wrote
        statement = Statement(client)
        statement.lock("s.differs", INSERT)
        statement.allocate("s.differs")
        statement.commit()
    told = run(here, "register", "--to", address(server))
    assert told.exit_code == 1
    assert "write ids up to 2 were given out there" in told.output and "--again" in told.output


@pytest.mark.more
def test_P34_a_name_that_is_somebody_elses_is_left_alone(
    here: Warehouse, server: GatewayServer, other: Warehouse
) -> None:
    other.create_table("s.mine", "id int")
    here.create_table("s.mine", "id int")
    for arguments in ([], ["--again"]):
        told = run(here, "register", "--to", address(server), *arguments)
        assert told.exit_code == 1 and "this warehouse did not register it" in told.output


@pytest.mark.more
def test_P34_a_directory_that_was_never_committed_is_not_shown_to_others(
    here: Warehouse, server: GatewayServer
) -> None:
    table = here.create_table("s.half", "id int")
    put(table, (1,))
    Path(table.record.location, "base_0000001_v0000003").mkdir()
    told = run(here, "register", "--to", address(server))
    assert told.exit_code == 1 and "is not committed here" in told.output


# --- adopt --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [b"\x80" * 64, b"\x0c\0\x09" * 100_000, b"\x0b\0\0\x7f\xff\xff\xff", b"\x0b\0\0\xff" * 4],
    ids=["a version", "depth", "a long text", "a text of less than nothing"],
)
def test_P34_what_is_no_answer_of_a_metastore_is_an_error_of_ours(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answers() -> None:
            accepted, _ = listening.accept()
            with accepted:
                call = accepted.recv(4096)
                head = b"\x80\x01\0\x02" + call[4:29]  # the name of the call and its number
                accepted.sendall((head if answer[0] < 0x80 else b"") + answer)

        thread = threading.Thread(target=answers)
        thread.start()
        port = listening.getsockname()[1]
        with Hive(Address("127.0.0.1", port)) as hive, pytest.raises(MetastoreUnavailable):
            hive.call("get_all_databases")
        thread.join()


def foreign(like: Any, **changes: Any) -> Any:
    """A table of another kind, made of one of ours."""
    table = copy.deepcopy(like)
    table.parameters = {**table.parameters, **changes.pop("parameters", {})}
    location = changes.pop("location", None)
    if location:
        table.sd.location = location
    for name, value in changes.items():
        setattr(table, name, value)
    return table


def test_P34_what_can_not_be_taken_is_listed_with_its_reason(
    other: Warehouse, third: Warehouse
) -> None:
    put(other.create_table("s.fine", "id int, v string"), (1, "a"))
    third.create_table("s.taken", "id int")
    with as_hive(other) as (hive, server), connected(server.address) as client:
        like = shown(client, "s.fine")
        handler = {"storage_handler": "org.apache.hadoop.hive.hbase.HBaseStorageHandler"}
        hive.extra = {
            "external": foreign(like, tableType="EXTERNAL_TABLE", parameters={"EXTERNAL": "TRUE"}),
            "flat": foreign(like, parameters={"transactional": "false"}),
            "handled": foreign(like, parameters=handler),
            "remote": foreign(like, location="hdfs://nowhere:8020/warehouse/t"),
            "gone": foreign(like, location="file:///nowhere/t"),
            "seen": foreign(like, tableType="VIRTUAL_VIEW", viewExpandedText="SELECT 1"),
            "taken": foreign(like),
        }
        told = run(third, "adopt", "--from", address(server), "s")
        report = listed(told)
        assert told.exit_code == 1 and "not taken: s.external" in told.output
        for name, reason in {
            "external": "it is external",
            "flat": "it is not transactional",
            "handled": "HBaseStorageHandler",
            "remote": "is on HDFS",
            "gone": "can't be read from this machine",
            "seen": "CREATE VIEW s.seen AS SELECT 1",
            "taken": "the name exists here already",
        }.items():
            row = report[f"s.{name}"]
            assert row["result"] == "not taken" and reason in row["note"], row
        assert report["s.seen"]["kind"] == "view"
        assert report["s.fine"]["result"] == "adopted"
        assert rows(third, "s.fine") == [{"id": 1, "v": "a"}]


@pytest.mark.more
def test_P34_partitions_that_are_elsewhere_or_unknown_keep_a_table_from_being_taken(
    other: Warehouse, third: Warehouse
) -> None:
    table = other.create_table("s.places", "id int", partitioned_by=["p int"])
    put(table, (1, 1))
    row = CALLS["get_partitions_by_names"]

    def elsewhere(hive: Gateway, database: str, name: str, names: list[str]) -> list[Any]:
        found: list[Any] = Gateway.get_partitions_by_names(hive, database, name, names)
        found[0].sd.location = "file:///elsewhere/p=1"
        return found

    with as_hive(other) as (_, server):
        with mock.patch.dict(CALLS, {"get_partitions_by_names": replace(row, answer=elsewhere)}):
            told = run(third, "adopt", "--from", address(server), "s")
        assert told.exit_code == 1 and "can't have a location of its own" in told.output
        Path(table.record.location, "p=7", "delta_0000001_0000001").mkdir(parents=True)
        told = run(third, "adopt", "--from", address(server), "s")
        assert told.exit_code == 1 and "p=7 is not registered as a partition" in told.output
        assert "s.places" not in third.tables()


@pytest.mark.more
def test_P34_a_table_in_use_is_not_taken_and_a_second_run_takes_it(
    other: Warehouse, third: Warehouse
) -> None:
    other.create_table("s.used", "id int, v string")
    with as_hive(other) as (_, server), connected(server.address) as client:
        trino_insert(client, "s.used", [(1, "a")])
        writer, write_id, where = begun(client, "s.used", INSERT)
        where.inserts(f"d{write_id}", insert_events(write_id, [(2, "b")]))
        arguments = ("adopt", "--from", address(server), "s", "--wait", "0.1")
        told = run(third, *arguments)
        assert told.exit_code == 1 and "is used at thrift://" in told.output
        writer.abort()
        assert run(third, *arguments).exit_code == 0
        assert rows(third, "s.used") == [{"id": 1, "v": "a"}]
        assert not other.metastore.call(GetLocks()), "the lock there was released"


@pytest.mark.more
def test_P34_a_compaction_that_hive_does_not_see_is_left_out(
    other: Warehouse, third: Warehouse
) -> None:
    """A Compactor that died between its rename and its commit leaves a directory that may lack
    rows; its transaction is open or aborted in Hive."""
    table = other.create_table("s.half", "id int, v string")
    put(table, (1, "a"))
    put(table, (2, "b"))
    with as_hive(other) as (_, server), connected(server.address) as client:
        compactor = Statement(client)
        where = files(client, "s.half")
        where.inserts(f"b2v{compactor.id}", [(1, P, 0, 1, "a")])
        taken = run(third, "adopt", "--from", address(server), "s")
        assert taken.exit_code == 0, taken.output
        assert f"_v{compactor.id:07d}" in listed(taken)["s.half"]["note"]
        assert [row["id"] for row in rows(third, "s.half")] == [1, 2]
        compactor.abort()


@pytest.mark.more
def test_P34_an_adoption_that_loses_its_lock_registers_nothing(
    other: Warehouse, third: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(other.create_table("s.slow", "id int"), (1,))
    with as_hive(other) as (_, server):

        def slept(self: Any) -> None:
            self._hive.abort([self._txn])  # as Hive's reaper would
            self._hive.keep_alive(self._txn)

        monkeypatch.setattr(adopting._Beat, "now", slept)
        told = run(third, "adopt", "--from", address(server), "s")
        assert told.exit_code == 1 and "TxnAborted" in told.output
        with pytest.raises(NoSuchTable):
            third.metastore.table("s.slow")


@pytest.mark.more
def test_P34_a_metastore_of_an_older_version_is_named(
    other: Warehouse, third: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.create_table("s.old", "id int")
    with as_hive(other) as (_, server):
        monkeypatch.delitem(CALLS, "get_valid_write_ids")
        told = run(third, "adopt", "--from", address(server), "s")
        assert told.exit_code == 1 and "get_valid_write_ids" in told.output


WRONG = (
    (["--from", "hive:9083", "s"], "is not the address of a Hive metastore"),
    (["--from", "thrift://127.0.0.1:1", "s"], "can't be reached"),
    (["--from", "HERE", "nothing"], "has no database nothing; it has"),
    (["--from", "HERE", "default", "nothing"], "default has no table nothing"),
    (["--from", "HERE", "default", "--user", "ann"], "needs the password in"),
    (["--from", "HERE", "default", "--tls-ca", "/none"], "--tls-ca"),
)


@pytest.mark.more
def test_an_address_or_name_that_is_wrong_is_told(other: Warehouse, third: Warehouse) -> None:
    with as_hive(other) as (_, server):
        for arguments, told in WRONG:
            given = [address(server) if one == "HERE" else one for one in arguments]
            result = run(third, "adopt", *given)
            assert result.exit_code == 1 and told in result.output, arguments


def test_the_client_says_which_call_was_refused(other: Warehouse) -> None:
    with as_hive(other) as (_, server):
        host, port = server.address
        with Hive(Address(host, port)) as hive, pytest.raises(HiveRefused, match="get_database"):
            hive.call("get_database", "nothing")


@pytest.mark.more
def test_P34_a_dropped_tables_rows_are_not_shown_to_others(
    here: Warehouse, server: GatewayServer, tmp_path: Path
) -> None:
    """Until the Cleaner removes them, the files of a dropped table stand beside those of the next
    table of the name: only our metastore can tell them apart."""
    place = str(tmp_path / "place")
    put(here.create_table("s.twice", "id int", location=place), (1,))
    here.drop_table("s.twice")
    table = here.create_table("s.twice", "id int", location=place)
    put(table, (2,))
    told = run(here, "register", "--to", address(server))
    assert told.exit_code == 1 and "is not committed here" in told.output
    cleaner.run(here.metastore)
    assert run(here, "register", "--to", address(server)).exit_code == 0


def test_P34_transactions_are_opened_one_by_one_where_several_fail(
    here: Warehouse, server: GatewayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a real metastore with Derby answers, whose driver fails at the second row of a batch."""
    asked = Hive.call

    def call(self: Hive, name: str, *arguments: Any) -> Any:
        if name == "open_txns" and arguments[0].num_txns > 1:
            raise HiveRefused("TApplicationException", "open_txns: Internal error")
        return asked(self, name, *arguments)

    monkeypatch.setattr(Hive, "call", call)
    with Hive(Address(*server.address)) as hive:
        opened = hive.open(3, "somebody")
        assert len(set(opened)) == 3 and opened == sorted(opened)
        hive.abort(opened)
        with pytest.raises(HiveRefused):
            hive.commit(10**6)


@pytest.mark.more
def test_P34_aborted_write_ids_that_a_compaction_passed_are_no_difference(
    here: Warehouse,
    server: GatewayServer,
    other: Warehouse,
    third: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once nothing of an aborted write id can be left, our metastore may forget it (P4)."""
    call = Metastore.call

    def forgetful(self: Metastore, operation: Any) -> Any:
        found = call(self, operation)
        if self is other.metastore or not isinstance(operation, GetWriteIdsUnder):
            return found
        return [ValidWriteIdList.of(one.table, one.high_watermark) for one in found]

    table = here.create_table("s.passed", "id int, v string")
    put(table, (1, "a"))
    abort_one(here, "s.passed")
    put(table, (2, "b"))
    assert run(here, "register", "--to", address(server)).exit_code == 0
    table.compact("major", wait=True)
    cleaner.run(here.metastore)
    monkeypatch.setattr(Metastore, "call", forgetful)
    told = run(here, "register", "--to", address(server))
    assert told.exit_code == 0, told.output
    with Hive(Address(*server.address)) as hive:
        list(adopting.adopt_database(third.metastore, hive, "s", registered=True))
    assert rows(third, "s.passed") == rows(here, "s.passed")
