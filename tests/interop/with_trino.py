"""What Trino has to do on our tables."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from acid_platform.warehouse import Warehouse
from tests.interop.gateways import Observed
from tests.interop.recording import Recording
from tests.interop.report import Report
from tests.interop.tables import KINDS
from tests.interop.trino import Failed, Trino
from tests.interop.values import our_rows, trino_rows

CHANGES = (
    ("plain", "INSERT INTO plain (id, s, d) VALUES (9000, 'trino', 0.5), (9001, NULL, 2)"),
    ("plain", "UPDATE plain SET s = 'trino', bi = bi + 1 WHERE id BETWEEN 20 AND 40"),
    ("plain", "DELETE FROM plain WHERE id IN (41, 42, 9001)"),
    (
        "minor",
        "MERGE INTO minor t USING (VALUES (11, 'm'), (9200, 'm')) s(id, s) ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT (id, s)"
        " VALUES (s.id, s.s)",
    ),
    ("major", "UPDATE major SET d = d * 2 WHERE id % 5 = 1"),
    (
        "parts",
        "INSERT INTO parts VALUES (900, 'n', 7, 'Rom'), (901, 'o', 0, 'a b'), (902, 'p', 1, NULL)",
    ),
    ("parts", "UPDATE parts SET s = 'u' WHERE city = 'a b'"),
    ("parts", "DELETE FROM parts WHERE month = 7 OR id = 1"),
    ("dated", "INSERT INTO dated VALUES (77, 'x', DATE '2025-01-01', 12)"),
    ("dated", "DELETE FROM dated WHERE dy = DATE '2024-02-01'"),
    ("bucketed", "INSERT INTO bucketed (id, s) VALUES (9300, 'b'), (9301, 'c')"),
    ("bucketed", "UPDATE bucketed SET s = 'u' WHERE id % 7 = 0"),
    ("truncated", "INSERT INTO truncated (id) VALUES (8)"),
    ("emptied", "INSERT INTO emptied (id, ch) VALUES (8, 'abc')"),
    ("fresh", "INSERT INTO fresh (id, ts) VALUES (8, TIMESTAMP '2024-01-01 00:00:00.123456')"),
    ("evolved", "UPDATE evolved SET note = 'trino' WHERE id < 10"),
    ("nested", "INSERT INTO nested (id, a) VALUES (800, ARRAY[1, NULL])"),
    ("nested", "DELETE FROM nested WHERE id = 2"),
    ("plain_hive3", "UPDATE plain_hive3 SET s = 'trino' WHERE id < 10"),
    ("orc_minor", "INSERT INTO orc_minor VALUES (700, 'o', 1.5)"),
    ("parquet_minor", "INSERT INTO parquet_minor VALUES (700, 'o', 1.5)"),
    ("parquet_parts", "INSERT INTO parquet_parts VALUES (700, 'o', 1.5, 9)"),
    ("avro_minor", "INSERT INTO avro_minor VALUES (700, 'o', 1.5)"),
    ("text_minor", "INSERT INTO text_minor VALUES (700, 'o', 1.5)"),
    ("json_minor", "INSERT INTO json_minor VALUES (700, 'o', 1.5)"),
)
"""Statements that change a table, after which both sides have to read the same."""

DEFINITIONS = (
    "CREATE SCHEMA made",
    "CREATE TABLE made.one (id integer, v varchar) WITH (transactional = true)",
    "INSERT INTO made.one VALUES (1, 'a'), (2, 'b')",
    "ALTER TABLE made.one ADD COLUMN w bigint",
    "UPDATE made.one SET w = 5",
    "ANALYZE made.one",
    "SHOW STATS FOR made.one",
    "COMMENT ON TABLE made.one IS 'told'",
    "COMMENT ON COLUMN made.one.v IS 'told'",
    "ALTER TABLE made.one RENAME TO made.other",
    "SELECT * FROM made.other",
    "CREATE TABLE made.parts (id integer, v varchar, p integer) WITH (transactional = true,"
    " partitioned_by = ARRAY['p'])",
    "INSERT INTO made.parts VALUES (1, 'a', 1), (2, 'b', 2)",
    "ANALYZE made.parts",
    "SHOW STATS FOR made.parts",
    "CALL system.create_empty_partition('made', 'parts', ARRAY['p'], ARRAY['9'])",
    'SELECT * FROM made."parts$partitions"',
    "CREATE TABLE made.copied WITH (transactional = true) AS SELECT * FROM db.plain",
    "SELECT count(*) FROM made.copied",
    "CREATE TABLE made.buckets (id integer, v varchar) WITH (transactional = true,"
    " bucketed_by = ARRAY['id'], bucket_count = 3)",
    "INSERT INTO made.buckets VALUES (1, 'a'), (2, 'b')",
    "TRUNCATE TABLE made.other",
    "SHOW CREATE TABLE made.other",
    "SHOW TABLES FROM made",
    "SHOW COLUMNS FROM made.parts",
    "DROP TABLE made.other",
    "DROP TABLE made.parts",
    "DROP TABLE made.buckets",
    "DROP TABLE IF EXISTS made.copied",
    "DROP SCHEMA made",
)

RECORDED = (
    "trino: CREATE SCHEMA made",
    "trino: CREATE TABLE made.one (id integer, v varchar) WITH (transactional = true)",
    "trino: INSERT INTO made.one VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "ours: UPDATE made.one SET v = 'ours' WHERE id = 1",
    "trino: SELECT * FROM made.one",
    "trino: UPDATE made.one SET v = 'trino' WHERE id < 3",
    "trino: DELETE FROM made.one WHERE id = 3",
    "trino: MERGE INTO made.one t USING (VALUES (1, 'm'), (9, 'm')) s(id, v) ON t.id = s.id WHEN"
    " MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)",
    "trino: ANALYZE made.one",
    "trino: ALTER TABLE made.one ADD COLUMN w bigint",
    "trino: ALTER TABLE made.one RENAME TO made.two",
    "trino: CREATE TABLE made.parts (id integer, v varchar, p varchar) WITH (transactional = true,"
    " partitioned_by = ARRAY['p'])",
    "trino: INSERT INTO made.parts VALUES (1, 'a', 'x'), (2, 'b', 'a b/c')",
    "ours: INSERT INTO made.parts VALUES (3, 'c', 'x')",
    "trino: SELECT * FROM made.parts WHERE p = 'x'",
    "trino: UPDATE made.parts SET v = 'u' WHERE id = 3",
    "trino: DELETE FROM made.parts WHERE p = 'x'",
    "trino: ANALYZE made.parts",
    "trino: DROP TABLE made.two",
)


class WithTrino:
    """The checks of one server and one gateway."""

    def __init__(
        self, warehouse: Warehouse, trino: Trino, gateway: Observed, report: Report
    ) -> None:
        self.warehouse, self.trino, self.gateway = warehouse, trino, gateway
        self.report = report

    def run(self, statement: str) -> list[list[object]]:
        """A statement of Trino; its calls go into the log. Raises Failed."""
        self.gateway.calls.clear()
        self.gateway.failed.clear()
        began, told = time.perf_counter(), ""
        try:
            return self.trino.sql(statement)
        except Failed as error:
            told = str(error)
            raise
        finally:
            milliseconds = round((time.perf_counter() - began) * 1000)
            calls, failed = self.gateway.calls[:], self.gateway.failed[:]
            self.report.note(
                {
                    "sql": statement,
                    "ms": milliseconds,
                    "calls": calls,
                    "failed": failed,
                    "told": told,
                }
            )

    def same(self, what: str, table: str) -> None:
        """Trino reads what this platform reads."""
        ours, schema = our_rows(self.warehouse, f"db.{table}")
        try:
            theirs = trino_rows(self.run(f"SELECT * FROM {table}"), schema)
        except Failed as error:
            theirs = [str(error)]
        self.report.compared(f"{what} {table}", ours, theirs)

    def reads(self, what: str) -> None:
        for table in KINDS:
            self.same(what, table)

    def changes(self) -> None:
        for table, statement in CHANGES:
            try:
                self.run(statement)
            except Failed as error:
                self.report.ran(statement, error)
                continue
            self.report.ran(statement)
            self.same("after it,", table)

    def definitions(self) -> None:
        for statement in DEFINITIONS:
            try:
                rows = self.run(statement)
                if statement.startswith("SHOW STATS"):
                    print("     ", rows)
                self.report.ran(statement)
            except Failed as error:
                self.report.ran(statement, error)

    def races(self, count: int) -> None:
        """Pairs of UPDATEs of one row at once: each has to be decided, and none be lost."""
        decided = sum(self._race(number) for number in range(count))
        self.report.races = f"{decided} of {count}"
        self.report.check(f"races decided: {decided} of {count}", decided == count)

    def _race(self, number: int) -> bool:
        """Whoever is told that it succeeded last has set the value."""
        told: dict[str, str] = {}
        gate = threading.Barrier(2)

        def update(value: str) -> None:
            gate.wait()
            try:
                self.trino.sql(f"UPDATE evolved SET s = '{value}' WHERE id = 13")
                told[value] = "done"
            except Failed as error:
                told[value] = str(error)

        values = [f"race {number} {side}" for side in "ab"]
        threads = [threading.Thread(target=update, args=(value,)) for value in values]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = self.warehouse.sql("SELECT s FROM db.evolved WHERE id = 13").to_arrow().to_pylist()
        won = [value for value in values if told[value] == "done"]
        good = len(after) == 1 and after[0]["s"] in won
        if not good:
            print(f"     race {number}: {told}, after it {after}", flush=True)
        return good


def record(warehouse: Warehouse, trino: Trino, gateway: Observed, target: Path) -> None:
    """Writes what Trino and the gateway say during `RECORDED`, in a new warehouse."""
    recording = Recording(Path(warehouse.path))
    gateway.recording = recording
    for step in RECORDED:
        who, _, statement = step.partition(": ")
        if who == "ours":
            warehouse.sql(statement)
            recording.ours(statement)
            continue
        recording.begin(statement)
        outcome = "done"
        try:
            trino.sql(statement, catalog="recorded", schema="made")
        except Failed as error:
            outcome = str(error)
            print(f"     recorded as failed: {statement}: {error}", flush=True)
        rows = {name: our_rows(warehouse, name)[0] for name in warehouse.tables()}
        recording.end(outcome, rows)
    gateway.recording = None
    recording.write(target, "Trino 476")
