"""The contenders of the benchmark `peers`; each with the settings that its documents recommend."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Mapping
from typing import Any, ClassVar

from benchmarks.comparison.contender import Contender, Engine, OursInSpark, tree_bytes
from benchmarks.comparison.statements import NAMES, SCHEMA
from benchmarks.peers.in_spark import (
    OrcBeside,
    ParquetBeside,
    PlainOrc,
    PlainParquet,
    SparkContender,
)


class OursOfFrames(OursInSpark):
    """Our tables as `create_table` makes them; sources are frames, as the peers'."""

    @property
    def spark(self) -> Any:
        return self.warehouse.spark

    def source(self, name: str) -> Any:
        return self.spark.read.schema(SCHEMA).parquet(str(self.data / f"{name}.parquet"))


class OursChoosing(OursOfFrames):
    """Our tables with the defaults: the engine is chosen for each statement."""

    engine: ClassVar[Engine] = "auto"
    warehouse_settings: ClassVar[Mapping[str, str]] = {}


class Iceberg(SparkContender):
    """Iceberg with merge-on-read in a Hadoop catalog."""

    peer = "iceberg"
    conf: ClassVar[Mapping[str, str]] = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": "{home}/ice",
    }
    properties: ClassVar[Mapping[str, str]] = {
        "format-version": "3",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
    }

    def name(self, table: str) -> str:
        return f"ice.bench.{table}"

    def load(self, table: str, rows: Any) -> None:
        self.sql(
            f"CREATE TABLE {self.name(table)} ({SCHEMA}) USING iceberg {self.table_properties()}"
        )
        self.insert(table, rows)

    def compact(self, table: str) -> None:
        """Rewrites every file that has deletes or is small."""
        options = "map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true')"
        self._call(f"rewrite_data_files(table => 'bench.{table}', options => {options})")
        self._call(f"rewrite_position_delete_files(table => 'bench.{table}')")

    def clean(self, table: str) -> None:
        now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
        self._call(
            f"expire_snapshots(table => 'bench.{table}', older_than => TIMESTAMP '{now}',"
            " retain_last => 1)"
        )

    def _call(self, procedure: str) -> None:
        self.sql(f"CALL ice.system.{procedure}")

    def drop(self, table: str) -> None:
        self.sql(f"DROP TABLE {self.name(table)} PURGE")

    def size(self, table: str) -> int:
        return tree_bytes(self.home / "ice" / "bench" / table)


class IcebergV2(Iceberg):
    """With position delete files in the place of deletion vectors."""

    properties: ClassVar[Mapping[str, str]] = {**Iceberg.properties, "format-version": "2"}


class Delta(SparkContender):
    """Delta with deletion vectors, tables by their path."""

    peer = "delta"
    conf: ClassVar[Mapping[str, str]] = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # With the default of 50, every statement is planned by 50 tasks.
        "spark.databricks.delta.snapshotPartitions": "8",
    }
    properties: ClassVar[Mapping[str, str]] = {"delta.enableDeletionVectors": "true"}

    def name(self, table: str) -> str:
        return f"delta.`{self.home}/{table}`"

    def load(self, table: str, rows: Any) -> None:
        self.sql(
            f"CREATE TABLE {self.name(table)} ({SCHEMA}) USING delta {self.table_properties()}"
        )
        self.insert(table, rows)

    def insert(self, table: str, rows: Any) -> None:
        rows.write.format("delta").mode("append").save(str(self.home / table))

    def compact(self, table: str) -> None:
        self.sql(f"OPTIMIZE {self.name(table)}")
        self.sql(f"REORG TABLE {self.name(table)} APPLY (PURGE)")

    def clean(self, table: str) -> None:
        self.sql(f"VACUUM {self.name(table)} RETAIN 0 HOURS")

    def drop(self, table: str) -> None:
        shutil.rmtree(self.home / table, ignore_errors=True)


class Hudi(SparkContender):
    """Hudi's merge-on-read with its default index; the load is a bulk insert."""

    peer = "hudi"
    conf: ClassVar[Mapping[str, str]] = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    }
    properties: ClassVar[Mapping[str, str]] = {
        "type": "mor",
        "primaryKey": "l_id",
        "hoodie.compact.inline": "false",
    }

    def name(self, table: str) -> str:
        return table

    def load(self, table: str, rows: Any) -> None:
        self.sql(
            f"CREATE TABLE {table} ({SCHEMA}) USING hudi {self.table_properties()}"
            f" LOCATION '{self.home}/{table}'"
        )
        self.sql("SET hoodie.spark.sql.insert.into.operation=bulk_insert")
        self.insert(table, rows)
        self.sql("SET hoodie.spark.sql.insert.into.operation=insert")

    def insert(self, table: str, rows: Any) -> None:
        rows.createOrReplaceTempView("source")
        self.sql(f"INSERT INTO {table} SELECT {', '.join(NAMES)} FROM source")

    def compact(self, table: str) -> None:
        for step in ("schedule", "run"):
            self.sql(f"CALL run_compaction(op => '{step}', table => '{table}')")
        self._refresh(table)

    def clean(self, table: str) -> None:
        self.sql(
            f"CALL run_clean(table => '{table}', clean_policy => 'KEEP_LATEST_FILE_VERSIONS',"
            " file_versions_retained => 1)"
        )
        self._refresh(table)

    def _refresh(self, table: str) -> None:
        """Otherwise this session goes on reading the files that it knew."""
        self.sql(f"REFRESH TABLE {table}")

    def drop(self, table: str) -> None:
        self.sql(f"DROP TABLE {table}")
        shutil.rmtree(self.home / table, ignore_errors=True)


CONTENDERS: dict[str, type[Contender]] = {
    "ours": OursOfFrames,
    "ours-auto": OursChoosing,
    "iceberg-v3": Iceberg,
    "iceberg-v2": IcebergV2,
    "delta": Delta,
    "hudi": Hudi,
    "plain-orc": PlainOrc,
    "plain-parquet": PlainParquet,
    "orc": OrcBeside,
    "parquet": ParquetBeside,
}
BASELINES = ("parquet", "orc")
"""Beside every contender that is not plain files, in its process: `parquet@ours`."""


def peer_of(contender: str) -> str | None:
    """The key of `versions.PEERS`; None for what our own environment runs."""
    kind = CONTENDERS[contender]
    return kind.peer if issubclass(kind, SparkContender) and hasattr(kind, "peer") else None
