"""SHOW, DESCRIBE and the statements of Hive that need no rows, in both engines."""

from __future__ import annotations

import pytest

from acid_platform import (
    InvalidDefinition,
    InvalidExpression,
    NeedsSpark,
    NoSuchPartition,
    NoSuchTable,
    UnknownColumn,
    UnsupportedStatement,
    Warehouse,
)
from acid_platform.metastore.operations import listings
from acid_platform.metastore.operations.listings import Shown
from acid_platform.sql import Done


@pytest.fixture(scope="module")
def warehouse(warehouse: Warehouse) -> Warehouse:
    warehouse.sql(
        "CREATE TABLE t (id int, v string) PARTITIONED BY (ds string, hr int)"
        " TBLPROPERTIES ('owner.team'='a');"
        "INSERT INTO t PARTITION (ds='a', hr=1) VALUES (1, 'x');"
        "INSERT INTO t PARTITION (ds='a', hr=2) VALUES (2, 'y');"
        "INSERT INTO t PARTITION (ds='b', hr=1) VALUES (3, 'z');"
        "CREATE TABLE plain (id int) CLUSTERED BY (id) INTO 2 BUCKETS"
        " TBLPROPERTIES ('transactional_properties'='insert_only', 'comment'='rows',"
        " 'acid.history.retention'='1d');"
        "CREATE VIEW w AS SELECT id, v FROM t; CREATE DATABASE d"
    )
    return warehouse


def shown(warehouse: Warehouse, text: str) -> list[tuple[object, ...]]:
    [(_, answer)] = warehouse.session.steps(text)
    assert isinstance(answer, Shown)
    return [tuple(row.values()) for row in answer.dicts()]


def lines(warehouse: Warehouse, text: str) -> list[object]:
    return [row[0] for row in shown(warehouse, text)]


def test_names_of_columns_views_and_partitions(warehouse: Warehouse) -> None:
    assert lines(warehouse, "SHOW COLUMNS IN t") == ["id", "v", "ds", "hr"]
    assert lines(warehouse, "SHOW COLUMNS FROM t FROM default LIKE '*d*'") == ["id", "ds"]
    assert lines(warehouse, "SHOW COLUMNS IN w") == ["id", "v"]
    assert lines(warehouse, "SHOW VIEWS") == ["w"]
    assert lines(warehouse, "SHOW VIEWS IN d") == []
    assert lines(warehouse, "SHOW VIEWS 'x*|w'") == ["w"]
    assert lines(warehouse, "SHOW PARTITIONS t PARTITION (ds='a')") == ["ds=a/hr=1", "ds=a/hr=2"]
    assert lines(warehouse, "SHOW PARTITIONS t PARTITION (hr='01')") == ["ds=a/hr=1", "ds=b/hr=1"]
    assert lines(warehouse, "SHOW PARTITIONS t PARTITION (ds='c')") == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SHOW COLUMNS IN nope", NoSuchTable, "no table default.nope"),
        ("SHOW COLUMNS IN default.t IN d", InvalidExpression, "has a database already"),
        ("SHOW PARTITIONS t PARTITION (m=1)", NoSuchPartition, "no partition column 'm'"),
        ("SHOW LOCKS t PARTITION (m=1)", NoSuchPartition, "no partition column 'm'"),
        ("SHOW COMPACTIONS STATUS 'done'", InvalidExpression, "choose one of initiated, working"),
        ("SHOW COMPACTIONS TYPE 'rebalance'", InvalidExpression, "choose one of MAJOR, MINOR"),
        ("SHOW COMPACTIONS ORDER BY cc_x", InvalidExpression, "there is no such column"),
        ("DESCRIBE t nope", UnknownColumn, "no column 'nope'; DESCRIBE default.t"),
        ("DESCRIBE t PARTITION (ds='c', hr=1)", NoSuchPartition, "no partition ds=c/hr=1"),
        ("DESCRIBE t PARTITION (ds='a')", NoSuchPartition, "needs a value for hr"),
        ("DESCRIBE DATABASE nope", InvalidDefinition, "no database nope"),
        ("ANALYZE TABLE nope COMPUTE STATISTICS", NoSuchTable, "no table default.nope"),
        ("ANALYZE TABLE w COMPUTE STATISTICS", UnsupportedStatement, "is a view"),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS x", UnknownColumn, "'x'"),
        ("ALTER TABLE t UNSET TBLPROPERTIES ('x')", InvalidDefinition, "no property 'x'"),
        ("CREATE TABLE u LIKE nope", NoSuchTable, "no table default.nope"),
        (
            "ALTER TABLE t COMPACT 'major' WITH OVERWRITE TBLPROPERTIES ('orc.compress'='zlib')",
            InvalidDefinition,
            "no compaction reads the property 'orc.compress'",
        ),
    ],
)
def test_errors(warehouse: Warehouse, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        warehouse.sql(text)


def test_properties(warehouse: Warehouse) -> None:
    assert ("owner.team", "a") in shown(warehouse, "SHOW TBLPROPERTIES t")
    assert shown(warehouse, "SHOW TBLPROPERTIES t ('owner.team')") == [("owner.team", "a")]
    missing = "Table default.t does not have property: x"
    assert shown(warehouse, "SHOW TBLPROPERTIES t ('x')") == [(missing, "")]
    assert shown(warehouse, "SHOW TBLPROPERTIES w") == []
    warehouse.sql("CREATE TABLE p (id int) TBLPROPERTIES ('a'='1', 'b'='2', 'c'='3')")
    warehouse.sql("ALTER TABLE p UNSET TBLPROPERTIES ('a', 'b')")
    warehouse.sql("ALTER TABLE p UNSET TBLPROPERTIES IF EXISTS ('a')")
    with pytest.raises(InvalidDefinition, match="no property 'a'"):
        warehouse.sql("ALTER TABLE p UNSET TBLPROPERTIES ('c', 'a')")
    assert shown(warehouse, "SHOW TBLPROPERTIES p ('c')") == [("c", "3")]
    warehouse.sql("DROP TABLE p")


def test_describe(warehouse: Warehouse) -> None:
    assert shown(warehouse, "DESCRIBE t V") == [("v", "string", "")]
    assert shown(warehouse, "DESCRIBE t hr") == [("hr", "int", "")]
    assert shown(warehouse, "DESCRIBE w id") == [("id", "int", "")]
    whole = shown(warehouse, "DESCRIBE t")
    assert shown(warehouse, "DESCRIBE t PARTITION (ds='a', hr=2)") == whole
    assert shown(warehouse, "DESCRIBE EXTENDED t") == shown(warehouse, "DESCRIBE FORMATTED t")
    table = warehouse.table("t").record
    of_partition = shown(warehouse, "DESCRIBE FORMATTED t PARTITION (ds='a', hr=2)")
    assert of_partition[: len(whole)] == whole
    assert ("Location:", f"{table.location}/ds=a/hr=2", "") in of_partition
    root = warehouse.path
    assert shown(warehouse, "DESCRIBE DATABASE EXTENDED d") == [
        ("d", "", f"{root}/d.db", "acid", "USER", "")
    ]


def test_show_table_extended(warehouse: Warehouse) -> None:
    text = lines(warehouse, "SHOW TABLE EXTENDED LIKE 't'")
    assert text[0] == "tableName:t"
    assert "columns:struct columns { int id, string v}" in text
    assert "partitionColumns:struct partition_columns { string ds, int hr}" in text
    assert "totalNumberFiles:3" in text and "totalFileSize:0" not in text
    assert lines(warehouse, "SHOW TABLE EXTENDED IN d LIKE '*'") == []


def test_functions_are_sparks(warehouse: Warehouse) -> None:
    if warehouse.engines.preference == "local":
        with pytest.raises(NeedsSpark, match="functions are listed by Spark"):
            warehouse.sql("SHOW FUNCTIONS")
        return
    assert {"date_add", "date_sub"} <= {*lines(warehouse, "SHOW FUNCTIONS LIKE 'date_*'")}
    assert lines(warehouse, "SHOW FUNCTIONS 'upper|nosuch'") == ["upper"]
    assert any("upper(" in str(line) for line in lines(warehouse, "DESCRIBE FUNCTION Upper"))
    assert any("Examples" in str(line) for line in lines(warehouse, "DESC FUNCTION EXTENDED upper"))
    with pytest.raises(InvalidExpression, match="there is no function 'nosuch'"):
        warehouse.sql("DESCRIBE FUNCTION nosuch")


def test_locks_of_a_table_a_partition_and_a_database(warehouse: Warehouse) -> None:
    partition = listings.LOCKS.index("partition")
    with warehouse.metastore.begin() as txn:
        txn.lock("t", "SHARED_WRITE", partition="ds=a/hr=1")
        for text in ("SHOW LOCKS", "SHOW LOCKS EXTENDED", "SHOW LOCKS t EXTENDED"):
            assert [row[partition] for row in shown(warehouse, text)] == ["ds=a/hr=1"]
        assert len(shown(warehouse, "SHOW LOCKS t PARTITION (ds='a')")) == 1
        assert len(shown(warehouse, "SHOW LOCKS DATABASE default")) == 1
        for text in (
            "SHOW LOCKS t PARTITION (ds='b')",
            "SHOW LOCKS plain",
            "SHOW LOCKS SCHEMA d EXTENDED",
        ):
            assert shown(warehouse, text) == []
        txn.abort()


def test_statistics_are_recorded_by_commits(warehouse: Warehouse) -> None:
    for text in (
        "ANALYZE TABLE t COMPUTE STATISTICS",
        "ANALYZE TABLE t PARTITION (ds='a', hr) COMPUTE STATISTICS FOR COLUMNS id, v",
        "ALTER TABLE t UPDATE STATISTICS SET ('numRows'='10')",
        "ALTER TABLE t PARTITION (ds='a') UPDATE STATISTICS FOR COLUMN v SET ('numDVs'='1')",
    ):
        done = warehouse.sql(text)
        assert isinstance(done, Done) and "OK, but without effect: each commit" in done.message


def test_like_takes_columns_buckets_and_format_and_no_rows(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE d.like_t LIKE t TBLPROPERTIES ('note'='x')")
    original, copy = warehouse.table("t").record, warehouse.table("d.like_t").record
    assert (copy.columns, copy.partition_columns) == (original.columns, original.partition_columns)
    assert copy.properties["note"] == "x" and "owner.team" not in copy.properties
    assert warehouse.table("d.like_t").count() == 0
    warehouse.sql("CREATE TABLE IF NOT EXISTS d.like_t LIKE plain")
    assert warehouse.table("d.like_t").record == copy
    warehouse.sql("CREATE TABLE d.like_plain LIKE plain; INSERT INTO d.like_plain VALUES (1)")
    record = warehouse.table("d.like_plain").record
    assert (record.bucket_columns, record.bucket_count) == (("id",), 2)
    assert record.properties["transactional_properties"] == "insert_only"
    assert not {"comment", "acid.history.retention"} & record.properties.keys()
    warehouse.sql("CREATE TABLE d.like_view LIKE w")
    assert warehouse.table("d.like_view").record.columns == (("id", "int"), ("v", "string"))


def test_compactions_with_properties_and_filters(warehouse: Warehouse) -> None:
    queued = warehouse.sql(
        "ALTER TABLE t PARTITION (ds='a', hr=1) COMPACT 'minor' POOL 'p' WITH OVERWRITE"
        " TBLPROPERTIES ('compactor.hive.compactor.job.queue'='q', 'compactor.mapreduce.x'='1')"
    )
    assert isinstance(queued, Done)
    first, *notes = queued.message.splitlines()
    assert first == f"Compaction enqueued with id {queued.ids[0]}"
    assert notes == [
        "without effect: compactor.mapreduce.x",
        "without effect: POOL 'p', since any Worker takes the compaction",
    ]
    warehouse.sql("INSERT INTO t PARTITION (ds='b', hr=1) VALUES (4, 'z')")
    joined = warehouse.sql("ALTER TABLE t PARTITION (ds='b') CONCATENATE")
    assert isinstance(joined, Done) and joined.ids
    assert joined.message.endswith("finished with status: ready for cleaning")
    again = warehouse.sql("ALTER TABLE t PARTITION (ds='b') CONCATENATE")
    assert str(again).startswith("nothing was queued: compaction ")

    def ids(filters: str) -> list[object]:
        return lines(warehouse, f"SHOW COMPACTIONS {filters}")

    both = [*queued.ids, *joined.ids]
    assert ids("t ORDER BY cc_id") == both
    assert ids('DATABASE default ORDER BY "CC_ID" DESC LIMIT 1') == [joined.ids[0]]
    assert ids("t PARTITION (ds='a')") == ids("TYPE 'minor'") == [*queued.ids]
    assert ids(f"COMPACT_ID = {joined.ids[0]}") == ids("t TYPE 'Major'") == [*joined.ids]
    assert ids("plain") == ids("SCHEMA d") == ids("POOL 'p'") == ids("STATUS 'failed'") == []
    assert ids("t ORDER BY cc_type, compactionid") == [joined.ids[0], queued.ids[0]]
    assert [row[0] for row in shown(warehouse, "SHOW COMPACTIONS LIMIT 0")] == []
