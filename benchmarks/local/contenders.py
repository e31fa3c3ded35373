"""The contenders, each as the same few calls. Every one imports its libraries when it is made."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.comparison.contender import Contender, Ours, OursInSpark
from benchmarks.comparison.statements import ASSIGNED, MERGED, SCHEMA, WHERE, change, merge
from benchmarks.peers.in_spark import PlainOrc

THREADS = 2


class SparkTables(OursInSpark):
    """Our tables, changed by Spark. The rows to load are a frame over their file, whose reading
    counts: millions of rows of this process would not fit into one message to the JVM."""

    def source(self, name: str) -> Any:
        if name != "base":
            return super().source(name)
        return self.warehouse.spark.read.schema(SCHEMA).parquet(str(self.data / f"{name}.parquet"))


class LocalOnParquet(Ours):
    """The same tables with files of Parquet."""

    warehouse_settings: ClassVar[Mapping[str, str]] = {
        **Ours.warehouse_settings,
        "acid.format.default": "parquet",
    }


class DeltaRs(Contender):
    """delta-rs from Python, which rewrites files to change rows; queries by its QueryBuilder."""

    def __init__(self, home: Path, data: Path) -> None:
        super().__init__(home, data)
        os.environ["TOKIO_WORKER_THREADS"] = str(THREADS)
        self.library: Any = importlib.import_module("deltalake")

    def _table(self, table: str) -> Any:
        return self.library.DeltaTable(str(self.home / table))

    def load(self, table: str, rows: Any) -> None:
        self.library.write_deltalake(str(self.home / table), rows, mode="append")

    def insert(self, table: str, rows: Any) -> None:
        self.load(table, rows)

    def query(self, table: str, text: str) -> Sequence[Any]:
        import pyarrow

        builder = self.library.QueryBuilder().register("t", self._table(table))
        rows = pyarrow.table(builder.execute(text.format(table="t")))
        return list(rows.slice(0, 1).to_pylist()[0].values())

    def change(self, table: str, phase: str) -> None:
        if phase == "update":
            self._table(table).update(updates=ASSIGNED, predicate=WHERE[phase])
        else:
            self._table(table).delete(WHERE[phase])

    def merge(self, table: str, rows: Any) -> None:
        merger = self._table(table).merge(
            rows, "t.l_id = s.l_id", source_alias="s", target_alias="t"
        )
        merger = merger.when_matched_update({name: f"s.{name}" for name in MERGED})
        merger.when_not_matched_insert_all().execute()

    def compact(self, table: str) -> None:
        self._table(table).optimize.compact()

    def drop(self, table: str) -> None:
        shutil.rmtree(self.home / table, ignore_errors=True)

    def versions(self) -> dict[str, str]:
        return {"deltalake": str(self.library.__version__)}


class DuckLake(Contender):
    """DuckDB's lakehouse, with its catalog in a DuckDB file."""

    def __init__(self, home: Path, data: Path) -> None:
        super().__init__(home, data)
        import duckdb

        self.database: Any = duckdb.connect(config={"threads": THREADS, "memory_limit": "2GB"})
        packages = Path(duckdb.__file__).parents[1]
        (extension,) = packages.glob(
            "duckdb_extension_ducklake/extensions/*/ducklake.duckdb_extension"
        )
        self.database.execute(f"LOAD '{extension}'")
        self.database.execute(
            f"ATTACH 'ducklake:{home}/catalog.ducklake' AS lake (DATA_PATH '{home}/data')"
        )

    def load(self, table: str, rows: Any) -> None:
        columns = SCHEMA.replace(" string", " varchar")
        self.database.execute(f"CREATE TABLE lake.{table} ({columns})")
        self.insert(table, rows)

    def insert(self, table: str, rows: Any) -> None:
        self.database.register("given", rows)
        self.database.execute(f"INSERT INTO lake.{table} SELECT * FROM given")
        self.database.unregister("given")

    def query(self, table: str, text: str) -> Sequence[Any]:
        row: Sequence[Any] = self.database.execute(text.format(table=f"lake.{table}")).fetchone()
        return row

    def change(self, table: str, phase: str) -> None:
        self.database.execute(change(f"lake.{table}", phase))

    def merge(self, table: str, rows: Any) -> None:
        self.database.register("given", rows)
        self.database.execute(merge(f"lake.{table}", "given"))
        self.database.unregister("given")

    def compact(self, table: str) -> None:
        for call in (
            "ducklake_flush_inlined_data('lake')",
            f"ducklake_rewrite_data_files('lake', '{table}', delete_threshold => 0)",
            "ducklake_merge_adjacent_files('lake')",
        ):
            self.database.execute(f"CALL {call}").fetchall()

    def drop(self, table: str) -> None:
        self.database.execute(f"DROP TABLE lake.{table}")

    def versions(self) -> dict[str, str]:
        import duckdb

        return {"duckdb": str(duckdb.__version__)}

    def close(self) -> None:
        self.database.close()


CONTENDERS: dict[str, type[Contender]] = {
    "local": Ours,
    "local-parquet": LocalOnParquet,
    "spark": SparkTables,
    "plain-orc": PlainOrc,
    "delta-rs": DeltaRs,
    "ducklake": DuckLake,
}
PEERS = ("delta-rs", "ducklake")
"""Those that need packages of their own, in an environment of their own."""
