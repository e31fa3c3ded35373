"""A catalog of DuckLake: a plain DuckDB finds the rows of each snapshot of each table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acid_platform import Table, Warehouse
from acid_platform.base import databases
from acid_platform.errors import NoSuchTable, UnsupportedLayout
from acid_platform.handles import ducklake_export as exporting
from acid_platform.handles.ducklake_export import DuckLakeExport
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import AsOf
from acid_platform.services import cleaner
from tests.conftest import IN_ORC, temporary_warehouse
from tests.iceberg.found_rows import texts
from tests.iceberg.histories import History
from tests.iceberg.plain_duckdb import PlainDuckDB, Refused
from tests.iceberg.test_export import HISTORIES

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainDuckDB]:
    started = PlainDuckDB.start(tmp_path_factory.mktemp("rows"))
    if started is None:
        pytest.skip("the packages of a plain DuckDB can't be installed")
    yield started
    started.close()


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", None, "local") as made:
        yield made


def commits(warehouse: Warehouse, table: Table) -> list[int]:
    found = warehouse.metastore.call(ops.GetCommits(table.name))
    return [commit.moment for commit in found]


def require_same(duckdb: PlainDuckDB, table: Table, moment: int, at: int | None = None) -> None:
    """`at`: the snapshot of the catalog, which may be one of another table."""
    found = duckdb.table(f"FROM lake.{table.name} AT (VERSION => {at or moment})")
    expected = table.to_arrow(as_of=AsOf(moment=moment))
    assert found.column_names == expected.column_names
    assert texts(found.to_pylist()) == texts(expected.to_pylist())


def require_all(
    warehouse: Warehouse, duckdb: PlainDuckDB, export: DuckLakeExport, *tables: Table
) -> None:
    duckdb.attach(f"ducklake:{export.catalog}")
    for table in tables:
        for moment in commits(warehouse, table):
            require_same(duckdb, table, moment)


def made(warehouse: Warehouse, name: str, columns: str, **more: Any) -> Table:
    kept = {"acid.format": "parquet", "acid.history.retention": "7d"}
    properties = {**kept, **more.pop("properties", {})}
    return warehouse.create_table(name, columns, properties=properties, **more)


def a_table(warehouse: Warehouse, name: str, **more: Any) -> Table:
    table = made(warehouse, name, "id int, v string", **more)
    table.insert([{"id": number, "v": "x"} for number in range(100)])
    return table


def test_a_plain_duckdb_finds_the_rows_of_each_snapshot(
    warehouse: Warehouse, duckdb: PlainDuckDB
) -> None:
    dice = random.Random(3)
    histories = [
        History(warehouse, f"i.t{number}", number, *kind) for number, kind in enumerate(HISTORIES)
    ]
    for step in range(8):
        for history in histories:
            history.step()
        if step % 3 < 2:
            continue
        export = warehouse.export_ducklake()
        duckdb.attach(f"ducklake:{export.catalog}")
        told = [row[0] for row in duckdb.ask("FROM ducklake_snapshots('lake')")[0] if row[0]]
        for history, kind in zip(histories, HISTORIES, strict=True):
            own = commits(warehouse, history.table)
            for snapshot in {told[-1], *dice.sample(told, 3)}:
                seen = max((each for each in own if each <= snapshot), default=0)
                try:
                    require_same(duckdb, history.table, seen, snapshot) if seen else None
                except Refused as refused:
                    assert "does not exist at version" in str(refused)
                    assert kind[1], "an insert-only table whose columns had other names then"


def test_all_types_and_fields_inside_of_columns(warehouse: Warehouse, duckdb: PlainDuckDB) -> None:
    columns = "id int, l array<struct<a:int,b:string>>, m map<string,array<decimal(5,2)>>"
    rows: list[dict[str, Any]] = [
        {"id": 1, "l": [{"a": 1, "b": "x"}, None], "m": [("k", ["1.25", None])]},
        {"id": 2, "l": None, "m": None},
        {"id": 3, "l": [], "m": []},
    ]
    tables = []
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("i.nested", {}),
        ("i.parts", {"partitioned_by": ["p string"]}),
        ("i.plain", {"properties": {"transactional_properties": "insert_only"}}),
    ]
    for name, more in kinds:
        parts = "partitioned_by" in more
        table = made(warehouse, name, columns, **more)
        for p in ("a b%", None, "é=/"):
            table.insert([row | ({"p": p} if parts else {}) for row in rows])
        tables.append(table)
        if name != "i.plain":
            table.rename_column("l", "called")
            table.delete("id = 1")
            last: dict[str, Any] = {"id": 4, "called": [{"a": 7, "b": None}], "m": []}
            table.insert([last | ({"p": "null?"} if parts else {})])
            table.compact("major", partition=table.partitions()[0] if parts else None)
    require_all(warehouse, duckdb, warehouse.export_ducklake(), *tables)


def test_a_second_export_only_adds_and_one_without_commits_changes_nothing(
    warehouse: Warehouse, duckdb: PlainDuckDB
) -> None:
    table, other = a_table(warehouse, "i.t"), a_table(warehouse, "i.other")
    first = warehouse.export_ducklake()
    before = Path(first.catalog).stat()
    again = warehouse.export_ducklake()
    assert again.told == 0
    assert Path(first.catalog).stat().st_ino == before.st_ino
    duckdb.attach(f"ducklake:{first.catalog}")
    table.delete("id < 10")
    other.update({"v": "'y'"}, where="id > 90")
    assert warehouse.export_ducklake().told == 2
    assert duckdb.ask("SELECT count(*) FROM lake.i.t") == [[[100]]], "as it was attached"
    require_all(warehouse, duckdb, first, table, other)
    assert duckdb.ask("SELECT count(*), min(id) FROM lake.i.t") == [[[90, 10]]]
    (rows,) = duckdb.ask("SELECT count(*) FROM lake.i.t WHERE id BETWEEN 5 AND 14")
    assert rows == [[5]]


def test_an_export_that_is_killed_leaves_what_was_there(
    warehouse: Warehouse, duckdb: PlainDuckDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(warehouse, "i.t")
    first = warehouse.export_ducklake()
    content = Path(first.catalog).read_bytes()
    table.delete("id < 3")
    for place in ("replace_file", "hidden_rows", "column_rows"):
        with monkeypatch.context() as patch:

            def killed(*_: Any, **__: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(exporting, place, killed)
            with pytest.raises(KeyboardInterrupt):
                warehouse.export_ducklake()
        assert Path(first.catalog).read_bytes() == content
    require_all(warehouse, duckdb, warehouse.export_ducklake(), table)


def test_tables_that_duckdb_would_misread_are_left_out_or_refused(warehouse: Warehouse) -> None:
    a_table(warehouse, "i.t")
    warehouse.create_table("i.orc", "id int", properties=IN_ORC)
    for number, (kind, value) in enumerate((("string", "NULL"), ("double", 2.0))):
        table = made(warehouse, f"i.p{number}", "id int", partitioned_by=[f"p {kind}"])
        table.insert([{"id": 1, "p": value}])
    export = warehouse.export_ducklake()
    assert export.tables == ("i.t",)
    assert export.left_out.keys() == {"i.p0", "i.p1"}
    with pytest.raises(UnsupportedLayout, match=r"ALTER TABLE i\.orc SET FILEFORMAT PARQUET"):
        warehouse.export_ducklake("i.orc")
    with pytest.raises(UnsupportedLayout, match="the partition column p string"):
        warehouse.export_ducklake("i.p0")
    with pytest.raises(NoSuchTable):
        warehouse.export_ducklake("i.nothing")


def test_a_catalog_has_the_tables_that_were_named_until_they_are_dropped(
    warehouse: Warehouse, duckdb: PlainDuckDB
) -> None:
    tables = [a_table(warehouse, f"i.t{number}") for number in range(3)]
    place = str(Path(warehouse.path).parent / "some.ducklake")
    assert warehouse.export_ducklake("i.t0", into=place).tables == ("i.t0",)
    tables[0].delete("id < 5")
    second = warehouse.export_ducklake("i.t1", into=place)
    assert second.tables == ("i.t0", "i.t1")
    require_all(warehouse, duckdb, second, *tables[:2])
    warehouse.drop_table("i.t0")
    a_table(warehouse, "i.t0").delete("id < 50")
    warehouse.sql("ALTER TABLE i.t1 RENAME TO i.called")
    third = warehouse.export_ducklake("i.t2", into=place)
    assert third.tables == ("i.called", "i.t2")
    require_all(warehouse, duckdb, third, warehouse.table("i.called"), tables[2])


def test_snapshots_go_with_the_history(warehouse: Warehouse, duckdb: PlainDuckDB) -> None:
    table = a_table(warehouse, "i.t", properties={"acid.history.retention": "0"})
    other = a_table(warehouse, "i.other")
    table.delete("id < 50")
    table.compact("major")
    first = warehouse.export_ducklake()
    gone = commits(warehouse, table)[0]
    cleaner.run(warehouse.metastore)
    table.insert([{"id": 1000, "v": "z"}])
    second = warehouse.export_ducklake()
    assert second.snapshots < first.snapshots + 1
    require_all(warehouse, duckdb, second, table, other)
    with pytest.raises(Refused, match="No snapshot found at version"):
        duckdb.ask(f"FROM lake.i.t AT (VERSION => {gone})")


def test_what_others_made_at_the_place_is_replaced(
    warehouse: Warehouse, duckdb: PlainDuckDB, tmp_path: Path
) -> None:
    table, place = a_table(warehouse, "i.t"), tmp_path / "other.ducklake"
    own = warehouse.export_ducklake()
    for content in (b"", b"no catalog", bytes(100_000), Path(own.catalog).read_bytes()):
        place.unlink(missing_ok=True)  # a reader has the one before
        place.write_bytes(content)
        if len(content) > 100_000:  # a catalog in which somebody else computes what was told
            with databases.not_yet_closed() as connection:
                databases.attach(connection, place, "theirs", write=True)
                connection.execute("ALTER TABLE theirs.acid_told RENAME TO was")
                told = "SELECT * REPLACE (error('computed')::BIGINT AS moment) FROM was"
                connection.execute(f"USE theirs; CREATE VIEW acid_told AS {told}")
        export = warehouse.export_ducklake(into=str(place))
        assert export.told == own.told
        require_all(warehouse, duckdb, export, table)


def test_a_branch_has_a_catalog_of_its_own(warehouse: Warehouse, duckdb: PlainDuckDB) -> None:
    """All its tables at one state of the branch, also those renamed or dropped elsewhere since."""
    first, second = a_table(warehouse, "i.t"), a_table(warehouse, "i.u")
    warehouse.branches.create("dev")
    warehouse.branches.create("over")
    first.rename("i.other")
    warehouse.table("i.other").insert([{"id": 1000, "v": "of others"}])

    def require_shown(branch: Warehouse, export: DuckLakeExport) -> None:
        duckdb.attach(f"ducklake:{export.catalog}")
        for name in ("i.t", "i.u"):
            found = duckdb.table(f"FROM lake.{name}").to_pylist()
            assert texts(found) == texts(branch.table(name).to_arrow().to_pylist())
        assert export.tables == ("i.t", "i.u")

    def on(name: str) -> Warehouse:
        return Warehouse.open(warehouse.path, engine="local", branch=name)

    with on("dev") as branch, on("over") as over:
        ended = over.export_ducklake()
        require_shown(branch, branch.export_ducklake())
        branch.sql("INSERT INTO i.u SELECT id + 500, 'new' FROM i.u WHERE id < 10")
        branch.sql("DELETE FROM i.u WHERE id > 502; UPDATE i.u SET v = 'y' WHERE id = 4")
        warehouse.drop_table(second.name)
        warehouse.branches.drop("over")
        export = branch.export_ducklake()
        require_shown(branch, export)
        assert branch.export_ducklake().told == 0
        assert not Path(ended.catalog).exists() and Path(export.catalog).exists()
    assert warehouse.export_ducklake().tables == ("i.other",)
