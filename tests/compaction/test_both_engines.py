"""P33 for compactions: Spark and the local engine write the same files and measure the same."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acid_platform import CompactionFailed
from acid_platform.compaction import execution as compaction
from acid_platform.compaction.execution import Compaction, StagedCompaction, open_compaction
from acid_platform.compaction.plan import CompactionPlan, CompactionSettings, plan_compaction
from acid_platform.compaction.profiles import MODULUS, compare, row_id_checksum
from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.local.compact import LocalCompaction
from acid_platform.engine.spark.spark_engine import SparkCompaction
from acid_platform.formats.orc import AcidWriter, acid_schema
from acid_platform.layout.types import parse_columns
from acid_platform.scan.selection import select
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidTxnList
from tests.acid_files import B1, AcidTable, P
from tests.full_disk import full_outputs
from tests.notation import write_ids

pytestmark = pytest.mark.spark

EVERY_TYPE = (
    "i tinyint, j smallint, k int, l bigint, f float, d double, b boolean, n decimal(7,2),"
    " w decimal(38,10), s string, c char(5), u varchar(3), x binary, y date, t timestamp,"
    " a array<string>, m map<string,int>, r struct<p:int,q:array<timestamp>>"
)


def a_row(number: int) -> tuple[Any, ...]:
    if number % 5 == 4:
        return (None,) * 18
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, number)
    return (
        -number,
        number * 300,
        number,
        -(2**60) + number,
        number / 3,
        float("nan") if number % 2 else -0.0,
        number % 2 == 0,
        Decimal(number) / 4,
        Decimal(-(10**27)) + number,
        f"é{number}",
        "ab",
        "abc",
        b"\xff\x00" * number,
        datetime.date(2000 + number, 1, 1),
        moment,
        ["a", None, str(number)],
        [("k", number), ("l", None)],
        {"p": number, "q": [moment, None]},
    )


def every_type(table: AcidTable) -> None:
    for write_id in range(1, 4):
        for name, bucket in (("bucket_00000", P), ("bucket_00001", B1)):
            table.inserts(
                f"d{write_id}/{name}",
                [(write_id, bucket, row, *a_row(row + write_id)) for row in range(6)],
            )
    table.deletes("D4", [(1, P, 0), (2, P, 5)], 4)
    table.deletes("D5/bucket_00001", [(1, B1, 3), (9, B1, 3)], 5)


def changed_types(table: AcidTable) -> None:
    """Columns that were added or widened since, and text that was cut."""
    table.inserts("d1", [(1, P, 0, 7, "abcdef")], columns="k int, u string")
    table.inserts("d2", [(2, P, 0, 2**40, "x", 1.5)], columns="k bigint, u varchar(3), d double")


def nanoseconds(table: AcidTable) -> None:
    for write_id in (1, 2):
        at = pa.scalar(1_000_000_000 + write_id, pa.timestamp("ns"))
        table.inserts(f"d{write_id}", [(write_id, P, row, at) for row in range(2)])


def far_and_long_ago(table: AcidTable) -> None:
    """Timestamps that nanoseconds can't hold, beside those that they can, and Julian days."""
    columns = parse_columns(table.columns)
    target = acid_schema(columns, "us")
    for write_id, year in ((1, 9999), (2, 2000), (3, 1)):
        moment = {"t": datetime.datetime(year, 2, 3, 4, 5, 6, 7), "y": datetime.date(year, 3, 1)}
        bucket = B1 if write_id == 2 else P
        rows = [(0, write_id, bucket, row, write_id, moment) for row in range(2)]
        path = table.file(f"d{write_id}/bucket_0000{int(bucket == B1)}")
        path.parent.mkdir(parents=True)
        writer = AcidWriter(*Files.of(str(path)), columns, "zlib")
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(zip(*rows, strict=True), target, strict=True)
        ]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=target))
        writer.close()


def deleted_in_the_same_transaction(table: AcidTable) -> None:
    table.inserts("d1", [(1, P, row, f"v{row}") for row in range(4)])
    table.deletes("D1.1", [(1, P, 2)], 1)
    table.inserts("d2", [(2, P, row, f"w{row}") for row in range(4)])
    table.deletes("D3", [(1, P, 0), (2, P, 0)], 3)


def all_rows_deleted(table: AcidTable) -> None:
    for write_id in (1, 2):
        table.inserts(f"d{write_id}", [(write_id, P, row, f"v{row}") for row in range(4)])
        rows = [(write_id, P, row) for row in range(4)]
        table.deletes(f"D{write_id + 2}", rows, write_id + 2)


CASES: dict[str, tuple[str, Callable[[AcidTable], None]]] = {
    "every type": (EVERY_TYPE, every_type),
    "changed types": ("k bigint, u varchar(3), d double", changed_types),
    "far and long ago": ("t timestamp, y date", far_and_long_ago),
    "own deletes": ("v string", deleted_in_the_same_transaction),
    "nothing left": ("v string", all_rows_deleted),
}


def opened(table: AcidTable, kind: str) -> Compaction:
    layout = table.layout
    lists = write_ids("99:M::").for_compactor()
    directory = select(layout.files.entity(layout.path), lists, ValidTxnList.of(2000, open=[50]))
    # isal's compression of the same bytes varies with what its memory held before.
    settings = CompactionSettings(compression="uncompressed")
    plan = plan_compaction(directory, CompactionKind(kind), lists, 50, settings)
    assert isinstance(plan, CompactionPlan), str(plan)
    return open_compaction(plan, layout)


def staged_files(staged: StagedCompaction) -> dict[str, bytes]:
    root = Path(staged.compaction.staging)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def both(spark: SparkSession, table: AcidTable, kind: str) -> list[StagedCompaction]:
    """What Spark staged, then what this process did."""
    compacts = [opened(table, kind) for _ in range(2)]
    engines = (SparkCompaction(spark, compacts[0]), LocalCompaction(compacts[1]))
    return [compaction.execute(*pair) for pair in zip(engines, compacts, strict=True)]


@pytest.mark.parametrize("kind", ["major", "minor"])
@pytest.mark.parametrize(
    "case", [pytest.param("every type", marks=pytest.mark.slow), *list(CASES)[1:]]
)
def test_P33_both_engines_write_equal_bytes_and_measure_equal_values(
    spark: SparkSession, tmp_path: Path, case: str, kind: str
) -> None:
    columns, fill = CASES[case]
    table = AcidTable(tmp_path / "t", columns)
    fill(table)
    by_spark, here = both(spark, table, kind)
    assert here.expected == by_spark.expected
    assert here.actual == by_spark.actual
    assert not compare(here.expected, here.actual)
    assert here.expected.rows or case == "nothing left"
    assert set(here.expected.column_checksums) == {
        column.name for column in here.compaction.columns
    }
    assert staged_files(here) == staged_files(by_spark)
    assert here.outputs == by_spark.outputs


def test_P33_nanoseconds_count_in_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    """A reader shows microseconds, but a compaction that cuts nanoseconds is found out."""
    table = AcidTable(tmp_path / "t", "t timestamp")
    nanoseconds(table)
    by_spark, here = both(spark, table, "major")
    assert here.expected == by_spark.expected == here.actual
    other = AcidTable(tmp_path / "other", "t timestamp")
    for write_id in (1, 2):
        at = pa.scalar(1_000_000_000, pa.timestamp("ns"))
        other.inserts(f"d{write_id}", [(write_id, P, row, at) for row in range(2)])
    compact = opened(other, "major")
    cut = compaction.execute(LocalCompaction(compact), compact)
    assert cut.expected.column_checksums != here.expected.column_checksums
    assert replace(cut.expected, column_checksums={}) == replace(here.expected, column_checksums={})


def test_P33_the_checksum_of_row_ids_is_sparks(spark: SparkSession) -> None:
    random = np.random.default_rng(7)
    keys = np.column_stack(
        [
            random.integers(0, 2**62, 2000),
            random.integers(-(2**31), 2**31, 2000),
            random.integers(0, 2**40, 2000),
        ]
    )
    keys[:3] = [[0, 0, 0], [2**63 - 1, -(2**31), 2**63 - 1], [-1, -1, -1]]
    rows = spark.createDataFrame(keys.tolist(), "w bigint, b int, r bigint")
    total = rows.agg(F.sum(F.pmod(F.xxhash64("w", "b", "r"), F.lit(MODULUS)))).collect()[0][0]
    assert row_id_checksum(*keys.T) == total
    assert row_id_checksum(*keys[:0].T) == 0


def test_C32_a_full_disk_is_told_in_the_same_words(spark: SparkSession, tmp_path: Path) -> None:
    """Both where the output directories are made and where the files are written."""
    table = AcidTable(tmp_path / "t", "v string")
    deleted_in_the_same_transaction(table)
    compact = opened(table, "minor")
    errors = []
    for engine in (SparkCompaction(spark, compact), LocalCompaction(compact)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "make_outputs", full_outputs)
            with pytest.raises(CompactionFailed) as raised:
                compaction.execute(engine, compact)
        errors.append(str(raised.value))
        assert not list(Path(table.root).glob("_tmp_*"))
    assert errors[0] == errors[1]
    assert "No space left" in errors[0] and "inputs were kept" in errors[0]
