"""Parquet files of rows with keys: what they hold, what a record says of them, what is refused."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from acid_platform import CompactionRefused, CorruptFile, UnsupportedLayout, WrongType
from acid_platform.formats import parquet as parquet_format
from acid_platform.formats.data_file import (
    KEY,
    DataFile,
    FilePath,
    Keyed,
    KeyPart,
    KeyRun,
    StoredKeys,
)
from acid_platform.formats.file_access import new_file, open_file, recorded_file
from acid_platform.formats.keyed_parquet import KeyedParquet
from acid_platform.formats.parquet import GROUP_ROWS
from acid_platform.layout.file_entries import FileEntry, KeyRanges, RangeKind, of_id
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column, HiveType, nested_id, parse_columns
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import arrow_schema

KEYED = FileFormat("parquet", keyed=True)
PROPERTY = 1 << 29


def with_ids(text: str) -> tuple[Column, ...]:
    columns = enumerate(parse_columns(text), 1)
    return tuple(Column(column.name, column.type, 7 * number) for number, column in columns)


OWN = with_ids(
    "id int, name string, code char(3), price decimal(9,2), day date, at timestamp,"
    " moment timestamp with local time zone, tags array<string>, pair struct<a: int>"
)


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + count)
    values = {
        "id": [None if n % 5 == 4 else n for n in numbers],
        "name": [f"n{n}" for n in numbers],
        "code": ["ab "] * count,
        "price": [Decimal(n) / 4 for n in numbers],
        "day": [-200_000 + n for n in numbers],
        "at": [-5 * 10**17 + n for n in numbers],
        "moment": [n * 10**6 for n in numbers],
        "tags": [[f"t{n}"] * (n % 3) for n in numbers],
        "pair": [{"a": n} for n in numbers],
    }
    schema = arrow_schema(OWN)
    whole = {"day": pa.int32(), "at": pa.int64(), "moment": pa.int64()}
    arrays = [
        pa.array(values[field.name], whole.get(field.name, field.type)).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def written(
    where: Path, *changes: Keyed, columns: Any = OWN, deletes: bool = False, always: bool = False
) -> tuple[DataFile, FileEntry]:
    """The file of these changes, and what its writer recorded."""
    files, path = Files.of(str(where / "bucket_00000"))
    writer = new_file(files, path, columns, KEYED, "", deletes, always)
    for change in changes:
        writer.put(change)
    assert writer.close() == sum(map(len, changes))
    return open_file(files, FilePath(path, "parquet")), writer.record("bucket_00000")


def stored(*keys: tuple[int, int, int]) -> StoredKeys:
    return StoredKeys(*(np.array(part) for part in zip(*keys, strict=True)))


def key_lists(file: DataFile) -> list[list[int]]:
    parts = [file.key_parts(part) for part in KEY]
    return [np.concatenate([ids for (ids,) in part]).tolist() for part in parts]


def test_an_inserted_file_has_the_columns_of_the_user_alone(tmp_path: Path) -> None:
    """Its keys follow from the positions of its rows, also in a later row group."""
    run = KeyRun(7, PROPERTY, 100)
    more = KeyRun(7, PROPERTY, 103)
    file, entry = written(tmp_path, Keyed(run, 7, rows(3)), Keyed(more, 7, rows(2, 3)))
    plain = parquet.ParquetFile(file.path)
    assert plain.schema_arrow.names == [column.name for column in OWN]
    ids = [field.metadata[b"PARQUET:field_id"] for field in plain.schema_arrow]
    assert ids == [str(column.id).encode() for column in OWN]
    assert key_lists(file) == [[7] * 5, [PROPERTY] * 5, [100, 101, 102, 103, 104]]
    (change,) = file.changes(timestamps="us")
    assert change.values is not None and change.values.equals(rows(5))
    assert change.makers().tolist() == [7] * 5
    assert entry.footer == replace(file.summary, exact=True) and file.summary.acid
    assert entry.keys == file.key_ranges == KeyRanges((7, 7), (PROPERTY,) * 2, (100, 104))
    assert entry.keys is not None and entry.keys.without_gaps(5)


def test_fields_inside_of_columns_have_ids_that_follow_from_their_paths(tmp_path: Path) -> None:
    kind = "l array<struct<a:int,b:map<string,array<int>>>>"
    (column,) = parse_columns(kind)
    own = (replace(column, id=3),)
    values = pa.RecordBatch.from_arrays(
        [pa.array([[{"a": 1, "b": [("k", [2])]}]], arrow_schema(own)[0].type)],
        schema=arrow_schema(own),
    )
    file, _ = written(tmp_path, Keyed(KeyRun(1, PROPERTY, 0), 1, values), columns=own)
    text = str(parquet.ParquetFile(tmp_path / "bucket_00000").schema)
    paths = ("element", "element.a", "element.b", "element.b.key", "element.b.value")
    ids = [3, *(nested_id(3, path) for path in (*paths, "element.b.value.element"))]
    assert sorted(int(each) for each in re.findall(r"field_id=(\d+)", text)) == sorted(ids)
    assert min(ids[1:]) >= 1_100_000_000 and max(ids) < 1_900_000_000
    assert isinstance(file, KeyedParquet) and file.without_ids_inside == frozenset()


def test_P59_rows_wait_for_no_more_than_a_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that they are encoded while the next ones come."""
    monkeypatch.setattr(parquet_format, "GROUP_ROWS", 4)
    parts = [Keyed(KeyRun(7, PROPERTY, first), 7, rows(3, first)) for first in (0, 3, 6)]
    file, _ = written(tmp_path, *parts, Keyed(KeyRun(7, PROPERTY, 9), 7, rows(10, 9)))
    assert file.piece_rows == [3, 3, 4, 4, 4, 1]


def test_a_compacted_file_stores_keys_that_other_readers_can_tell_apart(tmp_path: Path) -> None:
    keys = stored((3, PROPERTY, 5), (3, PROPERTY, 9), (8, PROPERTY, 0))
    file, entry = written(tmp_path, Keyed(keys, np.array([3, 3, 8]), rows(3)))
    assert file.names == [column.name for column in OWN]
    assert key_lists(file) == [[3, 3, 8], [PROPERTY] * 3, [5, 9, 0]]
    assert entry.keys == file.key_ranges == KeyRanges((3, 8), (PROPERTY,) * 2, (0, 9))
    plain = parquet.ParquetFile(file.path)
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in plain.schema_arrow}
    assert min(ids[name] for name in ("__write_id", "__bucket", "__row_id")) > 2_000_000_000
    assert len({*ids.values()}) == len(ids)
    for index in range(plain.metadata.num_columns):
        column = plain.metadata.row_group(0).column(index)
        assert column.path_in_schema.startswith("__") == ("DELTA_BINARY_PACKED" in column.encodings)
    found = duckdb.sql(f"SELECT id, name, day FROM read_parquet('{file.path}') WHERE __row_id = 9")
    assert [row[:2] for row in found.fetchall()] == [(1, "n1")]


def test_a_file_of_delete_events_has_nothing_but_keys(tmp_path: Path) -> None:
    keys = stored((3, PROPERTY, 5), (8, PROPERTY, 0))
    updated = np.array([True, False])
    change = Keyed(keys, 9, None, updated=updated)
    file, entry = written(tmp_path, change, deletes=True)
    assert file.holds_deletes() and file.names == []
    assert key_lists(file) == [[3, 8], [PROPERTY] * 2, [5, 0]]
    assert [ids.tolist() for (ids,) in file.key_parts(KeyPart.CHANGED_BY)] == [[9, 9]]
    assert file.updates(2).tolist() == [True, False]
    assert file.bounds(KeyPart.CHANGED_BY) == (9, 9)
    assert file.key_ranges is None and entry.keys is None and not entry.ranges
    (event,) = file.changes(deletes=True)
    assert event.values is None and len(event) == 2
    untold, _ = written(tmp_path, Keyed(keys, 9, None), deletes=True)
    assert not untold.updates(2).any()


def test_the_record_of_a_file_bounds_its_values(tmp_path: Path) -> None:
    file, entry = written(tmp_path, Keyed(KeyRun(7, PROPERTY, 0), 7, rows(5)))
    ranges = entry.ranges_of(OWN)
    found = {name: (each.kind, each.low, each.high) for name, each in ranges.items()}
    assert found["id"] == (RangeKind.INTEGER, 0, 3) and ranges["id"].nulls == 1
    assert found["name"] == (RangeKind.TEXT, "n0", "n4")
    assert found["code"] == (RangeKind.OTHER, None, None), "a CHAR has blanks"
    assert found["price"] == (RangeKind.DECIMAL, Decimal("0.00"), Decimal("1.00"))
    assert found["day"] == (RangeKind.DATE, -200_000, -199_996)
    assert found["at"] == (RangeKind.OTHER, None, None)
    assert "pair" not in found and "pair.a" not in found
    files, path = Files.of(file.path)
    again = recorded_file(files, path, "bucket_00000", exact=True)
    assert again == entry and again.keys == entry.keys
    assert {**again.ranges_of(OWN), "name": None} == {**ranges, "name": None}
    renamed = (Column("id", HiveType("string"), 14), Column("key", HiveType("int"), 7))
    assert entry.ranges_of(renamed) == {"id": ranges["name"], "key": ranges["id"]}


def test_row_groups_are_small_and_values_that_repeat_get_a_dictionary(tmp_path: Path) -> None:
    columns = parse_columns("id bigint, kind string, text string")
    count = GROUP_ROWS + 5
    numbers = np.arange(count)
    texts = numbers.astype("U")
    batch = pa.record_batch(
        [pa.array(numbers), pa.array(texts.tolist()).take(numbers % 7), pa.array(texts.tolist())],
        arrow_schema(columns),
    )
    written = []
    for name, pool in (("alone", None), ("threads", ThreadPoolExecutor(1))):
        files, path = Files.of(str(tmp_path / name))
        writer = new_file(files, path, columns, KEYED, "zlib", pool=pool)
        for first in (0, 1000):
            part = batch.slice(first, None if first else 1000)
            writer.put(Keyed(KeyRun(7, PROPERTY, first), 7, part))
        assert writer.close() == count
        written.append(Path(path).read_bytes())
    assert written[0] == written[1]
    file = parquet.ParquetFile(tmp_path / "alone")
    groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
    assert [group.num_rows for group in groups] == [count // 2 + 1, count // 2]
    has_dictionary = [groups[0].column(number).has_dictionary_page for number in range(3)]
    assert has_dictionary == [False, True, False]
    assert file.read().equals(pa.Table.from_batches([batch]))


def test_a_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    file, entry = written(tmp_path, always=True)
    assert file.rows == 0 and file.names == [column.name for column in OWN]
    assert list(file.changes()) == [] and entry.keys is None


NAME = (Column("name", HiveType("string"), 1),)


@pytest.mark.parametrize(
    ("keys", "makers"),
    [
        (stored((1, PROPERTY, 2), (1, PROPERTY, 2)), np.array([1, 1])),
        (stored((2, PROPERTY, 0), (1, PROPERTY, 0)), np.array([2, 1])),
        (stored((1, PROPERTY, 0), (1, PROPERTY, 1)), np.array([1, 2])),
    ],
    ids=["twice", "descending", "of another write"],
)
def test_F7_keys_that_don_t_ascend_are_not_written(
    tmp_path: Path, keys: StoredKeys, makers: np.ndarray
) -> None:
    values = pa.RecordBatch.from_pydict({"name": ["a", "b"]})
    with pytest.raises(CorruptFile, match=r"ascend|another write"):
        written(tmp_path, Keyed(keys, makers, values), columns=NAME)


def test_what_a_parquet_file_can_t_hold_is_refused(tmp_path: Path) -> None:
    bytes_ = pa.array([b"a", b"\xff"]).view(pa.string())
    values = pa.RecordBatch.from_arrays([bytes_], ["name"])
    with pytest.raises(WrongType, match="name has a text that is not UTF-8"):
        written(tmp_path, Keyed(KeyRun(1, 0, 0), 1, values, checked=False), columns=NAME)
    nanos = pa.RecordBatch.from_arrays([pa.array([1], pa.timestamp("ns"))], ["at"])
    column = (Column("at", HiveType("timestamp"), 1),)
    with pytest.raises(CompactionRefused, match="at has times with nanoseconds"):
        written(tmp_path, Keyed(KeyRun(1, 0, 0), 1, nanos), columns=column)


def test_a_file_that_does_not_tell_its_keys_is_not_read_as_one_that_does(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    parquet.write_table(pa.table({"id": [1]}), path)
    files, _ = Files.of(path)
    file = open_file(files, FilePath(path, "parquet", keyed=True))
    for read in (lambda: file.summary, lambda: list(file.changes()), lambda: file.key_ranges):
        with pytest.raises(CorruptFile, match="does not say which keys its rows have"):
            read()
    assert not open_file(files, FilePath(path, "parquet")).summary.acid
    with pytest.raises(UnsupportedLayout):
        new_file(files, path, NAME, FileFormat("avro", keyed=True), "")


def test_a_copied_file_keeps_dictionaries_without_the_texts_of_rows_that_are_gone(
    tmp_path: Path,
) -> None:
    """A compaction decodes the number of each text, not the text."""
    columns = with_ids("s string, c char(3), t string, n int")
    count = 40_000
    texts = [None if n % 7 == 0 else f"text {n % 90:02}" for n in range(count)]
    values = pa.RecordBatch.from_pydict(
        {"s": texts, "c": ["ab "] * count, "t": [f"t{n}" for n in range(count)], "n": range(count)},
        schema=arrow_schema(columns),
    )
    file, _ = written(tmp_path, Keyed(KeyRun(7, PROPERTY, 0), 7, values), columns=columns)
    changes = [rows.stored() for rows in file.changes()]
    kinds = [kind for rows in changes for kind in (rows.values.schema.types if rows.values else ())]
    assert [pa.types.is_dictionary(kind) for kind in kinds] == [True, True, False, False]
    kept = np.array([n % 90 >= 80 for n in range(count)])
    (tmp_path / "copy").mkdir()
    copied = [rows.chosen(kept) for rows in changes]
    again, entry = written(tmp_path / "copy", *copied, columns=columns)
    whole = again.decode(0, again.names)
    assert whole["s"].to_pylist() == [text for text, keep in zip(texts, kept, strict=True) if keep]
    assert whole["c"].to_pylist() == ["ab "] * int(kept.sum())
    coded = parquet.ParquetFile(again.path, read_dictionary=["s"]).read(["s"]).column(0).chunk(0)
    assert sorted(coded.dictionary.to_pylist()) == [f"text {n}" for n in range(80, 90)]
    bounds = entry.ranges[of_id(7)]
    assert (bounds.low, bounds.high) == ("text 80", "text 89")
    assert bounds.nulls == whole["s"].null_count


def test_whole_numbers_without_a_dictionary_are_packed(tmp_path: Path) -> None:
    columns = with_ids(
        "id bigint, price decimal(12,2), big decimal(30,2), day date, at timestamp, x double"
    )
    numbers = [(n * 7919) % 50_000 for n in range(50_000)]
    arrays = {
        "id": [None if n == 5 else n - (1 << 62) for n in numbers],
        "price": [Decimal(n) / 100 for n in numbers],
        "big": [Decimal(n) for n in numbers],
        "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
        "at": pa.array(numbers, pa.int64()).cast(pa.timestamp("us")),
        "x": [float(n) for n in numbers],
    }
    values = pa.RecordBatch.from_pydict(arrays, schema=arrow_schema(columns))
    file, _ = written(tmp_path, Keyed(KeyRun(7, PROPERTY, 0), 7, values), columns=columns)
    group = parquet.ParquetFile(file.path).metadata.row_group(0)
    chunks = [group.column(number) for number in range(len(columns))]
    packed = ["DELTA_BINARY_PACKED" in chunk.encodings for chunk in chunks]
    assert packed == [True, True, False, True, True, False]
    assert {chunk.compression for chunk in chunks} == {"UNCOMPRESSED", "ZSTD"}
    assert pa.RecordBatch.from_pydict(file.decode(0, file.names)).equals(values)
    found = duckdb.sql(f"SELECT sum(price), min(id), max(day) FROM read_parquet('{file.path}')")
    assert found.fetchall()[0][:2] == (Decimal(sum(numbers)) / 100, -(1 << 62))
