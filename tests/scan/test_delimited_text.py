"""Hive's delimited text: what LazySimpleSerDe makes of a line, as its source says (Hive 4)."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from math import inf, isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from acid_platform import CorruptFile, UnsupportedLayout
from acid_platform.base.file_bounds import BATCH_VALUES
from acid_platform.layout.formats import external_format
from acid_platform.layout.types import parse_columns
from acid_platform.scan.text_lines import (
    CsvLines,
    DelimitedText,
    NoSuchValue,
    json_columns,
    line_blocks,
    line_columns,
    lines_of,
    require_few,
)
from acid_platform.scan.text_values import typed_texts
from acid_platform.storage.files import Files

LOCAL = Files(fs.LocalFileSystem())


def rows(lines: Sequence[str], columns: str, options: dict[str, str] | None = None) -> list[Any]:
    declared = parse_columns(columns)
    text = DelimitedText.of(
        external_format("t", "text", "", {"field.delim": ",", **(options or {})}, {})
    )
    arrays = text.columns(pa.array(lines), declared, {column.name for column in declared})
    return [tuple(row.values()) for row in pa.table(arrays).to_pylist(maps_as_pydicts="strict")]


def values(kind: str, *texts: str, **options: str) -> list[Any]:
    return [row[0] for row in rows(texts, f"c {kind}", {"field.delim": ";", **options})]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "5", 5),
        ("int", "+5", 5),
        ("int", "-0", 0),
        ("int", "007", 7),
        ("int", "1.9", 1),
        ("int", "-1.9", -1),
        ("int", ".5", 0),
        ("int", "5.", 5),
        ("int", " 5", None),
        ("int", "5 ", None),
        ("int", "", None),
        ("int", "-", None),
        ("int", ".", None),
        ("int", "1e3", None),
        ("int", "1.2.3", None),
        ("int", "x", None),
        ("int", "null", None),
        ("int", "2147483647", 2147483647),
        ("int", "2147483648", None),
        ("int", "-2147483648", -2147483648),
        ("tinyint", "127", 127),
        ("tinyint", "128", None),
        ("smallint", "-32769", None),
        ("bigint", "9223372036854775807", 9223372036854775807),
        ("bigint", "9223372036854775808", None),
        ("bigint", "-9223372036854775808.9", -9223372036854775808),
        ("boolean", "TRUE", True),
        ("boolean", "False", False),
        ("boolean", "t", None),
        ("boolean", "1", None),
        ("double", "1.5", 1.5),
        ("double", " 1.5 ", 1.5),
        ("double", "1e3", 1000.0),
        ("double", "+1.", 1.0),
        ("double", "1.5f", 1.5),
        ("double", "0x1p3", 8.0),
        ("double", "Infinity", inf),
        ("double", "-Infinity", -inf),
        ("double", "inf", None),
        ("double", "1,5", None),
        ("double", "", None),
        ("double", "N/A ", None),
        ("float", "0.1", 0.10000000149011612),
        ("decimal(5,2)", "1.005", Decimal("1.01")),
        ("decimal(5,2)", "-1.005", Decimal("-1.01")),
        ("decimal(5,2)", " 12 ", Decimal("12.00")),
        ("decimal(5,2)", "1e2", Decimal("100.00")),
        ("decimal(5,2)", "999.994", Decimal("999.99")),
        ("decimal(5,2)", "999.995", None),
        ("decimal(5,2)", "1000", None),
        ("decimal(5,0)", "1.5", Decimal("2")),
        ("decimal(2,2)", "0.5", Decimal("0.50")),
        ("decimal(5,2)", "1e999999999", None),
        ("decimal(5,2)", "one", None),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("date", "2024-2-9", date(2024, 2, 9)),
        ("date", " 2024-02-09 ", date(2024, 2, 9)),
        ("date", "2024-02-09 10:00:00", date(2024, 2, 9)),
        ("date", "2023-02-29", None),
        ("date", "0000-00-00", None),
        ("date", "20240209", None),
        ("date", "", None),
        ("timestamp", "2024-02-09 10:11:12", datetime(2024, 2, 9, 10, 11, 12)),
        ("timestamp", "2024-02-09 10:11:12.5", datetime(2024, 2, 9, 10, 11, 12, 500000)),
        ("timestamp", "2024-02-09 1:2:3.123456000", datetime(2024, 2, 9, 1, 2, 3, 123456)),
        ("timestamp", "2024-02-09", datetime(2024, 2, 9)),
        ("timestamp", "2024-02-30 10:11:12", None),
        ("timestamp", "2024-02-09 24:00:00", None),
        ("timestamp", "2024-02-09T10:11:12", None),
        ("timestamp", "2024-02-09 10:11", None),
        ("string", "", ""),
        ("string", " a ", " a "),
        ("string", "\\N", None),
        ("string", '"a"', '"a"'),
        ("array<int>", "1\x022\x02x", [1, 2, None]),
        ("array<int>", "", []),
        ("array<int>", "\\N", None),
        ("array<string>", "a\x02\x02\\N", ["a", "", None]),
        ("array<array<int>>", "1\x032\x023", [[1, 2], [3]]),
        ("map<string,int>", "a\x031\x02b\x032", {"a": 1, "b": 2}),
        ("map<string,int>", "a\x031\x02a\x032", {"a": 1}),
        ("map<string,int>", "a\x02\\N\x032", {"a": None}),
        ("map<string,string>", "a\x03b\x03c", {"a": "b\x03c"}),
        ("map<int,array<int>>", "1\x032\x043", {1: [2, 3]}),
        ("map<string,int>", "", {}),
        ("struct<a:int,b:string>", "1\x02x\x02y", {"a": 1, "b": "x"}),
        ("struct<a:int,b:string>", "1", {"a": 1, "b": None}),
        ("struct<a:int,b:string>", "", {"a": None, "b": None}),
        ("struct<a:int,b:array<int>>", "1\x022\x033", {"a": 1, "b": [2, 3]}),
    ],
)
def test_a_value(kind: str, text: str, value: object) -> None:
    assert values(kind, text) == [value]
    beside = values(kind, text, "\\N", text)  # one value does not change those beside it
    assert beside == [value, None, value]


def test_not_a_number() -> None:
    assert [isnan(one) for one in values("double", "NaN", "-NaN")] == [True, True]


def test_lines_with_too_few_and_too_many_fields() -> None:
    assert rows(["1,a", "2", "", "3,b,c"], "id int, v string") == [
        (1, "a"),
        (2, None),
        (None, None),
        (3, "b"),
    ]


def test_a_column_in_the_middle() -> None:
    text = DelimitedText("," + "\x02\x03", "\\N")
    columns = parse_columns("a int, b int, c int")
    assert text.columns(pa.array(["1,2,3", "4"]), columns, {"b"})["b"].to_pylist() == [2, None]


def test_escapes() -> None:
    found = rows(
        ["a\\,b,\\N,c\\\\", "x\\ny,\\\\N,z\\", "\\p,q"],
        "a string, b string, c string",
        {"escape.delim": "\\"},
    )
    assert found == [("a,b", None, "c\\"), ("x\ny", "\\N", "z\\"), ("p", "q", None)]
    nested = rows(["a\\:b:c"], "a array<string>", {"escape.delim": "\\", "collection.delim": ":"})
    assert nested == [(["a:b", "c"],)]


def test_another_text_for_null() -> None:
    given = {"serialization.null.format": "NA"}
    assert rows(["NA,\\N", ",NA"], "a string, b string", given) == [(None, "\\N"), ("", None)]


def test_delimiters_by_number() -> None:
    assert rows(["1\t2"], "a int, b int", {"field.delim": "9"}) == [(1, 2)]


def test_csv() -> None:
    lines = ['1,"a,b",c', '2,"say ""hi""",', "3", "", '4, "x" ,y', '5,a"b"c,d', '6,"\\"q\\"",z']
    columns = parse_columns("a string, b string, c string")
    reader = CsvLines(",", '"', "\\", "f")
    arrays = reader.columns(pa.array(lines), columns, {"a", "b", "c"})
    assert [tuple(row.values()) for row in pa.table(arrays).to_pylist()] == [
        ("1", "a,b", "c"),
        ("2", 'say "hi"', ""),
        ("3", None, None),
        (None, None, None),
        ("4", 'x" ', "y"),
        ("5", 'a"b"c', "d"),
        ("6", '"q"', "z"),
    ]
    plain = reader.columns(pa.array(["1,2,3,4", "", "5"]), columns, {"b"})
    assert plain["b"].to_pylist() == ["2", None, None]
    with pytest.raises(CorruptFile, match="not closed in its line"):
        reader.columns(pa.array(['1,"two']), columns, {"a"})


LONG_DECIMAL = "12345678901234567890.123456789012345678"


def test_json() -> None:
    columns = parse_columns(
        "id int, V string, d decimal(5,2), day date, s struct<a:int,b:string>, m map<int,double>,"
        " l array<boolean>, w decimal(38,18)"
    )
    lines = [
        '{"ID": 1, "v": "a", "d": 1.50, "day": "2024-01-02", "s": {"A": 1}, "m": {"1": 2},'
        ' "l": [true, null], "more": 1}',
        '{"v": 1.50, "w": ' + LONG_DECIMAL + "}",
    ]
    arrays = json_columns(pa.array(lines), columns, {column.name for column in columns}, "f")
    assert pa.table(arrays).to_pylist(maps_as_pydicts="strict") == [
        {
            "id": 1,
            "v": "a",
            "d": Decimal("1.50"),
            "day": date(2024, 1, 2),
            "s": {"a": 1, "b": None},
            "m": {1: 2.0},
            "l": [True, None],
            "w": None,
        },
        dict.fromkeys(("id", "d", "day", "s", "m", "l"))
        | {"v": "1.50", "w": Decimal(LONG_DECIMAL)},
    ]


@pytest.mark.parametrize(
    "line",
    [
        *('{"id": 1.5}', '{"id": "1"}', '{"id": 99999999999}', "[1]", "{", "", '{"id": true}'),
        *('{"x": 1e400}', '{"x": -1e400}', '{"f": 1e39}', '{"x": ' + "9" * 400 + "}"),
        *('{"d": 1e999999999}', '{"d": 1e-999999999}', '{"id": 1e99999}', '{"d": 1.255}'),
        *('{"s": "\\ud800"}', '{"m": {"\\udfff": 1}}', '{"id": ' + "9" * 5000 + "}"),
        *('{"s": ' + "[" * 100_000, '{"s": ' * 100_000),
    ],
)
def test_json_that_a_column_does_not_hold(line: str) -> None:
    columns = parse_columns(
        "id int, x double, f float, d decimal(5,2), s string, m map<string,int>"
    )
    with pytest.raises(CorruptFile, match="correct it"):
        json_columns(pa.array([line]), columns, {column.name for column in columns}, "f")


@pytest.mark.parametrize("kind", ["bigint", "decimal(38,2)", "decimal(9,2)", "double", "int"])
@pytest.mark.parametrize("digits", [39, 60, 5_000])
def test_a_number_of_many_digits(kind: str, digits: int) -> None:
    [column] = parse_columns(f"v {kind}")
    texts = pa.array(["9" * digits, "0." + "1" * digits, "0" * digits + "7", "9" * digits + "e-9"])
    found = typed_texts(texts, column.type).to_pylist()
    many = None if kind != "double" else float("9" * digits)
    tenth: object = 0.1111111111111111 if kind == "double" else Decimal("0.11")
    if kind in ("bigint", "int"):
        tenth = 0
    assert found[:3] == [many, tenth, 7]


@pytest.mark.more
def test_P65_a_line_of_text_that_does_not_end(tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"first\n")
        for _ in range(200):
            file.write(b"a" * (1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile, match=r"f\.gz: line 2 does not end within 16 MB"):
            list(line_blocks(LOCAL, str(path), path.stat().st_size))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_P65_short_lines_have_as_many_values_as_long_ones(tmp_path: Path) -> None:
    """A few kilobytes of line ends would be columns of gigabytes."""
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"\n" * 300_000 + b"a\n"))
    columns = parse_columns(", ".join(f"c{i} struct<a:int,b:int>" for i in range(100)))
    parts = [*line_blocks(LOCAL, str(path), path.stat().st_size, 0, columns)]
    assert b"".join(parts) == b"\n" * 300_000 + b"a\n"
    assert all(part.endswith(b"\n") for part in parts)
    assert max(part.count(b"\n") for part in parts) * 300 <= BATCH_VALUES


def test_P65_an_empty_struct_has_as_many_values_as_any_other() -> None:
    fields = ",".join(f"f{i}:int" for i in range(1000))
    columns = parse_columns(f"v array<struct<{fields}>>")
    [column] = columns
    few, many = (pa.array(['{"v":[' + "{}," * n + "{}]}"]) for n in (1_000, 10_000))
    assert len(json_columns(few, columns, {"v"}, "f")["v"][0]) == 1_001
    with pytest.raises(CorruptFile, match=r"10,002 objects, .* up to 1000 fields"):
        json_columns(many, columns, {"v"}, "f")
    nested = {"v": [[{}] * 10] * 1_000}
    require_few(nested, 1_000, [column.type])  # too short for many
    with pytest.raises(NoSuchValue, match="10,001 objects"):
        require_few(nested, 100_000, [column.type])
    with pytest.raises(CorruptFile, match=r"f: lines together have .* structs of 1000 fields"):
        line_columns(b"\x02" * 40_000 + b"\n", external_format("t", "text", "", {}, {}), "f",
                     columns, {"v"})  # fmt: skip


def test_P65_a_long_number_is_not_printed_whole() -> None:
    columns = parse_columns("v decimal(9,2)")
    with pytest.raises(CorruptFile) as raised:
        json_columns(pa.array(['{"v": 1.' + "3" * 100_000 + "}"]), columns, {"v"}, "f")
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("block", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\rc\n\nd\r", ["a", "b", "c", "", "d"]),
        (b"\r\n\r\n", ["", ""]),
        (b"\n", [""]),
        (b"", []),
        ("\ufeffä\nö".encode(), ["ä", "ö"]),
    ],
)
def test_lines(
    content: bytes, lines: list[str], block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acid_platform.scan.text_lines.BLOCK", block)
    file = tmp_path / "f"
    file.write_bytes(content)
    for header in (0, 1, 2):
        blocks = line_blocks(LOCAL, str(file), len(content), header)
        read = [line for one in blocks for line in lines_of(one, "f").to_pylist()]
        assert read == lines[header:]


def test_files_that_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"abc\n")
    with pytest.raises(CorruptFile, match="it is being written"):
        list(line_blocks(LOCAL, str(file), 3))
    with pytest.raises(CorruptFile, match="is not UTF-8"):
        lines_of(b"a\xff\n", "f")
    with pytest.raises(UnsupportedLayout, match="are not read"):
        list(line_blocks(LOCAL, str(tmp_path / "f.snappy"), 3))
