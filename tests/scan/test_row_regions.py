"""A region has every row that a condition accepts, or that was inserted; where two regions miss
each other, no row is in both (P51)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform.engine.merge_clauses import region_of_keys
from acid_platform.layout.file_entries import (
    ColumnRange,
    FileEntry,
    Footer,
    RangeKind,
    RecordedFiles,
    text_range,
)
from acid_platform.layout.types import parse_columns
from acid_platform.predicates.arrow_predicates import arrow_predicate
from acid_platform.scan.recorded_ranges import columns_read, equal_columns, region_of_condition
from acid_platform.scan.row_regions import FIRST_DAY, region_of_files, region_of_partition
from acid_platform.transactions import row_sets
from acid_platform.transactions.row_sets import EVERY, ColumnSpans, KeyHashes, Region, Span, united
from acid_platform.values.arrow_types import arrow_schema
from tests.scan.test_file_pruning import COLUMNS, PREDICATES, ROWS

TYPES = parse_columns(COLUMNS)
SCHEMA = arrow_schema(TYPES)
KINDS = {
    "i": RangeKind.INTEGER, "d": RangeKind.DECIMAL, "s": RangeKind.TEXT, "t": RangeKind.DATE
}  # fmt: skip
Row = dict[str, Any]
LISTS = st.lists(ROWS, min_size=1, max_size=4)


def files_of(rows: Sequence[Row], unknown: Sequence[str] = ()) -> RecordedFiles:
    """A file for each two rows, with the ranges that a commit records."""
    files = []
    for start in range(0, len(rows), 2):
        part, ranges = rows[start : start + 2], {}
        for name, kind in KINDS.items():
            values = [row[name] for row in part if row[name] is not None]
            nulls = len(part) - len(values)
            if name in unknown:
                continue
            if kind is RangeKind.DATE:
                values = [value.toordinal() - FIRST_DAY for value in values]
            if not values:
                ranges[name] = ColumnRange(kind, None, None, nulls, False)
            elif kind is RangeKind.TEXT:
                ranges[name] = text_range(min(values), max(values), nulls)
            else:
                ranges[name] = ColumnRange(kind, min(values), max(values), nulls)
        files.append(FileEntry(f"bucket_{start}", 1, Footer(len(part), True), ranges=ranges))
    return RecordedFiles(tuple(files))


def accepted(where: str, rows: Sequence[Row]) -> bool:
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    mask = arrow_predicate(where, TYPES, "db.t").mask(
        {name: table.column(name).combine_chunks() for name in table.column_names}
    )
    return True in (mask.to_pylist() if isinstance(mask, pa.Array) else [mask.as_py()])


@pytest.mark.more
@settings(max_examples=400)
@given(PREDICATES, LISTS, st.lists(st.sampled_from(sorted(KINDS))))
def test_P51_a_condition_meets_the_files_of_each_row_that_it_accepts(
    where: str, rows: list[Row], unknown: list[str]
) -> None:
    sought = region_of_condition(where, TYPES)
    found = region_of_files(files_of(rows, unknown), TYPES)
    if accepted(where, rows):
        assert sought.meets(found), (where, str(sought), str(found))
    assert sought.meets(EVERY) and EVERY.meets(found)


@pytest.mark.more
@settings(max_examples=400)
@given(PREDICATES, PREDICATES, st.sampled_from(["AND", "OR"]), LISTS, st.integers(1, 3))
def test_P51_what_joins_regions_loses_no_row(
    one: str, other: str, word: str, rows: list[Row], most: int
) -> None:
    """Also if spans and regions are few."""
    before = row_sets.MOST_SPANS
    row_sets.MOST_SPANS = most
    try:
        sides = [region_of_condition(each, TYPES) for each in (one, other)]
        joined = sides[0].both(sides[1]) if word == "AND" else sides[0].either(sides[1])
        found = region_of_files(files_of(rows), TYPES)
        if accepted(f"({one}) {word} ({other})", rows):
            assert joined.meets(found)
        if any(accepted(each, rows) for each in (one, other)):
            told = [("db.t", side) for side in sides]
            for limit in (0, 60, 10_000):
                assert any(region.meets(found) for _, region in united(told * most * 40, limit))
    finally:
        row_sets.MOST_SPANS = before


@pytest.mark.more
@pytest.mark.parametrize("keys", [["i"], ["s", "i"], ["t"], ["d", "s"]])
@settings(max_examples=150)
@given(source=LISTS, inserted=LISTS)
def test_P51_keys_meet_exactly_the_rows_that_have_them(
    keys: list[str], source: list[Row], inserted: list[Row]
) -> None:
    def key_rows(rows: Sequence[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, SCHEMA).select(keys)

    def known(rows: Sequence[Row]) -> set[tuple[object, ...]]:
        each = {tuple(row[name] for name in keys) for row in rows}
        return {key for key in each if None not in key}

    sought = region_of_keys(key_rows(source), TYPES, stored=False)
    brought = region_of_keys(key_rows(inserted), TYPES, stored=True)
    assert sought.meets(brought) == bool(known(source) & known(inserted))
    if known(source) & known(inserted):
        assert sought.meets(region_of_files(files_of(inserted), TYPES))
    if len(inserted) == 1:  # its one key is told by the values of its columns as well
        told = Region(
            {
                name: region_of_keys(key_rows(inserted), TYPES, stored=True).columns[name]
                for name in keys
            }
        )
        assert sought.meets(told) == told.meets(sought) == bool(known(source) & known(inserted))


def keys_of(
    values: Sequence[object], kind: pa.DataType, declared: str, stored: bool
) -> KeyHashes | None:
    table = pa.table({"k": pa.array(values, kind)})
    return region_of_keys(table, parse_columns(f"k {declared}"), stored).keys


def test_P51_equal_values_of_several_types_are_one_key() -> None:
    five = keys_of([5], pa.int64(), "int", False)
    assert five is not None
    for values, kind in (([5], pa.int8()), ([Decimal("5.00")], pa.decimal128(9, 2))):
        assert keys_of(values, kind, "int", False) == five
    assert keys_of([Decimal("5.00")], pa.decimal128(9, 2), "decimal(9,2)", True) == five


@pytest.mark.parametrize(
    ("kind", "values", "declared"),
    [
        (pa.decimal128(9, 4), [Decimal("1.2345")], "decimal(9,2)"),
        (pa.decimal128(9, 4), [Decimal("1.2345")], "int"),
        (pa.string(), ["a  "], "varchar(1)"),
        (pa.string(), ["1"], "int"),
        (pa.int32(), [1], "string"),
        (pa.float64(), [1.0], "double"),
        (pa.string(), ["a"], "char(3)"),
    ],
)
def test_P51_what_a_column_stores_otherwise_has_no_known_key(
    kind: pa.DataType, values: list[object], declared: str
) -> None:
    assert keys_of(values, kind, declared, True) is None


def test_P51_more_keys_than_are_told_leave_the_spans() -> None:
    many = pa.table({"i": pa.array(range(5000), pa.int32())})
    region = region_of_keys(many, TYPES, stored=False)
    assert region.keys is None and region.columns == {"i": ColumnSpans.of([(0, 4999)])}


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("i = 5 AND s = 'a'", "i 5 and s a"),
        ("i IN (1, 3)", "i 1, 3"),
        ("i > 5 OR i < 2", "i 5 to …, … to 2"),
        ("i BETWEEN 1 AND 3 AND upper(s) = 'A'", "i 1 to 3"),
        ("i = 1 OR s = 'a'", "any row"),
        ("NOT (i = 1)", "any row"),
        ("t.i = 1", "any row"),
        ("i = d", "any row"),
        ("i = '1'", "any row"),
        ("5 < i", "i 5 to …"),
        ("i = 1.5", "i 1 to 2"),
        ("i = 1 AND i = 2", "i NULL"),
    ],
)
def test_P51_what_a_condition_tells(where: str, told: str) -> None:
    assert str(region_of_condition(where, TYPES)) == told


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("i = 5 AND upper(s) = 'A'", "i s"),
        ("t IS NULL OR i = 1", "i t"),
        ("x.i = 1 AND x.d > m.s AND x.t = m.k", "d i t"),
        ("rand() < 0.5", ""),
        ("exists(array(1), e -> e = i)", ""),
        ("i IN (SELECT i FROM u)", ""),
        ("i = = 1", ""),
    ],
)
def test_P51_the_columns_that_decide_a_condition(where: str, read: str) -> None:
    assert columns_read([where], TYPES, "m") == tuple(read.split())
    assert columns_read(["i = 1", where], TYPES, "m") in ((), tuple(sorted({"i", *read.split()})))


@pytest.mark.parametrize("number", ["1E+9999999", "1E-9999999", "9" * 41])
def test_P51_numbers_of_many_digits_are_no_keys(number: str) -> None:
    region = Region({"i": ColumnSpans(True, (Span(number, number),))}).checked()
    keyed = Region({}, KeyHashes.of(["i"], [(5,)]))
    assert region.meets(keyed) and keyed.meets(region)


def test_P51_a_condition_on_the_table_of_a_merge_and_its_equal_columns() -> None:
    on = "t.i = s.k AND s.s = t.s AND t.d = 5 AND t.t < s.t AND lower(t.s) = s.s"
    assert equal_columns(on, ("t", "s")) == {"i": "k", "s": "s"}
    assert str(region_of_condition(on, TYPES, "t")) == "d 5"


@pytest.mark.parametrize(
    ("partition", "where", "meets"),
    [
        ("p=3/q=a%2Fb", "p = 3 AND q = 'a/b'", True),
        ("p=03/q=x", "p = 3", True),
        ("p=3/q=x", "p = 4", False),
        ("p=3/q=x", "q = 'y'", False),
        ("p=__HIVE_DEFAULT_PARTITION__/q=x", "p = 3", False),
        ("p=__HIVE_DEFAULT_PARTITION__/q=x", "p IS NULL", True),
    ],
)
def test_P51_a_partition_is_told_by_its_values(partition: str, where: str, meets: bool) -> None:
    columns = parse_columns("p int, q string")
    found = region_of_partition(partition, columns)
    assert region_of_condition(where, columns).meets(found) is meets


def test_P51_long_texts_stay_bounds() -> None:
    low, high = "b" * 100, "b" * 101
    region = Region({"s": ColumnSpans.of([(low, high)])})
    for text, meets in (("a", False), ("b" * 100, True), ("c", True)):
        assert region.meets(Region({"s": ColumnSpans.of([(text, text)])})) is meets
