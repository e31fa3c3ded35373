"""What the handlers of all calls share: the metastore, and whose call is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from acid_platform.gateway.authorization import Authorizer, Caller, Guard, VisibleNames
from acid_platform.gateway.protocol import load
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord

LOCATIONS = "acid.gateway.locations"
"""The setting with the directories outside of the warehouse in which clients may make tables."""
T = TypeVar("T")


class Waits(Exception):
    """A call has to wait, and needs no thread meanwhile: `again` returns its answer, or raises this
    again, after `pause` seconds."""

    def __init__(self, pause: float, again: Callable[[], Any]) -> None:
        super().__init__(pause)
        self.pause, self.again = pause, again


class CallHandler:
    """`call_table` says which methods of its subclasses answer which calls, from any thread."""

    def __init__(
        self,
        metastore: Metastore,
        lock_wait: float = 2.0,
        authorizer: Authorizer | None = None,
        locations: str = "",
    ) -> None:
        """`lock_wait`: for how many seconds a lock request is held back before the client learns
        that it waits. `authorizer` None allows everything. `locations`: see LOCATIONS, separated by
        commas. Raises UnsupportedStatement if thriftpy2 is missing."""
        load()
        self._metastore = metastore
        self._lock_wait = lock_wait
        self._locations = locations
        self._guard = Guard(metastore, authorizer)
        self._present = threading.local()

    @property
    def _caller(self) -> Caller:
        """Whose call this thread answers."""
        caller: Caller = self._present.caller
        return caller

    @property
    def _sight(self) -> VisibleNames:
        """What the present caller may learn of."""
        return self._guard.sight(self._caller)

    def _record(self, database: str, name: str) -> TableRecord:
        """Raises NoSuchTable."""
        return self._metastore.table(f"{database}.{name}")


def limited(values: Sequence[T], limit: int | None) -> list[T]:
    """The first `limit` of them; None and negative numbers stand for all."""
    return list(values if limit is None or limit < 0 else values[:limit])
