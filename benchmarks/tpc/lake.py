"""A process with DuckLake's tables of TPC, with the packages of the peers and nothing of ours.

`python lake.py FOLDER HOME` makes the tables of the rows in FOLDER, unless HOME has them; with a
third word `changed` rows are deleted and updated. Then each line of its input is a query as JSON,
and each line of its output the seconds, the seconds of CPU and the number of rows of the answer.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any


def key_of(names: list[str]) -> str:
    """The column by whose number rows are chosen: in tables of sales the item, by which their rows
    are not in order."""
    return next((name for name in names if name.endswith("item_sk")), names[0])


def conditions(names: list[str]) -> tuple[str, str]:
    """The rows of a table with these columns to delete, and those to update: a twentieth each."""
    return f"{key_of(names)} % 20 = 7", f"{key_of(names)} % 20 = 11"


def main(folder: Path, home: Path, changed: bool) -> None:
    duckdb: Any = import_module("duckdb")
    database = duckdb.connect(config={"threads": 2, "memory_limit": "2GB"})
    packages = Path(duckdb.__file__).parents[1]
    (extension,) = packages.glob("duckdb_extension_ducklake/extensions/*/ducklake.duckdb_extension")
    database.execute(f"LOAD '{extension}'")
    made = (home / "catalog.ducklake").is_file()
    home.mkdir(parents=True, exist_ok=True)
    database.execute(f"ATTACH 'ducklake:{home}/catalog.ducklake' AS lake (DATA_PATH '{home}/data')")
    for path in sorted(folder.glob("*/*.parquet")):
        kind, table = path.parent.name, f"lake.{path.parent.name}.{path.stem}"
        if made or kind not in ("h", "ds"):
            continue
        database.execute(f"CREATE SCHEMA IF NOT EXISTS lake.{kind}")
        database.execute(f"CREATE TABLE {table} AS SELECT * FROM '{path}'")
        if changed:
            names = [row[0] for row in database.execute(f"DESCRIBE {table}").fetchall()]
            deleted, updated = conditions(names)
            database.execute(f"DELETE FROM {table} WHERE {deleted}")
            last = names[-1]
            database.execute(f"UPDATE {table} SET {last} = {last} WHERE {updated}")
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        database.execute(f"USE lake.{asked['kind']}")
        began, cpu = time.perf_counter(), time.process_time()
        try:
            rows = database.execute(asked["text"]).to_arrow_table().num_rows
        except duckdb.Error as error:
            print(json.dumps({"refused": str(error).partition("\n")[0]}), flush=True)
            continue
        taken = time.perf_counter() - began, time.process_time() - cpu
        print(json.dumps({"seconds": taken[0], "cpu": taken[1], "rows": rows}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "changed")
