"""A file that pruning leaves out has no row that the predicate accepts (P26)."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid_platform.formats.file_access import recorded_file
from acid_platform.layout.file_entries import ColumnRange, RangeKind
from acid_platform.layout.types import parse_columns
from acid_platform.scan.recorded_ranges import proves, pruned
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile
from acid_platform.storage.files import Files
from tests.acid_files import AcidTable, P, arrow_scan

COLUMNS = "i int, d decimal(10,2), s string, t date"
ROWS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-4, 4),
        "d": st.none() | st.integers(-4, 4).map(lambda one: Decimal(one) / 2),
        "s": st.none() | st.sampled_from(["", "a", "ab", "b", "é"]),
        "t": st.none() | st.integers(0, 4).map(lambda one: datetime.date(1969, 12, 30 + one % 2)),
    }
)
LITERALS = {
    "i": st.integers(-5, 5).map(str),
    "d": st.sampled_from(["-2.5", "-1", "0", "0.5", "2.00"]),
    "s": st.sampled_from(["''", "'a'", "'ab'", "'b'", "'c'", "'é'"]),
    "t": st.sampled_from(["DATE '1969-12-30'", "DATE '1969-12-31'", "DATE '1970-01-01'"]),
}


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(sorted(LITERALS)))
    literal = LITERALS[column]
    match draw(st.integers(0, 4)):
        case 0:
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 1:
            return f"{column} IN ({draw(literal)}, {draw(literal)})"
        case 2:
            return f"{column} BETWEEN {draw(literal)} AND {draw(literal)}"
        case 3:
            return f"{draw(literal)} {draw(OPERATORS)} {column}"
        case _:
            return f"{column} {draw(OPERATORS)} {draw(literal)}"


OPERATORS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>"])
PREDICATES = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=3,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(ROWS, min_size=1, max_size=4), where=PREDICATES)
def test_P26_a_pruned_file_has_no_row_for_the_predicate(
    tmp_path: Path, rows: list[dict[str, Any]], where: str
) -> None:
    table = AcidTable(tmp_path, COLUMNS)
    table.inserts(
        "d1",
        [(1, P, number, one["i"], one["d"], one["s"], one["t"]) for number, one in enumerate(rows)],
    )
    files, path = Files.of(str(table.file("d1")))
    entry = recorded_file(files, path, "bucket_00000")
    source = SourceFile(path, RowIdentity.STORED, entry.size, "d", 1, 1, ranges=entry.ranges)
    left = pruned(EntitySources("", (source,), ()), where, table.layout.columns).inserts
    if not left:
        found = arrow_scan(table.layout, *snapshot_of(), where=where).table()
        assert found.num_rows == 0, where


def snapshot_of() -> Any:
    from tests.notation import txns, write_ids

    return write_ids("9:M::"), txns()


RANGES = {
    "i": ColumnRange(RangeKind.INTEGER, 3, 5, 0),
    "n": ColumnRange(RangeKind.OTHER, None, None, 4, values=False),
    "s": ColumnRange(RangeKind.TEXT, "b", None, 1),
    "st": ColumnRange(RangeKind.OTHER, None, None, 0),
}


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("i = 4", True),
        ("i = 2", False),
        ("i > 5", False),
        ("i >= 5", True),
        ("i < 3", False),
        ("i <= 3", True),
        ("4 < i", True),
        ("5 < i", False),
        ("i = -4", False),
        ("i IN (1, 2)", False),
        ("i IN (1, NULL, 4)", True),
        ("i BETWEEN 6 AND 9", False),
        ("i BETWEEN 1 AND 3", True),
        ("i IS NULL", False),
        ("i IS NOT NULL", True),
        ("n IS NOT NULL", False),
        ("n = 1", False),
        ("n IS NULL", True),
        ("i = 2 OR i = 4", True),
        ("i = 2 OR i = 1", False),
        ("i = 4 AND i = 2", False),
        ("s = 'a'", False),
        ("s > 'zz'", True),
        ("s < 'b'", False),
        # Uncertain ranges prune nothing.
        ("NOT (i = 4)", True),
        ("i = '2'", True),
        ("i = 2e0", True),
        ("i + 1 = 0", True),
        ("abs(i) = 1", True),
        ("x = 1", True),
        ("st.i = 2", True),
        ("i = j", True),
        ("s = 5", True),
    ],
)
def test_P26_what_prunes_and_what_does_not(where: str, kept: bool) -> None:
    source = SourceFile("p", RowIdentity.STORED, 1, "d", 1, 1, ranges=RANGES)
    columns = parse_columns("i int, n int, s string, st struct<i:int>, j int, x int")
    found = pruned(EntitySources("", (source,), ()), where, columns)
    assert bool(found.inserts) is kept


@pytest.mark.parametrize(
    ("condition", "proven"),
    [
        ("i >= 3", True),
        ("i > 3", False),
        ("3 <= i", True),
        ("i IS NOT NULL", True),
        ("s IS NOT NULL", False),
        ("n IS NULL", True),
        ("n > 5", True),  # NULL is no violation
        ("i BETWEEN 3 AND 5", True),
        ("i BETWEEN 4 AND 5", False),
        ("i <> 6", True),
        ("i <> 4", False),
        ("i IN (3, 4, 5)", False),
        ("NOT i < 3", True),
        ("NOT (i = 4)", False),
        ("i >= 3 AND s >= 'b'", True),
        ("i >= 3 AND s < 'z'", False),
        ("i > 9 OR s >= 'b'", True),
        ("i > 9 OR length(s) > 1", False),
        ("i < 9 OR length(s) > 1", True),
        ("length(s) > 1", False),
        ("st.i > 1", False),
        ("x > 1", False),
    ],
)
def test_what_the_ranges_of_a_file_prove(condition: str, proven: bool) -> None:
    columns = parse_columns("i int, n int, s string, st struct<i:int>, j int, x int")
    assert proves(RANGES, condition, columns) is proven
    assert not proves({}, condition, columns)


def test_P26_a_column_of_another_type_than_its_file_prunes_nothing() -> None:
    source = SourceFile("p", RowIdentity.STORED, 1, "d", 1, 1, ranges=RANGES)
    assert pruned(EntitySources("", (source,), ()), "i = '2'", parse_columns("i string")).inserts


def test_P26_a_record_of_no_values_in_any_column_prunes_nothing() -> None:
    """Earlier versions recorded this for files of Hive's minor compaction, which have rows."""
    nothing = {"i": ColumnRange(RangeKind.OTHER, None, None, 9, False)}
    source = SourceFile("p", RowIdentity.STORED, 1, "d", 1, 1, ranges=nothing)
    assert pruned(EntitySources("", (source,), ()), "i < 5", parse_columns("i int")).inserts
