"""What telling a commit costs: CPU of this process, and bytes that are written.

python -m tests.iceberg.costs [--files 100 10000] [--commits 1000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from acid_platform import Table, Warehouse
from tests.conftest import temporary_warehouse

_PARTS = 2000
"""Files that one INSERT writes at most."""


def _written(warehouse: Warehouse) -> dict[str, tuple[int, int]]:
    """The size of each file of metadata, and which one it is."""
    return {
        str(path): (path.stat().st_size, path.stat().st_ino)
        for name in ("_iceberg", "_ducklake")
        for path in (Path(warehouse.path) / name).rglob("*")
        if path.is_file()
    }


def _told(warehouse: Warehouse, what: str, export: Callable[[], object]) -> None:
    before, began = _written(warehouse), time.process_time()
    export()
    spent, after = time.process_time() - began, _written(warehouse)
    new = sum(file[0] for path, file in after.items() if before.get(path) != file)
    every = sum(size for size, _ in after.values())
    print(f"{what}: {spent:.2f} s of CPU, {new:,} bytes written, {every:,} in all", flush=True)


def _tell(warehouse: Warehouse, table: Table, what: str) -> None:
    name = table.name
    _told(warehouse, f"{what}, Iceberg", lambda: warehouse.export_iceberg(name))
    _told(warehouse, f"{what}, DuckLake", lambda: warehouse.export_ducklake(name))


def _table(warehouse: Warehouse, name: str, retention: str) -> Table:
    properties = {"acid.format": "parquet", "acid.history.retention": retention}
    columns = "id int, v string, d double, m decimal(9,2), day date"
    parts = ["p int"]
    return warehouse.create_table(name, columns, partitioned_by=parts, properties=properties)


def _rows(first: int, count: int, parts: int) -> list[dict[str, object]]:
    return [
        {"id": n, "v": f"text {n}", "d": n / 7, "m": n % 1000, "day": "2026-11-30", "p": n % parts}
        for n in range(first, first + count)
    ]


def of_files(warehouse: Warehouse, count: int) -> None:
    table = _table(warehouse, f"c.files_{count}", "7d")
    for first in range(0, count, _PARTS):
        some = min(_PARTS, count - first)
        table.insert(_rows(first * 2, some * 2, some))
    _tell(warehouse, table, f"{count} files")
    table.delete("id = 7")
    _tell(warehouse, table, f"{count} files, a commit that deletes a row")
    table.insert(_rows(count * 10, 1, 1))
    _tell(warehouse, table, f"{count} files, a commit that inserts a row")


def of_commits(warehouse: Warehouse, count: int, retention: str) -> None:
    table = _table(warehouse, f"c.commits_{retention}", retention)
    for number in range(count):
        table.insert(_rows(number, 1, 1)) if number % 4 else table.delete(f"id = {number - 2}")
        if number % 100 == 99:
            _tell(warehouse, table, f"{number + 1} commits, retention {retention}, 100 of them new")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.iceberg.costs")
    parser.add_argument("--files", type=int, nargs="*", default=[100, 10_000])
    parser.add_argument("--commits", type=int, default=1000)
    given = parser.parse_args()
    for count in given.files:
        with (
            tempfile.TemporaryDirectory() as directory,
            temporary_warehouse(Path(directory) / "wh", None, "local") as warehouse,
        ):
            of_files(warehouse, count)
    for retention in ("0", "7d") if given.commits else ():
        with (
            tempfile.TemporaryDirectory() as directory,
            temporary_warehouse(Path(directory) / "wh", None, "local") as warehouse,
        ):
            of_commits(warehouse, given.commits, retention)


if __name__ == "__main__":
    main()
