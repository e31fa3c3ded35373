"""`acid fsck` finds each planted damage, and calls a healthy warehouse healthy."""

from __future__ import annotations

import itertools
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet
from pyspark.sql import SparkSession

from acid_platform import CorruptFile, Warehouse
from acid_platform.base.location import Location
from acid_platform.layout.file_entries import Footer, RecordedFiles
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import MetastoreOperation
from acid_platform.metastore.operations.tables import GetDoubtful, RegisterPartitions
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import WriteReport
from acid_platform.metastore.server.store import write_copy
from acid_platform.services import fsck
from acid_platform.services.fsck import Check, Severity
from acid_platform.tables.adoption import restore
from acid_platform.transactions import RowOperation
from tests.acid_files import contents_of
from tests.cli.small import BUCKET, Event, Small, write_delta, write_events
from tests.conftest import temporary_warehouse
from tests.declared import declare
from tests.hive_tables import tables as hive_tables
from tests.metastore.processes import end

ERROR, WARNING, NOTE = Severity
D1, D2 = "delta_0000001_0000001_0000", "delta_0000002_0000002_0000"
D3, D9 = "delta_0000003_0000003_0000", "delta_0000009_0000009_0000"
COLUMNS = [("id", "int"), ("v", "string")]
_numbers = itertools.count()

Plant = Callable[[Small], object]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """One metastore for all damages; each has a table of its own."""
    where = Location.of(tmp_path_factory.mktemp("fsck") / "wh")
    with Metastore.connect(where.metastore) as metastore:
        metastore.create_database("db")
        yield Small(Path(where.warehouse), metastore)
        metastore.stop()


def new_table(place: Small, partitioned: bool = False, buckets: int = 0) -> Small:
    """Two committed deltas of two rows."""
    made = replace(place, name=f"db.t{next(_numbers)}")
    declare(
        made.metastore,
        made.name,
        str(made.table),
        COLUMNS,
        [("p", "int")] if partitioned else [],
        properties={"transactional": "true"},
        bucket_columns=("id",) if buckets else (),
        bucket_count=buckets,
    )
    made.table.mkdir(parents=True)
    partition = "p=1" if partitioned else None
    if partitioned:
        made.metastore.call(RegisterPartitions(made.name, ("p=1",)))
    made.insert((1, "A"), (2, "B"), partition=partition)
    made.insert((3, "C"), (4, "D"), partition=partition)
    return made


def rows(w: int, *row_ids: int, bucket: int = BUCKET, operation: int = 0) -> list[Event]:
    return [(operation, w, bucket, row_id, w, (row_id, "x")) for row_id in row_ids]


def torn(small: Small) -> None:
    file = small.table / D1 / "bucket_00000"
    file.write_bytes(file.read_bytes()[:-9])


def plain_orc(file: Path) -> None:
    orc.write_table(pa.table({"id": [1, 2], "v": ["A", "B"]}), str(file))


def aborted(small: Small) -> None:
    with small.metastore.begin() as txn:
        txn.lock(small.name, "SHARED_WRITE")
        write_delta(small.table / "delta_0000003_0000003_0000", 3, ((9, "x"),))
        txn.abort()


def left_behind(small: Small) -> None:
    with small.metastore.begin() as txn:
        txn.abort()
    (small.table / f"_tmp_{txn.id:07d}_ab12").mkdir()


def wide_index(small: Small) -> None:
    """Two stripes, the key of the first one wrong."""
    big = [(0, 3, BUCKET, number, 3, (number, "x" * 400)) for number in range(4000)]

    def write(w: int) -> list[Event]:
        return [(0, w, *event[2:4], w, event[5]) for event in big]

    small.write(write, index=[(1, 1, 1)])


def commit(small: Small, *directories: str, rows: int | None = None) -> None:
    """Commits these directories as write id 3; `rows` is the reported count of the first."""
    with small.metastore.begin() as txn:
        txn.lock(small.name, "SHARED_WRITE", operation=RowOperation.UPDATE)
        reports = []
        for directory in directories:
            (small.table / directory / "_orc_acid_version").write_bytes(b"2")
            found = contents_of(small.table / directory)
            if rows is not None:
                found = RecordedFiles((replace(found.files[0], footer=Footer(rows, True)),))
            reports.append(WriteReport(small.name, None, RowOperation.INSERT, directory, found))
        txn.commit(CommitContents(tuple(reports)))


def without_acid_columns(small: Small) -> None:
    (small.table / D3).mkdir()
    plain_orc(small.table / D3 / "bucket_00000")
    commit(small, D3)


def twice(small: Small) -> None:
    again = "delta_0000003_0000003_0007"
    for directory in (D3, again):
        write_events(small.table / directory, rows(3, 0, 1))
    commit(small, D3, again)


def too_many_reported(small: Small) -> None:
    write_events(small.table / D3, rows(3, 0))
    commit(small, D3, rows=2)


def removed(path: str) -> Plant:
    return lambda small: shutil.rmtree(small.table / path)


def written(path: str, content: bytes) -> Plant:
    def plant(small: Small) -> None:
        file = small.table / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    return plant


def copied(source: str, target: str) -> Plant:
    return lambda small: shutil.copytree(small.table / source, small.table / target)


def copied_bucket(target: str) -> Plant:
    return lambda small: shutil.copy(small.table / D1 / "bucket_00000", small.table / D1 / target)


def index_of_trino(small: Small) -> None:
    """It has its own write id and the count of rows instead of the keys of deleted rows."""

    def write(w: int) -> list[Event]:
        return [(2, 1, BUCKET, number, w, None) for number in range(2)]

    small.write(write, deletes=True, index=[(3, BUCKET, 1)])


def events(
    make: Callable[[int], list[Event]], deletes: bool = False, file: str = "bucket_00000"
) -> Plant:
    return lambda small: small.write(make, deletes, file)


# fmt: off
DAMAGES: list[tuple[str, Plant, Severity, Check, str, str]] = [
    ("a malformed name", lambda s: (s.table / "delta_x_1").mkdir(),
     ERROR, Check.NAME, "delta_x_1", "starts like an ACID directory"),
    ("a file named like a directory", written(D9, b"x"),
     ERROR, Check.NAME, D9, "a file with the name of an ACID directory"),
    ("a stray file", written("notes.txt", b"x"),
     ERROR, Check.NAME, "notes.txt", "no original file"),
    ("a stray file in a delta", written(f"{D1}/notes.txt", b"x"),
     ERROR, Check.NAME, D1, "neither a bucket file"),
    ("two attempts of a bucket", copied_bucket("bucket_00000_1"),
     ERROR, Check.NAME, D1, "two attempts of one bucket"),
    ("a nested directory", copied(D1, f"{D2}/{D1}"),
     ERROR, Check.NAME, f"{D2}/{D1}", "inside another one"),
    ("an empty bucket file", written(f"{D1}/bucket_00001", b""),
     WARNING, Check.CONTENT, f"{D1}/bucket_00001", "the file is empty"),
    ("a torn file", torn, ERROR, Check.CONTENT, f"{D1}/bucket_00000", "bytes, and write id 1"),
    ("another ACID version, first directory", written(f"{D1}/_orc_acid_version", b"1"),
     ERROR, Check.MARKER, "", "ACID version 1 is not supported"),
    ("another ACID version, later directory", written(f"{D2}/_orc_acid_version", b"1"),
     ERROR, Check.MARKER, f"{D2}/_orc_acid_version", "holds '1'"),
    ("no version file", lambda s: (s.table / D1 / "_orc_acid_version").unlink(),
     WARNING, Check.MARKER, D1, "no _orc_acid_version"),
    ("an unreadable _metadata_acid", written(f"{D1}/_metadata_acid", b"{"),
     ERROR, Check.MARKER, "", "is not a _metadata_acid file"),
    ("a file without ACID columns", without_acid_columns,
     ERROR, Check.SCHEMA, f"{D3}/bucket_00000", "does not have the six ACID columns"),
    ("an update event of ACID version 1", events(lambda w: rows(w, 0, operation=1)),
     ERROR, Check.OPERATION, f"{D3}/bucket_00000", "operation 1"),
    ("rows out of order", events(lambda w: rows(w, 0, 2, 1)),
     ERROR, Check.ORDER, f"{D3}/bucket_00000", "Hive misses deletes there"),
    ("a row id twice in a file", events(lambda w: rows(w, 0, 1, 1)),
     ERROR, Check.ORDER, f"{D3}/bucket_00000", "Hive misses deletes there"),
    ("a row id in two files", twice,
     ERROR, Check.UNIQUENESS, "delta_0000003_0000003_0007/bucket_00000", "2 rows have the keys"),
    ("a wrong key index", wide_index,
     ERROR, Check.KEY_INDEX, f"{D3}/bucket_00000", "(1, 1, 1), but the stripe"),
    ("Trino's key index of deletes", index_of_trino,
     WARNING, Check.KEY_INDEX, "delete_delta_0000003_0000003_0000/bucket_00000", "as Trino writes"),
    ("a key index that is no list", lambda s: s.write(lambda w: rows(w, 0), index=[]),
     WARNING, Check.KEY_INDEX, f"{D3}/bucket_00000", "no hive.acid.key.index"),
    ("a bucket other than the name's", events(lambda w: rows(w, 0, bucket=BUCKET + (1 << 16))),
     ERROR, Check.BUCKET, f"{D3}/bucket_00000", "rows say bucket 1"),
    ("an unknown codec of the bucket", events(lambda w: rows(w, 0, bucket=2 << 29)),
     ERROR, Check.BUCKET, f"{D3}/bucket_00000", "codec version 2"),
    ("write ids outside of the name", events(lambda w: rows(w + 40, 0)),
     ERROR, Check.WRITE_IDS, f"{D3}/bucket_00000", "outside of the 3 to 3"),
    ("a delete of no row", events(lambda w: [(2, 1, BUCKET, 77, w, None)], deletes=True),
     NOTE, Check.DELETES, "", f"1 delete events match no row, such as (1, {BUCKET}, 77)"),
    ("a committed directory is gone", removed(D1), ERROR, Check.MISSING, D1, "committed (2 rows"),
    ("the table's directory is gone", removed(""), ERROR, Check.MISSING, "", "is gone"),
    ("a directory nobody reported", copied(D1, "delta_0000001_0000001_0007"),
     ERROR, Check.UNKNOWN, "delta_0000001_0000001_0007", "reported other directories only"),
    ("an original file nobody adopted", lambda s: plain_orc(s.table / "000000_0"),
     ERROR, Check.UNKNOWN, "000000_0", "an original file"),
    ("a write id never given out", lambda s: write_delta(s.table / D9, 9, ((9, "x"),)),
     ERROR, Check.NEVER_GIVEN, D9, "no transaction got write id 9 yet"),
    ("a compaction never begun",
     lambda s: write_delta(s.table / "base_0000001_v0099999", 1, ((9, "x"),)),
     ERROR, Check.NEVER_GIVEN, "base_0000001_v0099999", "no transaction 99999 yet"),
    ("an aborted write", aborted, NOTE, Check.ABORTED, D3, "write id 3 aborted"),
    ("what an aborted writer left", left_behind, WARNING, Check.TEMPORARY, "_tmp_", "was aborted"),
    ("what a writer of Hive left", lambda s: (s.table / "_tmp_ab12").mkdir(),
     NOTE, Check.TEMPORARY, "_tmp_ab12", "which transaction owns it"),
    ("fewer rows than reported", too_many_reported, ERROR, Check.COUNTS, D3, "1 rows instead of 2"),
    ("a committed file is gone", lambda s: (s.table / D1 / "bucket_00000").unlink(),
     ERROR, Check.MISSING, f"{D1}/bucket_00000", "write id 1 committed it"),
    ("a file that no commit wrote", copied_bucket("bucket_00007"),
     WARNING, Check.UNKNOWN, f"{D1}/bucket_00007", "nobody reads it here"),
]
PARTITION_DAMAGES: list[tuple[str, Plant, Severity, Check, str, str]] = [
    ("a partition nobody registered", copied("p=1", "p=2"),
     WARNING, Check.PARTITION, "p=2", "the partition is not registered"),
    ("a delta beside the partitions", copied(f"p=1/{D1}", D1),
     WARNING, Check.PARTITION, D1, "beside the partitions"),
    ("a partition of another column", copied("p=1", "q=1"),
     WARNING, Check.PARTITION, "q=1", "no partition of p"),
    ("a registered partition is gone", removed("p=1"),
     ERROR, Check.MISSING, f"p=1/{D1}", "committed (2 rows"),
]
# fmt: on


def assert_found(small: Small, severity: Severity, check: Check, thing: str, text: str) -> None:
    """Runs the command as a person types it."""
    done = small.acid("fsck", small.name, "--json")
    assert done.exit_code == (0 if severity is NOTE else 1)
    findings = json.loads(done.stdout)["findings"]
    found = [
        finding
        for finding in findings
        if (finding["severity"], finding["check"]) == (severity.value, check.value)
        and finding["thing"].startswith(f"{small.name}/{thing}".rstrip("/"))
    ]
    assert found, findings
    assert text in found[0]["text"]
    assert found[0]["next_step"]


@pytest.mark.parametrize(
    ("partitioned", "damage"),
    [
        *(pytest.param(False, damage, id=damage[0]) for damage in DAMAGES),
        *(pytest.param(True, damage, id=damage[0]) for damage in PARTITION_DAMAGES),
    ],
)
def test_a_planted_damage_is_found(
    place: Small, partitioned: bool, damage: tuple[str, Plant, Severity, Check, str, str]
) -> None:
    _name, plant, severity, check, thing, text = damage
    small = new_table(place, partitioned)
    assert fsck.examine(small.metastore, [small.name]).findings == ()
    plant(small)
    assert_found(small, severity, check, thing, text)


def test_a_file_beyond_the_buckets_of_the_table_is_found(place: Small) -> None:
    small = new_table(place, buckets=1)
    small.write(lambda w: rows(w, 0, bucket=BUCKET + (3 << 16)), file="bucket_00003")
    assert_found(small, ERROR, Check.BUCKET, "delta_0000003", "the table has 1 buckets")


def test_P15_gaps_between_row_ids_are_no_damage(place: Small) -> None:
    small = new_table(place)
    small.write(lambda w: rows(w, 0, 5, 1 << 34))
    small.write(lambda w: [(2, 1, BUCKET, 0, w, None)], deletes=True)
    report = fsck.examine(small.metastore, [small.name])
    assert (report.findings, report.directories, report.files, report.rows) == ((), 4, 4, 8)


def test_a_writer_at_work_is_no_damage(place: Small) -> None:
    small = new_table(place)
    with small.metastore.begin() as txn:
        txn.lock(small.name, "SHARED_WRITE")
        write_delta(small.table / "delta_0000003_0000003_0000", 3, ((9, "x"),))
        (small.table / f"_tmp_{txn.id:07d}_ab12").mkdir()
        report = fsck.examine(small.metastore, [small.name])
        assert [(finding.severity, finding.check) for finding in report.findings] == [
            (NOTE, Check.TEMPORARY)
        ]
        txn.abort()


def test_repair_does_what_is_provably_safe_and_nothing_else(place: Small) -> None:
    small = new_table(place)
    (small.table / D1 / "_orc_acid_version").unlink()
    left_behind(small)
    (small.table / "_tmp_ab12").mkdir()
    shutil.copytree(small.table / D1, small.table / "delta_0000001_0000001_0007")
    write_delta(small.table / D9, 9, ((9, "x"),))
    before = {path for path in small.table.rglob("*") if "_tmp_0" not in path.name}
    report = fsck.examine(small.metastore, [small.name], repair=True)
    assert {finding.check for finding in report.findings if finding.repaired} == {
        Check.MARKER,
        Check.TEMPORARY,
    }
    assert not report.healthy
    assert {*small.table.rglob("*")} == before | {small.table / D1 / "_orc_acid_version"}
    again = fsck.examine(small.metastore, [small.name], repair=True)
    assert [finding for finding in again.findings if finding.repair] == []


def test_without_rows_no_key_is_read(place: Small) -> None:
    small = new_table(place)
    small.write(lambda w: rows(w, 0, 2, 1))
    shutil.rmtree(small.table / D1)
    report = fsck.examine(small.metastore, [small.name], rows=False)
    assert [finding.check for finding in report.findings] == [Check.MISSING]
    assert report.rows == 0


def test_a_warehouse_without_doubts_is_asked_for_them_once(
    place: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, call = [new_table(place).name for _ in range(3)], Metastore.call
    asked: list[type[MetastoreOperation[Any]]] = []

    def counted(metastore: Metastore, operation: MetastoreOperation[Any]) -> Any:
        asked.append(type(operation))
        return call(metastore, operation)

    monkeypatch.setattr(Metastore, "call", counted)
    assert fsck.examine(place.metastore, names).tables == 3
    assert asked.count(GetDoubtful) == 1  # each answer is computed from all tables


@pytest.mark.more
def test_P24_write_ids_in_doubt_are_named_with_their_directories(small: Small) -> None:
    write_copy(LocalLog(small.path / "_metastore"), small.path / "copy")
    small.insert((3, "C"))
    with small.metastore.begin() as txn:  # its write id leaves no file
        txn.lock("db.t", "SHARED_WRITE")
        txn.commit()
    small.insert((4, "D"))
    end(small.metastore)
    restore(Location.of(small.path), str(small.path / "copy"), replace=True)
    done = small.acid("fsck", "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert [
        (finding["check"], finding["text"].partition(" is")[0]) for finding in report["findings"]
    ] == [
        ("in doubt", "write id 2"),
        ("in doubt", "write id 4"),
        ("in doubt", "write ids 3 are in doubt since a restore, and no directory"),
    ]
    assert D2 in report["findings"][0]["text"]
    assert small.acid("fsck", "db.t", "--repair").exit_code == 1
    assert small.metastore.call(GetDoubtful()) == {"db.t": [(2, 2), (4, 4)]}
    assert (
        small.acid("metastore", "resolve", "db.t", "--committed", "2", "--aborted", "4").exit_code
        == 0
    )
    [gone] = json.loads(small.acid("fsck", "--json").stdout)["findings"]
    assert (gone["check"], gone["severity"]) == ("aborted", "note")


@pytest.mark.more
def test_fsck_prints_findings_with_next_steps_and_fails_for_damage(small: Small) -> None:
    healthy = small.acid("fsck")
    assert (healthy.exit_code, healthy.stdout) == (
        0,
        "healthy: 0 errors, 0 warnings, 0 notes in 1 table: 1 directory, 1 file, 2 row keys\n",
    )
    shutil.rmtree(small.table / D1)
    (small.path / "db.db" / "left").mkdir()
    done = small.acid("fsck")
    assert done.exit_code == 1
    assert f"db.t/{D1}" in done.stdout and "restore it from a copy" in done.stdout
    assert "no table is registered there" in done.stdout
    assert done.stderr.startswith("error: 1 error, 1 warning, 0 notes in 1 table")


# --- healthy warehouses ---------------------------------------------------------------------


def assert_healthy(warehouse: Warehouse) -> fsck.FsckReport:
    report = fsck.examine(warehouse.metastore, warehouse=warehouse.path)
    assert report.healthy, [str(finding) for finding in report.findings]
    assert {finding.severity for finding in report.findings} <= {NOTE}
    return report


@pytest.mark.parametrize("keyed", [True, False])
def test_P64_a_flipped_bit_in_a_page_of_parquet_is_found(tmp_path: Path, keyed: bool) -> None:
    """In a column that is no key: the read by Arrow and fsck notice it by the page's checksum."""
    kind = {} if keyed else {"transactional_properties": "insert_only"}
    with temporary_warehouse(tmp_path / "wh") as warehouse:
        table = warehouse.create_table(
            "db.t", "id int, v double", properties={"acid.format": "parquet", **kind}
        )
        table.insert([{"id": number, "v": 2.0**-number} for number in range(3)])
        assert_healthy(warehouse)
        (file,) = (tmp_path / "wh").rglob("delta_*/[!_]*")
        content = bytearray(file.read_bytes())
        column = parquet.ParquetFile(file).metadata.row_group(0).column(1)
        first = column.dictionary_page_offset or column.data_page_offset
        content[first + column.total_compressed_size - 1] ^= 1
        file.write_bytes(content)
        report = fsck.examine(warehouse.metastore, warehouse=warehouse.path)
        ((where, what),) = {(each.thing, each.text) for each in report.findings}
        assert where.endswith(file.name) and "checksum" in what
        assert fsck.examine(warehouse.metastore, rows=False).healthy
        with pytest.raises(CorruptFile, match="checksum"):
            table.to_arrow()


@pytest.mark.more
def test_P24_adopted_tables_of_hive_are_healthy(tmp_path: Path) -> None:
    skipped = {"hive_alltypesorc_original"}  # its one file has 12 columns without names
    with temporary_warehouse(tmp_path / "wh") as warehouse, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for source in hive_tables():
            copy = shutil.copytree(
                source, tmp_path / source.name, ignore=shutil.ignore_patterns("expected.json")
            )
            keys = ["p string"] if any(copy.glob("p=*")) else []
            schema = None
            if source.name in skipped or "originals" in source.name:
                schema = "c0 int"
            snapshot = json.loads((source / "expected.json").read_text())["snapshots"]["all"]
            gone = ",".join(map(str, snapshot["invalid_write_ids"]))
            warehouse.adopt_table(
                f"db.{source.name}",
                copy,
                schema,
                keys,
                snapshot=f"t:{snapshot['high_watermark']}:9223372036854775807::{gone}",
            )
        report = assert_healthy(warehouse)
        assert report.tables == len(hive_tables())


@pytest.mark.slow
@pytest.mark.spark
def test_what_the_platform_writes_is_healthy(tmp_path: Path, spark: SparkSession) -> None:
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        some = [{"id": number, "v": f"v{number}", "p": number % 2} for number in range(40)]
        table = warehouse.create_table("db.t", "id int, v string", ["p int"], (["id"], 2))
        table.insert(some)
        table.update({"v": "upper(v)"}, where="id < 9")
        table.delete("id % 7 = 0")
        table.compact("minor", "p=0")
        table.overwrite([{"id": 1, "v": "x", "p": 1}], "p=1")
        table.compact("major")
        table.drop_partition("p=1")
        plain = warehouse.create_table(
            "db.plain",
            "id int, v string",
            properties={"transactional_properties": "insert_only", "acid.format": "parquet"},
        )
        plain.insert([{"id": 1, "v": "a"}])
        warehouse.create_table("db.empty", "id int").truncate()
        dropped = warehouse.create_table("db.dropped", "id int")
        dropped.insert([{"id": 1}])
        warehouse.drop_table("db.dropped")
        report = assert_healthy(warehouse)
        assert report.tables == 3 and report.rows > 10
