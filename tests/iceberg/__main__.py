"""`make lab-readers`: what readers of Iceberg and DuckLake find of random histories of ten tables.

    python -m tests.iceberg [--seed N] [--commits N] [--out FILE]

After each tenth commit, pyiceberg, Polars and a plain DuckDB (by the REST catalog, and by DuckLake)
read each table as it is now and at three older snapshots. Spark and Trino are not asked. Exit code
1 if a reader found other rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.conftest import temporary_warehouse
from tests.iceberg.plain_duckdb import PlainDuckDB
from tests.iceberg.reading_histories import ReadHistories


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.iceberg")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        duckdb = PlainDuckDB.start(Path(directory))
        if duckdb is None:
            print("skipped: a plain DuckDB, whose packages can't be installed")
        with temporary_warehouse(Path(directory) / "wh", None, "local") as warehouse:
            run = ReadHistories(warehouse, duckdb, given.seed, print)
            run.commits(given.commits)
        if duckdb is not None:
            duckdb.close()
    page = run.page(given.commits)
    print(page)
    if given.out:
        given.out.write_text(page)
    return bool(run.wrong)


if __name__ == "__main__":
    sys.exit(main())
