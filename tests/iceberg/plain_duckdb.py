"""A DuckDB of its own, as an analyst has one: with extensions, and without this platform."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from benchmarks.comparison.environment import python_with

_ROOT = Path(__file__).resolve().parents[2]
_VERSION = "1.5.5"
_EXTENSIONS = ("avro", "ducklake", "httpfs", "iceberg")
PACKAGES = (
    f"duckdb=={_VERSION}",
    "pytz",
    *(f"duckdb-extension-{name}=={_VERSION}" for name in _EXTENSIONS),
)
"""The files of extensions carry DuckDB's signature, which LOAD checks; their Python is not run."""
_READER = """
import json, os, pathlib, sys
import duckdb
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # DuckDB prints how far a long query is
packages = pathlib.Path(duckdb.__file__).parents[1]
connection = duckdb.connect()
for line in sys.stdin:
    asked = json.loads(line)
    try:
        if asked["again"]:
            connection.close()
            connection = duckdb.connect()
            for name in asked["extensions"]:
                (file,) = packages.glob(f"duckdb_extension_{name}/extensions/*/*.duckdb_extension")
                connection.execute(f"LOAD '{file}'")
            connection.execute("SET timezone = 'UTC'")
        answer = {"rows": [connection.execute(each).fetchall() for each in asked["sql"]]}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer, default=str), file=answers, flush=True)
"""


class Refused(Exception):
    """DuckDB's error."""


class PlainDuckDB:
    """A process with a connection. Close it."""

    def __init__(self, python: Path, scratch: Path) -> None:
        self._out = scratch / "rows.parquet"
        pipe = subprocess.PIPE
        command = [str(python), "-c", _READER]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    @classmethod
    def start(cls, scratch: Path) -> PlainDuckDB | None:
        """None if the packages can't be had."""
        python = python_with(_ROOT / "build" / "plain-duckdb", PACKAGES)
        return None if python is None else cls(python, scratch)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def attach(self, source: str, options: str = "READ_ONLY", *extensions: str) -> None:
        """Begins anew, with this source as `lake`. Raises Refused."""
        self._ask([f"ATTACH '{source}' AS lake ({options})"], extensions or ("ducklake",))

    def ask(self, *statements: str) -> list[Any]:
        """The rows of each statement. Raises Refused."""
        return self._ask(statements)

    def _ask(self, sql: Sequence[str], extensions: Sequence[str] = ()) -> list[Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {"sql": sql, "extensions": extensions, "again": bool(extensions)}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        rows: list[Any] = answer["rows"]
        return rows

    def table(self, selected: str) -> pa.Table:
        """The rows of a SELECT, or of what begins with FROM. Raises Refused.

        Without dictionaries, in which DuckDB's writer takes 0.0 and -0.0 for one value.
        """
        self.ask(f"COPY ({selected}) TO '{self._out}' (DICTIONARY_SIZE_LIMIT 0)")
        return parquet.read_table(self._out)
