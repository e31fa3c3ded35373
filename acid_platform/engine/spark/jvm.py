"""Starting Spark's JVM; its stderr is passed on without one useless line.

`log4j2.properties` beside this module suppresses what Spark would log at start. Java itself warns
about the incubator module that Spark uses, and no option suppresses that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from acid_platform.engine.spark.store_settings import EXECUTOR_VARIABLE

LOG_OPTION = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
"""For the driver's JVM: log only errors, on stderr."""

SILENCED = b"WARNING: Using incubator modules: jdk.incubator.vector"
STDERR = 2


def launch(settings: Mapping[str, str]) -> None:
    """Starts the JVM for this process's next session with these settings, unless one runs.

    The JVM's command line has all of them but the variables of executors, such as keys of a store:
    these come with the session. Raises PySparkRuntimeError if it ends at once; it has printed the
    reason on stderr.
    """
    if SparkContext._gateway is not None:
        return
    shown = [pair for pair in settings.items() if not pair[0].startswith(EXECUTOR_VARIABLE)]
    reader, writer = os.pipe()
    threading.Thread(target=_pass_on, args=(reader,), name="spark-stderr", daemon=True).start()
    try:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            SparkConf(loadDefaults=False).setAll(shown), {"stderr": writer}
        )
    finally:
        os.close(writer)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(reader: int) -> None:
    """Copies the JVM's stderr until the JVM ends."""
    with os.fdopen(reader, "rb") as lines:
        for line in lines:
            if line.rstrip() != SILENCED:
                os.write(STDERR, line)
