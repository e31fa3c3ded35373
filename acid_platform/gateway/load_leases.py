"""Read leases for readers of Iceberg: who has loaded a table can read its files for a while (P84).

Such a reader opens files by itself, and tells nobody when it ends. So each load holds a lease for
a limited time. One lease serves the loads of the next quarter of that time, whatever is committed
meanwhile: the Cleaner waits for everybody who began before a compaction's commit (C41). So there
are at most six leases of a table."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from acid_platform.base.clock import elapsed_seconds
from acid_platform.errors import (
    MetastoreUnavailable,
    NoSuchTxn,
    OutcomeUnknown,
    SnapshotExpired,
)
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.records import ClientInfo, TableRecord

_MOST = 1000
"""Leases that are held at a time; one more ends the one that was taken first."""


@dataclass(slots=True)
class _Held:
    lease: OpenTransaction
    table: int
    since: float
    until: float


class LoadLeases:
    """The leases of one server. Thread-safe, if one thread at a time covers a table."""

    def __init__(
        self, metastore: Metastore, seconds: float, now: Callable[[], float] = elapsed_seconds
    ) -> None:
        """`seconds`: how long files stay after a load, 0 for no leases. `now`: a clock in
        seconds."""
        self._metastore, self._seconds, self._now = metastore, seconds, now
        self._held: OrderedDict[int, _Held] = OrderedDict()
        """By the transaction's id, and so in the order of their beginning."""
        self._guard = threading.Lock()

    def cover(self, record: TableRecord, user: str) -> None:
        """From now on the files of the table stay for `seconds`; call it before a snapshot is told.

        `user`: who loads the table, or empty. Raises TooManyOpenTxns, NoSuchTable."""
        now = self._now()
        if not self._seconds or self._renewed(record.table_id, now):
            return
        who = f"acid serve for {user}" if user else ""
        info = ClientInfo(who, agent="acid serve", description=f"load of {record.name}")
        lease = self._metastore.open_snapshot([record.name], info)
        with self._guard:
            self._held[lease.id] = _Held(lease, record.table_id, now, now + self._seconds)
            first = self._held.popitem(last=False)[1] if len(self._held) > _MOST else None
        if first is not None:
            _end(first.lease)

    def _renewed(self, table: int, now: float) -> bool:
        """Whether a lease of the table is young enough for one more load."""
        with self._guard:
            held = next(
                (
                    each
                    for each in self._held.values()
                    if each.table == table and now < each.since + self._seconds / 4
                ),
                None,
            )
        if held is None:
            return False
        try:
            held.lease.check()
        except (SnapshotExpired, NoSuchTxn):  # as by a shorter acid.read.lease.max
            with self._guard:
                self._held.pop(held.lease.id, None)
            return False
        held.until = now + self._seconds
        return True

    def end_old(self) -> None:
        """Ends those whose time is over."""
        now = self._now()
        with self._guard:
            old = [held for held in self._held.values() if held.until <= now]
            for held in old:
                del self._held[held.lease.id]
        for held in old:
            _end(held.lease)

    def close(self) -> None:
        """Ends all."""
        with self._guard:
            held = [*self._held.values()]
            self._held.clear()
        for each in held:
            _end(each.lease)


def _end(lease: OpenTransaction) -> None:
    """If the metastore can't be reached, the lease ends after its timeout."""
    with suppress(SnapshotExpired, NoSuchTxn, MetastoreUnavailable, OutcomeUnknown):
        lease.commit()
