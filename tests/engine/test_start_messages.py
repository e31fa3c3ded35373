"""A session starts without output; errors of its JVM and of its tasks' Python are passed on."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from acid_platform.engine.spark.failures import translated
from acid_platform.errors import SparkMisconfigured

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
