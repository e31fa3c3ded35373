"""The processes that work on the warehouse, and may be killed or stopped at any moment.

None has a JVM: writers do what `TransactionTable` does, with files of `tests.acid_files`. Table `t`
gets columns and other names, `p` loses partitions, `d` is dropped and made again.
"""

from __future__ import annotations

import os
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from acid_platform import (
    AcidError,
    AlreadyScheduled,
    LeaseHeld,
    NoSuchTable,
    PublicationFailed,
    TableExists,
    Transaction,
    Warehouse,
)
from acid_platform.compaction.plan import NothingToDo
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.layout.names import temporary_name
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.open_transaction import OpenTransaction as Begun
from acid_platform.metastore.operations.tables import GetPartitions, RegisterPartitions
from acid_platform.metastore.records import TableRecord
from acid_platform.services import cleaner
from acid_platform.services.worker import CompactionRun, revoke_dead
from acid_platform.storage import durability
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import Statement
from acid_platform.write.publishing import WrittenDirectory
from tests.acid_files import AcidTable, P, contents_of, full
from tests.chaos.journal import Journal, now

T, RENAMED, PARTITIONED, DROPPED = "db.t", "db.t_renamed", "db.p", "db.d"
TABLES = (T, PARTITIONED, DROPPED)
COLUMNS = "id int, v string"
PARTITIONS = 3
IDS_OF_A_PROCESS = 100_000
MOST_COLUMNS = 6
LOCK_SECONDS = 4.0
"""Transactions that lock several tables in any order may wait for each other."""


@dataclass
class Actor:
    """One process; `number` is its own among all that the run starts."""

    warehouse: Warehouse
    random: Random
    journal: Journal
    number: int
    _used: int = 0
    seen: list[Begun] = field(default_factory=list)
    """The snapshots of the present action; the last one is the one that is read."""

    def __post_init__(self) -> None:
        watch(self)

    # --- what is told ---------------------------------------------------------------------------

    def ids(self) -> list[int]:
        """New ids, which no other row has."""
        count = self.random.randint(1, 6)
        first = self.number * IDS_OF_A_PROCESS + self._used
        self._used += count
        return [*range(first, first + count)]

    def pause(self, most: float) -> None:
        time.sleep(self.random.uniform(0, most))

    @contextmanager
    def reading(self, mode: str, table: str, **asked: Any) -> Iterator[dict[str, Any]]:
        """Journals the result of a read, which the block puts into the dictionary."""
        began = now()
        found: dict[str, Any] = {}
        error: AcidError | None = None
        try:
            yield found
        except AcidError as raised:
            error = raised
            raise
        finally:
            if error is not None or found:
                self._tell_read(mode, table, began, asked, found, error)

    def _tell_read(
        self,
        mode: str,
        table: str,
        began: float,
        asked: dict[str, Any],
        found: dict[str, Any],
        error: AcidError | None,
    ) -> None:
        told: dict[str, Any] = {}
        if self.seen:
            lease: Any = self.seen[-1]
            record: TableRecord | None = lease.chaos_records.get(table)
            told = {"txn": lease.id, "from": lease.chaos_asked, "to": lease.chaos_answered}
            if record is not None and table in lease._lists:
                told |= {
                    "table_id": record.table_id,
                    "list": str(lease.valid_write_ids(table)),
                    "declared": [name for name, _ in record.columns],
                }
        if error is not None:
            found = {"error": type(error).__name__, "text": str(error)[:300]}
        self.journal.tell("read", mode=mode, table=table, began=began, **told, **asked, **found)

    # --- reading --------------------------------------------------------------------------------

    def read(self) -> None:
        self.seen.clear()
        kind = self.random.choices(("table", "count", "held", "txn"), (5, 3, 3, 1))[0]
        with suppress(AcidError):
            getattr(self, f"read_{kind}")()

    def where(self, table: str) -> tuple[str | None, dict[str, Any]]:
        chance = self.random.random()
        if table == PARTITIONED and chance < 0.3:
            partition = self.random.randrange(PARTITIONS)
            return f"m = {partition}", {"partition": partition}
        if chance > 0.8:
            least = self.random.randrange(1, self.number + 1) * IDS_OF_A_PROCESS
            return f"id >= {least}", {"least": least}
        return None, {}

    def read_table(self) -> None:
        table = self.random.choice(TABLES)
        where, asked = self.where(table)
        with self.reading("to_arrow", table, **asked) as found:
            found |= rows(self.warehouse.table(table).to_arrow(where=where))

    def read_count(self) -> None:
        table = self.random.choice(TABLES)
        where, asked = self.where(table)
        with self.reading("count", table, **asked) as found:
            found["count"] = self.warehouse.table(table).count(where)

    def read_held(self) -> None:
        with self.warehouse.snapshot() as snapshot:
            for _ in range(self.random.randint(2, 6)):
                table = self.random.choice(TABLES)
                where, asked = self.where(table)
                with suppress(NoSuchTable), self.reading("snapshot", table, **asked) as found:
                    found |= rows(snapshot.table(table).to_arrow(where=where))
                self.pause(0.25)

    def read_txn(self) -> None:
        with self.warehouse.transaction() as txn:
            for _ in range(2):
                self.in_txn(txn, self.random.choice(TABLES))
                self.pause(0.3)

    def final(self, table: str) -> None:
        """Reads every row of a table at the end of the run."""
        with self.reading("final", table) as found:
            found |= rows(self.warehouse.table(table).to_arrow())

    def in_txn(self, txn: Transaction, table: str, partition: int | None = None) -> pa.Table:
        asked = {} if partition is None else {"partition": partition}
        where = None if partition is None else f"m = {partition}"
        with self.reading("txn", table, **asked) as found:
            answer = txn.table(table).to_arrow(where=where, row_id=True)
            found |= rows(answer)
        return answer

    # --- writing --------------------------------------------------------------------------------

    def write(self) -> None:
        """One transaction of one to three statements, in one table or two."""
        self.seen.clear()
        txn: Transaction | None = None
        state = "open"
        try:
            txn = self.warehouse.transaction()
            self.journal.tell("begin", txn=txn.id)
            table = self.random.choice(TABLES)
            for number in range(self.random.choices((1, 2, 3), (6, 2, 1))[0]):
                self.statement(txn, table, number)
                if self.random.random() < 0.3:
                    table = self.random.choice(TABLES)
            if self.random.random() < 0.08:
                state = "aborted"
                txn.abort("meant to")
                self.journal.tell("ended", txn=txn.id, state="a")
                return
            self.journal.tell("commit", txn=txn.id)
            state = "committing"
            txn.commit()
            self.journal.tell("ended", txn=txn.id, state="c")
        except AcidError as error:
            self.journal.tell(
                "refused",
                txn=txn.id if txn else None,
                state=state,
                error=type(error).__name__,
                text=str(error)[:300],
            )
            if txn is not None and not txn.begun.ended:
                with suppress(AcidError):
                    txn.abort("an error")

    def statement(self, txn: Transaction, table: str, number: int) -> None:
        record = txn.table(table).record
        partition = self.random.randrange(PARTITIONS) if record.partitioned else None
        kind = self.random.choices(("insert", "delete", "overwrite", "truncate"), (12, 6, 1, 0.3))[
            0
        ]
        name = "" if partition is None else f"m={partition}"
        if kind == "truncate":
            if record.partitioned and name not in txn.view.partitions(table):
                return
            txn.table(table).truncate(name or None)
            self._told(txn, record, partition, "overwrite", [])
            return
        txn.lock(
            record,
            {
                "insert": Statement.INSERT,
                "delete": Statement.DELETE,
                "overwrite": Statement.INSERT_OVERWRITE,
            }[kind],
            name or None,
        )
        write_id = txn.write_ids[table]
        self.journal.tell("allocated", txn=txn.id, table=table, write_id=write_id)
        txn.refuse_together(record, [name], kind == "overwrite")
        try:
            written = self._written(txn, record, name, kind, number)
        except OSError as error:  # stopped, aborted, and cleaned away (P19)
            raise PublicationFailed(str(error)) from error
        if written is None:
            return
        directory, contents, ids = written
        operation = {
            "insert": RowOperation.INSERT,
            "delete": RowOperation.DELETE,
            "overwrite": RowOperation.UPDATE,
        }[kind]
        txn.report(
            record,
            operation,
            [WrittenDirectory(name, directory, kind == "delete", contents)],
            overwrite=kind == "overwrite",
        )
        self._told(txn, record, partition, kind, ids)

    def _written(
        self, txn: Transaction, record: TableRecord, partition: str, kind: str, number: int
    ) -> tuple[str, RecordedFiles, list[int]] | None:
        """Publishes a directory; None if there is no row to delete."""
        write_id = txn.write_ids[record.name]
        staging = Path(record.location, temporary_name(txn.id, uuid.uuid4().hex[:8]))
        if kind == "delete":
            found = self.in_txn(
                txn, record.name, int(partition.removeprefix("m=")) if partition else None
            )
            rows = found.to_pylist()
            gone = self.random.sample(rows, min(len(rows), self.random.randint(1, 4)))
            if not gone:
                return None
            ids = [row["id"] for row in gone]
            path = f"D{write_id}.{number}"
            AcidTable(staging, COLUMNS).deletes(
                path,
                sorted(
                    tuple(row["row__id"][key] for key in ("writeid", "bucketid", "rowid"))
                    for row in gone
                ),
                write_id,
            )
        else:
            ids = self.ids()
            path = f"b{write_id}" if kind == "overwrite" else f"d{write_id}.{number}"
            bucket = P + (0 if kind == "overwrite" else number)
            AcidTable(staging, COLUMNS).inserts(
                path,
                [
                    (write_id, bucket, row, row_key, f"v{row_key}")
                    for row, row_key in enumerate(ids)
                ],
            )
        directory = full(path).partition("/")[0]
        contents = contents_of(staging / directory)
        final = Path(record.location, partition, directory)
        durability.publish(
            self.warehouse.files, record.location, [(str(staging / directory), str(final))]
        )
        self.warehouse.files.delete_directory(str(staging))
        return directory, contents, ids

    def _told(
        self,
        txn: Transaction,
        record: TableRecord,
        partition: int | None,
        kind: str,
        ids: Sequence[int],
    ) -> None:
        """Journals a write before its commit, so that the origin of every visible row is known."""
        name = record.name
        self.journal.tell(
            "write",
            txn=txn.id,
            table=name,
            table_id=record.table_id,
            partition=partition,
            kind=kind,
            ids=list(ids),
            write_id=txn.write_ids[name],
            list=str(txn.begun.valid_write_ids(name)),
        )

    # --- declarations ---------------------------------------------------------------------------

    def declare(self) -> None:
        kind = self.random.choices(("columns", "rename", "partition", "table"), (2, 2, 4, 3))[0]
        self.journal.tell("declare", kind=kind)
        try:
            self.floors()
            getattr(self, f"declare_{kind}")()
        except AcidError as error:
            self.journal.tell(
                "refused",
                txn=None,
                state=f"declare {kind}",
                error=type(error).__name__,
                text=str(error)[:300],
            )
        self.pause(0.8)

    def declare_columns(self) -> None:
        table = self.warehouse.table(T)
        if len(table.columns) < MOST_COLUMNS:
            name = f"c{self.number}_{self._used}"
            self._used += 1
            table.add_columns(f"{name} string")
            self.journal.tell("column", table_id=table.record.table_id, name=name)

    def declare_rename(self) -> None:
        """Renames `t`; a killed process may have left the other name."""
        with suppress(NoSuchTable):
            self.warehouse.table(T).rename(RENAMED)
            self.pause(0.2)
        with suppress(NoSuchTable):
            self.warehouse.table(RENAMED).rename(T)
            self.journal.tell("renamed")

    def declare_partition(self) -> None:
        there = self.floors()
        if not there:
            return
        partition = self.random.choice(there)
        self.seen.clear()
        self.journal.tell("dropping", table=PARTITIONED, partition=partition)
        self.warehouse.table(PARTITIONED).drop_partition(f"m={partition}")
        self.journal.tell("dropped", table=PARTITIONED, partition=partition, txn=self.seen[-1].id)
        self.pause(1.5)  # an older snapshot sees the partition although it is dropped now
        self.warehouse.metastore.call(RegisterPartitions(PARTITIONED, (f"m={partition}",)))
        self.floors()

    def floors(self) -> list[int]:
        """Journals the floors of each partition, before and after every drop; returns the
        partitions."""
        found = {
            int(record.name.removeprefix("m=")): record.floors
            for record in self.warehouse.metastore.call(GetPartitions(PARTITIONED))
        }
        for partition, floors in found.items():
            self.journal.tell("floors", partition=partition, floors=list(floors))
        return list(found)

    def declare_table(self) -> None:
        with suppress(NoSuchTable):
            record = self.warehouse.table(DROPPED).record
            self.journal.tell("dropping", table=DROPPED, table_id=record.table_id)
            self.warehouse.drop_table(DROPPED)
            self.journal.tell("dropped", table=DROPPED, table_id=record.table_id)
        self.pause(0.1)
        with suppress(TableExists):
            self.journal.tell("creating", table=DROPPED)
            made = self.warehouse.create_table(DROPPED, COLUMNS)
            self.journal.tell("created", table=DROPPED, table_id=made.record.table_id)

    # --- services -------------------------------------------------------------------------------

    def compact(self) -> None:
        metastore = self.warehouse.metastore
        run: CompactionRun | None = None
        try:
            revoke_dead(metastore)
            table = self.random.choice(TABLES)
            partition = f"m={self.random.randrange(PARTITIONS)}" if table == PARTITIONED else None
            with suppress(AlreadyScheduled):
                metastore.request_compaction(
                    table, partition, self.random.choice(("minor", "major"))
                )
            run = CompactionRun.take(self.warehouse)
            if run is None or isinstance(run.prepare(), NothingToDo):
                return
            run.merge()
            run.check()
            self.pause(0.3)
            run.commit()
            self.journal.tell("compacted", table=run.task.table, kind=run.task.kind.value)
        except AcidError as error:
            self._failed(run, error)
        except OSError as error:  # damaged input or a disk error: the real Worker fails too
            self._failed(run, error)
        self.pause(0.3)

    def _failed(self, run: CompactionRun | None, error: Exception) -> None:
        self.journal.tell(
            "refused", txn=None, state="compact", error=type(error).__name__, text=str(error)[:300]
        )
        if run is not None:
            with suppress(AcidError):
                run.fail(error)

    def clean(self) -> None:
        try:
            done = cleaner.run(self.warehouse.metastore)
            self.journal.tell(
                "cleaned",
                removed=sum(len(cleaned.removed) for cleaned in done),
                errors=[cleaned.error for cleaned in done if cleaned.error][:3],
            )
        except LeaseHeld:
            pass
        except AcidError as error:
            self.journal.tell(
                "refused",
                txn=None,
                state="clean",
                error=type(error).__name__,
                text=str(error)[:300],
            )
        self.pause(0.6)


def rows(answer: pa.Table) -> dict[str, Any]:
    """The ids by partition, and the faults in the rows themselves."""
    ids: dict[str, list[int]] = {}
    strange = []
    for row in answer.to_pylist():
        ids.setdefault(str(row.get("m", "")), []).append(row["id"])
        if row["v"] != f"v{row['id']}":
            strange.append([row["id"], row["v"]])
    return {
        "ids": {key: sorted(found) for key, found in ids.items()},
        "strange": strange,
        "columns": answer.column_names,
    }


def watch(actor: Actor) -> None:
    """Notes the snapshot that the public API opens for a read, and the declarations that it got."""

    def opening(name: str) -> None:
        real: Callable[..., Any] = getattr(Metastore, name)

        @wraps(real)
        def noted(*args: Any, **kwargs: Any) -> Any:
            asked = now()
            if name == "begin":
                kwargs.setdefault("wait", LOCK_SECONDS)
            lease = real(*args, **kwargs)
            lease.chaos_asked, lease.chaos_answered, lease.chaos_records = asked, now(), {}
            actor.seen.append(lease)
            return lease

        setattr(Metastore, name, noted)

    opening("begin")
    opening("open_snapshot")
    real_table, real_lock = Begun.table, Begun.lock

    def lock(self: Any, *args: Any, **kwargs: Any) -> Any:
        return real_lock(self, *args, **{"wait": LOCK_SECONDS, **kwargs})

    Begun.lock = lock  # type: ignore[method-assign]

    def table(self: Any, name: str) -> TableRecord:
        record = real_table(self, name)
        if hasattr(self, "chaos_records"):
            self.chaos_records[record.name] = record
        # The files are resolved next, so let others act in between.
        if actor.random.random() < 0.1:
            actor.pause(0.2)
        return record

    Begun.table = table  # type: ignore[method-assign]


ROLES = {
    "writer": Actor.write,
    "reader": Actor.read,
    "declarer": Actor.declare,
    "compactor": Actor.compact,
    "cleaner": Actor.clean,
}


def live(
    place: Path,
    journals: Path,
    role: str,
    number: int,
    seed: int,
    mutate: Callable[[], None] | None,
) -> None:
    """Works until it is killed, or the file `stop` is there. Never returns."""
    journal = Journal(journals, f"{number:05d}-{role}")
    try:
        if mutate is not None and role == "reader":
            mutate()
        actor: Actor | None = None
        while not Path(journals, "stop").exists():
            try:
                actor = actor or Actor(Warehouse.open(place), Random(seed), journal, number)
            except AcidError as error:
                journal.tell(
                    "refused",
                    txn=None,
                    state="open",
                    error=type(error).__name__,
                    text=str(error)[:300],
                )
                continue
            ROLES[role](actor)
        if actor:
            actor.warehouse.close()
    except BaseException:
        journal.tell("crashed", trace=traceback.format_exc())
        os._exit(1)
    os._exit(0)
