"""Columns that are kept for the next query are those of the file that is there (P79)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc

from acid_platform import CorruptFile, InvalidDefinition, Warehouse
from acid_platform.formats.data_file import DataFile
from acid_platform.formats.keyed_parquet import KeyedParquet
from acid_platform.formats.orc import OrcFile
from acid_platform.scan import decode, kept_columns
from acid_platform.scan.kept_columns import KEPT, KeptColumns, ScanColumns, memory_to_keep
from acid_platform.scan.source_files import SourceFile
from acid_platform.storage.files import Files
from tests.conftest import IN_ORC, a_warehouse

warehouse = a_warehouse("local", scope="function")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns that are decoded from now on; none is kept yet."""
    KEPT.close()
    names: list[str] = []

    def note(kind: type[DataFile]) -> None:
        decode = kind.decode

        def noted(file: DataFile, piece: int, columns: list[str], *given: bool) -> object:
            names.extend(map(str, columns))
            return decode(file, piece, columns, *given)

        monkeypatch.setattr(kind, "decode", noted)

    note(OrcFile)
    note(KeyedParquet)
    return names


def rows(warehouse: Warehouse, text: str) -> list[tuple[object, ...]]:
    found = warehouse.sql(text).to_arrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_P79_a_query_decodes_what_none_has_decoded_before(
    warehouse: Warehouse, decoded: list[str]
) -> None:
    warehouse.create_table("db.t", "a int, b string, c double", properties=IN_ORC).insert(
        [{"a": 1, "b": "x", "c": 0.5}, {"a": 2, "b": "y", "c": 1.5}]
    )
    assert rows(warehouse, "SELECT b FROM db.t WHERE a = 2") == [("y",)]
    assert sorted(decoded) == ["a", "b"]
    assert rows(warehouse, "SELECT a, c, b FROM db.t ORDER BY a") == [(1, 0.5, "x"), (2, 1.5, "y")]
    assert sorted(decoded) == ["a", "b", "c"]
    table = warehouse.table("db.t")
    table.update({"c": "9"}, "a = 1")
    assert sorted(decoded) == ["a", "b", "c"], "an UPDATE finds its rows among what is kept"
    assert rows(warehouse, "SELECT a, c FROM db.t ORDER BY a") == [(1, 9.0), (2, 1.5)]
    table.compact("major")
    assert rows(warehouse, "SELECT a, b, c FROM db.t ORDER BY a") == [(1, "x", 9.0), (2, "y", 1.5)]


@pytest.mark.parametrize("stored", ["orc", "parquet"])
def test_P79_a_file_of_which_all_is_kept_is_not_opened(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    KEPT.close()
    opened = list[str]()
    open_source = decode.open_source

    def noted(files: Files, source: SourceFile) -> DataFile:
        opened.append(source.path)
        return open_source(files, source)

    monkeypatch.setattr(decode, "open_source", noted)
    table = warehouse.create_table(
        "db.t", "a int, b string, n array<int>", properties={"acid.format": stored}
    )
    table.insert([{"a": 1, "b": "x", "n": [1]}, {"a": 2, "b": "y"}])
    table.delete("a = 2")
    query = "SELECT a, b, n, row__id FROM db.t WHERE a > 0"
    first = rows(warehouse, query)
    assert [row[:3] for row in first] == [(1, "x", [1])] and opened
    opened.clear()
    assert rows(warehouse, query) == first and not opened
    table.insert([{"a": 3, "b": "z"}])
    assert [row[0] for row in rows(warehouse, query)] == [1, 3]
    assert len({*opened}) == 1, "only the new file"


def test_P79_a_file_that_took_the_place_of_another_is_decoded(
    warehouse: Warehouse, decoded: list[str]
) -> None:
    files = dict[int, list[tuple[int, Path]]]()
    for value in range(9):
        table = warehouse.create_table(f"db.t{value}", "a int")
        table.insert([{"a": value}])
        file = next(Path(table.location).rglob("bucket_*"))
        files.setdefault(file.stat().st_size, []).append((value, file))
    (value, file), (other, another) = next(same for same in files.values() if len(same) > 1)[:2]
    query = f"SELECT a FROM db.t{value}"
    assert rows(warehouse, query) == [(value,)]
    shutil.copyfile(another, file)
    assert rows(warehouse, query) == [(other,)], "as the file says now"
    file.unlink()
    with pytest.raises(CorruptFile, match="is gone"):
        rows(warehouse, query)


def test_P79_of_files_that_others_may_change_nothing_is_kept(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """Not even if the size and the time of the file stay, as after a copy that keeps them."""
    place = tmp_path / "in"
    place.mkdir()
    file = place / "a.orc"
    orc.write_table(pa.table({"a": [1, 2]}), file)
    warehouse.sql("CREATE DATABASE db")
    warehouse.sql(f"CREATE EXTERNAL TABLE db.e (a bigint) STORED AS ORC LOCATION '{place}'")
    assert rows(warehouse, "SELECT a FROM db.e") == [(1,), (2,)]
    before = file.stat()
    orc.write_table(pa.table({"a": [2, 1]}), tmp_path / "other")
    content = (tmp_path / "other").read_bytes()
    assert len(content) == before.st_size
    with open(file, "r+b") as handle:
        handle.write(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rows(warehouse, "SELECT a FROM db.e") == [(2,), (1,)]


def test_P79_a_table_of_the_same_name_is_another(warehouse: Warehouse, decoded: list[str]) -> None:
    for value in (1, 2, 3):
        warehouse.create_table("db.t", "a int", properties=IN_ORC).insert([{"a": value}])
        assert rows(warehouse, "SELECT a FROM db.t") == [(value,)]
        warehouse.sql("DROP TABLE db.t")
    assert decoded == ["a"] * 3


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=60),
    st.sampled_from([0, 8, 100, 1000]),
)
def test_P79_no_more_is_kept_than_there_is_room_for(
    asked: list[tuple[int, int]], most: int
) -> None:
    kept, path = KeptColumns(most), __file__
    made: dict[tuple[int, str], pa.Array] = {}

    def decode(piece: int, names: list[str]) -> dict[str, pa.Array]:
        return {name: made.setdefault((piece, name), pa.array([piece] * 7)) for name in names}

    for piece, column in asked:
        found = ScanColumns(kept).of_piece(
            path, piece, [f"c{column}"], lambda names, piece=piece: decode(piece, list(names))
        )
        assert found == {f"c{column}": made[piece, f"c{column}"]}
        assert kept.size <= most
    kept.close()
    assert kept.size == 0


def test_P79_a_table_that_is_larger_than_the_memory_is_kept_in_part() -> None:
    """Each scan would otherwise evict what the next one asks for first."""
    kept, decoded = KeptColumns(3 * 64), list[int]()

    def scan(first: int) -> None:
        columns = ScanColumns(kept)
        for piece in range(first, first + 5):

            def decode(_names: object, piece: int = piece) -> dict[str, pa.Array]:
                decoded.append(piece)
                return {"c": pa.array([piece] * 8)}

            columns.of_piece(__file__, piece, ["c"], decode)

    for _ in range(3):
        scan(0)
    assert decoded == [0, 1, 2, 3, 4, 3, 4, 3, 4]
    scan(10)
    scan(10)
    assert decoded[9:] == [10, 11, 12, 13, 14, 13, 14], "another scan has room"


def test_how_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in {"2g": 2 << 30, "64MB": 64 << 20, "7": 7, "0": 0}.items():
        monkeypatch.setenv("ACID_KEPT_MEMORY", text)
        assert memory_to_keep() == expected
    monkeypatch.setenv("ACID_KEPT_MEMORY", "much")
    with pytest.raises(InvalidDefinition, match="ACID_KEPT_MEMORY=much is no number of bytes"):
        memory_to_keep()
    monkeypatch.delenv("ACID_KEPT_MEMORY")
    monkeypatch.setattr(kept_columns, "usable_memory", lambda: 1 << 30)
    assert memory_to_keep() == 128 << 20
