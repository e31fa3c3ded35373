"""Rows of callers: one table of declared types and values decides, for both engines alike."""

from __future__ import annotations

import datetime
import math
import random
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from acid_platform import (
    AcidError,
    InvalidDefinition,
    UnknownColumn,
    Warehouse,
    WrongType,
)
from acid_platform.engine.merge_clauses import MergeAction, MergeClause
from acid_platform.layout.types import Column, parse_columns, parse_type
from acid_platform.values.local_rows import local_table
from acid_platform.values.rows import column_names
from tests.conftest import a_warehouse
from tests.values.generated_rows import (
    LEAVES,
    NAN,
    REFUSED,
    comparable,
    random_type,
)

NOON = datetime.datetime(2024, 1, 1, 12)

local = a_warehouse("local")

with_spark = a_warehouse("spark", in_spark=True)

# --- each type with each kind of value ------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [kind for kind in LEAVES if not kind.startswith(("char", "varch"))]
)
def test_each_value_is_stored_whole_or_refused(kind: str) -> None:
    """At the top and below, as dicts and in a column of Python objects in pandas."""
    wrong = []
    for value, expected in LEAVES[kind]:
        nested = [{"F": value}]
        forms: dict[str, tuple[str, Any, object]] = {
            "dict": (kind, [{"c": value}], expected),
            "nested": (f"array<struct<f:{kind}>>", [{"c": nested}], [{"f": expected}]),
            "nested in pandas": (
                f"array<struct<f:{kind}>>",
                pd.DataFrame({"c": pd.Series([nested], dtype=object)}),
                [{"f": expected}],
            ),
        }
        for form, (declared, rows, stored) in forms.items():
            [column] = parse_columns(f"c {declared}")
            try:
                got: object = local_table(rows, [column], "db.t").column(0).to_pylist()[0]
            except (WrongType, UnknownColumn):
                got = REFUSED
            right = REFUSED if expected is REFUSED else stored
            if comparable(got) != comparable(right):
                wrong.append((form, value, got, right))
    assert not wrong


ARROW: list[tuple[str, pa.DataType, object, object]] = [
    ("int", pa.int64(), 7, 7),
    ("int", pa.int64(), 1 << 40, REFUSED),
    ("int", pa.float64(), 2.0, 2),
    ("int", pa.float64(), 2.5, REFUSED),
    ("int", pa.float64(), NAN, REFUSED),
    ("int", pa.string(), "7", REFUSED),
    ("int", pa.bool_(), True, REFUSED),
    ("int", pa.date32(), datetime.date(2024, 1, 1), REFUSED),
    ("int", pa.decimal128(5, 1), 1, 1),
    ("boolean", pa.int8(), 1, REFUSED),
    ("boolean", pa.string(), "yes", REFUSED),
    ("float", pa.float64(), 1e300, REFUSED),
    ("float", pa.float64(), 0.5, 0.5),
    ("double", pa.int64(), (1 << 53) + 1, REFUSED),
    ("double", pa.float32(), NAN, NAN),
    ("decimal(5,2)", pa.int64(), 7, Decimal("7.00")),
    ("decimal(5,2)", pa.float64(), 1.25, Decimal("1.25")),
    ("decimal(5,2)", pa.float32(), 0.1, Decimal("0.10")),
    ("decimal(20,0)", pa.float32(), 123456792.0, Decimal("123456792")),
    ("decimal(5,2)", pa.float64(), 1.255, REFUSED),
    ("decimal(5,2)", pa.float64(), NAN, REFUSED),
    ("decimal(5,2)", pa.string(), "1.25", Decimal("1.25")),
    ("decimal(5,2)", pa.string(), "1.255", REFUSED),
    ("decimal(5,2)", pa.string(), "one", REFUSED),
    ("decimal(5,2)", pa.decimal128(6, 4), Decimal("1.2550"), REFUSED),
    ("string", pa.large_string(), "x", "x"),
    ("string", pa.dictionary(pa.int8(), pa.string()), "x", "x"),
    ("string", pa.int16(), 7, "7"),
    ("string", pa.float64(), 7.0, REFUSED),
    ("string", pa.timestamp("us"), NOON, REFUSED),
    ("string", pa.binary(), b"x", REFUSED),
    ("binary", pa.string(), "x", REFUSED),
    ("date", pa.timestamp("us"), datetime.datetime(2024, 1, 1), datetime.date(2024, 1, 1)),
    ("date", pa.timestamp("us"), NOON, REFUSED),
    ("date", pa.string(), "2024-01-01", datetime.date(2024, 1, 1)),
    ("date", pa.dictionary(pa.int8(), pa.string()), "2024-01-01", datetime.date(2024, 1, 1)),
    ("date", pa.string(), "2024-01-32", REFUSED),
    ("timestamp", pa.large_string(), "2024-01-01 12:00", NOON),
    ("timestamp", pa.string(), "12:00", REFUSED),
    ("timestamp", pa.timestamp("ns"), pd.Timestamp(1), REFUSED),
    ("timestamp", pa.timestamp("s"), NOON, NOON),
    ("timestamp", pa.timestamp("us", "Asia/Tokyo"), NOON, NOON),
    ("timestamp", pa.date32(), datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)),
    ("timestamp", pa.int64(), 5, REFUSED),
    ("timestamp", pa.time64("us"), datetime.time(1), REFUSED),
]


@pytest.mark.parametrize(("kind", "given", "value", "expected"), ARROW)
def test_arrow_values_are_stored_whole_or_refused(
    kind: str, given: pa.DataType, value: object, expected: object
) -> None:
    """At the top, and below a large list of structs whose field is spelled in another case."""
    plain = pa.table({"c": pa.array([None, value], given)})
    field = pa.struct([("F", given)])
    deep = pa.table({"c": pa.array([None, [{"F": value}, None]], pa.large_list(field))})
    cut = pa.concat_tables([deep.slice(0, 0), deep, deep]).slice(1, 1)
    for declared, rows, stored in (
        (kind, plain.slice(1), expected),
        (f"array<struct<f:{kind}>>", cut, [{"f": expected}, None]),
    ):
        [column] = parse_columns(f"c {declared}")
        if expected is REFUSED:
            with pytest.raises(WrongType, match=r"column 'c' of db\.t is "):
                local_table(rows, [column], "db.t")
        else:
            made = local_table(rows, [column], "db.t").column(0).to_pylist()
            assert comparable(made) == comparable([stored])


DAY = datetime.date(2024, 1, 1)
BIG = Decimal("1e400")
OF_PANDAS: list[tuple[str, pd.Series, object]] = [
    ("int", pd.Series([1.5]), REFUSED),
    ("int", pd.Series([1.5, None], dtype="Float64"), REFUSED),
    ("bigint", pd.Series([1, None], dtype="Int64"), [1, None]),
    ("date", pd.Series([pd.Timestamp(NOON)]), REFUSED),
    ("date", pd.Series([pd.Timestamp(DAY), None]), [DAY, None]),
    ("double", pd.Series([0.5, BIG], dtype=object), REFUSED),
    ("array<double>", pd.Series([[0.5, BIG]], dtype=object), REFUSED),
    ("double", pd.Series([Decimal("-Infinity"), None], dtype=object), [-math.inf, None]),
    ("array<int>", pd.Series([[1], np.array([2, 3]), None], dtype=object), [[1], [2, 3], None]),
]


@pytest.mark.parametrize(("kind", "given", "expected"), OF_PANDAS)
def test_columns_of_pandas_are_stored_whole_or_refused(
    kind: str, given: pd.Series, expected: object
) -> None:
    [column] = parse_columns(f"c {kind}")
    rows = pd.DataFrame({"c": given})
    if expected is REFUSED:
        with pytest.raises(WrongType, match=r"column 'c' of db\.t is "):
            local_table(rows, [column], "db.t")
    else:
        assert local_table(rows, [column], "db.t").column("c").to_pylist() == expected


def test_rows_are_told_while_another_thread_imports_pandas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    assert column_names([{"id": 1}]) == ["id"]


def test_a_fault_is_told_with_its_path_and_row() -> None:
    columns = parse_columns("id int, s struct<o:array<map<string,struct<name:string,n:int>>>>")
    with pytest.raises(
        UnknownColumn,
        match=r"column 's\.o\[\]\[value\]' of db\.t: no field 'nmae'; its fields are name, n;"
        r" did you mean 'name'\?",
    ):
        local_table([{"s": {"o": [{"k": {"nmae": "x"}}]}}], columns, "db.t")
    rows = [{"id": 1}, {"id": 2, "s": {"o": [{}, {"k": {"n": 1}, "l": {"n": "x"}}]}}]
    with pytest.raises(
        WrongType, match=r"'x' \(str\) is no int.*at s\.o\[\]\[value\]\.n, in row 2"
    ):
        local_table(rows, columns, "db.t")
    money = parse_columns("a decimal(5,2)")
    values: list[object] = [Decimal("1.5"), 1.25, "2.50", None]
    for wrong, text in ((1.005, r"1\.005 \(float\)"), ("x", r"'x' \(str\)"), (9e9, "9000000000")):
        with pytest.raises(WrongType, match=rf"{text}.*\(in row 5\)"):
            local_table([{"a": value} for value in (*values, wrong)], money, "db.t")
    for array in (
        pa.chunked_array([[1.25, None], [2.5, 1.005]]),
        pa.chunked_array([["1.25", None], ["2.5", "1.005"]]),
        pa.chunked_array([[Decimal("1.250"), None], [Decimal("2.500"), Decimal("1.005")]]),
    ):
        with pytest.raises(WrongType, match=r"1\.005'? (\(|does not fit).*\(in row 4\)"):
            local_table(pa.table({"a": array}), money, "db.t")


def test_missing_values_of_pandas_are_null_and_nan_of_python_is_nan() -> None:
    columns = parse_columns("d double, o double, n double, l array<double>")
    frame = pd.DataFrame(
        {
            "d": [NAN],
            "o": pd.Series([NAN], dtype=object),
            "n": pd.array([None], "Float64"),
            "l": pd.Series([[NAN, None]], dtype=object),
        }
    )
    made = local_table(frame, columns, "db.t").to_pylist()
    assert comparable(made) == comparable([{"d": None, "o": None, "n": None, "l": [NAN, None]}])
    [made_of_dict] = local_table([{"d": NAN}], columns, "db.t").to_pylist()
    assert comparable(made_of_dict) == comparable({"d": NAN})


# --- frames of Spark ------------------------------------------------------------------------------

DEEP = "struct<o:array<struct<name:string,n:int>>,m:map<string,struct<a:int,b:int>>>"


@pytest.mark.slow
@pytest.mark.spark
def test_fields_of_frames_match_by_name(with_spark: Warehouse) -> None:
    spark = with_spark.spark
    table = with_spark.create_table("f.t", f"id int, s {DEEP}")
    frame = spark.sql(
        "SELECT 1 AS id, named_struct('m', map('k', named_struct('B', 2, 'a', 1)),"
        " 'O', array(named_struct('n', 5S, 'Name', 'x'), NULL)) AS S"
        " UNION ALL SELECT 2, NULL UNION ALL SELECT 3, named_struct('m', NULL, 'O', NULL)"
    )
    right = {
        1: {"o": [{"name": "x", "n": 5}, None], "m": [("k", {"a": 1, "b": 2})]},
        2: None,
        3: {"o": None, "m": None},
    }
    table.insert(frame)
    assert {row["id"]: row["s"] for row in table.to_arrow().to_pylist()} == right
    table.overwrite(frame)
    table.merge(frame, "t.id = s.id + 10", when_not_matched_insert="*")
    table.merge(frame, "t.id = s.id", {"s": "s.s"})
    assert table.count() == 6
    assert [row["s"] for row in table.to_arrow().to_pylist() if row["id"] == 1] == [right[1]] * 2
    table.update({"s": "named_struct('M', map('z', named_struct('b', 4)))"}, "id = 2")
    made = table.to_arrow(where="id = 2").to_pylist()[0]["s"]
    assert made == {"o": None, "m": [("z", {"a": None, "b": 4})]}
    # A value that differs each time is computed once: the field and its copy agree.
    volatile = "CASE WHEN rand() < 0.5 THEN named_struct('B', 1, 'a', 1) END"
    other = with_spark.create_table("f.volatile", "id bigint, s struct<a:int,b:int,c:int>")
    other.insert(spark.sql(f"SELECT id, {volatile} AS s FROM range(50)"))
    assert {repr(row["s"]) for row in other.to_arrow().to_pylist()} == {
        "None",
        "{'a': 1, 'b': 1, 'c': None}",
    }
    other.update({"s": volatile})
    assert {repr(row["s"]) for row in other.to_arrow().to_pylist()} == {
        "None",
        "{'a': 1, 'b': 1, 'c': None}",
    }


@pytest.mark.spark
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("named_struct('nosuch', 1)", r"'s'"),
        ("named_struct('o', array(named_struct('nmae', 'x')))", r"'s\.o\[\]'"),
        ("named_struct('m', map('k', named_struct('a', 1, 'A', 2)))", r"'s\.m\[value\]'"),
    ],
)
def test_an_unknown_field_of_a_frame_is_told(with_spark: Warehouse, value: str, path: str) -> None:
    table = with_spark.table("f.u") if "f.u" in with_spark.tables() else None
    table = table or with_spark.create_table("f.u", f"id int, s {DEEP}")
    frame = with_spark.spark.sql(f"SELECT 1 AS id, {value} AS s")
    told = rf"column {path} of f\.u: (no field|the field)"
    for verb in (
        lambda: table.insert(frame),
        lambda: table.overwrite(frame),
        lambda: table.merge(frame, "t.id = s.id", when_not_matched_insert="*"),
        lambda: table.update({"s": value}),
    ):
        with pytest.raises(UnknownColumn, match=told):
            verb()
    assert table.count() == 0


@pytest.mark.slow
@pytest.mark.spark
def test_a_number_of_a_frame_that_would_be_rounded_is_told(with_spark: Warehouse) -> None:
    spark = with_spark.spark
    declared = "id int, a decimal(5,2), d double, l array<struct<x:decimal(3,1)>>"
    table = with_spark.create_table("f.r", declared)
    for value in (
        "1.005D AS a",
        "CAST(1.255 AS decimal(6,3)) AS a",
        "9007199254740993L AS d",
        "array(named_struct('X', 1.25D)) AS l",
    ):
        name = value.rpartition(" ")[2]
        with pytest.raises(WrongType, match=rf"column {name} of f\.r is .* would be rounded"):
            table.insert(spark.sql(f"SELECT 1 AS id, {value}"))
    for value in ("double('NaN') AS a", "1000D AS a"):
        with pytest.raises(WrongType):
            table.overwrite(spark.sql(f"SELECT 1 AS id, {value}"))
    assert table.count() == 0
    exact = "12.1D AS a, 9007199254740992L AS d, array(named_struct('X', 1.5D), NULL) AS l"
    table.insert(spark.sql(f"SELECT 1 AS id, {exact} UNION ALL SELECT 2, NULL, NULL, NULL"))
    first, second = table.to_arrow().sort_by("id").to_pylist()
    assert first == {
        "id": 1,
        "a": Decimal("12.10"),
        "d": float(1 << 53),
        "l": [{"x": Decimal("1.5")}, None],
    }
    assert second == {"id": 2, "a": None, "d": None, "l": None}
    assert with_spark.sql("INSERT INTO f.r (id, a) SELECT 3, 1.257D").rows == 1  # type: ignore[union-attr]
    assert table.to_arrow(["a"], "id = 3").to_pylist() == [{"a": Decimal("1.26")}]


def test_an_unknown_field_of_a_local_result_is_told(local: Warehouse) -> None:
    source = local.create_table("r.s", "id int, s struct<a:int,typo:int>")
    source.insert([{"id": 1, "s": {"a": 1, "typo": 2}}])
    other = local.create_table("r.o", "id int, s struct<a:int>")
    other.insert([{"id": 2, "s": {"A": 5}}])
    table = local.create_table("r.t", "id int, s struct<b:int,a:int>")
    with pytest.raises(UnknownColumn, match=r"column 's' of r\.t: no field 'typo'"):
        table.insert(local.sql("SELECT * FROM r.s"))
    table.insert(local.sql("SELECT * FROM r.o"))
    assert table.to_arrow().to_pylist() == [{"id": 2, "s": {"b": None, "a": 5}}]


def test_every_verb_refuses_an_unknown_field(local: Warehouse) -> None:
    table = local.create_table("v.t", "id int, s struct<a:int>")
    rows = [{"id": 1, "s": {"b": 1}}]
    verbs: list[Callable[[Any], object]] = [
        table.insert,
        table.overwrite,
        lambda given: table.merge(given, "t.id = s.id", {"s": "s.s"}, None, "*"),
    ]
    for given in (rows, pd.DataFrame(rows), pa.Table.from_pylist(rows)):
        for verb in verbs:
            with pytest.raises(UnknownColumn, match="no field 'b'; its fields are a"):
                verb(given)
    assert table.count() == 0


def test_types_of_generated_rows_keep_their_text() -> None:
    chosen = random.Random(4)
    for _ in range(200):
        hive = random_type(chosen)
        assert parse_type(str(hive)) == hive
        assert parse_columns(f"`c` {hive}, d int")[0] == Column("c", hive)


def test_errors_are_those_of_the_platform() -> None:
    """No value of Python makes an exception of another kind."""
    strange: list[object] = [object(), 1j, {1}, range(3), iter([1]), type, lambda: 1, Path("x")]
    strange += [
        memoryview(b"x"),
        pa.scalar(1),
        pd.Series([1]),
        pd.Interval(0, 1),
        pd.Period("2024"),
    ]
    strange += [
        datetime.timedelta(1),
        datetime.time(1),
        {"a": 1},
        [[1]],
        (1, 2),
        slice(1),
        "\udfff",
    ]
    for declared in (*LEAVES, DEEP, "array<int>", "map<string,int>", "struct<a:int>"):
        [column] = parse_columns(f"c {declared}")
        for value in strange:
            try:
                local_table([{"c": value}], [column], "db.t")
            except AcidError:
                continue


# --- sources of MERGE with more columns -----------------------------------------------------------

CHANGES = [
    {"id": 1, "v": "new", "op": "U"},
    {"id": 2, "v": None, "op": "D"},
    {"id": 3, "v": "c", "op": "I"},
    {"id": 4, "v": "x", "op": "D"},
]


def _merge_changes(warehouse: Warehouse, name: str, source: Any) -> None:
    table = warehouse.create_table(name, "id int, v string")
    table.insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    clauses = [
        MergeClause(MergeAction.DELETE, None, "s.op = 'D'"),
        MergeClause(MergeAction.UPDATE, {"v": "concat(s.v, lower(s.OP))"}),
        MergeClause(MergeAction.INSERT, None, "s.op <> 'D'"),
    ]
    table.merge(source, "t.id = s.id", clauses=clauses)
    made = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert made == [{"id": 1, "v": "newu"}, {"id": 3, "v": "c"}]
    # Nothing reads `op`, which the table lacks.
    assert table.merge(source, "t.id = s.id", {"v": "s.v"}, None, "*").inserted == 2
    table.merge(source, "t.id = s.id", {"v": "s.v"})  # nothing is inserted by name


FORMS: dict[str, Callable[[Any], Any]] = {
    "dicts": list,
    "pandas": pd.DataFrame,
    "arrow": pa.Table.from_pylist,
}


@pytest.mark.more
@pytest.mark.parametrize("form", FORMS)
def test_a_source_may_have_more_columns(form: str, local: Warehouse) -> None:
    _merge_changes(local, f"m.{form}", FORMS[form](CHANGES))


@pytest.mark.parametrize("form", FORMS)
def test_a_column_of_a_source_that_is_misspelt_is_told(form: str, local: Warehouse) -> None:
    table = local.create_table(f"m.misspelt_{form}", "id int, status string")
    with pytest.raises(UnknownColumn, match=r"no column 'staus'; .* did you mean status"):
        source = FORMS[form]([{"id": 1, "staus": "new", "op": "I"}])
        table.merge(source, "t.id = s.id", when_not_matched_insert="*")
    source = FORMS[form]([{"id": 1, "staus": "new", "status": "old"}])
    assert table.merge(source, "t.id = s.id", when_not_matched_insert="*").inserted == 1


@pytest.mark.slow
@pytest.mark.spark
def test_a_source_may_have_more_columns_in_spark(
    with_spark: Warehouse,
) -> None:
    _merge_changes(with_spark, "m.dicts", CHANGES)
    frame = with_spark.spark.createDataFrame(pd.DataFrame(CHANGES))
    _merge_changes(with_spark, "m.frame", frame)


def test_further_columns_of_a_source_have_any_type_and_are_converted_alike(
    local: Warehouse,
) -> None:
    table = local.create_table("m.types", "id int, v string")
    table.insert([{"id": 1}])
    more = {"n": 1 << 40, "f": NAN, "none": None, "s": {"a": 1}, "l": [1], "at": NOON}
    on = "t.id = s.id AND s.n > 5 AND s.none IS NULL AND s.s.a = 1 AND s.at > '2024-01-01'"
    assert table.merge([{"id": 1, "v": "x", **more}], on, {"v": "s.v"}).updated == 1
    with pytest.raises(WrongType, match="half of a character"):
        table.merge([{"id": 1, "op": "\ud800"}], "t.id = s.id", {"v": "s.op"})
    with pytest.raises((WrongType, InvalidDefinition), match="column 'op'"):
        table.merge([{"id": 1, "op": 1}, {"id": 2, "op": "x"}], "t.id = s.id", {"v": "s.op"})


LISTS = [[1, 2], None, [], [3], [4, 5, 6]]


@pytest.mark.more
@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.large_list(pa.int32()),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.int32()),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [0, 2])
def test_every_kind_of_lists_keeps_its_elements(
    local: Warehouse, kind: pa.DataType, first: int
) -> None:
    name = "l." + str(kind).partition("<")[0] + str(first)
    table = local.create_table(name, "id int, v array<int>")
    rows = pa.table({"id": pa.array(range(5), pa.int32()), "v": pa.array(LISTS, kind)})
    table.insert(rows.slice(first))
    stored = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["v"] for row in stored] == LISTS[first:]


@pytest.mark.parametrize("warehouse", ["local", "with_spark"])
@pytest.mark.spark
def test_rows_after_an_empty_batch_are_stored(
    warehouse: str, request: pytest.FixtureRequest
) -> None:
    opened: Warehouse = request.getfixturevalue(warehouse)
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "at": [NOON, None]})
    parts = [rows.slice(0, 0), rows.slice(0, 1), rows.slice(0, 0), rows.slice(1)]
    for name, given in (("some", parts), ("none", parts[:1])):
        table = opened.create_table(f"e.{name}_{warehouse}", "id int, at timestamp")
        table.insert(pa.concat_tables(given))
        assert table.count() == (2 if name == "some" else 0)
