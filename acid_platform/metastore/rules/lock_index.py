"""The lock requests in the state, and how they are found by name and by transaction."""

from __future__ import annotations

from dataclasses import replace

from acid_platform.metastore.rules.state import LockEntry, State
from acid_platform.transactions.concurrency import LockType


def add_lock(state: State, entry: LockEntry) -> None:
    state.locks_by_txn.setdefault(entry.txn_id, []).append(entry.ext)
    if not entry.acquired:
        state.waiting[entry.request_id] = entry.ext
        wait = entry.deadline - entry.requested
        state.timers.wait_ends[entry.ext] = state.timers.now + wait
    put_lock(state, entry)


def put_lock(state: State, entry: LockEntry) -> None:
    """Puts a request into the place of what was known of it."""
    state.locks[entry.ext] = entry
    for name in _names(entry):
        state.locks_by_name.setdefault(name, {})[entry.ext] = entry


def _unindex(state: State, entry: LockEntry) -> None:
    for name in _names(entry):
        del state.locks_by_name[name][entry.ext]
        if not state.locks_by_name[name]:
            del state.locks_by_name[name]


def _names(entry: LockEntry) -> set[tuple[str, LockType]]:
    return {
        (
            component.db if component.table is None else f"{component.db}.{component.table}",
            component.lock,
        )
        for component in entry.components
    }


def remove_lock(state: State, ext: int) -> None:
    entry = state.locks.pop(ext)
    state.lock_beats.pop(ext, None)
    state.timers.wait_ends.pop(ext, None)
    if not entry.acquired:
        del state.waiting[entry.request_id]
    _unindex(state, entry)
    left = [held for held in state.locks_by_txn[entry.txn_id] if held != ext]
    if left:
        state.locks_by_txn[entry.txn_id] = left
    else:
        del state.locks_by_txn[entry.txn_id]


def forget_publications(state: State, table_id: int) -> None:
    """After the drop of a table, all of whose files go (P22, P46)."""
    for entry in list(state.locks.values()):
        if entry.publishes and table_id in entry.tables.values():
            remove_lock(state, entry.ext)


def follow_rename(state: State, table_id: int, old: str, new: str) -> None:
    """A rename waits for no lock: what is held has to be in the way under the new name too, and so
    has a publication that waits (P46). Other requests that wait are refused."""
    database, _, short = new.partition(".")
    for entry in list(state.locks.values()):
        if not (entry.acquired or entry.publishes) or entry.tables.get(old) != table_id:
            continue
        _unindex(state, entry)
        components = tuple(
            replace(component, db=database, table=short)
            if f"{component.db}.{component.table}" == old
            else component
            for component in entry.components
        )
        tables = {new if name == old else name: key for name, key in entry.tables.items()}
        put_lock(state, replace(entry, components=components, tables=tables))
