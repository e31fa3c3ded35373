"""The contenders, each as the same few calls. Every one imports its libraries when it is made."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison.contender import Contender, Ours, OursInSpark
from benchmarks.comparison.statements import ASSIGNED, MERGED, NAMES, SCHEMA, WHERE, change, merge

THREADS = 2


def base_rows(spark: Any, data: Path, name: str) -> Any:
    """The rows to load as a frame over their file, whose reading counts; None for other sources.

    Millions of rows of this process would not fit into one message to the JVM.
    """
    if name != "base":
        return None
    return spark.read.schema(SCHEMA).parquet(str(data / f"{name}.parquet"))


class SparkTables(OursInSpark):
    """Our tables, changed by Spark."""

    def source(self, name: str) -> Any:
        found = base_rows(self.warehouse.spark, self.data, name)
        return super().source(name) if found is None else found


class PlainOrc(Contender):
    """Plain ORC files in Spark: no transactions. Only its load and its reads are compared."""

    def __init__(self, home: Path, data: Path) -> None:
        super().__init__(home, data)
        from acid_platform.engine.spark.session import start_session

        self.spark = start_session()

    def source(self, name: str) -> Any:
        found = base_rows(self.spark, self.data, name)
        return super().source(name) if found is None else found

    def _path(self, table: str) -> str:
        return str(self.home / table)

    def load(self, table: str, rows: Any) -> None:
        rows.coalesce(1).write.mode("overwrite").orc(self._path(table))

    def insert(self, table: str, rows: Any) -> None:
        self.spark.createDataFrame(rows).coalesce(1).write.mode("append").orc(self._path(table))

    def query(self, table: str, text: str) -> Sequence[Any]:
        row: Sequence[Any] = self.spark.sql(
            text.format(table="{rows}"), rows=self.spark.read.orc(self._path(table))
        ).collect()[0]
        return row

    def change(self, table: str, phase: str) -> None:
        """Rewrites the table, as plain files need it."""
        rows = self.spark.read.orc(self._path(table))
        if phase == "update":
            touched = f"({WHERE[phase]})"
            names = [
                f"CASE WHEN {touched} THEN {ASSIGNED[name]} ELSE {name} END AS {name}"
                if name in ASSIGNED
                else name
                for name in NAMES
            ]
            changed = rows.selectExpr(*names)
        else:
            changed = rows.filter(f"NOT ({WHERE[phase]})")
        self._replace(table, changed)

    def _replace(self, table: str, rows: Any) -> None:
        rows.write.mode("overwrite").orc(self._path(f"{table}_new"))
        shutil.rmtree(self._path(table))
        os.rename(self._path(f"{table}_new"), self._path(table))

    def merge(self, table: str, rows: Any) -> None:
        source = self.spark.createDataFrame(rows)
        old = self.spark.read.orc(self._path(table))
        joined = old.alias("t").join(source.alias("s"), "l_id", "full")
        names = [
            f"coalesce(s.{name}, t.{name}) AS {name}"
            if name in MERGED
            else name
            if name == "l_id"
            else f"coalesce(t.{name}, s.{name}) AS {name}"
            for name in NAMES
        ]
        self._replace(table, joined.selectExpr(*names))

    def compact(self, table: str) -> None:
        self._replace(table, self.spark.read.orc(self._path(table)).coalesce(1))

    def drop(self, table: str) -> None:
        shutil.rmtree(self._path(table), ignore_errors=True)

    def versions(self) -> dict[str, str]:
        return {"pyspark": str(self.spark.version)}


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
    "spark": SparkTables,
    "plain-orc": PlainOrc,
    "delta-rs": DeltaRs,
    "ducklake": DuckLake,
}
PEERS = ("delta-rs", "ducklake")
"""Those that need packages of their own, in an environment of their own."""
