"""What Spark answers to the queries of TPC-H and TPC-DS, and whether another answer is the same."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from acid_platform import Warehouse
from benchmarks.tpc.data import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "tpc"
"""Where the packages of packages.txt are, and the rows of each scale."""
_TYPES = {"int64": "bigint", "int32": "int", "date32[day]": "date", "double": "double"}


def fetch(scale: str) -> Path:
    """The folder with the rows and queries of a scale; makes them if they are not there.

    Raises CalledProcessError if the packages can't be had.
    """
    packages, folder = BUILD / "packages", BUILD / f"scale-{scale}"
    if not (packages / "duckdb").is_dir():
        uv = Path(sys.executable).parent / "uv"
        requirements = HERE / "packages.txt"
        command = [str(uv), "pip", "install", "--quiet", "--python", sys.executable]
        command += ["--target", str(packages), "--require-hashes", "-r", str(requirements)]
        subprocess.run(command, check=True)
    if not (folder / "queries.json").is_file():
        environment = {**os.environ, "PYTHONPATH": str(packages)}
        command = [sys.executable, str(HERE / "data.py"), str(folder), scale]
        subprocess.run(command, check=True, env=environment)
    return folder


def declared(schema: pa.Schema) -> list[str]:
    """The columns of a table for Spark and for us."""
    columns = []
    for field in schema:
        kind = "string" if pa.types.is_string(field.type) else _TYPES.get(str(field.type), "")
        if pa.types.is_decimal(field.type):
            kind = f"decimal({field.type.precision},{field.type.scale})"
        columns.append(f"{field.name} {kind}")
    return columns


@dataclass(frozen=True)
class Answer:
    """Spark's answer to a query; `refused` is its error instead."""

    benchmark: str
    number: str
    text: str
    """The query, whose LIMIT comes after an order of all columns: no rows are as good as others."""
    rows: pa.Table | None
    types: list[str]
    seconds: float
    refused: str = ""

    @property
    def name(self) -> str:
        return f"{self.benchmark} {self.number}"

    def difference(self, rows: pa.Table, types: list[str]) -> str:
        """How an answer differs; nothing if it does not. Sums of doubles may, in their last bits,
        and rows between which the order does not decide may change places."""
        assert self.rows is not None
        if rows.column_names != self.rows.column_names:
            return f"columns {rows.column_names}, not {self.rows.column_names}"
        if types != self.types:
            return f"types {types}, not {self.types}"
        ours, theirs = (_listed(table) for table in (rows, self.rows))
        if not _alike(ours, theirs) and not _alike(
            sorted(ours, key=_key), sorted(theirs, key=_key)
        ):
            return f"{len(ours)} rows {ours[:2]}, not {len(theirs)} {theirs[:2]}"
        return ""


def _listed(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _key(row: tuple[object, ...]) -> tuple[tuple[bool, str], ...]:
    return tuple((v is None, f"{v:.9g}" if isinstance(v, float) else str(v)) for v in row)


def _alike(ours: list[tuple[object, ...]], theirs: list[tuple[object, ...]]) -> bool:
    def same(a: object, b: object) -> bool:
        both = isinstance(a, float) and isinstance(b, float)
        return a == b or (both and math.isclose(a, b, rel_tol=1e-9))  # type: ignore[arg-type]

    return len(ours) == len(theirs) and all(
        all(map(same, a, b)) for a, b in zip(ours, theirs, strict=True)
    )


def decided(text: str, columns: int) -> str:
    """The query with all its columns at the end of ORDER BY, where LIMIT stands behind it."""
    parts = re.fullmatch(r"(.*?)\s+LIMIT\s+(\d+)\s*", text, re.S | re.I)
    if parts is None:
        return text
    head, number = parts.groups()
    tail = ", ".join(map(str, range(1, columns + 1)))
    ordered = re.search(r"ORDER\s+BY(?!.*\bFROM\b)", head, re.S | re.I)
    return f"{head}{', ' if ordered else ' ORDER BY '}{tail} LIMIT {number}"


def answers(folder: Path, session: SparkSession, kinds: tuple[str, ...]) -> Iterator[Answer]:
    """Spark's answers over the Parquet files; each is computed once and kept beside them."""
    queries = json.loads((folder / "queries.json").read_text())
    for kind in kinds:
        opened = False
        for number, text in queries[kind].items():
            kept = folder / "answers" / f"{kind}-{number}.parquet"
            told = kept.with_suffix(".json")
            if not told.is_file():
                if not opened:
                    views(folder / kind, session)
                    opened = True
                _ask(session, text, kept, told)
            facts = json.loads(told.read_text())
            rows = None if facts["refused"] else pq.read_table(kept)
            yield Answer(kind, number, rows=rows, **facts)


def views(folder: Path, session: SparkSession) -> None:
    for path in sorted(folder.glob("*.parquet")):
        schema = ", ".join(declared(pq.read_schema(path)))
        session.read.schema(schema).parquet(str(path)).createOrReplaceTempView(path.stem)


def _ask(session: SparkSession, text: str, kept: Path, told: Path) -> None:
    from pyspark.errors import PySparkException

    kept.parent.mkdir(exist_ok=True)
    facts = {"text": text, "types": [], "seconds": 0.0, "refused": ""}
    try:
        facts["text"] = text = decided(text, len(session.sql(text).schema))
        began = time.perf_counter()
        frame = session.sql(text)
        rows = frame.toArrow()
        facts["seconds"] = round(time.perf_counter() - began, 3)
        facts["types"] = [field.dataType.simpleString() for field in frame.schema]
        pq.write_table(rows, kept)
    except PySparkException as error:
        facts["refused"] = str(error).partition("\n")[0]
    told.write_text(json.dumps(facts))


def load(warehouse: Warehouse, folder: Path) -> None:
    """The tables of all benchmarks, each in a database of its name."""
    for kind in KINDS:
        warehouse.sql(f"CREATE DATABASE {kind}")
        for path in sorted((folder / kind).glob("*.parquet")):
            rows = pq.read_table(path)
            table = warehouse.create_table(f"{kind}.{path.stem}", ", ".join(declared(rows.schema)))
            table.insert(rows, engine="local")
