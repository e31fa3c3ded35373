"""A row group that is left out by the bounds of its values has no row of the predicate (F19)."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from acid_platform import Table, Warehouse
from acid_platform.formats import parquet
from acid_platform.formats.keyed_parquet import KeyedParquet
from acid_platform.scan.decode import FileRead
from acid_platform.scan.kept_columns import KEPT
from tests.conftest import a_warehouse
from tests.scan.test_file_pruning import PREDICATES

warehouse = a_warehouse("local")
ROWS_OF_GROUP = 3
DAY = datetime.date(1969, 12, 30)


def some_rows() -> Iterator[dict[str, Any]]:
    """Groups of NULL, of one value, of neighbours and of values that are far apart."""
    for number, (i, letter) in enumerate(product([None, -4, -1, 0, 3], [None, "", "a", "b", "é"])):
        yield {
            "i": i,
            "d": None if number % 7 == 0 else Decimal(number % 9 - 4) / 2,
            "s": letter,
            "t": None if i is None else DAY + datetime.timedelta(number % 3),
            "c": letter,
            "f": [None, float("nan"), -0.0, 0.0, 1.5][number // 5],
            "old": number,
        }


@pytest.fixture(scope="module")
def table(warehouse: Warehouse) -> Table:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "GROUP_ROWS", ROWS_OF_GROUP)
        table = warehouse.create_table(
            "db.t",
            "i int, d decimal(10,2), s string, t date, c char(3), f double, old int",
            properties={"acid.format": "parquet"},
        )
        table.insert([*some_rows()])
        table.delete("i = 3 AND s = 'a'")
        table.insert([{"i": 4, "s": "z", "old": n} for n in range(100, 107)])
    warehouse.sql("ALTER TABLE db.t DROP COLUMN old")
    warehouse.sql("ALTER TABLE db.t ADD COLUMNS (old int)")  # another one of the name
    warehouse.sql("ALTER TABLE db.t RENAME COLUMN s TO v")
    warehouse.sql("ALTER TABLE db.t RENAME COLUMN i TO s")
    warehouse.sql("ALTER TABLE db.t RENAME COLUMN v TO i")
    return table


def found(table: Table, where: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows with and without bounds."""
    by_bounds = table.to_arrow(where=where)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FileRead, "_promising", lambda _self, _file, pieces: pieces)
        every = table.to_arrow(where=where)
    assert by_bounds.schema == every.schema
    return tuple(
        [{name: repr(value) for name, value in row.items()} for row in rows.to_pylist()]
        for rows in (by_bounds, every)
    )  # type: ignore[return-value]


@pytest.mark.more
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=PREDICATES)
def test_F19_a_row_group_that_is_left_out_has_no_row_of_the_predicate(
    table: Table, where: str
) -> None:
    by_bounds, every = found(table, swapped(where))
    assert by_bounds == every


def swapped(where: str) -> str:
    """The predicate with the names that the columns `i` and `s` have since they were renamed."""
    return re.sub(r"\b[is]\b", lambda name: "is"[name[0] == "i"], where)


@pytest.mark.parametrize(
    "where",
    [
        "c = 'a'",
        "c < 'b'",
        "c IS NULL",
        "f = 0",
        "f > 1",
        "f >= -0.0",
        "NOT (f < 1)",
        "f IS NOT NULL",
        "old IS NULL",
        "old = 3",
        "i > 'b' OR s = 0",
    ],
)
def test_F19_bounds_of_other_columns_leave_nothing_out_that_counts(
    table: Table, where: str
) -> None:
    by_bounds, every = found(table, where)
    assert by_bounds == every


def test_row_groups_that_can_have_no_row_are_not_decoded(
    table: Table, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = set[int]()
    decode = KeyedParquet.decode

    def noted(file: KeyedParquet, piece: int, *given: Any) -> Any:
        if not file.holds_deletes():
            pieces.add(piece)
        return decode(file, piece, *given)

    monkeypatch.setattr(KeyedParquet, "decode", noted)
    assert table.to_arrow(where="s = -1").num_rows == 5
    assert pieces == {0, 3, 4}, "the rows 10 to 14, and the first, of which all bounds are NULL"
    KEPT.close()
    for _ in range(2):
        assert warehouse.sql("SELECT count(*) FROM db.t WHERE s < -3").to_arrow()[0][0].as_py() == 5
        assert pieces <= {0, 1, 2, 3, 4}
