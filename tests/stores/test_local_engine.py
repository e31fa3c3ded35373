"""The local engine in each kind of store: every verb, compaction, cleaning, drop, rebuild, the
command line.

Nothing is renamed, and reads list nothing. `test_suites.py` runs more tests there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from pyarrow.fs import FileInfo

from acid_platform import MetastoreMissing, Table, Warehouse, WarehouseMismatch
from acid_platform.cli.main import main
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.server.store import write_copy
from acid_platform.services import cleaner, worker
from acid_platform.services.fsck import Check, examine
from acid_platform.storage.durability import remove_if_empty
from acid_platform.storage.files import Files
from tests.stores.conftest import Bucket

Rows = list[tuple[Any, ...]]


def rows(table: Table) -> Rows:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def some(*ids: int, v: str = "v") -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"{v}{i}" for i in ids], "p": [i % 2 for i in ids]})


def made(warehouse: Warehouse, name: str = "db.t") -> Table:
    return warehouse.create_table(name, "id bigint, v string", partitioned_by=["p int"])


def run(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_P41_every_verb_leaves_only_what_commits_named(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    table = made(warehouse)
    table.insert(some(1, 2, 3, 4))
    before = table.record.location
    assert before == f"{bucket.uri}/db.db/t"
    table.update({"v": "concat(v, '!')"}, "id = 1")
    table.delete("id = 2")
    source = pa.table({"id": [3, 9], "v": ["x3", "x9"], "p": [1, 1]})
    table.merge(
        source,
        "t.id = s.id",
        when_matched_update={"v": "s.v"},
        when_not_matched_insert="*",
    )
    expected = [(1, "v1!", 1), (3, "x3", 1), (4, "v4", 0), (9, "x9", 1)]
    assert rows(table) == expected
    txn = warehouse.transaction()
    txn.table("db.t").insert(some(100))
    txn.table("db.t").delete("id = 1")
    assert txn.table("db.t").to_arrow().num_rows == 4
    assert rows(table) == expected
    txn.abort()
    assert rows(table) == expected
    past = table.to_arrow(as_of=1)
    assert sorted(past["id"].to_pylist()) == [1, 2, 3, 4]
    changed = table.changes_arrow(since=1).read_all().to_pylist()
    assert {row["id"] for row in changed} == {1, 2, 3, 9}
    table.overwrite(some(5, 7), partition={"p": 1})
    table.truncate({"p": 0})
    assert rows(table) == [(5, "v5", 1), (7, "v7", 1)]
    table.compact("major")
    warehouse.release()
    for _ in range(3):
        cleaner.run(warehouse.metastore)
    assert rows(table) == [(5, "v5", 1), (7, "v7", 1)]
    keys = [key for key in bucket.keys("db.t") if not key.endswith("/")]
    assert not [key for key in keys if "_tmp_" in key or "delta" in key]
    assert examine(warehouse.metastore, warehouse=bucket.uri).findings == ()


@pytest.mark.slow
def test_a_dropped_table_and_partition_are_removed_by_the_cleaner(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    table = made(warehouse)
    table.insert(some(1, 2))
    table.drop_partition({"p": 1})
    assert rows(table) == [(2, "v2", 0)]
    warehouse.release()
    cleaner.run(warehouse.metastore)
    assert not [key for key in bucket.keys("db.t") if "p=1/" in key and not key.endswith("/")]
    warehouse.drop_table("db.t")
    warehouse.release()
    cleaner.run(warehouse.metastore)
    assert bucket.keys("db.t") == []
    again = made(warehouse)
    assert rows(again) == []


@pytest.mark.slow
def test_erased_rows_are_in_no_object(warehouse: Warehouse, bucket: Bucket) -> None:
    table = made(warehouse)
    table.insert(some(1, 2, 3))
    table.insert(some(11, 13, v="secret"))
    erasure = table.erase("id > 10")
    assert erasure.erased, erasure
    assert rows(table) == [(1, "v1", 1), (2, "v2", 0), (3, "v3", 1)]
    assert not [key for key in bucket.keys("db.t") if "delta_0000002" in key]


@pytest.mark.slow
def test_minor_compaction_and_insert_only_tables(warehouse: Warehouse) -> None:
    table = made(warehouse)
    for number in range(4):
        table.insert(some(number))
        table.delete(f"id = {number - 2}")
    expected = rows(table)
    table.compact("minor")
    assert rows(table) == expected
    assert {row["state"] for row in warehouse.metastore.compactions()} <= {
        "ready for cleaning",
        "succeeded",
    }
    plain = warehouse.create_table(
        "db.plain",
        "id bigint, v string",
        properties={"transactional_properties": "insert_only"},
    )
    for number in range(3):
        plain.insert(pa.table({"id": [number], "v": ["x"]}))
    plain.compact("major")
    assert rows(plain) == [(0, "x"), (1, "x"), (2, "x")]


@pytest.mark.slow
def test_P41_the_layout_hive3_is_refused_since_its_base_would_be_read_half_finished(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    table = warehouse.create_table("db.h", "id bigint", properties={"acid.layout": "hive3"})
    table.insert(pa.table({"id": [1]}))
    table.insert(pa.table({"id": [2]}))
    before = bucket.keys("db.h")
    warehouse.metastore.request_compaction("db.h", None, "major")
    outcome = worker.work_once(warehouse)
    assert outcome is not None
    assert outcome.state == "refused"
    assert "acid.layout" in outcome.reason
    assert bucket.keys("db.h") == before
    assert rows(table) == [(1,), (2,)]


@pytest.mark.slow
def test_P31_a_lost_metastore_is_named_and_rebuilt_and_a_backup_restored(bucket: Bucket) -> None:
    backup = bucket.metastore.parent / "backup.duckdb"
    with Warehouse.open(engine="local") as warehouse:
        table = made(warehouse)
        table.insert(some(1, 2))
        write_copy(LocalLog(bucket.metastore), backup)
        table.insert(some(3))
        warehouse.release()
        warehouse.metastore.stop()

    def lose(name: str) -> None:
        bucket.metastore.rename(bucket.metastore.parent / name)
        with pytest.raises(MetastoreMissing, match="acid metastore rebuild"):
            Warehouse.open(engine="local")

    lose("first")
    assert "db.t" in run("metastore", "rebuild")
    with Warehouse.open(engine="local") as warehouse:
        assert [row[0] for row in rows(warehouse.table("db.t"))] == [1, 2, 3]
        warehouse.release()
        warehouse.metastore.stop()
    lose("second")
    with pytest.raises(AssertionError, match=r"WarehouseMismatch|is a backup of"):
        run("metastore", "restore", str(backup))  # the rebuilt warehouse has a new identity
    warehouse.files.delete_file(f"{warehouse.path}/_acid_warehouse.json")
    run("metastore", "restore", str(backup))
    with Warehouse.open(engine="local") as warehouse:
        assert [row[0] for row in rows(warehouse.table("db.t"))] == [1, 2]
        warehouse.release()
        warehouse.metastore.stop()


@pytest.mark.slow
def test_the_command_line_in_a_store(warehouse: Warehouse, bucket: Bucket) -> None:
    run("sql", "CREATE TABLE c (id int, v string)")
    run("sql", "INSERT INTO c VALUES (1, 'a'), (2, 'b')")
    assert "b" in run("sql", "SELECT * FROM c WHERE id = 2")
    assert "bucket_00000" in run("ls", "c/delta_0000001_0000001_0000")
    run("doctor")
    assert "0" in run("fsck")


@pytest.mark.slow
def test_P32_an_emptied_table_and_markers_of_directories_are_read_as_on_a_disk(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    text = warehouse.create_table(
        "db.text",
        "v string",
        properties={"transactional_properties": "insert_only", "acid.format": "text"},
    )
    text.truncate()  # its base has no data file
    table = made(warehouse)
    table.insert(some(1, 2))
    for directory in ("", "p=1/", "p=1/delta_0000001_0000001_0000/", "p=7/"):
        warehouse.files.make_lasting_directory(f"{warehouse.path}/db.db/t/{directory}".rstrip("/"))
    assert text.count() == 0
    assert rows(table) == [(1, "v1", 1), (2, "v2", 0)]
    assert {finding.check for finding in examine(warehouse.metastore).findings} <= {Check.PARTITION}
    table.insert(some(3))
    table.compact("major", {"p": 1})
    table.truncate({"p": 0})
    text.truncate()
    warehouse.release()
    cleaner.run(warehouse.metastore)
    assert rows(table) == [(1, "v1", 1), (3, "v3", 1)]
    assert not [key for key in bucket.keys("db.t") if "delta" in key and "p=1" in key]


@pytest.mark.slow
def test_a_table_elsewhere_in_the_store_is_adopted_and_one_without_rows_dropped(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    outside = bucket.at("elsewhere/t")
    table = warehouse.create_table("db.outside", "id bigint", location=outside)
    table.insert(pa.table({"id": [1]}))
    assert rows(table) == [(1,)]
    empty = made(warehouse, "db.empty")
    assert rows(empty) == []
    warehouse.drop_table("db.empty")

    copy = bucket.at("copies/t")
    for key in bucket.server.keys(bucket.name, "elsewhere/t/delta"):
        target = key.replace("elsewhere/", "copies/")
        warehouse.files.system.copy_file(f"{bucket.name}/{key}", f"{bucket.name}/{target}")
    with pytest.warns(UserWarning, match="count as committed"):
        adopted = warehouse.adopt_table("db.adopted", copy)
    assert rows(adopted) == [(1,)]
    adopted.insert(pa.table({"id": [2]}))
    assert rows(adopted) == [(1,), (2,)]
    warehouse.drop_table("db.adopted")
    warehouse.release()
    cleaner.run(warehouse.metastore)
    left = [key for key in bucket.server.keys(bucket.name, "copies/") if not key.endswith("/")]
    assert left == []


@pytest.mark.slow
def test_P31_a_copy_in_the_store_is_not_opened_with_the_metastore_of_the_original(
    warehouse: Warehouse, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(warehouse).insert(some(1))
    backup = tmp_path / "backup.duckdb"
    write_copy(LocalLog(bucket.metastore), backup)
    for key in bucket.server.keys(bucket.name, "warehouse/"):
        if not key.endswith("/"):
            target = key.replace("warehouse/", "copy/", 1)
            warehouse.files.system.copy_file(f"{bucket.name}/{key}", f"{bucket.name}/{target}")
    copy, home = bucket.at("copy"), str(tmp_path / "other")
    with pytest.raises(WarehouseMismatch, match=f"copy of {bucket.uri.partition('://')[2]}"):
        Warehouse.open(copy, engine="local")
    with monkeypatch.context() as patch:
        patch.setenv("ACID_METASTORE", home)
        run("metastore", "restore", str(backup), "--warehouse", copy)
    with Warehouse.open(copy, metastore=home, engine="local") as copied:
        copied.table("db.t").insert(some(2))
        assert [row[0] for row in rows(copied.table("db.t"))] == [1, 2]
        copied.release()
        copied.metastore.stop()
    assert [row[0] for row in rows(warehouse.table("db.t"))] == [1]
    other = f"{bucket.server.other_scheme}://{bucket.uri.partition('://')[2]}/"
    with Warehouse.open(other, engine="local") as again:
        assert [row[0] for row in rows(again.table("db.t"))] == [1]


@pytest.mark.more
def test_P41_directories_that_only_keys_make_are_listed(warehouse: Warehouse) -> None:
    """What is removed if it seems empty must not seem so."""
    files, root = warehouse.files, f"{warehouse.path}/listed"
    for name in ("a/b/one", "a/two", "three"):
        files.write(f"{root}/{name}", b"1")

    def seen(found: list[FileInfo]) -> list[tuple[str, bool]]:
        return sorted((one.path.removeprefix(f"{root}/"), one.is_file) for one in found)

    assert seen(files.children(root)) == [("a", False), ("three", True)]
    assert seen(files.below(root)) == [
        ("a", False),
        ("a/b", False),
        ("a/b/one", True),
        ("a/two", True),
        ("three", True),
    ]
    remove_if_empty(files, root, "a/b")
    assert files.read(f"{root}/a/b/one") == b"1"
    files.delete_directory(f"{root}/a/b")
    files.delete_directory(f"{root}/a/b")
    assert seen(files.children(f"{root}/a")) == [("a/two", True)]


@pytest.mark.more
def test_a_large_file_is_read_in_ranges_and_written_in_parts(warehouse: Warehouse) -> None:
    files, path = warehouse.files, f"{warehouse.path}/large"
    content = bytes(range(256)) * 90_000  # 23 MB
    files.write(path, content)
    assert files.system.get_file_info(path).size == len(content)
    with files.open(path) as stream:
        stream.seek(20_000_000)
        assert stream.read(1000) == content[20_000_000:20_001_000]
        assert stream.read_at(300, 17_000_000) == content[17_000_000:17_000_300]
        stream.seek(len(content) - 10)
        assert stream.read(100) == content[-10:]
    with pytest.raises(FileNotFoundError):
        files.open(f"{path}-not")


@pytest.mark.more
def test_folders_of_a_bucket_are_imported(warehouse: Warehouse, bucket: Bucket) -> None:
    files, below = Files.of(bucket.at("in/p=1"))
    with files.system.open_output_stream(f"{below}/a.parquet") as stream:
        parquet.write_table(some(1, 3).drop_columns("p"), stream)
    folder = bucket.at("in")
    made(warehouse)
    assert f"has the 2 rows of parquet {folder}" in run("import", "parquet", folder, "db.t")
    assert rows(warehouse.table("db.t")) == [(1, "v1", 1), (3, "v3", 1)]
