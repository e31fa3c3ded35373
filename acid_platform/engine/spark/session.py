"""The Spark session: the settings it starts with, and the checks before it is used (P17).

Statements that write and compactions run our code in the executors' Python processes. A cluster has
it in its image, or gets it as an archive of `make lab-cluster-package`, which ACID_SPARK_ARCHIVE
names. A session is refused if its executors lack it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from acid_platform.base.local_files import process_directory
from acid_platform.base.location import is_path
from acid_platform.base.paths import user_path
from acid_platform.engine.choice import is_local
from acid_platform.engine.spark import jvm
from acid_platform.engine.spark.few_calls import SUBSTITUTION
from acid_platform.engine.spark.jvm import executor_variables, store_settings
from acid_platform.errors import JavaMissing, SparkMisconfigured

if TYPE_CHECKING:
    import pyarrow as pa


TASK_MODULES = (
    "acid_platform.compaction.execution",
    "acid_platform.engine.spark.task_body",
)
"""What executors import of ours; functions that are defined inside others go with their calls."""
UNPACKED = "acid_environment"
"""The directory in an executor's working directory that holds the contents of the archive."""
_NEXT_STEP = (
    "make the archive again with 'make lab-cluster-package', set ACID_SPARK_ARCHIVE to its path,"
    " and start the session again; or install this version of the project in the executors' image"
)


def executor_python() -> str:
    """The command that starts Python on the executors' machines: this process's minor version."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def executor_settings(master: str) -> dict[str, str]:
    """The settings that give our code to executors, for a session with this master.

    Raises SparkMisconfigured if ACID_SPARK_ARCHIVE names no file.
    """
    archive = os.environ.get("ACID_SPARK_ARCHIVE")
    if is_local(master) or not archive:
        return {}
    if is_path(archive):
        path = Path(user_path(archive))
        if not path.is_file():
            raise SparkMisconfigured(
                f"ACID_SPARK_ARCHIVE is {archive}, and there is no such file: {_NEXT_STEP}"
            )
        archive = path.as_uri()
    return {
        "spark.archives": f"{archive}#{UNPACKED}",
        # The tasks of a Spark Connect session run in a directory of their own, below.
        "spark.executorEnv.PYTHONPATH": f"{UNPACKED}:../{UNPACKED}",
    }


def check_executors(session: SparkSession) -> None:
    """Raises SparkMisconfigured unless executors run the same Spark and code of ours as this
    process.

    Runs a job of a few tasks; executors that start later are not checked. Its functions are sent to
    the executors as they stand here, since those may lack our packages.
    """

    def hash_of_files(package: str) -> str:
        """A hash of the paths and contents of the Python files."""
        digest = hashlib.sha256()
        for directory, below, names in os.walk(package):
            below.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    path = os.path.join(directory, name)
                    digest.update(os.path.relpath(path, package).encode())
                    with open(path, "rb") as file:
                        digest.update(file.read())
        return digest.hexdigest()

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib

        import pyarrow

        for batch in batches:
            version = batch.column(0)[0].as_py()
            try:
                for name in modules:
                    importlib.import_module(name)
            except ImportError as error:
                text = f"can't import acid_platform ({error})"
            else:
                (package,) = sys.modules["acid_platform"].__path__
                same = hash_of_files(package) == expected
                text = "" if same else "has another version of acid_platform than this process"
            yield pyarrow.RecordBatch.from_pydict(
                {"host": [socket.gethostname()], "spark": [version], "problem": [text]}
            )

    modules = TASK_MODULES
    expected = hash_of_files(str(Path(__file__).parents[2]))
    # Not a constant for Spark, so executors compute it.
    asked = session.range(0, 4, 1, 4).selectExpr(
        "java_method('org.apache.spark.package', 'SPARK_VERSION') AS version"
    )
    try:
        found = asked.mapInArrow(answer, "host string, spark string, problem string").collect()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines()]
        if any(_OTHER_CLASSES in line for line in lines):
            raise _another_spark(session, "another version") from error
        named = [line for line in lines if line.startswith(_START_ERRORS)]
        if not named:
            raise
        problems = {f"Python does not start on an executor ({named[-1]})"}
    else:
        if others := {row["spark"] for row in found} - {session.version}:
            raise _another_spark(session, ", ".join(sorted(others)))
        problems = {f"{row['host']} {row['problem']}" for row in found if row["problem"]}
    if problems:
        raise SparkMisconfigured(
            "Spark's executors can't run the platform's code:"
            f" {'; '.join(sorted(problems))}: {_NEXT_STEP}"
        )


def _another_spark(session: SparkSession, there: str) -> SparkMisconfigured:
    return SparkMisconfigured(
        f"the driver runs Spark {session.version}, and its executors {there}: results could be"
        " wrong; install here the pyspark of the executors' version, or this version of Spark there"
    )


_OTHER_CLASSES = "java.io.InvalidClassException: org.apache.spark."
"""In Spark's error if an executor's classes are not those of the driver."""
_START_ERRORS = (
    "ModuleNotFoundError",
    "ImportError",
    "Caused by: java.io.IOException: Cannot run program",
    "java.io.IOException: Cannot run program",
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH]",
)
"""How the lines of Spark's errors begin that say why Python, or a package, is not there."""


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
            filter(None, ("-Duser.timezone=UTC", jvm.LOG_OPTION, jvm.DEATH_OPTIONS, java_options))
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
        **executor_settings(master),
        **socket_settings(master),
        **spill_settings(master),
        **store_settings(),
        **({} if is_local(master) else executor_variables()),
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
    on_this_machine = is_local(master) and os.name == "posix"
    directory = _socket_directory(os.getpid()) if on_this_machine else None
    if directory is None:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


def spill_settings(master: str) -> dict[str, str]:
    """Where Spark puts rows that it sorts and shuffles: on this machine into a private directory,
    since Spark's own are open to all (P69). Those of a cluster are its own matter."""
    directory = _spill_directory(os.getpid()) if is_local(master) else None
    return {} if directory is None else {"spark.local.dir": directory}


@cache
def _spill_directory(_process: int) -> str | None:
    return process_directory("spark-rows")


@cache
def _socket_directory(_process: int) -> str | None:
    """One for each process; None if none can be made whose path is short enough."""
    return process_directory("spark", longest=_LONGEST_PATH)


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
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", executor_python())
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
        jvm.watch(session)
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

    Raises SparkMisconfigured, SparkLost.
    """
    jvm.watch(session)
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
    if not is_local(session.conf.get("spark.master") or "local"):
        check_executors(session)
    return session
