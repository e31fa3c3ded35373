"""Past snapshots on request: reads as of a write id, a time or a tag, and the tags (P36)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from acid_platform.errors import InvalidDefinition, NoSuchPast, NotEnoughHistory
from acid_platform.layout.table_properties import HISTORY_RETENTION
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import (
    AsOf,
    KeptHistory,
    Pin,
    TableCommit,
    Tag,
    tag_mistaken_for,
    utc_text,
)
from acid_platform.metastore.records import PastTable, TableRecord
from acid_platform.metastore.rules import snapshots
from acid_platform.metastore.rules.declared import partitions_at, seen_table
from acid_platform.metastore.rules.locking import check_files
from acid_platform.metastore.rules.state import State, TableState, Txn
from acid_platform.metastore.rules.turn import Event, Turn, handles
from acid_platform.metastore.rules.txns import renew_lease, require_open

# --- decisions ------------------------------------------------------------------------------------


@handles(ops.GetPast)
def past(turn: Turn, operation: ops.GetPast) -> PastTable:
    """Raises NoSuchPast, NotEnoughHistory, NoSuchTable, SnapshotExpired, TxnAborted, NoSuchTxn."""
    txn, table, then = with_history(turn, operation.txn, operation.table)
    pin = resolve(turn, table, operation.as_of)
    held = {(own.table_id, own.moment): own for own in txn.pins}
    if (pin.table_id, pin.moment) in held:
        pin = held[pin.table_id, pin.moment]
    else:
        turn.record(PastPinned(txn.txn_id, then.name, pin))
    renew_lease(turn, txn)
    return PastTable(
        record_at(table, pin),
        tuple(partitions_at(table, pin.moment)),
        pin,
        snapshots.ended_after(table, pin.moment),
        _given_up(table, pin.moment),
    )


def _given_up(table: TableState, moment: int) -> dict[str, int]:
    """The columns of a moment that lost their names, by RENAME, DROP or REPLACE, and when first."""
    changes = [earlier for earlier in table.earlier if earlier.until > moment]
    declared = [*(earlier.record for earlier in changes), table.record]
    lost: dict[str, int] = {}
    for change, (before, after) in zip(changes, pairwise(declared), strict=True):
        left = dict(after.columns)
        for name, _ in before.columns:
            if name not in left:
                lost.setdefault(name, change.until)
    return lost


def with_history(turn: Turn, txn_id: int, name: str) -> tuple[Txn, TableState, TableRecord]:
    """An open transaction, a table, and its declaration for the transaction.

    Raises NotEnoughHistory for a dropped table, NoSuchTable, SnapshotExpired, TxnAborted and
    NoSuchTxn.
    """
    txn = require_open(turn, txn_id)
    table, then = seen_table(turn.state, txn, name)
    if table.dropped:
        raise NotEnoughHistory(f"{table.record.name} was dropped, and its history with it")
    check_files(txn, table)
    return txn, table, then


def record_at(table: TableState, pin: Pin) -> TableRecord:
    """The declaration then, under the table's present name and location."""
    then, now = table.at(pin.moment), table.record
    assert then is not None, "a history does not begin before its table"
    return replace(then, name=now.name, location=now.location, foreign=now.foreign)


def resolve(turn: Turn, table: TableState, as_of: AsOf) -> Pin:
    """The snapshot that is meant, or one after it with the same rows whose files are kept.

    Raises NoSuchPast, NotEnoughHistory.
    """
    pin = _named(turn, table, as_of)
    for end in sorted({end for end, _ in table.ended.values() if end > pin.moment}, reverse=True):
        if _shows_the_same(table, pin.moment, end):
            return snapshots.pin_at(turn.state, table, end)
    return pin


def _shows_the_same(table: TableState, before: int, after: int) -> bool:
    """Whether only compactions were committed between two moments."""
    between = [commit for commit in table.commits if before < commit.moment <= after]
    return (
        not any(commit.write_id for commit in between)
        and table.at(before) == table.at(after)
        and partitions_at(table, before) == partitions_at(table, after)
    )


def _named(turn: Turn, table: TableState, as_of: AsOf) -> Pin:
    parts = (as_of.write_id, as_of.time, as_of.tag, as_of.consumer, as_of.moment)
    if sum(part is not None for part in parts) != 1:
        raise InvalidDefinition(f"{as_of!r} has to name one write id, one time or one tag")
    if as_of.consumer is not None:
        return _consumed(turn, table, as_of.consumer)
    if as_of.tag is not None:
        return _tag(table, as_of.tag).pin
    if as_of.moment is not None:
        return _at_moment(turn.state, table, as_of.moment)
    if as_of.time is not None:
        return snapshots.pin_at(turn.state, table, _moment_at(turn, table, as_of.time))
    assert as_of.write_id is not None
    return _pin_after(turn.state, table, as_of.write_id)


def _consumed(turn: Turn, table: TableState, consumer: str) -> Pin:
    """The snapshot up to which a consumer has read the changes (P39)."""
    cursor = turn.state.cursors.get((consumer, table.record.table_id))
    if cursor is None:
        raise NoSuchPast(f"{consumer} has not read the changes of {table.record.name} yet")
    if cursor.moment < table.anchor:
        last = f"the last run of {consumer}, {utc_text(cursor.at)}"
        raise NotEnoughHistory(
            f"{since_text(turn.state, table, last)}; {begin_again(table.record.name, consumer)}"
        )
    return snapshots.pin_at(turn.state, table, max(cursor.moment, table.since))


def begin_again(table: str, consumer: str) -> str:
    """What to do for a consumer that has lost changes (P55)."""
    return (
        "to begin again with all rows of now, empty what it has made of them, and forget how far it"
        f" came: acid changes {table} --forget {consumer}"
    )


def _at_moment(state: State, table: TableState, moment: int) -> Pin:
    """The snapshot up to which an earlier answer has told the changes."""
    if moment >= state.next_moment:
        raise NoSuchPast(
            f"moment {moment} of {table.record.name} is yet to come: the metastore was restored to"
            " an earlier state since then"
        )
    if moment < table.anchor:
        raise NotEnoughHistory(since_text(state, table, f"moment {moment}"))
    if table.gone_since(table.since) and table.at(max(moment, table.since)) is None:
        raise NoSuchPast(f"{table.record.name} was dropped at moment {moment}, and came back later")
    return snapshots.pin_at(state, table, max(moment, table.since))


def _tag(table: TableState, name: str) -> Tag:
    tag = table.tags.get(name)
    if tag is None:
        tags = ", ".join(sorted(table.tags)) or "none"
        raise NoSuchPast(f"{table.record.name} has no tag {name!r}; its tags: {tags}")
    return tag


def _moment_at(turn: Turn, table: TableState, time: int) -> int:
    if time > turn.now:
        raise NoSuchPast(
            f"{utc_text(time)} is in the future: the metastore's clock says {utc_text(turn.now)}"
        )
    if time < table.since_at:
        raise NotEnoughHistory(since_text(turn.state, table, utc_text(time)))
    return snapshots.moment_at(table, time)


def _pin_after(state: State, table: TableState, write_id: int) -> Pin:
    """The snapshot right after the commit of a write id."""
    if write_id == table.since_write:
        # Since its commit, only compactions and declarations have changed.
        return replace(snapshots.pin_at(state, table, table.since), moment=table.anchor)
    for commit in reversed(table.commits):
        if commit.write_id == write_id > 0:
            return snapshots.pin_at(state, table, commit.moment)
    name, last = table.record.name, table.last_write_id
    if write_id < 0 or write_id > last:
        raise NoSuchPast(f"{name} has no write id {write_id}; the last that was given is {last}")
    if write_id in table.aborted:
        raise NoSuchPast(f"write id {write_id} of {name} was aborted, so the table never had it")
    owner = next((txn for txn, own in table.by_txn.items() if own == write_id), 0)
    if (owner in state.txns and state.txns[owner].is_open) or write_id in table.doubtful:
        raise NoSuchPast(f"write id {write_id} of {name} is not committed")
    raise NotEnoughHistory(since_text(state, table, f"write id {write_id}"))


def since_text(state: State, table: TableState, as_of: str) -> str:
    """Why a snapshot is not kept, since when others are, and how to keep more."""
    name = table.record.name
    last = f", write id {table.since_write}" if table.since_write != snapshots.UNKNOWN else ""
    advice = (
        ""
        if snapshots.retention(state, table)
        else f"; without {HISTORY_RETENTION.name}, it lasts until the next cleaning: ALTER TABLE"
        f" {name} SET TBLPROPERTIES ('{HISTORY_RETENTION.name}'='7d') keeps more from now on"
    )
    return (
        f"{name} as of {as_of} is not kept: its history begins at"
        f" {utc_text(table.since_at)}{last}{advice}"
    )


@handles(ops.PlaceTag)
def create_tag(turn: Turn, operation: ops.PlaceTag) -> Tag:
    """Raises NoSuchTable, NoSuchPast, NotEnoughHistory, and InvalidDefinition for a name that is in
    use or means something else, or a time of expiry that is past."""
    table, name = turn.state.table(operation.table), operation.name
    if not name or not name.isprintable() or len(name) > 200:
        raise InvalidDefinition(f"{name!r} can't be the name of a tag: 1 to 200 printable letters")
    if other := tag_mistaken_for(name):
        raise InvalidDefinition(
            f"{name!r} can't be the name of a tag: commands take it for {other}; choose another,"
            f" such as 'tag {name}'"
        )
    if name in table.tags:
        raise InvalidDefinition(f"{table.record.name} has a tag {name!r}; drop it first")
    if operation.expires and operation.expires <= turn.now:
        raise InvalidDefinition(f"tag {name!r} would expire in the past: {operation.expires}")
    pin = (
        snapshots.pin_at(turn.state, table, turn.state.next_moment - 1)
        if operation.as_of is None
        else resolve(turn, table, operation.as_of)
    )
    write_id, at = last_commit(table, pin)
    tag = Tag(
        name,
        pin=pin,
        write_id=write_id,
        at=at,
        created=turn.now,
        expires=operation.expires,
        user=operation.user,
    )
    turn.record(TagCreated(tag))
    return tag


def last_commit(table: TableState, pin: Pin) -> tuple[int, int]:
    """The last write id that a pin sees, and its time."""
    for tag in table.tags.values():
        if tag.pin == pin:
            return tag.write_id, tag.at
    for commit in reversed(table.commits):
        if commit.moment <= pin.moment and commit.write_id:
            return commit.write_id, commit.at
    return table.since_write, table.since_at


@handles(ops.RemoveTag)
def drop_tag(turn: Turn, operation: ops.RemoveTag) -> None:
    """Raises NoSuchTable, NoSuchPast."""
    table = turn.state.table(operation.table)
    tag = _tag(table, operation.name)
    turn.record(TagDropped(table.record.table_id, tag.name))


@handles(ops.EndHistory)
def end_history(turn: Turn, operation: ops.EndHistory) -> None:
    """What the table shows since its last commit stays readable. Raises NoSuchTable."""
    table = turn.state.table(operation.table)
    last = table.commits[-1].moment if table.commits else table.since
    turn.record(HistoryEnded(table.record.table_id, operation.partitions, last))


@handles(ops.GetKept)
def kept_histories(turn: Turn, operation: ops.GetKept) -> list[KeptHistory]:
    """Raises NoSuchTable."""
    state = turn.state
    tables = state.tables.values() if operation.table is None else [state.table(operation.table)]
    return [_kept(state, table) for table in sorted(tables, key=lambda each: each.record.name)]


@handles(ops.GetCommits)
def kept_commits(turn: Turn, operation: ops.GetCommits) -> list[TableCommit]:
    """Raises NoSuchTable."""
    table = turn.state.table(operation.table)
    whole = max((end for end, _ in table.ended.values()), default=table.since)
    known = [TableCommit(table.since, max(table.since_write, 0), 0, table.since_at), *table.commits]
    return [commit for commit in known if commit.moment >= whole]


def _kept(state: State, table: TableState) -> KeptHistory:
    table_id = table.record.table_id
    partitions = (
        {None, *table.partitions, *(dropped.name for dropped in table.dropped_partitions)}
        if table.record.partitioned
        else {None}
    )
    obsolete = [
        directory
        for partition in partitions
        for directory in state.directories.get((table_id, partition), {}).values()
        if directory.obsolete
    ]
    for partition in partitions:
        obsolete += state.dropped_directories.get((table_id, partition), {}).values()
    return KeptHistory(
        table.record.name,
        retention=snapshots.retention(state, table),
        since=table.since_at,
        write_id=table.since_write,
        directories=len(obsolete),
        bytes=sum(directory.bytes for directory in obsolete),
        tags=tuple(sorted(table.tags.values(), key=lambda tag: (tag.at, tag.name))),
    )


# --- events ---------------------------------------------------------------------------------------


class PastPinned(Event, kind="pinned"):
    """A transaction reads the table `name` as it was (P36)."""

    txn: int
    name: str
    pin: Pin

    def apply(self, state: State, _at: int) -> None:
        txn = state.txns[self.txn]
        state.txns[txn.txn_id] = replace(
            txn, pins=(*txn.pins, self.pin), needs=txn.needs | {self.name: self.pin.table_id}
        )


class TagCreated(Event, kind="tag"):
    tag: Tag

    def apply(self, state: State, _at: int) -> None:
        table = state.tables[self.tag.pin.table_id]
        table.tags = {**table.tags, self.tag.name: self.tag}


class TagDropped(Event, kind="tag_dropped"):
    table_id: int
    name: str

    def apply(self, state: State, _at: int) -> None:
        table = state.tables[self.table_id]
        table.tags = {name: tag for name, tag in table.tags.items() if name != self.name}


class HistoryEnded(Event, kind="history_ended"):
    """What these partitions showed before `moment` is kept for open readers alone."""

    table_id: int
    partitions: tuple[str, ...]
    moment: int

    def apply(self, state: State, at: int) -> None:
        table = state.tables[self.table_id]
        table.ended = {**table.ended, **dict.fromkeys(self.partitions, (self.moment, at))}
