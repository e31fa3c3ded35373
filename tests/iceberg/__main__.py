"""`make lab-readers`: what readers of Iceberg and DuckLake find of random histories of ten tables.

    python -m tests.iceberg [--seed N] [--commits N] [--readers NAMES] [--tables N] [--out FILE]

After each tenth commit, each of the readers (of python, duckdb, spark and trino; default: the first
two) reads each table, or so many of them, as it is now and at three older snapshots. pyiceberg and
Polars read metadata files; a plain DuckDB these, the REST catalog, and DuckLake; Spark and Trino
the REST catalog. A reader that can't be had is skipped, and a line says why. Exit code 1 if a
reader found other rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import temporary_warehouse
from tests.gateway.test_rest_catalog import serving
from tests.iceberg.asked_readers import in_duckdb, in_python
from tests.iceberg.jvm_readers import Skipped, SparkReader, TrinoReader
from tests.iceberg.plain_duckdb import PlainDuckDB
from tests.iceberg.reading_histories import Loads, ReadHistories

READERS = ("python", "duckdb", "spark", "trino")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.iceberg")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--readers", default="python,duckdb")
    parser.add_argument("--tables", type=int)
    parser.add_argument("--home", type=Path, default=TrinoReader.HOME)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory()))
        warehouse = running.enter_context(temporary_warehouse(scratch / "wh", None, "local"))
        address = running.enter_context(serving(warehouse)).address

        def loads(reader: str) -> Loads:
            """Raises Skipped."""
            match reader:
                case "python":
                    return in_python
                case "duckdb":
                    duckdb = PlainDuckDB.start(scratch)
                    if duckdb is None:
                        raise Skipped("the packages of a plain DuckDB can't be installed")
                    running.callback(duckdb.close)
                    return lambda files: in_duckdb(
                        duckdb, files, address, warehouse.export_ducklake().catalog
                    )
                case "spark":
                    spark = running.enter_context(SparkReader.started(scratch, address))
                    return lambda _: {"Spark": spark.find}
            trino = running.enter_context(TrinoReader.started(given.home, scratch, address))
            return lambda _: {"Trino": trino.find}

        readers = []
        for name in given.readers.split(","):
            if name not in READERS:
                parser.error(f"no reader {name}: {', '.join(READERS)}")
            try:
                readers.append(loads(name))
            except Skipped as error:
                print(f"skipped: {name}, {error}")
        run = ReadHistories(warehouse, given.seed, readers, print, tables=given.tables)
        run.commits(given.commits)
    page = run.page(given.commits)
    print(page)
    if given.out:
        given.out.write_text(page)
    return bool(run.wrong)


if __name__ == "__main__":
    sys.exit(main())
