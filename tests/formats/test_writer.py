"""Every reader gets what AcidWriter wrote: whole files, row groups and statistics."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyorc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acid_platform import CorruptFile, UnsupportedLayout
from acid_platform.formats.orc import AcidWriter, acid_schema, encoding, user_metadata
from acid_platform.formats.orc.dump import metadata
from acid_platform.layout.types import Column, parse_columns
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import arrow_type

CODECS = ("uncompressed", "zlib", "snappy", "lz4", "zstd")


def batch(columns: Sequence[Column], row: pa.StructArray, first: int = 0) -> pa.RecordBatch:
    """Insert events of write id 7 with ascending row ids."""
    count = len(row)
    ids = [
        np.zeros(count, np.int32),
        np.full(count, 7),
        np.full(count, 1 << 29, np.int32),
        np.arange(first, first + count),
        np.full(count, 7),
    ]
    return pa.RecordBatch.from_arrays(
        [*map(pa.array, ids), row], schema=acid_schema(tuple(columns), unit(row))
    )


def unit(row: pa.StructArray) -> str:
    return next((field.type.unit for field in row.type if pa.types.is_timestamp(field.type)), "ns")


def write(
    where: Path,
    columns: Sequence[Column],
    row: pa.StructArray,
    codec: str = "zlib",
    stripe_bytes: int = 1 << 30,
    pieces: int = 1,
    pool: Executor | None = None,
) -> str:
    path = str(where / "bucket_00000")
    writer = AcidWriter(*Files.of(path), columns, codec, stripe_bytes=stripe_bytes, pool=pool)
    whole, size = batch(columns, row), -(-len(row) // pieces)
    for at in range(0, len(row), size):
        writer.write(whole.slice(at, size))
    assert writer.close() == len(row)
    return path


def struct(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        arrays,
        fields=[
            pa.field(column.name, array.type) for column, array in zip(columns, arrays, strict=True)
        ],
    )


def read(path: str) -> pa.StructArray:
    return orc.read_table(path).column("row").combine_chunks()


def numbers() -> st.SearchStrategy[np.ndarray]:
    """Runs of each kind that the encoder distinguishes, one after the other."""
    edge = st.sampled_from(
        [
            0,
            1,
            -1,
            127,
            -128,
            255,
            1 << 31,
            -(1 << 31),
            (1 << 62) - 1,
            1 << 62,
            -(1 << 62),
            (1 << 63) - 1,
            -(1 << 63),
        ]
    )
    value = edge | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-300, 300)

    def run(first: int, count: int, sort: str, width: int, seed: int) -> np.ndarray:
        chance = np.random.default_rng(seed)
        random_steps = chance.integers(0, 1 << width, count, dtype=np.int64)
        with np.errstate(over="ignore"):
            match sort:
                case "same":
                    return np.full(count, first)
                case "even":
                    return first + np.arange(count, dtype=np.int64) * (1 << width)
                case "rising":
                    return first + np.cumsum(random_steps)
                case "falling":
                    return first - np.cumsum(random_steps) - np.arange(count)
                case _:
                    return random_steps - (first & 0xFF)

    part = st.builds(
        run,
        value,
        st.integers(1, 1400),
        st.sampled_from(["same", "even", "rising", "falling", "random"]),
        st.integers(0, 62),
        st.integers(0, 1000),
    )
    return st.lists(part, min_size=1, max_size=4).map(np.concatenate)


@given(
    values=numbers(),
    kind=st.sampled_from(["bigint", "int", "smallint", "tinyint", "date"]),
    missing=st.sampled_from([0, 0, 3, 100, 1]),
    codec=st.sampled_from(CODECS),
)
@settings(deadline=None)
def test_integers_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    values: np.ndarray,
    kind: str,
    missing: int,
    codec: str,
) -> None:
    columns = parse_columns(f"v {kind}")
    wanted = arrow_type(columns[0].type)
    width = wanted.bit_width
    mask = None if not missing else np.arange(len(values)) % missing == 0
    array = pa.array(values.astype(f"int{width}"), f"int{width}", mask=mask).view(wanted)
    where = tmp_path_factory.mktemp("written")
    path = write(where, columns, struct(columns, [array]), codec)
    assert read(path).field(0).equals(array)


@pytest.mark.more
@given(st.lists(st.none() | st.decimals(1 - 10**34, 10**34 - 1, places=4), min_size=1, max_size=60))
@settings(deadline=None)
def test_long_decimals_come_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[Decimal | None]
) -> None:
    columns = parse_columns("v decimal(38,4)")
    array = pa.array(values, pa.decimal128(38, 4))
    path = write(tmp_path_factory.mktemp("written"), columns, struct(columns, [array]))
    assert read(path).field(0).equals(array)
    present = [value for value in values if value is not None]
    with open(path, "rb") as content:
        said = pyorc.Reader(content)[7].statistics
    if present:
        assert (said["minimum"], said["maximum"]) == (min(present), max(present))


EVERY = (
    "id bigint, small smallint, tiny tinyint, word string, unique_text string, price decimal(9,2),"
    " far decimal(30,4), day date, at timestamp, zoned timestamp with local time zone, yes boolean,"
    " share double, part float, raw binary, tags array<string>, known map<string,int>,"
    " place struct<x:int,deep:struct<names:array<string>,n:bigint>>, code char(4), short"
    " varchar(5), nothing int, nowhere struct<a:int>"
)
ROWS = 45_000


def every_type(rows: int = ROWS) -> tuple[tuple[Column, ...], pa.StructArray]:
    columns = parse_columns(EVERY)
    chance = random.Random(7)

    def some(make: object, share: float = 0.1) -> list[object]:
        return [None if chance.random() < share else make(i) for i in range(rows)]  # type: ignore[operator]

    moment = 10**15
    values = {
        "id": list(range(rows)),
        "small": some(lambda i: chance.randint(-32768, 32767)),
        "tiny": some(lambda i: i % 256 - 128),
        "word": some(lambda i: f"wörd {i % 97}"),
        "unique_text": some(lambda i: f"{chance.random()} {i}" * (i % 3)),
        "price": some(lambda i: Decimal(chance.randint(-(10**9) + 1, 10**9 - 1)).scaleb(-2)),
        "far": some(lambda i: Decimal(chance.randint(-(10**25), 10**25)).scaleb(-4)),
        "day": some(lambda i: chance.randint(-100_000, 100_000)),
        "at": some(lambda i: chance.randint(-moment, moment) // 10 ** (i % 9) * 10 ** (i % 9)),
        "zoned": some(lambda i: 1000 * chance.randint(0, moment)),
        "yes": some(lambda i: chance.random() < 0.3),
        "share": some(lambda i: chance.choice([chance.random(), -0.0, 1e300, math.inf])),
        "part": some(lambda i: float(np.float32(chance.random()))),
        "raw": some(lambda i: chance.randbytes(i % 5)),
        "tags": some(lambda i: [None if chance.random() < 0.1 else f"t{j}" for j in range(i % 4)]),
        "known": some(lambda i: [(f"k{j}", j if j % 2 else None) for j in range(i % 3)]),
        "place": some(
            lambda i: {
                "x": i % 13,
                "deep": None
                if i % 4 == 0
                else {"names": None if i % 5 == 0 else ["a"] * (i % 3), "n": i},
            }
        ),
        "code": some(lambda i: f"c{i % 50}".ljust(4)),
        "short": some(lambda i: f"v{i % 5}"),
        "nothing": [None] * rows,
        "nowhere": [None] * rows,
    }
    arrays = []
    for column in columns:
        wanted = arrow_type(column.type, "ns")
        if pa.types.is_timestamp(wanted) or pa.types.is_date32(wanted):
            whole = pa.int32() if pa.types.is_date32(wanted) else pa.int64()
            arrays.append(pa.array(values[column.name], whole).view(wanted))
        else:
            arrays.append(pa.array(values[column.name], wanted))
    return columns, struct(columns, arrays)


@pytest.fixture(scope="module")
def everything() -> tuple[tuple[Column, ...], pa.StructArray]:
    return every_type()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("stripe_bytes", [1 << 30, 1 << 21])
def test_every_type_comes_back(
    tmp_path: Path,
    everything: tuple[tuple[Column, ...], pa.StructArray],
    codec: str,
    stripe_bytes: int,
) -> None:
    columns, row = everything
    path = write(tmp_path, columns, row, codec, stripe_bytes, pieces=7)
    file = orc.ORCFile(path)
    assert (file.nstripes > 3) == (stripe_bytes < 1 << 30)
    found = file.read().column("row").combine_chunks()
    for number, column in enumerate(columns):
        expected = pc.struct_field(row, [number])
        assert pc.struct_field(found, [number]).cast(expected.type).equals(expected), column
    said = metadata(Files.of(str(tmp_path))[0], path)
    keys = said["user_metadata"]["hive.acid.key.index"].strip(";").split(";")
    assert len(keys) == file.nstripes and keys[-1] == f"7,{1 << 29},{ROWS - 1}"


def test_threads_write_the_same_bytes(
    tmp_path: Path, everything: tuple[tuple[Column, ...], pa.StructArray]
) -> None:
    written = []
    for threads in (0, 3):
        with ThreadPoolExecutor(max(threads, 1)) as pool:
            how = {"stripe_bytes": 1 << 21, "pieces": 7, "pool": pool if threads else None}
            path = write(tmp_path, *everything, "zstd", **how)  # type: ignore[arg-type]
        assert orc.ORCFile(path).nstripes > 3
        written.append(Path(path).read_bytes())
    assert written[0] == written[1]


def test_a_failure_of_a_thread_fails_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = parse_columns("a int, b string")
    row = struct(columns, [pa.array([1] * 90_000, pa.int32()), pa.array(["x"] * 90_000)])
    monkeypatch.setattr(encoding, "integers", mock.Mock(side_effect=MemoryError))
    with ThreadPoolExecutor(2) as pool, pytest.raises(MemoryError):
        write(tmp_path, columns, row, pool=pool)


@pytest.mark.more
def test_row_groups_begin_where_their_index_says(
    tmp_path: Path, everything: tuple[tuple[Column, ...], pa.StructArray]
) -> None:
    columns, row = everything
    with_index = [column for column in columns if column.name != "zoned"]  # pyorc can't read it
    chosen = struct(
        with_index, [pc.struct_field(row, [columns.index(column)]) for column in with_index]
    )
    for codec in ("uncompressed", "zlib"):
        path = write(tmp_path, with_index, chosen, codec, pieces=3)
        with open(path, "rb") as content:
            whole = [repr(row) for row in pyorc.Reader(content)]
            stripe = pyorc.Reader(content).read_stripe(0)
            for at in (44_999, 0, 10_000, 20_003, 9_999, 30_512, 40_000, 19_999):
                stripe.seek(at)
                assert repr(next(stripe)) == whole[at], (codec, at)


def test_statistics_are_those_of_orcs_own_writer(
    tmp_path: Path, everything: tuple[tuple[Column, ...], pa.StructArray]
) -> None:
    every, row = everything
    # Arrow counts the values below a NULL struct.
    columns = [column for column in every if column.type.kind != "struct"]
    row = struct(columns, [pc.struct_field(row, [every.index(column)]) for column in columns])
    path = write(tmp_path, columns, row)
    theirs = str(tmp_path / "theirs")
    orc.write_table(pa.table({"operation": pa.array(np.zeros(ROWS, np.int32)), "row": row}), theirs)

    def told(path: str, first: int) -> list[dict[str, object]]:
        with open(path, "rb") as content:
            reader = pyorc.Reader(content)
            return [
                reader[number].statistics
                for number in range(
                    first, first + sum(1 for column in columns for _ in column.type.walk()) + 1
                )
            ]

    for ours, orcs in zip(told(path, 6), told(theirs, 2), strict=True):
        for statistics in (ours, orcs):
            statistics.pop("kind")  # char is char here, and string there
            if not statistics["number_of_values"]:
                statistics.pop("sum", None)  # of nothing
        if "sum" in ours and isinstance(ours["sum"], float):
            assert ours.pop("sum") == pytest.approx(orcs.pop("sum"))
        if ours.get("minimum") == orcs.get("minimum") == 0:
            ours, orcs = ({**statistics, "minimum": 0} for statistics in (ours, orcs))
        assert ours == orcs


@pytest.mark.parametrize("kind", ["double", "float"])
def test_statistics_of_nan_and_zero_skip_no_row(tmp_path: Path, kind: str) -> None:
    columns = parse_columns(f"v {kind}")

    def bounds(values: list[float]) -> tuple[float, float]:
        array = pa.array(values, arrow_type(columns[0].type))
        path = write(tmp_path, columns, struct(columns, [array]))
        assert [repr(row) for row in read(path).field(0).to_pylist()] == list(map(repr, values))
        with open(path, "rb") as content:
            said = pyorc.Reader(content)[7].statistics
        return said["minimum"], said["maximum"]

    assert bounds([1.0, math.nan, 2.0]) == (-math.inf, math.inf)
    assert list(map(repr, bounds([0.0, -0.0]))) == ["-0.0", "0.0"]
    assert bounds([-3.0, 5.5]) == (-3.0, 5.5)


def test_years_beyond_nanoseconds_are_kept(tmp_path: Path) -> None:
    columns = parse_columns("at timestamp")
    micros = [-62_135_596_800_000_000, -1_500_001, 0, 253_402_300_799_999_999, None]
    array = pa.array(micros, pa.timestamp("us"))
    path = write(tmp_path, columns, struct(columns, [array]))
    with open(path, "rb") as content:
        found = [row[0] for *_, row in pyorc.Reader(content)]
    utc = [moment and moment.replace(tzinfo=None) for moment in found]
    assert pa.array(utc, pa.timestamp("us")).equals(array)


def test_F6_delete_events_have_no_row(tmp_path: Path) -> None:
    columns = parse_columns("a int, tags array<string>")
    path = str(tmp_path / "bucket_00000")
    kind = acid_schema(columns, deletes=True)
    writer = AcidWriter(*Files.of(path), columns, "zlib", deletes=True)
    ids = [
        np.full(3, 2, np.int32),
        np.full(3, 7),
        np.full(3, 1 << 29, np.int32),
        np.arange(3),
        np.full(3, 8),
    ]
    writer.write(pa.RecordBatch.from_arrays([*map(pa.array, ids), pa.nulls(3)], schema=kind))
    assert writer.close() == 3
    assert read(path).null_count == 3
    said = metadata(Files.of(str(tmp_path))[0], path)["user_metadata"]
    assert said["hive.acid.stats"] == "0,0,3"


def test_F7_keys_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    columns = parse_columns("a int")
    path = str(tmp_path / "bucket_00000")
    row = struct(columns, [pa.array([1, 2, 3], pa.int32())])
    for again in (1, 2):
        writer = AcidWriter(
            *Files.of(path), columns, "zlib", stripe_bytes=again
        )  # within a stripe, and from one to the next
        writer.write(batch(columns, row))
        with pytest.raises(CorruptFile, match="do not ascend"):
            writer.write(batch(columns, row, 2))
            writer.close()
        writer.give_up()


def test_an_unknown_codec_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedLayout, match=r"lzo can't be written.*none, zlib, snappy"):
        AcidWriter(*Files.of("x"), parse_columns("a int"), "lzo")


@pytest.mark.slow
@pytest.mark.spark
def test_spark_skips_only_what_does_not_match(
    tmp_path: Path, spark: SparkSession, everything: tuple[tuple[Column, ...], pa.StructArray]
) -> None:
    columns, row = everything
    path = write(tmp_path, columns, row, stripe_bytes=1 << 23, pieces=9)
    found = spark.read.orc(path)
    wheres = [
        "row.id = 31234",
        "row.id between 9990 and 10010",
        "row.word = 'wörd 5' and row.id > 30000",
        "row.price > 9999999.00",
        "row.price = 12.34",
        "row.day < date'1700-01-01'",
        "row.at > timestamp'1970-01-12 00:00:00'",
        "row.small = 77",
        "row.tiny = -128",
        "row.share = 0.0",
        "row.nothing is null and row.id = 7",
        "row.code = 'c7  '",
        "row.unique_text = ''",
        "row.yes and row.id < 5",
        "row.part < 0.0001",
    ]

    def rows(where: str) -> list[str]:
        # All six columns: Spark prunes those of ACID files wrongly (F24).
        picked = found.where(where).select(F.to_json(F.struct("*")).alias("event"))
        return sorted(row["event"] for row in picked.collect())

    before = spark.conf.get("spark.sql.orc.filterPushdown")
    try:
        for where in wheres:
            answers = []
            for pushed in ("true", "false"):
                spark.conf.set("spark.sql.orc.filterPushdown", pushed)
                spark.conf.set("spark.sql.orc.enableNestedColumnVectorizedReader", "true")
                answers.append(rows(where))
            assert answers[0] == answers[1], where
    finally:
        spark.conf.set("spark.sql.orc.filterPushdown", str(before))
    texts = [json.loads(event)["row"].get("unique_text") for event in rows("true")]
    assert sorted(map(repr, texts)) == sorted(map(repr, pc.struct_field(row, [4]).to_pylist()))


def test_F8_user_metadata_has_hives_exact_forms() -> None:
    assert user_metadata([(1, 536870912, 9), (2, 536870913, 0)], 3, 0) == {
        "hive.acid.key.index": b"1,536870912,9;2,536870913,0;",
        "hive.acid.stats": b"3,0,0",
        "hive.acid.version": b"2",
    }
