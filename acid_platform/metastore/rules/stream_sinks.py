"""How far streaming queries have written tables: each batch counts once (P42).

Spark repeats a batch whose end it did not note in its checkpoint. The commit of a batch records its
number under the name of the sink, so a repetition is recognized. Whatever else has such a number is
another batch, whose rows must not get lost: it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.errors import BatchCommitted, InvalidDefinition, NoSuchPast, StreamRefused
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import Sink, SinkBatch, SinkRow, utc_text
from acid_platform.metastore.rules.state import State, Txn
from acid_platform.metastore.rules.turn import Event, Turn, handles

_LONGEST = 300
"""Letters of a sink's name."""

# --- decisions ------------------------------------------------------------------------------------


def advanced(turn: Turn, txn: Txn, batches: Sequence[SinkBatch]) -> tuple[Sink, ...]:
    """The sinks as the commit of a transaction leaves them.

    Raises BatchCommitted for the repetition of a sink's last batch, StreamRefused for an earlier
    batch, and for the last one if another query comes with it or its number of rows differs and
    must not.
    """
    sinks = []
    for batch in batches:
        if not batch.sink.isprintable() or not 0 < len(batch.sink) <= _LONGEST:
            raise InvalidDefinition(
                f"{batch.sink!r} can't be the name of a sink: 1 to {_LONGEST} printable letters"
            )
        table = turn.state.table(batch.table)
        last = turn.state.sinks.get((batch.sink, table.record.table_id))
        if last is not None and batch.batch <= last.batch:
            raise _repeated(table.record.name, last, batch)
        sinks.append(
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
    return tuple(sinks)


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
def listed(turn: Turn, operation: ops.GetSinks) -> list[SinkRow]:
    """Raises NoSuchTable."""
    state = turn.state
    only = None if operation.table is None else state.table(operation.table).record.table_id
    return [
        SinkRow(state.name_of(table_id), sink)
        for (_, table_id), sink in sorted(state.sinks.items())
        if only in (None, table_id)
    ]


@handles(ops.ForgetSink)
def forget(turn: Turn, operation: ops.ForgetSink) -> None:
    """Raises NoSuchTable, NoSuchPast."""
    table = turn.state.table(operation.table).record
    if (operation.sink, table.table_id) not in turn.state.sinks:
        names = sorted(name for name, table_id in turn.state.sinks if table_id == table.table_id)
        raise NoSuchPast(
            f"no query writes {table.name} as {operation.sink}; sinks: {', '.join(names) or 'none'}"
        )
    turn.record(SinkForgotten(operation.sink, table.table_id))


# --- events ---------------------------------------------------------------------------------------


class SinkForgotten(Event, kind="sink_forgotten"):
    sink: str
    table_id: int

    def apply(self, state: State, _at: int) -> None:
        state.sinks.pop((self.sink, self.table_id), None)
