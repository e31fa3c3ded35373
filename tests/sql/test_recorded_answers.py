"""Counts and bounds from the records of files are those of the rows that are decoded."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform import NeedsSpark, Warehouse
from acid_platform.engine.local.run_query import LocalResult
from acid_platform.engine.results import ArrowResult, Result
from acid_platform.scan.decode import FileRead
from tests.conftest import temporary_warehouse

COLUMNS = {
    "n": "smallint",
    "i": "int",
    "l": "bigint",
    "d": "decimal(9,2)",
    "x": "double",
    "e": "date",
    "m": "timestamp",
    "s": "string",
    "v": "varchar(5)",
    "c": "char(5)",
    "b": "boolean",
    "y": "binary",
    "nothing": "int",
}
_INF = float("inf")
VALUES: dict[str, list[Any]] = {
    "n": [None, -32768, 0, 32767],
    "i": [None, -(2**31), 5, 2**31 - 1],
    "l": [None, -(2**63), 0, 2**63 - 1],
    "d": [None, Decimal("-9999999.99"), Decimal("0.10"), Decimal("5")],
    "x": [None, -0.0, 0.0, float("nan"), _INF, -_INF, 1.5],
    "e": [None, datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)],
    "m": [None, datetime.datetime(1969, 12, 31, 23, 59, 59), datetime.datetime(2020, 1, 1)],
    "s": [None, "", "a", "a ", "ä", "z" * 31, "z" * 32, "z" * 40, "\U0001f3f3", "\uffff", "'\\"],
    "v": [None, "", "ab", "ab ", "abcde"],
    "c": [None, "", "ab", "abcde", "a b"],
    "b": [None, True, False],
    "y": [None, b"", b"\xff"],
    "nothing": [None],
}


def answered(warehouse: Warehouse, query: str) -> Result:
    answer = warehouse.sql(query)
    assert isinstance(answer, Result)
    return answer


rows = st.lists(
    st.fixed_dictionaries({k: st.sampled_from(v) for k, v in VALUES.items()}), max_size=4
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), rows),
        st.tuples(st.just("delete"), st.sampled_from(["i = 5", "p = 1", "n IS NULL", "true"])),
        st.tuples(st.just("update"), st.sampled_from(["i = 5", "s = 'a'"])),
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("recorded") / "wh", engine="local") as opened:
        declared = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        opened.create_table("db.t", declared, ["p int"])
        yield opened


@pytest.mark.slow
@settings(max_examples=60)
@given(steps=steps, data=st.data())
def test_what_records_answer_is_what_the_rows_say(
    warehouse: Warehouse, steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    table = warehouse.table("db.t")
    table.truncate()
    for number, (what, argument) in enumerate(steps):
        if what == "insert":
            table.insert(
                [{**row, "p": (number + place) % 3 or None} for place, row in enumerate(argument)]
            )
        elif what == "delete":
            table.delete(argument)
        else:
            table.update({"s": "'zz'", "d": "d + 1", "e": "date_add(e, -1)"}, argument)
    names = data.draw(st.lists(st.sampled_from([*COLUMNS]), min_size=1, max_size=4, unique=True))
    items = [f"{call}({name})" for name in names for call in ("min", "max", "count")]
    where = data.draw(st.sampled_from(["", " WHERE p = 1", " WHERE p IS NULL", " WHERE p > 7"]))
    select = f"SELECT {', '.join(items)}, count(*) FROM"
    recorded = answered(warehouse, f"{select} db.t{where}")
    decoded = answered(warehouse, f"{select} (SELECT * FROM db.t) t{where}")
    assert recorded.columns == decoded.columns
    ours, theirs = recorded.to_arrow(), decoded.to_arrow()
    assert ours.schema.types == theirs.schema.types
    assert repr(ours.to_pylist()) == repr(theirs.to_pylist())


def test_bounds_come_from_records_where_these_prove_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id int, s string, x double", ["p int"])
        table.insert([{"id": one, "s": f"s{one}", "x": one / 2, "p": one % 3} for one in range(9)])
        table.insert([{"id": 4, "s": None, "x": None, "p": 0}])
        table.delete("id = 4")
        whole = "SELECT min(id) AS a, max(id) AS b FROM db.t"
        with monkeypatch.context() as patch:
            patch.setattr(FileRead, "work", lambda *_: pytest.fail("decoded"))
            # The file of the deleted row has bounds within those of the others.
            assert answered(warehouse, whole).to_arrow().to_pylist() == [{"a": 0, "b": 8}]
            text = "SELECT min(s), count(s), count(*) FROM db.t WHERE p = 2"
            (row,) = answered(warehouse, text).to_arrow().to_pylist()
            assert [*row.values()] == ["s2", 3, 3]
        # Only the column without a record is read: the literals are those of the records.
        mixed = "SELECT max(id), max(x) AS x, min(s) FROM db.t WHERE p = 2"
        result = answered(warehouse, mixed)
        assert result.columns == ["max(id)", "x", "min(s)"]
        assert [*result.to_arrow().to_pylist()[0].values()] == [8, 4.0, "s2"]
        assert isinstance(result, LocalResult)
        (source,) = (make() for make in result.sources.values())
        assert [column.name for column in source.columns] == ["x", "p"]
        table.delete("id = 8")
        assert answered(warehouse, whole).to_arrow().to_pylist() == [{"a": 0, "b": 7}]


def test_a_bound_that_records_do_not_prove_is_read_where_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    decoded = FileRead.work

    def noted(file: FileRead, *rest: Any) -> Any:
        read.append(file.source.directory)
        return decoded(file, *rest)

    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id int, e date, d decimal(5,1), s string")
        for low in (10, 20, 30):
            table.insert(
                [
                    {"id": low + one, "e": datetime.date(2024, 1, one), "d": low, "s": f"{low}"}
                    for one in range(1, 6)
                ]
            )
        table.delete("id % 10 = 5")  # the greatest of each file
        table.insert([{"id": 0, "e": None, "d": None, "s": None}])
        monkeypatch.setattr(FileRead, "work", noted)
        for asked, expected, directories in (
            ("max(id)", 34, {"delta_0000003_0000003_0000"}),
            ("min(id)", 0, set[str]()),  # of a file without deletes
            ("max(s)", "30", {"delta_0000003_0000003_0000"}),
            ("min(s)", "10", {"delta_0000001_0000001_0000"}),
            ("min(d)", Decimal("10.0"), {"delta_0000001_0000001_0000"}),
            # No file has the day that all of them might have.
            ("max(e)", datetime.date(2024, 1, 4), {f"delta_{n:07}_{n:07}_0000" for n in (1, 2, 3)}),
        ):
            read.clear()
            result = answered(warehouse, f"SELECT {asked} AS a FROM db.t")
            assert isinstance(result, ArrowResult)
            assert result.to_arrow().to_pylist() == [{"a": expected}], asked
            assert set(read) == directories, asked
        table.delete("id > 0")
        result = answered(warehouse, "SELECT max(s) AS s, min(e) AS e, count(*) AS n FROM db.t")
        assert result.to_arrow().to_pylist() == [{"s": None, "e": None, "n": 1}]
        warehouse.metastore.set("acid.local.max.bytes", "100")
        warehouse.release()  # a new lease has this setting
        read.clear()
        with pytest.raises(NeedsSpark):
            answered(warehouse, "SELECT max(id) AS a FROM db.t")
        assert not read
