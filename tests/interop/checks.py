"""What every engine has to do on our tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from acid_platform import Warehouse
from tests.interop.gateways import Observed
from tests.interop.recording import Recording
from tests.interop.report import Report
from tests.interop.tables import KINDS
from tests.interop.trino import Failed
from tests.interop.values import our_rows

Run = Callable[[str], list[Any]]
Rows = Callable[[list[Any], pa.Schema], list[str]]


class Checks:
    """The checks of one engine and one gateway."""

    def __init__(
        self, warehouse: Warehouse, gateway: Observed, report: Report, run: Run, rows: Rows
    ) -> None:
        """`run` runs a statement, and `rows` brings its answer into the form of `our_rows`."""
        self.warehouse, self.gateway, self.report = warehouse, gateway, report
        self._run, self.rows = run, rows
        self._raced = 0

    def run(self, statement: str) -> list[Any]:
        """A statement of the engine; its calls go into the log. Raises Failed."""
        self.gateway.calls.clear()
        self.gateway.failed.clear()
        began, told = time.perf_counter(), ""
        try:
            return self._run(statement)
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
        """The engine reads what this platform reads."""
        try:
            ours, schema = our_rows(self.warehouse, f"db.{table}")
        except Exception as error:  # a fault to report; the other checks go on
            self.report.compared(f"{what} {table}", [str(error)], [])
            return
        try:
            theirs = self.rows(self.run(f"SELECT * FROM {table}"), schema)
        except Failed as error:
            theirs = [str(error)]
        self.report.compared(f"{what} {table}", ours, theirs)

    def reads(self, what: str, but: Collection[str] = ()) -> None:
        """Reads all kinds of tables; the engine has to refuse those of `but`."""
        for table in KINDS:
            if table not in but:
                self.same(what, table)
        self.refuses([f"SELECT * FROM {table}" for table in but])

    def refuses(self, statements: Sequence[str]) -> None:
        """Statements that have to fail, rather than to misread or to write what we can't read."""
        for statement in statements:
            try:
                rows = self.run(statement)
                self.report.ran(f"refused: {statement}", f"it answered {rows}")
            except Failed as error:
                print(f"     {error}"[:300])
                self.report.ran(f"refused: {statement}")

    def fails(self, table: str, statement: str) -> None:
        """A statement that fails when it has written some of its files leaves no change."""
        before = our_rows(self.warehouse, f"db.{table}")
        self.refuses([statement])
        self.report.check(
            f"nothing of it is there: {statement}",
            our_rows(self.warehouse, f"db.{table}") == before,
            "it left changes",
        )

    def changes(self, statements: Sequence[tuple[str, str]]) -> None:
        """Statements that change a table, after which both sides have to read the same."""
        for table, statement in statements:
            try:
                self.run(statement)
            except Failed as error:
                self.report.ran(statement, error)
                continue
            self.report.ran(statement)
            self.same("after it,", table)

    def runs(self, statements: Sequence[str]) -> None:
        for statement in statements:
            try:
                rows = self.run(statement)
                if "STATS" in statement:
                    print("     ", rows)
                self.report.ran(statement)
            except Failed as error:
                self.report.ran(statement, error)

    def races(self, count: int, who: str, pair: Sequence[tuple[Run, str]]) -> None:
        """Pairs of UPDATEs of one row at once: each has to be decided, and none be lost.

        `pair`: who runs statements, and the name of the table `db.evolved` there.
        """
        decided = sum(self._race(number, pair) for number in range(count))
        self.report.races[who] = f"{decided} of {count}"
        self.report.check(f"races of {who} decided: {decided} of {count}", decided == count)

    def _race(self, number: int, pair: Sequence[tuple[Run, str]]) -> bool:
        """Whoever is told that it succeeded last has set the value, and `n` counts who was."""
        told: dict[str, str] = {}
        gate = threading.Barrier(2)

        def update(run: Run, table: str, value: str) -> None:
            gate.wait()
            try:
                run(f"UPDATE {table} SET s = '{value}', n = coalesce(n, 0) + 1 WHERE id = 13")
                told[value] = "done"
            except Failed as error:
                told[value] = str(error)

        self._raced += 1
        values = [f"race {self._raced} {side}" for side in "ab"]
        (before,) = self._raced_row()
        threads = [
            threading.Thread(target=update, args=(*one, value))
            for one, value in zip(pair, values, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = self._raced_row()
        won = [value for value in values if told[value] == "done"]
        good = (
            len(after) == 1
            and after[0]["s"] in won
            and after[0]["n"] == (before["n"] or 0) + len(won)
        )
        if not good:
            print(f"     race {number}: {told}, before it {before}, after it {after}", flush=True)
        return good

    def _raced_row(self) -> list[dict[str, Any]]:
        read = self.warehouse.sql("SELECT s, n FROM db.evolved WHERE id = 13").to_arrow()
        rows: list[dict[str, Any]] = read.to_pylist()
        return rows


def record(
    warehouse: Warehouse,
    gateway: Observed,
    engine: str,
    statements: Sequence[str],
    run: Run,
    target: Path,
) -> None:
    """Writes what an engine and the gateway say during these statements, in a new warehouse.

    `ours: ` before a statement says that this platform runs it.
    """
    recording = Recording(Path(warehouse.path))
    gateway.recording = recording
    for step in statements:
        statement = step.removeprefix("ours: ")
        if statement != step:
            warehouse.sql(statement)
            recording.ours(statement)
            continue
        recording.begin(statement)
        outcome = "done"
        try:
            run(statement)
        except Failed as error:
            outcome = str(error)
            print(f"     recorded as failed: {statement}: {error}", flush=True)
        rows = {name: our_rows(warehouse, name)[0] for name in warehouse.tables()}
        recording.end(outcome, rows)
    gateway.recording = None
    recording.write(target, engine)
