"""`python -m tests.interop.latency`: how fast the gateway is, beside Hive's own metastore.

Both answer the same calls of one client in turn, and then the same statements of one Trino. Hive's
metastore keeps its data in Derby.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acid_platform import Warehouse
from acid_platform.gateway.hive_client import Hive
from acid_platform.gateway.protocol import load
from acid_platform.gateway.registering import register
from benchmarks.results import machine
from tests.conftest import temporary_warehouse
from tests.gateway.clients import (
    INSERT,
    SELECT,
    Statement,
    connected,
    files,
    insert_events,
    shown,
)
from tests.interop.history import gate_of
from tests.interop.hive_metastore import VERSION as HIVE
from tests.interop.hive_metastore import HiveMetastore
from tests.interop.trino import VERSION, Trino, Unavailable

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = "s.measured"
GATEWAY, METASTORE = "gateway", f"Hive {HIVE} with Derby"
Times = dict[str, dict[str, list[float]]]
"""Milliseconds by what was done and by whom."""


class Clock:
    def __init__(self) -> None:
        self.times: Times = {}

    @contextmanager
    def of(self, what: str, who: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        took = (time.perf_counter() - began) * 1000
        self.times.setdefault(what, {}).setdefault(who, []).append(took)

    def shown(self) -> dict[str, dict[str, dict[str, float]]]:
        return {
            what: {
                who: {
                    "median_ms": round(statistics.median(values), 2),
                    "p95_ms": round(sorted(values)[int(len(values) * 0.95)], 2),
                    "runs": len(values),
                }
                for who, values in by.items()
            }
            for what, by in self.times.items()
        }


def calls(clock: Clock, who: str, client: Any) -> None:
    """A read and an insert without files, as engines send them."""
    with clock.of("get_table_req", who):
        shown(client, TABLE)
    with clock.of("open_txns", who):
        reader = Statement(client)
    with clock.of("lock for a read", who):
        reader.lock(TABLE, SELECT)
    with clock.of("get_open_txns and get_valid_write_ids", who):
        reader.sees(TABLE)
    with clock.of("commit_txn of a read", who):
        reader.commit()
    writer = Statement(client)
    with clock.of("lock for an insert", who):
        writer.lock(TABLE, INSERT)
    with clock.of("allocate_table_write_ids", who):
        writer.allocate(TABLE)
    with clock.of("heartbeat_txn_range", who):
        writer.heartbeat()
    with clock.of("commit_txn of an insert without files", who):
        writer.commit()


def insert(clock: Clock, client: Any) -> None:
    """An insert with a file, whose footer the gateway reads and which it syncs."""
    writer = Statement(client)
    writer.lock(TABLE, INSERT)
    write_id = writer.allocate(TABLE)
    files(client, TABLE).inserts(f"d{write_id}", insert_events(write_id, [(write_id, "a")]))
    with clock.of("commit_txn of an insert with a file", GATEWAY):
        writer.commit()


def alternately(rounds: int, warm: int, sides: dict[str, Callable[[Clock], None]]) -> Clock:
    clock = Clock()
    for number in range(-warm, rounds):
        for run in sides.values():
            run(Clock() if number < 0 else clock)
    return clock


def statements(clock: Clock, who: str, trino: Trino, number: int) -> None:
    catalog = "acid" if who == GATEWAY else "hive"

    def run(statement: str) -> None:
        trino.sql(statement, catalog=catalog, schema="made")

    with clock.of("INSERT", who):
        run(f"INSERT INTO one VALUES ({number}, 'a')")
    with clock.of("UPDATE", who):
        run(f"UPDATE one SET v = 'b' WHERE id = {number}")
    with clock.of("SELECT", who):
        run(f"SELECT count(*) FROM one WHERE id = {number}")


def with_trino(home: Path, scratch: Path, rounds: int, catalogs: dict[str, Any]) -> Clock:
    """Raises Unavailable."""
    trino = Trino(home, scratch / "trino", catalogs)
    try:
        trino.await_start()
        for catalog in catalogs:
            trino.sql("CREATE SCHEMA made", catalog=catalog)
            made = "CREATE TABLE one (id integer, v varchar) WITH (transactional = true)"
            trino.sql(made, catalog=catalog, schema="made")
        number = iter(range(10_000))
        return alternately(
            rounds,
            5,
            {
                who: lambda clock, who=who: statements(clock, who, trino, next(number))  # type: ignore[misc]
                for who in (GATEWAY, METASTORE)
            },
        )
    finally:
        trino.stop()


def per_second(clock: Clock) -> dict[str, float]:
    """Statements per second of one client, over all kinds."""
    totals: dict[str, list[float]] = {}
    for by in clock.times.values():
        for who, values in by.items():
            totals.setdefault(who, []).extend(values)
    return {who: round(1000 * len(some) / sum(some), 2) for who, some in totals.items()}


def measured(ours: Warehouse, chosen: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Raises Unavailable."""
    metastore = HiveMetastore(chosen.home, scratch / "hive")
    try:
        metastore.await_start()
        ours.create_table(TABLE, "id int, v string")
        with Hive(metastore.address) as hive:
            list(register(ours.metastore, hive))
        theirs = (metastore.address.host, metastore.address.port)
        with gate_of(Path(ours.path), scratch / "gateway.log") as gate:
            with connected(gate.address) as first, connected(theirs) as second:
                clock = alternately(
                    chosen.rounds,
                    20,
                    {
                        GATEWAY: lambda clock: calls(clock, GATEWAY, first),
                        METASTORE: lambda clock: calls(clock, METASTORE, second),
                    },
                )
                clock.times |= alternately(
                    chosen.rounds, 5, {GATEWAY: lambda clock: insert(clock, first)}
                ).times
            result: dict[str, Any] = {"calls": clock.shown()}
            catalogs = {"acid": gate.address, "hive": theirs}
            trino = with_trino(chosen.home, scratch, chosen.statements, catalogs)
            result[f"Trino {VERSION}"] = trino.shown()
            result["statements per second"] = per_second(trino)
            return result
    finally:
        metastore.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.latency")
    parser.add_argument("--home", type=Path, default=ROOT / "var" / "interop")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--statements", type=int, default=25)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    load()
    chosen.home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        try:
            with temporary_warehouse(Path(name) / "wh", engine="local") as ours:
                result = measured(ours, chosen, Path(name))
        except Unavailable as missing:
            print(f"latency: skipped: {missing}", file=sys.stderr)
            return 0
    text = json.dumps({"machine": machine(), **result}, indent=1)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
