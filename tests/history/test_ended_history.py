"""An erasure may end the history of the partitions that held the rows, and of no other (P36)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest

from acid_platform import NotEnoughHistory, NotErased, Table, Warehouse
from acid_platform.base.location import Location
from acid_platform.spark_source import reads
from acid_platform.spark_source.options import Options, opened
from tests.acid_files import stored_rows
from tests.conftest import IN_ORC, a_warehouse, few_then_more
from tests.spark_source.places import forget

ANN = "v = 'ann'"
_numbers = count(1)

warehouse = a_warehouse("local")


def people(
    warehouse: Warehouse, partitioned: bool = True, properties: Mapping[str, str] = {}
) -> Table:
    """Two partitions with rows, of which one has Ann; all that they had stays for an hour."""
    table = warehouse.create_table(
        f"db.people{next(_numbers)}",
        "id int, v string" if partitioned else "id int, v string, p int",
        ["p int"] if partitioned else (),
        properties={"acid.history.retention": "1h", **properties},
    )
    names = ("ann", "bob", "cy", "dan")
    table.insert([{"id": n, "v": v, "p": 1 + n // 2} for n, v in enumerate(names)])
    table.tag("first")
    table.update({"v": "concat(v, '!')"}, "id = 1")
    table.compact("major", "p=1" if partitioned else None)
    table.update({"v": "concat(v, '?')"}, "id = 2")
    return table


def rows(table: Table, **past: object) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(**past).to_pylist())  # type: ignore[arg-type]


def files_with_ann(table: Table) -> list[str]:
    """By another reader, wherever they are."""
    paths = []
    for path in sorted(Path(table.location).rglob("bucket_*")):
        if any("ann" in row for row in stored_rows(path)):
            paths.append(str(path.relative_to(table.location)))
    return paths


@pytest.mark.more
def test_P36_the_history_of_the_erased_rows_ends_and_no_other(warehouse: Warehouse) -> None:
    table = people(warehouse)
    others = rows(table, where="p = 2", as_of=1)
    with pytest.raises(NotErased) as refused:
        table.erase(ANN)
    result = table.erase(ANN, report=True)
    assert not result.erased and files_with_ann(table)
    assert "1 rows deleted" in str(refused.value) and result.reasons()[0] in str(refused.value)
    assert "--end-history (end_history=True) ends the history of its partition" in str(result)
    assert (0, "ann", 1) in rows(table, as_of=1), "an erasure alone ends no history"
    now = rows(table)
    result = table.erase(ANN, end_history=True)
    assert result.erased and result.deleted == 0 and files_with_ann(table) == []
    assert rows(table) == now == [(1, "bob!", 1), (2, "cy?", 2), (3, "dan", 2)]
    for past in (1, 2, "first"):
        with pytest.raises(NotEnoughHistory, match=r"p=1 is kept since .* UTC: rows were erased"):
            table.to_arrow(as_of=past)
    for past in (1, "first"):
        assert rows(table, where="p = 2", as_of=past) == others
        assert table.count("p = 2", as_of=past) == 2
    query = f"SELECT id FROM {table.name} FOR SYSTEM_VERSION AS OF 1 WHERE p = {{}}"
    assert warehouse.sql(query.format(2)).to_arrow().num_rows == 2
    with pytest.raises(NotEnoughHistory, match="p=1"):
        warehouse.sql(query.format(1)).to_arrow()
    with pytest.raises(NotEnoughHistory, match="p=1"):
        table.rollback_to(1)
    with pytest.raises(NotEnoughHistory, match="p=1"):
        table.diff(1)


@pytest.mark.more
def test_P36_the_history_goes_on(warehouse: Warehouse) -> None:
    table = people(warehouse)
    assert table.erase(ANN, "p=1", end_history=True).erased
    table.insert([{"id": 7, "v": "eve", "p": 1}])
    last = table.history()[-1]["write_id"]
    then = rows(table)
    table.update({"v": "'x'"})
    table.compact("major", "p=1")
    table.compact("major", "p=2")
    assert rows(table, as_of=last) == then
    table.tag("second", as_of=last)
    assert rows(table, as_of="second") == then
    again = table.erase("id = 7", end_history=True)
    assert again.erased
    with pytest.raises(NotEnoughHistory, match="p=1"):
        table.to_arrow(as_of="second")


@pytest.mark.more
@pytest.mark.parametrize("partitioned", [True, False])
def test_P39_changes_of_before_are_refused_and_those_since_are_told(
    warehouse: Warehouse, partitioned: bool
) -> None:
    table = people(warehouse, partitioned)

    def read(**asked: object) -> list[tuple[object, ...]]:
        with warehouse.transaction() as txn:
            changed = txn.table(table.name).changes_arrow(**asked).read_all()  # type: ignore[arg-type]
        return sorted((row["id"], row["_change_type"]) for row in changed.to_pylist())

    assert len(read(consumer="mart")) == 4
    table.update({"v": "'x'"}, "id = 1")
    assert table.erase(ANN, end_history=True).erased
    with pytest.raises(NotEnoughHistory, match=r"rows were erased from its history .* ask since"):
        read(since=1)
    with pytest.raises(NotEnoughHistory, match="--forget mart"):
        read(consumer="mart")
    assert len(read()) == 3
    last = table.history()[-1]["write_id"]
    table.insert([{"id": 9, "v": "z", "p": 1}])
    assert read(since=last) == [(9, "insert")]


def test_P36_without_partitions_all_history_ends(warehouse: Warehouse) -> None:
    table = people(warehouse, partitioned=False)
    assert table.erase(ANN, end_history=True).erased
    assert files_with_ann(table) == []
    with pytest.raises(NotEnoughHistory, match=f"{table.name} is kept since"):
        table.to_arrow(as_of="first")
    assert len(rows(table)) == 3


@pytest.mark.parametrize("partitioned", [True, False])
def test_P36_the_data_source_refuses_a_history_that_was_ended(
    warehouse: Warehouse, partitioned: bool
) -> None:
    """It would read what is left of the files of then, as if they were all."""
    table = people(warehouse, partitioned)
    assert table.erase(ANN, end_history=True).erased
    location = Location.of(warehouse.path)

    def read(where: str) -> list[reads.ScanPart]:
        asked = {"warehouse": warehouse.path, "table": table.name, "asOf": "1", "where": where}
        options = Options.of(asked, "read")
        lease, columns = reads.take(options)
        try:
            return reads.parts(options, [column.name for column in columns], lease)
        finally:
            reads.release(location, lease)

    ended = "p=1 is kept since" if partitioned else f"{table.name} is kept since"
    with pytest.raises(NotEnoughHistory, match=ended):
        read("id >= 0")
    if partitioned:
        (part,) = read("p = 2")
        assert {entity.partition for entity in part.entities} == {"p=2"}
    forget(location)
    opened(location).close()
    opened.cache_clear()


@pytest.mark.more
def test_P36_an_open_reader_of_the_past_is_waited_for(warehouse: Warehouse, tmp_path: Path) -> None:
    table = people(warehouse)
    with warehouse.snapshot() as snapshot:
        then = snapshot.table(table.name).to_arrow(as_of=1).num_rows
        with pytest.raises(NotErased, match=r"call wh\.release\(\), or end its snapshot"):
            table.erase(ANN, end_history=True)
        assert then == 4
        assert snapshot.table(table.name).to_arrow().num_rows == 4
    assert table.erase(ANN, end_history=True).erased
    assert files_with_ann(table) == []


def test_P36_a_dropped_partition_has_a_history_that_ends(warehouse: Warehouse) -> None:
    table = people(warehouse)
    warehouse.sql(f"ALTER TABLE {table.name} DROP PARTITION (p=1)")
    assert (0, "ann", 1) in rows(table, as_of=1) and files_with_ann(table)
    assert not table.erase(ANN, report=True).erased
    assert table.erase(ANN, end_history=True).erased
    assert files_with_ann(table) == []
    with pytest.raises(NotEnoughHistory, match="p=1"):
        table.to_arrow(as_of=1)
    assert rows(table, where="p = 2", as_of=1) == [(2, "cy", 2), (3, "dan", 2)]


def test_what_no_history_keeps_ends_none(warehouse: Warehouse) -> None:
    table = people(warehouse)
    assert table.erase("id = 99", end_history=True).erased
    assert (0, "ann", 1) in rows(table, as_of=1)


def test_files_in_which_the_condition_cant_be_tested_count_as_holding_rows(
    warehouse: Warehouse,
) -> None:
    table = people(warehouse, properties=IN_ORC)
    table.rename_column("v", "w")
    with pytest.raises(NotErased, match="before the table's columns were changed") as refused:
        table.erase("w = 'ann'")
    assert str(refused.value).count("before the table's columns") == 2, "of two reasons"
    assert "end_history=True" in str(refused.value)
    assert table.erase("w = 'ann'", end_history=True).erased
    assert files_with_ann(table) == []
    for partition in ("p = 1", "p = 2"):
        with pytest.raises(NotEnoughHistory, match="is kept since"):
            table.to_arrow(where=partition, as_of=1)
    assert len(rows(table)) == 3


CHANGES = {
    "none": "",
    "ADD": "ADD COLUMNS (w string)",
    "RENAME": "RENAME COLUMN v TO w",
    "RENAME of the condition's": "RENAME COLUMN id TO w",
    "DROP": "DROP COLUMN v",
    "REPLACE": "REPLACE COLUMNS (id int, p int)",
    "wider": "CHANGE COLUMN id id bigint",
}
WAYS_OUT = {"own": "call wh.release()", "other": "run report", "retention": "end_history=True"}


@pytest.mark.parametrize("change", few_then_more(CHANGES, 1))
@pytest.mark.parametrize("keeper", ["nobody", *WAYS_OUT])
def test_P71_an_erasure_after_a_change_of_columns_names_who_keeps_the_files(
    warehouse: Warehouse, change: str, keeper: str
) -> None:
    table = warehouse.create_table(
        f"db.people{next(_numbers)}",
        "id int, v string, p int",
        properties={"acid.history.retention": "1h" if keeper == "retention" else "0s"},
    )
    table.insert([{"id": n, "v": v, "p": n % 2} for n, v in enumerate(("ann", "bob"))])
    where = "w = 0" if "condition" in change else "id = 0"
    with ExitStack() as stack:
        if keeper == "own":
            warehouse.duckdb()
        if keeper == "other":
            reader = Warehouse.open(warehouse.path, engine="local", run_id="report")
            stack.enter_context(closing(reader))
            stack.enter_context(reader.snapshot())
        if CHANGES[change]:
            warehouse.sql(f"ALTER TABLE {table.name} {CHANGES[change]}")
        if keeper != "nobody":
            with pytest.raises(NotErased, match=re.escape(WAYS_OUT[keeper])) as refused:
                table.erase(where)
            assert refused.value.erasure.remaining and "can't be read" not in str(refused.value)
            assert files_with_ann(table)
    warehouse.release()
    assert table.erase(where, end_history=keeper == "retention").erased
    assert files_with_ann(table) == []
