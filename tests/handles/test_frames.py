"""Rows as people have them come in, and go out as they want them: frames, indexes, wall clocks."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from acid_platform import NoSuchPartition, UnknownColumn, Warehouse, WrongType
from acid_platform.engine.merge_clauses import MergeAction, MergeClause, MergeCounts

if TYPE_CHECKING:
    from acid_platform import Table

NOON = datetime.datetime(2024, 2, 29, 12)
DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def stored(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


# --- the index of pandas --------------------------------------------------------------------------


def test_an_index_with_a_name_is_a_column(warehouse: Warehouse) -> None:
    table = warehouse.create_table("i.named", "id int, v string, k int")
    frame = pd.DataFrame({"id": [1, 2], "v": ["a", "b"], "k": [5, 6]})
    table.insert(frame.set_index("id"))
    table.overwrite(frame.set_index(["id", "k"]))
    assert stored(table) == [(1, "a", 5), (2, "b", 6)]
    table.merge(frame.assign(v="c").set_index("k"), "t.id = s.id", {"v": "s.v"})
    assert stored(table) == [(1, "c", 5), (2, "c", 6)]
    with pytest.raises(UnknownColumn, match="no column 'other'"):
        table.insert(frame.rename_axis("other"))


def test_an_index_without_a_name_is_ignored_if_it_numbers_the_rows(warehouse: Warehouse) -> None:
    table = warehouse.create_table("i.numbers", "id int")
    frame = pd.DataFrame({"id": [1, 2, 3]})
    table.insert(frame[frame.id > 1])
    table.insert(pd.concat([frame[:1], frame[:1]]))
    table.insert(pd.DataFrame(columns=["id"]))
    assert stored(table) == [(1,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    "index",
    [
        ["a", "b"],
        [1.5, 2.5],
        pd.to_datetime(["2024-01-01", "2024-01-02"]),
        pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]),
        pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["k", None]),
    ],
    ids=["texts", "floats", "moments", "two levels", "half named"],
)
def test_any_other_index_without_a_name_is_refused(warehouse: Warehouse, index: Any) -> None:
    table = warehouse.create_table("i.refused", "id int", if_not_exists=True)
    frame = pd.DataFrame({"id": [1, 2]}, index=index)
    for verb in (table.insert, table.overwrite):
        with pytest.raises(WrongType, match=r"index without a name.*rename_axis.*reset_index"):
            verb(frame)
    with pytest.raises(WrongType, match="index without a name"):
        table.merge(frame, "t.id = s.id", when_not_matched_insert="*")
    assert table.count() == 0


def test_an_index_with_the_name_of_a_column_is_refused(warehouse: Warehouse) -> None:
    table = warehouse.create_table("i.twice", "id int")
    frame = pd.DataFrame({"id": [1]}).rename_axis("ID")
    with pytest.raises(UnknownColumn, match="'ID' is a column of the frame and the name of its"):
        table.insert(frame)


# --- rows of any library --------------------------------------------------------------------------


def test_arrow_is_taken_however_it_comes(warehouse: Warehouse) -> None:
    table = warehouse.create_table("a.t", "id int, v string")
    rows = pa.table({"ID": [1, 2], "v": ["a", "b"]})
    assert table.insert(rows.to_batches()[0]) == 2
    assert table.insert(rows.to_reader()) == 2
    assert table.merge(rows.to_reader(), "t.id = s.id", {"v": "'x'"}).updated == 4
    with pytest.raises(WrongType, match="a ChunkedArray has no rows with columns"):
        table.insert(pa.chunked_array([[1]]))
    assert table.insert(pa.array([{"id": 3}])) == 1  # lends an array, and no stream
    assert table.insert(warehouse.table("a.t")) == 5
    with pytest.raises(WrongType, match=r"a StructArray has no rows with columns: .*null"):
        table.insert(pa.array([{"id": 3}, None]))
    with pytest.raises(WrongType, match="for dicts give list"):
        table.insert(iter([{"id": 1}]))  # type: ignore[arg-type]


def test_a_reader_is_taken_once(warehouse: Warehouse) -> None:
    table = warehouse.create_table("a.once", "id int")
    rows = pa.table({"id": [1]})
    reader = rows.to_reader()
    table.insert(reader)
    for take in (table.insert, table.overwrite, table.coerced):
        with pytest.raises(WrongType, match="a RecordBatchReader gives its rows once"):
            take(reader)
    assert table.count() == 1

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows.to_batches()[0]
        raise ConnectionError("the source went away")

    with pytest.raises(ConnectionError, match="went away"):
        table.insert(pa.RecordBatchReader.from_batches(rows.schema, broken()))
    lent = pa.RecordBatchReader.from_batches(rows.schema, broken()).__arrow_c_stream__
    with pytest.raises(OSError, match="went away"):
        table.insert(SimpleNamespace(__arrow_c_stream__=lent))
    assert table.count() == 1


def test_an_empty_batch_is_not_the_end(warehouse: Warehouse) -> None:
    table = warehouse.create_table("a.batches", "id int, t array<timestamp>")
    rows = pa.table({"id": [1, 2, 3], "t": [[NOON], None, []]})
    parts = pa.concat_tables([rows[:0], rows[:2], rows[:0], rows[2:]])
    assert table.insert(parts) == 3 and table.insert(rows.schema.empty_table()) == 0
    assert table.merge(parts, "t.id = s.id", {"id": "s.id"}).updated == 3
    table.delete("id < 3")
    none = warehouse.sql("SELECT * FROM a.batches")
    assert table.overwrite(table.to_arrow()) == table.insert(none) == 1  # type: ignore[arg-type]


def test_a_frame_of_polars_is_taken(warehouse: Warehouse) -> None:
    import polars

    table = warehouse.create_table("a.polars", "id int, v string, l array<int>, s struct<x:int>")
    frame = polars.DataFrame({"id": [1], "v": ["a"], "l": [[1, None]], "s": [{"X": 3}]})
    table.insert(frame)
    table.insert(frame.lazy().filter(polars.col("id") > 1))
    row = {"id": 1, "v": "a", "l": [1, None], "s": {"x": 3}}
    assert table.to_polars().to_dicts() == polars.DataFrame(table).to_dicts() == [row]
    assert table.overwrite(frame.lazy()) == 1
    assert polars.DataFrame(table.batches(["id"], "id > 1")).to_dicts() == []


# --- partition columns ----------------------------------------------------------------------------

LACKING: dict[str, Callable[[], Any]] = {
    "dicts": lambda: [{"id": 1}],
    "pandas": lambda: pd.DataFrame({"id": [1]}),
    "arrow": lambda: pa.table({"id": [1]}),
}


@pytest.mark.parametrize("kind", LACKING)
def test_rows_without_a_partition_column_are_refused(warehouse: Warehouse, kind: str) -> None:
    name = f"p.{kind}"
    table = warehouse.create_table(name, "id int", partitioned_by=["d int", "k string"])
    rows = LACKING[kind]()
    why = "lacks? 'd', a partition column of p"
    for verb in (table.insert, table.overwrite):
        with pytest.raises(NoSuchPartition, match=why):
            verb(rows)
    with pytest.raises(NoSuchPartition, match=r"lacks? 'k'"):
        table.insert(rows, fixed={"d": "1"})
    with pytest.raises(NoSuchPartition, match=r"fixed names 'dd'; p\.\w+ has the .* columns d, k"):
        table.insert(rows, fixed={"dd": "1", "k": "x"})
    with pytest.raises(NoSuchPartition, match=why):
        table.merge(rows, "t.id = s.id", when_not_matched_insert="*")
    with pytest.raises(NoSuchPartition, match=r"without its partition column 'd'.*NULL is"):
        table.merge(rows, "t.id = s.id", when_not_matched_insert={"id": "s.id"})
    assert table.partitions() == []
    # The default partition is there for those who ask for it.
    table.insert(rows, fixed={"d": None, "k": "x"})
    everywhere = {"id": "s.id", "d": "2", "k": "NULL"}
    table.merge(rows, "t.id = s.id AND t.d = 2", when_not_matched_insert=everywhere)
    table.overwrite(rows, partition="d=7/k=z")
    assert table.partitions() == [f"d=2/k={DEFAULT}", "d=7/k=z", f"d={DEFAULT}/k=x"]
    assert table.merge(rows, "t.id = s.id AND t.d = 7", {"id": "3"}).updated == 1  # inserts none


def test_one_dict_without_a_partition_column_is_told(warehouse: Warehouse) -> None:
    table = warehouse.create_table("p.rows", "id int", ["d int"])
    with pytest.raises(NoSuchPartition, match="row 2 lacks 'd'"):
        table.insert([{"id": 1, "D": 1}, {"id": 2}])
    assert table.count() == 0
    table.insert([{"id": 1, "D": 1}, {"id": 2, "D": None}])
    assert table.partitions() == ["d=1", f"d={DEFAULT}"]
    assert table.insert([]) == 0 and table.insert(pd.DataFrame({"id": []})) == 0


# --- changes of a source --------------------------------------------------------------------------


NOTHING: dict[str, Callable[[], Any]] = {
    "list": lambda: [],
    "pandas": lambda: pd.DataFrame(),
    "arrow": lambda: pa.table({}),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_a_source_without_rows_and_columns_merges_nothing(warehouse: Warehouse, kind: str) -> None:
    table = warehouse.create_table(f"m.none_{kind}", "id int, v string", partitioned_by=["p int"])
    table.insert([{"id": 1, "v": "a", "p": 1}, {"id": 2, "v": "b", "p": 2}])
    before, on = stored(table), "t.id = s.id AND t.p = s.p AND s.op = 'u'"
    values = {"id": "s.id", "v": "s.v", "p": "s.p"}
    ways: tuple[dict[str, Any], ...] = (
        {"when_matched_update": {"v": "s.v"}},
        {"when_matched_update": "*"},
        {"when_matched_delete": "s.gone"},
        {"when_not_matched_insert": values},
        {"when_not_matched_insert": "*", "when_matched_update": {"v": "s.v"}},
    )
    for way in ways:
        for coerce in (False, True):
            counts = table.merge(NOTHING[kind](), on, **way, coerce=coerce)
            assert counts == MergeCounts(0, 0, 0)
    assert stored(table) == before
    # No row of the source matches the rows of the table.
    gone = MergeClause(MergeAction.DELETE, None, "t.id = 1", by_source=True)
    counts = table.merge(NOTHING[kind](), on, {"v": "s.v"}, clauses=[gone])
    assert counts == MergeCounts(deleted=1) and stored(table) == before[1:]


def test_the_rows_of_a_feed_are_merged_with_its_other_columns(warehouse: Warehouse) -> None:
    table = warehouse.create_table("c.t", "id int, v string")
    table.insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    feed = pd.DataFrame(
        {
            "op": ["U", "D", "I"],
            "v": ["A", None, "C"],
            "ts_ms": pd.to_datetime(["2024-01-01"] * 3),
            "id": [1, 2, 3],
        }
    ).set_index("id")
    clauses = [
        MergeClause(MergeAction.DELETE, None, "s.op = 'D'"),
        MergeClause(MergeAction.UPDATE, {"v": "s.v"}),
        MergeClause(MergeAction.INSERT, None, "s.op <> 'D'"),
    ]
    counts = table.merge(feed, "t.id = s.id", clauses=clauses)
    assert (counts.updated, counts.deleted, counts.inserted) == (1, 1, 1)
    assert stored(table) == [(1, "A"), (3, "C")]


# --- going out ------------------------------------------------------------------------------------


def test_timestamps_leave_in_one_form(warehouse: Warehouse) -> None:
    columns = "id int, t timestamp, l array<timestamp>, s struct<t:timestamp>"
    table = warehouse.create_table("o.t", f"{columns}, z timestamp with local time zone")
    table.insert([{"id": 1, "t": NOON, "l": [NOON, None], "s": {"t": NOON}, "z": NOON}])
    result = warehouse.sql("SELECT * FROM o.t")
    assert result.to_arrow().to_pylist() == table.to_arrow().to_pylist()  # type: ignore[union-attr]
    [row] = table.to_arrow().to_pylist()
    assert (row["t"], row["l"][0], row["s"]["t"]) == (NOON,) * 3
    assert row["z"] == NOON.replace(tzinfo=datetime.UTC)
    for text in ("SELECT max(t) AS t FROM o.t", "SELECT coalesce(t, t) AS t FROM o.t"):
        assert warehouse.sql(text).to_arrow().schema.field("t").type == pa.timestamp("us")  # type: ignore[union-attr]
    copy = warehouse.create_table("o.copy", columns)
    copy.insert(warehouse.sql("SELECT id, t, l, s FROM o.t"))  # type: ignore[arg-type]
    assert copy.to_arrow().to_pylist() == [{key: row[key] for key in row if key != "z"}]


def test_frames_and_first_rows(warehouse: Warehouse) -> None:
    table = warehouse.create_table("o.rows", "id int, v string")
    table.insert([{"id": number, "v": str(number)} for number in range(10)])
    assert len(table.head()) == 5
    assert table.head(3, ["id"], "id >= 4").to_dict("list") == {"id": [4, 5, 6]}
    assert table.head(100).equals(table.to_pandas()) and len(table.head(0)) == 0
    assert list(table.head(0).columns) == ["id", "v"]
    table.delete("id < 9")
    assert len(table.head(1, as_of=1)) == 1 and table.to_pandas()["id"].tolist() == [9]
    result = warehouse.sql("SELECT * FROM o.rows WHERE id < 0 OR v = '9'")
    assert result.head(1).to_dict("list") == {"id": [9], "v": ["9"]}  # type: ignore[union-attr]
    with warehouse.snapshot() as snapshot:
        assert snapshot.table("o.rows").head()["v"].tolist() == ["9"]


def test_without_polars_the_error_names_it(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table("o.none", "id int", if_not_exists=True)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ModuleNotFoundError, match="polars"):
        table.to_polars()
