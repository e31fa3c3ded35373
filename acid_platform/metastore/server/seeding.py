"""The files of a standby: a backup of its primary, from which it follows the journal (P10)."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from acid_platform.base.disk import sync_path
from acid_platform.errors import MetastoreUnavailable, StandbyRefused
from acid_platform.metastore.client.link import Link
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.target import remote
from acid_platform.metastore.endpoint import Home, refuse_network_file_system
from acid_platform.metastore.server import blocks, journal, wal
from acid_platform.metastore.server.membership import Membership
from acid_platform.metastore.server.metastore_schema import MADE
from acid_platform.metastore.server.restore import put_aside
from acid_platform.metastore.server.store import GROUND, Store
from acid_platform.metastore.wire import STANDBY


def make_standby(home: Home, primary: str, automatic: bool = True, replace_it: bool = False) -> str:
    """Makes the directory a standby of `primary` (`tcp://host:port`) and returns the name of the
    database that was put aside, if any.

    The caller holds the directory's lock. Raises StandbyRefused if there is another metastore and
    `replace_it` is False, MetastoreUnavailable, MetastoreRefused, BackupRefused.
    """
    home.prepare()
    refuse_network_file_system(home)
    known = Membership.read(home)
    if home.made and known.role != STANDBY and not replace_it:
        raise StandbyRefused(
            f"{home.path} holds a metastore already; name another directory, or replace it"
            " (--replace keeps the old file beside the new one)"
        )
    draft = home.path / f"standby.{os.getpid()}.duckdb"
    link = Link(remote(primary))
    try:
        with Metastore(link) as client:
            term = link.term
            client.backup(draft)
        _clean(draft)
        # Until all is done, no metastore starts here: events of the old file may differ from the
        # primary's under the same numbers.
        home.unfinished.touch(0o600)
        sync_path(home.path)
        # It is no primary any more, and no standby that could be promoted.
        own = known.standby if known.role == STANDBY else f"{socket.gethostname()}-{_suffix()}"
        member = Membership(STANDBY, term, primary, own, synchronous=False, automatic=automatic)
        member.write(home)
        kept = put_aside(home)
        os.rename(draft, home.database)
        sync_path(home.path)
        home.unfinished.unlink()
        sync_path(home.path)
    finally:
        for leftover in (draft, journal.beside(draft), blocks.beside(draft)):
            with suppress(FileNotFoundError):
                leftover.unlink()
    return kept


def make_again(home: Home) -> None:
    """Makes a standby anew that lacks what its primary no longer keeps.

    Raises as `make_standby`.
    """
    known = Membership.read(home)
    replace(known, synchronous=False).write(home)
    kept = make_standby(home, known.primary, known.automatic)
    for path in _files(Path(kept)) if kept else ():
        path.unlink(missing_ok=True)


def require_made(home: Home) -> Membership:
    """The membership of a directory that can be served. Raises MetastoreUnavailable."""
    member = Membership.read(home)
    if member.role == STANDBY and (home.unfinished.exists() or not home.made):
        raise MetastoreUnavailable(
            f"making {home.path} a standby was interrupted; run `acid metastore standby --of"
            f" {member.primary}` again"
        )
    return member


def _clean(draft: Path) -> None:
    """Removes what belongs to the backup and to the primary's place."""
    store = Store(draft)
    try:
        store.forget_meta(MADE)
        store.forget_meta(GROUND)
        store.checkpoint()
    finally:
        store.close()
    sync_path(draft)


def _files(database: Path) -> tuple[Path, ...]:
    return (database, *(part.beside(database) for part in (wal, journal, blocks)))


def _suffix() -> str:
    return secrets.token_hex(3)
