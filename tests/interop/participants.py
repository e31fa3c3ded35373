"""Who takes part in a mixed history: this platform, Trino and Hive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acid_platform import AcidError, Warehouse
from tests.interop.hive import Session
from tests.interop.model import COLUMNS, Rows, rows_of
from tests.interop.trino import Failed, Trino

SELECTED = f"SELECT {', '.join(COLUMNS)} FROM {{}}"


@dataclass(frozen=True)
class Engine:
    """Somebody who runs statements, one at a time. `read` returns the rows of a table."""

    name: str
    run: Callable[[str], object]
    read: Callable[[str], Rows]
    overwrites: bool = True


def read(warehouse: Warehouse, table: str) -> Rows:
    """What this platform reads. Raises AcidError, ValueError."""
    found = warehouse.sql(SELECTED.format(table)).to_arrow()
    return rows_of(zip(*(column.to_pylist() for column in found.columns), strict=True))


def ours(name: str, path: Path, engine: str = "local") -> Engine:
    """This platform with a connection of its own; the engine `local` needs no JVM."""
    warehouse = Warehouse.open(path, engine=engine)

    def run(statement: str) -> object:
        try:
            return warehouse.sql(statement)
        except AcidError as error:
            raise Failed(f"{type(error).__name__}: {error}") from error

    def rows(table: str) -> Rows:
        try:
            return read(warehouse, table)
        except AcidError as error:
            raise Failed(f"{type(error).__name__}: {error}") from error

    return Engine(name, run, rows)


def of_trino(trino: Trino) -> Engine:
    def read(table: str) -> Rows:
        return rows_of(trino.sql(SELECTED.format(table)))

    return Engine("Trino", trino.sql, read, overwrites=False)


def of_hive(name: str, session: Session) -> Engine:
    def read(table: str) -> Rows:
        return rows_of(line.split("\t") for line in session.sql(SELECTED.format(table)))

    return Engine(name, session.sql, read)
