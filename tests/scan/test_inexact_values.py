"""Values that no column of their type holds, in files of other programs: decimals with more digits
than their file says, and nanoseconds. Both engines refuse them, whoever reads (P64)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc, parquet

from acid_platform import AcidError, Warehouse, WrongType
from acid_platform.formats.orc import ACID_COLUMNS
from acid_platform.formats.orc.protobuf import delimited, fields, number
from acid_platform.values.stored_values import beyond_digits
from tests.conftest import few_then_more, temporary_warehouse
from tests.scan.test_files_of_others import with_tail

IN_SPARK = pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.more])


@pytest.fixture(scope="module", params=["local", IN_SPARK])
def warehouse(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warehouse]:
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    path = tmp_path_factory.mktemp("warehouse") / "wh"
    with temporary_warehouse(path, spark, request.param) as opened:
        yield opened


_NUMBERS = count()
PLACES = ("full ACID", "insert-only ORC", "insert-only Parquet", "external ORC", "external Parquet")
LARGE = Decimal(10) ** 15
NANOS = pa.array([1_709_208_000_123_456_789, None], pa.timestamp("ns"))
WHOLE = pa.array([1_709_208_000_123_456_000, None], pa.timestamp("ns"))


def decimals(digits: int, value: Decimal = LARGE) -> pa.Array:
    return pa.array([value, None], pa.decimal128(digits, 2))


def in_list(column: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays([0, 1, 2], column)


def in_orc(table: pa.Table, digits: tuple[int, int] | None, statistics: bool = True) -> bytes:
    """`digits`: how many decimals have, and how many the file says."""
    content = io.BytesIO()
    orc.write_table(table, content, compression="uncompressed")

    def changed(footer: bytes) -> bytes:
        parts = []
        for field in fields(footer):
            raw = field.raw
            if field.number == 4 and digits and field.payload.startswith(b"\x08\x0e"):
                raw = delimited(4, b"\x08\x0e" + number(5, digits[1]) + number(6, 2))
            parts.append(raw if statistics or field.number != 7 else b"")
        return b"".join(parts)

    return with_tail(content.getvalue(), changed)


def in_parquet(table: pa.Table, digits: tuple[int, int] | None, int96: bool = False) -> bytes:
    content = io.BytesIO()
    options = {"store_decimal_as_integer": True, "use_deprecated_int96_timestamps": int96}
    parquet.write_table(table, content, store_schema=False, **options)
    whole = content.getvalue()
    if digits:
        old, new = (b"\x15\x04\x15" + bytes([2 * each]) for each in digits)
        assert whole.count(old) == 2
        whole = whole.replace(old, new)
    return whole


def keyed(table: pa.Table) -> pa.Table:
    """The rows with the columns of an ACID file of write id 1, bucket 0."""
    rows = len(table)
    ids = [[0] * rows, [1] * rows, [536870912] * rows, list(range(rows)), [1] * rows]
    kinds = (pa.int32(), pa.int64(), pa.int32(), pa.int64(), pa.int64())
    arrays = [pa.array(values, kind) for values, kind in zip(ids, kinds, strict=True)]
    row = pa.StructArray.from_arrays(
        [column.combine_chunks() for column in table.columns], table.column_names
    )
    return pa.table([*arrays, row], names=list(ACID_COLUMNS))


def made(
    warehouse: Warehouse,
    root: Path,
    place: str,
    column: pa.Array,
    kind: str,
    digits: tuple[int, int] | None = None,
    **options: bool,
) -> str:
    """The name of a table with the column `v` of the type, and `id`."""
    name, rows = f"db.v{next(_NUMBERS)}", pa.table({"id": [1, 2], "v": column})
    home = root / name
    stored = place.rpartition(" ")[2].lower()
    columns = f"id bigint, v {kind}"
    if place == "full ACID":
        rows, stored = keyed(rows), "orc"
    content = (in_orc if stored == "orc" else in_parquet)(rows, digits, **options)
    if place.startswith("external"):
        home.mkdir(parents=True)
        (home / "000000_0").write_bytes(content)
        warehouse.sql(
            f"CREATE EXTERNAL TABLE {name} ({columns}) STORED AS {stored} LOCATION '{home}'"
        )
        return name
    delta = home / "delta_0000001_0000001_0000"
    delta.mkdir(parents=True)
    (delta / ("bucket_00000" if place == "full ACID" else "000000_0")).write_bytes(content)
    properties = {"transactional_properties": "insert_only", "acid.format": stored}
    given = None if place == "full ACID" else properties
    with pytest.warns(UserWarning, match="count as committed"):
        warehouse.adopt_table(name, home, columns, properties=given)
    return name


def read(warehouse: Warehouse, name: str) -> list[Any]:
    answer = warehouse.sql(f"SELECT v FROM {name} ORDER BY id").to_arrow()  # type: ignore[union-attr]
    return answer["v"].to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("place", few_then_more(PLACES, 1))
def test_P64_a_decimal_beyond_its_digits_is_read_by_no_engine(
    warehouse: Warehouse, tmp_path: Path, place: str
) -> None:
    for column, kind, digits, options in (
        (decimals(18), "decimal(9,2)", (18, 9), {}),
        (decimals(18), "decimal(18,2)", (18, 18), {}),
        (decimals(38, LARGE * 10**12), "decimal(20,2)", (38, 20), {}),
        (in_list(decimals(18)), "array<decimal(9,2)>", (18, 9), {}),
        *(
            [(decimals(18), "decimal(9,2)", (18, 9), {"statistics": False})]
            if "Parquet" not in place
            else []
        ),
    ):
        name = made(warehouse, tmp_path, place, column, kind, digits, **options)
        if digits[0] == digits[1]:
            assert read(warehouse, name) == [LARGE, None]
            continue
        with pytest.raises(AcidError, match=r"(?s)column v.*write the file again"):
            read(warehouse, name)
        assert warehouse.sql(f"SELECT sum(id) AS s FROM {name}").to_arrow().to_pylist() == [
            {"s": 3}
        ]  # type: ignore[union-attr]


@pytest.mark.parametrize("place", few_then_more(PLACES, 1))
def test_P64_no_engine_cuts_nanoseconds_of_a_table(
    warehouse: Warehouse, tmp_path: Path, place: str
) -> None:
    wraps: tuple[tuple[str, Callable[[pa.Array], pa.Array]], ...] = (
        ("timestamp", lambda column: column),
        ("array<timestamp>", in_list),
    )
    for kind, wrapped in wraps:
        for column, fits in ((NANOS, False), (WHOLE, True)):
            for int96 in (False, True) if "Parquet" in place else (False,):
                options = {"int96": True} if int96 else {}
                name = made(warehouse, tmp_path, place, wrapped(column), kind, **options)
                if fits:
                    assert "2024, 2, 29, 12, 0, 0, 123456" in str(read(warehouse, name))
                    continue
                with pytest.raises(WrongType, match=r"column v.*nanoseconds"):
                    read(warehouse, name)
                assert warehouse.sql(f"SELECT sum(id) AS s FROM {name}").to_arrow()


@pytest.mark.more
def test_P64_a_compaction_keeps_what_is_not_read_and_records_what_is_exact(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    for column, kind, digits in (
        (NANOS, "timestamp", None),
        (WHOLE, "timestamp", None),
        (decimals(18), "decimal(9,2)", (18, 9)),
        (decimals(9, Decimal(7)), "decimal(9,2)", (9, 9)),
    ):
        exact = column is WHOLE or digits == (9, 9)
        name = made(warehouse, tmp_path, "full ACID", column, kind, digits)
        table = warehouse.table(name)
        table.insert([{"id": 3}])
        before, own = sources(table)
        assert own.exact
        table.compact("major")
        (after,) = sources(table)
        assert (before.exact, after.exact) == (False, exact), after
        if exact:
            assert read(warehouse, name)[:2] == column.cast(kind_of(kind)).to_pylist()
        else:
            with pytest.raises(AcidError, match="column v"):
                read(warehouse, name)


def kind_of(kind: str) -> pa.DataType:
    return pa.timestamp("us") if kind == "timestamp" else pa.decimal128(9, 2)


def sources(table: Any) -> tuple[Any, ...]:
    with table._lasting_view() as view:
        (scan,) = view.scans([view.request(table.name)])
    return tuple(source for entity in scan.entities for source in entity.sources.inserts)


def unscaled(values: list[int | None], digits: int) -> pa.Array:
    """Decimals of so many digits with any numbers, as whoever writes bytes may make them."""
    content = b"".join((each or 0).to_bytes(16, "little", signed=True) for each in values)
    kind, there = pa.decimal128(digits, 2), [each is not None for each in values]
    valid = None if all(there) else pa.array(there).buffers()[1]
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(content)])


near = st.sampled_from([0, 1, 31, 62, 63, 64, 65, 126]).flatmap(
    lambda bit: st.integers(-3, 3).map(lambda by: (1 << bit) + by)
)
numbers = st.one_of(near, st.integers(-(1 << 127), (1 << 127) - 1), st.integers(-(10**19), 10**19))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 38).flatmap(
        lambda digits: st.tuples(
            st.just(digits),
            st.lists(
                st.one_of(
                    st.none(),
                    st.integers(-(10**digits) - 1, 10**digits + 1),
                    numbers.filter(lambda each: -(1 << 127) <= each < 1 << 127),
                ).filter(lambda each: each is None or abs(each) < 1 << 127),
                max_size=6,
            ),
        )
    ),
    st.integers(0, 2),
)
def test_P64_digits_are_counted_right(case: tuple[int, list[int | None]], start: int) -> None:
    digits, values = case
    array = unscaled(values, digits).slice(start)
    wrong = any(each is not None and abs(each) >= 10**digits for each in values[start:])
    assert bool(beyond_digits(array)) == wrong
    inside = pa.StructArray.from_arrays([array], ["a"])
    assert bool(beyond_digits(inside)) == wrong


def test_P64_decimals_that_a_caller_gives_have_the_digits_of_their_type(
    warehouse: Warehouse,
) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "v": unscaled([10**17], 9)})
    name = f"db.v{next(_NUMBERS)}"
    table = warehouse.create_table(name, "id bigint, v decimal(9,2)")
    for given_rows in (
        lambda: rows,
        lambda: rows.to_reader(),
        lambda: iter(rows.to_batches()),
        lambda: pa.table({"id": rows["id"], "v": rows["v"].dictionary_encode()}),
    ):
        for write in (
            lambda source: table.insert(source),
            lambda source: table.merge(source, "t.id = s.id", when_not_matched_insert="*"),
        ):
            with pytest.raises(WrongType, match=r"'v'.*does not fit in precision"):
                write(given_rows())
    assert table.count() == 0
