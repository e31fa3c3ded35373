"""What a transaction sees (S rules, P4, P5, C41), and what past moments of a table showed (P36).

A table has the commits since the moment `since`, in the order in which they were made. What it
showed at `since`, or after any of them, can be read, since the Cleaner removes no directory that
one of these snapshots needs. Before it removes others, it moves `since` forward. A pin, which a tag
or an open transaction holds, keeps one snapshot for longer; it carries its own lists. A consumer of
changes keeps what it has not read, for a limited time (P55).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter

from acid_platform.layout.table_properties import (
    CONSUMER_RETENTION,
    HISTORY_RETENTION,
    TableProperty,
)
from acid_platform.metastore.pasts import Cursor, Pin, TableCommit, before_commits
from acid_platform.metastore.rules.state import State, TableState, Txn
from acid_platform.transactions import CompactorWriteIdList, TxnType, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.ids import NONE_OPEN


def txn_list(state: State) -> ValidTxnList:
    """The list now; READ_ONLY transactions are left out (S1)."""
    return _list_at(state, state.next_moment)


def snapshot(state: State, txn: Txn) -> ValidTxnList | None:
    """The list that an open transaction saw when it took its snapshot, if it has one (S2, S4).

    It is rebuilt from which transactions were open at that moment: storing a list in each
    transaction would take the square of their number.
    """
    if not txn.taken:
        return None
    seen = _list_at(state, txn.taken).for_reader(txn.txn_id)
    if not txn.sees:
        return seen
    hidden = set(seen.open).difference(txn.sees)
    return ValidTxnList.of(seen.high_watermark, hidden, seen.aborted)


def _list_at(state: State, moment: int) -> ValidTxnList:
    opened: list[int] = []
    aborted: list[int] = []
    for txn in state.txns.values():
        if txn.kind is not TxnType.READ_ONLY:
            (opened if txn.is_open or txn.closed > moment else aborted).append(txn.txn_id)
    for departed in reversed(state.departed):
        if departed.gone <= moment:
            break
        (opened if departed.closed > moment else aborted).append(departed.txn_id)
    return ValidTxnList.of(state.last_txn, opened, aborted)


def first_snapshot(state: State) -> Callable[[int], int]:
    """A function: the moment of the first snapshot among open transactions above an id.

    Transactions will begin with the snapshot of a branch: it counts as above every id (P80).
    """
    takers = sorted(
        (NONE_OPEN if txn.branch == txn.txn_id else txn.txn_id, txn.taken)
        for txn in state.open_txns()
        if txn.taken
    )
    ids = [txn_id for txn_id, _ in takers]
    moments = (state.next_moment, *(taken for _, taken in reversed(takers)))
    firsts = [*accumulate(moments, min)][::-1]
    return lambda txn_id: firsts[bisect_right(ids, txn_id)]


def write_ids(table: TableState, txns: ValidTxnList) -> ValidWriteIdList:
    """The write ids of a table that belong to the transactions in the list (S7 to S9, P4, P5)."""
    high, above = table.purged, []
    for row in reversed(table.writes):
        if row.txn_id <= txns.high_watermark:
            high = max(high, row.write_id)
        else:
            above.append(row.write_id)
        # When this row was written, no transaction above the watermark existed.
        if row.last_txn <= txns.high_watermark:
            break
    by_txn = table.by_txn
    aborted = {write_id for write_id in table.aborted if write_id <= high}
    aborted.update(by_txn[txn] for txn in txns.aborted if txn in by_txn and by_txn[txn] <= high)
    hidden = {by_txn[txn] for txn in txns.open if txn in by_txn and by_txn[txn] <= high}
    hidden.update(write_id for write_id in above if write_id < high)
    hidden.update(write_id for write_id in table.doubtful if write_id <= high)
    return ValidWriteIdList.of(table.record.name, high, hidden - aborted, aborted)


def compactor_list(
    state: State, table: TableState, txns: ValidTxnList | None = None
) -> CompactorWriteIdList:
    """What a compaction of the table may merge (S16); without a list, as of now (me = 0)."""
    return write_ids(table, txns or txn_list(state)).for_compactor()


def low_mark(state: State) -> int:
    """All transactions below it have ended in every open snapshot (T41, T42, T45)."""
    first = first_snapshot(state)
    marks = [state.next_txn]
    for txn in state.txns.values():
        if txn.is_open or first(txn.txn_id) < txn.closed:
            marks.append(txn.txn_id)
    marks += [
        departed.txn_id for departed in state.departed if first(departed.txn_id) < departed.closed
    ]
    return min(marks)


def holders(state: State, table_id: int, below: int) -> list[Txn]:
    """Open transactions below `below` that may need old files of the table (C41, C42).

    With `acid.cleaner.watermark=global` every open transaction counts, otherwise those that asked
    for the table.
    """
    everyone = state.settings.text("acid.cleaner.watermark") == "global"
    return [
        txn
        for txn in state.open_txns()
        if txn.txn_id < below and (everyone or txn.all_tables or table_id in txn.needs.values())
    ]


def cleaner_lists(
    state: State,
    table: TableState,
    watermark: int,
    highest_write_id: int,
    later: Sequence[TableCommit] = (),
) -> tuple[ValidTxnList, ValidWriteIdList]:
    """The Cleaner's lists (S17): only what every open snapshot of the table sees counts as valid.

    `watermark` is the lowest transaction whose snapshot must stay readable. Compactions that have
    committed but are not visible to all snapshots count as open, and so do the commits `later`
    than the oldest snapshot that the table's history keeps (P36). Aborted write ids above
    `highest_write_id` stay in the list, so that their directories can be removed (C46).
    """
    high = watermark - 1
    unsafe = {
        row.txn_id
        for row in state.queue.values()
        if row.table_id == table.record.table_id and row.txn_id and row.next_txn_id > watermark
    }
    unsafe.update(past.txn_id for past in later if past.txn_id)
    opened = {txn.txn_id for txn in state.open_txns() if txn.txn_id <= high} | unsafe
    aborted = {txn.txn_id for txn in state.aborted_txns() if txn.txn_id <= high}
    txns = ValidTxnList.of(high, (txn_id for txn_id in opened if txn_id <= high), aborted)
    listed = write_ids(table, txns)
    top = min(listed.high_watermark, highest_write_id)
    hidden = {past.write_id for past in later if past.write_id}.union(listed.open)
    return txns, ValidWriteIdList.of(
        listed.table, top, (write_id for write_id in hidden if write_id <= top), table.aborted
    )


MOST_WITHOUT_RETENTION = 100
"""How many commits are remembered of a table without a retention."""

UNKNOWN = -1
"""In place of a table's last write id: nobody knows which commit came last."""


def retention(state: State, table: TableState) -> int:
    """Milliseconds for which past snapshots stay readable; 0: until the next cleaning."""
    return _duration(state, table, HISTORY_RETENTION)


def _duration(state: State, table: TableState, what: TableProperty) -> int:
    """Milliseconds: the property of the table, or the setting for tables without it."""
    own = what.stated(table.record.properties)
    return _milliseconds(what, state.settings.text(what.name) if own is None else own)


@lru_cache(1024)
def _milliseconds(what: TableProperty, text: str) -> int:
    """Cached, since each commit asks."""
    return int(what.values.parse(text))


# --- changes of the history -----------------------------------------------------------------------


def begin_history(table: TableState, moment: int, at: int, write_id: int) -> None:
    """Lets the history begin at a moment; `write_id`: the last write id then, or UNKNOWN."""
    table.commits = []
    table.since, table.since_at, table.since_write = moment, at, write_id
    table.anchor = moment


def note_commit(
    state: State,
    table: TableState,
    moment: int,
    at: int,
    write_id: int = 0,
    txn: int = 0,
    rewrite: bool = False,
) -> None:
    """Adds a commit, see TableCommit."""
    before = table.commits[-1].at if table.commits else table.since_at
    table.commits.append(TableCommit(moment, write_id, txn, max(at, before), rewrite))
    if len(table.commits) > MOST_WITHOUT_RETENTION and not retention(state, table):
        last = table.commits[-MOST_WITHOUT_RETENTION].moment
        advance_history(
            state, table, min(_unread_from(state, table, at, last), _onward(state, table, last))
        )


def advance_history(state: State, table: TableState, moment: int) -> None:
    """Forgets what the table showed before a moment.

    A consumer that misses none of it has come to this moment. Others stay behind: their cursors are
    older than `anchor` (P55).
    """
    if moment <= table.since:
        return
    for key, cursor in _cursors(state, table):
        unread = first_unread(table, cursor)
        if cursor.moment < moment and (unread is None or unread.moment > moment):
            state.cursors[key] = replace(cursor, moment=moment)
    count = bisect_right(table.commits, moment, key=_MOMENT)
    gone, table.commits = table.commits[:count], table.commits[count:]
    table.since = moment
    if gone:
        table.since_at = gone[-1].at
        write = next((past for past in reversed(gone) if past.write_id), None)
        if write is not None:
            table.since_write, table.anchor = write.write_id, write.moment


_MOMENT, _AT = attrgetter("moment"), attrgetter("at")


# --- what has to stay -----------------------------------------------------------------------------


def history_ended(table: TableState, partition: str | None) -> int:
    """The moment before which the history of a partition was ended; 0 if it was not."""
    return table.ended.get(partition or "", (0, 0))[0]


def ended_after(table: TableState, moment: int) -> dict[str, int]:
    """The partitions of which a snapshot of this moment is not kept, and when that was ended."""
    return {name: at for name, (end, at) in table.ended.items() if end > moment}


def horizon(state: State, table: TableState, now: int, ended: int = 0) -> int:
    """The moment from which on everything has to stay readable; pins may keep older snapshots.

    Whoever reads the changes since a moment needs all that came after it (P39), and so will a
    consumer (P55). `ended`: the moment before which the history of the partition in question was
    ended, also for consumers.
    """
    duration = retention(state, table)
    if duration:
        oldest = moment_at(table, now - duration)
    else:
        oldest = table.commits[-1].moment if table.commits else table.since
    oldest = max(_unread_from(state, table, now, oldest), ended)
    return min(oldest, _onward(state, table, oldest))


@dataclass(frozen=True, slots=True)
class Unread:
    """The commits after `moment` are kept for a consumer until a time, milliseconds UTC (P55)."""

    consumer: str
    moment: int
    until: int


def unread(state: State, table: TableState, now: int) -> Iterator[Unread]:
    """What consumers of the table's changes have not read, and what is kept of it (P55).

    Nothing is kept for a consumer that has lost changes already, nor for one that came to a halt:
    the first commit that it has not read is older than `acid.consumer.retention`.
    """
    keep = _duration(state, table, CONSUMER_RETENTION)
    for (consumer, _), cursor in _cursors(state, table):
        commit = first_unread(table, cursor)
        if commit is not None and commit.at + keep > now:
            count = bisect_right(table.commits, commit.moment - 1, key=_MOMENT)
            moment = table.commits[count - 1].moment if count else table.since
            yield Unread(consumer, moment, commit.at + keep)


def _unread_from(state: State, table: TableState, now: int, otherwise: int) -> int:
    return min([otherwise, *(each.moment for each in unread(state, table, now))])


def _cursors(state: State, table: TableState) -> list[tuple[tuple[str, int], Cursor]]:
    """The consumers of the table that have lost none of its changes."""
    return [
        (key, cursor)
        for key, cursor in state.cursors.items()
        if key[1] == table.record.table_id and cursor.moment >= table.anchor
    ]


def first_unread(table: TableState, cursor: Cursor) -> TableCommit | None:
    """The first kept commit that the consumer has not read, of those that change rows."""
    later = commits_after(table, max(cursor.moment, table.since))
    return next((commit for commit in later if commit.changes_rows), None)


def reader_since(state: State, table: TableState, moment: int) -> int:
    """The open transaction that reads the changes of the table since before a moment; 0: none."""
    readers = (
        txn_id for txn_id, pin in open_pins(state, table) if pin.onward and pin.moment < moment
    )
    return next(readers, 0)


def open_pins(state: State, table: TableState) -> Iterator[tuple[int, Pin]]:
    """The past snapshots of the table that open transactions read, with their ids."""
    for txn in state.open_txns():
        for pin in txn.pins:
            if pin.table_id == table.record.table_id:
                yield txn.txn_id, pin


def _onward(state: State, table: TableState, otherwise: int) -> int:
    """The oldest moment since which an open transaction reads the changes of the table (P39)."""
    moments = (pin.moment for _, pin in open_pins(state, table) if pin.onward)
    return min(moments, default=otherwise)


def moment_at(table: TableState, at: int) -> int:
    """The moment of the last commit up to a time, or `since`."""
    count = bisect_right(table.commits, at, key=_AT)
    return table.commits[count - 1].moment if count else table.since


def commits_after(table: TableState, moment: int) -> Sequence[TableCommit]:
    """The commits after a moment, which must not be before `since`."""
    return table.commits[bisect_right(table.commits, moment, key=_MOMENT) :]


def pins_of(state: State, table: TableState, ended: int = 0) -> list[tuple[str, Pin]]:
    """The snapshots that stay apart from the retention, with their holders.

    Of a dropped table, and of before the moment `ended`, those of open transactions stay.
    """
    tags = () if table.dropped else table.tags.values()
    return [
        *((f"tag {tag.name}", tag.pin) for tag in tags if tag.pin.moment >= ended),
        *((f"transaction {txn_id}", pin) for txn_id, pin in open_pins(state, table)),
    ]


def oldest_kept(state: State, table: TableState) -> int:
    """The oldest moment of which somebody may still ask, apart from `anchor`."""
    return min([table.since, *(pin.moment for _, pin in pins_of(state, table))])


# --- what a moment showed -------------------------------------------------------------------------


def pin_at(state: State, table: TableState, moment: int) -> Pin:
    """The snapshot of the table right after everything up to a moment of its history.

    It is what a transaction would see whose snapshot was taken then: the commits after the moment
    count as open.
    """
    now = txn_list(state)
    lists = before_commits(write_ids(table, now), now, commits_after(table, moment))
    return Pin(table.record.table_id, moment, *lists)
