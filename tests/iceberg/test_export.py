"""Tables told to readers of Iceberg: pyiceberg reads the rows of each snapshot that is told."""

from __future__ import annotations

import io
import json
import os
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acid_platform import Table, Warehouse
from acid_platform.base.clock import wall_ms
from acid_platform.errors import UnsupportedLayout
from acid_platform.formats import keyed_parquet_writer
from acid_platform.handles import iceberg_export as exporting
from acid_platform.handles.iceberg_export import IcebergExport
from acid_platform.iceberg.table_metadata import GRACE
from acid_platform.metastore.pasts import AsOf
from acid_platform.services import cleaner
from acid_platform.storage.files import Files
from tests.conftest import IN_ORC, temporary_warehouse
from tests.iceberg.found_rows import as_pyiceberg, texts
from tests.iceberg.histories import History


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Without Spark: the files of both engines are alike."""
    with temporary_warehouse(tmp_path_factory.mktemp("iceberg") / "wh", None, "local") as made:
        yield made


fastavro = pytest.importorskip("fastavro", reason="pip install 'acid-platform[export]'")
tables = pytest.importorskip("pyiceberg.table", reason="pip install pyiceberg")
pytestmark = pytest.mark.more


def snapshots(export: IcebergExport) -> list[int]:
    document = json.loads(Path(export.metadata).read_text())
    return [each["snapshot-id"] for each in document["snapshots"]]


def require_same(export: IcebergExport, table: Table, snapshot: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = tables.StaticTable.from_metadata(export.metadata)
        found = read.scan(snapshot_id=snapshot).to_arrow()
    expected = table.to_arrow(as_of=AsOf(moment=snapshot))
    assert sorted(found.column_names) == sorted(expected.column_names)
    ours = as_pyiceberg(expected.to_pylist(), expected.schema)
    assert texts(found.to_pylist()) == texts(ours)


HISTORIES = [
    ("", False),
    ("p int", False),
    ("p string", False),
    ("p date", False),
    ("p decimal(5,2)", False),
    ("", True),
    ("p int", True),
]


@pytest.mark.parametrize(("keys", "insert_only"), HISTORIES)
def test_readers_of_iceberg_find_the_rows_of_each_snapshot(
    warehouse: Warehouse, keys: str, insert_only: bool
) -> None:
    seed = HISTORIES.index((keys, insert_only))
    name, dice = f"i.t{seed}", random.Random(seed)
    history = History(warehouse, name, seed, keys, insert_only)
    for _ in range(20):
        history.step()
        if dice.random() < 0.4:
            export = warehouse.export_iceberg(name)
            told = snapshots(export)
            for snapshot in {told[-1], *dice.sample(told, min(3, len(told)))}:
                require_same(export, history.table, snapshot)
    export = warehouse.export_iceberg(name)
    for snapshot in snapshots(export):
        require_same(export, history.table, snapshot)


def a_table(warehouse: Warehouse, name: str, **properties: str) -> Table:
    own = {"acid.format": "parquet", "acid.history.retention": "7d"}
    table = warehouse.create_table(name, "id int, v string", properties={**own, **properties})
    table.insert([{"id": number, "v": "x"} for number in range(100)])
    return table


def test_a_commit_after_another_adds_little_and_nothing_twice(warehouse: Warehouse) -> None:
    table = a_table(warehouse, "i.little")
    first = warehouse.export_iceberg("i.little")
    place = Path(first.directory) / "metadata"
    before = {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    assert warehouse.export_iceberg("i.little").told == 0
    assert before == {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    table.delete("id = 7")
    second = warehouse.export_iceberg("i.little")
    new = [path.name for path in place.iterdir() if path.name not in before]
    assert len(new) == 4, "positions, their manifest, the list of manifests, the metadata"
    assert (second.told, second.files, second.delete_files) == (1, 1, 1)
    require_same(second, table, second.snapshot)
    require_same(first, table, first.snapshot)


@pytest.mark.parametrize("kept", [True, False])
def test_an_export_that_is_killed_at_any_step_leaves_what_was_there(
    warehouse: Warehouse, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"i.killed_{kept}".lower()
    table = a_table(warehouse, name)
    before = warehouse.export_iceberg(name) if kept else None
    table.delete("id < 3")
    table.update({"v": "'y'"}, where="id > 90")
    stop = calls = 0

    def counting(method: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == stop:
                raise KeyboardInterrupt
            return method(*arguments, **options)

        return called

    while True:
        stop, calls = stop + 1, 0
        with monkeypatch.context() as patch:
            for owner, verb in (
                (Files, "write"),
                (Files, "rename"),
                (exporting, "write_positions"),
            ):
                patch.setattr(owner, verb, counting(getattr(owner, verb)))
            try:
                export = warehouse.export_iceberg(name)
            except KeyboardInterrupt:
                place = Path(warehouse.path) / "_iceberg" / name.replace(".", "/") / "metadata"
                hint = place / "version-hint.text"
                assert hint.exists() or not kept
                if hint.exists() and before is not None:
                    told = place / f"v{hint.read_text()}.metadata.json"
                    assert told == Path(before.metadata) or stop > 8  # told, and not tidied up
                    require_same(before, table, before.snapshot)
                continue
        break
    assert stop > 8
    for snapshot in snapshots(export):
        require_same(export, table, snapshot)


def test_what_readers_of_iceberg_would_misread_is_refused(warehouse: Warehouse) -> None:
    in_orc = warehouse.create_table("i.orc", "id int", properties=IN_ORC)
    with pytest.raises(UnsupportedLayout, match=r"ALTER TABLE i\.orc SET FILEFORMAT PARQUET"):
        warehouse.export_iceberg("i.orc")
    in_orc.insert([{"id": 1}])
    warehouse.sql("ALTER TABLE i.orc SET FILEFORMAT PARQUET")
    export = warehouse.export_iceberg("i.orc")
    require_same(export, in_orc, export.snapshot)


def test_fields_inside_of_columns_are_read_by_their_ids(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "id int, l array<struct<a:int,b:string>>, m map<string,array<decimal(5,2)>>"
    table = warehouse.create_table("i.nested", columns, properties={"acid.format": "parquet"})
    row = {"id": 1, "l": [{"a": 1, "b": "x"}, None], "m": [("k", ["1.25", None])]}
    with monkeypatch.context() as patched:  # as an older version wrote them
        patched.setattr(keyed_parquet_writer, "with_ids", lambda kind, _column: kind)
        table.insert([row])
        table.insert([{**row, "id": 0}])
    with pytest.raises(
        UnsupportedLayout, match="ids of the fields inside of column l array<struct"
    ):
        warehouse.export_iceberg("i.nested")
    table.compact("major")
    table.insert([{**row, "id": 2, "l": [{"a": None, "b": "y"}]}, {"id": 3, "l": []}])
    table.delete("id = 1")
    table.rename_column("l", "called")
    table.insert([{"id": 4, "called": [{"a": 7, "b": None}], "m": []}])
    export = warehouse.export_iceberg("i.nested")
    for snapshot in snapshots(export)[-4:]:
        require_same(export, table, snapshot)
    assert table.count() == 4


def test_columns_of_wider_types_are_read_where_iceberg_converts_them(
    warehouse: Warehouse,
) -> None:
    table = warehouse.create_table(
        "i.wider",
        "a tinyint, b int, f float, m decimal(5,2)",
        properties={"acid.format": "parquet"},
    )
    table.insert([{"a": 1, "b": -2, "f": 1.5, "m": "3.25"}, {"a": None, "b": 7}])
    warehouse.export_iceberg("i.wider")
    for change in ("a int", "b bigint", "f double", "m decimal(9,2)"):
        table.change_column(change.partition(" ")[0], change)
    table.insert([{"a": 1 << 20, "b": 1 << 40, "f": 1e300, "m": "1234567.25"}])
    export = warehouse.export_iceberg("i.wider")
    for snapshot in snapshots(export):
        require_same(export, table, snapshot)
    table.change_column("a", "a double")
    with pytest.raises(UnsupportedLayout, match="column a as tinyint"):
        warehouse.export_iceberg("i.wider")
    table.compact("major")
    export = warehouse.export_iceberg("i.wider")
    require_same(export, table, export.snapshot)
    padded = warehouse.create_table("i.padded", "c char(3)", properties={"acid.format": "parquet"})
    padded.insert([{"c": "a"}])
    warehouse.export_iceberg("i.padded")
    padded.change_column("c", "c char(5)")
    with pytest.raises(UnsupportedLayout, match=r"column c as char\(3\)"):
        warehouse.export_iceberg("i.padded")


def test_a_decimal_of_all_digits_that_its_type_has_is_told(warehouse: Warehouse) -> None:
    own = {"acid.format": "parquet", "transactional_properties": "insert_only"}
    table = warehouse.create_table("i.digits", "m decimal(36,6)", properties=own)
    for sign in ("", "-"):
        table.insert([{"m": f"{sign}{'9' * 30}.{'9' * 6}"}])
    table.compact("major")
    export = warehouse.export_iceberg("i.digits")
    require_same(export, table, export.snapshot)


def test_old_snapshots_go_with_the_history_and_their_files_later(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(warehouse, "i.old", **{"acid.history.retention": "0"})
    table.delete("id < 50")
    table.compact("major")
    first = warehouse.export_iceberg("i.old")
    assert len(snapshots(first)) > 2
    cleaner.run(warehouse.metastore)
    table.insert([{"id": 1000, "v": "z"}])
    names = [*Path(first.directory).glob("metadata/*-*-*")]
    for path in names:
        os.utime(path, (0, 0))  # what a reader has loaded may be old; only now nothing names it
    second = warehouse.export_iceberg("i.old")
    assert len(snapshots(second)) < len(snapshots(first))
    assert all(path.exists() for path in names)
    for snapshot in snapshots(second):
        require_same(second, table, snapshot)
    place = Path(second.directory) / "metadata"
    count = len([*place.iterdir()])
    later = wall_ms() + GRACE + 60_000
    monkeypatch.setattr("acid_platform.handles.iceberg_export.wall_ms", lambda: later)
    table.insert([{"id": 1001, "v": "z"}])
    third = warehouse.export_iceberg("i.old")
    assert len([*place.iterdir()]) < count
    for snapshot in snapshots(third):
        require_same(third, table, snapshot)


def test_tags_are_refs_of_the_snapshots_that_they_see(warehouse: Warehouse) -> None:
    table = a_table(warehouse, "i.tagged", **{"acid.history.retention": "1d"})
    table.tag("whole"), table.tag("main")
    table.delete("id < 50")
    table.tag("half year")
    table.delete("id < 60")
    first = warehouse.export_iceberg("i.tagged")

    def refs(metadata: str) -> dict[str, Any]:
        read = tables.StaticTable.from_metadata(metadata)
        found = {
            name: ref.snapshot_id
            for name, ref in read.metadata.refs.items()
            if ref.snapshot_ref_type.value == "tag"
        }
        for name, snapshot in found.items():
            rows = read.scan(snapshot_id=snapshot).to_arrow()
            assert texts(rows.to_pylist()) == texts(table.to_arrow(as_of=name).to_pylist())
        return found

    assert refs(first.metadata).keys() == {"whole", "half year"}
    table.drop_tag("whole")
    assert warehouse.export_iceberg("i.tagged").told == 0
    again = warehouse.export_iceberg("i.tagged")
    assert refs(again.metadata).keys() == {"half year"}
    assert warehouse.export_iceberg("i.tagged").metadata == again.metadata


def test_an_export_goes_where_it_is_told_however_the_path_is_spelt(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(warehouse, "i.elsewhere")
    monkeypatch.chdir(tmp_path)
    export = warehouse.export_iceberg("i.elsewhere", into="lake/x/..")
    assert export.directory == str(tmp_path / "lake" / "i" / "elsewhere")
    monkeypatch.chdir("/")
    require_same(export, table, export.snapshot)


def test_another_table_of_the_name_begins_again(warehouse: Warehouse) -> None:
    a_table(warehouse, "i.again")
    first = warehouse.export_iceberg("i.again")
    warehouse.drop_table("i.again")
    table = a_table(warehouse, "i.again")
    table.delete("id > 5")
    second = warehouse.export_iceberg("i.again")
    ids = [json.loads(Path(each.metadata).read_text())["table-uuid"] for each in (first, second)]
    assert ids[0] != ids[1]
    for snapshot in snapshots(second):
        require_same(second, table, snapshot)


def test_metadata_does_not_grow_with_many_commits(warehouse: Warehouse) -> None:
    table = a_table(warehouse, "i.many", **{"acid.history.retention": "0"})
    for number in range(120):
        table.insert([{"id": 200 + number, "v": "y"}])
        if number % 4 == 0:
            table.delete(f"id = {number // 2}")
        if number % 40 == 39:
            warehouse.export_iceberg("i.many")
    export = warehouse.export_iceberg("i.many")
    document = json.loads(Path(export.metadata).read_text())
    content = Path(document["snapshots"][-1]["manifest-list"]).read_bytes()
    assert len([*fastavro.reader(io.BytesIO(content))]) <= 82
    assert export.delete_files <= 16
    require_same(export, table, export.snapshot)
