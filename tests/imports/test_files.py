"""`acid import` of folders of Parquet and CSV and of DuckDB, and what every import promises."""

from __future__ import annotations

import datetime as dt
import gzip
import sys
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from acid_platform import (
    BatchCommitted,
    ImportRefused,
    PublicationFailed,
    UnknownColumn,
    WriteConflict,
    WrongType,
)
from acid_platform.base.progress import shown
from acid_platform.engine.local import dml, event_files
from acid_platform.handles.folder_source import FolderSource
from acid_platform.handles.import_sources import DuckDBSource, ImportSource
from acid_platform.handles.imports import Imported, ImportRows, import_table
from acid_platform.layout.types import Column, parse_columns
from acid_platform.metastore.operations.tables import GetSinks
from acid_platform.orchestration.components import rows_of
from acid_platform.values import local_rows
from tests.imports.conftest import Place

ROWS = [
    {"id": 1, "amount": Decimal("12.50"), "at": dt.datetime(2024, 2, 29, 12, 30)},
    {"id": 2, "amount": None, "at": None},
]
SCHEMA = pa.schema(
    [("Id", pa.uint8()), ("amount", pa.decimal128(9, 2)), ("at", pa.timestamp("us", "UTC"))]
)


def folder(directory: Path) -> Path:
    """Two files, the second in a directory that says its month."""
    for month, row in enumerate(ROWS, 1):
        below = directory / "in" / f"month={month}"
        below.mkdir(parents=True)
        values = {**row, "Id": row["id"]}
        parquet.write_table(pa.Table.from_pylist([values], SCHEMA), below / "part.parquet")
    return directory / "in"


# --- Parquet --------------------------------------------------------------------------------------


def test_a_folder_of_parquet_makes_a_table_once(place: Place, tmp_path: Path) -> None:
    source = folder(tmp_path)
    done = place.run("parquet", source)
    assert done == {
        "table": place.table,
        "source": f"parquet {source}",
        "snapshot": None,
        "how": "all",
        "rows": 2,
    }
    assert place.columns() == "id smallint, amount decimal(9,2), at timestamp, month int"
    assert place.rows() == [{**row, "month": month} for month, row in enumerate(ROWS, 1)]
    error = place.refused("parquet", source)
    assert f"{place.table} has rows" in error and "--overwrite" in error
    (source / "month=1" / "part.parquet").unlink()
    assert place.run("parquet", source, "--overwrite")["rows"] == 1
    assert [row["month"] for row in place.rows()] == [2]
    lines = place.acid("streams", place.table).stdout
    assert "import parquet" in lines


@pytest.mark.more
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_text_of_a_directory_is_read_as_the_type_of_its_column(
    place: Place, tmp_path: Path, kind: str
) -> None:
    days = ["2024-02-28", "2024-02-29"]
    for text, day in zip(["01", "1"], days, strict=True):
        below = tmp_path / f"code={text}" / f"number={text}" / f"amount={text}.10" / f"day={day}"
        below.mkdir(parents=True)
        if kind == "csv":
            (below / "a.csv").write_text("id\n7\n")
        else:
            parquet.write_table(pa.table({"id": [7]}), below / "a.parquet")
    keys = ["code string", "number smallint", "amount decimal(9,2)", "day date"]
    place.warehouse.create_table(place.table, "id bigint", keys)
    place.run(kind, tmp_path)
    others = {"id": 7, "number": 1, "amount": Decimal("1.10")}
    expected = [
        {"code": text, "day": dt.date.fromisoformat(day), **others}
        for text, day in zip(["01", "1"], days, strict=True)
    ]
    assert sorted(place.rows(), key=lambda row: str(row["code"])) == expected
    place.table += "_wrong"
    place.warehouse.create_table(place.table, "id bigint, code int, number int", ["day date"])
    options = ("--columns", "id,code,number,day")
    place.run(kind, tmp_path, *options)
    (tmp_path / "code=1").rename(tmp_path / "code=one")
    error = place.refused(kind, tmp_path, *options, "--overwrite")
    assert "can't be read" in error and "'one'" in error


def test_a_new_table_keeps_the_zeros_of_directories(place: Place, tmp_path: Path) -> None:
    for text in ("00123", "1"):
        below = tmp_path / f"zip={text}" / "month=1" / "big=3000000000"
        below.mkdir(parents=True)
        parquet.write_table(pa.table({"id": [7]}), below / "a.parquet")
    place.run("parquet", tmp_path)
    assert place.columns() == "id bigint, zip string, month int, big string"
    assert sorted(row["zip"] for row in place.rows()) == ["00123", "1"]


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_the_keys_of_directories_alone_are_as_many_as_the_rows(
    place: Place, tmp_path: Path, kind: str
) -> None:
    below = tmp_path / "day=1"
    below.mkdir()
    parquet.write_table(pa.table({"id": [7, 8]}), below / "a.parquet")
    (below / "a.csv").write_text("id\n7\n8\n")
    (below / "a.json").write_text('{"id":7}\n{"id":8}\n')
    for other in below.glob("*"):
        if not other.name.endswith(kind):
            other.unlink()
    assert place.run(kind, tmp_path, "--columns", "day")["rows"] == 2
    assert place.rows() == [{"day": 1}] * 2


def test_an_import_that_is_refused_late_leaves_no_table(place: Place, tmp_path: Path) -> None:
    good, bad = "id\n1\n", "id\n1\nx\n"
    (tmp_path / "a.csv").write_text(bad)
    assert "x" in place.refused("csv", tmp_path, "--schema", "id int")
    assert place.table not in place.warehouse.tables()
    assert not Path(
        place.warehouse.path, "db.db", place.table[3:], "delta_0000001_0000001_0000"
    ).exists()
    (tmp_path / "a.csv").write_text(good)
    place.run("csv", tmp_path, "--schema", "id int")
    (tmp_path / "a.csv").write_text(bad)
    assert "x" in place.refused("csv", tmp_path, "--overwrite")
    assert place.rows() == [{"id": 1}]


def test_a_column_of_some_files_only_is_not_lost(place: Place, tmp_path: Path) -> None:
    for name, values in {"a": {"id": [1]}, "b": {"id": [2], "more": ["x"]}}.items():
        parquet.write_table(pa.table(values), tmp_path / f"{name}.parquet")
    place.run("parquet", tmp_path)
    assert place.rows() == [{"id": 1, "more": None}, {"id": 2, "more": "x"}]
    parquet.write_table(pa.table({"id": ["3"]}), tmp_path / "c.parquet")
    assert "id" in place.refused("parquet", tmp_path, "--overwrite")


def test_a_type_that_no_table_has_is_refused_by_its_column(place: Place, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "took": pa.array([1], pa.duration("s"))})
    parquet.write_table(rows, tmp_path / "a.parquet")
    error = place.refused("parquet", tmp_path)
    assert "column 'took': Arrow's duration[s]" in error and "--columns" in error
    assert place.table not in place.warehouse.tables()
    place.run("parquet", tmp_path, "--columns", "id")
    assert place.rows() == [{"id": 1}]
    assert "no column 'ids'" in place.refused("parquet", tmp_path, "--columns", "ids")


def test_doubles_and_decimals_are_compared_as_they_are_stored(place: Place, tmp_path: Path) -> None:
    amounts = pa.array([Decimal("0.10"), Decimal("0.20")])
    rows = pa.table({"x": [0.1, 1e-3], "y": amounts, "z": amounts})
    parquet.write_table(rows, tmp_path / "a.parquet")
    place.run("parquet", tmp_path, "--schema", "x float, y double, z float")
    [first, _] = sorted(place.rows(), key=lambda row: -float(row["x"]))
    assert (first["x"], first["y"]) == (pytest.approx(0.1), 0.1)


def test_no_files_and_wrong_words(place: Place, tmp_path: Path) -> None:
    assert "can't be read" in place.refused("parquet", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "has no file" in place.refused("parquet", tmp_path / "empty")
    for words, said in {
        ("parquet", "--source-table", "x"): "--source-table is no option of parquet",
        ("csv", "--snapshot", "1"): "--snapshot is no option of csv",
        ("duckdb",): "--source-table NAME",
    }.items():
        done = place.acid("import", words[0], "in", place.table, *words[1:])
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("kind", "module", "source"),
    [
        ("delta", "deltalake", "lake/t"),
        ("iceberg", "pyiceberg", "shop.t"),
        ("postgres", "adbc_driver_postgresql", "postgresql://host/db"),
    ],
)
def test_a_missing_package_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, module: str, source: str
) -> None:
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    options = ("--source-table", "t") if kind == "postgres" else ()
    error = place.refused(kind, source, *options)
    assert module.replace("_", "-") in error
    assert "pip install 'acid-platform[import]'" in error


# --- CSV ------------------------------------------------------------------------------------------

CSV = 'id,name,amount,day\n007,"",0.10,2024-02-29\n8,,1.5,\n'


def test_csv_is_read_as_the_types_of_the_table(place: Place, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    schema = "id string, name string, amount decimal(9,2), day date"
    assert place.run("csv", tmp_path, "--schema", schema)["rows"] == 2
    assert place.rows() == [
        {"id": "007", "name": "", "amount": Decimal("0.10"), "day": dt.date(2024, 2, 29)},
        {"id": "8", "name": None, "amount": Decimal("1.50"), "day": None},
    ]
    (tmp_path / "a.csv").write_text(CSV.replace("1.5", "1.555"))
    assert "data loss" in place.refused("csv", tmp_path, "--overwrite")
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").write_text("id,naem\n9,x\n")
    assert "naem" in place.refused("csv", tmp_path, "--overwrite")


def test_csv_with_another_delimiter_and_partitions(place: Place, tmp_path: Path) -> None:
    below = tmp_path / "day=2024-02-29"
    below.mkdir()
    (below / "a.csv").write_text('id;name\n1;"a;\nb"\n')
    place.warehouse.create_table(place.table, "id int, name string", ["day date"])
    place.run("csv", tmp_path, "--delimiter", ";")
    assert place.rows() == [{"id": 1, "name": "a;\nb", "day": dt.date(2024, 2, 29)}]


@pytest.mark.parametrize("text", ["2,b\n3,c\n", "Read me.\nThese are orders.\n", "ID,name\n1,a\n"])
def test_a_file_without_the_chosen_columns_is_refused(
    place: Place, tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.csv").write_text("id,name,more\n1,a,x\n")
    (tmp_path / "b.txt").write_text(text)
    options = ("--schema", "id int, name string", "--columns", "id,name")
    error = place.refused("csv", tmp_path, *options)
    lacking = "'id'" if text.startswith("ID") else "'id', 'name'"
    assert f"b.txt lacks {lacking} of the columns" in error
    (tmp_path / "b.txt").write_text("name,id\nb,2\n")
    place.run("csv", tmp_path, *options)
    assert place.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize(("kind", "text"), [("float", "1e39"), ("double", "-1e400")])
def test_a_number_that_is_too_large_is_no_infinity(
    place: Place, tmp_path: Path, kind: str, text: str
) -> None:
    for number in (text, '"' + text + '"'):
        (tmp_path / "a.csv").write_text(f"id,x\n1,0.5\n2,{number}\n")
        error = place.refused("csv", tmp_path, "--schema", f"id int, x {kind}")
        assert f"a.csv: line 3: column 'x': '{text}' is too large" in error
        with pytest.raises(WrongType, match=f"column 'x': '{text}' is too large"):
            rows_of(str(tmp_path / "a.csv"), parse_columns(f"id int, x {kind}"))
    (tmp_path / "a.csv").write_text('id,x\n1, 0.1 \n2,-inf\n3,Infinity\n4,\n5,"nan"\n6,1e-3\n')
    place.run("csv", tmp_path, "--schema", f"id int, x {kind}")
    found = [row["x"] for row in place.rows()]
    assert [str(x) for x in found[1:5]] == ["-inf", "inf", "None", "nan"]
    assert [found[0], found[5]] == pytest.approx([0.1, 0.001])
    (tmp_path / "x.csv").write_text("id,x\n1,one\n")
    assert "x.csv: line 2: column 'x'" in place.refused("csv", tmp_path, "--overwrite")


@pytest.mark.parametrize("stored", ["parquet", "csv"])
def test_a_directory_with_a_number_that_is_too_large(
    place: Place, tmp_path: Path, stored: str
) -> None:
    below = tmp_path / "x=1e400"
    below.mkdir()
    if stored == "csv":
        (below / "a.csv").write_text("id\n7\n")
    else:
        parquet.write_table(pa.table({"id": [7]}), below / "a.parquet")
    place.warehouse.create_table(place.table, "id bigint, x double")
    assert "is too large" in place.refused(stored, tmp_path)


def test_what_is_no_csv_is_refused(place: Place, tmp_path: Path) -> None:
    place.warehouse.create_table(place.table, "id int, name string")
    (tmp_path / "a.csv").write_text("id\tname\n1\ta\n")
    for delimiter in ("", "||", "é", '"', "\n"):
        assert "is no delimiter" in place.refused("csv", tmp_path, "--delimiter", delimiter)
    place.run("csv", tmp_path, "--delimiter", r"\t")
    assert place.rows() == [{"id": 1, "name": "a"}]
    for data in ("id,straße\n1,a\n".encode("latin-1"), gzip.compress(b"id\n1\n")):
        (tmp_path / "a.csv").write_bytes(data)
        error = place.refused("csv", tmp_path, "--overwrite")
        assert "a.csv" in error and "--encoding" in error
    for uri in ("http://host/a.csv", "ftp://host/a.csv"):
        for kind in ("csv", "parquet"):
            error = place.refused(kind, uri)
            assert f"{uri} is in no file system that can be opened here" in error


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_csv_in_another_encoding(place: Place, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes("id,name\n1,Zürich\n".encode(encoding))
    place.warehouse.create_table(place.table, "id int, name string")
    assert "nothing was imported" in place.refused("csv", tmp_path)
    assert "is no encoding" in place.refused("csv", tmp_path, "--encoding", "latin1000")
    place.run("csv", tmp_path, "--encoding", encoding)
    assert place.rows() == [{"id": 1, "name": "Zürich"}]


# --- DuckDB ---------------------------------------------------------------------------------------


@pytest.mark.more
def test_a_table_of_duckdb(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(str(file)) as other:
        other.execute(
            "CREATE TABLE orders AS SELECT i::INT AS id, (i / 8)::DECIMAL(18, 3) AS amount,"
            " DATE '2024-01-01' + i::INT AS day, 'a'::ENUM('a', 'b') AS kind, [i] AS list,"
            " TIME '12:00' AS time, '1'::BIT AS bit FROM range(3000) t(i)"
        )
    table = ("--source-table", "main.orders")
    assert "column 'bit' is BIT" in place.refused("duckdb", file, *table)
    error = place.refused("duckdb", file, *table, "--columns", "id,time")
    assert "column 'time': Arrow's time64[us]" in error
    columns = ("--columns", "id,amount,day,kind,list")
    assert place.run("duckdb", file, *table, *columns)["rows"] == 3000
    assert place.columns() == (
        "id int, amount decimal(18,3), day date, kind string, list array<bigint>"
    )
    with duckdb.connect(str(file), read_only=True) as other:
        right = other.sql("SELECT count(*), sum(amount), max(day), sum(id) FROM orders").fetchall()
    query = f"SELECT count(*), sum(amount), max(day), sum(id) FROM {place.table}"
    assert place.warehouse.sql(query).collect() == right
    assert "nope" in place.refused("duckdb", file, "--source-table", "nope")
    assert "No such file" in place.refused("duckdb", tmp_path / "no.duckdb", *table)


def test_a_failed_import_leaves_no_reader_of_the_file(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "shop.duckdb")
    with duckdb.connect(file) as other:
        other.execute("CREATE TABLE t AS SELECT 3000000000 + i AS v FROM range(300000) r(i)")
    table = place.warehouse.create_table(place.table, "v int")
    readers: list[pa.RecordBatchReader] = []
    rows = DuckDBSource.rows

    def kept(source: DuckDBSource, columns: Sequence[Column]) -> pa.RecordBatchReader:
        readers.append(rows(source, columns))
        return readers[-1]

    monkeypatch.setattr(DuckDBSource, "rows", kept)
    for wrong in (WrongType, UnknownColumn):
        with pytest.raises(wrong) as raised, DuckDBSource(file, "t") as source:
            imported(place, source)
        with pytest.raises(Exception, match=r"closed|released"):
            readers[-1].read_next_batch()
        assert raised.value.__traceback__  # whose frames hold what was read
        if wrong is WrongType:
            table.rename_column("v", "w")
    with DuckDBSource(file, "t", ["v"]) as source:
        assert source.rows_known == 300000


# --- every import ---------------------------------------------------------------------------------


class Versions(ImportSource):
    """A source with a snapshot for each of its batches, the last of which it imports."""

    name = "versions in memory"

    def __init__(self, *batches: Sequence[int], only_added: bool = True) -> None:
        self.held, self.only_added = batches, only_added
        self.snapshot = str(len(batches))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("id", pa.int64()), ("month", pa.int32())])

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        return self.added("0")

    def added(self, since: str) -> pa.RecordBatchReader:
        if not self.only_added and since != "0":
            raise self._not_only_added(since, "its version is DELETE")

        def batches() -> Iterator[pa.RecordBatch]:
            for ids in self.held[int(since) :]:
                values = {"id": ids, "month": [number % 3 for number in ids]}
                yield pa.RecordBatch.from_pydict(values, schema=self.schema)

        return pa.RecordBatchReader.from_batches(self.schema, batches())


def imported(place: Place, source: ImportSource, **options: Any) -> tuple[str, int]:
    done = import_table(place.warehouse, place.table, source, **options)
    return done.how, done.rows


def ids(place: Place) -> list[int]:
    return sorted(row["id"] for row in place.rows())


def test_P50_a_snapshot_is_imported_once(place: Place) -> None:
    assert imported(place, Versions([1, 2])) == ("all", 2)
    assert imported(place, Versions([1, 2])) == ("nothing new", 0)
    place.warehouse.table(place.table).delete("id = 1")
    assert imported(place, Versions([1, 2], [3], [4, 5])) == ("added", 3)
    assert ids(place) == [2, 3, 4, 5]
    assert imported(place, Versions([1, 2], [3], [4, 5])) == ("nothing new", 0)
    [row] = place.warehouse.metastore.call(GetSinks(place.table))
    assert (row.sink.sink, row.sink.query) == ("import versions in memory", "3")
    changed = Versions([7], [8], [9], [10], only_added=False)
    with pytest.raises(ImportRefused, match=r"its version is DELETE.*--overwrite"):
        imported(place, changed)
    assert ids(place) == [2, 3, 4, 5]
    assert imported(place, changed, overwrite=True) == ("all", 4)
    assert imported(place, changed) == ("nothing new", 0)
    assert ids(place) == [7, 8, 9, 10]


def test_an_emptied_table_gets_all_rows_again(place: Place) -> None:
    imported(place, Versions([1]))
    place.warehouse.table(place.table).truncate()
    assert imported(place, Versions([1])) == ("all", 1)


def test_P50_rows_of_somebody_else_are_not_replaced_unasked(place: Place) -> None:
    place.warehouse.create_table(place.table, "id bigint, month int").insert([{"id": 9}])
    with pytest.raises(ImportRefused, match="has rows, and none of an import from there"):
        imported(place, Versions([1]))
    assert ids(place) == [9]
    assert imported(place, Versions([1]), overwrite=True) == ("all", 1)
    assert ids(place) == [1]


@pytest.mark.parametrize("before", [0, 1])
def test_P50_two_imports_at_once_bring_the_rows_once(place: Place, before: int) -> None:
    versions = [[1], [2]]
    place.warehouse.create_table(place.table, "id bigint, month int")
    if before:
        imported(place, Versions(*versions[:1]))
    first, second = place.warehouse.transaction(), place.warehouse.transaction()
    statement = ImportRows(place.table, Versions(*versions))
    first.run(statement)
    with pytest.raises((BatchCommitted, WriteConflict)):
        if before:  # two inserts may be written at once
            second.run(statement)
            first.commit()
            second.commit()
        else:
            first.commit()
            second.run(statement)
            second.commit()
    assert ids(place) == [1, 2]


def test_P50_a_stored_value_that_differs_is_found_before_the_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(place, Versions([1]))
    right = dml._stored

    def damaging(*given: Any) -> Iterator[pa.Table]:
        for stored in right(*given):
            yield stored.set_column(0, "id", pa.chunked_array([[7] * len(stored)]))

    monkeypatch.setattr(dml, "_stored", damaging)
    for options in ({}, {"overwrite": True}):
        with pytest.raises(PublicationFailed, match=r"sum of id: \d+ in the source, \d+ stored"):
            imported(place, Versions([1], [2]), **options)
        assert ids(place) == [1]
    monkeypatch.undo()
    assert imported(place, Versions([1], [2])) == ("added", 1)


@pytest.mark.parametrize("most", [1, 1 << 27])
def test_a_partitioned_table_gets_its_rows_in_parts(
    place: Place, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(event_files, "_SORTED_BYTES", most)
    place.warehouse.create_table(place.table, "id bigint", ["month int"])
    batches = [range(start, start + 100) for start in range(0, 1000, 100)]
    told: list[tuple[str, int, int | None]] = []
    with shown(lambda *what: told.append(what)):
        imported(place, Versions(*batches))
    told = [what for what in told if what[0] != "MB read"]
    assert ids(place) == list(range(1000))
    assert place.warehouse.table(place.table).partitions() == ["month=0", "month=1", "month=2"]
    assert told[9] == ("importing", 1000, None) and told[-1] == ("comparing", 1000, 1000)
    # A partition without rows in the source is emptied, too.
    place.warehouse.table(place.table).insert([{"id": 5, "month": 9}])
    imported(place, Versions([0, 3]), overwrite=True)
    assert ids(place) == [0, 3]


def test_a_large_table_has_several_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "_FILE_BYTES", 1)
    monkeypatch.setattr(local_rows, "_PART_BYTES", 1)  # else small batches are put together
    imported(place, Versions([1, 2], [3], [4]))
    assert ids(place) == [1, 2, 3, 4]
    [row] = place.warehouse.table(place.table).history()
    made = Path(place.warehouse.table(place.table).location) / row["directory"]
    assert (row["rows"], len(list(made.glob("bucket_*")))) == (4, 4)


def test_a_stream_is_divided_into_the_buckets_of_a_clustered_table(place: Place) -> None:
    clustered = ("id bigint, month int", (), (["id"], 2))
    table = place.warehouse.create_table(place.table, *clustered)
    imported(place, Versions([1, 2], [3, 4]))
    assert ids(place) == [1, 2, 3, 4]
    assert len(list(Path(table.location).rglob("bucket_*"))) == 2


def test_an_import_may_be_part_of_a_transaction(place: Place, tmp_path: Path) -> None:
    place.warehouse.create_table(
        place.table, "id smallint, amount decimal(9,2), at timestamp, month int"
    )
    source = FolderSource(str(folder(tmp_path)))
    with place.warehouse.transaction() as txn:
        done: Imported = txn.run(ImportRows(place.table, source))
        txn.abort()
    assert done.rows == 2 and place.rows() == []
    with place.warehouse.transaction() as txn:
        txn.run(ImportRows(place.table, source))
        assert txn.row_counts(place.table) == {"overwritten": 2}
    assert len(place.rows()) == 2
    said = f"{place.table} has the 2 rows of parquet {tmp_path}/in, and no others"
    assert str(done) == f"{said}; counts and sums agree"


@pytest.mark.more
def test_a_source_is_not_read_before_its_rows_are_asked_for(tmp_path: Path) -> None:
    """64 MB in 16 files: a slow reader holds a few batches of them."""
    for number in range(16):
        rows = pa.table({"id": np.arange(500_000) * 7919 + number})
        parquet.write_table(rows, tmp_path / f"{number:02d}.parquet")
    before = pa.total_allocated_bytes()
    reader = FolderSource(str(tmp_path)).rows(())
    rows_read = reader.read_next_batch().num_rows
    time.sleep(0.5)
    assert pa.total_allocated_bytes() - before < 16 << 20
    assert rows_read + sum(batch.num_rows for batch in reader) == 8_000_000
