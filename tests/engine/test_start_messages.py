"""A session starts without output; errors of its JVM and of its tasks' Python are passed on."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from pyspark.errors import AnalysisException

from acid_platform import (
    AcidError,
    CorruptFile,
    InvalidExpression,
    SnapshotExpired,
    SparkMisconfigured,
    UnknownColumn,
    UnsupportedLayout,
)
from acid_platform.engine.spark.failures import of_files, translated

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
