"""What Trino 476 sends, replayed: its statements work on our tables and transactions (P34)."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from acid_platform import Table, Warehouse
from acid_platform.gateway.gateway_server import GatewayServer
from acid_platform.metastore.operations.compaction import GetCleanings
from acid_platform.metastore.operations.tables import GetRecorded
from acid_platform.metastore.operations.transactions import GetTxnOutcome
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.acid_files import P
from tests.gateway.clients import (
    ACQUIRED,
    DELETE,
    INSERT,
    SELECT,
    UPDATE,
    Statement,
    begun,
    connected,
    files,
    insert_events,
    m,
    new_partition,
    shown,
    trino_insert,
)
from tests.gateway.conftest import serving

_numbers = iter(range(1, 1000))


@pytest.fixture
def table(warehouse: Warehouse) -> Iterator[Table]:
    """A new table; fsck finds no error in it afterwards."""
    made = warehouse.create_table(f"db.t{next(_numbers)}", "id int, v string")
    yield made
    found = examine(warehouse.metastore, [made.name])
    told = [str(finding) for finding in found.findings]
    assert [text for text in told if text.startswith("error")] == []


def rows(table: Table) -> list[tuple[Any, ...]]:
    read = table.to_arrow()
    return sorted(zip(*(column.to_pylist() for column in read.columns), strict=True))


def update(
    client: Any, table: str, row: tuple[int, int], new: tuple[int, str], op: int = UPDATE
) -> Statement:
    """Trino's UPDATE of a row (write id, row id), up to its commit."""
    statement = Statement(client)
    assert statement.lock(table, op).state == ACQUIRED
    assert statement.sees(table).is_valid(row[0])
    write_id = statement.allocate(table)
    where = files(client, table)
    where.deletes(f"D{write_id}", [(row[0], P, row[1])], write_id)
    if op == UPDATE:
        where.inserts(f"d{write_id}", insert_events(write_id, [new]))
    return statement


def test_P34_inserts_updates_and_deletes_are_committed_like_ours(
    client: Any, warehouse: Warehouse, table: Table
) -> None:
    assert trino_insert(client, table.name, [(1, "a"), (2, "b"), (3, "c")]) == 1
    update(client, table.name, (1, 1), (2, "B")).commit()
    update(client, table.name, (1, 2), (0, ""), DELETE).commit()
    assert rows(table) == [(1, "a"), (2, "B")]
    assert table.count() == 2
    history = [
        (row["write_id"], row["operation"], row["directory"][:6], row["rows"], row["user"])
        for row in warehouse.metastore.history(table.name)
    ]
    assert history == [
        (1, "insert", "delta_", 3, "ann"),
        (2, "update", "delta_", 1, "ann"),
        (2, "update", "delete", 1, "ann"),
        (3, "delete", "delete", 1, "ann"),
    ]


def test_P34_the_history_names_the_engine(client: Any, warehouse: Warehouse, table: Table) -> None:
    statement = Statement(client, user="ben", agent="trino 20261123_1")
    statement.lock(table.name, INSERT)
    write_id = statement.allocate(table.name)
    files(client, table.name).inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
    statement.commit()
    (row,) = warehouse.metastore.history(table.name)
    assert (row["user"], row["engine"]) == ("ben", "trino 20261123_1")


def test_P34_a_commit_records_each_file_with_its_ranges(
    client: Any, warehouse: Warehouse, table: Table
) -> None:
    trino_insert(client, table.name, [(5, "e"), (9, "i")])
    (((known,),)) = warehouse.metastore.call(GetRecorded(table.name, (None,)))
    assert known.directory.rows == 2 and known.directory.files == 1
    assert '"id":["i",5,9,0,1]' in str(known.contents)


def test_P34_the_second_of_two_updates_of_a_row_conflicts(
    client: Any, server: GatewayServer, warehouse: Warehouse, table: Table
) -> None:
    trino_insert(client, table.name, [(1, "a")])
    with connected(server.address) as other:
        first = update(client, table.name, (1, 0), (1, "first"))
        second = update(other, table.name, (1, 0), (1, "second"))
        second.commit()
        with pytest.raises(m.TxnAbortedException) as refused:
            first.commit()
        assert "overlaps the update" in refused.value.message
    assert rows(table) == [(1, "second")]


def test_P34_an_update_conflicts_with_one_of_ours(
    client: Any, warehouse: Warehouse, table: Table
) -> None:
    warehouse.sql(f"INSERT INTO {table.name} VALUES (1, 'a')")
    theirs = update(client, table.name, (1, 0), (1, "theirs"))
    warehouse.sql(f"UPDATE {table.name} SET v = 'ours' WHERE id = 1")
    with pytest.raises(m.TxnAbortedException):
        theirs.commit()
    assert rows(table) == [(1, "ours")]


def test_P34_an_insert_does_not_conflict_with_an_update(
    client: Any, server: GatewayServer, table: Table
) -> None:
    trino_insert(client, table.name, [(1, "a")])
    changing = update(client, table.name, (1, 0), (1, "b"))
    with connected(server.address) as other:
        trino_insert(other, table.name, [(2, "c")])
    changing.commit()
    assert rows(table) == [(1, "b"), (2, "c")]


def test_P34_what_is_not_committed_is_invisible_and_stays_so(
    client: Any, warehouse: Warehouse, table: Table
) -> None:
    trino_insert(client, table.name, [(1, "a")])
    aborted = update(client, table.name, (1, 0), (1, "b"))
    assert rows(table) == [(1, "a")]
    aborted.abort()
    with pytest.raises(m.TxnAbortedException):
        aborted.commit()
    trino_insert(client, table.name, [(2, "c")])
    assert rows(table) == [(1, "a"), (2, "c")]
    reader = Statement(client)
    reader.lock(table.name, SELECT)
    assert str(reader.sees(table.name)).endswith(":3:9223372036854775807::2")
    reader.commit()


def test_P34_a_repeated_commit_is_no_error(client: Any, table: Table) -> None:
    statement, write_id, where = begun(client, table.name, INSERT)
    where.inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
    statement.commit()
    statement.commit()
    assert rows(table) == [(1, "a")]


def test_P34_files_without_a_lock_of_a_write_refuse_the_commit(client: Any, table: Table) -> None:
    """Otherwise the commit would succeed, and the rows never be seen."""
    statement, write_id, where = begun(client, table.name, SELECT)
    where.inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
    with pytest.raises(m.TxnAbortedException) as refused:
        statement.commit()
    assert "without a lock" in refused.value.message
    assert rows(table) == []


@pytest.mark.parametrize("damage", ["plain", "cut", "ids", "current"])
def test_P34_files_that_readers_would_refuse_refuse_the_commit(
    client: Any, warehouse: Warehouse, damage: str
) -> None:
    table = warehouse.create_table(f"db.damaged_{damage}", "id int, v string")
    statement, write_id, where = begun(client, table.name, INSERT)
    if damage == "plain":
        where.raw(f"d{write_id}", [(1, "a")])
    elif damage == "ids":
        where.inserts(f"d{write_id}", insert_events(write_id + 7, [(1, "a")]))
    elif damage == "current":
        where.inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]), current=write_id + 1)
    else:
        where.inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
        file = where.file(f"d{write_id}")
        file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(m.TxnAbortedException) as refused:
        statement.commit()
    assert "bucket_00000" in refused.value.message
    assert rows(table) == []


def test_P34_partitions_of_a_dynamic_insert_are_found(client: Any, warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.parts", "id int, v string", partitioned_by=["city string"])
    trino_insert(client, table.name, [(1, "a")], "city=Z%3Arich")
    trino_insert(client, table.name, [(2, "b")], "city=a b")
    assert rows(table) == [(1, "a", "Z:rich"), (2, "b", "a b")]
    assert client.get_partition_names_ps("db", "parts", ["a b"], -1) == ["city=a b"]
    (shown,) = client.get_partitions_by_names("db", "parts", ["city=Z%3Arich", "city=no"])
    assert shown.values == ["Z:rich"] and shown.sd.location.endswith("/parts/city=Z%3Arich")
    with pytest.raises(m.AlreadyExistsException):
        client.add_partitions([new_partition(client, table.name, "city=a b")])
    # An update of a whole partitioned table: its partitions follow from the directories.
    statement, write_id, where = begun(client, table.name, UPDATE, dynamic=True)
    where.deletes(f"city=a b/D{write_id}", [(2, P, 0)], write_id)
    statement.dynamic(table.name, write_id, ["city=a b"], DELETE)
    statement.commit()
    assert rows(table) == [(1, "a", "Z:rich")]
    last = warehouse.metastore.history(table.name)[-1]
    assert (last["partition"], last["operation"]) == ("city=a b", "delete")


def test_P34_updates_of_two_partitions_do_not_conflict(client: Any, warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.apart", "id int, v string", partitioned_by=["p int"])
    for number in (1, 2):
        trino_insert(client, table.name, [(number, "a")], f"p={number}")
    both = [Statement(client), Statement(client)]
    for number, statement in enumerate(both, 1):
        assert statement.lock(table.name, UPDATE, dynamic=True).state == ACQUIRED
        write_id = statement.allocate(table.name)
        where = files(client, table.name)
        where.deletes(f"p={number}/D{write_id}", [(number, P, 0)], write_id)
        where.inserts(f"p={number}/d{write_id}", insert_events(write_id, [(number, "b")]))
    for statement in both:
        statement.commit()
    assert rows(table) == [(1, "b", 1), (2, "b", 2)]


def test_P34_the_cleaner_waits_for_a_foreign_reader_and_names_it(
    client: Any, warehouse: Warehouse, table: Table
) -> None:
    trino_insert(client, table.name, [(1, "a")])
    reader = Statement(client, user="dashboard", agent="20261123_120000_00007_xyzab")
    reader.lock(table.name, SELECT)
    seen = reader.sees(table.name)
    update(client, table.name, (1, 0), (1, "b")).commit()
    table.compact("major")
    cleaner.run(warehouse.metastore)
    (shown,) = [row for row in warehouse.metastore.transactions() if row["txnid"] == reader.id]
    assert (shown["user"], shown["host"]) == ("dashboard", "worker-7")
    assert shown["agent"] == "20261123_120000_00007_xyzab" and shown["tables"] == [table.name]
    old = files(client, table.name).file("d1")
    assert seen.is_valid(1) and not seen.is_valid(2) and old.exists()
    (blocked,) = warehouse.metastore.call(GetCleanings()).blocked
    assert blocked.holders[0].txn == reader.id
    reader.heartbeat()
    reader.commit()
    cleaner.run(warehouse.metastore)
    assert not old.exists() and rows(table) == [(1, "b")]


def test_P34_a_new_gateway_ends_what_the_old_one_began(warehouse: Warehouse, table: Table) -> None:
    from tests.gateway.conftest import serving

    with serving(warehouse) as first, connected(first.address) as client:
        statement, write_id, where = begun(client, table.name, INSERT)
        where.inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
    with serving(warehouse) as second, connected(second.address) as client:
        statement.client = client
        assert not statement.heartbeat().aborted
        statement.commit()
    assert rows(table) == [(1, "a")]


@pytest.mark.parametrize("stored", ["text", "json"])
def test_P34_compressed_text_refuses_the_commit(
    client: Any, warehouse: Warehouse, stored: str
) -> None:
    """Trino compresses text unless told otherwise, and our readers would take it for text."""
    table = warehouse.create_table(
        f"db.compressed_{stored}",
        "id int, v string",
        properties={"transactional_properties": "insert_only", "acid.format": stored},
    )

    def insert(content: bytes) -> Statement:
        statement, write_id, where = begun(client, table.name, INSERT)
        directory = where.file(f"d{write_id}").parent
        directory.mkdir(parents=True)
        (directory / "000000_0").write_bytes(content)
        return statement

    line = b'{"id": 1, "v": "a"}\n' if stored == "json" else b"1\x01a\n"
    with pytest.raises(m.TxnAbortedException) as refused:
        insert(gzip.compress(line)).commit()
    assert "gzip" in refused.value.message and "compression_codec" in refused.value.message
    insert(line).commit()
    assert len(warehouse.metastore.history(table.name)) == 1


def test_P34_trino_is_told_that_tables_are_external(client: Any, table: Table) -> None:
    """Of a managed insert-only table, `DELETE FROM t` of Trino 476 deletes the files itself."""
    database, name = table.name.split(".")
    able = m.ClientCapabilities(values=[2])
    request = m.GetTableRequest(dbName=database, tblName=name, capabilities=able)
    assert client.get_table_req(request).table.tableType == "EXTERNAL_TABLE"
    request.catName = "hive"
    assert client.get_table_req(request).table.tableType == "MANAGED_TABLE"


@pytest.mark.more
@pytest.mark.parametrize("again", [False, True], ids=["one gateway", "another gateway commits"])
@pytest.mark.parametrize("op", [UPDATE, DELETE])
def test_P47_the_commit_of_a_statement_that_failed_half_way_is_refused(
    client: Any, warehouse: Warehouse, table: Table, op: int, again: bool
) -> None:
    """Trino commits in its clean-up also after a failure, if its rollback comes later."""
    trino_insert(client, table.name, [(1, "a"), (2, "b")])
    failed = update(client, table.name, (1, 1), (2, "B"), op)
    if again:
        with serving(warehouse) as other, connected(other.address) as its:
            failed.client = its
            with pytest.raises(m.TxnAbortedException, match="failed before all its files"):
                failed.commit(finished=False)
    else:
        with pytest.raises(m.TxnAbortedException, match="failed before all its files"):
            failed.commit(finished=False)
    assert warehouse.metastore.call(GetTxnOutcome(failed.id)).state == "a"
    assert rows(table) == [(1, "a"), (2, "b")]
    update(client, table.name, (1, 1), (2, "B")).commit()
    assert rows(table) == [(1, "a"), (2, "B")]


def test_P47_an_insert_into_partitions_is_finished_when_it_names_them(
    client: Any, warehouse: Warehouse
) -> None:
    warehouse.create_table("db.finished", "id int, v string", partitioned_by=["p int"])
    trino_insert(client, "db.finished", [(1, "a")], "p=1")
    failed, write_id, where = begun(client, "db.finished", INSERT, dynamic=True)
    where.inserts(f"p=1/d{write_id}", insert_events(write_id, [(2, "b")]))
    with pytest.raises(m.TxnAbortedException, match="failed before all its files"):
        failed.commit(finished=False)
    assert warehouse.table("db.finished").count() == 1


def test_P47_a_statement_without_files_needs_no_finish(
    client: Any, warehouse: Warehouse, table: Table
) -> None:
    statement = Statement(client)
    statement.lock(table.name, DELETE)
    statement.allocate(table.name)
    statement.commit(finished=False)
    assert warehouse.metastore.call(GetTxnOutcome(statement.id)).state == "c"


def test_P47_an_engine_that_aborts_what_failed_need_not_say_that_it_is_done(
    client: Any, warehouse: Warehouse, table: Table
) -> None:
    """Hive without statistics says nothing."""
    statement = Statement(client)
    statement.query = "root_20261124031025_dd2e18a0-c0bb-4c1a-8b09-608ea255a4e2"
    statement.lock(table.name, INSERT)
    write_id = statement.allocate(table.name)
    where = files(client, table.name)
    where.inserts(f"d{write_id}", insert_events(write_id, [(1, "a")]))
    statement.commit(finished=False)
    assert rows(table) == [(1, "a")]


def test_P47_a_table_may_be_renamed_under_a_write_id(client: Any, warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.before", "id int, v string")
    statement = Statement(client)
    write_id = statement.allocate(table.name)
    new = shown(client, table.name)
    new.tableName = "after"
    client.alter_table_req(
        m.AlterTableRequest(dbName="db", tableName="before", table=new, writeId=write_id)
    )
    assert "db.after" in warehouse.tables()
    statement.abort()
