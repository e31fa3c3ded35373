"""The Spark session: the settings it starts with, and the checks before it is used (P17)."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from acid_platform.engine.spark import cluster, jvm
from acid_platform.engine.spark.few_calls import SUBSTITUTION
from acid_platform.engine.spark.store_settings import executor_variables, store_settings
from acid_platform.errors import JavaMissing, SparkMisconfigured

OLDEST_JAVA = 17

_REQUIRED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.orc.impl": "native",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "true",
    # What a text means, in every session as in the local engine.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
}
"""Settings without which results would be wrong. A missing or corrupt file must fail a read, not
shorten it."""


def spark_config(master: str = "local[2]", memory: str = "2g") -> dict[str, str]:
    """The settings of a session that the platform starts; your own session needs the same.

    Time zones are UTC because a Hive TIMESTAMP is a wall clock time (P17). ACID_SPARK_JAVA_OPTIONS
    goes to the driver's JVM.
    """
    java_options = os.environ.get("ACID_SPARK_JAVA_OPTIONS", "")
    return {
        "spark.app.name": "acid-platform",
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(
            filter(None, ("-Duser.timezone=UTC", jvm.LOG_OPTION, java_options))
        ),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        **_REQUIRED,
        # Spark's ORC reader can't use filters on fields of `row`: it looks for them inside `row`.
        "spark.sql.optimizer.nestedPredicatePushdown.supportedFileSources": "parquet",
        # Otherwise PySpark calls the JVM several times for each part of an expression.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.codegen.maxFields": "1000",
        # Classes that Spark has generated from its plans. With Spark's 100, a session that reads
        # and changes a few tables compiles them again for each statement, and the JVM starts anew
        # to find out which of them are worth its own compiler.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        SUBSTITUTION: "false",  # a column may be called `${x}`
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # What opening a file costs, in bytes read. With Spark's 4 MB, a few tiny files beside large
        # ones make so large tasks that one of them reads all of the large files.
        "spark.sql.files.openCostInBytes": "65536",
        # A read names each file. Spark lists more than 32 paths in a job with a task for each.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **cluster.executor_settings(master),
        **socket_settings(master),
        **store_settings(),
        **({} if cluster.is_local(master) else executor_variables()),
    }


_LONGEST_PATH = 57
"""Bytes of the directory's path: that of a socket in it is 43 longer, and macOS allows 103."""


def socket_settings(master: str) -> dict[str, str]:
    """Spark's settings for Unix sockets to Python, in a private directory; none for a cluster.

    Through Spark's default, TCP, the end of a task's rows often waits 40 ms: its last bytes are
    held back until the bytes before them are acknowledged, and the acknowledgement is delayed. This
    would be a quarter of a small INSERT. Executors on other machines have no such directory. It is
    removed when this process ends; it stays, empty, if the process becomes another one, as a Spark
    Connect server does.
    """
    on_this_machine = cluster.is_local(master) and os.name == "posix"
    directory = _socket_directory(os.getpid()) if on_this_machine else None
    if directory is None:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


@cache
def _socket_directory(process: int) -> str | None:
    """A directory of this process; None if none can be made whose path is short enough."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        try:
            directory = tempfile.mkdtemp(prefix="acid-spark-", dir=parent)
        except OSError:
            continue
        atexit.register(_remove_directory, process, directory)
        if len(os.fsencode(directory)) <= _LONGEST_PATH:
            return directory
    return None


def _remove_directory(process: int, directory: str) -> None:
    if os.getpid() == process:  # a fork of it may end first
        shutil.rmtree(directory, ignore_errors=True)


def java_version(java: str) -> int | None:
    """The major version of a `java` executable, or None if it does not run."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    quoted = shown.stderr.partition('"')[2].partition('"')[0]
    major = quoted.removeprefix("1.").partition(".")[0].partition("-")[0]
    return int(major) if major.isdigit() else None


def require_java() -> str:
    """The path of a Java that Spark can use. Raises JavaMissing."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    version = java_version(java) if java else None
    if java and version is not None and version >= OLDEST_JAVA:
        return java
    problem = f"{java} is Java {version}" if version else f"{java} does not run"
    if not java:
        problem = "no Java was found"
    raise JavaMissing(
        f"{problem}, and Spark needs Java {OLDEST_JAVA} or newer: run 'make setup', or install one"
        " (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) and"
        " set JAVA_HOME"
    )


def spark_master() -> str:
    """What ACID_SPARK_MASTER says, or two threads of the driver."""
    return os.environ.get("ACID_SPARK_MASTER") or "local[2]"


def prepare_environment(master: str) -> None:
    """Sets Spark's environment variables for a session with this master.

    Python workers of this machine must run this interpreter, and a laptop's host name may not
    resolve. Executors on a cluster have an interpreter of their own, and connect to this machine.
    """
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if cluster.is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", cluster.executor_python())
    # Otherwise PySpark logs each exception to stderr, with the JVM's stack, before it raises it.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def start_session(
    master: str | None = None, remote: str | None = None, memory: str | None = None
) -> SparkSession:
    """A checked session: this process's running session, or a new one.

    Arguments default to ACID_SPARK_MASTER, ACID_SPARK_REMOTE and ACID_SPARK_MEMORY. Raises
    JavaMissing, SparkMisconfigured.
    """
    master = master or spark_master()
    prepare_environment(master)
    remote = remote or os.environ.get("ACID_SPARK_REMOTE")
    if remote:
        session = SparkSession.builder.remote(remote).getOrCreate()
        for name, value in _REQUIRED.items():  # per session: other sessions keep theirs
            session.conf.set(name, value)
        return check_session(session)
    require_java()
    memory = memory or os.environ.get("ACID_SPARK_MEMORY") or "2g"
    settings = spark_config(master, memory)
    jvm.launch(settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return check_session(builder.getOrCreate())


def check_session(session: SparkSession) -> SparkSession:
    """Returns the session after a check that its results will be correct.

    Raises SparkMisconfigured.
    """
    for key, expected in _REQUIRED.items():
        value = session.conf.get(key)
        if str(value).lower() != expected.lower():
            raise SparkMisconfigured(
                f"the Spark session has {key}={value}, but correct results need {expected}:"
                f" set it before the session starts, or call spark.conf.set({key!r}, {expected!r})"
            )
    # How the JVM stores a wall clock time shows its time zone, in any kind of session.
    shown = session.sql(
        "SELECT date_format(TIMESTAMP '2000-07-01 12:00:00', 'HH'),"
        " java_method('java.util.TimeZone', 'getDefault')"
    ).head()
    if shown is None or shown[0] != "12" or 'id="UTC"' not in shown[1].replace("'", '"'):
        raise SparkMisconfigured(
            "the JVM of this Spark session does not run in UTC, so ORC timestamps would shift:"
            " start it with spark.driver.extraJavaOptions=-Duser.timezone=UTC and"
            " spark.executor.extraJavaOptions=-Duser.timezone=UTC"
        )
    if not cluster.is_local(session.conf.get("spark.master") or "local"):
        cluster.check_executors(session)
    return session
