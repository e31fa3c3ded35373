"""Merging the files of a bucket: order, identity, deletes, aborted ids, schema evolution."""

from __future__ import annotations

import datetime
import itertools
import os
import tempfile
from concurrent.futures import Executor
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from acid_platform import CompactionFailed, CompactionMismatch, CorruptFile
from acid_platform.compaction import rewrite as module
from acid_platform.compaction.rewrite import Rewrite, Rewritten, rewrite_bucket
from acid_platform.engine.local import compact
from acid_platform.formats.data_file import Keyed
from acid_platform.formats.file_access import recorded_file
from acid_platform.formats.orc import acid_schema, finish_plain_file, open_orc, orc_file, orc_schema
from acid_platform.formats.orc.dump import events, metadata
from acid_platform.formats.orc.tail import declared_footer, footer_of
from acid_platform.layout.types import parse_columns
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files
from tests.acid_files import AcidTable, read_keys

COLUMNS = parse_columns("id int, v string")
P = 536870912
Event = tuple[int, int, int, int]
"""originalTransaction, bucket, rowId, currentTransaction."""


def write(path: Path, keys: list[Event], deletes: bool = False) -> str:
    """Writes an ACID file with one row per key; the value of `id` identifies the row."""
    target = acid_schema(COLUMNS)
    w, b, r, c = ([key[i] for key in keys] for i in range(4))
    row = [None if deletes else {"id": hash(key) % 1000, "v": f"{key}"} for key in keys]
    table = pa.table(
        {
            "operation": [2 if deletes else 0] * len(keys),
            "originalTransaction": w,
            "bucket": b,
            "rowId": r,
            "currentTransaction": c,
            "row": row,
        },
        schema=target,
    )
    orc.write_table(table, str(path), stripe_size=1024)
    return str(path)


def source(path: str, above: int = -1) -> SourceFile:
    return SourceFile(path, RowIdentity.STORED, 0, "", 0, 99, above=above)


def written(root: Path, *inputs: str, **more: Any) -> Rewritten:
    """Rewrites these files into `out`."""
    usual: dict[str, Any] = {
        "location": str(root),
        "inputs": tuple(map(source, inputs)),
        "deletes": (),
        "output": str(root / "out"),
        "columns": COLUMNS,
        "high_watermark": 9,
        "aborted": (),
        "compression": "zlib",
    }
    return rewrite_bucket(Rewrite(**{**usual, **more}))


def merged(
    root: Path,
    inputs: list[list[Event]],
    deletes: list[Event],
    high: int = 99,
    aborted: tuple[int, ...] = (),
    above: int = -1,
    most: int = 500,
) -> list[Event]:
    paths = [write(root / f"in{i}", keys) for i, keys in enumerate(inputs)]
    gone = [source(write(root / "gone", deletes, deletes=True))] if deletes else []
    output = str(root / "out")
    made = written(
        root,
        inputs=tuple(source(path, above) for path in paths),
        deletes=tuple(gone),
        high_watermark=high,
        aborted=aborted,
        most_inputs=most,
    )
    if not made.rows:
        assert (made.rows, made.file, Path(output).exists()) == (0, None, False)
        assert made.values.column_checksums == {"id": 0, "v": 0}, "C32: as an absent file has"
        return []
    files, _ = Files.of(str(root))
    assert made.file == recorded_file(files, output, "out", exact=True), "P26"
    w, b, r, c = read_keys(open_orc(files, output), output, with_current=True)
    found = [tuple(map(int, key)) for key in zip(w, b, r, c, strict=True)]
    assert len(found) == made.rows
    values = [event["row"]["v"] for event in events(files, output)]
    assert values == [str(key) for key in found], "each key kept its row"
    index = metadata(files, output)["user_metadata"]["hive.acid.key.index"]
    assert index.endswith(f"{found[-1][0]},{found[-1][1]},{found[-1][2]};")
    return found  # type: ignore[return-value]


keys = st.tuples(st.integers(1, 4), st.sampled_from([P, P + 1, P + 65536]), st.integers(0, 40))


@settings(max_examples=40)
@given(st.lists(st.sets(keys, max_size=60), max_size=4), st.sets(keys, max_size=30), st.data())
def test_C31_a_merge_is_the_sorted_union_without_deleted_and_aborted_rows(
    parts: list[set[tuple[int, int, int]]], gone: set[tuple[int, int, int]], data: st.DataObject
) -> None:
    seen: set[tuple[int, int, int]] = set()
    inputs: list[list[Event]] = []
    for part in parts:
        fresh = sorted(part - seen)
        seen |= part
        if fresh:
            inputs.append([(*key, key[0]) for key in fresh])
    aborted = tuple(data.draw(st.sets(st.integers(1, 4), max_size=1)))
    deletes = sorted((*key, 9) for key in gone)
    expected = sorted(
        event
        for part in inputs
        for event in part
        if event[:3] not in gone and event[3] not in aborted
    )
    with tempfile.TemporaryDirectory() as root:
        assert merged(Path(root), inputs, deletes, aborted=aborted) == expected


def test_C31_inputs_out_of_order_are_sorted(tmp_path: Path) -> None:
    # An older query-based compaction sorted by bucket first (F7).
    odd = [(2, P, 0, 2), (2, P, 1, 2), (1, P + 65536, 0, 1), (1, P + 65536, 1, 1)]
    assert merged(tmp_path, [odd, [(1, P, 5, 1)]], []) == sorted([*odd, (1, P, 5, 1)])


def test_C34_more_inputs_than_allowed_are_merged_in_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages are merged in stages, too; none is written while it is read."""
    merge = module._merge

    def checked(files: Files, rewrite: Rewrite, pool: Executor | None) -> module.Rewritten:
        assert rewrite.output not in [source.path for source in rewrite.inputs]
        return merge(files, rewrite, pool)

    monkeypatch.setattr(module, "_merge", checked)
    inputs = [[(w, P, r, w) for r in range(3)] for w in range(1, 12)]
    expected = [event for part in inputs for event in part if event[:3] != (4, P, 1)]
    assert merged(tmp_path, inputs, [(4, P, 1, 12)], aborted=(7,), most=2) == [
        event for event in expected if event[0] != 7
    ]
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("_stage")]


def test_F13_rows_below_a_straddled_base_are_dropped(tmp_path: Path) -> None:
    assert merged(tmp_path, [[(3, P, 0, 3), (5, P, 0, 5), (6, P, 0, 6)]], [], above=5) == [
        (6, P, 0, 6)
    ]


def test_F16_an_aborted_delete_deletes_nothing(tmp_path: Path) -> None:
    rows = [(1, P, 0, 1), (1, P, 1, 1)]
    deletes = [(1, P, 0, 2), (1, P, 1, 3)]
    assert merged(tmp_path, [rows], deletes, aborted=(2,)) == [(1, P, 0, 1)]
    (tmp_path / "2").mkdir()
    assert merged(tmp_path / "2", [rows], deletes, high=2) == [(1, P, 1, 1)]


@pytest.mark.more
def test_a_large_merge_is_streamed_stripe_by_stripe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    keep = module._conform

    def watched(rows: Keyed, *args: Any) -> Keyed:
        seen.append(len(rows))
        return keep(rows, *args)

    monkeypatch.setattr(module, "_conform", watched)
    inputs = [[(w, P, r, w) for r in range(30_000)] for w in (1, 2)]
    assert len(merged(tmp_path, inputs, [])) == 60_000
    assert len(seen) > 2 and max(seen) < 30_000


def test_F18_schema_evolution_added_columns_are_null_and_ints_widen(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [(1, P, 0, 1)])
    wider = parse_columns("v string, note string, id bigint")
    written(tmp_path, path, columns=wider)
    files, _ = Files.of(str(tmp_path))
    (event,) = events(files, str(tmp_path / "out"))
    assert event["row"]["note"] is None and event["row"]["v"] == f"{(1, P, 0, 1)}"
    assert metadata(files, str(tmp_path / "out"))["schema"].endswith(
        "row:struct<v:string,note:string,id:bigint>>"
    )


def test_delete_events_are_merged_and_stay_without_a_row(tmp_path: Path) -> None:
    first = write(tmp_path / "1", [(1, P, 0, 2), (1, P, 5, 2)], deletes=True)
    second = write(tmp_path / "2", [(1, P, 3, 3)], deletes=True)
    made = written(tmp_path, first, second, delete_events=True)
    files, _ = Files.of(str(tmp_path))
    found = list(events(files, str(tmp_path / "out")))
    assert made.rows == 3 and [row["rowId"] for row in found] == [0, 3, 5]
    assert {(row["operation"], row["row"]) for row in found} == {(2, None)}
    assert metadata(files, str(tmp_path / "out"))["user_metadata"]["hive.acid.stats"] == "0,0,3"


@pytest.mark.parametrize("content", [b"", b"ORC", b"not an ORC file at all"])
def test_a_torn_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "torn").write_bytes(content)
    files, _ = Files.of(str(tmp_path))
    with pytest.raises(CorruptFile, match="torn"):
        open_orc(files, str(tmp_path / "torn"))


DECLARED = (
    "c char(5), v varchar(3), z timestamp with local time zone, t timestamp,"
    " n struct<c:char(4),a:array<varchar(2)>>,"
    " m map<char(2),timestamp with local time zone>"
)
AS_ORC = (
    "struct<c:char(5),v:varchar(3),z:timestamp with local time zone,t:timestamp,"
    "n:struct<c:char(4),a:array<varchar(2)>>,"
    "m:map<char(2),timestamp with local time zone>>"
)
NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
ROW = {
    "c": "é    ",
    "v": "éé",
    "z": NOON,
    "t": NOON.replace(tzinfo=None),
    "n": {"c": "ab  ", "a": ["x", None]},
    "m": [("k ", NOON)],
}


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "zstd", "lz4"])
def test_P17_footers_declare_the_types_that_arrow_and_spark_do_not_write(
    tmp_path: Path, compression: str
) -> None:
    columns = parse_columns(DECLARED)
    count = 30_000
    kinds = list(acid_schema(columns).field("row").type)
    table = pa.Table.from_pylist([ROW] * count, schema=pa.schema(kinds))
    path = str(tmp_path / "f")
    orc.write_table(table, path, compression=compression, stripe_size=4096)
    files, _ = Files.of(str(tmp_path))
    before = open_orc(files, path)
    finish_plain_file(files, path, columns)
    assert orc_schema(files, path) == AS_ORC
    assert (open_orc(files, path).nstripes, open_orc(files, path).nrows) == (before.nstripes, count)
    found = list(itertools.islice(events(files, path), 2))[1]
    assert [found[name] for name in "cvn"] == ["é    ", "éé", ROW["n"]]
    assert found["z"] == "2020-01-01 12:00:00+00:00" and list(found["m"]) == ["k "]


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("id int", "shorter"),
        ("id char(2), v string", "can't be declared"),
        ("id int, v timestamp with local time zone", "can't be declared"),
        ("id int, v varchar(3), w char(1)", "longer"),
    ],
)
def test_a_footer_is_not_declared_as_what_the_file_does_not_hold(
    tmp_path: Path, declared: str, why: str
) -> None:
    path = str(tmp_path / "f")
    orc.write_table(pa.table({"id": pa.array([1], pa.int32()), "v": ["a"]}), path)
    footer = footer_of(orc.ORCFile(path).reader.serialized_file_tail())
    with pytest.raises(CorruptFile, match=f"does not have the expected columns.*{why}"):
        declared_footer(footer, parse_columns(declared), path)


def test_a_compaction_writes_the_declared_types_and_cuts_as_readers_do(tmp_path: Path) -> None:
    columns = parse_columns("id int, v varchar(9)")
    path = write(tmp_path / "in", [(1, P, 0, 1), (1, P, 1, 1)])
    output = str(tmp_path / "out")
    assert written(tmp_path, path, columns=columns).rows == 2
    files, _ = Files.of(str(tmp_path))
    assert orc_schema(files, output).endswith("row:struct<id:int,v:varchar(9)>>")
    assert [event["row"]["v"] for event in events(files, output)] == ["(1, 53687"] * 2


@pytest.mark.parametrize("name", ["p=a b%20#", "p=%zz", "p=é[1]"])
def test_a_location_may_hold_blanks_and_what_uris_escape(tmp_path: Path, name: str) -> None:
    where = tmp_path / name
    where.mkdir()
    path = write(where / "in", [(1, P, 0, 1)])
    made = written(where, path, location=f"file://{where}")
    assert made.rows == 1 and (where / "out").exists()


def test_C32_a_first_merge_that_changed_a_value_is_not_merged_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many inputs (C34) the values are compared after each stage."""
    merge = module._merge

    def wrong(files: Files, rewrite: Rewrite, pool: Executor | None) -> module.Rewritten:
        made = merge(files, rewrite, pool)
        if "_stage_" in rewrite.output:
            write(Path(rewrite.output), [(7, P, 7, 7)])
        return made

    monkeypatch.setattr(module, "_merge", wrong)
    with pytest.raises(CompactionMismatch, match="_stage_out_3_0 has other values"):
        merged(tmp_path, [[(1, P, 0, 1)], [(2, P, 0, 2)], [(3, P, 0, 3)]], [], most=2)


def test_P23_a_minor_compaction_drops_rows_that_their_own_write_id_deleted(tmp_path: Path) -> None:
    """Hive 2 distinguishes the two events by their statements, which the merged directory lacks."""
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "a")])
    table.inserts("d2.1", [(2, P + 1, 0, "b"), (2, P + 1, 1, "c")])
    table.deletes("D2.2", [(1, P, 0), (2, P + 1, 1)], 2)
    plan = table.compact("minor", "2:M::")
    files, root = Files.of(str(tmp_path))

    def keys(directory: object) -> list[tuple[int, ...]]:
        found = events(files, f"{root}/{directory}/bucket_00000")
        return [
            tuple(row[key] for key in ("originalTransaction", "bucket", "rowId")) for row in found
        ]

    assert keys(plan.output_delta) == [(1, P, 0), (2, P + 1, 0)]
    assert keys(plan.output_delete_delta) == [(1, P, 0), (2, P + 1, 1)]
    assert table.values("2:M::", "50 open") == table.values("2:M::") == ["b"]


def test_a_large_delete_file_is_read_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, i, "x") for i in range(50)])
    table.deletes("D2", [(1, P, i) for i in range(0, 50, 3)], current=2)
    before = table.values("2:M::")
    whole: list[object] = []
    monkeypatch.setattr(orc_file, "BATCH_ROWS", 1)
    monkeypatch.setattr(orc.ORCFile, "read", lambda *_, **__: whole.append(1))
    assert table.values("2:M::") == before == ["x"] * 33
    assert not whole


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_compaction_whose_file_is_not_as_its_task_wrote_it_is_given_up(
    tmp_path: Path, damage: str
) -> None:
    """As if an executor wrote to a disk of its own."""
    (tmp_path / "t").mkdir()
    table = AcidTable(tmp_path / "t")
    table.inserts("d1", [(1, P, 0, "a")])
    table.inserts("d2", [(2, P, 0, "b")])
    before = sorted(path.name for path in table.root.iterdir())

    def elsewhere(task: Rewrite, pool: Executor | None) -> Rewritten:
        done = rewrite_bucket(task, pool)
        if damage == "gone":
            Path(task.output).unlink()
        else:
            os.truncate(task.output, Path(task.output).stat().st_size - 1)
        return done

    with (
        mock.patch.object(compact, "rewritten", elsewhere),
        pytest.raises(CompactionFailed, match=r"is not here as its task wrote it.*again"),
    ):
        table.compact("major", "2:M::")
    assert sorted(path.name for path in table.root.iterdir()) == before
