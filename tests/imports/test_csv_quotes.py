"""Quotes of CSV that Arrow would take leniently are errors."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import WrongType
from acid_platform.handles.csv_files import CsvFormat, CsvQuotes
from acid_platform.layout.types import parse_columns
from acid_platform.orchestration.components import rows_of
from tests.imports.conftest import Place

SCHEMA = "id int, name string"
WRONG = {
    'id,name\n1,"abc\n2,def\n3,ghi\n': "the quote that opens a value in line 2 is not closed",
    'id,name\n1,"a""\n2,def\n': "the quote that opens a value in line 2 is not closed",
    'id,name\n1,"a\nb"\n2,"abc"def\n': "a value which begins in line 4",
    'id,name\n1,"5" pipe"\n': "a value which begins in line 2",
    '"id,name\n1,a\n': "names of the columns",
}


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("encoding", ["UTF-8", "utf-16"])
def test_a_quote_that_is_wrong_is_refused_with_its_line(
    place: Place, tmp_path: Path, text: str, encoding: str
) -> None:
    (tmp_path / "good.csv").write_text("id,name\n9,a\n", encoding)
    (tmp_path / "wrong.csv").write_text(text, encoding)
    options = ("--schema", SCHEMA, "--encoding", encoding)
    error = place.refused("csv", tmp_path, *options)
    assert "wrong.csv" in error and WRONG[text] in error
    if encoding == "UTF-8":
        with pytest.raises(WrongType, match=r"wrong\.csv: .*(line \d|names)"):
            rows_of(str(tmp_path / "wrong.csv"), parse_columns(SCHEMA))


def test_quotes_that_are_right(place: Place, tmp_path: Path) -> None:
    text = '\ufeff"id";name\r\n1;"a;""b""\r\nc"\r\n2;5" pipe\r\n3;""\r\n4;"""x"""\r\n5;"end"'
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    place.run("csv", tmp_path, "--schema", SCHEMA, "--delimiter", ";")
    names = ['a;"b"\r\nc', '5" pipe', "", '"x"', "end"]
    assert place.rows() == [{"id": id, "name": name} for id, name in enumerate(names, 1)]


def test_a_long_value_is_read_and_one_that_is_not_closed_is_named(
    place: Place, tmp_path: Path
) -> None:
    long = "a\n" * (3 << 19)
    (tmp_path / "a.csv").write_text(f'id,name\n1,"{long}"\n')
    place.run("csv", tmp_path, "--schema", SCHEMA)
    assert place.rows() == [{"id": 1, "name": long}]
    (tmp_path / "a.csv").write_text(f'id,name\n1,"{long}')
    assert "opens a value in line 2" in place.refused("csv", tmp_path, "--overwrite")
    for text, said in {
        f'id,name\n1,"{long}"\n2,b\n': r"(row before line \d+|line 2) does not end within 1 MB",
        f'id,name\n1,"{long}': "value.* in line 2 (does not end within 1 MB|is not closed)",
    }.items():
        reading = CsvFormat(longest_row=1 << 20).batches(
            io.BytesIO(text.encode()), {"name": pa.string()}, {"name": "name"}
        )
        with pytest.raises(ValueError, match=said):
            list(reading)


def right(text: str) -> str | None:
    """What the text ends in: "quoted", "" or None for an error; letter by letter."""
    state = "begin"
    for letter in text:
        if state == "quoted":
            state = "after" if letter == '"' else "quoted"
        elif letter in ",\r\n":
            state = "begin"
        elif state == "after" and letter != '"':
            return None
        elif state in ("begin", "after") and letter == '"':
            state = "quoted"
        else:
            state = "bare"
    return "quoted" if state == "quoted" else ""


@given(st.lists(st.text('",\na', max_size=6), max_size=8))
def test_quotes_are_followed_from_block_to_block(blocks: list[str]) -> None:
    quotes, state = CsvQuotes(","), right("".join(blocks))
    try:
        for block in blocks:
            quotes.add(block.encode())
    except ValueError:
        assert state is None
        return
    assert state is not None
    if state:
        with pytest.raises(ValueError, match="is not closed"):
            quotes.end()
    else:
        quotes.end()


@given(st.lists(st.lists(st.text('",\r\naé', max_size=4), min_size=2, max_size=2), min_size=1))
def test_values_in_quotes_are_read_as_they_were_written(rows: list[list[str]]) -> None:
    lines = [
        ",".join('"' + value.replace('"', '""') + '"' for value in row)
        for row in [["x", "y"], *rows]
    ]
    types = {"x": pa.string(), "y": pa.string()}
    data = io.BytesIO("\n".join(lines).encode())
    batches = CsvFormat().batches(data, types, {"x": "x", "y": "y"})
    found = pa.Table.from_batches(batches, pa.schema(types)).to_pylist()
    assert [[*row.values()] for row in found] == rows
