"""A warehouse of an older version (schema 6), which recorded no files (P26, P31)."""

from __future__ import annotations

import json
import tarfile
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from acid_platform import BatchCommitted, CorruptFile, NotEnoughHistory
from acid_platform.metastore.pasts import SinkBatch
from acid_platform.metastore.records import ClientInfo
from acid_platform.transactions import TxnType
from tests.conftest import temporary_warehouse

FIXTURE = Path(__file__).parents[1] / "fixtures" / "warehouse_version_6.tar.xz"
MADE_AT = "/tmp/lead/fx/warehouse"
"""The path at which it was created: that version recorded absolute paths."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The warehouse, as if it had been created at this root."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    made = tmp_path / "warehouse"
    with duckdb.connect(str(made / "_metastore" / "metastore.duckdb")) as raw:
        raw.execute("UPDATE tables SET location = replace(location, $1, $2)", [MADE_AT, str(made)])
    return made


def expected(root: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads((root.parent / "expected.json").read_text())
    return found


def rows(table: Any) -> list[dict[str, Any]]:
    return sorted(
        (json.loads(json.dumps(row, default=str)) for row in table.to_arrow().to_pylist()), key=str
    )


def test_P26_an_upgraded_warehouse_reads_as_before_and_has_its_files_recorded(root: Path) -> None:
    with temporary_warehouse(root) as warehouse:
        assert warehouse.metastore.unrecorded() == []
        wanted = expected(root)
        assert {name: rows(warehouse.table(name)) for name in wanted} == wanted
        assert {name: warehouse.table(name).count() for name in wanted} == {
            name: len(found) for name, found in wanted.items()
        }
        _, files = warehouse.metastore.query(
            'SELECT "table", count(*), sum("rows") FROM v_files GROUP BY 1 ORDER BY 1'
        )
        assert files == [
            ["db.changed", 12, 30],
            ["db.compacted", 5, 15],
            ["db.emptied", 1, 1],
            ["db.plain", 2, 2],
            ["db.replaced", 3, 4],
        ]


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_P26_a_file_that_was_lost_before_the_upgrade_is_missed(root: Path, damage: str) -> None:
    """Its commit counted files and bytes but did not list the files."""
    (file,) = (root / "db.db" / "replaced" / "base_0000002").glob("bucket_*")
    match damage:
        case "gone":
            file.unlink()
        case "cut":
            file.write_bytes(file.read_bytes()[:-20])
        case "empty":
            file.write_bytes(b"")
    with temporary_warehouse(root) as warehouse:
        with pytest.raises(CorruptFile, match="base_0000002"):
            warehouse.table("db.replaced").count()
        assert rows(warehouse.table("db.changed")) == expected(root)["db.changed"]


def test_P8_the_history_of_an_upgraded_warehouse_names_the_engines_of_new_writes(
    root: Path,
) -> None:
    with temporary_warehouse(root, engine="local") as warehouse:
        table = warehouse.table("db.changed")
        before = table.history()
        assert before and all((row["engine"], row["reason"]) == ("", "") for row in before)
        assert table.delete() > 0
        told = table.history()
        assert told[: len(before)] == before
        new = told[len(before) :]
        assert new and all(
            (row["engine"], row["reason"]) == ("local", "engine=local") for row in new
        )


def test_P36_histories_begin_with_the_upgrade(root: Path) -> None:
    with temporary_warehouse(root, engine="local") as warehouse:
        table = warehouse.table("db.changed")
        last = warehouse.metastore.last_write_id(table.record.table_id)
        before = rows(table)
        for as_of in (0, last, datetime(2020, 1, 1)):
            with pytest.raises(NotEnoughHistory, match="its history begins at"):
                table.to_arrow(as_of=as_of)
        table.delete()
        assert table.count(as_of=last + 1) == 0
        table.tag("emptied")
        table.rollback_to(datetime.fromtimestamp(table.retained().since / 1000, UTC))
        assert rows(table) == before


def without_columns_of_transactions(raw: duckdb.DuckDBPyConnection, *columns: str) -> None:
    """DuckDB drops no column of a table on which a view depends."""
    ((view,),) = raw.execute(
        "SELECT sql FROM duckdb_views() WHERE view_name = 'v_open_txns'"
    ).fetchall()
    raw.execute("DROP VIEW v_open_txns")
    for column in columns:
        raw.execute(f"ALTER TABLE open_txns DROP COLUMN {column}")
    raw.execute(view)


def test_P36_a_file_of_version_10_gets_its_columns(tmp_path: Path) -> None:
    """Its tables of dropped tables and of open transactions lack them too."""
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        for name in ("kept", "dropped"):
            warehouse.create_table(name, "id int")
            warehouse.sql(f"INSERT INTO {name} VALUES (1)")
        warehouse.drop_table("dropped")
    with duckdb.connect(str(tmp_path / "_metastore" / "metastore.duckdb")) as raw:
        for table in ("tables", "dropped_tables"):
            for column in ("since", "since_at", "since_write", "anchor", "held"):
                raw.execute(f'ALTER TABLE "{table}" DROP COLUMN {column}')
        for column in ("engine", "reason"):
            raw.execute(f"ALTER TABLE writes DROP COLUMN {column}")
        raw.execute('ALTER TABLE write_set DROP COLUMN "rows"')
        without_columns_of_transactions(raw, "pins", "unfinished")
        raw.execute("DROP TABLE table_commits")
        raw.execute("DROP TABLE tags")
        raw.execute("DROP TABLE cursors")
        raw.execute("DROP TABLE sinks")
        raw.execute("UPDATE meta SET value = '10' WHERE key = 'schema_version'")
        (before,) = raw.execute("SELECT count(*) FROM writes").fetchone() or (0,)
        assert before > 0
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        table = warehouse.table("kept")
        assert table.count() == 1
        assert {(row["engine"], row["reason"]) for row in table.history()} == {("", "")}
        assert warehouse.metastore.query("SELECT * FROM v_open_txns")[1] == []
        with pytest.raises(NotEnoughHistory):
            table.count(as_of=1)
        warehouse.sql("INSERT INTO kept VALUES (2)")
        warehouse.sql("DELETE FROM kept")
        assert table.count(as_of=2) == 2 and table.count(as_of=3) == 0


def test_P39_a_file_of_version_13_gets_a_place_for_cursors(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        warehouse.create_table("kept", "id int")
        warehouse.sql("INSERT INTO kept VALUES (1)")
    with duckdb.connect(str(tmp_path / "_metastore" / "metastore.duckdb")) as raw:
        raw.execute("DROP TABLE cursors")
        raw.execute("DROP TABLE sinks")
        without_columns_of_transactions(raw, "unfinished")
        raw.execute("UPDATE meta SET value = '13' WHERE key = 'schema_version'")
    for moved in (1, 0):
        with temporary_warehouse(tmp_path, engine="local") as warehouse:
            with warehouse.transaction() as txn:
                found = txn.table("kept").changes_arrow(consumer="c").read_all()
            assert found.num_rows == moved, "the cursor is there after the next start"
            assert len(warehouse.metastore.cursors("kept")) == 1


def test_P42_a_file_of_version_14_gets_a_place_for_sinks(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        warehouse.create_table("kept", "id int")
    with duckdb.connect(str(tmp_path / "_metastore" / "metastore.duckdb")) as raw:
        raw.execute("DROP TABLE sinks")
        without_columns_of_transactions(raw, "unfinished")
        raw.execute("UPDATE meta SET value = '14' WHERE key = 'schema_version'")
    batch = SinkBatch("s", "default.kept", "q", 7, 0)
    for known in (False, True):
        with temporary_warehouse(tmp_path, engine="local") as warehouse:
            rows = warehouse.metastore.sinks("kept")
            assert [row.sink.batch for row in rows] == [7] * known
            with nullcontext() if not known else pytest.raises(BatchCommitted):
                warehouse.metastore.begin().commit(sinks=[batch])


def test_P47_a_file_of_version_15_keeps_the_transactions_of_other_engines(tmp_path: Path) -> None:
    """Nobody knows of them whether their files are complete, so they may commit as before."""
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        (txn,) = warehouse.metastore.open_ids(1, TxnType.DEFAULT, ClientInfo())
    with duckdb.connect(str(tmp_path / "_metastore" / "metastore.duckdb")) as raw:
        without_columns_of_transactions(raw, "unfinished")
        raw.execute("UPDATE meta SET value = '15' WHERE key = 'schema_version'")
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        warehouse.metastore.commit_id(txn, [])
        assert warehouse.metastore.outcome_of(txn).state == "c"


def test_views_of_version_16_follow_their_tables(tmp_path: Path) -> None:
    """Nobody knows which columns they had."""
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        warehouse.sql("CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t")
        warehouse.sql("CREATE OR REPLACE VIEW v AS SELECT a FROM t AS x")
    with duckdb.connect(str(tmp_path / "_metastore" / "metastore.duckdb")) as raw:
        for table in ("views", "earlier_views"):
            raw.execute(f"ALTER TABLE {table} DROP COLUMN reads")
        raw.execute("UPDATE meta SET value = '16' WHERE key = 'schema_version'")
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        assert warehouse.sql("SELECT * FROM v").columns == ["a"]  # type: ignore[union-attr]
        warehouse.sql("CREATE OR REPLACE VIEW v AS SELECT a FROM t")
        (view,) = warehouse.metastore.views()
        assert view.reads == (("default.t", (("a", "int"),)),)
