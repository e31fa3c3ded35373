"""A metastore made from a backup (P24, P31)."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb

from acid_platform.base.disk import sync_path
from acid_platform.errors import BackupRefused
from acid_platform.metastore.endpoint import Home, refuse_network_file_system, take_lock
from acid_platform.metastore.records import EntityDirectory, TableRecord, WriteReport
from acid_platform.metastore.rules import events
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.restoring import doubtful_write_ids
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.server import blocks, journal, wal
from acid_platform.metastore.server.metastore_schema import MADE
from acid_platform.metastore.server.store import GROUND, HISTORY, Store


@dataclass(frozen=True, slots=True)
class Present:
    """What is in an entity: the names of its directories, and the files of directories that the
    backup does not know (P26)."""

    partition: str | None
    names: tuple[str, ...]
    unknown: tuple[WriteReport, ...] = ()


Known = Callable[[str | None], Collection[str]]
"""Returns the names of an entity's directories that the backup knows."""


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest ids in the directories of a table, and what is there."""

    write_id: int = 0
    txn_id: int = 0
    present: tuple[Present, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    directory: str
    made: int
    """The moment of the backup's data, in milliseconds UTC."""
    tables: int
    doubtful: dict[str, list[tuple[int, int]]]
    """By table, the ranges of write ids that no snapshot shows until they are resolved."""
    open_txns: int
    """Transactions that were open in the backup; they do not exist any more."""
    next_txn: int
    kept: str
    """The path to which the replaced file was moved; empty if there was none."""
    identity: str
    """The warehouse's identity from now on."""
    foreign: tuple[str, ...]
    """Tables outside of the warehouse: read only until they are taken over (P31)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The warehouse that gets the restored metastore; its identity is new (P31)."""

    identity: str
    accept: Callable[[str | None], object] = lambda _identity: None
    """Called with the backup's identity before anything is changed; may raise."""
    settle: Callable[[], object] = lambda: None
    """Gives the root the new identity; until it is done, the restore counts as interrupted."""


def restore_metastore(
    home: Home,
    file: str | os.PathLike[str],
    highest: Callable[[TableRecord, Known], Highest],
    replace: bool = False,
    owner: Owner | None = None,
) -> Restored:
    """Creates the directory's metastore from a backup; `highest` looks into the tables'
    directories.

    The result is another warehouse than the backup's: it has its own identity and does not touch
    anything outside its root (P31). Raises MetastoreInUse while a metastore runs there,
    BackupRefused if there is a metastore and `replace` is False, or if the file is no backup, and
    MetastoreIncompatible for a newer schema.
    """
    path = Path(file).absolute()
    made = _made(path)
    owner = owner or Owner(uuid.uuid4().hex)
    home.prepare()
    refuse_network_file_system(home)
    with take_lock(home):
        if (home.database.exists() or home.unfinished.exists()) and not replace:
            raise BackupRefused(
                f"{home.path} holds a metastore already; restore into another directory, or replace"
                " it (--replace keeps the old file beside the new one)"
            )
        draft = home.path / f"restore.{os.getpid()}.duckdb"
        try:
            shutil.copyfile(path, draft)
            draft.chmod(0o600)
            opened, state = _advance(draft, highest, owner)
            # While this file exists no metastore starts here: half a restore must not be used.
            home.unfinished.touch(0o600)
            kept = put_aside(home)
            os.rename(draft, home.database)
            sync_path(home.path)
            owner.settle()
            home.unfinished.unlink()
            sync_path(home.path)
        finally:
            for leftover in (draft, wal.beside(draft), journal.beside(draft), blocks.beside(draft)):
                with suppress(FileNotFoundError):
                    leftover.unlink()
    return Restored(
        str(home.path),
        made,
        len(state.tables),
        doubtful_write_ids(state),
        opened,
        state.next_txn,
        kept,
        owner.identity,
        tuple(sorted(table.record.name for table in state.tables.values() if table.record.foreign)),
    )


def _made(path: Path) -> int:
    """The moment at which the backup was made. Raises BackupRefused."""
    if not path.is_file():
        raise BackupRefused(f"{path} is not a file; name one that `acid metastore backup` wrote")
    try:
        with duckdb.connect(str(path), read_only=True) as source:
            rows = source.execute("SELECT value FROM meta WHERE key = $1", [MADE]).fetchall()
    except duckdb.Error as error:
        raise BackupRefused(f"{path} is no backup of a metastore: {error}") from error
    if not rows:
        raise BackupRefused(
            f"{path} was not written by `acid metastore backup`; a metastore's own"
            " file is never copied, since its log may hold the rest of it"
        )
    return int(rows[0][0])


def _advance(
    draft: Path, highest: Callable[[TableRecord, Known], Highest], owner: Owner
) -> tuple[int, State]:
    """Sets the counters above everything in the tables' directories (P24)."""
    store = Store(draft)
    try:
        state, recorded = store.load()
        machine = Machine(state)
        machine.replay(recorded)
        owner.accept(state.identity.id if state.identity else None)
        opened = sum(1 for _ in state.open_txns())
        highest_of = {
            table_id: highest(table.record, partial(_known, state, table_id))
            for table_id, table in state.tables.items()
        }
        now = time.time_ns() // 1_000_000
        event = events.MetastoreRestored(
            tuple((table_id, listed.write_id) for table_id, listed in highest_of.items()),
            max((found_in.txn_id for found_in in highest_of.values()), default=0),
            owner.identity,
            tuple(
                events.Found(
                    table_id,
                    entity.partition,
                    entity.names,
                    tuple(
                        events.DirectoryFiles(EntityDirectory.of(report, 0), str(report.contents))
                        for report in entity.unknown
                    ),
                )
                for table_id, listed in highest_of.items()
                for entity in listed.present
            ),
        )
        machine.replay([events.Recorded(now, event)])
        store.fold(state, 0)
        store.forget_meta(MADE)
        store.forget_meta(GROUND)
        store.forget_meta(HISTORY)
        store.checkpoint()
    finally:
        store.close()
    sync_path(draft)
    return opened, state


def _known(state: State, table_id: int, partition: str | None) -> Collection[str]:
    return state.directories.get((table_id, partition), {})


def put_aside(home: Home) -> str:
    """Moves the old file and its logs away together: each is useless without the others."""
    if not home.database.exists():
        return ""
    kept = home.path / f"replaced-{time.time_ns() // 1_000_000}.duckdb"
    os.rename(home.database, kept)
    for beside in (wal.beside, journal.beside, blocks.beside):
        with suppress(FileNotFoundError):
            os.rename(beside(home.database), beside(kept))
    return str(kept)
