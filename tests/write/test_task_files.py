"""What one task of a statement writes: files that are complete, checked and recorded."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from acid_platform import (
    CorruptFile,
    InvalidDefinition,
    PublicationFailed,
    SourceRowsAmbiguous,
)
from acid_platform.formats.file_access import recorded_file
from acid_platform.formats.orc import AcidWriter, OrcWriter
from acid_platform.formats.orc.dump import events
from acid_platform.layout.acid_keys import Bucket
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import parse_columns
from acid_platform.storage.files import Files
from acid_platform.write import task_files
from acid_platform.write.task_files import (
    DELETES,
    INSERTS,
    Received,
    RowKind,
    StagedFile,
    TaskTarget,
    write_task,
)

COLUMNS = parse_columns("id int, v string")
NAMES = ("__w", "__b", "__r")
B3 = Bucket(3).property


def target(where: Path, rows: RowKind, **changed: Any) -> TaskTarget:
    given: dict[str, Any] = {
        "location": f"file://{where}",
        "directory": str(where),
        "columns": COLUMNS,
        "partition_names": ("m",),
        "write_id": 7,
        "statement": 2,
        "compression": "zlib",
        "rows": rows,
    }
    return TaskTarget(**{**given, **changed})


def written(
    aim: TaskTarget, batches: Iterable[pa.RecordBatch], bucket: int = 3, attempt: int = 11
) -> tuple[list[StagedFile], int]:
    """The files, as the driver gets them, and the number of rows that the task received."""
    *files, received = write_task(pickle.loads(pickle.dumps(aim)), bucket, attempt, batches)
    assert isinstance(received, Received)
    return [StagedFile.unpacked(*one.packed()) for one in files], received.rows  # type: ignore[union-attr]


def rows_of(file: StagedFile) -> list[dict[str, Any]]:
    files, _ = Files.of(str(Path(file.path).parent))
    return list(events(files, file.path))


def inserts(partitions: Sequence[str], ids: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "m": pa.array(partitions, pa.string()),
            "id": pa.array(ids, pa.int32()),
            "v": [f"v{one}" for one in ids],
        }
    )


def changes(rows: Sequence[tuple[str, int | None, int, int]]) -> pa.RecordBatch:
    """Rows of (partition, rowId or None, bits, id)."""
    return pa.RecordBatch.from_pydict(
        {
            "m": [row[0] for row in rows],
            "__w": pa.array([None if row[1] is None else 4 for row in rows], pa.int64()),
            "__b": pa.array([None if row[1] is None else B3 for row in rows], pa.int32()),
            "__r": pa.array([row[1] for row in rows], pa.int64()),
            "__bits": pa.array([row[2] for row in rows], pa.int32()),
            "id": pa.array([row[3] for row in rows], pa.int32()),
            "v": [f"v{row[3]}" for row in rows],
        }
    )


def test_inserts_of_several_batches_and_partitions(tmp_path: Path) -> None:
    nothing = inserts([], [])
    null = "__HIVE_DEFAULT_PARTITION__"
    batches = [inserts(["a", "a"], [1, 2]), nothing, inserts(["a", "x/y", null], [3, 4, 5])]
    files, received = written(target(tmp_path, RowKind.INSERT), batches)
    assert received == 5
    assert [(file.partition, file.deletes, file.entry.path) for file in files] == [
        ("m=a", False, "bucket_00003"),
        ("m=x%2Fy", False, "bucket_00003"),
        (f"m={null}", False, "bucket_00003"),
    ]
    found = [[(row["rowId"], row["row"]["id"]) for row in rows_of(file)] for file in files]
    assert found == [[(0, 1), (1, 2), (2, 3)], [(3, 4)], [(4, 5)]], "P15: unique in the bucket"
    (first, *_) = rows_of(files[0])
    assert first == {
        "operation": 0,
        "originalTransaction": 7,
        "bucket": Bucket(3, 2).property,
        "rowId": 0,
        "currentTransaction": 7,
        "row": {"id": 1, "v": "v1"},
    }
    for file in files:  # P26: the record is what the footer says
        there = Files.of(str(tmp_path))[0]
        assert file.entry == recorded_file(there, file.path, "bucket_00003", exact=True)
        assert file.entry.ranges == recorded_file(there, file.path, "bucket_00003").ranges


def test_each_row_says_what_it_becomes(tmp_path: Path) -> None:
    batches = [
        changes([("a", None, INSERTS, 1), ("a", 5, DELETES, 0), ("a", 6, DELETES | INSERTS, 2)]),
        changes([("b", 5, DELETES, 0)]),
    ]
    files, received = written(target(tmp_path, RowKind.EACH), batches)
    assert received == 4
    assert [(file.partition, file.deletes) for file in files] == [
        ("m=a", True),
        ("m=a", False),
        ("m=b", True),
    ]
    assert [
        (row["originalTransaction"], row["bucket"], row["rowId"]) for row in rows_of(files[0])
    ] == [
        (4, B3, 5),
        (4, B3, 6),
    ]
    assert {(row["operation"], row["currentTransaction"]) for row in rows_of(files[0])} == {(2, 7)}
    assert all(row["row"] is None for row in rows_of(files[0])), "F6"
    assert [(row["rowId"], row["row"]["id"]) for row in rows_of(files[1])] == [(0, 1), (1, 2)]


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert written(target(tmp_path, RowKind.UPDATE), []) == ([], 0)
    assert not os.listdir(tmp_path)


def test_rows_are_counted_by_what_they_become(tmp_path: Path) -> None:
    rows = [("a", None, INSERTS, 1), ("a", 5, DELETES, 0), ("a", 6, DELETES | INSERTS, 2)]
    *_, received = write_task(target(tmp_path, RowKind.EACH), 3, 1, [changes([*rows])])
    assert received == Received(inserted=1, deleted=1, updated=1)
    assert Received(1, 2, 3) + Received(10, 20, 30) == Received(11, 22, 33)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_rows_that_only_delete_one_row_delete_it_once(tmp_path: Path, cut: int) -> None:
    rows = [("a", None, INSERTS, 1), *[("a", 5, DELETES, 0)] * 3, ("a", 6, DELETES | INSERTS, 2)]
    batches = [changes(part) for part in (rows[:cut], rows[cut:]) if part]
    *files, received = write_task(target(tmp_path, RowKind.EACH), 3, 1, batches)
    assert received == Received(inserted=1, deleted=1, updated=1, repeated=2)
    assert received.rows == 5
    deleted, inserted = (file for file in files if isinstance(file, StagedFile))
    assert [row["rowId"] for row in rows_of(deleted)] == [5, 6]
    assert [row["row"]["id"] for row in rows_of(inserted)] == [1, 2]


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_two_rows_with_one_key_are_refused_wherever_batches_end(tmp_path: Path, cut: int) -> None:
    rows = [("a", 4, DELETES, 0), ("a", 5, DELETES, 0), ("a", 5, DELETES | INSERTS, 1)]
    batches = [changes(part) for part in (rows[:cut], rows[cut:]) if part]
    with pytest.raises(SourceRowsAmbiguous, match=rf"row__id \(4, {B3}, 5\)"):
        written(target(tmp_path, RowKind.EACH), batches)
    other = [("a", 5, DELETES, 0), ("b", 5, DELETES, 0)]
    assert len(written(target(tmp_path, RowKind.EACH), [changes(other)])[0]) == 2, "P14"


@pytest.mark.parametrize("row_ids", [[1, 0], [0, 2, 1]])
def test_P15_F7_a_file_whose_rows_are_out_of_order_is_never_published(
    tmp_path: Path, row_ids: list[int]
) -> None:
    """Spark might sort again after the sort that the files need."""
    rows = changes([("a", row_id, DELETES, 0) for row_id in row_ids])
    with pytest.raises(CorruptFile, match="do not ascend"):
        written(target(tmp_path, RowKind.EACH), [rows])


def test_P15_a_partition_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublicationFailed, match=r"two files for bucket 3 of m=a.*out of order"):
        written(target(tmp_path, RowKind.INSERT), [inserts(["a", "b", "a"], [1, 2, 3])])


def test_a_row_of_another_bucket_is_refused(tmp_path: Path) -> None:
    """Its delete event would be in a file where no reader looks for it."""
    rows = changes([("a", 1, DELETES, 0)])
    with pytest.raises(CorruptFile, match="bucket 2 got a row of bucket 3"):
        written(target(tmp_path, RowKind.EACH), [rows], bucket=2)


def test_P19_rows_that_the_writer_lost_publish_nothing(tmp_path: Path) -> None:
    real = OrcWriter.write

    def forgetful(self: OrcWriter, batch: pa.RecordBatch, checked: bool) -> None:
        real(self, batch.slice(1), checked)

    with (
        mock.patch.object(OrcWriter, "write", forgetful),
        pytest.raises(PublicationFailed, match="3 events were given, the file holds 2"),
    ):
        written(target(tmp_path, RowKind.INSERT), [inserts(["a"] * 3, [1, 2, 3])])


def test_P19_attempts_of_one_task_write_different_files(tmp_path: Path) -> None:
    aim = target(tmp_path, RowKind.INSERT)
    first = write_task(aim, 3, 11, [inserts(["a", "b"], [1, 2])])
    lost = next(first)  # this attempt hangs while the next one runs
    files, _ = written(aim, [inserts(["a", "b"], [1, 2])], attempt=12)
    list(first)
    assert isinstance(lost, StagedFile)
    assert lost.path not in [file.path for file in files]
    assert [row["row"]["id"] for file in files for row in rows_of(file)] == [1, 2]


@pytest.mark.parametrize("acid", [True, False])
def test_more_than_4096_buckets_are_refused(tmp_path: Path, acid: bool) -> None:
    aim = target(tmp_path, RowKind.INSERT, format=FileFormat(keyed=acid))
    assert written(aim, [inserts(["a"], [1])], bucket=4095)[1] == 1
    assert written(aim, [], bucket=4096) == ([], 0)
    with pytest.raises(InvalidDefinition, match=r"more than 4096 files.*coalesce"):
        written(aim, [inserts(["a"], [1])], bucket=4096)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES])
def test_a_file_that_cannot_be_written_is_named_with_the_next_step(
    tmp_path: Path, error: int
) -> None:
    with (
        mock.patch.object(AcidWriter, "close", side_effect=OSError(error, os.strerror(error))),
        pytest.raises(PublicationFailed, match=rf"{os.strerror(error)}; nothing was published"),
    ):
        written(target(tmp_path, RowKind.INSERT), [inserts(["a"], [1])])
    with pytest.raises(PublicationFailed, match="every executor reaches the warehouse"):
        written(
            target(tmp_path, RowKind.INSERT, directory=f"{tmp_path}/gone"), [inserts(["a"], [1])]
        )


def test_values_arrive_whatever_sparks_settings(tmp_path: Path) -> None:
    """Spark sends timestamps with a zone, and on request large texts, also inside of others."""
    columns = parse_columns("t timestamp, a array<timestamp>, s struct<x:string,y:int>, w string")
    zone, large = pa.timestamp("us", "UTC"), pa.large_string()
    struct = pa.struct([("x", large), ("y", pa.int32())])
    values = {
        "t": pa.array([0, None, -5_000_000], pa.int64()).cast(zone),
        "a": pa.array([[0, None], None, []], pa.list_(pa.int64())).cast(pa.list_(zone)),
        "s": pa.array([{"x": "é", "y": 1}, None, {"x": None, "y": None}], struct),
        "w": pa.array(["", None, "w"], large),
    }
    aim = target(tmp_path, RowKind.INSERT, columns=columns, partition_names=())
    whole = pa.RecordBatch.from_pydict(values)
    files, received = written(aim, [whole.slice(0, 1), whole.slice(1, 2)])
    assert received == 3 and [file.partition for file in files] == [""]
    found = [row["row"] for row in rows_of(files[0])]
    assert [row["w"] for row in found] == ["", None, "w"]
    assert [row["s"] for row in found] == [
        {"x": "é", "y": 1},
        None,
        {"x": None, "y": None},
    ]
    assert [row["t"] is None for row in found] == [False, True, False]
    assert [row["a"] if row["a"] is None else len(row["a"]) for row in found] == [2, None, 0]


def test_rows_of_an_insert_only_table(tmp_path: Path) -> None:
    aim = target(tmp_path, RowKind.INSERT, format=FileFormat())
    (file,), _ = written(aim, [inserts(["a", "a"], [1, 2])])
    assert file.entry.path == "000003_0"
    assert rows_of(file) == [{"id": 1, "v": "v1"}, {"id": 2, "v": "v2"}]


def test_runs_of_several_columns() -> None:
    texts = [pa.array(list("aaabb")), pa.array(list("xxyyy"))]
    assert task_files._runs(texts, 5) == [(0, 2), (2, 3), (3, 5)]
    assert task_files._runs([], 5) == [(0, 5)]
    assert task_files._runs(texts, 0) == []
