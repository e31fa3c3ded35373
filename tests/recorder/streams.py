"""A client of Spark's streams, which writes some tables by a query each and reads some by another.

What a transaction writes is a batch of a query that reads files of rows: a file is there from one
moment on, and then the query runs from its checkpoint until it has acknowledged the batch. If the
process is killed meanwhile, the outcome is unknown, until the next process goes on with the query.

Now and then Spark's note of the last batch is removed, as if the process had been killed before it
was written. Spark then repeats the batch: one that is written counts once, and one that is read has
the same rows as before.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from acid_platform import AcidError, NotEnoughHistory, OutcomeUnknown, SnapshotExpired, errors
from acid_platform.engine.spark.session import start_session
from tests.judge.recorded import Step, Version
from tests.recorder.clients import cell_of, copy_after, version_of_copy
from tests.recorder.recording import Journal, Recording, is_explained

_NOTES_REMOVED = 0.3
"""After this part of the queries."""
_OURS = re.compile(rf"^{re.escape(errors.__name__)}\.(\w+): (.*)", re.MULTILINE)


@contextmanager
def errors_of_ours() -> Iterator[None]:
    """Raises the platform's error that the text of an error of Spark ends with, if there is one."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        named = _OURS.findall(str(error))
        if not named:
            raise
        name, text = named[-1]
        raise getattr(errors, name)(text) from error


@dataclass
class _Copy:
    """What a query has read of a table."""

    checkpoint: Path
    batches: dict[int, list[Any]] = field(default_factory=dict)
    """The rows of the change feed; a batch that is repeated replaces itself."""


class StreamClient:
    """`stopped`: whether the round is over, so that no query runs again."""

    checks = True

    def __init__(
        self, warehouse: Path, journal: Journal, dice: Random, stopped: Callable[[], bool]
    ) -> None:
        self._warehouse = str(warehouse)
        self._journal, self._dice, self._stopped = journal, dice, stopped
        self._place = journal.directory / "streams"
        os.environ["SPARK_LOCAL_DIRS"] = str(self._place)  # what a killed JVM leaves ends with it
        self._spark = start_session("local[1]", memory="512m")
        self._spark.sparkContext.setLogLevel("OFF")  # errors of queries are in the record
        self._rows: list[Step] = []
        self._copies: dict[str, _Copy] = {}
        self._read: set[str] = set()
        """Tables that this transaction has read."""

    def go_on(self) -> None:
        """Runs the queries of a process that was killed, and says that its batches are written."""
        for attempt in Recording.of(self._journal.directory).history:
            rows = [step for step in attempt.steps if step.writes]
            if attempt.outcome == "info" and rows and self._file(rows[0]).exists():
                self._write(rows[0])
                ended = time.monotonic_ns()
                self._journal.attempt(
                    replace(attempt, outcome="ok", sent=attempt.began, ended=ended)
                )

    def begin(self) -> None:
        self._read.clear()

    def read(self, step: Step) -> Version:
        table, column, _ = cell_of(step)
        if table not in self._read:
            new = _Copy(self._place / f"read-{time.monotonic_ns()}")
            copy = self._copies.pop(table, new)
            self._follow(table, column, copy)
            self._copies[table] = copy
            self._read.add(table)
        changes = [row for rows in self._copies[table].batches.values() for row in rows]
        return version_of_copy(step, copy_after(changes, column))

    def write(self, step: Step) -> None:
        self._rows.append(step)

    def commit(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            file = self._file(rows[0])
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"k": cell_of(step)[2], "e": step.value}) for step in rows]
            draft = file.with_name(f".{file.name}")
            draft.write_text("\n".join(lines))
            draft.rename(file)
            self._write(rows[0])

    def abort(self) -> None:
        self._rows = []

    # --- queries --------------------------------------------------------------------------------

    def _file(self, first: Step) -> Path:
        """Where the rows of a batch with this first one are."""
        return self._place / cell_of(first)[0] / f"{first.value}.json"

    def _write(self, row: Step) -> None:
        """Writes the batches of a table until that of the row is written."""
        table = cell_of(row)[0]
        files = self._spark.readStream.schema("k int, e bigint").option("maxFilesPerTrigger", 1)
        self._run(
            lambda: (
                files.json(str(self._place / table))
                .writeStream.format("acid")
                .option("warehouse", self._warehouse)
                .option("sink", self._journal.directory.name)
            ),
            self._place / f"written-{table}",
            table,
        )

    def _follow(self, table: str, column: str, copy: _Copy) -> None:
        """Brings a copy up to date. Raises SnapshotExpired for one that is too old."""
        columns = ["k", column, "_change_type"]

        def keep(batch: DataFrame, number: int) -> None:
            copy.batches[number] = batch.select(*columns).collect()

        changes = self._spark.readStream.format("acid").option("warehouse", self._warehouse)
        try:
            self._run(
                lambda: (
                    changes.option("changes", "true").load(table).writeStream.foreachBatch(keep)
                ),
                copy.checkpoint,
            )
        except NotEnoughHistory as error:  # it was stopped for too long
            raise SnapshotExpired(str(error)) from error

    def _run(
        self,
        query: Callable[[], DataStreamWriter],
        checkpoint: Path,
        table: str | None = None,
    ) -> None:
        """Runs a query until it has done what is there; again if a fault ended it before.

        Raises OutcomeUnknown if the round is over first.
        """
        while True:
            try:
                with errors_of_ours():
                    writer = query().option("checkpointLocation", str(checkpoint))
                    writer.trigger(availableNow=True).start(table).awaitTermination()
                break
            except NotEnoughHistory:
                raise
            except (AcidError, PySparkException) as error:
                self._journal.error("batch", error)
                if self._stopped() or not is_explained(error):
                    raise OutcomeUnknown(f"the query of {checkpoint} has not ended") from error
            time.sleep(0.3)
        notes = [note for note in (checkpoint / "commits").glob("*") if note.name.isdigit()]
        if notes and self._dice.random() < _NOTES_REMOVED:
            last = max(notes, key=lambda note: int(note.name))
            last.unlink()
            last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
