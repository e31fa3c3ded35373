"""Rows and queries of TPC-H and TPC-DS, by two extensions of a DuckDB of its own.

`python data.py FOLDER SCALE` runs with the packages of packages.txt, and with nothing of ours. It
writes the tables as Parquet files, and `queries.json`: by benchmark and number the text in Spark's
SQL, where a name stands in backticks.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

KINDS = {"h": ("tpch", "dbgen"), "ds": ("tpcds", "dsdgen")}
"""By its folder the extension, and what makes its rows."""


def make(folder: Path, scale: str) -> None:
    duckdb: Any = import_module("duckdb")
    extensions: Any = import_module("duckdb_extensions")
    queries: dict[str, dict[str, str]] = {}
    for kind, (extension, generator) in KINDS.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        connection = duckdb.connect()
        extensions.import_extension(extension)
        connection.execute(f"LOAD {extension}; CALL {generator}(sf={scale})")
        for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            path = folder / kind / f"{table}.parquet"
            connection.execute(f"COPY {table} TO '{path}' (FORMAT parquet)")
        found = connection.execute(f"SELECT query_nr, query FROM {extension}_queries()").fetchall()
        queries[kind] = {
            str(number): re.sub(r'"([^"\n]+)"', r"`\1`", text.strip().rstrip(";"))
            for number, text in found
        }
        connection.close()
    (folder / "queries.json").write_text(json.dumps(queries, indent=1))


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2])
