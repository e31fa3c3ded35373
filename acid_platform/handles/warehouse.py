"""The warehouse handle: tables, transactions, snapshots and services."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from acid_platform.base.arguments import require_kind
from acid_platform.base.first_use import ClosedAfter
from acid_platform.base.location import Location
from acid_platform.compaction.states import CompactionKind, ErasureState
from acid_platform.engine.choice import (
    Engines,
    Preference,
    has_cluster,
    names_cluster,
    preference_of,
)
from acid_platform.errors import (
    AlreadyScheduled,
    CompactionFailed,
    InvalidDefinition,
    NoSuchTable,
    WarehouseNotWritable,
)
from acid_platform.handles.read_verbs import Snapshot
from acid_platform.handles.snapshot_views import Leases
from acid_platform.handles.table import Table
from acid_platform.handles.transaction import Transaction
from acid_platform.layout.names import table_name
from acid_platform.layout.table_properties import COMMENT, require_property_texts
from acid_platform.layout.types import Constraint, parse_columns
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations import listings
from acid_platform.metastore.operations.listings import Shown
from acid_platform.metastore.records import PLATFORM, ClientInfo, LockRequest
from acid_platform.services import worker_id
from acid_platform.storage.durability import make_root
from acid_platform.storage.files import Files
from acid_platform.tables.declaration import Declaration, with_format
from acid_platform.tables.joining import join
from acid_platform.tables.table_constraints import require_computable
from acid_platform.transactions import Isolation, ValidWriteIdList
from acid_platform.values.arrow_types import declared_text

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

    from acid_platform.handles.ducklake_export import DuckLakeExport
    from acid_platform.handles.iceberg_export import IcebergExport
    from acid_platform.handles.warehouse_branches import Branches
    from acid_platform.sql import Answer, SqlSession

    SparkOrStart = SparkSession | Callable[[], SparkSession] | None

_LONGEST_MESSAGE = 2000


class Warehouse(ClosedAfter):
    """A directory of Hive ACID tables and its metastore. Use `open`; close it, or use `with`.

    Thread-safe for reading; a transaction belongs to one thread. A read lease of this handle
    protects the files of every frame that it returns (P12).
    """

    def __init__(
        self,
        location: str,
        metastore: Metastore,
        spark: SparkOrStart = None,
        run_id: str = "",
        engine: Preference = "auto",
    ) -> None:
        self.files, self.path = Files.of(location)
        self.metastore = metastore
        """The metastore's client."""
        given = None if callable(spark) else spark
        on_cluster = names_cluster if given is None else partial(has_cluster, given)
        self.engines = Engines(lambda: self.spark, engine, on_cluster)
        """The engines that run queries and changes."""
        self._spark_or_start = spark
        self._spark: SparkSession | None = None
        self.notice: Callable[[str], object] = _log.info
        """Is told when Spark has started, what for, and how long it took."""
        self.run_id = run_id
        self.message = ""
        """What the histories of tables say of the transactions that begin here."""
        """The Dagster run that opened it, or an empty text."""
        self._guard = threading.RLock()
        self.leases = Leases(self)
        """The read leases of the frames of this handle."""
        self._session: SqlSession | None = None

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str] | None = None,
        spark: SparkOrStart = None,
        metastore: str | None = None,
        run_id: str = "",
        settings: Mapping[str, str] | None = None,
        engine: str | None = None,
        branch: str | None = None,
    ) -> Warehouse:
        """Opens the warehouse at a path or URI, or makes it; starts its metastore if none runs.

        Defaults: ACID_WAREHOUSE, ACID_METASTORE (a directory; for a local warehouse the one inside
        it). Spark starts when it is first needed; `spark` may be a function, which is called then.
        `settings` go by Hive's configuration names and are stored in the metastore. `engine`:
        `auto` (the default, or ACID_ENGINE), `spark` or `local`, see `using`. `branch`: what is
        read and written is that of this branch (default: ACID_BRANCH, or none). Raises
        NoSuchBranch, InvalidDefinition for another engine, WarehouseNotWritable, WarehouseMismatch,
        MetastoreMissing if there are tables and no metastore (P31), MetastoreUnavailable,
        SettingRefused.
        """
        chosen = preference_of(engine or os.environ.get("ACID_ENGINE") or "auto")
        chosen_location = Location.of(location, metastore)
        files, path = Files.of(chosen_location.warehouse)
        require_writable(files, path)
        handle = cls(chosen_location.warehouse, join(chosen_location), spark, run_id, chosen)
        for name, value in (settings or {}).items():
            handle.metastore.set(name, value)
        on_branch = os.environ.get("ACID_BRANCH", "") if branch is None else branch
        if on_branch:
            handle.branches.require(on_branch, judged=False)
            handle.metastore.branch = on_branch
        return handle

    @property
    def branches(self) -> Branches:
        """The branches of this warehouse: create, list, merge and drop them."""
        from acid_platform.handles.warehouse_branches import Branches

        return Branches(self)

    # --- its engines ---------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which is started if needed, also after its JVM has ended. Raises
        JavaMissing, SparkMisconfigured, SparkLost."""
        with self._guard:
            if self._spark is not None:
                from acid_platform.engine.spark.jvm import has_ended

                if has_ended(self._spark):
                    self._spark = None
            if self._spark is None:
                from acid_platform.engine.spark import jvm, session
                from acid_platform.engine.spark.failures import install_expiry

                was_there, began = jvm.is_there(), time.monotonic()
                caller = self._spark_or_start
                own = caller() if callable(caller) else caller
                self._spark = session.check_session(own) if own else session.start_session()
                install_expiry(self._spark)
                if jvm.is_there() and not was_there:
                    took = time.monotonic() - began
                    self.notice(f"Spark started in {took:.1f} s: {self.engines.reason_here}")
            return self._spark

    def using(self, engine: str | None) -> AbstractContextManager[None]:
        """`with wh.using("spark"):` runs what this thread does in the block with that engine.

        `auto`: without a JVM what is small and can be, everything else with Spark. `local`: never
        with Spark; raises NeedsSpark instead. `spark`: always with Spark. None: no change. Raises
        InvalidDefinition for another name.
        """
        return self.engines.using(engine)

    # --- tables --------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        columns: str | pa.Schema,
        partitioned_by: Sequence[str] = (),
        clustered_by: tuple[Sequence[str], int] | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        location: str | None = None,
        comments: Mapping[str, str] | None = None,
        comment: str = "",
        constraints: Sequence[Constraint] = (),
    ) -> Table:
        """`create_table("db.t", "id int, v string", partitioned_by=["month int"])`.

        `columns` may be an Arrow schema: each column gets the type that holds its values.
        `comments`: of columns and partition columns, by their names; `comment`: of the table, which
        is its property `comment`, as in Hive. Names are stored in lower case. A name without a
        database is in `default`; a missing database is made. Without `location` the table is in
        `db.db/t`, or in `db.db/t_2` and so on if a renamed table still uses that directory. A
        relative `location` is below the current directory. A directory with data is refused: use
        `adopt_table`. Raises InvalidDefinition, UnknownColumn for the comment of no column,
        TableExists.
        """
        from acid_platform.tables.locations import create

        full = table_name(name)
        require_kind("location", location, (str, type(None)), "a path or URI", InvalidDefinition)
        if comment:
            require_property_texts(properties)
            properties = {**(properties or {}), COMMENT: comment}
        known = None
        if if_not_exists:
            with suppress(NoSuchTable):
                known = self.metastore.table(full)
        declared = Declaration.of(
            full,
            parse_columns(declared_text(columns)),
            partitioned_by,
            clustered_by,
            with_format(properties, self.metastore.in_force) if known is None else properties,
            comments=comments,
            constraints=constraints,
        )
        if declared.constraints:
            require_computable(self.engines, self.metastore.in_force, declared.record(full, ""))
        if known is None:
            known = create(self.metastore, full, declared, location, if_not_exists)
        return Table(self, known.name, known)

    def adopt_table(
        self,
        name: str,
        location: str | os.PathLike[str],
        schema: str | None = None,
        partitioned_by: Sequence[str] = (),
        clustered_by: tuple[Sequence[str], int] | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Registers an existing table: a Hive ACID directory, or plain ORC files (P24).

        Every footer is read and recorded (P26). No file is changed; plain files become original
        files of write id 0. `schema` None takes the columns of one of the ORC files. A relative
        path is below the current directory. Write ids that `snapshot` does not see count as aborted
        for ever; without `snapshot` all write ids count as committed, and a warning says so. New
        ids start above the highest in any name. Nobody else may write there afterwards.

        Raises TableExists, InvalidDefinition, and for files that can't be read correctly
        MalformedName, UnsupportedLayout, CorruptFile; then nothing is registered.
        """
        from acid_platform.display.progress_bar import progress
        from acid_platform.tables.adoption import adopt

        full = table_name(name)
        require_property_texts(properties)
        require_kind("schema", schema, (str, type(None)), "a text such as 'id int'")
        write_ids = ValidWriteIdList.parse(snapshot) if isinstance(snapshot, str) else snapshot
        with progress():
            adopted = adopt(
                self.metastore,
                full,
                os.fspath(location),
                None if schema is None else parse_columns(schema),
                partitioned_by,
                clustered_by,
                snapshot=write_ids,
                properties=properties,
            )
        highest = adopted.survey.write_id
        if write_ids is None and highest:
            warnings.warn(
                f"{full}: write ids 1 to {highest} were found and count as committed; if"
                " some were open or aborted, drop the table and adopt it with snapshot=",
                stacklevel=2,
            )
        return Table(self, adopted.record.name)

    def table(self, name: str) -> Table:
        """Raises NoSuchTable."""
        return Table(self, table_name(name))

    def tables(self) -> list[str]:
        """The full names of all tables, sorted."""
        return sorted(record.name for record in self.metastore.tables())

    def drop_table(self, name: str, purge: bool = False) -> None:
        """Drops the table for new snapshots; files stay while older ones need them (C41), and,
        unless `purge`, as long as its history is kept."""
        self.metastore.drop(table_name(name), purge=purge)

    def undrop(self, name: str, rename: str | None = None, table_id: int = 0) -> Table:
        """Brings back the last dropped table of this name, or that of an id, perhaps as `rename`
        (P83). Raises NoSuchTable, TableExists, and InvalidDefinition if its files may be gone."""
        record = self.metastore.call(ops.UndropTable(table_name(name), rename, table_id))
        return Table(self, record.name, record)

    # --- transactions and snapshots ------------------------------------------------------------

    def transaction(
        self,
        restart_if_stale: bool = False,
        locks: Sequence[LockRequest] = (),
        isolation: Isolation = "snapshot",
        reads: Sequence[str] = (),
        message: str = "",
    ) -> Transaction:
        """`with wh.transaction() as txn:` commits at the end of the block, or aborts.

        `isolation="serializable"`: the commit raises WriteConflict if others have changed since its
        snapshot what it has read, plain SELECTs included; a table that it reads or writes may ask
        for that, too (P52).

        `restart_if_stale`: a lock that had to wait raises SnapshotOutdated if the snapshot misses a
        commit (T40). A single statement then begins again with the `locks` of this transaction, so
        that its snapshot is taken after they were granted. `reads`: full names of tables, of which
        the first answer tells what the snapshot sees. `message`: what the histories of its tables
        say of it; default: `message` of the warehouse. Raises LockTimeout, NoSuchTable.
        """
        if isolation not in get_args(Isolation):
            raise InvalidDefinition(
                f"isolation is {isolation!r}; choose one of {', '.join(get_args(Isolation))}"
            )
        describe = bool(locks or reads)
        info = self.info(message)
        begun = self.metastore.begin(locks, info=info, describe=describe, reads=reads)
        return Transaction(self, begun, restart_if_stale, locks, isolation)

    def snapshot(self) -> Snapshot:
        """`with wh.snapshot() as s:` is one snapshot of all tables, held for the block (P12)."""
        return Snapshot(self, self.metastore.open_snapshot(None, self.info()))

    def duckdb(self) -> DuckDBPyConnection:
        """A DuckDB connection with every table as a view at one snapshot, `database.table`.

        For queries in DuckDB's own SQL, by people and BI tools. Later commits are not visible; the
        files stay until `release` or `close` (P12). Needs no Spark. Hive's views are left out.
        """
        from acid_platform.engine.local.computation import with_views

        names = self.tables()
        with self.leases.lasting(*names) as view:
            scans = view.scans([view.request(name) for name in names])
        return with_views(dict(zip(names, scans, strict=True)))

    def export_iceberg(self, table: str, into: str | None = None) -> IcebergExport:
        """Tells readers of Iceberg the table's commits that they don't know yet; no row is copied.

        They find it in `_iceberg/db/t` of the warehouse, or of the path or URI `into`, with each
        snapshot whose history is kept. Call it again after commits. Raises NoSuchTable,
        UnsupportedLayout for a table that is not in Parquet, LeaseHeld while another does the same.
        """
        from acid_platform.handles.iceberg_export import export_iceberg

        return export_iceberg(self, table, into)

    def export_ducklake(self, *tables: str, into: str | None = None) -> DuckLakeExport:
        """Writes a catalog of DuckLake for these tables and those that it has; default: all that
        are in Parquet. No row is copied. It is `_ducklake/catalog.ducklake` of the warehouse, or
        the path or URI `into`. Raises NoSuchTable, UnsupportedLayout and LeaseHeld."""
        from acid_platform.handles.ducklake_export import export_ducklake

        return export_ducklake(self, tables, into)

    def release(self) -> None:
        """Ends all read leases: frames returned so far may now raise SnapshotExpired (P12)."""
        self.leases.release()

    # --- compaction ----------------------------------------------------------------------------

    def compact(
        self,
        table: str,
        partitions: Iterable[str | None],
        kind: CompactionKind,
        wait: bool,
        properties: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """Queues compactions; with `wait` executes queued ones until these have ended (C58, C59).

        `properties`, such as `compactor.hive.compactor.job.queue`, win over the table's (C22).
        Returns their rows of SHOW COMPACTIONS. Raises AlreadyScheduled, CompactionFailed.
        """
        from acid_platform.services import worker

        ids: list[int] = []
        refused: AlreadyScheduled | None = None
        for partition in partitions:
            try:
                ids.append(
                    self.metastore.request_compaction(
                        table, partition, kind.value, properties, worker_id()
                    )
                )
            except AlreadyScheduled as error:
                refused = error
        if refused and not ids:
            raise refused
        ended: dict[int, dict[str, Any]] = {}
        while wait and (waiting := [request for request in ids if request not in ended]):
            outcome = worker.work_once(self)
            if outcome is None:  # another worker has them
                time.sleep(0.2)
            elif outcome.state == "failed" and outcome.task.id in waiting:
                raise CompactionFailed(
                    f"compaction {outcome.task.id} of {table} failed: {outcome.reason}"
                )
            for request in waiting:
                shown = self.metastore.call(ops.ShowCompaction(request))
                if shown.ended:
                    ended[request] = shown.row
        if wait:
            return [ended[request] for request in ids]
        return [row for row in self.metastore.compactions() if row["compactionid"] in ids]

    # --- showing -------------------------------------------------------------------------------

    def show_transactions(self) -> pd.DataFrame:
        """SHOW TRANSACTIONS: open transactions, and aborted ones with files left."""
        return Shown(listings.TRANSACTIONS, tuple(self.metastore.transactions())).to_pandas()

    def show_locks(self) -> pd.DataFrame:
        """SHOW LOCKS."""
        return Shown(listings.LOCKS, tuple(self.metastore.locks())).to_pandas()

    def show_compactions(self) -> pd.DataFrame:
        """SHOW COMPACTIONS: the queue and the history (C61)."""
        return Shown(listings.COMPACTIONS, tuple(self.metastore.compactions())).to_pandas()

    def abort_transactions(self, ids: Sequence[int]) -> str:
        """ABORT TRANSACTIONS: aborts those that are open; says how many (T12)."""
        return self.metastore.call(ops.AbortMany(tuple(ids), "")).message

    def withdraw_erasure(self, request: int, reason: str = "") -> None:
        """Settles a recorded erasure request without erasing.

        Raises InvalidDefinition if it is settled already.
        """
        self.metastore.call(ops.AnswerErasure(request, ErasureState.WITHDRAWN, reason, (), ""))

    def sql(
        self,
        statement: str,
        parameters: Mapping[str, object] | None = None,
        engine: str | None = None,
    ) -> Answer:
        """Runs one statement of Hive's SQL, or several separated by semicolons.

        `parameters` are the values of `:name` in it: `wh.sql("SELECT * FROM t WHERE d = :day",
        {"day": date(2024, 1, 1)})`. Each becomes one literal of its type: None, bool, int, float,
        Decimal, str, bytes, date, or datetime, which is in UTC if it has no zone.

        Returns the result of the last: a `Result` for a SELECT, over one snapshot of all its
        tables, and for SHOW, DESCRIBE and EXPLAIN; a `Done` for anything else. USE
        and START TRANSACTION outlast the call. `engine`: see `using`. Raises UnsupportedStatement,
        InvalidExpression, NoSuchTable, NeedsSpark and what the verbs of Table raise.
        """
        return self.session.run(statement, engine, parameters)

    @property
    def session(self) -> SqlSession:
        """The state of SQL between statements: the database of USE, and an open transaction."""
        from acid_platform.sql import SqlSession

        with self._guard:
            if self._session is None:
                self._session = SqlSession(self)
            return self._session

    def session_within(self, txn: Transaction) -> SqlSession:
        """A SQL session whose statements belong to the transaction, which they don't end."""
        from acid_platform.sql import TransactionSession

        return TransactionSession(self, txn)

    # --- ending --------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends all leases and the connection. The Spark session and the metastore keep running.

        A transaction that SQL began and did not end is rolled back.
        """
        if self._session is not None:
            self._session.close()
        self.release()
        self.metastore.close()

    def info(self, message: str = "") -> ClientInfo:
        """Who we are, and what we do it for, as SHOW TRANSACTIONS says it.

        Raises InvalidDefinition for a message of more than 2,000 characters.
        """
        told = message or self.message
        if len(told) > _LONGEST_MESSAGE:
            raise InvalidDefinition(
                f"a message has at most {_LONGEST_MESSAGE:,} characters, and this one {len(told):,}"
            )
        return ClientInfo(getpass.getuser(), socket.gethostname(), PLATFORM, self.run_id, told)

    def __repr__(self) -> str:
        return f"<Warehouse {self.path}>"


def require_writable(files: Files, path: str) -> None:
    """Makes the directory if it is not there.

    Raises WarehouseNotWritable, StoreRefused, StoreUnavailable.
    """
    if not files.object_store and not files.exists(path):
        make_root(files, path)
    probe = f"{path}/_probe_{os.getpid()}_{threading.get_ident()}"
    try:
        files.write(probe, b"")
        files.delete_file(probe)
    except OSError as error:
        raise WarehouseNotWritable(
            f"{path} can't be written: {error}; choose another ACID_WAREHOUSE or its permissions"
        ) from error
