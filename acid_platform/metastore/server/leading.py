"""Which of several processes leads a log that all of them can reach (P10), and how one that leads
copies its log to an archive (P40).

One leads and renews its lease in the log. The others follow the log, and one of them takes over
when the lease has not been renewed for its whole length, by the clock of the one that waits. So no
two clocks are compared; they may differ by a tenth in speed.

The lease protects reads: who leads answers nothing without it. Commits need no clock: after a
takeover the next position of the log belongs to the new epoch (log/contract.py).

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
from dataclasses import replace
from pathlib import Path

from acid_platform.base.clock import elapsed_seconds, wall_ms
from acid_platform.base.local_files import scratch_directory
from acid_platform.base.paths import as_uri
from acid_platform.errors import AcidError
from acid_platform.metastore.log.contract import (
    Batch,
    Leader,
    Log,
    PositionTaken,
    first_after,
    open_log,
)
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.log.objects import ObjectLog
from acid_platform.metastore.server.group_commit import GroupCommit

_LOG = logging.getLogger("acid_platform.metastore")
_POLL_SECONDS = 0.2
_SLOWEST = 1.1
"""How much slower than another clock one may run."""


class Election:
    """One process's part. The server's thread calls all methods."""

    def __init__(self, log: Log, commits: GroupCommit, offer: Leader) -> None:
        """`offer` is what this process would write into the log; its epoch does not count."""
        self._log, self._commits, self._offer = log, commits, offer
        self._last: tuple[Leader | None, float] = (None, elapsed_seconds())
        self._looked = float("-inf")
        self._lease: _Lease | None = None

    @property
    def leads(self) -> bool:
        """Whether this process leads, as far as it knows."""
        return self._lease is not None

    @property
    def may_answer(self) -> bool:
        """Whether nobody else can lead now."""
        return self._lease is not None and elapsed_seconds() < self._lease.until

    @property
    def lost(self) -> bool:
        """Whether another process leads, or may do so soon, although this one led."""
        return self._lease is not None and self._lease.lost

    @property
    def leader_address(self) -> str:
        """That of the leader when this process looked last; empty if nobody led."""
        leader = self._lease.held if self._lease else self._last[0]
        return leader.address if leader else ""

    def tick(self) -> bool:
        """Follows the log, and takes over if it is time; returns whether it did.

        Raises what the log raises.
        """
        now = elapsed_seconds()
        if self._lease is not None or now - self._looked < _POLL_SECONDS:
            return False
        self._commits.follow()
        leader = self._log.leader()
        if leader != self._last[0]:
            self._last = leader, elapsed_seconds()
        self._looked = elapsed_seconds()
        if leader is not None and leader.address:
            waited = elapsed_seconds() - self._last[1]
            if waited <= leader.lease / 1000 * _SLOWEST:
                return False
        return self._take_over(leader)

    def _take_over(self, before: Leader | None) -> bool:
        lease = self._commits.state.settings.integer("acid.metastore.lease")
        epoch = max(before.epoch if before else 0, self._commits.epoch) + 1
        after = replace(self._offer, epoch=epoch, beat=0, lease=lease)
        began = elapsed_seconds()
        if not self._log.set_leader(before, after):
            return False
        self._lease = _Lease(self._log, after, began)
        self._log.open_to_append()
        try:
            self._commits.lead(epoch)
        except PositionTaken:
            self.step_down()
            self._commits.step_down()
            return False
        _LOG.warning("leads %s in epoch %d", self._log.place, epoch)
        return True

    def step_down(self) -> None:
        """Ends leading; a lease that is still held is given back."""
        if self._lease is not None:
            self._lease.end()
            self._lease = None
        self._last = None, elapsed_seconds()


class _Lease:
    """The lease of a leader, which a thread renews."""

    def __init__(self, log: Log, held: Leader, began: float) -> None:
        self._log, self.held = log, held
        self._length = held.lease / 1000
        self.until = began + self._length
        """Up to when nobody else leads, by `elapsed_seconds`."""
        self.lost = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._length / 4) and not self.lost:
            try:
                self._renew()
            except (AcidError, OSError) as error:
                _LOG.warning("the lease can't be renewed: %s", error)
                # Another process may lead by now; this one learns that from the log.
                self.lost = elapsed_seconds() > self.until

    def _renew(self) -> None:
        began = elapsed_seconds()
        after = replace(self.held, beat=self.held.beat + 1)
        if not self._log.set_leader(self.held, after) and self._log.leader() != after:
            self.lost = True
            return
        self.held, self.until = after, began + self._length

    def end(self) -> None:
        self._ended.set()
        self._thread.join(2 * self._length)
        if not self.lost:
            try:
                self._log.set_leader(self.held, replace(self.held, address="", key=""))
            except (AcidError, OSError) as error:
                _LOG.info("the lease ends by itself: %s", error)


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
