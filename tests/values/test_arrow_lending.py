"""Frames of other libraries, with all of their odd types, written and read back as they were; and
streams that hold their snapshot.

What is stored comes from the columns of this module, not from the code.
"""

from __future__ import annotations

import datetime
import gc
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from acid_platform import InvalidDefinition, SnapshotExpired, Warehouse, WrongType
from acid_platform.values.rows import columns_of_rows
from tests.conftest import temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform.handles.read_verbs import Reads

NOON = datetime.datetime(2024, 2, 29, 12, 30, 1)
LATE = datetime.datetime(1969, 12, 31, 23, 59, 59)
UTC = datetime.UTC


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path, engine="local") as opened:
        opened.create_table("s.t", "id int, v string")
        for number in range(4):
            opened.table("s.t").insert([{"id": number, "v": str(number)}])
        yield opened


class Kind(NamedTuple):
    """A column: values, and types of Arrow that lend them."""

    hive: str
    values: list[Any]
    arrow: list[pa.DataType]


TEXT, WORDS = pa.string(), ["a", "", "ü\U0001f600", "07"]
ENTRY = pa.struct([("key", pa.string()), ("value", pa.int64())])
POINTS = pa.struct([("x", pa.int64()), ("y", pa.large_string())])
KINDS = {
    "text": Kind("string", WORDS, [TEXT, pa.large_string(), pa.string_view()]),
    "category": Kind(
        "string",
        WORDS,
        [pa.dictionary(pa.int32(), TEXT), pa.dictionary(pa.uint8(), pa.large_string())],
    ),
    "whole": Kind("bigint", [(1 << 53) + 1, -(1 << 63), 0], [pa.int64()]),
    "small": Kind("smallint", [0, 255], [pa.uint8(), pa.uint16(), pa.int64()]),
    "huge": Kind("decimal(20,0)", [Decimal((1 << 64) - 1), Decimal(7)], [pa.uint64()]),
    "exact": Kind("decimal(9,2)", [Decimal("-1.25"), Decimal("1234567.89")], [pa.decimal128(9, 2)]),
    "real": Kind("double", [0.5, -1e300, 3.0], [pa.float64()]),
    "single": Kind("float", [0.5, -8.0], [pa.float32(), pa.float64()]),
    "flag": Kind("boolean", [True, False], [pa.bool_()]),
    "day": Kind("date", [NOON.date(), LATE.date()], [pa.date32(), pa.date64()]),
    "moment": Kind("timestamp", [NOON, LATE], [pa.timestamp(unit) for unit in ("s", "ms", "us")]),
    "fine": Kind("timestamp", [NOON.replace(microsecond=1)], [pa.timestamp("ns")]),
    "zoned": Kind(
        "timestamp with local time zone",
        [NOON.replace(tzinfo=UTC), LATE.replace(tzinfo=UTC)],
        [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")],
    ),
    "bytes": Kind("binary", [b"\xff\0", b"ab"], [pa.binary(), pa.large_binary(), pa.binary(2)]),
    "view": Kind("binary", [b"\xff", b""], [pa.binary_view()]),
    "list": Kind(
        "array<int>",
        [[1, None], [-7, 1 << 30]],
        [pa.list_(pa.int32()), pa.large_list(pa.int64())],
    ),
    "pair": Kind("array<int>", [[1, 2], [-3, None]], [pa.list_(pa.int32(), 2)]),
    "struct": Kind("struct<x:int,y:string>", [{"x": 1, "y": None}, {"x": None, "y": ""}], [POINTS]),
    "deep": Kind(
        "array<struct<t:timestamp,w:array<string>>>",
        [[{"t": NOON, "w": ["a", None]}, None], []],
        [pa.list_(pa.struct([("t", pa.timestamp("ms")), ("w", pa.list_(pa.string_view()))]))],
    ),
    "entries": Kind(
        "map<string,bigint>",
        [[("a", 1), ("b", None)], []],
        [pa.map_(pa.string(), pa.int64()), pa.list_(ENTRY)],
    ),
}
ONLY_ARROW = {
    "text": pa.run_end_encoded(pa.int32(), pa.string()),
    "exact": pa.decimal256(40, 2),
    "list": pa.list_view(pa.int32()),
}
"""Types that the other libraries don't take."""


def arrow_frame(chosen: random.Random, plain: bool) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Rows of random columns, and what is stored of them."""
    count = chosen.randint(0, 6)
    arrays: dict[str, pa.Array] = {}
    stored: list[dict[str, Any]] = [{} for _ in range(count)]
    for name in chosen.sample(list(KINDS), chosen.randint(1, 6)):
        kind = KINDS[name]
        values = [chosen.choice([None, *kind.values]) for _ in range(count)]
        types = [*kind.arrow, *([ONLY_ARROW[name]] if name in ONLY_ARROW and not plain else [])]
        arrays[name] = _array(values, chosen.choice(types))
        for row, value in zip(stored, values, strict=True):
            row[name] = value
    return pa.table(arrays), stored


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_encode(pa.array(values, kind.value_type))
    if kind == pa.list_(ENTRY):
        values = [value and [{"key": key, "value": one} for key, one in value] for value in values]
    if kind == pa.uint64():
        values = [None if value is None else int(value) for value in values]
    return pa.array(values, kind)


def _polars(rows: pa.Table, chosen: random.Random) -> Any:
    import polars

    frame = polars.DataFrame(rows)
    if "category" in frame.columns:
        frame = frame.with_columns(
            polars.col("category").cast(
                chosen.choice([polars.Categorical, polars.Enum(WORDS), polars.String])
            )
        )
    return chosen.choice([frame, frame.lazy()])


def _duckdb(rows: pa.Table, _: random.Random) -> Any:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'America/New_York'")
    database.register("rows", rows)
    return database.table("rows")


def _pandas(rows: pa.Table, chosen: random.Random) -> Any:
    nullable = {
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.string(): pd.StringDtype(),
    }
    mapper = chosen.choice([nullable.get, pd.ArrowDtype])
    if "string_view" in str(rows.schema):  # Arrow can't make objects of these in a list
        mapper = pd.ArrowDtype
    return rows.to_pandas(types_mapper=mapper, integer_object_nulls=True)


def _arrow(rows: pa.Table, chosen: random.Random) -> Any:
    parts = [rows.slice(0, 2), rows.slice(2)]
    return chosen.choice([rows, rows.to_reader(1), pa.concat_tables(parts)])


MADE: dict[str, Callable[[pa.Table, random.Random], Any]] = {
    "arrow": _arrow,
    "duckdb": _duckdb,
    "pandas": _pandas,
    "polars": _polars,
}


def read_back(table: Reads) -> dict[str, list[dict[str, Any]]]:
    """The rows as each library reads them by itself."""
    import polars

    readers: dict[str, Callable[[], Any]] = {
        "arrow": lambda: pa.table(table),
        "reader": lambda: pa.RecordBatchReader.from_stream(table).read_all(),
        "duckdb": lambda: duckdb.from_arrow(table).to_arrow_table(),
        "polars": lambda: polars.DataFrame(table).to_arrow(),
    }
    return {name: ordered(reader()) for name, reader in readers.items()}


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    listed = [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]
    return sorted(listed, key=repr)


def _plain(value: Any) -> Any:
    """Moments in UTC, and maps as pairs, however a library shows them."""
    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, list):
        if value and all(isinstance(one, dict) and set(one) == {"key", "value"} for one in value):
            return [(one["key"], one["value"]) for one in value]
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value


def check(warehouse: Warehouse, library: str, frames: int, seed: int) -> None:
    chosen = random.Random(f"{library} {seed}")
    columns = ", ".join(f"`{name}` {kind.hive}" for name, kind in KINDS.items())
    table = warehouse.create_table(f"f.{library}", columns, if_not_exists=True)
    expected: list[dict[str, Any]] = []
    with warehouse.transaction() as txn:
        own = txn.table(table.name)
        for number in range(frames):
            rows, stored = arrow_frame(chosen, plain=library != "arrow")
            where = (library, seed, number, rows.schema)
            assert own.insert(MADE[library](rows, chosen)) == len(stored), where
            expected += [dict.fromkeys(KINDS) | row for row in stored]
    right = sorted(expected, key=repr)
    for reader, listed in read_back(table).items():
        assert listed == right, (library, reader)


@pytest.mark.more
@pytest.mark.parametrize("library", MADE)
def test_frames_are_stored_and_read_as_they_are(tmp_path: Path, library: str) -> None:
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        check(warehouse, library, 8, 1)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("library", MADE)
def test_a_hundred_frames_are_stored_and_read_as_they_are(
    tmp_path: Path, library: str, engine: str, spark: SparkSession
) -> None:
    with temporary_warehouse(tmp_path, spark=spark, engine=engine) as warehouse:
        check(warehouse, library, 25, 2)
        warehouse.release()


DURATIONS = {
    "duration": pa.duration("us"),
    "time": pa.time64("us"),
    "interval": pa.month_day_nano_interval(),
}


@pytest.mark.more
def test_types_that_no_table_has_are_refused_by_name(warehouse: Warehouse) -> None:
    for hive in ("string", "bigint", "timestamp"):
        warehouse.create_table(f"d.{hive}", f"took {hive}")
    month = pa.array(pd.period_range("2020", periods=1, freq="M"))  # a number, without its unit
    for values in (*(pa.nulls(1, kind) for kind in DURATIONS.values()), month):
        rows = pa.table({"took": values})
        with pytest.raises(InvalidDefinition, match=r"column 'took': Arrow's .* has no Hive type"):
            columns_of_rows(rows)
        for hive in ("string", "bigint", "timestamp"):
            with pytest.raises(WrongType, match=r"column 'took' of d\..*the rows have"):
                warehouse.table(f"d.{hive}").insert(rows)
            if values is month or pa.types.is_duration(values.type):
                with pytest.raises(WrongType, match="'took'"):
                    warehouse.table(f"d.{hive}").insert(rows.to_pandas(), coerce=values is month)


@pytest.mark.more
def test_objects_of_polars_are_refused_by_name(warehouse: Warehouse) -> None:
    import polars

    rows = polars.DataFrame({"v": polars.Series([object()], dtype=polars.Object)})
    with pytest.raises(WrongType, match=r"column 'v' has|DataFrame has no rows with columns"):
        warehouse.table("s.t").insert(rows)


@pytest.mark.parametrize("place", [0, -1])
def test_a_table_is_declared_by_any_frame(place: int) -> None:
    odd = pa.schema([(name, kind.arrow[place]) for name, kind in KINDS.items()]).empty_table()
    named = {column.name: str(column.type) for column in columns_of_rows(odd)}
    assert named["huge"] == "decimal(20,0)" and named["pair"] == "array<int>"
    assert named["text"] == named["category"] == "string" and named["view"] == "binary"
    assert named["day"] == "date" and named["bytes"] == "binary"


BROKEN = {
    "no text": pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    ),
    "no entry": pa.DictionaryArray.from_arrays([7], ["a"], safe=False),
    "digits": pa.Array.from_buffers(pa.decimal128(3, 0), 1, [None, pa.py_buffer(b"\7" * 16)]),
    "far": pa.array([1 << 62], pa.timestamp("s")),
}


@pytest.mark.more
@pytest.mark.parametrize("what", BROKEN)
def test_broken_values_are_refused(warehouse: Warehouse, what: str) -> None:
    hive = {"digits": "decimal(3,0)", "far": "timestamp"}.get(what, "string")
    table = warehouse.create_table("d.broken", f"v {hive}")
    with pytest.raises(WrongType, match=r"column 'v' of d\.broken"):
        table.insert(pa.table({"v": BROKEN[what]}))


@pytest.mark.more
def test_large_chunks_are_converted_in_parts(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acid_platform.values.local_rows._MOST_ROWS", 3)
    monkeypatch.setattr("acid_platform.values.local_rows._MOST_BYTES", 40)
    table = warehouse.create_table("d.large", "id int, v string, l array<int>")
    values = [None if place == 5 else f"{place:020}" for place in range(11)]
    lists = [[place] * (place % 3) for place in range(11)]
    rows = pa.table({"id": range(11), "v": pa.array(values, pa.large_string()), "l": lists})
    assert table.insert(rows) == 11
    stored = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(row["v"], row["l"]) for row in stored] == list(zip(values, lists, strict=True))
    with pytest.raises(WrongType, match=r"1073741824000.*in row 9"):
        table.insert(pa.table({"id": [*range(8), 1073741824000]}))


# --- streams --------------------------------------------------------------------------------------


def leases(warehouse: Warehouse) -> int:
    """How many transactions are open."""
    return len(warehouse.metastore.transactions())


@pytest.mark.more
def test_a_stream_holds_its_snapshot_until_its_end(warehouse: Warehouse) -> None:
    table = warehouse.table("s.t")
    before = leases(warehouse)
    reader = pa.RecordBatchReader.from_stream(table)
    first = reader.read_next_batch()
    assert leases(warehouse) == before + 1
    table.overwrite([{"id": 9}])
    rest = reader.read_all()
    assert sorted(first.column(0).to_pylist() + rest.column(0).to_pylist()) == [0, 1, 2, 3]
    assert leases(warehouse) == before
    started, unread = table.batches(), table.batches()
    started.read_next_batch()
    assert leases(warehouse) == before + 2
    del started, unread
    gc.collect()
    assert leases(warehouse) == before


@pytest.mark.more
def test_a_stream_ends_with_the_block_of_its_snapshot(warehouse: Warehouse) -> None:
    with warehouse.snapshot() as snapshot:
        table = snapshot.table("s.t")
        warehouse.table("s.t").insert([{"id": 4}])
        lent = duckdb.from_arrow(table)
        assert len(lent.set_alias("a").join(lent.set_alias("b"), "id").fetchall()) == 4
        reader, stream = table.batches(), pa.RecordBatchReader.from_stream(table)
    with pytest.raises(SnapshotExpired):
        reader.read_all()
    with pytest.raises(pa.ArrowException, match="snapshot"):
        stream.read_all()
    with pytest.raises(SnapshotExpired):
        pa.table(table)


def test_a_transaction_lends_its_own_rows(warehouse: Warehouse) -> None:
    with warehouse.transaction() as txn:
        table = txn.table("s.t")
        table.insert([{"id": 7}])
        assert duckdb.from_arrow(table).max("id").fetchall() == [(7,)]
        assert pa.table(txn.sql("SELECT id FROM s.t WHERE id > 2")).num_rows == 2
        table.insert(table.batches(["v"], "id = 3"))
        assert table.count("v = '3'") == 2


@pytest.mark.more
def test_results_and_changes_are_lent(warehouse: Warehouse) -> None:
    result = warehouse.sql("SELECT id, v FROM s.t WHERE id < 2")
    assert not isinstance(result, (pd.DataFrame, str))
    assert duckdb.sql("SELECT sum(id), max(v) FROM result").fetchall() == [(1, "1")]
    assert pa.table(result).equals(result.to_arrow())  # type: ignore[union-attr]
    changes = duckdb.from_arrow(warehouse.table("s.t").changes_arrow(since=2))
    assert changes.project("id").order("id").fetchall() == [(2,), (3,)]
    assert leases(warehouse) <= 1


def test_a_table_may_have_the_columns_of_an_arrow_schema(warehouse: Warehouse) -> None:
    rows = pa.table({"Id": pa.array([1], pa.int16()), "a b": ["x"]})
    table = warehouse.create_table("s.made", rows.schema)
    table.insert(rows)
    with warehouse.transaction() as txn:
        txn.table("s.made").add_columns(pa.schema([("amount", pa.decimal128(9, 2))]))
    table.add_columns(pa.schema([("day", pa.date32())]))
    assert [(column.name, str(column.type)) for column in table.columns] == [
        ("id", "smallint"),
        ("a b", "string"),
        ("amount", "decimal(9,2)"),
        ("day", "date"),
    ]
    assert table.to_arrow().to_pylist() == [{"id": 1, "a b": "x", "amount": None, "day": None}]
    for odd in (pa.time64("us"), pa.list_(pa.null()), pa.struct([])):
        with pytest.raises(InvalidDefinition, match=r"column 'Odd': Arrow's .* has no Hive type"):
            warehouse.create_table("s.times", pa.schema([("a", pa.int8()), ("Odd", odd)]))
    unreadable = pa.schema([pa.field("Odd", pa.string(), metadata={"hive_type": b"\xff"})])
    with pytest.raises(InvalidDefinition, match="column 'Odd': "):
        table.add_columns(unreadable)
    for other, named in ((rows, "a Table"), ({"a": "int"}, "a dict"), (pa.schema([]), "an empty")):
        with pytest.raises(InvalidDefinition, match=f"Arrow schema .*, not {named}"):
            warehouse.create_table("s.others", other)  # type: ignore[arg-type]
