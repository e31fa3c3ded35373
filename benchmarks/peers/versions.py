"""The peers' versions: the newest of each on 2026-11-23, in the newest Spark it has a build for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison.environment import python_with

CACHE = "ACID_PEERS_CACHE"
"""Names the directory of the peers' environments and jars."""
REPOSITORIES = "ACID_PEERS_REPOSITORIES"
"""Names Maven repositories to ask beside Maven Central, separated by commas."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A table format's library for Spark."""

    spark: str
    """The version of PySpark."""
    jar: str
    """Its coordinates in Maven Central."""


PEERS: Mapping[str, Peer] = {
    "iceberg": Peer("4.1.4", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
    "delta": Peer("4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    "hudi": Peer("3.5.9", "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"),
}
IN_SPARK = (
    "org.apache.parquet",
    "org.apache.hadoop",
    "org.apache.logging.log4j",
    "org.slf4j",
    "org.roaringbitmap",
    "org.xerial.snappy",
    "com.github.luben",
    "com.fasterxml.jackson.core",
    "io.airlift",
    "commons-logging",
    "commons-pool",
    "javax.annotation",
)
"""Groups of jars that every Spark brings along: another version must not take its place."""


def cache_directory() -> Path:
    """ACID_PEERS_CACHE, or a directory of the user's cache."""
    given = os.environ.get(CACHE)
    if given:
        return Path(given).absolute()
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home, "acid-platform", "peers")


def python_of(peer: str, cache: Path) -> Path | None:
    """The interpreter of the peer's Spark; None if its packages can't be installed."""
    spark = PEERS[peer].spark
    # PySpark 3.5 needs distutils, which setuptools brings; psutil is for the profiles.
    packages = (f"pyspark=={spark}", "pandas<3", "pyarrow", "psutil", "setuptools")
    return python_with(cache / f"spark-{spark}", packages)


def jar_settings(peer: str, cache: Path) -> dict[str, str]:
    """Spark's settings that fetch the peer's jars once, and then take them from the cache."""
    settings = {
        "spark.jars.packages": PEERS[peer].jar,
        "spark.jars.ivy": str(cache / "ivy"),
        "spark.jars.excludes": ",".join(f"{group}:*" for group in IN_SPARK),
    }
    if repositories := os.environ.get(REPOSITORIES):
        settings["spark.jars.repositories"] = repositories
    return settings
