"""A contender: the same few calls, whatever runs them; and ours, which every comparison has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from benchmarks.comparison.statements import ASSIGNED, MERGED, SCHEMA, WHERE

Engine = Literal["auto", "spark", "local"]


def tree_bytes(directory: Path) -> int:
    """Bytes of the files below, without the checksums that only Hadoop's local file system has."""
    files = (path for path in directory.rglob("*") if path.suffix != ".crc" and path.is_file())
    return sum(path.stat().st_size for path in files)


class Contender(ABC):
    """A table format under test. Sources are Arrow tables in memory: their reading is not timed."""

    def __init__(self, home: Path, data: Path) -> None:
        self.home, self.data = home, data
        home.mkdir(parents=True, exist_ok=True)

    def source(self, name: str) -> Any:
        """The rows of a file, in memory."""
        import pyarrow.parquet

        return pyarrow.parquet.read_table(self.data / f"{name}.parquet").combine_chunks()

    @abstractmethod
    def load(self, table: str, rows: Any) -> None:
        """Creates the table with these rows."""

    @abstractmethod
    def insert(self, table: str, rows: Any) -> None: ...

    @abstractmethod
    def query(self, table: str, text: str) -> Sequence[Any]:
        """The first row of a query, in which `{table}` stands for the table."""

    @abstractmethod
    def change(self, table: str, phase: str) -> None:
        """UPDATE or DELETE, see `statements.WHERE`."""

    @abstractmethod
    def merge(self, table: str, rows: Any) -> None: ...

    @abstractmethod
    def compact(self, table: str) -> None: ...

    @abstractmethod
    def drop(self, table: str) -> None: ...

    @abstractmethod
    def versions(self) -> dict[str, str]: ...

    def settings(self) -> dict[str, str]:
        """What differs from the defaults."""
        return {}

    def clean(self, table: str) -> None:
        """Removes the files that compaction has replaced."""
        raise NotImplementedError

    def size(self, table: str) -> int:
        """Bytes of the table's files."""
        return tree_bytes(self.home / table)

    def close(self) -> None:  # noqa: B027, most have nothing to end
        """Ends what the contender has started."""


class Ours(Contender):
    """Our tables; `engine` runs all statements, or `auto` chooses for each."""

    engine: ClassVar[Engine] = "local"
    # With the default limit, Spark would have to run what reads 6 million rows.
    warehouse_settings: ClassVar[Mapping[str, str]] = {"acid.local.max.bytes": str(1 << 40)}

    def __init__(self, home: Path, data: Path) -> None:
        super().__init__(home, data)
        from acid_platform import Warehouse

        self.warehouse = Warehouse.open(
            home / "warehouse", settings=self.warehouse_settings, engine=self.engine
        )

    def load(self, table: str, rows: Any) -> None:
        self.warehouse.create_table(f"bench.{table}", SCHEMA).insert(rows)

    def insert(self, table: str, rows: Any) -> None:
        self.warehouse.table(f"bench.{table}").insert(rows)

    def query(self, table: str, text: str) -> Sequence[Any]:
        result: Any = self.warehouse.sql(text.format(table=f"bench.{table}"))
        row: Sequence[Any] = result.collect()[0]
        return row

    def change(self, table: str, phase: str) -> None:
        target = self.warehouse.table(f"bench.{table}")
        if phase == "update":
            target.update(ASSIGNED, WHERE[phase])
        else:
            target.delete(WHERE[phase])

    def merge(self, table: str, rows: Any) -> None:
        self.warehouse.table(f"bench.{table}").merge(
            rows,
            "t.l_id = s.l_id",
            when_matched_update={name: f"s.{name}" for name in MERGED},
            when_not_matched_insert="*",
        )

    def compact(self, table: str) -> None:
        rows = self.warehouse.table(f"bench.{table}").compact("major")
        if not rows:
            raise RuntimeError("nothing was compacted")

    def clean(self, table: str) -> None:  # noqa: ARG002, the Cleaner cleans all tables
        from acid_platform.services import cleaner

        self.warehouse.release()
        failed = [done.error for done in cleaner.run(self.warehouse.metastore) if done.error]
        if failed:
            raise RuntimeError(str(failed))

    def size(self, table: str) -> int:
        return tree_bytes(Path(self.warehouse.table(f"bench.{table}").location))

    def drop(self, table: str) -> None:
        self.warehouse.release()
        self.warehouse.drop_table(f"bench.{table}")
        self.clean(table)

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {name: version(name) for name in ("duckdb", "pyarrow", "pyspark")}

    def close(self) -> None:
        self.warehouse.close()
        from acid_platform.metastore.client.metastore import Metastore

        with Metastore.connect(self.home / "warehouse") as metastore:
            metastore.stop()


class OursInSpark(Ours):
    engine: ClassVar[Engine] = "spark"
