"""TPC-H and TPC-DS on our tables in Parquet, beside DuckDB on plain Parquet files and DuckLake.

Each query runs by turns: `plain` is DuckDB over files that it wrote itself, `first` our tables in a
process that has kept no column, `again` the next query of that process. `in a row` are all queries
one after the other, each once, in a process that keeps what it may. The seconds are medians of the
rounds, of the wall and of the CPU. With `--changed 1` a twentieth of the rows of each table was
deleted and another one updated, without upkeep, and the plain files hold the rows that are left.
Every answer is compared with that of DuckDB. Tables are made in `--home`, and stay there.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from acid_platform import Warehouse
from acid_platform.scan.kept_columns import KEPT
from benchmarks.comparison.driver import ROOT
from benchmarks.comparison.environment import python_with
from benchmarks.local.__main__ import PACKAGES
from benchmarks.results import options, saved, show
from benchmarks.tpc.answers import BUILD, Answer, declared, fetch
from benchmarks.tpc.data import KINDS
from benchmarks.tpc.lake import conditions
from benchmarks.tpc.measure import on_parquet

SETTINGS = {"acid.format.default": "parquet", "acid.local.max.bytes": str(1 << 40)}
CONTENDERS = ("plain", "first", "in a row", "again", "ducklake")


def make_plain(folder: Path, home: Path) -> None:
    """Writes the rows that the changes leave as plain files of DuckDB."""
    with duckdb.connect() as database:
        for path in sorted(folder.glob("*/*.parquet")):
            if path.parent.name in KINDS:
                deleted, _ = conditions(pq.read_schema(path).names)
                kept = f"SELECT * FROM '{path}' WHERE ({deleted}) IS NOT TRUE"
                target = home / path.parent.name / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                database.execute(f"COPY ({kept}) TO '{target}' (FORMAT parquet)")


def make_ours(warehouse: Warehouse, folder: Path, changed: bool) -> dict[str, float]:
    """Makes the tables; returns the seconds of the loads and of the changes."""
    seconds = {"load": 0.0, "delete": 0.0, "update": 0.0}

    def took(name: str, call: Callable[[], object]) -> None:
        began = time.perf_counter()
        call()
        seconds[name] += time.perf_counter() - began

    for kind in KINDS:
        warehouse.sql(f"CREATE DATABASE {kind}")
        for path in sorted((folder / kind).glob("*.parquet")):
            rows = pq.read_table(path)
            table = warehouse.create_table(f"{kind}.{path.stem}", ", ".join(declared(rows.schema)))
            took("load", partial(table.insert, rows, engine="local"))
            if changed:
                deleted, updated = conditions(rows.schema.names)
                last = rows.schema.names[-1]
                took("delete", partial(table.delete, deleted))
                took("update", partial(table.update, {last: last}, updated))
    return {name: round(taken, 2) for name, taken in seconds.items()}


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """The seconds of a call, of its CPU, and what it returns."""
    began, cpu = time.perf_counter(), time.process_time()
    found = call()
    return time.perf_counter() - began, time.process_time() - cpu, found


class Lake:
    """DuckLake's process."""

    def __init__(self, folder: Path, home: Path, changed: bool) -> None:
        python = python_with(ROOT / "build" / "peers", PACKAGES)
        assert python is not None, "the packages of the peers can't be installed"
        script = Path(__file__).with_name("lake.py")
        words = [str(python), str(script), str(folder), str(home), "changed" * changed]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def _read(self) -> str:
        line = cast(IO[str], self._process.stdout).readline()
        assert line, "DuckLake's process has ended"
        return line

    def ask(self, kind: str, text: str) -> dict[str, Any]:
        stdin = cast(IO[str], self._process.stdin)
        stdin.write(json.dumps({"kind": kind, "text": text}) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(self._read())
        return answer

    def close(self) -> None:
        cast(IO[str], self._process.stdin).close()
        self._process.wait(60)


def texts(folder: Path, kinds: list[str]) -> list[Answer]:
    """The queries as the benchmark `tpc` asks them, with an order that decides all rows."""
    queries = json.loads((folder / "queries.json").read_text())
    found = []
    for kind in kinds:
        for number, text in queries[kind].items():
            told = folder / "answers" / f"{kind}-{number}.json"
            decided = json.loads(told.read_text())["text"] if told.is_file() else text
            found.append(Answer(kind, number, decided, None, [], 0.0))
    return found


def ours(warehouse: Warehouse, answer: Answer) -> pa.Table:
    warehouse.sql(f"USE {answer.benchmark}")
    result: Any = warehouse.sql(answer.text, engine="local")
    return result.to_arrow()


def measured(
    warehouse: Warehouse, plain: Path, lake: Lake | None, answer: Answer, rounds: int
) -> dict[str, Any]:
    """The medians of a query."""
    connection, text = on_parquet(plain, answer)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    row: dict[str, Any] = {"query": answer.name}

    try:
        for _ in range(rounds):
            wall, cpu, theirs = timed(lambda: connection.execute(text).to_arrow_table())
            taken["plain"].append((wall, cpu))
            KEPT.close()
            for name in ("first", "again"):
                wall, cpu, rows = timed(partial(ours, warehouse, answer))
                taken[name].append((wall, cpu))
            if lake is not None and "ducklake refuses" not in row:
                told = lake.ask(answer.benchmark, text)
                if "refused" in told:
                    row["ducklake refuses"] = told["refused"]
                else:
                    taken["ducklake"].append((told["seconds"], told["cpu"]))
        row["difference"] = difference(rows, theirs)
    except duckdb.Error as error:
        row["duckdb refuses"] = str(error).partition("\n")[0]
    finally:
        connection.close()
    for name, pairs in taken.items():
        if pairs:
            row[name], row[f"{name} cpu"] = (
                round(median(each), 4) for each in zip(*pairs, strict=True)
            )
    return row


def difference(ours: pa.Table, theirs: pa.Table) -> str:
    """How the answers differ; nothing if they do not. Averages of decimals have six digits in Spark
    and so in our engine, and are doubles in DuckDB."""
    listed = [
        list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        for table in (ours, theirs)
    ]

    def same(a: Any, b: Any) -> bool:
        numbers = isinstance(a, float | int | Decimal) and isinstance(b, float | int | Decimal)
        return a == b or (numbers and math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-4))

    pairs = zip(*listed, strict=False)
    if len(ours) == len(theirs) and all(all(map(same, a, b)) for a, b in pairs):
        return ""
    return f"{len(ours)} rows {listed[0][:2]}, not {len(theirs)} {listed[1][:2]}"


def main() -> int:
    given = options(
        __doc__, scale="1", rounds=1, changed=0, ducklake=1, only=["h", "ds"], home="", query=""
    )
    folder = fetch(given.scale)
    home = Path(given.home or BUILD / f"beside-{given.scale}") / (
        "changed" * given.changed or "as loaded"
    )
    plain = home / "plain" if given.changed else folder
    if given.changed and not plain.is_dir():
        make_plain(folder, plain)
    made = home / "ours.json"
    with Warehouse.open(home / "warehouse", engine="local", settings=SETTINGS) as warehouse:
        if not made.is_file():
            made.write_text(json.dumps(make_ours(warehouse, folder, bool(given.changed))))
        lake = Lake(folder, home / "ducklake", bool(given.changed)) if given.ducklake else None
        asked = [
            answer
            for answer in texts(folder, given.only)
            if not given.query or answer.name in given.query.split(",")
        ]
        KEPT.close()
        in_row = {each.name: timed(partial(ours, warehouse, each))[:2] for each in asked}
        rows = []
        for answer in asked:
            row = measured(warehouse, plain, lake, answer, given.rounds)
            wall, cpu = in_row[answer.name]
            row |= {"in a row": round(wall, 4), "in a row cpu": round(cpu, 4)}
            rows.append(row)
        if lake is not None:
            lake.close()
    every = [row for row in rows if "plain" in row]
    sums = {
        f"{name}{kind}": round(sum(row.get(f"{name}{kind}", 0.0) for row in every), 3)
        for name in CONTENDERS
        for kind in ("", " cpu")
    }
    told = (
        "query",
        *(f"{name}{kind}" for kind in ("", " cpu") for name in CONTENDERS),
        "difference",
    )
    show(
        f"TPC at scale {given.scale} on Parquet",
        told,
        [
            [str(row.get(name, ""))[:40] for name in told]
            for row in [*rows, {"query": "all", **sums}]
        ],
    )
    print(
        saved(
            given,
            f"tpc-{given.scale}-parquet{'-changed' * given.changed}",
            making=json.loads(made.read_text()),
            sums=sums,
            queries=rows,
        )
    )
    return int(any(row.get("difference") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
