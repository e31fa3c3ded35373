"""Nanoseconds are found wherever a compaction would cut them, and nowhere else (C32)."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyorc
import pytest
from pyarrow import orc, parquet

from acid_platform import CompactionRefused, CorruptFile
from acid_platform.formats.file_access import refuse_finer
from acid_platform.storage.files import Files

NANOS = pa.timestamp("ns")
KINDS = [
    NANOS,
    pa.list_(NANOS),
    pa.map_(pa.string(), NANOS),
    pa.struct([("a", pa.list_(NANOS))]),
]


def nested(kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_map(kind):
        return [("k", value)]
    if pa.types.is_struct(kind):
        return {"a": [None, value]}
    return [value] if pa.types.is_list(kind) else value


def is_finer(path: Path, stored: str = "orc", length: int | None = None) -> bool:
    files, _ = Files.of(str(path.parent))
    try:
        refuse_finer(files, str(path), stored, length)
    except CompactionRefused as error:
        assert str(error).startswith(f"{path} holds timestamps with nanoseconds")
        return True
    return False


def table(kind: pa.DataType, nanos: int) -> pa.Table:
    values = [nested(kind, scalar) for scalar in pa.array([2_000, -3_000, nanos, None]).cast(NANOS)]
    return pa.table({"id": [1, 2, 3, 4], "t": pa.array(values, kind)})


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("nanos", "finer"), [(1_000, False), (1_001, True), (-1, True)])
def test_C32_orc(tmp_path: Path, kind: pa.DataType, nanos: int, finer: bool) -> None:
    flat, acid = tmp_path / "flat", tmp_path / "acid"
    orc.write_table(table(kind, nanos), str(flat))
    orc.write_table(pa.table({"row": table(kind, nanos).to_struct_array()}), str(acid))
    assert (is_finer(flat), is_finer(acid)) == (finer, finer)


@pytest.mark.parametrize("kind", KINDS[:1] + KINDS[3:], ids=str)
@pytest.mark.parametrize(("nanos", "finer"), [(1_000, False), (1_001, True), (-1, True)])
def test_C32_int96_of_parquet(tmp_path: Path, kind: pa.DataType, nanos: int, finer: bool) -> None:
    path = tmp_path / "000000_0"
    parquet.write_table(table(kind, nanos), path, use_deprecated_int96_timestamps=True)
    assert is_finer(path, "parquet") == finer


@pytest.mark.parametrize("kind", KINDS[:1] + KINDS[3:], ids=str)
@pytest.mark.parametrize(("nanos", "finer"), [(1_000, False), (1_001, True), (-1, True)])
def test_C32_nanoseconds_of_parquet(
    tmp_path: Path, kind: pa.DataType, nanos: int, finer: bool
) -> None:
    path = tmp_path / "000000_0"
    parquet.write_table(table(kind, nanos), path)
    assert is_finer(path, "parquet") == finer


@pytest.mark.parametrize("stored", ["orc", "parquet"])
def test_C32_years_beyond_nanoseconds_have_none(tmp_path: Path, stored: str) -> None:
    path, far = tmp_path / "000000_0", datetime.datetime(9999, 12, 31, 1, 2, 3, 4)
    if stored == "orc":
        with path.open("wb") as file, pyorc.Writer(file, "struct<t:timestamp>") as writer:
            writer.writerows([(far,), (None,)])
    else:
        stamps = pa.array([far, None], pa.timestamp("us"))
        parquet.write_table(pa.table({"t": stamps}), path, use_deprecated_int96_timestamps=True)
    assert not is_finer(path, stored)


def test_C32_beside_such_years_in_one_file_they_are_found(tmp_path: Path) -> None:
    class Pair(pyorc.converters.TimestampConverter):
        @staticmethod
        def to_orc(value: Any, zone: Any) -> tuple[int, int]:
            return value

    path = tmp_path / "000000_0"
    with (
        path.open("wb") as file,
        pyorc.Writer(
            file, "struct<id:int,t:timestamp>", converters={pyorc.TypeKind.TIMESTAMP: Pair}
        ) as writer,
    ):
        writer.writerows([(1, (253_370_764_800, 0)), (2, (1, 1_001))])
    assert is_finer(path)


@pytest.mark.parametrize("stored", ["text", "csv", "json"])
@pytest.mark.parametrize(
    ("text", "finer"),
    [
        ("2013-01-01 12:00:00.123456", False),
        ("2013-01-01 12:00:00.123456000", False),
        ("2013-01-01 12:00:00.123456001", True),
        ("2013-01-01 12:00:00.1234567", True),
    ],
)
def test_C32_text_also_over_the_edge_of_a_block(
    tmp_path: Path, stored: str, text: str, finer: bool
) -> None:
    path = tmp_path / "000000_0"
    path.write_bytes(b"x" * ((1 << 20) - 20) + text.encode() + b"\n")
    assert is_finer(path, stored) == finer


def test_a_file_without_timestamps_or_without_an_end(tmp_path: Path) -> None:
    path = tmp_path / "000000_0"
    orc.write_table(pa.table({"id": [1]}), str(path))
    assert not is_finer(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptFile, match="000000_0"):
        is_finer(path)
