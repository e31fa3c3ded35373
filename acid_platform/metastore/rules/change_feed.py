"""The changes of a table between two snapshots, and how far consumers have read them (P39); how far
streaming queries have written a table (P42).

The commits of a table's history say which write ids to read, and in which order they were
committed. A commit moves cursors and sinks with everything else that it does, so that what a
consumer wrote and how far it has read are one. A consumer that has lost changes is behind, and its
row says what to do (P55).

Spark repeats a batch whose end it did not note in its checkpoint. The commit of a batch records its
number under the name of the sink, so a repetition is recognized. Whatever else has such a number is
another batch, whose rows must not get lost: it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acid_platform.errors import (
    AcidError,
    BatchCommitted,
    InvalidDefinition,
    NoSuchPast,
    NotEnoughHistory,
    StreamRefused,
    WriteConflict,
)
from acid_platform.layout.formats import FileFormat
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import (
    AsOf,
    Cursor,
    CursorMove,
    CursorRow,
    Pin,
    Sink,
    SinkBatch,
    SinkRow,
    TableCommit,
    utc_text,
)
from acid_platform.metastore.records import PartitionRecord, TableChanges
from acid_platform.metastore.rules import snapshots
from acid_platform.metastore.rules.declared import directories
from acid_platform.metastore.rules.past_snapshots import (
    PastPinned,
    begin_again,
    last_commit,
    record_at,
    resolve,
    since_text,
    with_history,
)
from acid_platform.metastore.rules.state import State, TableState, Txn
from acid_platform.metastore.rules.turn import Event, Turn, handles
from acid_platform.metastore.rules.txns import renew_lease

# --- decisions ------------------------------------------------------------------------------------


@handles(ops.GetChanges)
def changes(turn: Turn, operation: ops.GetChanges) -> TableChanges:
    """Raises NoSuchPast, NotEnoughHistory, InvalidDefinition for columns that are gone,
    NoSuchTable, SnapshotExpired, TxnAborted, NoSuchTxn."""
    state = turn.state
    txn, table, then = with_history(turn, operation.txn, operation.table)
    now = txn.taken or state.next_moment - 1
    after = (
        snapshots.pin_at(state, table, now)
        if operation.until is None
        else resolve(turn, table, operation.until)
    )
    _require_unended(table, after, operation.since)
    since, cursor = operation.since, None
    if since is not None and since.consumer is not None:
        cursor = cursor_of(state, table, since.consumer)
    before = None
    if since is not None and (since.consumer is None or cursor is not None):
        before = start_of(turn, table, since, after, operation.until)
    pin = before or replace(after, onward=True)
    if pin not in txn.pins:
        turn.record(PastPinned(txn.txn_id, then.name, pin))
    renew_lease(turn, txn)
    commits = _commits(table, before, after)
    entities = _touched(state, table, before, after, commits)
    same_time = 0
    if before is not None and commits:
        first = commits[0]
        same_time = sum(
            each.at == first.at and each.moment < first.moment and each.write_id > 0
            for each in table.commits
        )
    record = record_at(table, after)
    return TableChanges(
        table=record,
        before=before,
        after=after,
        commits=commits,
        entities=entities,
        same_time=same_time,
        cursor=cursor,
    )


def cursor_of(state: State, table: TableState, consumer: str) -> Cursor | None:
    """Where the consumer has come to; None if it is new. Raises NotEnoughHistory if it has read
    another table of this name: the rows that it has of that one would stay."""
    record = table.record
    cursor = state.cursors.get((consumer, record.table_id))
    if cursor is None and of_former(state, record.name, consumer):
        raise NotEnoughHistory(
            f"{consumer} has read the changes of another table {record.name}, which was dropped or"
            f" renamed since; {begin_again(record.name, consumer)}"
        )
    return cursor


def of_former(state: State, name: str, consumer: str | None = None) -> list[Cursor]:
    """The cursors in other tables that had this name when their consumers read them."""
    now = state.names.get(name)
    return [
        cursor
        for cursor in state.cursors.values()
        if cursor.table == name
        and cursor.table_id != now
        and consumer in (None, cursor.consumer)
        and (cursor.consumer, now) not in state.cursors
    ]


def start_of(turn: Turn, table: TableState, since: AsOf, after: Pin, until: AsOf | None) -> Pin:
    """The snapshot from which the changes lead to `after`.

    Raises NoSuchPast, NotEnoughHistory, InvalidDefinition.
    """
    before = replace(resolve(turn, table, since), onward=True)
    _require_unended(table, before, since)
    _require_kept(turn.state, table, before, after, since, until)
    before = _after_rewrites(turn.state, table, before, after, since)
    _require_columns(table, before, after, since)
    return before


def _other_columns(reason: str, apart: str, table: str, since: AsOf) -> AcidError:
    """The error for changes in files that have other columns than those of now (P55)."""
    if since.consumer is None:
        return InvalidDefinition(f"{reason}: ask for the changes until {apart}, apart")
    again = begin_again(table, since.consumer)
    return NotEnoughHistory(f"{reason}, and {since.consumer} has not read them; {again}")


def _require_kept(
    state: State, table: TableState, before: Pin, after: Pin, since: AsOf, until: AsOf | None
) -> None:
    """Raises NotEnoughHistory if commits after `before` are forgotten, NoSuchPast if it is after
    `after`."""
    name = table.record.name
    if before.moment < table.anchor:
        raise NotEnoughHistory(
            f"the changes since {since}: {since_text(state, table, str(since))}"
            + ("; a tag keeps the rows of its snapshot, not what came after it" * bool(since.tag))
        )
    if after.moment < before.moment and after.write_ids != before.write_ids:
        raise NoSuchPast(
            f"{since} of {name} is after {until or 'the snapshot of this transaction'}; changes"
            " lead from an earlier snapshot to a later one"
        )


def _require_unended(table: TableState, pin: Pin, since: AsOf | None) -> None:
    """Raises NotEnoughHistory if the history of a partition was ended after the snapshot."""
    name = table.record.name
    consumer = since and since.consumer
    for partition, at in snapshots.ended_after(table, pin.moment).items():
        raise NotEnoughHistory(
            f"the changes of {f'{name} {partition}'.rstrip()} before {utc_text(at)} are not kept:"
            " rows were erased from its history then; "
            + (begin_again(name, consumer) if consumer else "ask since then")
        )


def _require_columns(table: TableState, before: Pin, after: Pin, since: AsOf) -> None:
    """Raises as `_other_columns` if changed rows had a column that the last declaration lacks."""
    last = record_at(table, after)
    for commit in table.commits:
        remade = commit.write_id == last.rewritten and commit.changes_rows
        if remade and before.moment < commit.moment <= after.moment:
            reason = (
                f"{last.name} was made anew at {utc_text(commit.at)}, with other columns than its"
                " rows of before had"
            )
            raise _other_columns(reason, "then, and since then", last.name, since)
    names = [column for column, _ in last.columns]
    for earlier in table.earlier:
        record = earlier.record
        if record.version > after.moment or not any(
            commit.changes_rows and before.moment < commit.moment < min(earlier.until, after.moment)
            for commit in table.commits
        ):
            continue
        former = [column for column, _ in record.columns]
        moved = FileFormat.of(record.properties).by_position and names[: len(former)] != former
        gone = [column for column in former if column not in names]
        if gone or moved:
            at = next(commit.at for commit in table.commits if commit.moment >= earlier.until)
            reason = (
                f"the columns of {last.name} were changed at {utc_text(at)}, and its rows of before"
                f" had {', '.join(gone or former)}"
            )
            raise _other_columns(reason, "then, and since then", last.name, since)


def _after_rewrites(state: State, table: TableState, before: Pin, after: Pin, since: AsOf) -> Pin:
    """The snapshot right after the files of `before` last got other columns: it has the same rows.

    A row that is deleted later is then read with the columns of `after`. Raises as
    `_other_columns` if rows changed in between, since their files have the columns of then.
    """
    between = [commit for commit in table.commits if before.moment < commit.moment <= after.moment]
    last = max((index for index, commit in enumerate(between) if commit.rewrite), default=None)
    if last is None:
        return before
    earlier = [commit for commit in between[:last] if commit.changes_rows]
    if earlier:
        name, rewrite = table.record.name, between[last]
        reason = (
            f"the columns or the format of {name} were changed at {utc_text(rewrite.at)}, and"
            " changes of before are in files of then"
        )
        apart = f"write id {earlier[-1].write_id}, and since write id {rewrite.write_id}"
        raise _other_columns(reason, apart, name, since)
    return replace(snapshots.pin_at(state, table, between[last].moment), onward=True)


def _commits(table: TableState, before: Pin | None, after: Pin) -> tuple[TableCommit, ...]:
    if before is None:
        write_id, at = last_commit(table, after)
        txn = next((each.txn_id for each in table.commits if each.write_id == write_id), 0)
        return (TableCommit(after.moment, write_id, txn, at),)
    return tuple(
        commit
        for commit in snapshots.commits_after(table, max(before.moment, table.since))
        if before.moment < commit.moment <= after.moment
    )


def _touched(
    state: State, table: TableState, before: Pin | None, after: Pin, commits: Sequence[TableCommit]
) -> tuple[PartitionRecord, ...]:
    table_id = table.record.table_id
    first = after.moment if before is None else before.moment
    writes = {commit.write_id: commit.txn_id for commit in commits if commit.write_id}
    txns = {txn for txn in writes.values() if txn}

    def touched(partition: str | None) -> bool:
        return before is None or any(
            directory.txn in txns or (directory.low == directory.high in writes)
            for directory in directories(state, (table_id, partition)).values()
        )

    if not table.record.partitioned:
        return (PartitionRecord(""),) if touched(None) else ()
    every = [
        partition
        for partition in (*table.partitions.values(), *table.dropped_partitions)
        if partition.added <= after.moment and (not partition.dropped or first < partition.dropped)
    ]
    names = {
        partition.name
        for partition in every
        if 0 < partition.dropped <= after.moment or touched(partition.name)
    }
    chosen = (partition for partition in every if partition.name in names)
    return tuple(sorted(chosen, key=lambda partition: (partition.name, partition.added)))


_LONGEST = 300
"""Letters of a sink's name."""

# --- cursors --------------------------------------------------------------------------------------


def moved_cursors(state: State, txn: Txn, moves: Sequence[CursorMove]) -> tuple[Cursor, ...]:
    """The cursors as a commit leaves them. Raises WriteConflict if another run has moved one."""
    moved_cursors = []
    for move in moves:
        table = state.table(move.table)
        cursor = state.cursors.get((move.consumer, table.record.table_id))
        if move.before != (cursor.moment if cursor else 0):
            raise WriteConflict(
                f"another run of {move.consumer} has consumed changes of {table.record.name}"
                " meanwhile"
            )
        write_id, at = table.since_write, table.since_at
        for commit in table.commits:
            if commit.write_id and commit.moment <= move.after:
                write_id, at = commit.write_id, commit.at
        moved_cursors.append(
            Cursor(
                consumer=move.consumer,
                table_id=table.record.table_id,
                moment=move.after,
                write_id=max(write_id, 0),
                at=at,
                txn_id=txn.txn_id,
                table=table.record.name,
            )
        )
    return tuple(moved_cursors)


@handles(ops.GetCursors)
def cursors(turn: Turn, operation: ops.GetCursors) -> list[CursorRow]:
    """Raises NoSuchTable."""
    state = turn.state
    tables = state.tables.values() if operation.table is None else [state.table(operation.table)]
    rows = []
    for table in tables:
        own = [each for each in state.cursors.values() if each.table_id == table.record.table_id]
        for cursor in (*own, *of_former(state, table.record.name)):
            rows.append(_row(turn, table, cursor))
    return sorted(rows, key=lambda row: (row.cursor.consumer, row.cursor.table_id, row.table))


def _row(turn: Turn, table: TableState, cursor: Cursor) -> CursorRow:
    """What the next run of the consumer would read of the table, or why it would be refused."""
    state, refused = turn.state, ""
    former = cursor.table_id != table.record.table_id
    missed = [
        commit.moment
        for commit in table.commits
        if commit.changes_rows and (former or commit.moment > cursor.moment)
    ]
    if former or cursor.moment < table.anchor:  # how many commits were forgotten is not known
        missed.insert(0, table.anchor)
    if missed:
        try:
            cursor_of(state, table, cursor.consumer)
            now = snapshots.pin_at(state, table, state.next_moment - 1)
            start_of(turn, table, AsOf(consumer=cursor.consumer), now, None)
        except (NotEnoughHistory, InvalidDefinition) as error:
            refused = str(error)
    return CursorRow(table.record.name, cursor, len(missed), max(missed, default=0), refused)


@handles(ops.ForgetCursor)
def forget_cursor(turn: Turn, operation: ops.ForgetCursor) -> None:
    """Raises NoSuchTable, NoSuchPast."""
    state, table = turn.state, turn.state.table(operation.table).record
    own = [each for each in state.cursors.values() if each.table_id == table.table_id]
    every = [*own, *of_former(state, table.name)]
    mine = [each for each in every if each.consumer == operation.consumer]
    if not mine:
        names = sorted({each.consumer for each in every})
        raise NoSuchPast(
            f"{operation.consumer} does not consume the changes of {table.name}; consumers:"
            f" {', '.join(names) or 'none'}"
        )
    for cursor in mine:
        turn.record(CursorForgotten(cursor.consumer, cursor.table_id))


# --- sinks ----------------------------------------------------------------------------------------


def advanced_sinks(turn: Turn, txn: Txn, batches: Sequence[SinkBatch]) -> tuple[Sink, ...]:
    """The sinks as the commit of a transaction leaves them.

    Raises BatchCommitted for the repetition of a sink's last batch, StreamRefused for an earlier
    batch, and for the last one if another query comes with it or its number of rows differs and
    must not.
    """
    moved_sinks = []
    for batch in batches:
        if not batch.sink.isprintable() or not 0 < len(batch.sink) <= _LONGEST:
            raise InvalidDefinition(
                f"{batch.sink!r} can't be the name of a sink: 1 to {_LONGEST} printable letters"
            )
        table = turn.state.table(batch.table)
        last = turn.state.sinks.get((batch.sink, table.record.table_id))
        if last is not None and batch.batch <= last.batch:
            raise _repeated(table.record.name, last, batch)
        moved_sinks.append(
            Sink(
                sink=batch.sink,
                table_id=table.record.table_id,
                query=batch.query,
                batch=batch.batch,
                rows=batch.rows,
                txn_id=txn.txn_id,
                at=turn.now,
            )
        )
    return tuple(moved_sinks)


def _repeated(table: str, last: Sink, batch: SinkBatch) -> BatchCommitted | StreamRefused:
    text = (
        f"sink {last.sink} has written batch {last.batch} of query {last.query} into {table},"
        f" {last.rows} rows at {utc_text(last.at)}"
    )
    forget = f"acid streams {table} --forget {last.sink}"
    if batch.query != last.query:
        return StreamRefused(
            f"{text}; batch {batch.batch} of query {batch.query} comes from another checkpoint, and"
            " would count as written: start the query with the checkpoint of the first one, write"
            f" under another sink name, or, if its rows shall be added, call {forget}"
        )
    if batch.batch < last.batch:
        return StreamRefused(
            f"{text}; now its batch {batch.batch} comes again: the checkpoint is an older copy, or"
            " another process runs the query. Stop that process, or start with a new checkpoint at"
            " the right place of the source and another sink name"
        )
    if batch.rows != last.rows and not batch.any_rows:
        return StreamRefused(
            f"{text}; now batch {batch.batch} has {batch.rows} rows: the checkpoint is an older"
            " copy, whose query has made another batch of that number, or the query gives other"
            " rows each time. For the latter, set the option replay=skip, which takes the rows of"
            " the first attempt"
        )
    return BatchCommitted(f"{text}, and repeats it")


@handles(ops.GetSinks)
def sinks(turn: Turn, operation: ops.GetSinks) -> list[SinkRow]:
    """Raises NoSuchTable."""
    state = turn.state
    only = None if operation.table is None else state.table(operation.table).record.table_id
    return [
        SinkRow(state.name_of(table_id), sink)
        for (_, table_id), sink in sorted(state.sinks.items())
        if only in (None, table_id)
    ]


@handles(ops.ForgetSink)
def forget_sink(turn: Turn, operation: ops.ForgetSink) -> None:
    """Raises NoSuchTable, NoSuchPast."""
    table = turn.state.table(operation.table).record
    if (operation.sink, table.table_id) not in turn.state.sinks:
        names = sorted(name for name, table_id in turn.state.sinks if table_id == table.table_id)
        raise NoSuchPast(
            f"no query writes {table.name} as {operation.sink}; sinks: {', '.join(names) or 'none'}"
        )
    turn.record(SinkForgotten(operation.sink, table.table_id))


# --- events ---------------------------------------------------------------------------------------


class CursorForgotten(Event, kind="cursor_forgotten"):
    consumer: str
    table_id: int

    def apply(self, state: State, _at: int) -> None:
        state.cursors.pop((self.consumer, self.table_id), None)


class SinkForgotten(Event, kind="sink_forgotten"):
    sink: str
    table_id: int

    def apply(self, state: State, _at: int) -> None:
        state.sinks.pop((self.sink, self.table_id), None)
