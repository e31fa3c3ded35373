"""`make interop`: Trino reads and writes our tables through the gateway, and both sides agree.

    python -m tests.interop [--home DIR] [--races N]

Trino's server is fetched once by Maven into `--home` (821 MB). Where it can't be had, nothing is
tested and a message says so. Each check prints one line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from acid_platform.gateway.gateway import Gateway
from acid_platform.gateway.protocol import Call, Undecodable
from acid_platform.gateway.server import Server
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from acid_platform.warehouse import Warehouse
from tests.conftest import temporary_warehouse
from tests.interop.trino import Failed, Trino, Unavailable

ROOT = Path(__file__).resolve().parent.parent.parent

NOTED = ("open_txns", "lock", "add_dynamic_partitions", "create_table", "get_table_req")
"""Calls whose arguments go into the log."""


class Recorder(Gateway):
    """A gateway that notes the calls of each statement, with the milliseconds of each."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.calls: list[tuple[str, float, str]] = []
        self.noted: list[str] = []

    def answer(self, payload: bytes, peer: str) -> bytes:
        began = time.perf_counter()
        answer = super().answer(payload, peer)
        try:
            call = Call.decode(payload)
            told = "" if answer[3] == 2 else answer[8:300].decode(errors="replace")
            self.calls.append((call.name, (time.perf_counter() - began) * 1000, told))
            if call.name in NOTED:
                self.noted.append(f"{call.name}{call.arguments}")
        except Undecodable as error:
            self.calls.append(("?", 0.0, str(error)))
        return answer


class Interop:
    """The checks, with the engines that they need."""

    def __init__(self, warehouse: Warehouse, trino: Trino, gateway: Recorder, log: Path) -> None:
        self.warehouse, self.trino, self.gateway = warehouse, trino, gateway
        self._log = log.open("w")
        self.failures: list[str] = []
        self.passed = 0

    def run(self, statement: str) -> list[list[Any]]:
        """A statement of Trino; its calls go into the log."""
        self.gateway.calls.clear()
        self.gateway.noted.clear()
        began = time.perf_counter()
        try:
            return self.trino.sql(statement)
        finally:
            entry = {
                "sql": statement,
                "ms": round((time.perf_counter() - began) * 1000),
                "calls": [name for name, _, _ in self.gateway.calls],
                "arguments": self.gateway.noted[:],
                "failed": [one for one in self.gateway.calls if one[2]],
            }
            self._log.write(json.dumps(entry) + "\n")
            self._log.flush()

    def check(self, what: str, good: bool, detail: object = "") -> None:
        print(f"{'ok  ' if good else 'BAD '} {what}" + ("" if good else f": {detail}"), flush=True)
        if good:
            self.passed += 1
        else:
            self.failures.append(what)

    def same(self, table: str, what: str) -> None:
        """Trino reads what this platform reads."""
        ours = our_rows(self.warehouse, table)
        try:
            theirs = sorted(tuple(map(str, row)) for row in self.run(f"SELECT * FROM {table}"))
        except Failed as error:
            self.check(f"{what}: {table}", False, error)
            return
        self.check(f"{what}: {len(ours)} rows of {table}", ours == theirs, (ours, theirs))

    def does(self, statement: str, table: str) -> None:
        """Trino runs the statement, and then both read the same."""
        try:
            self.run(statement)
        except Failed as error:
            self.check(statement, False, error)
            return
        self.same(table, statement[:60])


def our_rows(warehouse: Warehouse, table: str) -> list[tuple[str, ...]]:
    """The rows as the texts that Trino's JSON has, sorted."""
    read = warehouse.table(f"db.{table}").to_arrow()
    columns = [column.to_pylist() for column in read.columns]
    return sorted(tuple(map(_text, row)) for row in zip(*columns, strict=True))


def _text(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "microseconds") + "000"
    if isinstance(value, datetime.date | Decimal | int | float | str | bool):
        return str(value)
    return str(value)


def make_tables(warehouse: Warehouse) -> None:
    """Tables as our own engine writes them: changed, compacted, partitioned, insert-only."""
    warehouse.create_table(
        "db.plain", "id int, v string, n bigint, d double, x decimal(9,2), e date, ts timestamp"
    )
    values = ", ".join(
        f"({n}, {'NULL' if n % 7 == 0 else repr(f'näme {n}')}, {n * 10**10}, {n / 4}, {n}.25,"
        f" DATE '2024-01-{n % 28 + 1:02d}', TIMESTAMP '2024-03-01 12:{n % 60:02d}:00.123456')"
        for n in range(60)
    )
    warehouse.sql(f"INSERT INTO db.plain VALUES {values}")
    warehouse.sql("UPDATE db.plain SET v = 'ours' WHERE id % 10 = 3")
    warehouse.sql("DELETE FROM db.plain WHERE id % 9 = 0")
    warehouse.create_table("db.parts", "id int, v string", partitioned_by=["city string"])
    warehouse.sql(
        "INSERT INTO db.parts VALUES (1, 'a', 'Zürich'), (2, 'b', 'a b'), (3, 'c', 'x/y=1'),"
        " (4, 'd', NULL), (5, 'e', 'a b')"
    )
    warehouse.sql("DELETE FROM db.parts WHERE id = 5")
    warehouse.create_table("db.merged", "id int, v string")
    warehouse.sql("INSERT INTO db.merged VALUES " + ", ".join(f"({n}, 'a')" for n in range(40)))
    warehouse.sql("DELETE FROM db.merged WHERE id < 5")
    warehouse.table("db.merged").compact("major")
    warehouse.sql("UPDATE db.merged SET v = 'b' WHERE id = 7")
    warehouse.create_table("db.truncated", "id int, v string")
    warehouse.sql("INSERT INTO db.truncated VALUES (1, 'a')")
    warehouse.table("db.truncated").truncate()
    warehouse.create_table(
        "db.files",
        "id int, v string",
        properties={"transactional_properties": "insert_only", "acid.format": "orc"},
    )


TABLES = ("plain", "parts", "merged", "truncated")


def checks(interop: Interop, races: int) -> None:
    warehouse = interop.warehouse
    for table in TABLES:
        interop.same(table, "SELECT")
    interop.does("INSERT INTO merged VALUES (100, 'trino'), (101, 'trino')", "merged")
    interop.does("UPDATE merged SET v = 'changed' WHERE id % 4 = 1", "merged")
    interop.does("DELETE FROM merged WHERE id IN (8, 100)", "merged")
    interop.does(
        "MERGE INTO merged t USING (VALUES (9, 'm'), (200, 'm')) s(id, v) ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)",
        "merged",
    )
    interop.does(
        "INSERT INTO parts VALUES (10, 'n', 'Rom'), (11, 'o', 'a b'), (12, 'p', NULL)", "parts"
    )
    interop.does("UPDATE parts SET v = 'u' WHERE city = 'a b'", "parts")
    interop.does("DELETE FROM parts WHERE id IN (1, 10)", "parts")
    interop.does("INSERT INTO truncated VALUES (2, 'b')", "truncated")
    interop.does("UPDATE plain SET v = 'trino', n = n + 1 WHERE id BETWEEN 20 AND 30", "plain")
    # Ours in between, with compaction and cleaning.
    warehouse.sql("UPDATE db.merged SET v = 'ours again' WHERE id = 101")
    warehouse.sql("INSERT INTO db.parts VALUES (20, 'q', 'Rom')")
    for table in TABLES:
        warehouse.table(f"db.{table}").compact("major" if table != "parts" else "minor")
        interop.same(table, "compacted")
    cleaner.run(warehouse.metastore)
    for table in TABLES:
        interop.same(table, "cleaned")
    interop.does("UPDATE merged SET v = 'after' WHERE id = 11", "merged")
    decided = sum(race(interop, number) for number in range(races))
    interop.check(f"{decided} of {races} races of two UPDATEs decided", decided == races)
    definitions(interop)
    history = warehouse.metastore.history("db.merged")
    interop.check("the history names the user", any(one["user"] == "ann" for one in history))
    found = examine(warehouse.metastore, warehouse=warehouse.path).findings
    errors = [str(one) for one in found if str(one).startswith("error")]
    interop.check("fsck finds no error", not errors, errors)


def definitions(interop: Interop) -> None:
    """DDL of Trino."""
    for statement in (
        "CREATE SCHEMA acid.fresh",
        "CREATE TABLE fresh.made (id integer, v varchar) WITH (transactional = true)",
        "INSERT INTO fresh.made VALUES (1, 'a')",
        "ALTER TABLE fresh.made ADD COLUMN w bigint",
        "UPDATE fresh.made SET w = 5",
        "ALTER TABLE fresh.made RENAME TO fresh.renamed",
        "DROP TABLE fresh.renamed",
        "DROP SCHEMA fresh",
    ):
        try:
            interop.run(statement)
            interop.check(statement, True)
        except Failed as error:
            interop.check(statement, False, error)


def race(interop: Interop, number: int) -> bool:
    """Two UPDATEs of one row at once: whoever is told that it succeeded has set the value."""
    told: dict[str, str] = {}
    gate = threading.Barrier(2)

    def update(value: str) -> None:
        gate.wait()
        try:
            interop.trino.sql(f"UPDATE merged SET v = '{value}' WHERE id = 13")
            told[value] = "done"
        except Failed as error:
            told[value] = str(error)

    values = [f"race {number} {side}" for side in "ab"]
    threads = [threading.Thread(target=update, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = [row for row in our_rows(interop.warehouse, "merged") if row[0] == "13"]
    won = [value for value in values if told[value] == "done"]
    good = len(after) == 1 and after[0][1] in won
    if not good or len(won) != 1:
        print(f"     race {number}: {told}, after it {after}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(prog="make interop")
    parser.add_argument("--home", type=Path, default=ROOT / "var" / "interop")
    parser.add_argument("--races", type=int, default=5)
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "interop.jsonl")
    chosen = parser.parse_args()
    chosen.home.mkdir(parents=True, exist_ok=True)
    chosen.log.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        temporary_warehouse(Path(scratch, "wh"), engine="local") as warehouse,
    ):
        gateway = Recorder(warehouse.metastore)
        server: Server = gateway.listen("127.0.0.1", 0)
        serving = threading.Thread(target=server.serve)
        serving.start()
        trino = None
        try:
            trino = Trino(chosen.home, Path(scratch, "trino"), server.address)
            make_tables(warehouse)
            trino.await_start()
            interop = Interop(warehouse, trino, gateway, chosen.log)
            checks(interop, chosen.races)
        except Unavailable as missing:
            print(f"interop: skipped: {missing}", file=sys.stderr)
            return 0
        finally:
            if trino is not None:
                trino.stop()
            server.stop()
            serving.join()
    print(f"{interop.passed} passed, {len(interop.failures)} failed")
    return 1 if interop.failures else 0


if __name__ == "__main__":
    sys.exit(main())
