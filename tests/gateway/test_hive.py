"""What Hive 4.0.1 sends, replayed: sessions, locks that wait, overwrites, compactions (P34)."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from thriftpy2.thrift import TApplicationException

from acid_platform import Warehouse
from acid_platform.gateway.gateway_server import GatewayServer
from acid_platform.metastore.operations.transactions import AbortMany
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.acid_files import P
from tests.gateway.clients import (
    ACQUIRED,
    EXCL_WRITE,
    EXCLUSIVE,
    INSERT,
    NOT_ACQUIRED,
    SELECT,
    SHARED_READ,
    SHARED_WRITE,
    UPDATE,
    WAITING,
    Statement,
    begun,
    connected,
    files,
    insert_events,
    m,
    place_of,
    shown,
    trino_insert,
)

READ_ONLY = 2


def test_P34_a_session_begins(client: Any, warehouse: Warehouse) -> None:
    warehouse.create_table("db.session", "id int, v string", partitioned_by=["p int"])
    assert client.set_ugi("ann", ["staff"]) == ["ann"]
    assert client.get_all_functions().functions == []
    assert client.get_database_req(m.GetDatabaseRequest(name="DB")).name == "db"
    with pytest.raises(m.NoSuchObjectException):
        client.get_database("nowhere")
    assert "session" in client.get_tables("db", "*")
    assert client.get_config_value("metastore.txn.timeout", "x") == "300s"
    assert client.get_config_value("hive.nonsense", "given") == "given"
    table = shown(client, "db.session")
    assert [column.name for column in table.sd.cols] == ["id", "v"]
    assert [column.name for column in table.partitionKeys] == ["p"]
    assert table.parameters["transactional"] == "true" and table.tableType == "MANAGED_TABLE"
    assert [column.name for column in client.get_schema("db", "session")] == ["id", "v", "p"]
    with pytest.raises(m.NoSuchObjectException) as missing:
        client.get_table("db", "sesion")
    assert "db.sesion" in missing.value.message


def test_P34_a_client_that_does_not_know_write_ids_gets_a_hint_and_no_table(
    client: Any, warehouse: Warehouse
) -> None:
    """As Spark's Hive client asks: it would read deleted and aborted rows."""
    warehouse.create_table("db.hidden", "id int, v string")
    for ask in (
        lambda: client.get_table("db", "hidden"),
        lambda: client.get_table_req(m.GetTableRequest(dbName="db", tblName="hidden")),
    ):
        with pytest.raises(m.MetaException) as refused:
            ask()
        assert "deleted or never committed" in refused.value.message
    assert "hidden" in client.get_all_tables("db")


def test_P34_hive_4_2_lists_tables_by_a_pattern_of_their_names(
    client: Any, warehouse: Warehouse
) -> None:
    for name in ("liked.some_a", "liked.some_b", "liked.other"):
        warehouse.create_table(name, "id int")

    def named(pattern: str, limit: int = -1) -> list[str]:
        text = f'hive_filter_field_tableName__ like "{pattern}"'
        found: list[str] = client.get_table_names_by_filter("@hive#liked", text, limit)
        return found

    assert named("(?i).*") == ["other", "some_a", "some_b"]
    assert named("(?i)SOME.*") == ["some_a", "some_b"] == named("some_.")
    assert named("(?i)some.*", 1) == ["some_a"] and named("some") == []
    with pytest.raises(m.InvalidOperationException, match="be chosen by the filter"):
        named("(o+)+")


def test_P34_databases_are_named_with_their_catalog(client: Any, warehouse: Warehouse) -> None:
    """As Hive's client names them in most calls, TRUNCATE among them."""
    table = warehouse.create_table("db.named", "id int, v string")
    assert "named" in client.get_tables("@hive#db", "*")
    assert client.get_all_tables("@hive#db") == client.get_all_tables("db")
    assert client.get_databases("@hive#") == client.get_all_databases()
    assert client.get_databases("@hive#d*") == ["db", "default"]
    with pytest.raises(m.UnknownTableException, match="no catalog spark"):
        client.get_fields("@spark#db", "named")
    trino_insert(client, table.name, [(1, "a")])
    statement = Statement(client)
    statement.lock(table.name, UPDATE, EXCL_WRITE)
    request = m.TruncateTableRequest(
        dbName="@hive#db", tableName="named", writeId=statement.allocate(table.name)
    )
    client.truncate_table_req(request)
    statement.commit()
    assert table.count() == 0


def test_P34_a_client_says_that_it_goes_and_reads_no_answer(server: GatewayServer) -> None:
    """`shutdown` is a oneway call: an answer to it would be taken for that of the next call."""
    goes = b"\x80\x01\x00\x04" + b"\x00\x00\x00\x08shutdown" + b"\x00\x00\x00\x07\x00"
    asks = b"\x80\x01\x00\x01" + b"\x00\x00\x00\x0bgetMetaConf"
    asks += b"\x00\x00\x00\x08" + b"\x0b\x00\x01\x00\x00\x00\x01x" + b"\x00"
    with socket.create_connection(server.address, 10) as opened:
        opened.sendall(goes + asks)
        assert opened.recv(19, socket.MSG_WAITALL)[8:] == b"getMetaConf"


def test_P34_the_only_catalog_is_shown(client: Any) -> None:
    assert client.get_catalogs().names == ["hive"]
    shown = client.get_catalog(m.GetCatalogRequest(name="hive")).catalog
    assert shown.name == "hive" and shown.locationUri.startswith("file:///")
    with pytest.raises(m.NoSuchObjectException, match="the only one is hive"):
        client.get_catalog(m.GetCatalogRequest(name="spark"))


def test_P34_every_text_may_be_the_value_of_a_partition(client: Any) -> None:
    assert client.partition_name_has_valid_characters(["a b/c=1", "Zürich"], True)


def test_P34_views_are_shown_with_their_query(client: Any, warehouse: Warehouse) -> None:
    warehouse.create_table("db.below", "id int")
    warehouse.sql("CREATE VIEW db.above AS SELECT id FROM db.below WHERE id > 3")
    view = client.get_table("db", "above")
    assert view.tableType == "VIRTUAL_VIEW" and "below" in view.viewExpandedText
    warehouse.sql("CREATE VIEW db.all (k) AS SELECT * FROM db.below")
    warehouse.sql("ALTER TABLE db.below ADD COLUMNS (n int)")
    view = client.get_table("db", "all")
    assert [column.name for column in view.sd.cols] == ["k"]
    assert "(SELECT `id` FROM `db`.`below`)" in view.viewExpandedText, "* means what it meant"
    warehouse.sql("DROP VIEW db.all")
    assert client.get_tables_by_type("db", "*", "VIRTUAL_VIEW") == ["above"]
    kinds = {one.tableName: one.tableType for one in client.get_table_meta("db", "*", None)}
    assert kinds["above"] == "VIRTUAL_VIEW" and kinds["below"] == "MANAGED_TABLE"


def test_P34_a_lock_waits_and_is_granted_later(
    client: Any, server: GatewayServer, warehouse: Warehouse
) -> None:
    warehouse.create_table("db.waited", "id int, v string")
    with connected(server.address) as other:
        holder, waiter = Statement(client), Statement(other)
        assert holder.lock("db.waited", SELECT, EXCLUSIVE).state == ACQUIRED
        asked = waiter.lock("db.waited", INSERT, SHARED_WRITE)
        assert asked.state == WAITING
        assert waiter.check(asked.lockid).state == WAITING
        held = client.show_locks(m.ShowLocksRequest(dbname="db", tablename="waited")).locks
        assert [(one.txnid, one.state) for one in held] == [
            (holder.id, ACQUIRED),
            (waiter.id, WAITING),
        ]
        holder.commit()
        assert waiter.check(asked.lockid).state == ACQUIRED
        assert waiter.allocate("db.waited") == 1
        waiter.commit()


def test_P34_a_statement_that_waited_for_a_writer_is_told_to_begin_again(
    client: Any, server: GatewayServer, warehouse: Warehouse
) -> None:
    """Hive asks after it got an exclusive lock; an id above its own makes it open a transaction."""
    table = warehouse.create_table("db.again", "id int, v string")
    trino_insert(client, table.name, [(1, "a")])
    with connected(server.address) as other:
        first, second = Statement(client), Statement(other)
        assert first.lock(table.name, UPDATE, EXCL_WRITE).state == ACQUIRED
        assert client.get_latest_txnid_in_conflict(first.id) == 0
        asked = second.lock(table.name, UPDATE, EXCL_WRITE)
        assert asked.state == WAITING
        write_id = first.allocate(table.name)
        files(client, table.name).inserts(f"b{write_id}", insert_events(write_id, [(2, "b")]))
        first.commit()
        assert second.check(asked.lockid).state == ACQUIRED
        assert other.get_latest_txnid_in_conflict(second.id) > second.id
        second.abort()
        third = Statement(other)
        assert third.lock(table.name, UPDATE, EXCL_WRITE).state == ACQUIRED
        assert other.get_latest_txnid_in_conflict(third.id) == 0
        third.abort()
    with pytest.raises(m.MetaException, match=r"no transaction|not open"):
        client.get_latest_txnid_in_conflict(10**6)


def test_P34_a_lock_waits_for_our_own_writer_too(client: Any, warehouse: Warehouse) -> None:
    warehouse.create_table("db.ours", "id int, v string")
    lock = LockRequest("db.ours", LockType.EXCLUSIVE, RowOperation.SELECT)
    with warehouse.metastore.begin(locks=[lock]) as ours:
        waiter = Statement(client)
        asked = waiter.lock("db.ours", SELECT)
        assert asked.state == WAITING
        ours.commit()
        assert waiter.check(asked.lockid).state == ACQUIRED
        waiter.commit()


def test_P34_a_waiting_request_is_withdrawn_by_unlock(client: Any, warehouse: Warehouse) -> None:
    warehouse.create_table("db.withdrawn", "id int, v string")
    holder, waiter = Statement(client), Statement(client)
    held = holder.lock("db.withdrawn", SELECT, EXCLUSIVE)
    asked = waiter.lock("db.withdrawn", SELECT)
    client.unlock(m.UnlockRequest(lockid=asked.lockid))
    with pytest.raises(m.NoSuchLockException):
        waiter.check(asked.lockid)
    with pytest.raises(m.TxnOpenException):
        client.unlock(m.UnlockRequest(lockid=held.lockid))
    holder.commit()
    waiter.commit()


def test_P34_a_lock_without_a_transaction_lives_by_its_heartbeats(
    client: Any, warehouse: Warehouse
) -> None:
    warehouse.create_table("db.alone", "id int, v string")
    component = m.LockComponent(
        type=SHARED_READ, level=2, dbname="db", tablename="alone", operationType=SELECT
    )
    given = client.lock(m.LockRequest(component=[component], user="ann", hostname="h"))
    assert given.state == ACQUIRED
    client.heartbeat(m.HeartbeatRequest(lockid=given.lockid))
    client.unlock(m.UnlockRequest(lockid=given.lockid))
    with pytest.raises(m.NoSuchLockException):
        client.heartbeat(m.HeartbeatRequest(lockid=given.lockid))


def test_P34_a_read_that_may_not_wait_is_not_acquired(client: Any, warehouse: Warehouse) -> None:
    warehouse.create_table("db.zero", "id int, v string")
    holder, reader = Statement(client), Statement(client, kind=READ_ONLY)
    holder.lock("db.zero", SELECT, EXCLUSIVE)
    answer = reader.lock("db.zero", SELECT, zeroWaitReadEnabled=True)
    assert answer.state == NOT_ACQUIRED and "does not queue" in answer.errorMessage
    holder.abort()
    reader.abort()


def test_P34_create_table_locks_a_table_that_is_not_there_yet(client: Any) -> None:
    statement = Statement(client)
    assert statement.lock("db.not_yet", 6, EXCLUSIVE).state == ACQUIRED
    with pytest.raises(TApplicationException, match=r"no table db\.not_yet"):
        statement.lock("db.not_yet", INSERT, SHARED_WRITE)
    statement.abort()


def test_P34_the_write_ids_of_a_statement_without_tables(client: Any) -> None:
    request = m.GetValidWriteIdsRequest(fullTableNames=["_dummy_database._dummy_table"])
    (listed,) = client.get_valid_write_ids(request).tblValidWriteIds
    assert (listed.writeIdHighWaterMark, listed.invalidWriteIds) == (0, [])


def test_P34_nothing_is_seen_of_a_table_that_is_not_there(
    client: Any, warehouse: Warehouse
) -> None:
    """Hive asks so before CREATE TABLE IF NOT EXISTS; a name in another form is an error."""
    table = warehouse.create_table("db.seen_beside", "id int, v string")
    trino_insert(client, table.name, [(1, "a")])
    request = m.GetValidWriteIdsRequest(fullTableNames=["db.not_there", "DB.Seen_Beside"])
    missing, there = client.get_valid_write_ids(request).tblValidWriteIds
    assert (missing.fullTableName, missing.writeIdHighWaterMark) == ("db.not_there", 0)
    assert (there.fullTableName, there.writeIdHighWaterMark) == ("DB.Seen_Beside", 1)
    for odd in ("hive.db.seen_beside", "@hive#db.seen_beside", "`db`.`seen_beside`", "seen_beside"):
        with pytest.raises(m.MetaException):
            client.get_valid_write_ids(m.GetValidWriteIdsRequest(fullTableNames=[odd]))


def test_P34_an_overwrite_hides_what_it_saw_and_conflicts_with_what_it_did_not(
    client: Any, server: GatewayServer, warehouse: Warehouse
) -> None:
    table = warehouse.create_table("db.overwritten", "id int, v string")
    trino_insert(client, table.name, [(1, "a"), (2, "b")])
    with connected(server.address) as other:
        first, second = Statement(client), Statement(other)
        assert first.lock(table.name, UPDATE, EXCL_WRITE).state == ACQUIRED
        write_id = first.allocate(table.name)
        files(client, table.name).inserts(f"b{write_id}", insert_events(write_id, [(9, "z")]))
        first.commit()
        assert table.to_arrow().column("id").to_pylist() == [9]
        # An insert that was begun before has a lower write id: the base would hide its rows.
        assert second.lock(table.name, INSERT, SHARED_WRITE).state == ACQUIRED
        own = second.allocate(table.name)
        files(client, table.name).inserts(f"d{own}", insert_events(own, [(3, "c")]))
        second.commit()
    assert sorted(table.to_arrow().column("id").to_pylist()) == [3, 9]
    row = warehouse.metastore.history(table.name)[1]
    assert row["overwrite"] and row["directory"] == f"base_{write_id:07d}"


def test_P34_the_base_of_an_overwrite_that_was_refused_is_gone(
    client: Any, server: GatewayServer, warehouse: Warehouse
) -> None:
    """Trino can't read a table that has an aborted base and no other."""
    table = warehouse.create_table("db.refused_base", "id int, v string")
    with connected(server.address) as other:
        first = Statement(client)
        first.lock(table.name, INSERT, SHARED_READ)
        second, write_id, _ = begun(other, table.name, UPDATE, SHARED_WRITE)
        files(client, table.name).inserts(f"b{write_id}", insert_events(write_id, [(9, "z")]))
        own = first.allocate(table.name)
        files(client, table.name).inserts(f"d{own}", insert_events(own, [(1, "a")]))
        first.commit()
        with pytest.raises(m.TxnAbortedException):
            second.commit()
    names = {one.name for one in place_of(client, table.name).iterdir()}
    assert f"base_{write_id:07d}" not in names
    assert table.to_arrow().column("id").to_pylist() == [1]


def test_P34_an_overwrite_without_rows_empties_the_table(client: Any, warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.emptied", "id int, v string")
    trino_insert(client, table.name, [(1, "a")])
    statement, write_id, where = begun(client, table.name, UPDATE, EXCL_WRITE)
    where.marker(f"b{write_id}")
    statement.commit()
    assert table.count() == 0 and table.to_arrow().num_rows == 0
    # Trino finds directories by their files: it would still show the row (P32).
    base = place_of(client, table.name) / f"base_{write_id:07d}"
    assert (base / "bucket_00000").is_file()


@pytest.mark.parametrize("properties", [{}, {"transactional_properties": "insert_only"}])
def test_P32_a_table_that_was_truncated_through_the_gateway_has_a_file(
    properties: dict[str, str], client: Any, warehouse: Warehouse
) -> None:
    name = f"db.truncated_{len(properties)}"
    table = warehouse.create_table(name, "id int, v string", properties=properties)
    warehouse.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    statement, write_id, _ = begun(client, name, UPDATE, EXCL_WRITE)
    short = name.removeprefix("db.")
    client.truncate_table_req(
        m.TruncateTableRequest(dbName="db", tableName=short, writeId=write_id)
    )
    statement.commit()
    base = place_of(client, name) / f"base_{write_id:07d}"
    (file,) = (one.name for one in base.iterdir() if not one.name.startswith(("_", ".")))
    assert file == ("000000_0" if properties else "bucket_00000")
    assert table.count() == 0
    (row,) = (one for one in warehouse.metastore.history(name) if one["overwrite"])
    assert (row["rows"], row["files"]) == (0, 1)


def test_P34_the_insert_of_an_insert_only_table_is_counted_from_its_footers(
    client: Any, warehouse: Warehouse
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = warehouse.create_table(
        "db.plain",
        "id int, v string",
        properties={"transactional_properties": "insert_only", "acid.format": "parquet"},
    )
    statement, write_id, where = begun(client, table.name, INSERT, SHARED_WRITE)
    directory = where.file(f"d{write_id}").parent
    directory.mkdir(parents=True)
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    parquet.write_table(rows, directory / "000000_0")
    statement.commit()
    assert table.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
    assert warehouse.metastore.history(table.name)[0]["rows"] == 2


def test_P34_compactions_go_to_our_queue(client: Any, warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.compacted", "id int, v string")
    for number in range(3):
        trino_insert(client, table.name, [(number, "a")])
    request = m.CompactionRequest(dbname="db", tablename="compacted", type=2)
    first = client.compact2(request)
    assert (first.accepted, first.state) == (True, "initiated")
    again = client.compact2(request)
    assert (again.accepted, again.id) == (False, first.id)
    listed = client.show_compact(m.ShowCompactRequest()).compacts
    (row,) = [one for one in listed if one.id == first.id]
    assert (row.tablename, row.type, row.state) == ("compacted", 2, "initiated")


def test_P34_a_transaction_that_timed_out_can_not_commit(client: Any, warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.late", "id int, v string")
    statement, write_id, where = begun(client, table.name, INSERT)
    where.inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
    warehouse.metastore.call(AbortMany((statement.id,), "no heartbeat"))
    assert set(statement.heartbeat().aborted) == {statement.id}
    with pytest.raises(m.TxnAbortedException):
        client.heartbeat(m.HeartbeatRequest(txnid=statement.id))
    with pytest.raises(m.TxnAbortedException):
        statement.commit()
    assert table.count() == 0


def test_P43_deletes_get_the_names_that_every_engine_reads(
    client: Any, warehouse: Warehouse
) -> None:
    """Hive 4 calls them bucket_N_M. Trino ignores such files, and would show the deleted rows."""
    table = warehouse.create_table("db.called", "id int, v string")
    trino_insert(client, table.name, [(1, "a"), (2, "b"), (3, "c")])
    statement, write_id, where = begun(client, table.name, UPDATE, SHARED_WRITE)
    deleted, inserted = f"D{write_id}", f"d{write_id}.1"
    where.deletes(f"{deleted}/bucket_00000_0", [(1, P, 0)], write_id)
    where.inserts(f"{inserted}/bucket_00000_0", insert_events(write_id, [(9, "z")]))
    statement.commit()
    assert [one.name for one in sorted(where.file(deleted).parent.iterdir())] == ["bucket_00000"]
    assert [one.name for one in where.file(inserted).parent.iterdir()] == ["bucket_00000_0"]
    assert sorted(table.to_arrow().column("id").to_pylist()) == [2, 3, 9]


def test_P43_two_attempts_of_one_bucket_are_refused(client: Any, warehouse: Warehouse) -> None:
    """One of them is not what its writer meant: neither may take the place of the other."""
    table = warehouse.create_table("db.called_twice", "id int, v string")
    trino_insert(client, table.name, [(1, "a"), (2, "b"), (3, "c")])
    statement, write_id, where = begun(client, table.name, UPDATE, SHARED_WRITE)
    for number, row in enumerate((0, 2)):
        where.deletes(f"D{write_id}/bucket_00000_{number}", [(1, P, row)], write_id)
    with pytest.raises(m.TxnAbortedException, match="two attempts of one bucket"):
        statement.commit()
    present = sorted(one.name for one in where.file(f"D{write_id}").parent.iterdir())
    assert present == ["bucket_00000_0", "bucket_00000_1"]
    assert table.count() == 3


def test_P34_a_directory_with_a_foreign_partition_spelling_is_refused(
    client: Any, warehouse: Warehouse
) -> None:
    table = warehouse.create_table("db.spelled", "id int, v string", partitioned_by=["p int"])
    statement, write_id, where = begun(client, table.name, INSERT, dynamic=True)
    where.inserts(f"P=1/d{write_id}", insert_events(write_id, [(1, "a")]))
    with pytest.raises(m.TxnAbortedException) as refused:
        statement.commit()
    assert "P=1" in refused.value.message
