"""Each kind of bad file has its own error, which names the file; no row is lost silently."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from acid_platform import (
    AcidError,
    CompactionRefused,
    CorruptFile,
    MalformedName,
    UnsupportedLayout,
)
from tests.acid_files import AcidTable, P, full

D1 = full("d1")
D2 = full("D2")
SIX = ("operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row")
Damage = Callable[[AcidTable], object]
GOOD = [f"{i:04d}" for i in range(2_000)]


def good(root: Path) -> AcidTable:
    table = AcidTable(root)
    table.inserts("d1", [(1, P, i, v) for i, v in enumerate(["gone", *GOOD])], compression="zlib")
    return table.marker("d1").deletes("D2", [(1, P, 0)], current=2)


def cut(path: str, keep: Callable[[bytes], bytes]) -> Damage:
    def damage(table: AcidTable) -> None:
        file = table.root / path
        file.write_bytes(keep(file.read_bytes()))

    return damage


def replaced(path: str, columns: dict[str, object]) -> Damage:
    return lambda table: orc.write_table(pa.table(columns), str(table.root / path))


def six(**changed: object) -> dict[str, object]:
    values = {
        "operation": pa.array([0], pa.int32()),
        "originalTransaction": [1],
        "bucket": pa.array([P], pa.int32()),
        "rowId": [0],
        "currentTransaction": [1],
        "row": [{"v": "x"}],
    }
    return {name: changed.get(name, values[name]) for name in SIX}


def beside(path: str, content: bytes) -> Damage:
    def damage(table: AcidTable) -> None:
        file = table.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    return damage


def copied(source: str, target: str) -> Damage:
    def damage(table: AcidTable) -> None:
        (table.root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(table.root / source, table.root / target)

    return damage


def scrambled(content: bytes) -> bytes:
    at = len(content) // 3
    return content[:at] + bytes(b ^ 0x5A for b in content[at : at + 40]) + content[at + 40 :]


def path_of(directory: str, file: str) -> str:
    return f"{full(directory).rpartition('/')[0]}/{file}"


METADATA = path_of("b1v9", "_metadata_acid")
VERSION = path_of("d1", "_orc_acid_version")
SIDE = path_of("d1", "bucket_00000_flush_length")

KINDS: dict[str, tuple[Damage, type[AcidError], str]] = {
    "the last byte is missing": (cut(D1, lambda b: b[:-1]), CorruptFile, D1),
    "half of the file is missing": (cut(D1, lambda b: b[: len(b) // 2]), CorruptFile, D1),
    "only the magic is left": (cut(D1, lambda b: b[:3]), CorruptFile, D1),
    "bytes in the middle changed": (cut(D1, scrambled), CorruptFile, D1),
    "head and tail say another format": (
        cut(D1, lambda b: b"PAR" + b[3:-4] + b"PAR" + b[-1:]),
        CorruptFile,
        D1,
    ),
    "bytes after the tail": (cut(D1, lambda b: b + b"more"), CorruptFile, D1),
    "text instead of ORC": (beside(D1, b"1,a\n" * 100), CorruptFile, D1),
    "a delete file that is cut": (cut(D2, lambda b: b[:-2]), CorruptFile, D2),
    "a delete file of text": (beside(D2, b"no ORC at all, but long enough"), CorruptFile, D2),
    "a delete file without ACID columns": (replaced(D2, {"v": ["x"]}), CorruptFile, D2),
    "no ACID columns below a version file": (replaced(D1, {"v": ["x"]}), CorruptFile, D1),
    "five of the six columns": (
        replaced(D1, {k: v for k, v in six().items() if k != "bucket"}),
        CorruptFile,
        D1,
    ),
    "the six columns in another order": (
        replaced(D1, dict(reversed(six().items()))),
        CorruptFile,
        D1,
    ),
    "row is no struct": (replaced(D1, six(row=["x"])), CorruptFile, D1),
    "an insert without a row id": (
        replaced(D1, six(rowId=pa.array([None], pa.int64()))),
        CorruptFile,
        D1,
    ),
    "an insert without an operation": (
        replaced(D1, six(operation=pa.array([None], pa.int32()))),
        CorruptFile,
        D1,
    ),
    "a delete without a write id": (
        replaced(
            D2,
            six(
                operation=pa.array([2], pa.int32()),
                originalTransaction=pa.array([None], pa.int64()),
            ),
        ),
        CorruptFile,
        D2,
    ),
    "an unknown operation": (
        replaced(D1, six(operation=pa.array([7], pa.int32()))),
        CorruptFile,
        D1,
    ),
    "an update event of ACID version 1": (
        replaced(D1, six(operation=pa.array([1], pa.int32()))),
        UnsupportedLayout,
        D1,
    ),
    "a column of another type": (
        replaced(D1, six(row=[{"v": 1.5}], rowId=[5])),
        UnsupportedLayout,
        f"{D1}, column v",
    ),
    "a bucket property of an unknown codec": (
        replaced(
            D2,
            six(
                operation=pa.array([2], pa.int32()),
                rowId=[1],
                bucket=pa.array([2 << 29], pa.int32()),
            ),
        ),
        CorruptFile,
        D2,
    ),
    "a directory name that is none": (
        copied(D1, "delta_x_1/bucket_00000"),
        MalformedName,
        "delta_x_1",
    ),
    "a base with an extension": (copied(D1, "base_01.txt/bucket_0"), MalformedName, "base_01.txt"),
    "a range that ends before it begins": (
        copied(D1, "delta_3_2/bucket_00000"),
        MalformedName,
        "delta_3_2",
    ),
    "a file with the name of a directory": (beside("delta_5_5", b""), MalformedName, "delta_5_5"),
    "an unknown file in a delta": (
        copied(D1, path_of("d1", "part-00000.orc")),
        UnsupportedLayout,
        "part-00000.orc",
    ),
    "a bucket that is a directory": (
        copied(D1, path_of("d1", "bucket_00007/bucket_00007")),
        UnsupportedLayout,
        "bucket_00007",
    ),
    "two attempts of one bucket": (
        copied(D1, path_of("d1", "bucket_00000_3")),
        CorruptFile,
        "bucket_00000_3",
    ),
    "files of both kinds in one delta": (
        copied(D1, path_of("d1", "000000_0")),
        CorruptFile,
        "000000_0",
    ),
    "loaded files in a compacted delta": (
        lambda t: t.raw("d1-3v9/000000_0", ["x"]),
        CorruptFile,
        "LOAD DATA",
    ),
    "loaded files of both kinds": (
        lambda t: (t.raw("d4/000000_0", ["x"]), t.inserts("d4/000001_0", [(4, P, 0, "x")])),
        CorruptFile,
        path_of("d4", "000001_0"),
    ),
    "an original file with ACID columns": (copied(D1, "000000_0"), CorruptFile, "000000_0"),
    "an original file of text": (beside("000000_0", b"1,a\n"), CorruptFile, "000000_0"),
    "an original file of unknown name": (
        lambda t: t.raw("data.orc", ["x"]),
        UnsupportedLayout,
        "data.orc",
    ),
    "version 1 in the version file": (beside(VERSION, b"1"), UnsupportedLayout, VERSION),
    "an empty version file": (beside(VERSION, b""), UnsupportedLayout, VERSION),
    "metadata that is no JSON": (beside(METADATA, b"compacted"), CorruptFile, METADATA),
    "metadata of a later version": (
        beside(METADATA, b'{"thisFileVersion":"1","dataFormat":"compacted"}'),
        CorruptFile,
        METADATA,
    ),
    "metadata of an unknown format": (
        beside(METADATA, b'{"thisFileVersion":"0","dataFormat":"new"}'),
        CorruptFile,
        METADATA,
    ),
    "a side file that promises more than there is": (
        beside(SIDE, struct.pack(">q", 10**9)),
        CorruptFile,
        D1,
    ),
    "a side file that ends between two tails": (
        beside(SIDE, struct.pack(">q", 100)),
        CorruptFile,
        D1,
    ),
    "a side file without its data file": (
        beside(path_of("d1", "bucket_00009_flush_length"), b"\0" * 16),
        CorruptFile,
        "bucket_00009_flush_length",
    ),
}
IN_ROWS = (
    "bytes in the middle changed",
    "row is no struct",
    "an insert without a row id",
    "an insert without an operation",
    "a delete without a write id",
    "an unknown operation",
    "an update event of ACID version 1",
    "a column of another type",
    "a bucket property of an unknown codec",
)
"""Faults that names, sizes and footers do not reveal."""
NEXT_STEP = re.compile("restore|Restore|remove|move|rename|run a|declare|drop|upgrade|read again")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_names_the_file_and_the_next_step_and_nothing_is_lost(
    tmp_path: Path, kind: str
) -> None:
    damage, error, named = KINDS[kind]
    table = good(tmp_path / "t")
    kept = shutil.copytree(table.root, tmp_path / "kept")
    damage(table)
    damaged = {path: path.read_bytes() for path in table.root.rglob("*") if path.is_file()}
    with pytest.raises(AcidError) as raised:
        table.values()
    assert type(raised.value) is error, raised.value
    assert named in str(raised.value)
    assert str(table.root) in str(raised.value)
    assert NEXT_STEP.search(str(raised.value)), raised.value
    assert {path: path.read_bytes() for path in damaged} == damaged, "reading changes nothing"
    shutil.rmtree(table.root)
    shutil.copytree(kept, table.root)
    assert table.values() == GOOD


@pytest.mark.parametrize(
    "kind",
    [
        "the last byte is missing",
        "bytes in the middle changed",
        "a delete file that is cut",
        "five of the six columns",
        "an update event of ACID version 1",
        "a column of another type",
    ],
)
def test_a_compaction_of_bad_files_fails_and_publishes_nothing(tmp_path: Path, kind: str) -> None:
    damage, error, named = KINDS[kind]
    table = good(tmp_path)
    table.inserts("d3", [(3, P, 0, "x")])
    damage(table)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(AcidError, match=re.escape(named.partition(",")[0])) as raised:
        table.compact("major", "3:M::")
    assert type(raised.value) is error
    visible = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("_tmp"))
    assert visible == before


def test_a_minor_compaction_of_loaded_files_with_bucket_names_is_refused(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).raw("d1/bucket_00000", ["A"]).inserts("d2", [(2, P, 0, "B")])
    assert table.values() == ["A", "B"]
    with pytest.raises(CompactionRefused, match="request a major"):
        table.compact("minor", "2:M::")
    table.compact("major", "2:M::")
    assert table.values("2:M::") == ["A", "B"]


@pytest.mark.parametrize("path", ["d1/bucket_00001", "D2/bucket_00001", "000001_0"])
def test_files_without_a_byte_are_absent(tmp_path: Path, path: str) -> None:
    table = good(tmp_path)
    table.file(path).write_bytes(b"")
    assert table.values() == GOOD


def test_nested_deltas_and_hidden_files_are_ignored(tmp_path: Path) -> None:
    table = good(tmp_path)
    delta = full("d1").partition("/")[0]
    for name in (f"{delta}/{delta}/bucket_00000", "_tmp_1_x/bucket_00000", f"{delta}/_x", ".y"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"not ORC")
    assert table.values() == GOOD


def test_a_partition_that_does_not_fit_the_table_is_named(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, partitioned_by="p int").inserts("q=1/d1", [(1, P, 0, "x")])
    with pytest.raises(CorruptFile, match="q=1 does not have the partition columns"):
        table.values()


@pytest.mark.parametrize(
    ("path", "error", "named"),
    [
        ("D3/bucket_00000", UnsupportedLayout, "is a delete_delta, but the table is insert-only"),
        ("delta_y/000000_0", MalformedName, "delta_y"),
    ],
)
def test_insert_only_tables_refuse_what_they_cannot_have(
    tmp_path: Path, path: str, error: type[AcidError], named: str
) -> None:
    table = AcidTable(tmp_path, insert_only=True).raw("d1/000000_0", ["A"])
    assert table.values() == ["A"]
    table.raw(path, ["B"])
    with pytest.raises(error, match=named):
        table.values()
