"""Transactions that change different rows of one partition both commit, in both engines (P38)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import InvalidDefinition, Table, Transaction, Warehouse, WriteConflict
from acid_platform.storage.files import Files
from acid_platform.write.publishing import deleted_rows
from tests.conftest import a_warehouse, temporary_warehouse
from tests.history.model import History

ROWS = [{"id": number, "v": "new", "p": number % 2} for number in range(8)]


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def warehouse(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Warehouse]:
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    with temporary_warehouse(tmp_path / "wh", spark, request.param) as opened:
        for name, keys in (("db.t", []), ("db.parted", ["p int"])):
            columns = "id int, v string" + ("" if keys else ", p int")
            opened.create_table(name, columns, partitioned_by=keys).insert(ROWS)
        yield opened


def values(table: Table) -> dict[int, str]:
    found = table.to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a row became two"
    return {row["id"]: row["v"] for row in found}


def two(warehouse: Warehouse) -> tuple[Transaction, Transaction]:
    return warehouse.transaction(), warehouse.transaction()


def test_P38_two_writers_of_one_row_conflict_and_the_error_names_it(warehouse: Warehouse) -> None:
    one, other = two(warehouse)
    one.table("db.t").update({"v": "'one'"}, "id < 3")
    other.table("db.t").delete("id >= 2")
    one.commit()
    (changed,) = [
        row["row__id"]
        for row in warehouse.table("db.t").to_arrow(row_id=True, where="id = 7").to_pylist()
    ]
    with pytest.raises(WriteConflict, match=r"db\.t: delete of .* in row") as refused:
        other.commit()
    assert f'"writeid":{changed["writeid"]},"bucketid":{changed["bucketid"]}' in str(refused.value)
    assert values(warehouse.table("db.t")).keys() == set(range(8))


@pytest.mark.more
@pytest.mark.parametrize("key", [50, 51])
def test_P51_two_merges_that_insert_conflict_if_they_insert_one_key(
    warehouse: Warehouse, key: int
) -> None:
    """Both also change rows of one partition, but not the same."""
    one, other = two(warehouse)
    for txn, numbers in ((one, (1, 50)), (other, (3, key))):
        txn.table("db.t").merge(
            [{"id": number, "v": "merged", "p": number % 2} for number in numbers],
            "t.id = s.id",
            when_matched_update={"v": "s.v"},
            when_not_matched_insert="*",
        )
    one.commit()
    if key == 50:
        with pytest.raises(WriteConflict, match="inserted some meanwhile"):
            other.commit()
    else:
        other.commit()
    assert sorted(values(warehouse.table("db.t"))) == sorted({*range(8), 50, key})


@pytest.mark.more
@pytest.mark.parametrize("key", [50, 51])
def test_P51_a_key_that_an_update_brings_conflicts_with_a_merge_that_inserts_it(
    warehouse: Warehouse, key: int
) -> None:
    """The MERGE also sets the key of a row to what it was, which changes no key."""
    one, other, third = *two(warehouse), warehouse.transaction()
    for txn, rows in ((one, [(1, "new"), (50, "new")]), (other, [(2, "x"), (7, "x")])):
        txn.table("db.t").merge(
            [{"id": number, "v": v, "p": number % 2} for number, v in rows],
            "t.id = s.id",
            when_matched_update="*",
            when_not_matched_insert="*",
        )
    third.table("db.t").update({"id": f"{key}"}, "id = 3")
    third.commit()
    other.commit()
    if key == 50:
        with pytest.raises(WriteConflict, match="inserted some meanwhile"):
            one.commit()
    else:
        one.commit()
    found = {*range(8)} - {3} | {50, key}
    assert values(warehouse.table("db.t")).keys() == found


def test_P38_a_merge_that_only_matches_is_compared_by_row(warehouse: Warehouse) -> None:
    one, other = two(warehouse)
    for txn, number in ((one, 1), (other, 3)):
        txn.table("db.t").merge(
            [{"id": number, "v": "merged", "p": 1}],
            "t.id = s.id",
            when_matched_update={"v": "s.v"},
            when_not_matched_insert="*",
        )
    one.commit()
    other.commit()
    found = values(warehouse.table("db.t"))
    assert [number for number, value in found.items() if value == "merged"] == [1, 3]


def test_P38_a_compaction_in_between_keeps_the_row_ids(warehouse: Warehouse) -> None:
    table = warehouse.table("db.t")
    table.update({"v": "'again'"}, "id = 1")
    one, other, third = *two(warehouse), warehouse.transaction()
    one.table("db.t").update({"v": "'one'"}, "id = 1")
    one.commit()
    table.compact("major")
    other.table("db.t").update({"v": "'other'"}, "id = 2")
    third.table("db.t").delete("id = 1")
    other.commit()
    with pytest.raises(WriteConflict, match="in row"):
        third.commit()
    assert values(table) == {n: "new" for n in range(8)} | {1: "one", 2: "other"}


@pytest.mark.parametrize("name", ["rows", "ROW"])
def test_P38_a_misspelt_detection_is_refused(warehouse: Warehouse, name: str) -> None:
    with pytest.raises(InvalidDefinition, match="'row', 'partition'"):
        warehouse.sql(f"ALTER TABLE db.t SET TBLPROPERTIES ('acid.conflict.detection'='{name}')")
    with pytest.raises(InvalidDefinition):
        warehouse.create_table("db.x", "id int", properties={"acid.conflict.detection": name})


shared = a_warehouse("local")


def test_P38_the_files_name_the_rows_that_the_writer_has_named(shared: Warehouse) -> None:
    """Spark's write path does not hand out the rows: they are read from the published files."""
    table = shared.create_table("db.files", "id int, v string", partitioned_by=["p int"])
    for first in (0, 1000):
        table.insert([{"id": first + n, "v": "new", "p": n % 2} for n in range(1000)])
    with shared.transaction() as txn:
        txn.table("db.files").update({"v": "'one'"}, "id % 7 = 0 or id between 300 and 400")
        named = {report.partition: report.rows for report in txn._changed.reports()}
        files, location = Files.of(table.location)
        for report in txn.reports:
            if report.directory.startswith("delete"):
                assert report.contents is not None
                directory = f"{location}/{report.partition}/{report.directory}"
                found = deleted_rows(files, directory, report.contents).row_set(1 << 20)
                assert found == named.pop(report.partition)
    assert not named


@pytest.mark.parametrize("detection", ["row", "partition"])
def test_P38_any_history_of_transactions_gives_what_a_naive_model_says(
    shared: Warehouse, detection: str
) -> None:
    history = History(shared, 1, detection=detection)
    history.play(["insert", "insert", *["crossed"] * 5])
    assert history.refused and history.joined, "a commit of each kind"
    history.require(history.table.to_arrow().to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("detection", ["row", "partition"])
@pytest.mark.parametrize("seed", range(2, 6))
def test_P38_many_histories_of_transactions(shared: Warehouse, seed: int, detection: str) -> None:
    history = History(shared, seed, detection=detection)
    for _ in range(10):
        history.play(["insert", "crossed"])
        history.require(history.table.to_arrow().to_pylist())
