"""Positions that a commit moves: how far consumers have read the changes of tables (P39), and how
far streaming queries have written them (P42).

A cursor moves with everything else that the commit does, so that what a consumer wrote and how far
it has read are one. A consumer that has lost changes is behind, and its row says what to do (P55).

Spark repeats a batch whose end it did not note in its checkpoint. The commit of a batch records its
number under the name of the sink, so a repetition is recognized. Whatever else has such a number is
another batch, whose rows must not get lost: it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.errors import (
    BatchCommitted,
    InvalidDefinition,
    NoSuchPast,
    NotEnoughHistory,
    StreamRefused,
    WriteConflict,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import (
    AsOf,
    Cursor,
    CursorMove,
    CursorRow,
    Sink,
    SinkBatch,
    SinkRow,
    utc_text,
)
from acid_platform.metastore.rules import kept_history
from acid_platform.metastore.rules.change_feed import cursor_of, of_former, start_of
from acid_platform.metastore.rules.state import State, TableState, Txn
from acid_platform.metastore.rules.turn import Event, Turn, handles

_LONGEST = 300
"""Letters of a sink's name."""

# --- cursors --------------------------------------------------------------------------------------


def moved(state: State, txn: Txn, moves: Sequence[CursorMove]) -> tuple[Cursor, ...]:
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
            now = kept_history.pin_at(state, table, state.next_moment - 1)
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


def advanced(turn: Turn, txn: Txn, batches: Sequence[SinkBatch]) -> tuple[Sink, ...]:
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
