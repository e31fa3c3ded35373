"""Spark's JVM and Python reach each other through Unix sockets, and leave none behind."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform.engine.spark import session
from acid_platform.engine.spark.session import socket_settings, spark_config
from acid_platform.engine.spark.spark_versions import minor_of

DIRECTORY = "spark.python.unix.domain.socket.dir"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    session._socket_directory.cache_clear()


@pytest.mark.spark
def test_tasks_get_their_rows_through_a_unix_socket(spark: SparkSession) -> None:
    def families(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        found = []
        for number in range(256):
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    with socket.socket(fileno=os.dup(number)) as one:
                        found.append(int(one.family))
        yield pa.RecordBatch.from_pydict({"family": pa.array(found, pa.int32())})

    rows = spark.range(3).coalesce(1).mapInArrow(families, "family int").collect()
    kind = socket.AF_UNIX if minor_of(spark.version) >= (4, 1) else socket.AF_INET
    assert {row.family for row in rows} == {int(kind)}


def test_only_the_user_reaches_the_directory_and_a_process_has_one() -> None:
    settings = spark_config("local[2]")
    directory = Path(settings[DIRECTORY])
    assert directory.stat().st_mode & 0o777 == 0o700
    assert spark_config("local[*]")[DIRECTORY] == str(directory)


def test_P69_spark_spills_into_a_private_directory() -> None:
    directory = Path(spark_config("local[2]")["spark.local.dir"])
    assert directory.stat().st_mode & 0o777 == 0o700
    assert "spark.local.dir" not in spark_config("spark://host:7077")


def test_executors_on_other_machines_have_no_such_directory() -> None:
    assert socket_settings("spark://host:7077") == {}


@pytest.mark.parametrize("missing", [False, True])
def test_a_socket_whose_path_would_be_too_long_goes_to_tmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    long = tmp_path / ("x" * 90)
    if not missing:
        long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    session._socket_directory.cache_clear()
    directory = socket_settings("local")[DIRECTORY]
    assert Path(directory).parent == Path("/tmp")
    assert len(f"{directory}/.{'0' * 36}.sock") <= 103


@pytest.mark.slow
@pytest.mark.spark
def test_nothing_is_left_when_the_process_ends(tmp_path: Path) -> None:
    script = (
        "from acid_platform.engine.spark.session import start_session\n"
        "session = start_session()\n"
        "frame = session.range(4).mapInArrow(lambda batches: batches, 'id bigint')\n"
        "print('rows', frame.count())\n"
    )
    short = tempfile.mkdtemp(prefix="t-", dir="/tmp")
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": short},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "rows 4\n"
    assert os.listdir(short) == []
    os.rmdir(short)
