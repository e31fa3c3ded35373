"""Archives the journal of a metastore that runs (P40).

Before the server folds the journal, and at an interval, it seals the batches since the last time:
it writes them to a segment in the directory `unarchived`. A thread copies the segments to the
archive and removes them here, so a slow or absent archive delays no request and loses no event. The
thread also makes the backups from which the segments go on, and removes what is too old.

A standby seals too, but copies nothing: it keeps its segments until the archive has their events,
since its primary may be gone before it has archived them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress

from acid_platform.base.disk import make_directory, sync_path
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.server.archive import (
    BASE,
    SEGMENT,
    Archive,
    Item,
    digest,
    moment_of,
    segment,
)
from acid_platform.metastore.server.coverage import chains, covers, obsolete
from acid_platform.metastore.server.group_commit import GroupCommit
from acid_platform.metastore.server.leadership import Leadership
from acid_platform.metastore.wire import PRIMARY

_LOG = logging.getLogger("acid_platform.metastore")
_LOOK_SECONDS = 1.0
_LONGEST_PAUSE = 30.0
_LIST_SECONDS = 10.0
_END_SECONDS = 10.0
_PART = 1 << 20


class Archiver:
    """The server's thread calls all methods but those of the thread itself."""

    def __init__(self, home: Home, commits: GroupCommit, leadership: Leadership) -> None:
        self._commits, self._leadership = commits, leadership
        self._home = home
        self._changed = threading.Condition()
        self._stopped = False
        self._thread: threading.Thread | None = None
        # Of its own, since the directory may be a copy, with segments of the original.
        self._history = commits.store.history_id
        self._waiting = home.unarchived / self._history
        self.error = ""
        """Why the last attempt to archive failed; empty if it did not."""
        self._archived = 0
        # Segments of an earlier term may hold events that were lost with it.
        term = leadership.membership.term
        sealed = (item.last for item in self._unarchived() if item.term == term)
        self._sealed = max(sealed, default=0)
        self._sealed_at = time.monotonic()
        self._based = ""
        """The archive that was found to have a backup."""
        self._listed = float("-inf")
        self._learn()

    # --- the server's thread ------------------------------------------------------------------

    def _learn(self) -> None:
        """Reads the settings, which may change at any time."""
        settings = self._commits.state.settings
        self._where = settings.text("acid.metastore.archive").strip()
        self._interval = settings.integer("acid.metastore.archive.interval") / 1000
        self._base_interval = settings.integer("acid.metastore.archive.base.interval")
        self._retention = settings.integer("acid.metastore.archive.retention")
        self._member = self._leadership.membership
        if self._where and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="archiver", daemon=True)
            self._thread.start()

    def tick(self) -> None:
        """Seals if the interval has passed. To be called a few times a second."""
        self._learn()
        if self._where and time.monotonic() - self._sealed_at >= self._interval:
            self.try_to_seal()

    def try_to_seal(self) -> None:
        """As `seal`, where nothing depends on it."""
        try:
            self.seal()
        except OSError as error:
            self._failed(error)

    def seal(self) -> None:
        """Writes what is new in the journal to a segment.

        Raises OSError; the journal must keep its events then.
        """
        if not self._where:
            return
        self._sealed_at = time.monotonic()
        store = self._commits.store
        if store.last <= self._sealed:
            return
        records = [record for record in store.records() if record.first > self._sealed]
        if not records:
            return
        # Only who leads knows that there is no other event by now.
        last = moment_of(records[-1]) - 1
        made = self._commits.now_wall if self._leadership.leads else last
        term = self._leadership.membership.term
        item, content = segment(self._history, term, made, records)
        make_directory(self._waiting, 0o700)
        draft = self._waiting / f".{item.name}.part"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        sync_path(draft)
        os.rename(draft, self._waiting / item.name)
        sync_path(self._waiting)
        self._sealed = item.last
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends the thread once it has copied what is sealed, or failed to."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def abandon(self) -> None:
        """Ends without another look at the directory, which is no longer at its path."""
        self._where = ""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def status(self) -> dict[str, object]:
        return {
            "archive": self._where,
            "archived_event": self._archived,
            "unarchived_segments": len(self._unarchived()),
            "archive_error": self.error,
        }

    def _unarchived(self) -> list[Item]:
        """The segments that wait, oldest first."""
        with suppress(FileNotFoundError):
            names = os.listdir(self._waiting)
            found = (Item.parse(self._history, name) for name in names)
            return sorted(
                (item for item in found if item is not None and item.kind == SEGMENT),
                key=lambda item: (item.term, item.first, item.last),
            )
        return []

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        failing_since: float | None = None
        while True:
            now = time.monotonic()
            failing = now - failing_since if failing_since is not None else 0.0
            stopped = self._pause(now + min(max(failing / 2, _LOOK_SECONDS), _LONGEST_PAUSE))
            try:
                if self._where:
                    self._archive(Archive(self._where), stopped)
                self.error, failing_since = "", None
            except Exception as error:  # whatever a file system raises, the next attempt may work
                self._failed(error)
                failing_since = failing_since or now
            if stopped:
                return

    def _pause(self, until: float) -> bool:
        """Waits until then, or for a new segment unless the archive is away; returns whether to
        stop."""
        with self._changed:
            while not self._stopped and (left := until - time.monotonic()) > 0:
                if self._changed.wait(left) and not self.error:
                    break
            return self._stopped

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self.error:
            self.error = text
            _LOG.error("the journal can't be archived in %s: %s", self._where, text)

    def _archive(self, archive: Archive, stopped: bool) -> None:
        waiting = self._unarchived()
        if self._member.role != PRIMARY:
            self._forget_archived(archive, waiting)
            return
        self._copy(archive, waiting)
        if not stopped and (waiting or self._based != archive.where):
            self._keep_base(archive)
            self._based = archive.where

    def _copy(self, archive: Archive, waiting: list[Item]) -> None:
        for item in waiting:
            path = self._waiting / item.name
            archive.put(item, path)
            self._archived = max(self._archived, item.last)
            path.unlink()

    def _forget_archived(self, archive: Archive, waiting: list[Item]) -> None:
        """A standby's: what its primary has archived, or what a later backup must have."""
        if not waiting or time.monotonic() - self._listed < _LIST_SECONDS:
            return
        self._listed = time.monotonic()
        archived = archive.items(self._history)
        now = time.time_ns() // 1_000_000
        for item in waiting:
            if covers(archived, item) or now - item.made > self._base_interval:
                (self._waiting / item.name).unlink()

    def _keep_base(self, archive: Archive) -> None:
        """Makes a backup if none leads to the newest events, or if the newest is too old."""
        archived = archive.items(self._history)
        known = chains(archived)
        if known:
            newest = known[-1]
            age = time.time_ns() // 1_000_000 - newest.base.made
            whole = newest.last >= self._archived and newest.missing is None
            if whole and (age < self._base_interval or newest.last == newest.base.last):
                return
        draft = self._waiting / f"{os.getpid()}.duckdb"
        make_directory(self._waiting, 0o700)
        draft.unlink(missing_ok=True)
        try:
            with Metastore.connect(self._home.path, autostart=False) as client:
                made = client.backup(draft)
            with draft.open("rb") as file:
                checksum = digest(iter(lambda: file.read(_PART), b""))
            term, last = self._member.term, made.last_event
            base = Item(BASE, self._history, term, 1, last, made.made, checksum)
            # Before the backup: they tell where the events of its term begin.
            self._copy(archive, self._unarchived())
            archive.put(base, draft)
            self._archived = max(self._archived, last)
        finally:
            draft.unlink(missing_ok=True)
        _LOG.info("a backup up to event %d begins the archive in %s", last, archive.where)
        if self._retention:
            before = time.time_ns() // 1_000_000 - self._retention
            for item in obsolete([*archived, base], before):
                archive.remove(item)
