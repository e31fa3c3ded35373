"""A mixed history: several engines write and read the same tables at the same time.

    python -m tests.interop --history MINUTES [--engines trino,hive-4.0.1] [--seed N]

Each round runs statements of several engines on one table at once, beside compactions and
cleanings; in some rounds the gateway or the metastore is killed and started again. Each read,
during the round and after it, has to be a state that the model (model.py) allows.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from acid_platform import AlreadyScheduled, CompactionFailed, LockNotAcquired, Warehouse
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.interop.hive import NO_ANSWER
from tests.interop.model import (
    Change,
    Outcome,
    Rows,
    Statements,
    seen_meanwhile,
    states,
)
from tests.interop.participants import Engine, read
from tests.interop.report import Report
from tests.interop.trino import Failed
from tests.metastore.processes import serving_process

_ALL = ("insert", "update", "delete", "merge")
_NO_QUEUE = "does not queue"
"""A read or a compaction of this platform does not wait for an exclusive lock (L10)."""
_AMBIGUOUS = "Ambiguous column reference p in t"
"""Hive's error if it compiles a MERGE into a partitioned table anew, since it waited for another
writer; it has written nothing."""
_NO_SECOND_PLAN = "ReCompileException null"
"""Hive's error for the same MERGE into a table without partitions: its planner fails the second
time, and then nobody is there who would plan without it; it has written nothing."""
_MANY_BUCKETS = "FileSinkOperator$FSPaths.closeWriters"
"""Where Hive 4.0 fails when a DELETE or UPDATE of a table without buckets meets rows of several
(HIVE-28790); it has written nothing that counts."""
_TWO_WRITERS = re.compile(r"FileAlreadyExistsException.*/delete_delta_", re.DOTALL)
"""Trino's error if rows that it changes are in one bucket and of statements with different ids,
which it gives to several writers; its commit of what it has written is refused (P47)."""
_CONFLICTS = (
    _AMBIGUOUS,
    _NO_SECOND_PLAN,
    "conflict",
    "overlaps",
    "TxnAborted",
    "LockTimeout",
    "LockException",
    _NO_QUEUE,
)
"""Words of errors with which a statement may be refused when another one was faster."""
SETTINGS = {"hive.txn.timeout": "60s"}
"""Statements that a kill cut off hold their locks no longer than that."""
_UNCOVERED = "Not enough history available"
"""Trino's error if a table has the base of an overwrite that is open or was aborted, and no other
base; it takes each base for a compacted one."""
_GONE_WHILE_LISTED = re.compile(r"get file permissions.*cannot access '[^']*/_tmp_", re.DOTALL)
"""Hive's error if our temporary directory vanishes while it asks a local file system for the
owners of all that a table has; it has read and written nothing."""
_LEFT_OVER = 120.0
"""For so many seconds after a kill such locks may be in the way."""
_TOLD_EVERY = 120.0
TABLES: dict[str, tuple[str, dict[str, object], tuple[str, ...]]] = {
    "plain": ("id int, v int, s string, p int", {}, _ALL),
    "parts": ("id int, v int, s string", {"partitioned_by": ["p int"]}, _ALL),
    "buckets": ("id int, v int, s string, p int", {"clustered_by": (["id"], 2)}, _ALL),
    "by_partition": (
        "id int, v int, s string, p int",
        {"properties": {"acid.conflict.detection": "partition"}},
        _ALL,
    ),
    "inserts": (
        "id int, v int, s string, p int",
        {"properties": {"transactional_properties": "insert_only"}},
        ("insert",),
    ),
}
"""Columns, how the table is made, and the kinds of statements that every engine runs on it."""
_MORE = {"plain": ("overwrite", "truncate"), "buckets": ("truncate",), "inserts": ("overwrite",)}
"""Kinds of statements of the engines that have INSERT OVERWRITE and TRUNCATE."""


@dataclass
class Gate:
    """`acid gateway` as a process, which can be killed and is then started at the same address."""

    warehouse: Path
    log: Path
    address: tuple[str, int] = ("127.0.0.1", 0)
    _process: subprocess.Popen[str] | None = None

    def start(self, patience: float = 60.0) -> None:
        """Starts it, again and again while it finds no metastore: after a kill the next leader
        needs its time."""
        host, port = self.address
        command = [sys.executable, "-m", "acid_platform", "gateway", "--json"]
        deadline = time.monotonic() + patience
        while True:
            with self.log.open("a") as log:
                self._process = subprocess.Popen(
                    [*command, "--listen", f"{host}:{port}", "--warehouse", str(self.warehouse)],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            assert self._process.stdout is not None
            if listening := self._process.stdout.readline():
                self.address = (host, int(json.loads(listening)["listens"].rpartition(":")[2]))
                return
            assert time.monotonic() < deadline, f"the gateway does not start; see {self.log}"
            time.sleep(1)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restarted(self) -> None:
        self.kill()
        self.start()


def kill_metastore(warehouse: Path) -> bool:
    """The next client starts another."""
    pid = serving_process(warehouse)
    if pid is None:
        return False
    os.kill(pid, signal.SIGKILL)
    return True


@dataclass
class Told:
    """What an engine was told about its statement."""

    engine: Engine
    change: Change
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""


@dataclass
class History:
    """Rounds on the tables of the database `h`."""

    warehouse: Warehouse
    gate: Gate
    engines: Sequence[Engine]
    report: Report
    random: Random
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._statements = Statements(self.random)
        self._killed = -_LEFT_OVER
        self._rows: dict[str, Rows] = dict.fromkeys(TABLES, frozenset())
        for name, (columns, more, _) in TABLES.items():
            self.warehouse.create_table(f"h.{name}", columns, **more)  # type: ignore[arg-type]

    def run(self, seconds: float) -> None:
        """Rounds until the time is over, or a read is wrong."""
        began = told = time.monotonic()
        while time.monotonic() < began + seconds and not self.report.failures:
            self.round(self.random.choice(sorted(TABLES)))
            if time.monotonic() - told > _TOLD_EVERY:
                told = time.monotonic()
                self._tell(told - began)
        while time.monotonic() < self._left_over():
            time.sleep(1)
        self.compact_and_clean()
        for name in TABLES:
            for engine in self.engines:
                self._compare(engine, name, {self._rows[name]}, "at the end,")
        found = examine(self.warehouse.metastore, warehouse=self.warehouse.path).findings
        errors = [str(one) for one in found if str(one).startswith("error")]
        self.report.check("fsck finds no error", not errors, errors)

    def _tell(self, seconds: float) -> None:
        read, equal = self.report.read, self.report.equal
        print(
            f"     {seconds / 60:.0f} minutes: {self.counts['rounds']} rounds, {equal} of {read}"
            " reads equal",
            flush=True,
        )

    def round(self, name: str) -> None:
        self.counts["rounds"] += 1
        before, table = self._rows[name], f"h.{name}"
        number = min(len(self.engines), self.random.choice((1, 2, 2, 3)))
        writers = self.random.sample(self.engines, number)
        told = [Told(engine, self._change(engine, name)) for engine in writers]
        event = self.random.choices(
            ("", "compaction", "gateway", "metastore"), (0.45, 0.3, 0.15, 0.1)
        )[0]
        idle = [engine for engine in self.engines if engine not in writers]
        readers = self.random.sample(idle, min(len(idle), self.random.choice((0, 1, 1))))
        meanwhile: list[tuple[Engine, Rows | str]] = []
        threads = [threading.Thread(target=self._write, args=(one,)) for one in told]
        threads += [
            threading.Thread(target=self._read, args=(one, name, meanwhile)) for one in readers
        ]
        for thread in threads:
            thread.start()
        self._happens(event, name)
        for thread in threads:
            thread.join()
        killed = event in ("gateway", "metastore")
        if killed:
            self._killed = time.monotonic()
        self._judge(told, killed)
        if any(_UNCOVERED in one.error for one in told):
            self._cover(name)
        changes = [one.change for one in told]
        between = seen_meanwhile(before, changes)
        for engine, rows in meanwhile:
            if isinstance(rows, str) and _NO_QUEUE in rows:
                self.counts["reads that met an exclusive lock"] += 1
            elif isinstance(rows, str) and _UNCOVERED in rows:
                self.counts["reads of Trino that met the base of an overwrite"] += 1
            elif isinstance(rows, str) and _GONE_WHILE_LISTED.search(rows):
                self.counts["reads of Hive that listed what vanished"] += 1
            elif isinstance(rows, str):
                self._fails(f"{engine.name} reads {name}: {rows}", killed)
            else:
                self._allowed(f"{engine.name} reads {name} during a round", rows, between)
        after = states(
            before,
            [one.change for one in told if one.outcome is Outcome.DONE],
            [one.change for one in told if one.outcome is Outcome.UNKNOWN],
        )
        present = self._present(table)
        told_text = [(one.engine.name, one.change.statement, one.outcome.value) for one in told]
        self._allowed(f"{name} after {told_text}", present, after)
        self._rows[name] = present
        self._compare(self.random.choice(self.engines), name, {present}, "after a round,")

    def _change(self, engine: Engine, name: str) -> Change:
        kinds = (*TABLES[name][2], *(_MORE.get(name, ()) if engine.overwrites else ()))
        # Otherwise tables would be empty too often.
        rare = self.random.random() < 0.7
        kinds = tuple(kind for kind in kinds if not rare or kind not in ("overwrite", "truncate"))
        who = f"{engine.name} {self.counts['rounds']}"
        return self._statements.change(f"h.{name}", kinds, who)

    def _write(self, told: Told) -> None:
        began = time.perf_counter()
        try:
            told.engine.run(told.change.statement)
            told.outcome = Outcome.DONE
        except Failed as error:
            told.outcome, told.error = Outcome.REFUSED, str(error)
        except Exception as error:  # neither done nor refused: a fault, which must not be lost
            told.outcome = Outcome.REFUSED
            told.error = f"unexpected {type(error).__name__}: {error}"
        took = round((time.perf_counter() - began) * 1000)
        self.report.note(
            {
                "round": self.counts["rounds"],
                "by": told.engine.name,
                "sql": told.change.statement,
                "ms": took,
                "outcome": told.outcome.value,
                "told": told.error,
            }
        )

    def _read(self, engine: Engine, name: str, found: list[tuple[Engine, Rows | str]]) -> None:
        time.sleep(self.random.random())
        try:
            found.append((engine, engine.read(f"h.{name}")))
        except Exception as error:  # a fault to judge in the round's own thread
            found.append((engine, f"{type(error).__name__}: {error}"))

    def _happens(self, event: str, name: str) -> None:
        """What happens beside the statements."""
        time.sleep(self.random.random() * 1.5)
        if event == "compaction":
            table = self.warehouse.table(f"h.{name}")
            try:
                for partition in table.partitions() or [None]:
                    table.compact(self.random.choice(("minor", "major")), partition=partition)
            except AlreadyScheduled:
                pass
            except CompactionFailed as error:
                if _NO_QUEUE not in str(error):
                    raise
                self.counts["compactions that met an exclusive lock"] += 1
            cleaner.run(self.warehouse.metastore)
        elif event == "gateway":
            self.gate.restarted()
        elif event == "metastore":
            kill_metastore(Path(self.warehouse.path))
        if event:
            self.counts[f"{event} kills" if event != "compaction" else "compactions"] += 1

    def _judge(self, told: Sequence[Told], killed: bool) -> None:
        """Statements that failed in a round with a kill may have been done.

        What a kill cut off may hold locks for a while, also against one that runs alone.
        """
        for one in told:
            if NO_ANSWER in one.error:  # it may still be done at any time
                self.report.check("every statement ends", False, one.change.statement)
            if one.outcome is Outcome.REFUSED and killed:
                one.outcome = Outcome.UNKNOWN
            elif one.outcome is Outcome.REFUSED:
                others = len(told) > 1 or time.monotonic() < self._left_over()
                known = others and any(word in one.error for word in _CONFLICTS)
                known = known or _UNCOVERED in one.error
                known = known or bool(_GONE_WHILE_LISTED.search(one.error))
                if _MANY_BUCKETS in one.error:
                    self.counts["changes of Hive that met rows of several buckets"] += 1
                    known = True
                if _TWO_WRITERS.search(one.error):
                    self.counts["changes of Trino with two writers of a bucket"] += 1
                    known = True
                if not known:
                    self._fails(f"{one.engine.name}: {one.change.statement}: {one.error}", False)
            self.counts[f"{one.engine.name} {one.change.kind} {one.outcome.value}"] += 1

    def _fails(self, what: str, killed: bool) -> None:
        """An error for which there is no reason, unless a process was killed."""
        self.errors[what[:160]] += 1
        if not killed:
            self.report.check("no statement fails without a reason", False, what)

    def _compare(self, engine: Engine, name: str, allowed: set[Rows], when: str) -> None:
        """What an engine reads when nobody writes."""
        what, last, deadline = f"{when} {engine.name} reads {name}", False, self._left_over()
        while True:
            try:
                self._allowed(what, engine.read(f"h.{name}"), allowed)
                return
            except Failed as error:  # its connection may be to a gateway that was killed
                if _NO_QUEUE in str(error) and time.monotonic() < deadline:
                    time.sleep(2)
                    continue
                if _UNCOVERED in str(error):
                    if last:
                        self.counts["reads of Trino that met the base of an overwrite"] += 1
                        return
                    self._cover(name)
                    last = True
                    continue
                self._fails(f"{what}: {error}", not last)
                if last:
                    return
                last = True
            except ValueError as error:
                self._fails(f"{when} {engine.name} reads {name}: {error}", False)
                return

    def _cover(self, name: str) -> None:
        """Makes a base that Trino can read."""
        self.counts["bases made for Trino"] += 1
        while time.monotonic() < self._left_over():  # compactions don't wait for locks
            time.sleep(1)
        table = self.warehouse.table(f"h.{name}")
        for partition in table.partitions() or [None]:
            with suppress(AlreadyScheduled):
                table.compact("major", partition=partition)
        cleaner.run(self.warehouse.metastore)

    def _left_over(self) -> float:
        """Until when locks of a statement that a kill cut off may be in the way."""
        return self._killed + _LEFT_OVER

    def _present(self, table: str) -> Rows:
        """What this platform reads now."""
        while True:
            try:
                return read(self.warehouse, table)
            except LockNotAcquired:
                if time.monotonic() > self._left_over():
                    raise
                time.sleep(2)

    def _allowed(self, what: str, rows: Rows, allowed: set[Rows]) -> None:
        self.report.read += 1
        if rows in allowed:
            self.report.equal += 1
            return
        nearest = min(allowed, key=lambda one: len(one ^ rows))
        extra, lacking = sorted(rows - nearest)[:4], sorted(nearest - rows)[:4]
        self.report.check(what, False, f"{len(rows)} rows; only there {extra}, only here {lacking}")

    def compact_and_clean(self) -> None:
        for name in TABLES:
            table = self.warehouse.table(f"h.{name}")
            for partition in table.partitions() or [None]:
                with suppress(AlreadyScheduled):  # nothing was written since the last one
                    table.compact("major", partition=partition)
        cleaner.run(self.warehouse.metastore)

    def shown(self) -> dict[str, int]:
        return dict(sorted(self.counts.items()))


@contextmanager
def gate_of(warehouse: Path, log: Path) -> Iterator[Gate]:
    gate = Gate(warehouse, log)
    gate.start()
    try:
        yield gate
    finally:
        gate.kill()
