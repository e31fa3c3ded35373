"""CSV and JSON as people send them: each value as it is written, or an error with file and line
(P65)."""

from __future__ import annotations

import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from acid_platform.base.file_bounds import LONGEST_ROW
from tests.imports.conftest import Place

D = Decimal
READ: dict[str, tuple[str, str, tuple[str, ...], str, list[Any]]] = {
    "blanks in the names": ("csv", "id, name \n1,x\n", (), "id bigint, name string", [(1, "x")]),
    "line breaks in a name": (
        "csv",
        '"order\nid",name\n1,x\n',
        (),
        "order id bigint, name string",
        [(1, "x")],
    ),
    "chosen columns": (
        "csv",
        "id, name,more\n1,x,y\n",
        ("--columns", "id,name"),
        "id bigint, name string",
        [(1, "x")],
    ),
    "types of CSV": (
        "csv",
        "a,b,c,d,e,f,g,h,i\n1,007,1.50,1e3,true,2024-02-29,2024-02-29 12:30:00,,x\n-2,8,22,2,false,"
        '2024-03-01,2024-03-01T00:00:00.5,,""\n',
        (),
        "a bigint, b string, c decimal(4,2), d double, e boolean, f date, g timestamp, h string,"
        " i string",
        [
            (
                *(1, "007", D("1.50"), 1000.0, True, dt.date(2024, 2, 29)),
                *(dt.datetime(2024, 2, 29, 12, 30), None, "x"),
            ),
            (
                *(-2, "8", D("22.00"), 2.0, False, dt.date(2024, 3, 1)),
                *(dt.datetime(2024, 3, 1, microsecond=500_000), None, ""),
            ),
        ],
    ),
    "what is no day": ("csv", "d\n2024-02-30\n", (), "d string", [("2024-02-30",)]),
    "long numbers": ("csv", f"n\n{10**30}\n", (), "n decimal(31,0)", [(D(10**30),)]),
    "longer numbers": ("csv", f"n\n{10**50}\n", (), "n double", [(1e50,)]),
    "thousands of digits": ("csv", f"n\n{'1' * 5000}\n", (), "n string", [("1" * 5000,)]),
    "all strings": (
        "csv",
        "a,b\n1,2024-02-29\n",
        ("--all-strings",),
        "a string, b string",
        [("1", "2024-02-29")],
    ),
    "decimal commas": (
        "csv",
        "a;b;c\n1,5;2;x\n-0,25;3;y\n",
        ("--decimal-comma", "--delimiter", ";"),
        "a decimal(3,2), b bigint, c string",
        [(D("1.50"), 2, "x"), (D("-0.25"), 3, "y")],
    ),
    "decimal commas and points": (
        "csv",
        "a\n1.234\n",
        ("--decimal-comma", "--delimiter", ";"),
        "a string",
        [("1.234",)],
    ),
    "lines of JSON": (
        "json",
        '{"a":1,"b":"x"}\n\n{"a":2.5,"c":[1,null]}\n',
        (),
        "a decimal(20,1), b string, c array<bigint>",
        [(D("1.0"), "x", None), (D("2.5"), None, [1, None])],
    ),
    "an array of JSON": (
        "json",
        '\ufeff[{"A":1},\n {"a":null, "s":{"X":true}}\n]\n',
        (),
        "a bigint, s struct<x:boolean>",
        [(1, None), (None, {"x": True})],
    ),
    "JSON as the table has it": (
        "json",
        '{"id":"x","d":"2024-02-29","n":1.50}\n',
        ("--schema", "id string, d date, n decimal(9,2)"),
        "id string, d date, n decimal(9,2)",
        [("x", dt.date(2024, 2, 29), D("1.50"))],
    ),
    "long numbers of JSON": ("json", f'{{"n":{10**30}}}', (), "n decimal(31,0)", [(D(10**30),)]),
    "long fractions of JSON": (
        "json",
        f'{{"n":{"7" * 20}.{"3" * 18}}}',
        ("--schema", "n decimal(38,18)"),
        "n decimal(38,18)",
        [(D(f"{'7' * 20}.{'3' * 18}"),)],
    ),
    "an empty array, with a schema": ("json", "[]", ("--schema", "n int"), "n int", []),
    "JSON as strings": (
        "json",
        '{"a":1.50,"b":{"c":[1]}}\n',
        ("--all-strings",),
        "a string, b string",
        [("1.50", '{"c": [1]}')],
    ),
    "a pair of halves": ("json", r'{"a":"\ud83d\ude00"}', (), "a string", [("😀",)]),
}


@pytest.mark.parametrize("case", READ)
def test_P66_what_is_read(place: Place, tmp_path: Path, case: str) -> None:
    kind, text, options, columns, rows = READ[case]
    (tmp_path / f"a.{kind}.gz").write_bytes(gzip.compress(text.encode()))
    assert place.run(kind, tmp_path, *options)["rows"] == len(rows)
    assert place.columns() == columns
    found = [tuple(row.values()) for row in place.rows()]
    assert sorted(found, key=str) == sorted(rows, key=str)


TABLE = ("--schema", "id int, x double, d decimal(9,2), t string")
LONG = "a" * (LONGEST_ROW + 1)
REFUSED: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "no number": ("csv", 'id,t\n1,"a\nb"\n\none,c\n', TABLE, "line 5: column 'id'"),
    "a number that is too large": ("csv", "id,x\n1,1\n2,1e400\n", TABLE, "line 3: column 'x'"),
    "more digits": ("csv", "id,d\n1,1.555\n", TABLE, "line 2: column 'd'"),
    "thousands of digits": ("csv", f"id,d\n1,{'9' * 5000}\n", TABLE, "line 2: column 'd'"),
    "a field too few": ("csv", 'id,t\n1,"a\nb"\n2\n', TABLE, "line 4: CSV parse error"),
    "a point beside a comma": (
        "csv",
        "id;d\n1;1.234\n",
        (*TABLE, "--decimal-comma", "--delimiter", ";"),
        "line 2: column 'd': '1.234' has a point",
    ),
    "two names": ("csv", "id, id\n1,2\n", TABLE, "two columns 'id'"),
    "a first row without an end": ("csv", LONG, (), "first row does not end within 16 MB"),
    "names without an end": ("csv", '"' + "a\n" * LONGEST_ROW, (), "names of the columns"),
    "names over many lines": ("csv", '"a\n",' * (1 << 12) * 3, (), "more than 10,000 columns"),
    "a name for each of many lines": (
        "csv",
        ("x" * 100_000 + ',"\n",') * 200,
        (),
        "first row does not end within 16 MB",
    ),
    "a wrong value behind a long one": (
        "csv",
        f"id,t\n1,{'x' * 200_000}\none,b\n",
        TABLE,
        "row 2: column 'id'",
    ),
    "names without number": (
        "json",
        "".join(f'{{"k{number}":1}}\n' for number in range(10_001)),
        (),
        "line 10001: the objects up to here have more than 10,000 names",
    ),
    "names without number in an object": (
        "json",
        "".join(f'{{"a":{{"k{number}":1}}}}\n' for number in range(1_001)),
        (),
        "line 1001: 'a': its objects have more than 1,000 names",
    ),
    "an exponent of many digits": (
        "json",
        '{"x":1e9999999999999999999999}',
        TABLE,
        "line 1: a num",
    ),
    "a small exponent of many digits": (
        "json",
        '{"x":1e-99999999999999999999}',
        TABLE,
        "line 1: a",
    ),
    "a row without an end": ("csv", f"id,t\n1,{LONG * 2}\n", TABLE, "does not end within 16 MB"),
    "two equal names": (
        "json",
        '{"id":1}\n{"id":2,"t":"a","id":3}',
        TABLE,
        "line 2: an object has two",
    ),
    "two equal names in an array": (
        "json",
        '[{"id":1},\n{"id":2,"id":3}]',
        (),
        "line 2: an object",
    ),
    "two equal names inside": (
        "json",
        '{"id":1,"t":{"a":1,"a":2}}',
        (),
        "line 1: an object has two",
    ),
    "two names by case inside": (
        "json",
        '{"id":1,"s":{"a":1,"A":2}}',
        ("--schema", "id int, s struct<a:int>"),
        "line 1: s has two names",
    ),
    "JSON of another type": ("json", '{"id":1}\n{"id":"x"}\n', TABLE, "line 2: id is"),
    "more digits of JSON than 38": (
        "json",
        f'{{"n":1.{"3" * 38}}}',
        ("--schema", "n decimal(38,37)"),
        "line 1: n is 1.3",
    ),
    "no number of JSON": ("json", '{"id":1}\n{"d":Infinity}', TABLE, "line 2: d is inf"),
    "JSON of two kinds": ("json", '{"a":1}\n{"a":[1]}\n', (), "line 2: 'a': it is bigint in one"),
    "no object": ("json", '{"id":1}\n[1]\n', TABLE, "line 2: "),
    "an array that is cut": ("json", '[{"id":1},\n{"id"', TABLE, "line 2: "),
    "half a character": ("json", r'{"t":"\ud800"}', TABLE, "line 1: '\\ud800' is half"),
    "a large exponent": ("json", '{"id":1e999999999}', TABLE, "line 1: id is 1E+999999999"),
    "a large double": ("json", '{"x":1e400}', TABLE, "line 1: x is 1E+400, which is too large"),
    "thousands of digits of JSON": ("json", '{"d":' + "9" * 5000 + "}", TABLE, "line 1: a number"),
    "JSON that is deep": ("json", '{"a":\n' + "[" * 50_000, (), "line "),
    "an array that is deep": ("json", '[{"a":\n' + "[" * 50_000, (), "line 1: its values"),
    "a line without an end": ("json", f'{{"t":"{LONG}"}}', TABLE, "line 1: it has no end within"),
    "an object without an end": ("json", f'[{{"t":"{LONG * 2}"}}]', TABLE, "line 1: it has no end"),
    "names that differ in case": ("json", '{"a":1,"A":2}', (), "two names differ"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_P66_what_is_refused_with_file_and_line(place: Place, tmp_path: Path, case: str) -> None:
    kind, text, options, said = REFUSED[case]
    (tmp_path / f"a.{kind}").write_text(text)
    error = place.refused(kind, tmp_path, *options)
    assert f"a.{kind}: " in error and said in error and len(error) < 1000


@pytest.mark.parametrize("text", ["", "[]", "\n", "{}"])
def test_JSON_without_names_makes_no_table(place: Place, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert "--schema" in place.refused("json", tmp_path)


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_P66_a_directory_and_its_rows_say_the_same(place: Place, tmp_path: Path, kind: str) -> None:
    below = tmp_path / "day=2024-02-29"
    below.mkdir()
    file = below / f"a.{kind}"

    def written(day: str) -> None:
        match kind:
            case "csv":
                file.write_text(f"id,day\n1,{day}\n")
            case "json":
                file.write_text(f'{{"id":1,"day":"{day}"}}')
            case _:
                parquet.write_table(pa.table({"id": [1], "day": [day]}), file)

    place.warehouse.create_table(place.table, "id bigint", ["day date"])
    written("2024-03-01")
    assert "its directory says day=2024-02-29" in place.refused(kind, tmp_path)
    written("2024-02-29")
    place.run(kind, tmp_path)
    assert place.rows() == [{"id": 1, "day": dt.date(2024, 2, 29)}]


def test_parquet_that_lacks_a_chosen_column(place: Place, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1], "v": ["x"]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"id": [2]}), tmp_path / "b.parquet")
    assert "b.parquet lacks 'v'" in place.refused("parquet", tmp_path, "--columns", "id,v")
