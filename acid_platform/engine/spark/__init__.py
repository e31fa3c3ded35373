"""Spark: scans, writes, DML and compaction of ACID tables. Needs the extra `spark`."""

from importlib.util import find_spec

from acid_platform.errors import UnsupportedStatement

if find_spec("pyspark") is None:
    raise UnsupportedStatement(
        "Spark needs the package pyspark: pip install 'acid-platform[spark]', or work with"
        " engine='local'"
    )

from acid_platform.engine.spark.spark_versions import installed_version

installed_version()
