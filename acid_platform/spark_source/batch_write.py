"""INSERT and INSERT OVERWRITE through the data source: begin, write in tasks, commit (P19, P42).

The row keys in the files hold the write id, so the transaction begins before the tasks run. Each
attempt of a task writes files of its own below the statement's staging directory. Spark hands the
records of one attempt of each task to the commit, which publishes these files and no others.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from acid_platform.base.clock import wall_ms
from acid_platform.base.location import Location
from acid_platform.errors import (
    AcidError,
    BatchCommitted,
    NeedsSpark,
    NoSuchTxn,
    PublicationFailed,
    StoreRefused,
    StoreUnavailable,
    TxnAborted,
    UnsupportedStatement,
    WrongType,
)
from acid_platform.formats.file_access import not_written
from acid_platform.handles.row_statements import require_rows_fit
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.layout.names import temporary_name
from acid_platform.layout.types import Column
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.pasts import SinkBatch
from acid_platform.spark_source import keeper
from acid_platform.spark_source.options import Options, opened, shared_key
from acid_platform.storage.files import Files, asking
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import Statement
from acid_platform.values.arrow_types import from_numpy
from acid_platform.values.partition_texts import places_of
from acid_platform.values.stored_values import stored_rows
from acid_platform.write.publishing import WriteTarget, staging
from acid_platform.write.task_files import (
    Received,
    RowKind,
    StagedFile,
    TaskFiles,
    TaskTarget,
    stored,
)

_ATTEMPT = 1_000_000
"""Partitions that one attempt of a task may write."""
_UTC = ("UTC", "Etc/UTC", "Z", "+00:00", "GMT")


@dataclass(frozen=True, slots=True)
class OpenWrite:
    """A write whose transaction is open; a plain value that goes to the tasks and to the commit."""

    place: Location
    txn: int
    table: str
    staging: str
    task: TaskTarget
    """Where the tasks write; without partition columns, whose values come with each file."""
    partition_columns: tuple[Column, ...]
    overwrite: bool
    dynamic: bool


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one attempt of a task has written."""

    files: tuple[tuple[str, str, bool, str], ...]
    """As StagedFile.packed."""
    rows: int


# --- beside the driver ----------------------------------------------------------------------------


def begin(options: Options, names: Sequence[str], overwrite: bool, key: str = "") -> OpenWrite:
    """Opens the transaction of a write of rows with these columns, and keeps it alive.

    `key`: of the streaming query. Its writes that were not ended, because a task failed before
    any told which transaction it was, are aborted. Raises NoSuchTable, UnknownColumn,
    UnsupportedStatement, LockTimeout, WriteConflict.
    """
    warehouse = opened(options.place)
    abort_held(options.place, key)  # of a query that this one goes on with
    begun = warehouse.metastore.begin(info=warehouse.info())
    try:
        work = TransactionWork(warehouse, begun)
        record = work.view.table(options.table)
        require_rows_fit(record, names)
        statement = Statement.INSERT_OVERWRITE if overwrite else Statement.INSERT
        work.lock(record, statement)
        target = work.target(record, work.view.layout(record))
        _require_files_of_ours(target)
        hidden = f"{target.location}/{temporary_name(begun.id, uuid.uuid4().hex[:8])}"
        task = replace(target.tasks(f"{hidden}/out", RowKind.INSERT), partition_names=())
        held = keeper.HeldTransaction(begun.id, False, key, task.location, hidden, wall_ms())
        keeper.hold(options.place, held)
        target.files.make_directory(task.directory)
    except BaseException as error:
        with suppress(AcidError):
            begun.abort(f"{type(error).__name__}: {error}"[:500])
        keeper.let_go(options.place, begun.id)
        raise
    begun.forget()  # from here on the keeper sends its heartbeats
    return OpenWrite(
        options.place,
        begun.id,
        record.name,
        hidden,
        task,
        target.partition_columns,
        overwrite,
        options.dynamic,
    )


def _require_files_of_ours(target: WriteTarget) -> None:
    """Raises UnsupportedStatement for what the tasks can't write."""
    why = None
    if target.buckets is not None:
        why = "it is clustered, and Spark does not bring the rows of a bucket together for us"
    elif not (target.format.keyed or target.format.has_codec):
        why = f"its files are {target.format.name}"
    else:
        why = not_written(target.format, target.compression)
    if why:
        raise UnsupportedStatement(
            f"{target.table} can't be written by the data source: {why}; write by Table.insert, of"
            " a stream in foreachBatch"
        )


def commit(write: OpenWrite, results: Sequence[TaskResult], batch: SinkBatch | None = None) -> bool:
    """Publishes and commits what the tasks have written; False: the batch was committed before.

    Raises PublicationFailed, WriteConflict, TxnAborted, StreamRefused, OutcomeUnknown, and what
    else a commit raises. Then nothing became visible, except perhaps after OutcomeUnknown.
    """
    from acid_platform.engine.spark.write import publish_files

    warehouse = opened(write.place)
    try:
        begun = warehouse.metastore.resume(write.txn)
        work = TransactionWork(warehouse, begun)
        record = work.view.table(write.table)
        layout = work.view.layout(record)
        target = work.target(record, layout)
        files = [StagedFile.unpacked(*file) for result in results for file in result.files]
        rows = sum(file.entry.footer.rows for file in files if file.entry.footer)
        if rows != sum(result.rows for result in results):
            raise PublicationFailed(
                f"{write.table}: the tasks received {sum(result.rows for result in results)} rows,"
                f" and their files hold {rows}; nothing was published, run the query again"
            )
        empty: Sequence[str] = ()
        if write.overwrite and not write.partition_columns:
            empty = [""]
        elif write.overwrite and not write.dynamic:
            empty = sorted(layout.partitions)
        with staging(target, write.staging.rpartition("/")[2]) as staged:
            written = publish_files(staged, files, write.overwrite, empty)
        operation = RowOperation.UPDATE if write.overwrite else RowOperation.INSERT
        work.report(
            record, operation, written, write.overwrite, wrote=("spark", "the data source acid")
        )
        work.sinks += [batch] if batch else []
        work.commit()
    except BatchCommitted:
        abort(write, "the batch was committed before")
        return False
    except AcidError as error:
        abort(write, f"{type(error).__name__}: {error}"[:500])
        raise
    _clean(write.place, write.staging, write.task.location, write.txn)
    return True


def abort(write: OpenWrite, reason: str) -> None:
    """Aborts the write if it is open, and removes its files."""
    _abort(write.place, write.txn, reason)
    _clean(write.place, write.staging, write.task.location, write.txn)


def abort_held(location: Location, key: str, batch_failed: bool = False) -> None:
    """Aborts the open writes of a streaming query of this application.

    Queries without the option checkpointLocation may have one key. Their write is only aborted
    after a batch failed (`batch_failed`) and if it is the only one: nobody could tell which of
    several is meant.
    """
    writes = keeper.held_for(location, key)
    if shared_key(key) and (not batch_failed or len(writes) != 1):
        return
    for write in writes:
        _abort(location, write.txn, "its batch failed")
        _clean(location, write.staging, write.location, write.txn)


def _abort(location: Location, txn: int, reason: str) -> None:
    with suppress(AcidError):
        opened(location).metastore.resume(txn).abort(reason)


def _clean(place: Location, hidden: str, location: str, txn: int) -> None:
    keeper.let_go(place, txn)
    with suppress(OSError, StoreRefused, StoreUnavailable):  # otherwise the Cleaner removes it
        Files.of(location)[0].delete_directory(hidden)


# --- in a task ------------------------------------------------------------------------------------


def write_rows(
    write: OpenWrite, bucket: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> TaskResult:
    """Writes the rows of a task, which may come in any order, and records its files.

    `bucket`: the number of the task. `attempt` is unique among all attempts of the write's tasks.
    Raises UnknownColumn, WrongType, UnsupportedStatement (a conversion that only a query does),
    PublicationFailed, StoreRefused, StoreUnavailable; TxnAborted, NoSuchTxn (it has ended).
    """
    files: dict[str, TaskFiles] = {}
    written: list[StagedFile] = []
    try:
        with asking(write.task.directory):
            for batch in batches:
                for partition, rows in _placed(write, batch):
                    if partition not in files:
                        files[partition] = _files(write, bucket, attempt, len(files))
                    for part in rows.combine_chunks().to_batches():
                        written += files[partition].write(stored(part, write.task))
            for partition, writing in files.items():
                written += (replace(file, partition=partition) for file in writing.finish())
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            _require_open(write)
        raise PublicationFailed(
            f"{write.task.directory} can't be written: {error}; nothing was published: free space,"
            " or grant the permission, see that every executor reaches the warehouse, and run the"
            " query again"
        ) from error
    finally:
        for writing in files.values():
            writing.give_up()
    received = sum((writing.received for writing in files.values()), Received())
    return TaskResult(tuple(file.packed() for file in written), received.rows)


def _require_open(write: OpenWrite) -> None:
    """Raises TxnAborted, NoSuchTxn if the write's transaction has ended: its files were removed.

    Starts and makes no metastore: this machine may lack the warehouse's directory.
    """
    try:
        with Metastore.connect(write.place.metastore, autostart=False) as metastore:
            metastore.resume(write.txn).forget()
    except (TxnAborted, NoSuchTxn):
        raise
    except AcidError:  # this machine reaches neither the metastore nor the directory
        return


def _files(write: OpenWrite, bucket: int, attempt: int, index: int) -> TaskFiles:
    if index >= _ATTEMPT:
        raise UnsupportedStatement(
            f"a task writes more than {_ATTEMPT} partitions of {write.table}: repartition the frame"
            " by its partition columns first"
        )
    return TaskFiles(write.task, bucket, attempt * _ATTEMPT + index)


def _placed(write: OpenWrite, batch: pa.RecordBatch) -> Iterable[tuple[str, pa.Table]]:
    """The rows as the files store them, by the name of their partition."""
    columns = (*write.task.columns, *write.partition_columns)
    received = pa.Table.from_batches([batch])
    for field in received.schema:
        _require_utc(field, write.table)
    try:
        limited = write.task.format.limited(write.task.columns)
        rows = stored_rows(received, columns, write.table, None, limited)
        places = places_of(rows, write.partition_columns)
    except NeedsSpark as error:
        raise UnsupportedStatement(
            f"{write.table}: the data source does not convert {error}: cast the column in the"
            " query, or write by Table.insert, of a stream in foreachBatch"
        ) from error
    values = rows.select([column.name for column in write.task.columns])
    if len(places.names) == 1:
        yield places.names[0], values
        return
    for index, name in enumerate(places.names):
        yield name, values.filter(from_numpy(places.index == index))


def _require_utc(field: pa.Field, table: str) -> None:
    """Raises WrongType for instants of a session that does not run in UTC (P17)."""
    for kind in _leaves(field.type):
        if pa.types.is_timestamp(kind) and kind.tz is not None and kind.tz not in _UTC:
            raise WrongType(
                f"{field.name} is an instant of a session with the time zone {kind.tz}, and {table}"
                " stores wall clock times: set spark.sql.session.timeZone to UTC, or cast the"
                " column to timestamp_ntz"
            )


def _leaves(kind: pa.DataType) -> Iterable[pa.DataType]:
    yield kind
    for index in range(kind.num_fields):
        yield from _leaves(kind.field(index).type)
