"""Search over every file of a table, visible or not. No JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyorc
import pytest
from pyarrow import orc

from acid_platform import NoSuchPartition, UnknownColumn, UnsupportedStatement
from acid_platform.base.location import Location
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.scan.search import FoundFile, Searched, search_files
from acid_platform.services.erasure import ErasureRequest
from acid_platform.tables.record_layout import listed_layout
from tests.cli.small import BUCKET, Small, write_delta, write_events
from tests.conftest import temporary_warehouse
from tests.declared import declare

ANN = (7, "Ann")
OTHERS = ((1, "a"), (2, "b"))


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore.connect(Location.of(tmp_path / "wh").metastore) as joined:
        joined.create_database("db")
        columns = [("id", "int"), ("v", "string")]
        declare(joined, "db.t", f"{tmp_path}/wh/db.db/t", columns)
        declare(joined, "db.p", f"{tmp_path}/wh/db.db/p", columns, [("month", "int")])
        declare(
            joined,
            "db.kept",
            f"{tmp_path}/wh/db.db/kept",
            columns,
            properties={"NO_CLEANUP": "true"},
        )
        declare(
            joined,
            "db.plain",
            f"{tmp_path}/wh/db.db/plain",
            columns,
            properties={"transactional_properties": "insert_only"},
        )
        yield joined
        joined.stop()


@pytest.fixture
def table(metastore: Metastore, tmp_path: Path) -> Small:
    return Small(tmp_path / "wh", metastore)


def search(table: Small, where: str = "v = 'Ann'", *, still_open: int = 0) -> Searched:
    layout = listed_layout(table.metastore, table.metastore.table(table.name))
    return search_files(layout, where, lambda ids: {still_open} & set(ids))


def found(table: Small, where: str = "v = 'Ann'") -> dict[str, int]:
    return {one.path: one.rows for one in search(table, where).matches}


@pytest.mark.more
def test_rows_are_found_in_every_kind_of_directory_whatever_a_snapshot_sees(table: Small) -> None:
    write_id = table.insert(ANN, *OTHERS)
    table.write(lambda w: [(2, write_id, BUCKET, 0, w, None)], deletes=True)
    for name in ("delta_0000009_0000009_0000", "base_0000005_v0000099", "_tmp_0000003_x/ready/a"):
        write_delta(table.table / name, 9, (ANN, ANN))
    write_delta(table.table / "delta_0000008_0000008_0000", 8, OTHERS)
    with (
        (table.table / "000000_0").open("wb") as stream,
        pyorc.Writer(stream, "struct<id:int,v:string>") as writer,
    ):
        writer.write(ANN)
    (table.table / "delta_0000008_0000008_0000" / ".bucket_00000.crc").write_bytes(b"crc")
    (table.table / "delta_0000008_0000008_0000" / "bucket_00001").touch()
    searched = search(table)
    assert {one.path: one.rows for one in searched.matches} == {
        "000000_0": 1,
        "_tmp_0000003_x/ready/a/bucket_00000": 2,
        "base_0000005_v0000099/bucket_00000": 2,
        "delta_0000001_0000001_0000/bucket_00000": 1,
        "delta_0000009_0000009_0000/bucket_00000": 2,
    }
    assert searched.files == 7


@pytest.mark.more
def test_delete_events_hold_no_values(table: Small) -> None:
    """IS NULL does not match them either, although their values are NULL."""
    table.write(lambda w: [(2, 1, BUCKET, 0, w, None)], deletes=True)
    assert found(table, "v IS NULL") == {}
    table.write(lambda w: [(2, 1, BUCKET, 0, w, ANN)], deletes=True)
    [one] = search(table).matches
    assert one.path.startswith("delete_delta_0000002") and "events with values" in one.error


def test_what_an_open_transaction_is_writing_is_told_and_not_read(table: Small) -> None:
    torn = table.table / "_tmp_0000003_x" / "part-0"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"ORC, the rest is to come")
    assert search(table, still_open=3).matches == (
        FoundFile("_tmp_0000003_x/part-0", "", writer=3),
    )
    [left] = search(table).matches
    assert "does not end in an ORC postscript" in left.error and left.writer is None


@pytest.mark.more
def test_partitions_are_judged_by_their_path_also_dropped_ones(
    metastore: Metastore, tmp_path: Path
) -> None:
    table = Small(tmp_path / "wh", metastore, "db.p")
    for month in (1, 2):
        table.insert(ANN, *OTHERS, partition=f"month={month}")
    metastore.drop("db.p", "month=2")
    at = "delta_0000001_0000001_0000/bucket_00000"
    other = "delta_0000002_0000002_0000/bucket_00000"
    assert found(table) == {f"month=1/{at}": 1, f"month=2/{other}": 1}
    assert found(table, "v = 'Ann' AND month = 2") == {f"month=2/{other}": 1}
    assert search(table, "v = 'Ann' AND month = 2").files == 1  # the path ruled out the rest
    write_events(table.table / "stray", [(0, 1, BUCKET, 0, 1, ANN)])
    assert found(table)["stray/bucket_00000"] == 1
    errors = [one.error for one in search(table, "id = 7 AND month = 2").matches if one.error]
    assert len(errors) == 1 and "is not in a partition directory" in errors[0]


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "where", "partition", "error"),
    [
        ("db.t", "nobody = 1", None, UnknownColumn),
        ("db.t", "rand() < 0.5", None, UnsupportedStatement),
        ("db.t", "id = 1", "month=1", NoSuchPartition),
        ("db.p", "id = 1", "month=33", NoSuchPartition),
        ("db.plain", "id = 1", None, UnsupportedStatement),
        ("db.kept", "id = 1", None, UnsupportedStatement),
    ],
)
def test_a_request_is_refused_before_anything_is_deleted(
    metastore: Metastore, name: str, where: str, partition: str | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        ErasureRequest.of(metastore, name, where, partition)


@pytest.mark.more
def test_a_request_for_a_partition_has_its_values_in_the_condition(
    metastore: Metastore, tmp_path: Path
) -> None:
    Small(tmp_path / "wh", metastore, "db.p").insert(ANN, partition="month=1")
    request = ErasureRequest.of(metastore, "db.P", "id = 1 OR id = 2", {"month": 1})
    assert request == ErasureRequest("db.p", "(id = 1 OR id = 2) AND `month` = 1")


def test_rows_of_an_adopted_file_are_erased_after_its_compaction(tmp_path: Path) -> None:
    """The base of original files has the least number of all in its name."""
    (tmp_path / "t").mkdir()
    orc.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), tmp_path / "t" / "000000_0")
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.adopt_table("db.t", tmp_path / "t")
        table.compact("major")
        erasure = table.erase("id = 2")
        assert (erasure.deleted, erasure.erased) == (1, True)
        assert table.to_arrow().to_pylist() == [{"id": 1}]
