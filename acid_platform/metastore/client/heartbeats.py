"""The heartbeats that keep the open transactions of a process alive (T8, T9, P7)."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from acid_platform.errors import AcidError
from acid_platform.metastore import operations as ops

if TYPE_CHECKING:
    from acid_platform.metastore.client.link import Link
    from acid_platform.metastore.client.open_transaction import OpenTransaction


class Heartbeats:
    """It runs at most `hive.txn.heartbeat.threadpool.size` threads, each for its share of the
    transactions, and starts them with the first transaction. A transaction that nobody references
    gets no heartbeat.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.interval = 150.0
        """Seconds between heartbeats, as each answer about a transaction reports it."""
        self.threads = 5
        self.reset()
        _every.add(self)

    def reset(self) -> None:
        """Forgets all transactions; needed after a fork, where they belong to the parent."""
        self._guard = threading.Condition()
        """Guards the attributes below; notified when the interval changes, and at the end."""
        self._shares: dict[int, weakref.WeakValueDictionary[int, OpenTransaction]] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False

    def learn(self, milliseconds: int) -> None:
        """Changes the interval, for heartbeats that are already being waited for too (P29)."""
        if self.interval != milliseconds / 1000:
            with self._guard:
                self.interval = milliseconds / 1000
                self._guard.notify_all()

    def add(self, txn: OpenTransaction) -> None:
        slot = txn.id % self.threads
        with self._guard:
            share = self._shares.get(slot)
            if share is None:
                share = self._shares[slot] = weakref.WeakValueDictionary()
                thread = threading.Thread(
                    target=self._beat, args=(slot,), daemon=True, name=f"heartbeat-{slot}"
                )
                self._threads.append(thread)
                thread.start()
            share[txn.id] = txn

    def remove(self, txn: OpenTransaction) -> None:
        with self._guard:
            for share in self._shares.values():
                share.pop(txn.id, None)

    def keeps(self, txn: int) -> bool:
        with self._guard:
            return any(txn in share for share in self._shares.values())

    def close(self) -> None:
        with self._guard:
            self._closed = True
            self._guard.notify_all()

    def _due(self, last: float) -> bool:
        """Waits until an interval has passed since the last heartbeat; returns False at the end."""
        with self._guard:
            while not self._closed:
                left = last + self.interval - time.monotonic()
                if left <= 0:
                    return True
                self._guard.wait(left)
        return False

    def _beat(self, slot: int) -> None:
        last = time.monotonic()
        while self._due(last):
            last = time.monotonic()
            try:
                self._beat_once(slot)
            except AcidError:
                # The next heartbeat tries again; nothing is lost before the timeout has passed.
                continue
        self._link.close()

    def _beat_once(self, slot: int) -> None:
        # No reference outlives this call: a transaction that nobody else references may end.
        with self._guard:
            open_now = dict(self._shares[slot])
        if not open_now:
            return
        alive = self._link.call(ops.Heartbeat(tuple(open_now)))
        self.learn(alive.interval)
        for txn_id in (*alive.aborted, *alive.unknown):
            if not open_now[txn_id].ended:
                reason = f"transaction {txn_id} is no longer open in the metastore"
                open_now[txn_id].found_lost(reason)


_every: weakref.WeakSet[Heartbeats] = weakref.WeakSet()


def _after_fork() -> None:
    for beats in list(_every):
        beats.reset()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _at_exit() -> None:
    """Ends the threads: one that lives when Python ends keeps what it can reach."""
    for beats in list(_every):
        beats.close()
        for thread in beats._threads:
            thread.join(0.2)
