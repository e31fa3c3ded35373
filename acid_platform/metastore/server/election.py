"""Which of several processes leads a log that all of them can reach (P10).

One leads and renews its lease in the log. The others follow the log, and one of them takes over
when the lease has not been renewed for its whole length, by the clock of the one that waits. So no
two clocks are compared; they may differ by a tenth in speed.

The lease protects reads: who leads answers nothing without it. Commits need no clock: after a
takeover the next position of the log belongs to the new epoch (log/contract.py).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from acid_platform.base.clock import elapsed_seconds
from acid_platform.errors import AcidError
from acid_platform.metastore.log.contract import Leader, Log, PositionTaken
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
