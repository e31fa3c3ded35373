"""Iceberg and Delta for a version of Spark, and the settings that bring them into a session."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pyspark

from acid_platform.engine.spark import minor_of
from benchmarks.peers.versions import IN_SPARK, REPOSITORIES, cache_directory

JARS: Mapping[tuple[int, int], Mapping[str, str]] = {
    (4, 0): {
        "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.2",
        "delta": "io.delta:delta-spark_2.13:4.0.1",
    },
    (4, 1): {
        "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "delta": "io.delta:delta-spark_4.1_2.13:4.4.0",
    },
    (4, 2): {"delta": "io.delta:delta-spark_4.2_2.13:4.4.0"},
}
"""The newest builds on 2026-11-27, by the minor version of Spark; 4.3 has none."""


def peers_of(version: str = pyspark.__version__) -> tuple[str, ...]:
    """The peers that have a build for this version of Spark."""
    return tuple(JARS.get(minor_of(version), {}))


def jar_settings() -> dict[str, str]:
    """Spark's settings that fetch the jars once, and then take them from the cache."""
    settings = {
        "spark.jars.packages": ",".join(JARS[minor_of(pyspark.__version__)].values()),
        "spark.jars.ivy": str(cache_directory() / "ivy"),
        "spark.jars.excludes": ",".join(f"{group}:*" for group in IN_SPARK),
    }
    if repositories := os.environ.get(REPOSITORIES):
        settings["spark.jars.repositories"] = repositories
    return settings
