"""Copies a log to an archive while its metastore runs (P40).

An archive is a log too: a directory or a prefix of an object store with the same segments and
snapshots (log/objects.py), below a directory for each history. A thread copies, so a slow or absent
archive delays no request, and a local log keeps its batches until they are copied.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from acid_platform.base.clock import wall_ms
from acid_platform.base.local_files import scratch_directory
from acid_platform.base.paths import as_uri
from acid_platform.metastore.log.contract import Batch, Log, first_after
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.log.objects import ObjectLog
from acid_platform.metastore.log.open_log import open_log
from acid_platform.metastore.server.group_commit import GroupCommit

_LOG = logging.getLogger("acid_platform.metastore")
_LONGEST_PAUSE = 30.0
_END_SECONDS = 10.0
_SEGMENT_BYTES = 4 << 20


class Archiver:
    """The server's thread calls all methods but those of the threads that copy, of which one runs
    at a time."""

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits
        self._thread: threading.Thread | None = None
        self._begun_at = float("-inf")
        self._pause = 0.0
        """The seconds after which a failed copy is tried again."""
        self._snapshot_due = 0.0
        self._copied: dict[str, int] = {}
        """By archive: the position up to which it has every batch."""
        self.error = ""
        """Why the last attempt failed; empty if it did not."""
        self._where = ""
        self._learn()

    def _learn(self) -> None:
        """Reads the settings, which may change at any time."""
        settings = self._commits.state.settings
        where = settings.text("acid.metastore.archive").strip().rstrip("/")
        self._where = f"{where}/{self._commits.store.log.history}" if where else ""
        self._interval = settings.integer("acid.metastore.archive.interval") / 1000
        self._snapshot_interval = (
            settings.integer("acid.metastore.archive.snapshot.interval") / 1000
        )
        self._retention = settings.integer("acid.metastore.archive.retention")

    @property
    def archived(self) -> int | None:
        """The position up to which batches are archived; None if there is no archive."""
        self._learn()
        return self._copied.get(self._where, 0) if self._where else None

    def tick(self) -> None:
        """Copies if the interval has passed. To be called a few times a second by a leader."""
        self._learn()
        waited = time.monotonic() - self._begun_at
        if waited >= max(self._interval, self._pause) and not self._copying:
            self._begin()

    @property
    def _copying(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self) -> None:
        if not self._where or not self._commits.store.end.position:
            return
        self._begun_at = time.monotonic()
        batches = self._where, self._commits.store.end.position
        self._thread = threading.Thread(target=self._try, args=batches, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Copies the rest, or gives up after a while."""
        self._wait()
        if not self._copying:
            self._begin()
            self._wait()

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def status(self) -> dict[str, object]:
        archived = self.archived
        end = self._commits.store.end.position
        return {
            "archive": self._where,
            "archived": archived or 0,
            "unarchived": 0 if archived is None else end - archived,
            "archive_error": self.error,
        }

    # --- in a thread ----------------------------------------------------------------------------

    def _try(self, where: str, end: int) -> None:
        try:
            self._copy(where, end)
            self.error, self._pause = "", 0.0
        except Exception as error:  # whatever a store raises, the next attempt may work
            self._pause = min(max(1.0, 2 * self._pause), _LONGEST_PAUSE)
            self._copied.pop(where, None)  # it may be another process's
            if self.error != (text := f"{type(error).__name__}: {error}"):
                self.error = text
                _LOG.error("the log can't be archived in %s: %s", where, text)

    def _copy(self, where: str, end: int) -> None:
        archive, source = ObjectLog(as_uri(where)), _reader(self._commits.store.log)
        try:
            if not archive.exists:
                archive.create()
            after = self._copied.get(where)
            if after is None:
                after = max(archive.snapshots(), default=0)
                after = max((batch.position for batch in archive.read(after)), default=after)
            newest = max(source.snapshots(), default=0)
            if newest > after and first_after(source, after) is None:
                self._copy_snapshot(source, archive, newest)
                after = newest
            for batches in _segments(source, after, end):
                archive.append_all(batches)
                after = self._copied[where] = batches[-1].position
            self._copied[where] = after
            if newest <= after and time.monotonic() >= self._snapshot_due:
                self._copy_snapshot(source, archive, newest)
        finally:
            archive.close()
            source.close()

    def _copy_snapshot(self, source: Log, archive: Log, position: int) -> None:
        self._snapshot_due = time.monotonic() + self._snapshot_interval
        if position <= max(archive.snapshots(), default=0):
            return
        with scratch_directory("archive") as scratch:
            draft = Path(scratch, "draft.duckdb")
            shutil.copyfile(source.get_snapshot(position, Path(scratch)), draft)
            archive.put_snapshot(
                position, draft, wall_ms() - self._retention if self._retention else 0
            )


def _segments(source: Log, after: int, end: int) -> Iterator[list[Batch]]:
    """The batches up to `end`, in pieces of some megabytes."""
    piece: list[Batch] = []
    size = 0
    for batch in source.read(after):
        if batch.position > end:
            break
        piece.append(batch)
        size += len(batch.text)
        if size >= _SEGMENT_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _reader(log: Log) -> Log:
    """Opens the log once more, for another thread."""
    return LocalLog(log.directory) if isinstance(log, LocalLog) else open_log(log.where)
