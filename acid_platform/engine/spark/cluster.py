"""Executors on other machines: what they get of this one, and the check that they have it.

Statements that write and compactions run our code in the executors' Python processes. A cluster has
it in its image, or gets it as an archive that `make cluster-package` makes and ACID_SPARK_ARCHIVE
names.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from acid_platform.errors import SparkMisconfigured

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TASK_MODULES = (
    "acid_platform.engine.spark.compaction_tasks",
    "acid_platform.engine.spark.task_body",
)
"""What executors import of ours; functions that are defined inside others go with their calls."""
UNPACKED = "acid_environment"
"""The directory in an executor's working directory that holds the contents of the archive."""
_NEXT_STEP = (
    "make the archive again with 'make cluster-package', set ACID_SPARK_ARCHIVE to its path, and"
    " start the session again; or install this version of the project in the executors' image"
)


def is_local(master: str) -> bool:
    """Whether the executors are threads of the driver's JVM."""
    return master.partition("[")[0] == "local"


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
    if "://" not in archive:
        path = Path(archive).resolve()
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
    """Raises SparkMisconfigured unless executors run the same code of ours as this process.

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

        for _ in batches:
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
                {"host": [socket.gethostname()], "problem": [text]}
            )

    modules = TASK_MODULES
    expected = hash_of_files(str(Path(__file__).parents[2]))
    rows = session.range(0, 4, 1, 4).mapInArrow(answer, "host string, problem string")
    try:
        problems = {f"{row['host']} {row['problem']}" for row in rows.collect() if row["problem"]}
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines()]
        named = [line for line in lines if line.startswith(_START_ERRORS)]
        if not named:
            raise
        problems = {f"Python does not start on an executor ({named[-1]})"}
    if problems:
        raise SparkMisconfigured(
            "Spark's executors can't run the platform's code:"
            f" {'; '.join(sorted(problems))}: {_NEXT_STEP}"
        )


_START_ERRORS = (
    "ModuleNotFoundError",
    "ImportError",
    "Caused by: java.io.IOException: Cannot run program",
    "java.io.IOException: Cannot run program",
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH]",
)
"""How the lines of Spark's errors begin that say why Python, or a package, is not there."""
