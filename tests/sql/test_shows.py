"""SHOW, DESCRIBE and the statements of Hive that need no rows, in both engines."""

from __future__ import annotations

import pytest

from acid_platform import (
    InvalidExpression,
    NeedsSpark,
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


def test_describe(warehouse: Warehouse) -> None:
    missing = "Table default.t does not have property: x"
    assert shown(warehouse, "SHOW TBLPROPERTIES t ('x')") == [(missing, "")]
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
