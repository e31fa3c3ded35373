"""`to_arrow`: types, schema evolution, partition values, column selection, memory."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc, parquet

from acid_platform import CompactionRefused, UnknownColumn, UnsupportedLayout, WrongType
from acid_platform.formats.data_file import KeyPart
from acid_platform.formats.orc import OrcFile, open_orc
from acid_platform.layout.types import parse_type
from acid_platform.scan import decode
from acid_platform.scan import deletes as deletes_module
from acid_platform.scan import scans as module
from acid_platform.scan.deletes import DeletedRows, DeleteKeys
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.partition_texts import partition_value
from tests.acid_files import AcidTable, P, arrow_scan
from tests.notation import txns, write_ids

FIELDS = (
    "operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,currentTransaction:bigint"
)


def acid_by_pyorc(
    table: AcidTable, path: str, row: str, rows: list[tuple[Any, ...] | None], write_id: int = 1
) -> None:
    """An insert file with ORC types that Arrow's writer does not have."""
    file = table.file(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with (
        file.open("wb") as handle,
        pyorc.Writer(handle, f"struct<{FIELDS},row:struct<{row}>>") as writer,
    ):
        for number, values in enumerate(rows):
            writer.write((0, write_id, P, number, write_id, values))


@pytest.mark.parametrize(
    ("kind", "stored", "value", "expected"),
    [
        ("boolean", "boolean", True, True),
        ("tinyint", "tinyint", -128, -128),
        ("smallint", "smallint", 1, 1),
        ("int", "int", 2**31 - 1, 2**31 - 1),
        ("bigint", "bigint", -(2**63), -(2**63)),
        ("float", "float", 0.5, 0.5),
        ("double", "double", 1e300, 1e300),
        ("string", "string", "é\n", "é\n"),
        ("binary", "binary", b"\0\xff", b"\0\xff"),
        ("date", "date", datetime.date(1, 1, 1), datetime.date(1, 1, 3)),  # writer_clocks.py
        (
            "decimal(38,18)",
            "decimal(38,18)",
            Decimal("-12345678901234567890.123456789012345678"),
            Decimal("-12345678901234567890.123456789012345678"),
        ),
        (
            "timestamp",
            "timestamp",
            datetime.datetime(2013, 7, 1, 12, 0, 0, 1),
            datetime.datetime(2013, 7, 1, 12, 0, 0, 1),
        ),
        (
            "timestamp",
            "timestamp",
            datetime.datetime(9999, 12, 31, 23, 59, 59, 4),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 4),
        ),
        (
            "timestamp",
            "timestamp",
            datetime.datetime(1, 1, 3, 0, 0, 0, 7),
            datetime.datetime(1, 1, 5, 0, 0, 0, 7),
        ),
        ("varchar(3)", "varchar(9)", "abcd", "abc"),
        ("char(5)", "char(5)", "ab", "ab   "),
        ("char(2)", "string", "abc", "ab"),
        ("char(5)", "string", "a    b", "a    "),
        ("array<int>", "array<int>", [1, None], [1, None]),
        (
            "array<timestamp>",
            "array<timestamp>",
            [datetime.datetime(3000, 1, 1)],
            [datetime.datetime(3000, 1, 1)],
        ),
        (
            "map<string,struct<x:timestamp>>",
            "map<string,struct<x:timestamp>>",
            {"k": (datetime.datetime(3000, 1, 1),)},
            [("k", {"x": datetime.datetime(3000, 1, 1)})],
        ),
        (
            "struct<a:int,b:array<char(2)>>",
            "struct<a:int,b:array<char(2)>>",
            (1, ["x"]),
            {"a": 1, "b": ["x "]},
        ),
        # evolution: wider numbers, numbers as text, fields of a struct by name
        ("bigint", "int", 7, 7),
        ("int", "tinyint", 7, 7),
        ("double", "float", 0.5, 0.5),
        ("double", "bigint", 2**53 + 1, float(2**53)),
        ("string", "int", 7, "7"),
        ("decimal(20,3)", "decimal(7,2)", Decimal("1.50"), Decimal("1.500")),
        ("decimal(12,2)", "int", 3, Decimal("3.00")),
        ("string", "varchar(5)", "abc", "abc"),
        (
            "struct<B:bigint,c:string,a:int>",
            "struct<a:int,b:int>",
            (1, 2),
            {"b": 2, "c": None, "a": 1},
        ),
        ("array<bigint>", "array<int>", [1], [1]),
        ("map<string,bigint>", "map<string,int>", {"k": 1}, [("k", 1)]),
    ],
)
def test_P17_every_type_and_every_widening(
    tmp_path: Path, kind: str, stored: str, value: Any, expected: Any
) -> None:
    table = AcidTable(tmp_path, f"x {kind}, y int")
    acid_by_pyorc(table, "d1", f"y:int,X:{stored}", [(1, value), (2, None), None])
    found = table.read()
    assert found.to_pylist() == [
        {"x": expected, "y": 1},
        {"x": None, "y": 2},
        {"x": None, "y": None},
    ]
    assert found.schema == table.read("0:M::").schema, "the type does not depend on the files"


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("int", "bigint"),
        ("int", "string"),
        ("date", "timestamp"),
        ("decimal(9,2)", "bigint"),
        ("string", "binary"),
        ("float", "double"),
        ("array<int>", "int"),
        ("struct<a:int>", "array<int>"),
        ("map<string,int>", "array<int>"),
    ],
)
def test_a_change_of_type_that_could_lose_values_is_refused(
    tmp_path: Path, kind: str, stored: str
) -> None:
    table = AcidTable(tmp_path, f"x {kind}, y int")
    acid_by_pyorc(table, "d1", f"x:{stored},y:int", [(None, 1)])
    with pytest.raises(
        UnsupportedLayout,
        match=r"bucket_00000, column x holds .* declare the column as it is stored",
    ):
        table.read()
    assert table.read(columns=["y"]).to_pylist() == [{"y": 1}]


def test_P64_nanoseconds_are_refused_also_before_1970(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "x timestamp")
    for value in (1_999, -1):
        nanos = pa.array([value, None], pa.timestamp("ns"))
        orc.write_table(pa.table({"x": nanos}), str(tmp_path / "000000_0"))
        with pytest.raises(WrongType, match=r"column x: .* no nanoseconds"):
            table.read()
    nanos = pa.array([2_000, -1_000, None], pa.timestamp("ns"))
    orc.write_table(pa.table({"x": nanos}), str(tmp_path / "000000_0"))
    assert table.read().column("x").cast(pa.int64()).to_pylist() == [2, -1, None]


def test_a_timestamp_that_nanoseconds_cannot_hold_survives_a_compaction(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "v timestamp, m map<string,timestamp>")
    far = datetime.datetime(9999, 12, 31, 1, 2, 3, 4)
    acid_by_pyorc(table, "d1", "v:timestamp,m:map<string,timestamp>", [(far, {"k": far})])
    acid_by_pyorc(
        table,
        "d2",
        "v:timestamp,m:map<string,timestamp>",
        [(datetime.datetime(2013, 1, 1), None)],
        write_id=2,
    )
    before = table.read().to_pylist()
    table.compact("major", "2:M::")
    for name in ("d1", "d2"):
        table.file(name).unlink()
    assert table.read("2:M::").to_pylist() == before


def test_C32_nanoseconds_beside_years_that_they_cannot_hold_are_not_cut(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "v timestamp")
    acid_by_pyorc(table, "d1", "v:timestamp", [(datetime.datetime(9999, 12, 31),)])
    table.raw("o", [(datetime.datetime(2013, 1, 1),)])
    files = [table.file("d1"), table.file("o")]
    orc.write_table(pa.table({"v": pa.array([1_001], pa.timestamp("ns"))}), str(files[1]))
    with pytest.raises(CompactionRefused, match=r"holds timestamps with nanoseconds.*with Hive"):
        table.compact("major", "1:M::")
    assert all(file.exists() for file in files)


@pytest.mark.parametrize("raw", [True, False])
def test_columns_without_names_are_matched_by_position(tmp_path: Path, raw: bool) -> None:
    table = AcidTable(tmp_path, "id int, v string, added int")
    if raw:
        table.raw("o", [(1, "a")], columns="_col0 int, _col1 string")
    else:
        table.inserts("d1", [(1, P, 0, 1, "a")], columns="_col0 int, _col1 string")
    assert table.read().to_pylist() == [{"id": 1, "v": "a", "added": None}]
    assert table.read(columns=["v"], where="id = 1").to_pylist() == [{"v": "a"}]


def test_column_selection_order_and_case(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "a int, b string", partitioned_by="p int")
    table.inserts("p=3/d1", [(1, P, 0, 1, "x")])
    assert table.read().schema.names == ["a", "b", "p"]
    assert table.read(columns=["P", "B"]).to_pylist() == [{"p": 3, "b": "x"}]
    assert table.read(columns=["p"]).to_pylist() == [{"p": 3}]
    assert table.read(columns=["b"], where="a = 1 AND p = 3").to_pylist() == [{"b": "x"}]
    assert table.read(columns=["b"], where="p > 3").num_rows == 0
    with pytest.raises(UnknownColumn, match=r"colour.*a, b, p"):
        table.read(columns=["colour"])


def test_only_wanted_columns_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[list[str]] = []
    keep = OrcFile.stripe

    def watched(file: OrcFile, index: int, names: list[str], *args: Any) -> pa.RecordBatch:
        decoded.append(names)
        return keep(file, index, names, *args)

    monkeypatch.setattr(OrcFile, "stripe", watched)
    table = AcidTable(tmp_path, "a int, b string, c int").inserts("d1", [(1, P, 0, 1, "x", 2)])
    table.read(columns=["b"])
    assert decoded.pop() == ["operation", "row.b"]
    table.read(columns=["b"], where="a = 2")
    assert decoded == [["operation", "row.a"]], "no row left: no other column"
    decoded.clear()
    table.deletes("D2", [(1, P, 7)], current=2).read(columns=["c"], where="a = 1")
    assert decoded == [["operation", "originalTransaction", "bucket", "rowId", "row.a"], ["row.c"]]
    decoded.clear()
    table.inserts("d3-4v9", [(3, P, 0, 1, "x", 2)]).read("4:M::3", columns=["a"])
    assert ["operation", "currentTransaction", "row.a"] in decoded


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("3", "int", 3),
        ("03", "int", 3),
        (" 3 ", "int", 3),
        ("x", "int", None),
        ("3.5", "int", None),
        ("2147483648", "int", None),
        ("-7", "tinyint", -7),
        ("1.50", "decimal(5,2)", Decimal("1.50")),
        ("1.555", "decimal(5,2)", Decimal("1.56")),
        ("1000", "decimal(5,2)", None),
        ("2013-1-2", "date", datetime.date(2013, 1, 2)),
        ("2013-02-30", "date", None),
        ("true", "boolean", True),
        ("N", "boolean", False),
        ("maybe", "boolean", None),
        ("2013-01-02 03:04:05", "timestamp", datetime.datetime(2013, 1, 2, 3, 4, 5)),
        ("1.5", "double", 1.5),
        ("x", "double", None),
        ("a b", "string", "a b"),
        (None, "string", None),
        (None, "int", None),
        ("a", "char(3)", "a  "),
        ("abcd", "varchar(3)", "abc"),
        ("٣", "int", None),
    ],
)
def test_F4_typed_partition_values_are_those_of_sparks_try_cast(
    text: str | None, kind: str, expected: object
) -> None:
    assert partition_value(text, parse_type(kind)) == expected


def test_partition_columns_keep_their_type(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, partitioned_by="y int, d date")
    table.inserts("y=2013/d=2013-07-01/d1", [(1, P, 0, "x")])
    table.inserts("y=__HIVE_DEFAULT_PARTITION__/d=2013-07-02/d1", [(1, P, 0, "z")])
    found = table.read().sort_by("v")
    assert found.to_pylist() == [
        {"v": "x", "y": 2013, "d": datetime.date(2013, 7, 1)},
        {"v": "z", "y": None, "d": datetime.date(2013, 7, 2)},
    ]
    assert found.schema.types == [pa.string(), pa.int32(), pa.date32()]


def test_large_files_are_read_stripe_by_stripe_and_little_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "SMALL_BYTES", 0)
    monkeypatch.setattr(module, "SMALL_FILE", 0)
    rows = [(1, P, i, f"{i:06d}") for i in range(60_000)]
    table = AcidTable(tmp_path).inserts("d1", rows, stripe_size=1024)
    stripes = orc.ORCFile(str(table.file("d1"))).nstripes
    assert stripes > 4
    started: list[int] = []
    keep = OrcFile.stripe

    def watched(file: OrcFile, index: int, *args: Any) -> pa.RecordBatch:
        started.append(index)
        return keep(file, index, *args)

    monkeypatch.setattr(OrcFile, "stripe", watched)
    scan = arrow_scan(table.layout, write_ids("9:M::"), txns())
    batches = scan.batches(threads=1)
    first = next(batches)
    assert len(started) <= 3 < stripes, "one stripe, one in work, one waiting"
    batches.close()
    assert first.num_rows < len(rows) and len(started) < stripes
    values = scan.table(threads=2).column("v").to_pylist()
    assert values == [row[3] for row in rows], "in the order of the file"


def test_small_files_after_each_other_are_read_by_one_thread_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows = AcidTable(tmp_path), list[str]()
    for number in range(1, 8):
        values = [f"{number}-{i}" for i in range(3000 if number == 4 else 3)]
        table.inserts(f"d{number}", [(number, P, i, value) for i, value in enumerate(values)])
        rows += values
    sizes = [table.file(f"d{number}").stat().st_size for number in range(1, 8)]
    monkeypatch.setattr(module, "SMALL_FILE", sizes[3])
    pieces: list[int] = []
    keep = module.read_ahead

    def watched(work: Any, workers: int) -> Any:
        every = list(work)
        pieces.append(len(every))
        return keep(iter(every), workers)

    monkeypatch.setattr(module, "read_ahead", watched)
    scan = arrow_scan(table.layout, write_ids("9:M::"), txns())
    assert scan.table(threads=2).column("v").to_pylist() == rows
    monkeypatch.setattr(module, "SPLIT_BYTES", 1)
    assert scan.table(threads=2).column("v").to_pylist() == rows
    monkeypatch.setattr(module, "SMALL_FILE", 0)
    assert scan.table(threads=2).column("v").to_pylist() == rows
    assert pieces == [3, 7, 7]


@pytest.mark.parametrize("small", [0, 1 << 30])
def test_insert_only_orc_and_parquet_are_told_apart_by_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(decode, "SMALL_BYTES", small)
    table = AcidTable(tmp_path, "v string, n int", insert_only=True)
    table.raw("d1/000000_0", [("orc", 1)]).raw("d1/HIVE_UNION_SUBDIR_2/000000_0", [("union", 2)])
    path = table.file("d2/part-00000.parquet")
    path.parent.mkdir()
    parquet.write_table(pa.table({"N": pa.array([3], pa.int32()), "v": ["parquet"]}), path)
    assert table.values() == ["orc", "parquet", "union"]
    assert table.values("1:M::") == ["orc", "union"]
    assert table.values(where="n >= 2", columns=["v"]) == ["parquet", "union"]
    with pytest.raises(UnsupportedLayout, match="row_id"):
        table.ids()
    table.file("d3/000000_0").parent.mkdir()
    table.file("d3/000000_0").write_text("text,3\n")
    with pytest.raises(UnsupportedLayout, match=r"000000_0 is neither ORC nor Parquet.*read\(\)"):
        table.values()
    assert table.values("2:M::") == ["orc", "parquet", "union"]


keys = st.tuples(
    st.sampled_from([1, 2, 2**40]),
    st.sampled_from([0, P, P + 1, P + 65536]),
    st.integers(0, 12) | st.sampled_from([2**33, 2**62]),
)


@settings(max_examples=200)
@given(st.lists(keys, max_size=40), st.sets(keys, max_size=20), st.booleans(), st.booleans())
def test_P14_survivors_are_the_rows_whose_whole_key_is_not_deleted(
    rows: list[tuple[int, int, int]], gone: set[tuple[int, int, int]], few: bool, ascend: bool
) -> None:
    """Rows in any order: those of a file ascend, and then deleted keys are looked up among them."""

    def columns(found: list[tuple[int, int, int]]) -> list[np.ndarray]:
        return [np.array([row_id[i] for row_id in found], np.int64) for i in range(3)]

    if ascend:
        rows = sorted(set(rows))
    deleted = DeletedRows(DeleteKeys.of(*columns(sorted(gone))))
    with pytest.MonkeyPatch.context() as patched:
        if not few:
            patched.setattr(deletes_module, "_MOST_RUNS", 0)
        assert deleted.survivors(*columns(rows)).tolist() == [row not in gone for row in rows]


KINDS = {
    "i": "int", "l": "bigint", "d": "double", "n": "decimal(12,2)", "t": "timestamp",
    "y": "date", "s": "string", "c": "char(4)", "a": "array<int>", "o": "struct<x:int,y:string>",
}  # fmt: skip


@given(st.lists(st.sampled_from([*KINDS]), unique=True), st.integers(1, 9))
def test_the_shares_of_the_threads_are_all_columns_once(names: list[str], threads: int) -> None:
    types = {KeyPart.ROW_ID: pa.int64()}
    types |= {name: arrow_type(parse_type(KINDS[name])) for name in names}
    shares = decode.shares(types, threads)
    assert sorted(str(name) for share in shares for name in share) == sorted(map(str, types))
    assert 1 <= len(shares) <= threads and all(shares)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_P33_threads_that_share_the_columns_find_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(module, "SPLIT_BYTES", 1)
    table = AcidTable(tmp_path, "a int, b string, c double, o struct<x:int,y:string>")
    rows = [(1, P, at, at, f"b{at}", at / 3, {"x": at, "y": None}) for at in range(500)]
    gone = [(1, P, at) for at in range(0, 500, 7)]
    table.inserts("d1", rows).deletes("D2", gone, current=2)
    scan = arrow_scan(table.layout, write_ids("2:M::"), txns(), row_id=True, where="a > 20")
    found = scan.table(threads)
    kept = [row for row in rows if row[2] % 7 and row[3] > 20]
    assert found.column("a").to_pylist() == [row[3] for row in kept]
    assert found.column("b").to_pylist() == [row[4] for row in kept]
    assert found.column("c").to_pylist() == [row[5] for row in kept]
    assert found.column("o").to_pylist() == [row[6] for row in kept]
    assert [key["rowid"] for key in found.column("row__id").to_pylist()] == [r[2] for r in kept]


ROWS = [(1, P, 3), (1, P, 4), (1, P, 5)]


@pytest.mark.parametrize(
    ("keys", "deleted", "decoded"),
    [
        (ROWS, [(1, P, 4)], False),
        (ROWS, [(1, P, 2), (1, P, 6), (2, P, 4), (1, P + 1, 4)], False),  # hit no row
        ([*ROWS, (1, P, 9)], [(1, P, 4), (1, P, 7)], True),  # a gap: statistics don't tell
        ([*ROWS, (2, P, 0)], [(1, P, 4)], True),
        ([*ROWS, (1, P + 1, 6)], [(1, P + 1, 6)], True),
    ],
)
def test_P15_deleted_rows_are_counted_without_decoding_where_statistics_tell_all_keys(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: list[tuple[int, int, int]],
    deleted: list[tuple[int, int, int]],
    decoded: bool,
) -> None:
    table = AcidTable(tmp_path).inserts("b2", [(*key, "x") for key in keys])
    table.deletes("D3", deleted, current=3)
    stripes = []
    keep = OrcFile.stripe
    monkeypatch.setattr(
        OrcFile, "stripe", lambda file, *args: stripes.append(file.path) or keep(file, *args)
    )
    assert table.count() == len(set(keys) - set(deleted))
    assert bool(stripes) is decoded
    assert table.count() == table.read().num_rows


def test_P15_a_file_of_several_stripes_is_counted_by_its_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(1, P, n, "x" * 40) for n in range(5000)]
    table = AcidTable(tmp_path).inserts("b1", rows, stripe_size=1 << 14)
    table.deletes("D2", [(1, P, n) for n in range(0, 5100, 100)], current=2)
    assert open_orc(table.layout.files, str(table.file("b1"))).nstripes > 1
    monkeypatch.setattr(OrcFile, "stripe", lambda *_: pytest.fail("a stripe is decoded"))
    assert table.count() == 4950
