"""What an engine reads while the output of a minor compaction comes into place (P46).

Engines like Trino see each directory of the output as soon as it is there. Here a Worker stops, or
is killed, after the first of two.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acid_platform import AcidError
from acid_platform.layout.table_properties import PUBLICATION_WAIT
from acid_platform.services import cleaner, worker
from acid_platform.storage import durability
from tests.interop.checks import Checks
from tests.interop.trino import Failed
from tests.interop.values import our_rows

ROOT = Path(__file__).resolve().parents[2]
TABLE = "merged"
_NAME = f"db.{TABLE}"
_LOOKS = 5.0
"""For so many seconds a read may give a wrong answer before the output is complete."""
_LONGEST = 120.0
_SLOW = f"SELECT count(*) FROM {' CROSS JOIN '.join(f'{TABLE} t{n}' for n in range(5))}"


class Reading:
    """A read in another thread."""

    def __init__(self, checks: Checks, statement: str = f"SELECT * FROM {TABLE}") -> None:
        self.answer: list[Any] = []
        self.error = ""

        def read() -> None:
            try:
                self.answer = checks.run(statement)
            except Failed as error:
                self.error = str(error)

        self.thread = threading.Thread(target=read)
        self.thread.start()

    def rows(self, checks: Checks) -> list[str]:
        self.thread.join(_LONGEST)
        if self.thread.is_alive() or self.error:
            return [self.error or f"no answer within {_LONGEST} s"]
        return checks.rows(self.answer, our_rows(checks.warehouse, _NAME)[1])


def checked(checks: Checks, long_reads: bool = False) -> None:
    """Needs a gateway in this process, and no other compaction of the warehouse.

    `long_reads`: the engine reads 10 million rows of a join in seconds.
    """
    checks.warehouse.create_table(_NAME, "id int, s string")
    _between(checks)
    _killed(checks)
    if long_reads:
        _held_up(checks)


def _changed(checks: Checks) -> list[str]:
    """Inserts and deletes, so that a minor compaction has two outputs; returns the rows."""
    table = checks.warehouse.table(_NAME)
    known = table.count()
    for part in range(3):
        first = known + 10 * part
        table.insert([{"id": first + number, "s": f"row {number}"} for number in range(10)])
        table.delete(f"id = {first}")
    checks.warehouse.metastore.request_compaction(_NAME, None, "minor")
    return our_rows(checks.warehouse, _NAME)[0]


@contextmanager
def _held_after_one_rename() -> Iterator[tuple[threading.Event, threading.Event]]:
    """Events: a Worker has renamed one directory; it may go on."""
    reached, go_on = threading.Event(), threading.Event()
    rename = durability._rename

    def held(*arguments: Any) -> None:
        rename(*arguments)
        if not reached.is_set():
            reached.set()
            go_on.wait(_LONGEST)

    durability._rename = held
    try:
        yield reached, go_on
    finally:
        go_on.set()
        durability._rename = rename


def _between(checks: Checks) -> None:
    ours = _changed(checks)
    compaction = threading.Thread(target=worker.work_once, args=(checks.warehouse,))
    with _held_after_one_rename() as (reached, go_on):
        compaction.start()
        checks.report.check("a compaction has renamed one of two outputs", reached.wait(60))
        reading = Reading(checks)
        reading.thread.join(_LOOKS)
        go_on.set()
        compaction.join()
    checks.report.compared("while a compaction publishes,", ours, reading.rows(checks))
    checks.same("after the compaction", TABLE)


def _killed(checks: Checks) -> None:
    """Somebody has to remove what the Worker left; until then the engine's reads wait."""
    ours = _changed(checks)
    arguments = [checks.warehouse.path, _NAME, "one published", "local"]
    subprocess.run(
        [sys.executable, "-m", "tests.compaction.killed_worker", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=_LONGEST,
    )
    reading = Reading(checks)
    reading.thread.join(_LOOKS)
    worker.revoke_dead(checks.warehouse.metastore)
    removed = [line for one in cleaner.run(checks.warehouse.metastore) for line in one.removed]
    checks.report.check("the Cleaner removes one output", any("_v" in line for line in removed))
    checks.report.compared("after a Worker was killed,", ours, reading.rows(checks))
    worker.work_once(checks.warehouse)
    checks.same("after the compaction was done again,", TABLE)


def _held_up(checks: Checks) -> None:
    """A read that goes on too long holds up the compaction, which is told who reads."""
    _changed(checks)
    metastore = checks.warehouse.metastore
    metastore.set(PUBLICATION_WAIT, "0s")
    reading = Reading(checks, _SLOW)
    deadline = time.monotonic() + _LONGEST
    while not metastore.locks() and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        outcome = worker.work_once(checks.warehouse)
        told = "" if outcome is None else f"{outcome.state}: {outcome.reason}"
    except AcidError as error:
        told = str(error)
    finally:
        metastore.set(PUBLICATION_WAIT, "30s")
    checks.report.check(
        "a compaction names the transaction that reads",
        told.startswith("refused") and "transaction" in told,
        told,
    )
    reading.thread.join(_LONGEST)
    checks.report.check("the long read is answered", bool(reading.answer), reading.error)
    metastore.request_compaction(_NAME, None, "minor")
    done = worker.work_once(checks.warehouse)
    checks.report.check(
        "then the compaction is published", done is not None and done.state == "published", done
    )
    checks.same("after the long read", TABLE)
