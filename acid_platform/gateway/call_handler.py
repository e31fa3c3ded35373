"""What the handlers of all calls share: the metastore, whose call is answered, and short forms for
calls that say in another way what one call says, or whose answer never changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from acid_platform.gateway.authorization import Authorizer, Guard
from acid_platform.gateway.caller import Caller
from acid_platform.gateway.protocol import load
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord

LOCATIONS = "acid.gateway.locations"
"""The setting with the directories outside of the warehouse in which clients may make tables."""
CallMethod = Callable[..., Any]
T = TypeVar("T")


class CallHandler:
    """The methods of its subclasses have the protocol's names, and are called from any thread."""

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

    def _record(self, database: str, name: str) -> TableRecord:
        """Raises NoSuchTable."""
        return self._metastore.table(f"{database}.{name}")


def of_request(call: CallMethod, fields: str, answer: str = "") -> CallMethod:
    """A call of Hive 4, which gets in the fields of one struct what `call` gets as arguments.

    `answer`: the struct, and its field, in which the answer is sent, such as `Result.partitions`.
    """
    struct, _, field = answer.partition(".")
    names = fields.split()

    def method(self: CallHandler, request: Any) -> Any:
        value = call(self, *(getattr(request, name) for name in names))
        if not struct:
            return value
        return getattr(load(), struct)(**({field: value} if field else {}))

    return method


def leading(call: CallMethod, count: int) -> CallMethod:
    """A call with more arguments than `call` has: only the first `count` matter here."""

    def method(self: CallHandler, *arguments: Any) -> Any:
        return call(self, *arguments[:count])

    return method


def always(answer: Any = None) -> CallMethod:
    """A call that has the same answer at all times."""

    def method(_self: CallHandler, *_arguments: Any) -> Any:
        return answer

    return method


def always_struct(struct: str, **fields: Any) -> CallMethod:
    """A call that is answered with this struct at all times."""

    def method(_self: CallHandler, *_arguments: Any) -> Any:
        return getattr(load(), struct)(**fields)

    return method


def limited(values: Sequence[T], limit: int | None) -> list[T]:
    """The first `limit` of them; None and negative numbers stand for all."""
    return list(values if limit is None or limit < 0 else values[:limit])
