"""Timestamps that Java stored with a time zone of its own, as ORC's Java reader shows them (P17).

Files are written by ORC's Java library under each zone of Java, around each change of the zone's
offset, and read back by the same library in UTC, as Hive 3, Hive 4 and Spark do.
"""

from __future__ import annotations

import os
import zoneinfo
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc
import pytest
from py4j.java_gateway import get_field, set_field
from pyspark.sql import SparkSession

from acid_platform import UnsupportedLayout
from acid_platform.formats.orc import open_orc
from acid_platform.formats.orc.writer_clocks import java_zone, zone_rules
from acid_platform.storage.files import Files
from tests.conftest import MOSTLY_LOCAL, compact_with, temporary_warehouse

FEW = [
    "Asia/Kolkata", "Europe/Paris", "America/Sao_Paulo", "Asia/Singapore", "Europe/Moscow",
    "America/New_York", "Africa/Monrovia", "Asia/Manila", "America/Juneau", "Pacific/Apia",
    "Europe/Dublin", "Africa/Windhoek", "Asia/Tehran", "Australia/Lord_Howe", "America/Caracas",
    "Asia/Pyongyang", "Asia/Kathmandu", "Europe/Amsterdam", "Antarctica/Troll", "GMT+05:30",
    "GMT-08:00", "Etc/GMT+5", "UTC",
]  # fmt: skip
ODD = {
    "Africa/Casablanca", "Africa/El_Aaiun", "Asia/Gaza", "Asia/Hebron",
}  # fmt: skip
"""Zones whose offsets from 2037 on Java guesses."""
PLACEHOLDERS = ["0001-01-01", "1582-10-15", "1677-09-22", "1899-12-31", "1900-01-01", "1900-01-02",
                "1969-12-31", "1970-01-01", "2015-01-01", "2262-04-10"]  # fmt: skip
LATE = ["2262-04-12", "2399-07-01", "4000-02-29", "9999-12-31"]


class Java:
    """ORC's Java library in the JVM of a session."""

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm
        self.conf = self.jvm.org.apache.hadoop.conf.Configuration()
        self.schema = self.jvm.org.apache.orc.TypeDescription.fromString("struct<t:timestamp>")

    def write(self, path: Path, zone: str, millis: np.ndarray, nanos: np.ndarray) -> None:
        """A file of these instants, by a writer whose default time zone is `zone`."""
        zones = self.jvm.java.util.TimeZone
        before = zones.getDefault()
        zones.setDefault(zones.getTimeZone(zone))
        try:
            options = self.jvm.org.apache.orc.OrcFile.writerOptions(self.conf)
            target = self.jvm.org.apache.hadoop.fs.Path(str(path))
            writer = self.jvm.org.apache.orc.OrcFile.createWriter(
                target, options.setSchema(self.schema)
            )
            batch = self.schema.createRowBatch(len(millis))
            column = get_field(batch, "cols")[0]
            self._wrapped(millis, ">i8").asLongBuffer().get(get_field(column, "time"))
            self._wrapped(nanos, ">i4").asIntBuffer().get(get_field(column, "nanos"))
            set_field(batch, "size", len(millis))
            writer.addRowBatch(batch)
            writer.close()
        finally:
            zones.setDefault(before)

    def read(self, path: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Milliseconds of the wall clock, and nanoseconds of the second."""
        orc = self.jvm.org.apache.orc.OrcFile
        reader = orc.createReader(
            self.jvm.org.apache.hadoop.fs.Path(str(path)), orc.readerOptions(self.conf)
        )
        records = reader.rows()
        batch = self.schema.createRowBatch(rows)
        records.nextBatch(batch)
        column = get_field(batch, "cols")[0]
        assert get_field(batch, "size") == rows
        longs = self.jvm.java.nio.ByteBuffer.allocate(8 * rows)
        longs.asLongBuffer().put(get_field(column, "time"))
        ints = self.jvm.java.nio.ByteBuffer.allocate(4 * rows)
        ints.asIntBuffer().put(get_field(column, "nanos"))
        records.close()
        return (
            np.frombuffer(bytes(longs.array()), ">i8").astype(np.int64),
            np.frombuffer(bytes(ints.array()), ">i4").astype(np.int64),
        )

    def _wrapped(self, values: np.ndarray, kind: str) -> Any:
        return self.jvm.java.nio.ByteBuffer.wrap(bytearray(values.astype(kind).tobytes()))


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> Java:
    return Java(spark._jvm)


def rules() -> dict[str, bytes]:
    return zone_rules(Path(os.environ["JAVA_HOME"], "lib", "tzdb.dat").read_bytes())


def instants(zone: str, late: bool) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds and nanoseconds: around each change, and days that stand for "unknown"."""
    known = rules()
    changes = java_zone(known[zone]).starts.tolist()[:350] if zone in known else []
    days = [*PLACEHOLDERS, *(LATE if late else [])]
    seconds = sorted(
        {
            second + around
            for second in [
                *(one for one in changes if late or one < 9_000_000_000),
                *(int(np.datetime64(day, "s").astype(int)) for day in days),
            ]
            for around in (-36_000, -19_800, -3600, -1, 0, 1, 3599, 7200, 43_200)
            if zone not in ODD or second < 2_114_000_000
        }
    )
    parts = [(second, nano) for second in seconds for nano in (0, 123_456_000)]
    nanos = np.array([nano for _, nano in parts])
    return np.array([second for second, _ in parts]) * 1000 + nanos // 1_000_000, nanos


def as_java_reads(java: Java, path: Path, zone: str, late: bool) -> None:
    millis, nanos = instants(zone, late)
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    java.write(path, zone, millis, nanos)
    shown, fractions = java.read(path, len(millis))
    right = shown // 1000 * 1_000_000 + fractions // 1000
    files, name = Files.of(str(path))
    column = open_orc(files, name).stripe(0, ["t"], as_stored=True).column(0)
    ours = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy()
    wrong = np.flatnonzero(ours != right)
    assert not len(wrong), (zone, len(wrong), millis[wrong[:3]], ours[wrong[:3]], right[wrong[:3]])


@pytest.mark.spark
@pytest.mark.parametrize("late", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_P17_timestamps_of_a_few_zones_are_those_of_java(
    java: Java, tmp_path: Path, late: bool
) -> None:
    for zone in FEW:
        as_java_reads(java, tmp_path / "file.orc", zone, late)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_P17_timestamps_of_all_zones_are_those_of_java(
    java: Java, tmp_path: Path, late: bool
) -> None:
    different = {content: zone for zone, content in sorted(rules().items())}
    for zone in different.values():
        as_java_reads(java, tmp_path / "file.orc", zone, late)


@pytest.mark.spark
@MOSTLY_LOCAL
def test_P17_both_engines_and_a_compaction_keep_the_wall_clock(
    java: Java, spark: SparkSession, tmp_path: Path, compactor: str
) -> None:
    shown = [datetime(1900, 1, 1), datetime(1582, 10, 15), datetime(1970, 1, 1, 2, 0, 0, 250_000)]
    zone = java.jvm.java.util.TimeZone.getTimeZone("Asia/Kolkata")
    walls = [round((one - datetime(1970, 1, 1)).total_seconds() * 1000) for one in shown]
    instants = np.array([wall - zone.getOffset(wall - 20_000_000) for wall in walls])
    (tmp_path / "t").mkdir()
    nanos = np.array([one.microsecond * 1000 for one in shown])
    java.write(tmp_path / "t" / "000000_0", "Asia/Kolkata", instants, nanos)
    with temporary_warehouse(tmp_path / "warehouse", spark) as warehouse:
        compact_with(warehouse, compactor)
        table = warehouse.adopt_table("db.t", tmp_path / "t")

        def check() -> None:
            assert table.to_arrow().column("t").to_pylist() == shown
            assert [row[0] for row in table.read().collect()] == shown
            assert table.count("t = TIMESTAMP '1900-01-01 00:00:00'") == 1

        check()
        table.delete("t > TIMESTAMP '2000-01-01'")
        table.insert([{"t": datetime(2020, 1, 1)}])
        table.delete("t > TIMESTAMP '2000-01-01'")
        assert [one["state"] for one in table.compact("major")] == ["ready for cleaning"]
        check()


def test_P17_a_zone_without_a_table_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.orc"
    with path.open("wb") as stream:
        writer = pyorc.Writer(
            stream, "struct<t:timestamp>", timezone=zoneinfo.ZoneInfo("Europe/Paris")
        )
        writer.write((datetime(2020, 7, 1),))
        writer.close()
    files, name = Files.of(str(path))

    def read() -> Any:
        return open_orc(files, name).stripe(0, ["t"]).column(0).to_pylist()

    assert [str(one)[:16] for one in read()] == ["2020-07-01 02:00"]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnsupportedLayout, match=r"Europe/Paris.*set JAVA_HOME"):
        read()


@pytest.mark.parametrize("codec", ["NONE", "ZLIB", "SNAPPY", "ZSTD", "LZ4"])
def test_P17_every_compression_of_a_stripe_is_read(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "file.orc"
    with path.open("wb") as stream:
        writer = pyorc.Writer(
            stream,
            "struct<t:timestamp,i:int>",
            timezone=zoneinfo.ZoneInfo("Asia/Kolkata"),
            compression=getattr(pyorc.CompressionKind, codec),
        )
        for number in range(1000):
            writer.write((datetime(2020, 7, 1, number % 24), number))
        writer.close()
    files, name = Files.of(str(path))
    batch = open_orc(files, name).stripe(0, ["t", "i"])
    assert [one.hour for one in batch.column(0).to_pylist()] == [
        (datetime(2020, 7, 1, number % 24) + timedelta(hours=5.5)).hour for number in range(1000)
    ]
    assert batch.column(1).to_pylist() == list(range(1000))
