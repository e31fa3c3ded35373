"""Random histories of one table: the metastore's rules, real files and services, mostly no JVM.

Up to four writers insert, delete, update and overwrite, or share a directory as the transactions of
a streaming batch do; readers hold snapshots, one compaction at a time is somewhere on its way, the
Cleaner comes by; any of them may crash. A model knows what each transaction did. Whatever the
order, each held snapshot sees its rows with their identities, each once, until it ends; and at the
end nothing is left that nobody needs.

`python -m tests.compaction.histories [SEED] [COUNT] [STEPS]` runs many.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from acid_platform import (
    AcidError,
    AlreadyScheduled,
    CompactionLost,
    LockTimeout,
    TxnAborted,
    WriteConflict,
)
from acid_platform.compaction import execution as compaction
from acid_platform.compaction.plan import NothingToDo
from acid_platform.engine.choice import Engines
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.operations.compaction import RevokeWorkers
from acid_platform.metastore.operations.tables import AdoptTable
from acid_platform.metastore.operations.transactions import AbortMany, CommitContents
from acid_platform.metastore.records import ClientInfo, LockRequest, TableRecord, WriteReport
from acid_platform.scan.open import Listings, TableLayout, chosen_partitions
from acid_platform.services import cleaner
from acid_platform.services.worker import CompactionRun
from acid_platform.storage.files import Files
from acid_platform.tables.record_layout import listed_layout, recorded_listings, table_layout
from acid_platform.transactions import RowOperation, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.concurrency import LockType
from tests.acid_files import B1, AcidTable, P, arrow_scan, contents_of
from tests.declared import declare
from tests.finishing import finish
from tests.metastore.local import local_metastore
from tests.metastore.world import World

Key = tuple[int, int, int]
TABLE = "db.t"
MOST_WRITERS, MOST_READERS = 4, 5
ACTIONS = (
    ("begin", 8),
    ("stream", 2),
    ("write", 3),
    ("commit", 12),
    ("abort", 1),
    ("crash", 1),
    ("overwrite", 1),
    ("read", 3),
    ("release", 2),
    ("request", 2),
    ("compact", 12),
    ("revoke", 1),
    ("clean", 4),
)
"""With their weights: writers end soon, since an open write id bounds what may be compacted."""


@dataclass
class Local:
    """A warehouse as the Worker sees it; without a session, compactions run in this process."""

    metastore: Metastore
    session: Any = None

    @property
    def spark(self) -> Any:
        assert self.session, "no JVM here"
        return self.session

    @cached_property
    def engines(self) -> Engines:
        return Engines(
            lambda: self.spark,
            "spark" if self.session else "local",
        )

    def info(self) -> ClientInfo:
        return ClientInfo(agent="histories")


def _bucket(key: Key) -> int:
    """Events lie in the file of their bucket: Hive looks for them nowhere else."""
    return (key[1] >> 16) & 0xFFF


@dataclass
class Writer:
    txn: OpenTransaction
    write_id: int
    seen: ValidWriteIdList
    streams: bool = False
    """One of a batch: its rows are written already."""
    statements: int = 0
    rows: set[Key] = field(default_factory=set)
    gone: set[Key] = field(default_factory=set)
    reports: list[WriteReport] = field(default_factory=list)


@dataclass
class Reader:
    lease: OpenTransaction
    write_ids: ValidWriteIdList
    txns: ValidTxnList
    expected: list[Key]


@dataclass
class History:
    """One table in `root`; `random` decides everything."""

    root: Path
    random: Random
    world: World = field(default_factory=World)
    log: list[str] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    inserted: dict[Key, int] = field(default_factory=dict)
    deleted: list[tuple[Key, int]] = field(default_factory=list)
    """Of every transaction that ever wrote, whatever became of it; with the write id that did it.
    """
    bases: set[int] = field(default_factory=set)
    run: CompactionRun | None = None
    phase: int = 0
    published: int = 0
    removed: int = 0
    spark: Any = None
    """A session that executes the compactions; None: they run in this process."""
    converted: bool = True
    """Whether the table may have had rows before it was one."""

    def __post_init__(self) -> None:
        self.metastore = local_metastore(self.world)
        self.metastore.create_database("db")
        # Aborted data goes as soon as nobody can see it (C50).
        self.metastore.set("hive.compactor.abortedtxn.threshold", "0")
        self.root.mkdir(parents=True)
        kind = {"transactional": "true"}
        if self.random.random() < 0.7 or not self.converted:
            declare(self.metastore, TABLE, str(self.root), [("v", "string")], properties=kind)
            return
        # It had rows before it was a table: files without keys, whose rows have the write id 0.
        keys = [(0, P, row) for row in range(3)]
        self.files.raw("o", [str(key) for key in keys])
        self.inserted = dict.fromkeys(keys, 0)
        where = self.metastore.places.inward(str(self.root))
        record = TableRecord(0, TABLE, where, (("v", "string"),), (), properties=kind)
        files = WriteReport(TABLE, None, RowOperation.INSERT, "", contents_of(self.root))
        self.metastore.call(AdoptTable(record, 0, 0, (), (), (files,)))

    @cached_property
    def files(self) -> AcidTable:
        return AcidTable(self.root)

    @cached_property
    def layout(self) -> TableLayout:
        return listed_layout(self.metastore, self.metastore.table(TABLE))

    def layout_of(self, lease: OpenTransaction) -> TableLayout:
        """As a reader with this lease has it."""
        return table_layout(self.metastore.table(TABLE), lease)

    def listings_of(self, lease: OpenTransaction) -> Listings:
        layout = self.layout_of(lease)
        return recorded_listings(layout, lease, chosen_partitions(layout))

    # --- the model ------------------------------------------------------------------------------

    def visible(self, seen: ValidWriteIdList) -> list[Key]:
        floor = max((base for base in self.bases if seen.is_valid(base)), default=0)
        gone = {key for key, write_id in self.deleted if seen.is_valid(write_id)}
        return sorted(
            key
            for key, write_id in self.inserted.items()
            if seen.is_valid(write_id) and write_id >= floor and key not in gone
        )

    def found(
        self, lease: OpenTransaction, write_ids: ValidWriteIdList, txns: ValidTxnList
    ) -> list[Key]:
        files = self.listings_of(lease)
        layout = self.layout_of(lease)
        table = arrow_scan(layout, write_ids, txns, row_id=True, listings=files).table()
        keys = []
        for value, row in zip(table["v"].to_pylist(), table["row__id"].to_pylist(), strict=True):
            key = row["writeid"], row["bucketid"], row["rowid"]
            assert value == str(key), f"row {key} has the value of {value}"
            keys.append(key)
        return sorted(keys)

    def check(self) -> None:
        for reader in self.readers:
            found = self.found(reader.lease, reader.write_ids, reader.txns)
            assert found == reader.expected, (
                f"the snapshot of {reader.lease.id} ({reader.write_ids}) sees {found},"
                f" not {reader.expected}"
            )

    # --- writers --------------------------------------------------------------------------------

    def begin(
        self, lock: LockType = LockType.SHARED_WRITE, operation: RowOperation = RowOperation.UPDATE
    ) -> Writer | None:
        txn = self.metastore.begin()
        try:
            txn.lock([LockRequest(TABLE, lock, operation)], zero_wait=True, wait=0)
        except LockTimeout:
            txn.abort()
            return None
        return Writer(txn, txn.write_ids[TABLE], txn.valid_write_ids(TABLE))

    def do_begin(self) -> None:
        if len(self.writers) < MOST_WRITERS:
            writer = self.begin()
            if writer:
                self.writers.append(writer)
                self.statement(writer)

    def do_stream(self) -> None:
        """Hive's streaming: several transactions with write ids in a row and one directory, whose
        file has the rows of all; each ends as it may (C53)."""
        batch: list[Writer] = []
        free = MOST_WRITERS - len(self.writers)
        for _ in range(self.random.randint(0, free)):
            one = self.begin(LockType.SHARED_READ, RowOperation.INSERT)
            if one is not None:
                batch.append(one)
        if not batch:
            return
        low, high = batch[0].write_id, batch[-1].write_id
        keys = [(one.write_id, P, row) for one in batch for row in range(self.random.randint(1, 3))]
        self.insert(f"d{low}-{high}", keys)
        for one in batch:
            one.streams = True
            self.report(one, f"delta_{low:07d}_{high:07d}", RowOperation.INSERT)
        self.writers += batch

    def do_write(self) -> None:
        able = [writer for writer in self.writers if not writer.streams]
        if able:
            self.statement(self.random.choice(able))

    def statement(self, one: Writer) -> None:
        """Rows, or deletes of what the writer saw before it, or both; each has its number."""
        number, w = one.statements, one.write_id
        one.statements += 1
        rows = self.random.randint(0, 4)
        live = sorted({*self.visible(one.seen), *one.rows} - one.gone)
        if rows:
            bucket = self.random.choice((P, B1)) + number
            keys = [(w, bucket, row) for row in range(rows)]
            self.insert(f"d{w}.{number}", keys)
            one.rows.update(keys)
            self.report(one, f"delta_{w:07d}_{w:07d}_{number:04d}", RowOperation.INSERT)
        gone = self.random.sample(live, min(len(live), self.random.randint(0, 3)))
        if gone:
            for bucket in sorted({_bucket(key) for key in gone}):
                path = f"D{w}.{number}/bucket_{bucket:05d}"
                self.files.deletes(path, sorted(k for k in gone if _bucket(k) == bucket), w)
                self.finished(path, deletes=True)
            self.deleted += [(key, w) for key in gone]
            one.gone.update(gone)
            self.report(one, f"delete_delta_{w:07d}_{w:07d}_{number:04d}", RowOperation.DELETE)

    def insert(self, where: str, keys: list[Key]) -> None:
        path = f"{where}/bucket_{_bucket(keys[0]):05d}"
        self.files.inserts(path, [(*key, str(key)) for key in keys])
        self.finished(path, deletes=False)
        self.inserted |= {key: key[0] for key in keys}

    def finished(self, path: str, deletes: bool) -> None:
        """With the footer of real writers, which Hive's reader asks for."""
        files, root = Files.of(str(self.files.root))
        where = f"{root}/{self.files.file(path).relative_to(self.files.root)}"
        finish(files, where, self.layout.columns, deletes)

    def report(self, one: Writer, directory: str, operation: RowOperation) -> None:
        one.reports.append(
            WriteReport(TABLE, None, operation, directory, contents_of(self.root / directory))
        )

    def taken(self) -> Writer | None:
        if not self.writers:
            return None
        return self.writers.pop(self.random.randrange(len(self.writers)))

    def do_commit(self) -> None:
        one = self.taken()
        if one:
            try:
                one.txn.commit(CommitContents(tuple(one.reports)))
            except WriteConflict:
                self.log.append(f"  {one.txn.id} conflicts")

    def do_abort(self) -> None:
        one = self.taken()
        if one:
            one.txn.abort()

    def do_crash(self) -> None:
        """A writer that dies leaves its files, and the reaper's abort comes later."""
        one = self.taken()
        if one:
            self.metastore.call(AbortMany((one.txn.id,), "no heartbeat"))

    def do_overwrite(self) -> None:
        one = self.begin(LockType.EXCL_WRITE)
        if one:
            w = one.write_id
            keys = [(w, P, row) for row in range(self.random.randint(1, 3))]
            self.insert(f"b{w}", keys)
            self.bases.add(w)
            base = f"base_{w:07d}"
            one.txn.commit(
                CommitContents(
                    (
                        WriteReport(
                            TABLE,
                            None,
                            RowOperation.INSERT,
                            base,
                            contents_of(self.root / base),
                            overwrite=True,
                        ),
                    )
                )
            )

    # --- readers --------------------------------------------------------------------------------

    def do_read(self) -> None:
        if len(self.readers) < MOST_READERS:
            self.readers.append(self.hold())

    def hold(self) -> Reader:
        lease = self.metastore.open_snapshot([TABLE])
        write_ids = lease.valid_write_ids(TABLE)
        made = Reader(lease, write_ids, lease.valid_txns, self.visible(write_ids))
        found = self.found(lease, write_ids, lease.valid_txns)
        assert found == made.expected, f"a new snapshot {write_ids} sees {found}, not the model's"
        return made

    def do_release(self) -> None:
        if self.readers:
            self.readers.pop(self.random.randrange(len(self.readers))).lease.commit()

    # --- services -------------------------------------------------------------------------------

    def do_request(self) -> None:
        with suppress(AlreadyScheduled):
            self.metastore.request_compaction(TABLE, None, self.random.choice(("minor", "major")))

    def take(self, worker: str) -> CompactionRun | None:
        return CompactionRun.take(Local(self.metastore, self.spark), worker)

    def do_compact(self) -> None:
        """The next phase of the compaction that is on its way, or its end by a crash."""
        if self.run is None:
            self.run, self.phase = self.take("worker-1"), 0
            return
        crash = self.random.random() < 0.1
        try:
            match self.phase:
                case 0:
                    if isinstance(self.run.prepare(), NothingToDo):
                        self.run = None
                case 1:
                    self.run.merge()
                    self.run.check()
                case _ if crash:  # between the renames and the commit
                    assert self.run.staged and self.run.txn
                    self.run.txn.heartbeat()
                    compaction.publish(self.run.staged)
                case _:
                    self.run.commit()
                    self.published += 1
                    self.run = None
                    self.check()
        except (CompactionLost, TxnAborted) as error:
            if self.run:
                self.run.fail(error)
            self.run = None
        self.phase += 1
        if crash and self.run:
            self.do_revoke()

    def do_revoke(self) -> None:
        """The Worker dies, or is only slow: then it goes on and loses."""
        if self.run:
            self.metastore.call(RevokeWorkers("worker"))
            if self.random.random() < 0.7:
                self.run = None

    def do_clean(self) -> None:
        done = cleaner.run(self.metastore)
        self.removed += sum(len(line.removed) for line in done)
        for one in done:
            assert one.error in ("", "something obsolete is still there"), one
            self.log += [f"  removed {line}" for line in one.removed]
        if done:
            self.check()

    # --- all of it ------------------------------------------------------------------------------

    def play(self, steps: int) -> None:
        self.act(steps)
        self.finish()

    def act(self, steps: int) -> None:
        names = [name for name, _ in ACTIONS]
        weights = [weight for _, weight in ACTIONS]
        for name in self.random.choices(names, weights, k=steps):
            self.log.append(name)
            self.world.clock.advance(1000)
            getattr(self, f"do_{name}")()

    def finish(self) -> None:
        """All end; a major compaction and cleaning leave one base, with the model's rows."""
        self.check()
        while self.readers:
            self.do_release()
        while self.writers:
            self.do_commit()
        self.metastore.call(RevokeWorkers("worker"))
        self.run = None
        for kind in ("minor", "major"):
            with suppress(AlreadyScheduled):
                self.metastore.request_compaction(TABLE, None, kind)
            self.work_off()
            self.do_clean()
        reader = self.hold()
        reader.lease.commit()
        self.do_clean()
        self.world.clock.advance(3_600_000)
        self.do_clean()
        left = sorted(info.name for info in self.root.iterdir() if not info.name.startswith("."))
        live = {
            directory.name
            for directory in self.metastore.entities(TABLE)[0].directories
            if not directory.obsolete
        }
        assert set(left) == live, f"on disk is {left}, of which {sorted(live)} is needed"

    def work_off(self) -> None:
        while (run := self.take("worker-2")) is not None:
            if not isinstance(run.prepare(), NothingToDo):
                run.merge()
                run.check()
                run.commit()
                self.published += 1


def play(seed: int, steps: int = 40, spark: Any = None) -> History:
    """One history. An AssertionError or AcidError tells seed and steps to run it again."""
    with tempfile.TemporaryDirectory(prefix="history-") as place:
        history = History(Path(place, "t"), Random(seed), spark=spark)
        try:
            history.play(steps)
        except (AssertionError, AcidError) as error:
            error.add_note(f"history {seed} of {steps} steps: " + ", ".join(history.log))
            raise
        finally:
            history.metastore.close()
        return history


def main() -> None:
    given = [int(one) for one in sys.argv[1:]]
    first, count, steps = (*given, *(0, 1000, 60)[len(given) :])
    published = removed = 0
    for seed in range(first, first + count):
        done = play(seed, steps)
        published, removed = published + done.published, removed + done.removed
        if (seed - first) % 100 == 99:
            print(
                f"{seed - first + 1} histories, {published} compactions, {removed} removals",
                flush=True,
            )
    print(
        f"{count} histories of {steps} steps: {published} compactions, {removed} removals,"
        " every held snapshot kept its rows"
    )


if __name__ == "__main__":
    main()
