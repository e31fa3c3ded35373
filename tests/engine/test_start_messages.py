"""A session starts without output; errors of its JVM are passed on."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
