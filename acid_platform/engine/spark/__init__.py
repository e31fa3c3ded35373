"""Spark: scans, writes, DML and compaction of ACID tables. Needs the extra `spark`.

Here is, in one table, what depends on the version of Spark. Our code calls classes inside Spark
(`few_calls`, the file format in `java/`), and PySpark's API for data sources. Both differ between
minor versions; what differs is asked here, by name, and nowhere else. A version that is newer than
all of these is taken for the newest. If our file format can't be compiled there, Spark's own reader
reads instead, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from acid_platform.errors import SparkMisconfigured, UnsupportedStatement

if find_spec("pyspark") is None:
    raise UnsupportedStatement(
        "Spark needs the package pyspark: pip install 'acid-platform[spark]', or work with"
        " engine='local'"
    )

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkVersion:
    """What a minor version of Spark has."""

    java: str
    """The directory below `java/` with the sources that are for some versions only."""
    hadoop: str
    """The version of Hadoop in PySpark."""
    lists_of_functions: int
    """How many lists `UserDefinedPythonFunction` takes behind its flags."""
    names_have_depths: bool
    """Whether a common table expression in a plan has a third part, the depth of its recursion."""
    places_by_number: bool
    """Whether there are `DataFrame.repartitionById` and `arrow_udf`. Otherwise a row gets to the
    task of its bucket by a number with the right hash, and `mapInArrow` computes its bucket."""
    streams_by_arrow: bool
    """Whether there is `DataSourceStreamArrowWriter`."""
    streams_have_limits: bool
    """Whether a stream's source is told where a batch begins, and how much it may have."""
    arrow_zone: Mapping[str, str]
    """What `to_arrow_schema` has to be told for timestamps in UTC."""


_UTC = {"timezone": "UTC"}
# fmt: off
VERSIONS: Mapping[tuple[int, int], SparkVersion] = {
    #                     java        hadoop   lists  depths  by number  by Arrow  limits  zone
    (4, 0): SparkVersion("spark_4_0", "3.4.1", 0,     False,  False,     False,    False,  {}),
    (4, 1): SparkVersion("spark_4_0", "3.4.2", 0,     True,   True,      True,     False,  {}),
    (4, 2): SparkVersion("spark_4_0", "3.5.0", 0,     True,   True,      True,     True,   _UTC),
    (4, 3): SparkVersion("spark_4_3", "3.5.0", 2,     True,   True,      True,     True,   _UTC),
}
# fmt: on
"""The versions with which `make lab-test-sparks` runs the tests."""


@cache
def spark_version(text: str) -> SparkVersion:
    """The row of a version such as `4.1.4`. Raises SparkMisconfigured for one that is too old."""
    numbers = minor_of(text)
    oldest = min(VERSIONS)
    if numbers < oldest:
        raise SparkMisconfigured(
            f"this is Spark {text}, and the platform needs Spark {oldest[0]}.{oldest[1]} or newer:"
            " install a newer pyspark, or let that Spark write Parquet files and load these"
            " (docs/load.md)"
        )
    return VERSIONS[max(known for known in VERSIONS if known <= numbers)]


def minor_of(text: str) -> tuple[int, int]:
    """`4.1.4` is (4, 1)."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def installed_version() -> SparkVersion:
    """The row of the PySpark of this process."""
    return spark_version(pyspark.__version__)


def version_of(spark: SparkSession) -> SparkVersion:
    """The row of a session: of PySpark and the JVM or the Connect server, the older one.

    Raises SparkMisconfigured for one that is too old.
    """
    if spark not in _of_sessions:  # asking the JVM takes a call
        older = min(str(spark.version), pyspark.__version__, key=minor_of)
        _of_sessions[spark] = spark_version(older)
    return _of_sessions[spark]


_of_sessions: WeakKeyDictionary[SparkSession, SparkVersion] = WeakKeyDictionary()


installed_version()
