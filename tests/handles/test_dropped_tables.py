"""Dropped tables come back as they were (P83): with the files, as users do it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from acid_platform import Warehouse
from acid_platform.cli.main import main
from acid_platform.errors import NoSuchTable, TableExists
from acid_platform.metastore import operations as ops
from acid_platform.services import cleaner, worker
from tests.conftest import a_warehouse

made = a_warehouse("local", scope="function")


@pytest.fixture
def wh(made: Warehouse) -> Warehouse:
    made.sql("CREATE DATABASE db")
    return made


def rows(wh: Warehouse, name: str, tail: str = "") -> list[tuple[object, ...]]:
    found = wh.sql(f"SELECT * FROM {name} {tail}").to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def compact(wh: Warehouse, kind: str = "minor") -> None:
    wh.sql(f"ALTER TABLE db.t COMPACT '{kind}'")
    while worker.work_once(wh):
        pass


@pytest.mark.more
@pytest.mark.parametrize("form", ["orc", "parquet"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_P83_a_table_comes_back_with_all_that_it_had(
    wh: Warehouse, form: str, partitioned: bool
) -> None:
    last = ") PARTITIONED BY (p int)" if partitioned else ", p int)"
    wh.sql(
        f"CREATE TABLE db.t (id int CHECK (id > 0) COMMENT 'the id'{last} TBLPROPERTIES"
        f" ('acid.format'='{form}', 'acid.history.retention'='7d', 'comment'='told')"
    )
    table = wh.table("db.t")
    table.insert([{"id": n, "p": n % 2} for n in range(1, 9)])
    first = rows(wh, "db.t")
    table.tag("first")
    table.update({"id": "id + 100"}, where="id = 3")
    table.delete("id = 4")
    compact(wh)
    if partitioned:
        table.drop_partition("p=1")
        table.insert([{"id": 50, "p": 1}])
    now, described = rows(wh, "db.t"), wh.sql("DESCRIBE FORMATTED db.t").to_arrow().to_pylist()
    history = [entry["directory"] for entry in table.history()]
    wh.drop_table("db.t")
    assert not cleaner.run(wh.metastore)
    wh.sql("CREATE TABLE db.t (other string)")
    wh.sql("INSERT INTO db.t VALUES ('x')")
    with pytest.raises(TableExists):
        wh.undrop("db.t")
    assert wh.undrop("db.t", "db.back").name == "db.back"
    assert rows(wh, "db.back") == now and rows(wh, "db.t") == [("x",)]
    assert rows(wh, "db.back", "VERSION AS OF 1") == first
    assert [entry["directory"] for entry in wh.table("db.back").history()] == history
    wh.drop_table("db.t", purge=True)
    wh.sql("ALTER TABLE db.back RENAME TO db.t")
    assert wh.sql("DESCRIBE FORMATTED db.t").to_arrow().to_pylist() == described
    table = wh.table("db.t")
    table.update({"id": "id + 1000"}, where="id = 5" if not partitioned else "id = 50")
    compact(wh, "major")
    cleaner.run(wh.metastore)
    changed = 5 if not partitioned else 50
    assert rows(wh, "db.t") == sorted((n + 1000 if n == changed else n, *rest) for n, *rest in now)
    assert rows(wh, "db.t", "FOR SYSTEM_VERSION AS OF 'first'") == first


def test_P83_in_sql_and_in_the_shell(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE db.t (id int) TBLPROPERTIES ('acid.history.retention'='7d')")
    wh.sql("INSERT INTO db.t VALUES (1)")
    wh.sql("DROP TABLE db.t")
    with pytest.raises(NoSuchTable, match="it was dropped"):
        wh.metastore.table("db.t")
    (row,) = wh.sql("SHOW TABLES DROPPED").to_arrow().to_pylist()
    assert row["table"] == "db.t" and not row["refused"]
    shown = CliRunner().invoke(main, ["show", "dropped", "--warehouse", wh.path])
    assert "db.t" in shown.output
    wh.sql("UNDROP TABLE db.t AS db.back")
    assert rows(wh, "db.back") == [(1,)]
    wh.sql("DROP TABLE db.back")
    done = CliRunner().invoke(main, ["undrop", "db.back", "--as", "db.t", "--warehouse", wh.path])
    assert (done.exit_code, done.output) == (0, "db.t is back\n")
    wh.sql("DROP TABLE db.t PURGE")
    wh.release()
    assert cleaner.run(wh.metastore)
    assert not wh.sql("SHOW TABLES DROPPED").to_arrow().num_rows


@pytest.mark.more
def test_P83_an_erasure_names_dropped_tables_that_it_did_not_read(wh: Warehouse) -> None:
    wh.metastore.set("acid.history.retention", "7d")
    for _ in range(2):
        wh.sql("CREATE TABLE db.t (id int)")
        wh.sql("INSERT INTO db.t VALUES (1), (2)")
        wh.sql("DROP TABLE db.t")
    wh.undrop("db.t")
    erased = wh.table("db.t").erase("id = 1", end_history=True)
    (left,) = erased.dropped
    assert erased.erased and f"dropped tables of this name (ids {left})" in str(erased)
    assert erased.as_json()["dropped tables not read"] == [left]


@pytest.mark.more
def test_P83_the_metastore_is_stopped_in_between(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "wh", engine="local") as wh:
        wh.create_table("db.t", "id int", partitioned_by=["p int"])
        wh.sql("INSERT INTO db.t PARTITION (p=1) VALUES (1)")
        wh.metastore.call(ops.Stop())
        wh.drop_table("db.t")
        wh.metastore.call(ops.Stop())
        wh.undrop("db.t")
        wh.metastore.call(ops.Stop())
        wh.sql("INSERT INTO db.t PARTITION (p=1) VALUES (2)")
        assert rows(wh, "db.t") == [(1, 1), (2, 1)]
        wh.metastore.stop()
