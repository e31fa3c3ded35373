"""write_mode="history" keeps the versions of a row, whatever the order in which they arrive."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid_platform import (
    AcidError,
    InvalidDefinition,
    SourceRowsAmbiguous,
    Warehouse,
    WriteConflict,
    WrongType,
)
from acid_platform.engine.interface import Result
from acid_platform.orchestration import (
    AcidOut,
    History,
    SparkResource,
    TableDeclaration,
    TableInput,
    WarehouseResource,
    acid_asset,
)
from acid_platform.orchestration.outputs import write
from tests.conftest import a_warehouse, temporary_warehouse

BEGIN = datetime.datetime(2024, 1, 1)
COLUMNS = "id int, v string, note string"

local = a_warehouse("local")


def day(number: int) -> datetime.datetime:
    return BEGIN + datetime.timedelta(days=number)


def out_of(table: str, history: History | None, columns: str = COLUMNS, **more: Any) -> AcidOut:
    return AcidOut(TableDeclaration(table, columns), "history", ["id"], history=history, **more)


def load(warehouse: Warehouse, out: AcidOut, rows: Any) -> None:
    with warehouse.transaction() as txn:
        write(warehouse, txn, out, rows, None)


def versions(warehouse: Warehouse, table: str) -> list[tuple[Any, ...]]:
    """(id, v, first day, last day or None); `is_current` is compared with the latter here."""
    rows = (
        warehouse.table(table)
        .to_arrow()
        .sort_by([("id", "ascending"), ("valid_from", "ascending")])
    )
    found = []
    for row in rows.to_pylist():
        assert row["is_current"] == (row["valid_to"] is None)
        ends = None if row["valid_to"] is None else (row["valid_to"] - BEGIN).days
        found.append((row["id"], row["v"], (row["valid_from"] - BEGIN).days, ends))
    return found


class Model:
    """By key the value since each time at which it changed; None is no row."""

    def __init__(self) -> None:
        self.since: dict[int, dict[int, str | None]] = {}

    def load(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            gone = row["gone"]
            self.since.setdefault(row["id"], {})[row["at"]] = None if gone else row["v"]
        for key, values in self.since.items():
            before: str | None = None
            changes: dict[int, str | None] = {}
            for at, value in sorted(values.items()):
                if value != before:
                    changes[at] = before = value
            self.since[key] = changes

    def versions(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for key, values in sorted(self.since.items()):
            times = sorted(values)
            for at, ends in zip(times, [*times[1:], None], strict=False):
                if values[at] is not None:
                    found.append((key, values[at], at, ends))
        return found


LOADS = st.lists(
    st.dictionaries(
        st.tuples(st.integers(1, 2), st.integers(0, 6)),
        st.sampled_from(["a", "b", None]),
        max_size=5,
    ),
    max_size=4,
)


def of_load(cells: dict[tuple[int, int], str | None]) -> list[dict[str, Any]]:
    return [
        {"id": key, "v": value or "-", "at": at, "gone": value is None}
        for (key, at), value in cells.items()
    ]


def check_loads(warehouse: Warehouse, loads: list[dict[tuple[int, int], str | None]]) -> None:
    table = f"h.t{len(warehouse.tables())}"
    out = out_of(table, History(changed_at="at", deleted="gone"))
    model = Model()
    load(warehouse, out, [{"id": 9, "v": "z", "at": day(0), "gone": False}])
    for cells in loads:
        rows = of_load(cells)
        model.load(rows)
        load(warehouse, out, [{**row, "at": day(row["at"])} for row in rows])
        assert versions(warehouse, table) == [*model.versions(), (9, "z", 0, None)]


@pytest.mark.more
@given(loads=LOADS)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_versions_follow_from_what_was_observed_whenever_it_arrives(
    loads: list[dict[tuple[int, int], str | None]], local: Warehouse
) -> None:
    check_loads(local, loads)


@pytest.mark.more
@given(loads=LOADS)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_of_many_orders(loads: list[dict[tuple[int, int], str | None]], local: Warehouse) -> None:
    check_loads(local, loads)


@pytest.mark.more
@pytest.mark.spark
def test_spark_finds_the_same_versions(tmp_path: Path, spark: Any) -> None:
    loads: list[dict[tuple[int, int], str | None]] = [
        {(1, 1): "a", (1, 4): "b", (2, 2): "a", (1, 6): None},
        {(1, 2): "b", (1, 3): None, (2, 2): "b", (2, 3): "b", (1, 5): "a"},
        {(1, 0): "a", (2, 6): None},
    ]
    with temporary_warehouse(tmp_path / "wh", spark, "spark") as warehouse:
        check_loads(warehouse, loads)
        out = out_of("h.frames", History(full=True))
        for rows in ([(1, "a", None), (2, "b", None)], [(1, "c", None)]):
            load(warehouse, out, spark.createDataFrame(rows, COLUMNS))
        found = [(id_, v, ends is None) for id_, v, _, ends in versions(warehouse, "h.frames")]
        assert found == [(1, "a", False), (1, "c", True), (2, "b", False)]


def test_a_full_load_ends_what_it_lacks(local: Warehouse) -> None:
    out = out_of("h.full", History(full=True))
    load(local, out, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    before = local.table("h.full").to_arrow()
    load(local, out, [{"id": 1, "v": "a"}, {"id": 3, "v": "c"}])
    rows = local.sql("SELECT * FROM h.full ORDER BY id").to_arrow().to_pylist()  # type: ignore[union-attr]
    assert [(row["id"], row["is_current"]) for row in rows] == [(1, True), (2, False), (3, True)]
    first, ended, last = rows
    assert first["valid_from"] == before["valid_from"][0].as_py()
    assert ended["valid_to"] == last["valid_from"] > first["valid_from"]
    load(local, out, [])
    assert local.sql("SELECT * FROM h.full WHERE is_current").count() == 0  # type: ignore[union-attr]
    load(local, out_of("h.full", None), [])  # no rows of a load that is not full say nothing


def test_an_unchanged_load_writes_nothing(local: Warehouse) -> None:
    out = out_of("h.same", None)
    load(local, out, [{"id": 1, "v": "a", "note": "x"}])
    before = local.table("h.same").history()
    load(local, out, [{"id": 1, "v": "a", "note": "x"}])
    assert len(local.table("h.same").history()) == len(before)


def test_other_columns_make_no_version(local: Warehouse) -> None:
    out = out_of("h.compare", History("at", compare=["V"]))
    load(local, out, [{"id": 1, "v": "a", "note": "x", "at": day(1)}])
    load(local, out, [{"id": 1, "v": "a", "note": "y", "at": day(2)}])
    load(local, out, [{"id": 1, "v": "b", "note": "z", "at": day(3)}])
    assert versions(local, "h.compare") == [(1, "a", 1, 3), (1, "b", 3, None)]
    notes = local.table("h.compare").to_arrow(["note"])["note"].to_pylist()
    assert sorted(notes) == ["x", "z"]


KINDS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [1, 2],
    "bigint": [2**62, 5],
    "float": [1.5, float("nan")],
    "double": [-0.0, 2.5],
    "decimal(38,2)": [1, 2],
    "date": [datetime.date(1583, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [BEGIN, day(1)],
    "timestamp with local time zone": [day(3).replace(tzinfo=datetime.UTC)],
    "char(4)": ["a", "b"],
    "varchar(4)": ["a", "b "],
    "binary": [b"\x00", b"\xff"],
    "array<int>": [[1, None], []],
    "map<string,int>": [{"a": 1}, {"b": None}],
    "struct<a:int,b:string>": [{"a": 1, "b": None}, {"a": None, "b": "x"}],
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_each_type_are_compared_and_kept(local: Warehouse, kind: str) -> None:
    table = f"h.kinds{len(local.tables())}"
    out = out_of(table, History("at"), f"id int, v {kind}")
    for _ in range(2):  # the second time nothing is new
        for number, value in enumerate([*KINDS[kind], None]):
            load(local, out, [{"id": 1, "v": value, "at": day(number)}])
    mine = local.table(table).to_arrow().sort_by("valid_from")
    plain = local.create_table(f"{table}_plain", f"id int, v {kind}")
    for number, value in enumerate([*KINDS[kind], None]):
        plain.insert([{"id": number, "v": value}])
    assert repr(mine["v"].to_pylist()) == repr(plain.to_arrow().sort_by("id")["v"].to_pylist())


def test_rows_without_a_time_or_with_two_states_at_once_are_refused(local: Warehouse) -> None:
    out = out_of("h.wrong", History("at"))
    with pytest.raises(SourceRowsAmbiguous, match="NULL in its key"):
        load(local, out, [{"id": 1, "v": "a", "at": None}])
    with pytest.raises(SourceRowsAmbiguous, match="several rows have the key id=1"):
        load(local, out, [{"id": 1, "v": v, "at": day(1)} for v in "ab"])
    with pytest.raises(AcidError, match="lack the key column at"):
        load(local, out, [{"id": 1, "v": "a"}])
    with pytest.raises(WrongType):
        load(local, out, [{"id": 1, "v": "a", "at": "never"}])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"columns": "id int, Valid_From date"}, "leave valid_from out"),
        ({"history": History(compare=["w"])}, "compare names the column 'w'"),
        ({"history": History(compare="v")}, r"must be a list: \['v'\]"),
        ({"history": History(full=True), "partition_expr": "day"}, "can't be full"),
        ({"write_mode": "upsert", "history": History()}, "needs write_mode='history'"),
        ({"key": []}, "needs key"),
        ({"partitioned_by": ("day date",)}, "can't move a row to another partition"),
    ],
)
def test_contradictions_are_found_when_the_module_is_loaded(
    arguments: dict[str, Any], why: str
) -> None:
    table = TableDeclaration(
        "h.t", arguments.pop("columns", COLUMNS), arguments.pop("partitioned_by", ())
    )
    with pytest.raises(InvalidDefinition, match=why):
        AcidOut(table, **{"write_mode": "history", "key": ["id"], **arguments})


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        yield warehouse.path


def test_an_asset_keeps_versions_and_checks_them(place: str) -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "v": "a"}]

    @acid_asset(table="h.customers", write_mode="history", key=["id"], history=History(full=True))
    def customers() -> pa.Table:
        return pa.Table.from_pylist(rows)

    resources = {
        "warehouse": WarehouseResource(path=place, engine="local"),
        "spark": SparkResource(),
    }
    for value in ("a", "b"):
        rows[0]["v"] = value
        result = dg.materialize([customers], resources=resources)
        [check] = result.get_asset_check_evaluations()
        assert (check.check_name, check.passed) == ("one_current_row", True)
    with Warehouse.open(place, engine="local") as warehouse:
        found = warehouse.table("h.customers").to_arrow()
    assert found.column_names == ["id", "v", "valid_from", "valid_to", "is_current"]
    assert sorted(found["is_current"].to_pylist()) == [False, True]


def test_a_change_feed_gives_a_version_for_each_commit(place: str) -> None:
    @acid_asset(
        table=TableDeclaration("h.states", "id int, v string"),
        write_mode="history",
        key=["id"],
        history=History(changed_at="_commit_timestamp", deleted="gone"),
        ins={"orders": TableInput("h.orders", changes=True)},
    )
    def states(orders: pa.Table) -> pa.Table:
        after = orders.filter(pc.field("_change_type") != "update_preimage")
        gone = pc.equal(after["_change_type"], "delete")
        return after.select(["id", "v", "_commit_timestamp"]).append_column("gone", gone)

    resources = {
        "warehouse": WarehouseResource(path=place, engine="local"),
        "spark": SparkResource(),
    }
    with Warehouse.open(place, engine="local") as warehouse:
        orders = warehouse.create_table("h.orders", "id int, v string")
        orders.insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
        dg.materialize([states], resources=resources)
        orders.update({"v": "'c'"}, "id = 1")
        orders.update({"v": "'d'"}, "id = 1")
        orders.delete("id = 2")
        dg.materialize([states], resources=resources)
        found = warehouse.sql("SELECT id, v, is_current FROM h.states ORDER BY id, valid_from")
        assert isinstance(found, Result)
        assert found.collect() == [
            (1, "a", False),
            (1, "c", False),
            (1, "d", True),
            (2, "b", False),
        ]


def test_two_runs_at_once_leave_one_current_version_of_a_new_key(local: Warehouse) -> None:
    out = out_of("h.at_once", None)
    load(local, out, [{"id": 1, "v": "a"}])
    with pytest.raises(WriteConflict), local.transaction() as second:
        write(local, second, out, [{"id": 2, "v": "c"}], None)
        load(local, out, [{"id": 2, "v": "b"}])
    load(local, out, [{"id": 2, "v": "c"}])
    current = local.sql("SELECT id, v FROM h.at_once WHERE is_current ORDER BY id")
    assert isinstance(current, Result)
    assert current.collect() == [(1, "a"), (2, "c")]
