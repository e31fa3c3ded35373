"""A contender that a Spark session runs, with SQL; and plain files of that Spark."""

from __future__ import annotations

import os
import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.comparison.contender import Contender
from benchmarks.comparison.statements import (
    ASSIGNED,
    MERGED,
    NAMES,
    SCHEMA,
    WHERE,
    change,
    merge,
)
from benchmarks.peers.versions import cache_directory, jar_settings

SESSION = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    # With the default of 10,000, Delta's VACUUM of a small table takes a minute.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""The same for all peers, and what our own session has too."""


class SparkContender(Contender):
    """Tables that Spark's SQL changes. Sources are frames over Parquet files: their reading counts.

    `peer` is a key of `versions.PEERS`, whose jars the session needs.
    """

    peer: ClassVar[str]
    conf: ClassVar[Mapping[str, str]] = {}
    properties: ClassVar[Mapping[str, str]] = {}
    """Of the table."""

    def __init__(self, home: Path, data: Path) -> None:
        super().__init__(home, data)
        self.spark = self.session()

    def session(self) -> Any:
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder.appName(self.home.name)
        settings = {
            **SESSION,
            "spark.sql.warehouse.dir": str(self.home / "spark-warehouse"),
            **jar_settings(self.peer, cache_directory()),
            **{key: value.replace("{home}", str(self.home)) for key, value in self.conf.items()},
        }
        if options := os.environ.get("ACID_SPARK_JAVA_OPTIONS"):
            settings["spark.driver.extraJavaOptions"] += f" {options}"
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def source(self, name: str) -> Any:
        return self.spark.read.schema(SCHEMA).parquet(str(self.data / f"{name}.parquet"))

    @abstractmethod
    def name(self, table: str) -> str:
        """What SQL calls the table."""

    def table_properties(self) -> str:
        given = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        return f"TBLPROPERTIES ({given})"

    def sql(self, text: str) -> Any:
        return self.spark.sql(text).collect()

    def query(self, table: str, text: str) -> Sequence[Any]:
        row: Sequence[Any] = self.sql(text.format(table=self.name(table)))[0]
        return row

    def change(self, table: str, phase: str) -> None:
        self.sql(change(self.name(table), phase))

    def merge(self, table: str, rows: Any) -> None:
        rows.createOrReplaceTempView("source")
        self.sql(merge(self.name(table), "source"))

    def insert(self, table: str, rows: Any) -> None:
        rows.writeTo(self.name(table)).append()

    def versions(self) -> dict[str, str]:
        jar = jar_settings(self.peer, cache_directory())["spark.jars.packages"]
        return {"pyspark": str(self.spark.version), self.peer: jar.rpartition(":")[2]}

    def settings(self) -> dict[str, str]:
        return {**SESSION, **self.conf, **self.properties}

    def close(self) -> None:
        self.spark.stop()


class PlainFiles(SparkContender):
    """Files without a table format: a change rewrites all of them, as jobs without one do."""

    form: ClassVar[str]

    def session(self) -> Any:
        """The session of the process, else ours."""
        from pyspark.sql import SparkSession

        running = SparkSession.getActiveSession()
        if running is not None:
            return running
        from acid_platform.engine.spark.session import start_session

        return start_session()

    def name(self, table: str) -> str:
        self._read(table).createOrReplaceTempView("plain")
        return "plain"

    def _path(self, table: str) -> str:
        return str(self.home / table)

    def _read(self, table: str) -> Any:
        return self.spark.read.schema(SCHEMA).format(self.form).load(self._path(table))

    def load(self, table: str, rows: Any) -> None:
        rows.write.mode("error").format(self.form).save(self._path(table))

    def insert(self, table: str, rows: Any) -> None:
        rows.write.mode("append").format(self.form).save(self._path(table))

    def _replace(self, table: str, rows: Any) -> None:
        rows.write.format(self.form).save(self._path(f"{table}_new"))
        shutil.rmtree(self._path(table))
        os.rename(self._path(f"{table}_new"), self._path(table))

    def change(self, table: str, phase: str) -> None:
        rows, touched = self._read(table), f"({WHERE[phase]})"
        if phase == "update":
            values = (
                f"CASE WHEN {touched} THEN {ASSIGNED[name]} ELSE {name} END AS {name}"
                if name in ASSIGNED
                else name
                for name in NAMES
            )
            self._replace(table, rows.selectExpr(*values))
        else:
            self._replace(table, rows.filter(f"NOT {touched}"))

    def merge(self, table: str, rows: Any) -> None:
        joined = self._read(table).alias("t").join(rows.alias("s"), "l_id", "full")
        values = (
            name
            if name == "l_id"
            else f"coalesce(s.{name}, t.{name}) AS {name}"
            if name in MERGED
            else f"coalesce(t.{name}, s.{name}) AS {name}"
            for name in NAMES
        )
        self._replace(table, joined.selectExpr(*values))

    def compact(self, table: str) -> None:
        self._replace(table, self._read(table).coalesce(2))

    def clean(self, table: str) -> None:
        """A rewrite leaves nothing behind."""

    def drop(self, table: str) -> None:
        shutil.rmtree(self._path(table), ignore_errors=True)

    def versions(self) -> dict[str, str]:
        return {"pyspark": str(self.spark.version)}

    def settings(self) -> dict[str, str]:
        return {}


class PlainParquet(PlainFiles):
    form = "parquet"


class PlainOrc(PlainFiles):
    form = "orc"


class Beside(PlainFiles):
    """Plain files beside a contender in the same Spark: appends leave alone what is read."""

    def insert(self, table: str, rows: Any) -> None:
        super().insert(f"{table}_appended", rows)

    def drop(self, table: str) -> None:
        super().drop(table)
        super().drop(f"{table}_appended")

    def close(self) -> None:
        """The contender ends the session."""


class ParquetBeside(Beside):
    form = "parquet"


class OrcBeside(Beside):
    form = "orc"
