"""Files as other programs wrote them, among them kinds that the example files of Apache ORC and of
parquet-testing show: they are read right, or refused by the right name, in each way in."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import resource
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyorc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc as pa_orc
from pyarrow import parquet

from acid_platform import CorruptFile, FolderSource, NeedsSpark, UnsupportedLayout, Warehouse
from acid_platform.errors import AcidError, NoSuchTable, WrongType
from acid_platform.formats.orc import (
    dump,
    open_orc,
    open_strange_orc,
    orc_file,
    strange_files,
    tail,
)
from acid_platform.formats.orc.protobuf import delimited, fields, number, varint
from acid_platform.formats.orc.strange_files import replace_footer
from acid_platform.formats.orc.tail import stripes
from acid_platform.formats.parquet_files import open_parquet
from acid_platform.handles.imports import import_table
from acid_platform.storage.files import Files
from tests.conftest import a_warehouse

warehouse = a_warehouse("local")


@pytest.fixture
def db(warehouse: Warehouse, request: pytest.FixtureRequest) -> str:
    """A database of the test's own."""
    name = "d" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    warehouse.sql(f"CREATE DATABASE {name}")
    return name


# --- ORC ------------------------------------------------------------------------------------------


def orc(kind: str, rows: list[Any]) -> bytes:
    content = io.BytesIO()
    with pyorc.Writer(content, kind, compression=pyorc.CompressionKind.NONE) as writer:
        writer.writerows(rows)
    return content.getvalue()


def with_tail(content: bytes, footer: Callable[[bytes], bytes], magic: bool = True) -> bytes:
    """A file of ORC without compression with another footer, and perhaps no magic at its end."""
    size = content[-1]
    postscript = content[-1 - size : -1]
    parts = list(fields(postscript))
    length = next(part.value for part in parts if part.number == 1)
    changed = footer(content[-1 - size - length : -1 - size])
    tail = b"".join(
        number(1, len(changed)) if part.number == 1 else part.raw
        for part in parts
        if magic or part.payload != b"ORC"
    )
    return content[: -1 - size - length] + changed + tail + bytes([len(tail)])


def of_hive_11(content: bytes) -> bytes:
    """The file with decimals that have no precision and no scale."""

    def kind(field: Any) -> bytes:
        if field.number != 4 or not field.payload.startswith(b"\x08\x0e"):
            return bytes(field.raw)
        return delimited(4, b"\x08\x0e")

    return with_tail(content, lambda footer: b"".join(map(kind, fields(footer))))


D = Decimal
OLD: dict[str, tuple[int, list[Decimal | None], str, bool]] = {
    "with 10 digits": (10, [D("12345678.6547456"), D("1E-10"), D("-1.2"), None], "(38,10)", True),
    "declared wider": (10, [D("12345678.6547456"), D("1E-10"), None], "(38,18)", True),
    "declared smaller, and all fit": (10, [D("1.25"), D("-9.00")], "(9,2)", True),
    "declared smaller": (10, [D("1.25"), D("1.255")], "(9,2)", False),
    "more digits than Java keeps": (18, [D("0.12345678901")], "(38,18)", False),
    "stored with more digits": (18, [D("0.1234567890")], "(38,10)", True),
    "large numbers": (0, [D(10**28 - 1), D(1 - 10**28)], "(38,10)", True),
    "beyond 28 digits": (0, [D(10**28)], "(38,10)", False),
    "beyond 128 bits at a scale": (0, [D(34028236692093846346337460743 * 10**8)], "(38,10)", False),
}


@pytest.mark.more
@pytest.mark.parametrize("case", OLD)
def test_P64_decimals_of_hive_11(warehouse: Warehouse, db: str, tmp_path: Path, case: str) -> None:
    scale, values, declared, fits = OLD[case]
    rows = [(i, value, [value]) for i, value in enumerate(values)]
    kind = f"decimal(38,{scale})"
    content = of_hive_11(orc(f"struct<id:int,d:{kind},a:array<{kind}>>", rows))
    for place in ("old", "external"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "000000_0").write_bytes(content)
    columns = f"id int, d decimal{declared}, a array<decimal{declared}>"
    expected = [(i, value, [value]) for i, value in enumerate(values)]

    def adopted() -> list[Any]:
        table = warehouse.adopt_table(f"{db}.a", tmp_path / "old", schema=columns)
        assert rows_of(table.to_arrow()) == expected
        table.compact("major")
        assert rows_of(table.to_arrow()) == expected
        return rows_of(table.to_arrow())

    def external() -> list[Any]:
        place = tmp_path / "external"
        warehouse.sql(f"CREATE EXTERNAL TABLE {db}.e ({columns}) STORED AS ORC LOCATION '{place}'")
        return rows_of(warehouse.sql(f"SELECT * FROM {db}.e").to_arrow())  # type: ignore[union-attr]

    def loaded() -> list[Any]:
        warehouse.sql(f"CREATE TABLE {db}.l ({columns})")
        warehouse.sql(
            f"LOAD DATA LOCAL INPATH '{tmp_path / 'external' / '000000_0'}' INTO TABLE {db}.l"
        )
        return rows_of(warehouse.sql(f"SELECT * FROM {db}.l").to_arrow())  # type: ignore[union-attr]

    for read in (external, adopted, loaded):
        if fits:
            assert sorted(read()) == expected
        else:
            with pytest.raises((UnsupportedLayout, NeedsSpark), match="decimal"):
                read()
    if fits:
        files, path = Files.of(str(tmp_path / "external" / "000000_0"))
        shown = [event["d"] and D(event["d"]) for event in dump.events(files, path)]
        assert shown == values


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


SOUND: dict[str, tuple[bytes, str]] = {
    "no struct": (orc("timestamp", [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]), "timestamp values"),
    "a union": (orc("uniontype<int,string>", [1]), "a union values"),
    "a column of unions": (orc("struct<id:int,u:uniontype<int,string>>", [(1, 2)]), "uniontype"),
    "no column": (orc("struct<>", []), "without columns"),
}


@pytest.mark.parametrize("case", SOUND)
def test_P64_a_sound_file_of_orc_is_refused_by_what_it_is(
    warehouse: Warehouse, db: str, tmp_path: Path, case: str
) -> None:
    content, named = SOUND[case]
    for place in ("in", "old"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "000000_0").write_bytes(content)
    warehouse.sql(
        f"CREATE EXTERNAL TABLE {db}.e (id int) STORED AS ORC LOCATION '{tmp_path / 'in'}'"
    )
    warehouse.sql(f"CREATE TABLE {db}.l (id int)")
    for read in (
        lambda: warehouse.sql(f"SELECT * FROM {db}.e"),
        lambda: warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path / 'in'}' INTO TABLE {db}.l"),
        lambda: warehouse.adopt_table(f"{db}.a", tmp_path / "old"),
    ):
        with pytest.raises(UnsupportedLayout) as raised:
            read()
        assert named in str(raised.value) and "000000_0" in str(raised.value)
        assert "killed" not in str(raised.value)


@pytest.mark.parametrize("magic", [True, False])
def test_orc_without_the_magic_at_its_end(
    warehouse: Warehouse, db: str, tmp_path: Path, magic: bool
) -> None:
    content = with_tail(orc("struct<id:int>", [(1,), (2,)]), lambda footer: footer, magic=False)
    place = tmp_path / "old"
    place.mkdir()
    (place / "000000_0").write_bytes(content if magic else b"CRO" + content[3:])
    if magic:
        table = warehouse.adopt_table(f"{db}.old", place)
        assert rows_of(table.to_arrow()) == [(1,), (2,)]
    else:
        with pytest.raises(CorruptFile, match="does not end in an ORC postscript"):
            warehouse.adopt_table(f"{db}.old", place)


# --- Parquet --------------------------------------------------------------------------------------


def masked(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([*values, None], kind)


LONG = 2**64 - 1
ARROWS: dict[str, tuple[pa.Array, str, list[Any]]] = {
    "large_string": (masked(["a"], pa.large_string()), "string", ["a"]),
    "string_view": (masked(["a"], pa.string_view()), "string", ["a"]),
    "dictionary": (pa.array(["a", None]).dictionary_encode(), "string", ["a"]),
    "dictionary of numbers": (pa.array([7, None]).dictionary_encode(), "bigint", [7]),
    "char": (masked(["a"], pa.large_string()), "char(3)", ["a  "]),
    "large_binary": (masked([b"a"], pa.large_binary()), "binary", [b"a"]),
    "binary_view": (masked([b"a"], pa.binary_view()), "binary", [b"a"]),
    "fixed_size_binary": (masked([b"ab"], pa.binary(2)), "binary", [b"ab"]),
    "uint8": (masked([255], pa.uint8()), "smallint", [255]),
    "uint16": (masked([65535], pa.uint16()), "int", [65535]),
    "uint32": (masked([2**32 - 1], pa.uint32()), "bigint", [2**32 - 1]),
    "uint64": (masked([LONG], pa.uint64()), "decimal(20,0)", [Decimal(LONG)]),
    "a small uint64": (masked([5], pa.uint64()), "bigint", [5]),
    "a small uint32": (masked([5], pa.uint32()), "int", [5]),
    "large_list": (masked([["a"]], pa.large_list(pa.large_string())), "array<string>", [["a"]]),
    "fixed_size_list": (masked([[1, 2]], pa.list_(pa.int32(), 2)), "array<int>", [[1, 2]]),
    "list_view": (masked([[1]], pa.list_view(pa.int32())), "array<int>", [[1]]),
    "struct": (
        masked([{"X": "a", "y": 2}], pa.struct([("X", pa.large_string()), ("y", pa.uint16())])),
        "struct<x:string,y:int>",
        [{"x": "a", "y": 2}],
    ),
    "map": (
        masked([[("a", 1)]], pa.map_(pa.large_string(), pa.uint32())),
        "map<string,bigint>",
        [[("a", 1)]],
    ),
    "nanoseconds": (
        masked([1_000], pa.timestamp("ns")),
        "timestamp",
        [dt.datetime(1970, 1, 1, microsecond=1)],
    ),
    "seconds": (masked([1], pa.timestamp("s")), "timestamp", [dt.datetime(1970, 1, 1, 0, 0, 1)]),
    "date64": (masked([dt.date(2024, 2, 29)], pa.date64()), "date", [dt.date(2024, 2, 29)]),
    "float16": (masked([np.float16(1.5)], pa.float16()), "float", [1.5]),
    "float16 as double": (masked([np.float16(1.5)], pa.float16()), "double", [1.5]),
    "text without its type": (masked([b"a"], pa.binary()), "string", ["a"]),
    "null": (pa.nulls(2), "date", [None]),
    "decimal32": (masked([Decimal("1.25")], pa.decimal32(5, 2)), "decimal(5,2)", [Decimal("1.25")]),
    "a smaller decimal": (masked([Decimal(1)], pa.decimal128(30, 4)), "decimal(5,2)", [Decimal(1)]),
    "json": (masked(["{}"], pa.json_()), "string", ["{}"]),
    "years beyond 2262": (
        masked([dt.datetime(9999, 12, 31)], pa.timestamp("us")),
        "timestamp",
        [dt.datetime(9999, 12, 31)],
    ),
}
"""A column as Arrow has it, with NULL at its end, the type that a table declares, the values."""
NO_VALUE: dict[str, tuple[pa.Array, str]] = {
    "a large uint64": (masked([LONG], pa.uint64()), "bigint"),
    "a large uint32": (masked([2**31], pa.uint32()), "int"),
    "a time of a day": (masked([1], pa.time64("ns")), "bigint"),
    "a time in milliseconds": (masked([1], pa.time32("ms")), "string"),
    "more digits": (masked([Decimal("1.234")], pa.decimal128(30, 4)), "decimal(5,2)"),
    "a larger number": (masked([Decimal("1234")], pa.decimal128(30, 4)), "decimal(5,2)"),
    "no text": (masked([b"\xff"], pa.binary()), "string"),
    "bytes as a number": (masked([b"1"], pa.binary()), "int"),
}


def written(path: Path, column: pa.Array, *, int96: bool = False) -> None:
    table = pa.table({"id": [1, 2], "v": column})
    parquet.write_table(table, path, use_deprecated_int96_timestamps=int96)


def external(warehouse: Warehouse, db: str, place: Path, kind: str) -> list[tuple[Any, ...]]:
    warehouse.sql(
        f"CREATE EXTERNAL TABLE {db}.e (id bigint, v {kind}) STORED AS PARQUET LOCATION '{place}'"
    )
    return rows_of(warehouse.sql(f"SELECT id, v FROM {db}.e").to_arrow())  # type: ignore[union-attr]


def loaded(warehouse: Warehouse, db: str, place: Path, kind: str) -> list[tuple[Any, ...]]:
    warehouse.sql(f"CREATE TABLE {db}.l (id bigint, v {kind})")
    warehouse.sql(f"LOAD DATA LOCAL INPATH '{place}' INTO TABLE {db}.l")
    return rows_of(warehouse.sql(f"SELECT id, v FROM {db}.l").to_arrow())  # type: ignore[union-attr]


def imported(warehouse: Warehouse, db: str, place: Path, kind: str) -> list[tuple[Any, ...]]:
    import_table(warehouse, f"{db}.i", FolderSource(str(place)), schema=f"id bigint, v {kind}")
    return rows_of(warehouse.table(f"{db}.i").to_arrow())


WAYS = (external, loaded, imported)


@pytest.mark.more
@pytest.mark.parametrize("case", ARROWS)
def test_P64_parquet_is_read_by_its_own_types(
    warehouse: Warehouse, db: str, tmp_path: Path, case: str
) -> None:
    column, kind, values = ARROWS[case]
    place = tmp_path / "in"
    place.mkdir()
    written(place / "a.parquet", column)
    expected = [(1, values[0]), (2, None)]
    assert [sorted(way(warehouse, db, place, kind)) for way in WAYS] == [expected] * 3


@pytest.mark.more
@pytest.mark.parametrize("case", NO_VALUE)
def test_P64_a_value_that_a_type_lacks_is_refused(
    warehouse: Warehouse, db: str, tmp_path: Path, case: str
) -> None:
    column, kind = NO_VALUE[case]
    place = tmp_path / "in"
    place.mkdir()
    written(place / "a.parquet", column)
    for way in WAYS:
        with pytest.raises(AcidError):
            way(warehouse, db, place, kind)
    assert not warehouse.table(f"{db}.l").count()
    with pytest.raises(NoSuchTable):
        warehouse.table(f"{db}.i").count()


@pytest.mark.parametrize("int96", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_P64_nanoseconds_are_not_cut(
    warehouse: Warehouse, db: str, tmp_path: Path, way: Any, int96: bool
) -> None:
    place = tmp_path / "in"
    place.mkdir()
    written(place / "a.parquet", masked([1_001], pa.timestamp("ns")), int96=int96)
    with pytest.raises(WrongType, match="nanoseconds"):
        way(warehouse, db, place, "timestamp")


@pytest.mark.parametrize("column", ["timestamp", "array<timestamp>", "struct<a:timestamp>"])
def test_P64_an_external_table_cuts_no_nanoseconds_and_shows_them_as_text(
    warehouse: Warehouse, db: str, tmp_path: Path, column: str
) -> None:
    moment = pa.array([1_709_208_000_123_456_789, None], pa.timestamp("ns"))
    made: dict[str, pa.Array] = {
        "timestamp": moment,
        "array<timestamp>": pa.ListArray.from_arrays([0, 1, 2], moment),
        "struct<a:timestamp>": pa.StructArray.from_arrays([moment], ["a"]),
    }
    for how in ("ORC", "PARQUET", "PARQUET of 96 bits"):
        stored, bits = how.split(" ")[0], {"use_deprecated_int96_timestamps": True}
        place = tmp_path / how
        place.mkdir()
        warehouse.sql(f"DROP TABLE IF EXISTS {db}.{stored}_cut")
        warehouse.sql(f"DROP TABLE IF EXISTS {db}.{stored}_whole")
        rows = pa.table({"id": [1, 2], "v": made[column]})
        write = pa_orc.write_table if stored == "ORC" else parquet.write_table
        write(rows, place / "a", **(bits if how.endswith("bits") else {}))
        for kind, name in ((column, "cut"), (column.replace("timestamp", "string"), "whole")):
            warehouse.sql(
                f"CREATE EXTERNAL TABLE {db}.{stored}_{name} (id bigint, v {kind})"
                f" STORED AS {stored} LOCATION '{place}'"
            )
        with pytest.raises(WrongType, match=r"column v: .*nanoseconds.*declare .* string"):
            warehouse.sql(f"SELECT v FROM {db}.{stored}_cut").to_arrow()
        assert warehouse.sql(f"SELECT count(id) AS n FROM {db}.{stored}_cut").to_arrow()  # not read
        (text, *_) = warehouse.sql(f"SELECT v FROM {db}.{stored}_whole").to_arrow()["v"].to_pylist()
        text = text[0] if isinstance(text, list) else text["a"] if isinstance(text, dict) else text
        assert text == "2024-02-29 12:00:00.123456789"


@pytest.mark.parametrize("stored", ["TEXTFILE", "JSONFILE"])
def test_P64_a_time_of_a_text_with_nanoseconds_is_not_cut(
    warehouse: Warehouse, db: str, tmp_path: Path, stored: str
) -> None:
    moment = "2024-02-29 12:00:00.123456789"
    (tmp_path / "in").mkdir()
    line = moment if stored == "TEXTFILE" else f'{{"v": "{moment}"}}'
    (tmp_path / "in" / "a").write_text(f"{line}\n")
    for kind in ("timestamp", "string"):
        warehouse.sql(
            f"CREATE EXTERNAL TABLE {db}.{kind} (v {kind}) STORED AS {stored}"
            f" LOCATION '{tmp_path / 'in'}'"
        )
    with pytest.raises((WrongType, CorruptFile), match=f"'{moment}' has nanoseconds"):
        warehouse.sql(f"SELECT v FROM {db}.timestamp").to_arrow()
    assert warehouse.sql(f"SELECT v FROM {db}.string").to_arrow()["v"].to_pylist() == [moment]


INT_16, UINT_16 = b"%\x20L\xac\x13\x10\x11\x00\x00", b"%\x18L\xac\x13\x10\x12\x00\x00"
INT_8, UINT_8 = b"%\x1eL\xac\x13\x08\x11\x00\x00", b"%\x16L\xac\x13\x08\x12\x00\x00"
"""How a footer says the type of a whole number, in both of Parquet's notations."""


@pytest.mark.parametrize("way", WAYS)
def test_P64_a_decimal_beyond_the_digits_that_its_file_says(
    warehouse: Warehouse, db: str, tmp_path: Path, way: Any
) -> None:
    place = tmp_path / "in"
    place.mkdir()
    values = pa.array([Decimal("1234567.89"), Decimal("1.00")], pa.decimal128(9, 2))
    rows = pa.table({"id": [1, 2], "v": values})
    parquet.write_table(
        rows, place / "a.parquet", store_schema=False, store_decimal_as_integer=True
    )
    content = (place / "a.parquet").read_bytes()
    nine, four = b"\x15\x04\x15\x12", b"\x15\x04\x15\x08"  # digits, behind the scale
    assert content.count(nine) == 2
    (place / "a.parquet").write_bytes(content.replace(nine, four))
    for kind in ("decimal(4,2)", "decimal(9,2)"):
        with pytest.raises(AcidError, match=r"(?s)v.*1234567"):
            way(warehouse, db, place, kind)
        for name in ("e", "l", "i"):
            warehouse.sql(f"DROP TABLE IF EXISTS {db}.{name}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "said", "instead", "value"),
    [(pa.int16(), INT_16, INT_8, 300), (pa.uint16(), UINT_16, UINT_8, 256),
     (pa.int16(), INT_16, UINT_16, -1)],
)  # fmt: skip
def test_P64_a_whole_number_beyond_the_type_that_its_file_says(
    warehouse: Warehouse, db: str, tmp_path: Path, way: Any, kind: Any, said: bytes,
    instead: bytes, value: int,
) -> None:  # fmt: skip
    place = tmp_path / "in"
    place.mkdir()
    rows = pa.table({"id": [1, 2], "v": pa.array([value, 5], kind)})
    parquet.write_table(rows, place / "a.parquet", store_schema=False)
    content = (place / "a.parquet").read_bytes()
    (place / "a.parquet").write_bytes(changed_footer(content, said, instead))
    with pytest.raises(AcidError, match=f"column v, .*{value} not in range.*write the file again"):
        way(warehouse, db, place, "int")


def changed_footer(content: bytes, old: bytes, new: bytes) -> bytes:
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    assert footer.count(old) == 1
    footer = footer.replace(old, new)
    return content[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_a_repeated_group_without_annotation(warehouse: Warehouse, db: str, tmp_path: Path) -> None:
    column = pa.array([[7, 8], None], pa.list_(pa.int32()))
    place = tmp_path / "in"
    place.mkdir()
    parquet.write_table(pa.table({"id": [1, 2], "v": column}), place / "a", store_schema=False)
    said = b"\x15\x06L<\x00\x00"  # a list, in both of Parquet's notations
    (place / "a").write_bytes(changed_footer((place / "a").read_bytes(), said, b""))
    found = external(warehouse, db, place, "struct<list:array<struct<element:int>>>")
    assert found == [(1, {"list": [{"element": 7}, {"element": 8}]}), (2, None)]


def test_P64_a_page_that_is_not_its_checksum(warehouse: Warehouse, db: str, tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    rows = pa.table({"id": [1, 2], "v": ["first", "second"]})
    parquet.write_table(rows, place / "a", compression="none", write_page_checksum=True)
    content = (place / "a").read_bytes()
    (place / "a").write_bytes(content.replace(b"second", b"sekond", 1))
    with pytest.raises(CorruptFile, match="checksum"):
        external(warehouse, db, place, "string")


def test_P64_a_column_of_the_type_variant_is_refused(
    warehouse: Warehouse, db: str, tmp_path: Path
) -> None:
    """Its parts are no values: what DuckDB takes out of `value` is in a third one."""
    place = tmp_path / "in"
    place.mkdir()
    duckdb.sql(f"COPY (SELECT 1 AS id, 'x'::VARIANT AS v) TO '{place}/a' (FORMAT parquet)")
    for kind in ("struct<metadata:binary,value:binary>", "string"):
        with pytest.raises(UnsupportedLayout, match="type VARIANT"):
            external(warehouse, db, place, kind)
        warehouse.sql(f"DROP TABLE {db}.e")
    with pytest.raises(UnsupportedLayout, match="type VARIANT"):
        import_table(warehouse, f"{db}.i", FolderSource(str(place)))


# --- files that say little of what they hold ------------------------------------------------------


@pytest.mark.more
def test_P65_a_long_text_that_every_row_repeats(
    warehouse: Warehouse, db: str, tmp_path: Path
) -> None:
    """300 bytes of Parquet hold 9 GB of texts: each way in refuses them within 2 GB."""
    place = tmp_path / "in"
    place.mkdir()
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 9_000, pa.int32()), ["x" * (1 << 20)])
    parquet.write_table(
        pa.table({"id": range(9_000), "v": texts}),
        place / "a.parquet",
        compression="zstd",
        dictionary_pagesize_limit=1 << 30,
        store_schema=False,
    )
    assert (place / "a.parquet").stat().st_size < 100_000
    for way in WAYS:
        with pytest.raises(AcidError, match=r"row group 0 takes few bytes .* MB; write it again"):
            way(warehouse, db, place, "string")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 3 << 20


def test_numbers_in_a_dictionary_are_read_together(tmp_path: Path) -> None:
    """Their dictionary is no list of texts with their lengths: each row was read by itself."""
    values = pa.array([number % 1000 for number in range(300_000)], pa.int32())
    columns = {str(kind): values.cast(kind) for kind in (pa.int32(), pa.float64())}
    parquet.write_table(pa.table(columns), tmp_path / "a", use_dictionary=True)
    with pa.OSFile(str(tmp_path / "a")) as stream:
        file = open_parquet(stream, str(tmp_path / "a"))
        for name in columns:
            assert file.bounds.require(0, [name]).at_once is None, name


STRIPES: dict[str, tuple[Callable[[list[int]], list[int]], str]] = {
    "an end beyond the file": (lambda parts: [*parts[:2], 1 << 40, *parts[3:]], "ends at byte"),
    "a footer beyond the file": (lambda parts: [*parts[:3], 1 << 40, parts[4]], "ends at byte"),
    "rows without end": (lambda parts: [*parts[:4], 1 << 50], "values would take"),
}


@pytest.mark.parametrize("case", STRIPES)
def test_P65_a_stripe_that_says_more_than_it_is(tmp_path: Path, case: str) -> None:
    changed, said = STRIPES[case]

    def stripe(field: Any) -> bytes:
        if field.number != 3:
            return bytes(field.raw)
        parts = {part.number: part.value for part in fields(field.payload)}
        values = changed([parts.get(key, 0) for key in range(1, 6)])
        return delimited(3, b"".join(number(key, one) for key, one in enumerate(values, 1)))

    content = orc("struct<id:int,v:string>", [(1, "a"), (2, "b")])
    path = tmp_path / "a.orc"
    path.write_bytes(with_tail(content, lambda footer: b"".join(map(stripe, fields(footer)))))
    files, inside = Files.of(str(path))
    with pytest.raises(CorruptFile, match=said):
        open_strange_orc(files, inside)


def bomb_of_texts(dictionary: bool) -> bytes:
    content = io.BytesIO()
    with pyorc.Writer(
        content,
        "struct<v:string>",
        compression=pyorc.CompressionKind.ZSTD,
        dict_key_size_threshold=float(dictionary),
        stripe_size=1 << 31,
    ) as writer:
        for _ in range(1100):
            writer.write(("x" * (1 << 20),))
    return content.getvalue()


def bomb_of_lists() -> bytes:
    values = pa.array(np.zeros(140_000_000, np.int8))
    lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    content = io.BytesIO()
    pa_orc.write_table(pa.table({"v": lists}), content, compression="zlib", stripe_size=1 << 33)
    return content.getvalue()


BOMBS: dict[str, Callable[[], bytes]] = {
    "a dictionary": lambda: bomb_of_texts(True),
    "texts that are packed": lambda: bomb_of_texts(False),
    "a list": bomb_of_lists,
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BOMBS)
def test_P65_a_stripe_of_orc_that_unpacks_to_much(tmp_path: Path, case: str) -> None:
    """Without statistics, which a stranger need not write."""
    path = tmp_path / "a.orc"
    path.write_bytes(BOMBS[case]())
    files, inside = Files.of(str(path))
    known = open_orc(files, inside).footer
    replace_footer(files, inside, b"".join(part.raw for part in fields(known) if part.number != 7))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(CorruptFile, match=r"stripe 0 takes .* values would take 1,"):
        open_strange_orc(files, inside)


def test_P65_the_lengths_of_a_file_in_a_store_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stripe by one request, and by none when the file is opened again."""
    from pyarrow import fs

    path = tmp_path / "a.orc"
    rows = [(hashlib.sha512(bytes([n % 256, n >> 8])).hexdigest(), [str(n)]) for n in range(9000)]
    content = io.BytesIO()
    with pyorc.Writer(content, "struct<v:string,l:array<string>>", stripe_size=1 << 18) as writer:
        writer.writerows(rows)
    path.write_bytes(content.getvalue())
    far = Files(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "s3")
    asked: list[int] = []
    stripe_count = open_orc(far, "a.orc").nstripes
    fetch = pa.BufferReader
    monkeypatch.setattr(
        strange_files.pa, "BufferReader", lambda part: asked.append(len(part)) or fetch(part)
    )
    for _ in range(2):
        open_strange_orc(far, "a.orc")
    assert stripe_count > 1 and len(asked) == stripe_count
    monkeypatch.setattr(tail, "LARGEST_PIECE", 1000)
    monkeypatch.setattr(tail, "MOST_UNPACKED", 0)
    orc_file._LOOKED_AT.clear()
    with pytest.raises(CorruptFile, match="values would take"):
        open_strange_orc(far, "a.orc")


def footer_of_types(types: bytes) -> Callable[[bytes], bytes]:
    return lambda footer: (
        types + b"".join(part.raw for part in fields(footer) if part.number not in (4, 7))
    )


def nested(levels: int, packed: bool) -> bytes:
    """Structs in structs, whose one part is written in either way that protobuf has."""

    def kind(level: int) -> bytes:
        part = delimited(2, varint(level)) if packed else number(2, level)
        return delimited(4, number(1, 12) + (part + delimited(3, b"a")) * (level < levels))

    return b"".join(map(kind, range(1, levels + 1)))


FOOTERS = {
    "nested": (nested(102, True), "deeper than 100 levels"),
    "nested otherwise": (nested(100_000, False), "deeper than 100 levels"),
    "many types": (b"\x22\x00" * (1 << 20), "more than 1,048,576 parts"),
    "a long type": (delimited(4, number(1, 12) + b"\x12\x01\x01" * 6_000_000), "18,000,002 bytes"),
}


@pytest.mark.parametrize("case", FOOTERS)
def test_P65_a_footer_of_orc_is_looked_at_before_a_reader_sees_it(
    tmp_path: Path, case: str
) -> None:
    """Deeper types end the process."""
    types, said = FOOTERS[case]
    path = tmp_path / "a.orc"
    path.write_bytes(with_tail(orc("struct<id:int>", [(1,)]), footer_of_types(types)))
    files, inside = Files.of(str(path))
    with pytest.raises(CorruptFile, match=said):
        open_strange_orc(files, inside)


LENGTHS = st.one_of(
    st.lists(st.integers(0, 40), max_size=600),
    st.lists(st.sampled_from([0, 1, 3000]), max_size=600),
    st.builds(lambda first, step, n: [first + step * i for i in range(n)], *[st.integers(0, 9)] * 2,
              st.integers(0, 600)),
    st.builds(lambda few, long: [*few, long, *few], st.lists(st.integers(0, 3)), st.just(9000)),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(LENGTHS, min_size=1, max_size=3), st.booleans(), st.sampled_from(["0.11", "0.12"]))
def test_P65_the_lengths_of_a_stripe_are_those_that_a_reader_finds(
    lists: list[list[int]], dictionary: bool, version: str
) -> None:
    """Texts of all lengths in lists, in both encodings of both versions of ORC."""
    content = io.BytesIO()
    rows = [
        [chr(97 + (number + i) % 7) * size for i, size in enumerate(lengths)]
        for number, lengths in enumerate(lists)
    ]
    pa_orc.write_table(
        pa.table({"v": pa.array(rows, pa.list_(pa.string()))}),
        content,
        file_version=version,
        dictionary_key_size_threshold=float(dictionary),
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.orc"
        path.write_bytes(content.getvalue())
        files, inside = Files.of(str(path))
        file = open_strange_orc(files, inside)
        texts = pc.binary_length(file.read().column("v").combine_chunks().flatten())
        letters = pc.sum(texts).as_py() or 0
        none_is_few = mock.patch.object(strange_files, "LARGEST_PIECE", 0)
        with none_is_few, files.open(inside) as stream:
            found = [
                strange_files._StripeLengths(file, stripe, stream).size()
                for stripe in stripes(file.footer)
            ]
    least = letters + 8 * len(texts)
    assert least <= sum(found) <= least + len(content.getvalue()) + letters * dictionary
