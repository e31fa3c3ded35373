"""Rows like TPC-H's lineitem as Parquet files, and what every statement should answer on them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb

from benchmarks.comparison.statements import (
    MERGED,
    NAMES,
    SMALL_INSERTS,
    SMALL_ROWS,
    WHERE,
    change,
    queries,
    sums,
)
from benchmarks.comparison.texts import canonical

_MODES = "['AIR','FOB','MAIL','RAIL','SHIP','TRUCK','REG AIR']"
_WORDS = (
    "['carefully','quickly','final','deposits','packages','furiously','ironic','requests',"
    "'accounts','sleep','pending','special','express','instructions','bold','even']"
)
_MERGE_EVERY = 36
"""The source of MERGE has every 36th id up to 12/11 of the rows, so that one in twelve is new."""


def row_query(ids: str, rows: int, seed: int) -> str:
    """A SELECT of rows for the numbers `i` of `ids`; the same for the same seed."""

    def mixed(salt: int) -> str:
        return f"hash(i, {seed * 100 + salt})"

    def word(salt: int) -> str:
        return f"{_WORDS}[({mixed(salt)} % 16)::INT + 1]"

    return (
        f"SELECT i::BIGINT l_id, ({mixed(1)} % {max(1, rows // 30)} + 1)::INT l_partkey,"
        f" (i % 7 + 1)::INT l_linenumber, ({mixed(2)} % 50 + 1)::INT l_quantity,"
        f" (({mixed(3)} % 10000000)::DOUBLE / 100)::DECIMAL(12,2) l_extendedprice,"
        f" ({mixed(4)} % 9)::DOUBLE / 64 l_tax,"
        f" DATE '1992-01-02' + ({mixed(5)} % 2520)::INT l_shipdate,"
        f" make_timestamp((694224000 + ({mixed(6)} % 220000000)::BIGINT) * 1000000) l_commit,"
        f" {_MODES}[({mixed(7)} % 7)::INT + 1] l_shipmode,"
        f" CASE WHEN {mixed(8)} % 2 = 0 THEN 'N' ELSE 'R' END l_returnflag,"
        f" concat_ws(' ', {word(9)}, {word(10)}, {word(11)}, i::VARCHAR) l_comment FROM {ids}"
    )


def make(directory: Path, rows: int) -> None:
    """Writes `base.parquet`, `merge.parquet`, `small_NN.parquet`, and `expected.json` for each
    phase, unless they are there."""
    if (directory / "expected.json").exists():
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    database = duckdb.connect()
    database.execute("SET memory_limit = '4GB'; SET threads = 2")
    sources = {
        "base": row_query(f"range(0, {rows}) t(i)", rows, 1),
        "merge": row_query(
            f"(SELECT i * {_MERGE_EVERY} AS i FROM range(0, {rows // 33}) t(i))", rows, 2
        ),
    }
    for number in range(SMALL_INSERTS):
        low = 2 * rows + number * SMALL_ROWS
        ids = f"range({low}, {low + SMALL_ROWS}) t(i)"
        sources[f"small_{number:02d}"] = row_query(ids, rows, 3)
    for name, query in sources.items():
        database.execute(f"COPY ({query}) TO '{directory}/{name}.parquet' (FORMAT parquet)")
    expected: dict[str, dict[str, list[str]]] = {}

    def note(phase: str) -> None:
        texts = {"sums": sums("t"), **queries("t", rows)}
        expected[phase] = {
            name: canonical(database.execute(text).fetchone() or ()) for name, text in texts.items()
        }

    database.execute(f"CREATE TABLE t AS SELECT * FROM '{directory}/base.parquet'")
    note("load")
    for phase in WHERE:
        database.execute(change("t", phase))
        note(phase)
    values = ", ".join(f"{name} = s.{name}" for name in MERGED)
    source = f"'{directory}/merge.parquet'"
    database.execute(f"UPDATE t SET {values} FROM {source} s WHERE t.l_id = s.l_id")
    database.execute(
        f"INSERT INTO t SELECT {', '.join(NAMES)} FROM {source} s"
        " WHERE s.l_id NOT IN (SELECT l_id FROM t)"
    )
    note("merge")
    database.execute(f"INSERT INTO t SELECT * FROM '{directory}/small_*.parquet'")
    note("inserts")
    expected["compact"] = expected["inserts"]
    database.close()
    (directory / "expected.json").write_text(json.dumps(expected))
