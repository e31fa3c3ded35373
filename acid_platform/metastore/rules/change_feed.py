"""The changes of a table between two snapshots (P39).

The commits of a table's history say which write ids to read, and in which order they were
committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acid_platform.errors import InvalidDefinition, NoSuchPast, NotEnoughHistory
from acid_platform.layout.formats import FileFormat
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import (
    AsOf,
    Cursor,
    Pin,
    TableCommit,
    utc_text,
)
from acid_platform.metastore.records import PartitionRecord, TableChanges
from acid_platform.metastore.rules import kept_history
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
from acid_platform.metastore.rules.state import State, TableState
from acid_platform.metastore.rules.turn import Turn, handles
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
        kept_history.pin_at(state, table, now)
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
    before = _after_rewrites(turn.state, table, before, after)
    _require_columns(table, before, after)
    return before


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
    for partition, at in kept_history.ended_after(table, pin.moment).items():
        raise NotEnoughHistory(
            f"the changes of {f'{name} {partition}'.rstrip()} before {utc_text(at)} are not kept:"
            " rows were erased from its history then; "
            + (begin_again(name, consumer) if consumer else "ask since then")
        )


def _require_columns(table: TableState, before: Pin, after: Pin) -> None:
    """Raises InvalidDefinition if changed rows had a column that the last declaration lacks."""
    last = record_at(table, after)
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
            raise InvalidDefinition(
                f"the columns of {last.name} were changed at {utc_text(at)}, and its rows of before"
                f" had {', '.join(gone or former)}: ask for the changes until then, and since then,"
                " apart"
            )


def _after_rewrites(state: State, table: TableState, before: Pin, after: Pin) -> Pin:
    """The snapshot right after the files of `before` last got other columns: it has the same rows.

    A row that is deleted later is then read with the columns of `after`. Raises InvalidDefinition
    if rows changed in between, since their files have the columns of then.
    """
    between = [commit for commit in table.commits if before.moment < commit.moment <= after.moment]
    last = max((index for index, commit in enumerate(between) if commit.rewrite), default=None)
    if last is None:
        return before
    earlier = [commit for commit in between[:last] if commit.changes_rows]
    if earlier:
        raise InvalidDefinition(
            f"the columns or the format of {table.record.name} were changed at"
            f" {utc_text(between[last].at)}, and changes of before are in files of then: ask for"
            f" the changes until write id {earlier[-1].write_id}, and since write id"
            f" {between[last].write_id}, apart"
        )
    return replace(kept_history.pin_at(state, table, between[last].moment), onward=True)


def _commits(table: TableState, before: Pin | None, after: Pin) -> tuple[TableCommit, ...]:
    if before is None:
        write_id, at = last_commit(table, after)
        txn = next((each.txn_id for each in table.commits if each.write_id == write_id), 0)
        return (TableCommit(after.moment, write_id, txn, at),)
    return tuple(
        commit
        for commit in kept_history.after(table, max(before.moment, table.since))
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
