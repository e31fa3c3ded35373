"""Branches of a warehouse with many tables: how long they take, and what they cost.

The benchmark `branches` declares the tables, makes one branch and then many, writes some tables on
a branch and as many on its parent, merges and drops. The tables are empty: a branch copies no row,
so what is in them does not matter. It needs no JVM. Exit code 1 if a branch took longer than
`--limit` milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from acid_platform import Warehouse
from benchmarks.results import options, saved


def took(work: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work()
    return round(1000 * (time.perf_counter() - started), 2)


def size(warehouse: Warehouse, place: Path) -> dict[str, int]:
    """What the metastore keeps in memory and on disk."""
    files = [file for file in (place / "metastore").rglob("*") if file.is_file()]
    resident = warehouse.metastore.status()["resident_bytes"] >> 20
    return {"resident MB": resident, "bytes on disk": sum(file.stat().st_size for file in files)}


def name_of(number: int) -> str:
    return f"d{number % 10}.t{number}"


def measure(place: Path, tables: int, branches: int, written: int) -> dict[str, Any]:
    """`written`: how many tables get rows on a branch, and as many on its parent."""
    warehouse = Warehouse.open(place, metastore=str(place / "metastore"), engine="local", branch="")
    found: dict[str, Any] = {}

    def declare(first: int, end: int) -> float:
        numbers = range(first, end)
        return took(
            lambda: [
                warehouse.create_table(name_of(number), "id int, v string") for number in numbers
            ]
        )

    def insert(handle: Warehouse, label: str) -> None:
        for number in range(written):
            handle.sql(f"INSERT INTO {name_of(number)} VALUES ({number}, '{label}')")

    try:
        last = min(100, tables)
        found["declare a table, ms"] = round(declare(0, tables - last) / max(1, tables - last), 2)
        found["declare one of the last hundred, ms"] = round(
            declare(tables - last, tables) / last, 2
        )
        found["before"] = size(warehouse, place)
        made = [took(lambda: warehouse.branches.create("first"))]
        found["first branch, ms"] = made[0]
        made += [
            took(lambda name=f"b{number}": warehouse.branches.create(name))  # type: ignore[misc]
            for number in range(1, branches)
        ]
        found["branches, ms"] = {"median": median(made), "most": max(made), "all": round(sum(made))}
        found["with all branches"] = size(warehouse, place)
        found["list of all branches, ms"] = took(warehouse.branches.list)
        found["insert on the parent, ms"] = round(
            took(lambda: insert(warehouse, "parent")) / max(1, written), 2
        )
        with Warehouse.open(place, metastore=str(place / "metastore"), branch="first") as branch:
            found["insert on a branch, ms"] = round(
                took(lambda: insert(branch, "branch")) / max(1, written), 2
            )

        def read() -> None:
            with Warehouse.open(
                place, metastore=str(place / "metastore"), engine="local", branch="first"
            ) as opened:
                assert opened.table(name_of(0)).count() == 1

        found["open a branch and count a table, ms"] = took(read)
        found["merge, ms"] = took(lambda: warehouse.branches.merge("first"))
        for number in range(written):
            assert warehouse.table(name_of(number)).count() == 2
        others = [row.name for row in warehouse.branches.list(judged=False)]
        dropped = [took(lambda name=name: warehouse.branches.drop(name)) for name in others]  # type: ignore[misc]
        found["drop of a branch, ms"] = median(dropped or [0.0])
        found["after"] = size(warehouse, place)
        started = time.perf_counter()
        warehouse.metastore.stop()
        assert len(warehouse.tables()) == tables
        found["restart, s"] = round(time.perf_counter() - started, 2)
    finally:
        warehouse.metastore.stop()
        warehouse.close()
    return found


def main() -> int:
    given = options(__doc__, tables=10_000, branches=1_000, written=1_000, limit=100.0)
    with TemporaryDirectory(prefix="acid-bench-") as place:
        found = measure(Path(place), given.tables, given.branches, given.written)
    for name, figure in found.items():
        print(f"{name}: {figure}")
    saved(given, f"branches-{given.tables}", found=found)
    return 0 if found["first branch, ms"] < given.limit else 1
