"""Transactions that change different rows of one partition both commit, in both engines (P38)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid_platform import AcidError, InvalidDefinition, Table, Transaction, Warehouse, WriteConflict
from acid_platform.storage.files import Files
from acid_platform.write.publishing import deleted_rows
from tests.conftest import a_warehouse, temporary_warehouse

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


# --- against a naive model -----------------------------------------------------------------------


@dataclass
class Naive:
    """A transaction on rows that are keyed by id, as they were when it began."""

    txn: Transaction
    seen: dict[int, str]
    began: int
    changed: set[int] = field(default_factory=set)
    """The ids that it updated or deleted, among those that it saw."""
    own: dict[int, str | None] = field(default_factory=dict)
    """What it leaves of each id that it touched; None: deleted."""
    ran: bool = False
    """Whether it ran an UPDATE or DELETE, even one that matched no row (T38)."""


ids = st.sets(st.integers(0, 7), min_size=1, max_size=3)
steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["update", "update", "delete", "insert", "commit", "commit", "compact"]),
        ids,
    ),
    min_size=6,
    max_size=18,
)

shared = a_warehouse("local")

_NUMBERS = itertools.count()


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


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps, st.sampled_from(["row", "partition"]))
def test_P38_any_history_of_transactions_gives_what_a_naive_model_says(
    shared: Warehouse, history: list[tuple[int, str, set[int]]], detection: str
) -> None:
    """A commit succeeds if and only if no other changed its rows (or any row) since it began; no
    update is lost, and no row becomes two."""
    name = f"db.t{next(_NUMBERS)}"
    properties = {"acid.conflict.detection": detection}
    table = shared.create_table(name, "id int, v string", properties=properties)
    table.insert([{"id": number, "v": "new"} for number in range(8)])
    rows = dict.fromkeys(range(8), "new")
    commits: list[tuple[set[int], bool]] = []
    """The ids that each commit changed, and whether it ran an UPDATE or DELETE."""
    open_now: dict[int, Naive] = {}
    for number, (actor, verb, chosen) in enumerate(history):
        if verb == "compact":
            with suppress(AcidError):
                table.compact("major" if len(chosen) > 1 else "minor")
            continue
        if actor not in open_now:
            open_now[actor] = Naive(shared.transaction(), dict(rows), len(commits))
        naive = open_now[actor]
        view = naive.seen | naive.own
        mine = naive.txn.table(name)
        where = f"id in ({', '.join(map(str, chosen))})"
        matched = {key for key in chosen if view.get(key) is not None}
        if verb == "insert":
            naive.own[100 + number] = "inserted"
            mine.insert([{"id": 100 + number, "v": "inserted"}])
        elif verb == "update":
            assert mine.update({"v": f"'{number}'"}, where) == len(matched)
            naive.own |= dict.fromkeys(matched, str(number))
            naive.changed |= matched
            naive.ran = True
        elif verb == "delete":
            assert mine.delete(where) == len(matched)
            naive.own |= dict.fromkeys(matched)
            naive.changed |= matched
            naive.ran = True
        else:
            del open_now[actor]
            missed = commits[naive.began :]
            lost = any(changed & naive.changed for changed, _ in missed)
            if detection == "partition":
                lost = naive.ran and any(ran for _, ran in missed)
            if lost:
                with pytest.raises(WriteConflict):
                    naive.txn.commit()
                continue
            naive.txn.commit()
            commits.append((naive.changed, naive.ran))
            for key, value in naive.own.items():
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
            assert values(table) == rows
    for naive in open_now.values():
        naive.txn.abort()
    assert values(table) == rows
