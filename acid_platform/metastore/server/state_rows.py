"""Converts the state to rows of the LIVE tables and back: what a fold writes and a start reads."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from acid_platform.base.config import Settings
from acid_platform.compaction.states import CompactionState
from acid_platform.metastore.codec import decode, encode
from acid_platform.metastore.pasts import Cursor, Sink, TableCommit, Tag
from acid_platform.metastore.records import (
    CompactionTask,
    DropTask,
    EntityDirectory,
    ErasureTask,
    PartitionRecord,
    TableRecord,
    ViewRecord,
)
from acid_platform.metastore.rules import write_set
from acid_platform.metastore.rules.declared import directories
from acid_platform.metastore.rules.lock_index import add_lock
from acid_platform.metastore.rules.state import (
    Component,
    Departed,
    Earlier,
    EarlierView,
    Entity,
    EntityDirectories,
    Identity,
    LockEntry,
    Retry,
    State,
    Table,
    Txn,
    WriteIdRow,
    ranges,
)
from acid_platform.transactions.conflicts import Committed

Row = dict[str, Any]
Rows = dict[str, list[Row]]

_QUEUED = {
    setting.value
    for setting in (
        CompactionState.INITIATED,
        CompactionState.WORKING,
        CompactionState.READY_FOR_CLEANING,
    )
}


COUNTERS = (
    "next_txn",
    "next_lock",
    "next_table",
    "next_compaction",
    "next_moment",
    "longest_timeout",
)
"""Numbers that belong to the whole state; the `next_` numbers are never used twice."""


def counters(state: State) -> dict[str, int]:
    return {name: getattr(state, name) for name in COUNTERS}


_ENTITY = ("table_id", "partition")

KEYS: dict[str, tuple[str, ...]] = {
    "settings": ("name",),
    "identity": ("id",),
    "databases": ("name",),
    "tables": ("table_id",),
    "dropped_tables": ("table_id",),
    "earlier_tables": ("table_id", "version"),
    "views": ("name",),
    "earlier_views": ("name", "version"),
    "table_commits": ("table_id", "moment", "write_id"),
    "tags": ("table_id", "name"),
    "cursors": ("consumer", "table_id"),
    "sinks": ("sink", "table_id"),
    "locations": ("location",),
    "partitions": ("table_id", "name"),
    "dropped_partitions": ("table_id", "name", "dropped"),
    "open_txns": ("txn_id",),
    "departed_txns": ("txn_id",),
    "txn_components": ("txn_id", *_ENTITY, "operation", "write_id", "dynamic", "cleaned"),
    "txn_to_write_id": ("table_id", "write_id"),
    "write_set": (*_ENTITY, "operation", "txn_id"),
    "locks": ("ext",),
    "compactions": ("id",),
    "erasures": ("id",),
    "directories": (*_ENTITY, "name"),
    "dropped_directories": (*_ENTITY, "name"),
    "cleaning": _ENTITY,
    "retries": _ENTITY,
}
"""The key columns of each live table."""

_OMITTED = {"write_set": {"rows": None}}
"""Fields that a record leaves out of its JSON while they are empty."""

Keyed = dict[str, dict[tuple[Any, ...], Any]]


def keyed(state: State) -> Keyed:
    """The rows of the live tables, or the records from which they are built.

    A record is never changed in place: another value is another record.
    """
    known = [(table.record.table_id, table) for table in state.known_tables()]
    past = (row for rows in state.past.values() for row in rows)
    return {
        "settings": {(name,): {"value": value} for name, value in state.settings.overrides.items()},
        "identity": {(identity.id,): identity for identity in (state.identity,) if identity},
        "databases": {(name,): {"created": at} for name, at in state.databases.items()},
        "tables": {(key,): _table_row(table) for key, table in state.tables.items()},
        "dropped_tables": {
            (key,): {**_table_row(table), "dropped": table.dropped}
            for key, table in state.dropped_tables.items()
        },
        "earlier_tables": {
            (table_id, earlier.record.version): {**encode(earlier.record), "until": earlier.until}
            for table_id, table in known
            for earlier in table.earlier
        },
        "views": {(name,): view for name, view in state.views.items()},
        "earlier_views": {
            (view.view.name, view.view.version): {**encode(view.view), "until": view.until}
            for view in state.earlier_views
        },
        "table_commits": {
            (table_id, commit.moment, commit.write_id): commit
            for table_id, table in known
            for commit in table.commits
        },
        "tags": {
            (table_id, name): tag for table_id, table in known for name, tag in table.tags.items()
        },
        "cursors": dict(state.cursors),
        "sinks": dict(state.sinks),
        "locations": {(name,): {"floor": floor} for name, floor in state.locations.items()},
        "partitions": {
            (table_id, name): partition
            for table_id, table in known
            for name, partition in table.partitions.items()
        },
        "dropped_partitions": {
            (table_id, partition.name, partition.dropped): partition
            for table_id, table in known
            for partition in table.dropped_partitions
        },
        "open_txns": {(txn_id,): txn for txn_id, txn in state.txns.items()},
        "departed_txns": {(writer.txn_id,): writer for writer in state.departed},
        "txn_components": {
            (
                written.txn_id,
                written.table_id,
                written.partition,
                written.operation.value,
                written.write_id,
                written.dynamic,
                written.cleaned,
            ): written
            for rows in state.components.values()
            for written in rows
        },
        "txn_to_write_id": {
            (table_id, row.write_id): row for table_id, table in known for row in table.writes
        },
        "write_set": {
            (row.table_id, row.partition, row.operation.value, row.txn_id): row
            for row in write_set.every_row(state)
        },
        "locks": {(entry.ext,): entry for entry in state.locks.values()},
        "compactions": {(task.id,): task for task in (*state.queue.values(), *past)},
        "erasures": {(erasure.id,): erasure for erasure in state.erasures.values()},
        "directories": _directories(state.directories),
        "dropped_directories": _directories(state.dropped_directories),
        "cleaning": {entity: {"started": started} for entity, started in state.cleaning.items()},
        "retries": dict(state.retries),
    }


def _directories(known: dict[Entity, EntityDirectories]) -> dict[tuple[Any, ...], EntityDirectory]:
    return {
        (*entity, name): directory
        for entity, by_name in known.items()
        for name, directory in by_name.items()
    }


def _table_row(table: Table) -> Row:
    return {
        **encode(table.record),
        "next_write_id": table.next_write_id,
        "purged": table.purged,
        "forgotten": table.forgotten,
        "cleaned_upto": table.cleaned_upto,
        "aborted": ranges(table.aborted),
        "floors": dict(table.floors),
        "doubtful": ranges(table.doubtful),
        "since": table.since,
        "since_at": table.since_at,
        "since_write": table.since_write,
        "anchor": table.anchor,
        "held": dict(table.held),
    }


def keyed_row(table: str, key: tuple[Any, ...], value: Any) -> Row:
    return {
        **_OMITTED.get(table, {}),
        **dict(zip(KEYS[table], key, strict=True)),
        **(value if isinstance(value, dict) else encode(value)),
    }


def live_rows(state: State) -> Rows:
    """The whole state except counters, heartbeats and what has ended."""
    return {
        name: [keyed_row(name, key, record) for key, record in records.items()]
        for name, records in keyed(state).items()
    }


def ended_rows(state: State) -> Rows:
    """What has ended since the last fold, for the KEPT tables."""
    return {
        "txns": _encoded(state.ended.values()),
        "outcomes": _encoded(state.outcomes.values()),
        "writes": _encoded(state.written),
    }


def recorded_rows(state: State) -> list[Row]:
    """The files of directories that were recorded since the last fold and still exist (P26)."""
    return [
        {"table_id": table_id, "partition": partition, "directory": name, "contents": contents}
        for (table_id, partition), known in state.contents.items()
        for name, contents in known.items()
        if name in directories(state, (table_id, partition))
    ]


def forget_ended(state: State) -> None:
    """After a fold: removes from memory what the KEPT and RECORDED tables have."""
    state.ended, state.outcomes, state.written, state.contents = {}, {}, [], {}


def _encoded(records: Iterable[Any]) -> list[Row]:
    return [encode(record) for record in records]


def restore(rows: Rows, numbers: dict[str, int]) -> State:
    """The state that has these `live_rows` and `counters`."""
    state = State(
        settings=Settings.of({row["name"]: row["value"] for row in rows["settings"]}),
        databases={row["name"]: row["created"] for row in rows["databases"]},
        locations={row["location"]: row["floor"] for row in rows["locations"]},
    )
    for row in rows["identity"]:
        state.identity = decode(Identity, row)
    for name, number in numbers.items():
        setattr(state, name, number)
    _restore_declarations(state, rows)
    _restore_txns(state, rows)
    _restore_compactions(state, rows)
    return state


def _restore_declarations(state: State, rows: Rows) -> None:
    for name, known in (("tables", state.tables), ("dropped_tables", state.dropped_tables)):
        for row in sorted(rows[name], key=itemgetter("table_id")):
            known[row["table_id"]] = Table(
                decode(TableRecord, row),
                row["next_write_id"],
                row["purged"],
                row["forgotten"],
                row["cleaned_upto"],
                aborted=_ids(row["aborted"]),
                doubtful=_ids(row["doubtful"]),
                floors={name: tuple(floors) for name, floors in row["floors"].items()},
                dropped=row.get("dropped", 0),
                since=row["since"],
                since_at=row["since_at"],
                since_write=row["since_write"],
                anchor=row["anchor"],
                held={name: tuple(moments) for name, moments in row["held"].items()},
            )
    state.names = {table.record.name: key for key, table in state.tables.items()}
    every = state.tables | state.dropped_tables
    for row in sorted(rows["earlier_tables"], key=itemgetter("until")):
        every[row["table_id"]].earlier.append(Earlier(decode(TableRecord, row), row["until"]))
    for row in rows["partitions"]:
        every[row["table_id"]].partitions[row["name"]] = decode(PartitionRecord, row)
    for row in sorted(rows["dropped_partitions"], key=itemgetter("dropped")):
        every[row["table_id"]].dropped_partitions.append(decode(PartitionRecord, row))
    for row in rows["txn_to_write_id"]:
        table, pair = every[row["table_id"]], decode(WriteIdRow, row)
        table.writes.append(pair)
        table.by_txn[pair.txn_id] = pair.write_id
    for row in sorted(rows["table_commits"], key=itemgetter("moment", "write_id")):
        every[row["table_id"]].commits.append(decode(TableCommit, row))
    for row in rows["tags"]:
        every[row["table_id"]].tags[row["name"]] = decode(Tag, row)
    for row in rows["cursors"]:
        state.cursors[row["consumer"], row["table_id"]] = decode(Cursor, row)
    for row in rows["sinks"]:
        state.sinks[row["sink"], row["table_id"]] = decode(Sink, row)
    for row in rows["views"]:
        state.views[row["name"]] = decode(ViewRecord, row)
    for row in sorted(rows["earlier_views"], key=itemgetter("until")):
        state.earlier_views.append(EarlierView(decode(ViewRecord, row), row["until"]))


def _ids(spans: list[list[int]]) -> set[int]:
    return {write_id for low, high in spans for write_id in range(low, high + 1)}


def _restore_txns(state: State, rows: Rows) -> None:
    for row in sorted(rows["open_txns"], key=itemgetter("txn_id")):
        txn = decode(Txn, row)
        state.txns[txn.txn_id] = txn
    departed = [decode(Departed, row) for row in rows["departed_txns"]]
    state.departed = sorted(departed, key=lambda txn: txn.gone)
    for row in rows["txn_components"]:
        component = decode(Component, row)
        state.components.setdefault(component.txn_id, []).append(component)
    for row in sorted(rows["write_set"], key=itemgetter("commit_id", "txn_id")):
        write_set.restore(state, decode(Committed, row))
    for row in sorted(rows["locks"], key=itemgetter("ext")):
        add_lock(state, decode(LockEntry, row))


def _restore_compactions(state: State, rows: Rows) -> None:
    for row in rows["compactions"]:
        task = decode(DropTask if "location" in row["properties"] else CompactionTask, row)
        if row["state"] in _QUEUED:
            state.queue[task.id] = task
        else:
            state.past.setdefault((task.table_id, task.partition), []).append(task)
    state.queue = dict(sorted(state.queue.items()))
    for row in sorted(rows["erasures"], key=itemgetter("id")):
        state.erasures[row["id"]] = decode(ErasureTask, row)
    for name, every in (
        ("directories", state.directories),
        ("dropped_directories", state.dropped_directories),
    ):
        for row in rows[name]:
            known = every.setdefault((row["table_id"], row["partition"]), {})
            known[row["name"]] = decode(EntityDirectory, row)
            if not row["recorded"]:
                state.unrecorded.add((row["table_id"], row["partition"]))
    for row in rows["cleaning"]:
        state.cleaning[row["table_id"], row["partition"]] = row["started"]
    for row in rows["retries"]:
        state.retries[row["table_id"], row["partition"]] = decode(Retry, row)
