"""A session of Spark: it starts without output, passes its errors on, and leaves nothing behind."""

from __future__ import annotations

import os
import re
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
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from acid_platform import (
    AcidError,
    CorruptFile,
    InvalidExpression,
    SnapshotExpired,
    SparkMisconfigured,
    UnknownColumn,
    UnsupportedLayout,
)
from acid_platform.engine.spark import minor_of, session
from acid_platform.engine.spark.failures import of_files, translated
from acid_platform.engine.spark.session import socket_settings, spark_config

SCRIPT = """
import sys, time
from acid_platform.engine.spark.session import start_session
session = start_session()
session.range(2).count()
print("started", file=sys.stderr, flush=True)
manager = session._jvm.org.apache.logging.log4j.LogManager
manager.getLogger("a.Logger").error("an error")
session._jvm.System.err.println("the end")
session.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_session_starts_without_a_word_and_tells_errors() -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert started.stderr
    lines = [line.rstrip() for line in started.stderr]
    assert started.wait() == 0
    assert lines[0] == "started", lines
    assert any(line.endswith("ERROR Logger: an error") for line in lines[1:]), lines


@pytest.mark.parametrize(
    ("told", "named"),
    [
        (
            "PythonException:\nModuleNotFoundError: No module named 'acid_platform'",
            "acid_platf",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow.lib'\n\tat org.apache", r"pyarrow\.lib"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9", "MISMATCH"),
        ('java.io.IOException: Cannot run program "python3": error=2', "python3"),
    ],
)
def test_a_python_of_tasks_that_cannot_run_our_code_is_named(told: str, named: str) -> None:
    error = translated(Exception(f"Job aborted due to stage failure: {told}"))
    assert isinstance(error, SparkMisconfigured)
    assert re.search(f"{named}.*PYSPARK_PYTHON", str(error), re.DOTALL)
    assert translated(Exception("ModuleNotFoundError: No module named 'mine'")) is None


PLAN = """;
'Project ['x]
+- Filter raise_error(USER_RAISED_EXCEPTION, map(errorMessage, [NO_INSERT] /w/bucket_0: -1))
   +- Filter raise_error(USER_RAISED_EXCEPTION, map(errorMessage, [TOO_LONG] column v \
of db.t takes char(2), a value has 3 characters))
      +- Relation [a] orc file:/w/base_1/bucket_00000 does not exist
acid_platform.errors.CorruptFile: a task of it
"""
"""A plan as it ends the text of an analysis error, with the messages of all tests on rows."""


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved",
            UnknownColumn,
        ),
        ("[MISSING_GROUP_BY] The query does not include a GROUP BY clause", InvalidExpression),
        ("[DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES] Cannot resolve it", InvalidExpression),
        ("[VIEW_NOT_FOUND] The view does not exist", InvalidExpression),
    ],
)
def test_the_plan_of_an_analysis_error_tells_of_no_damage(told: str, kind: type[AcidError]) -> None:
    error = AnalysisException(told + PLAN)
    assert of_files(error) is None
    assert type(translated(error)) is kind


@pytest.mark.parametrize(
    "told",
    [
        "[AVRO_DATA_SOURCE_NOT_ENABLED] Failed to find the data source: avro.",
        "Failed to find data source: avro. Avro is built-in but external data source module",
    ],
    ids=["Spark 4.3", "Spark 4.1"],
)
def test_a_session_without_avro_is_told_which_package_it_lacks(told: str) -> None:
    error = translated(AnalysisException(told))
    assert isinstance(error, UnsupportedLayout) and "spark-avro_2.13" in str(error)


def test_what_rows_and_missing_files_tell_is_translated() -> None:
    gone = "[PATH_NOT_FOUND] Path does not exist: file:/w/base_1/bucket_00000. SQLSTATE: 42K03"
    assert isinstance(of_files(AnalysisException(gone)), SnapshotExpired)
    assert (
        of_files(Exception(f"[INTERNAL_ERROR] The planning failed.{PLAN.split('[TOO')[0]}")) is None
    )
    for raised in ("[USER_RAISED_EXCEPTION] ", "java.lang.RuntimeException: "):
        error = of_files(
            Exception(f"Job aborted: {raised}[NO_INSERT] file:/w/delta_1/bucket_0: -1")
        )
        assert isinstance(error, CorruptFile) and "/w/delta_1/bucket_0 lacks" in str(error)


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
