"""Answers the calls of Hive's Metastore protocol from a warehouse's metastore."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from acid_platform import errors
from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    NoSuchTable,
    NotAuthorized,
)
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.call_handler import Waits
from acid_platform.gateway.call_table import CALLS
from acid_platform.gateway.catalog_calls import CatalogCalls, SessionCalls
from acid_platform.gateway.compaction_calls import CompactionCalls
from acid_platform.gateway.constraint_calls import ConstraintCalls
from acid_platform.gateway.definition_calls import DefinitionCalls
from acid_platform.gateway.needs import DATABASE_FIELDS, MAY_WAIT
from acid_platform.gateway.partition_calls import PartitionCalls
from acid_platform.gateway.protocol import (
    PROTOCOL_ERROR,
    UNKNOWN_METHOD,
    Call,
    Undecodable,
)
from acid_platform.gateway.shapes import CATALOG
from acid_platform.gateway.statistics_calls import StatisticsCalls
from acid_platform.gateway.transaction_calls import TransactionCalls

_LOG = logging.getLogger(__name__)
_EMPTY_NAME = "!"
MOST_PARTS = 10_000
"""Elements of a list in a call."""
_LACKS = "{} needs an argument or a field that the client left out ({}); send it"
_OBJECT = ("NoSuchObjectException", "UnknownTableException", "UnknownDBException")
_REFUSED = (
    "InvalidOperationException",
    "InvalidObjectException",
    "TxnOpenException",
    "MetaException",
)
_ABORTED = ("TxnAbortedException", "NoSuchTxnException", "MetaException")
_EXCEPTIONS: tuple[tuple[type[AcidError], tuple[str, ...]], ...] = (
    (errors.NoSuchTable, _OBJECT),
    (errors.NoSuchPartition, _OBJECT),
    (errors.TableExists, ("AlreadyExistsException",)),
    (errors.NoSuchTxn, ("NoSuchTxnException",)),
    (errors.NoSuchLock, ("NoSuchLockException",)),
    (errors.TxnAborted, _ABORTED),
    (errors.SnapshotExpired, _ABORTED),
    (errors.DeclarationChanged, _ABORTED),
    (errors.UnsupportedStatement, _REFUSED),
    (errors.InvalidDefinition, _REFUSED),
    (errors.WrongType, _REFUSED),
)
"""The protocol's exceptions for an error: the first one that the call declares is used. Other
errors are MetaException."""


@dataclass(frozen=True, slots=True)
class Later:
    """A call that waits without a thread: `go_on` after so many seconds tells how it goes on."""

    pause: float
    go_on: Callable[[], bytes | Later]


def waited(answer: bytes | Later) -> bytes:
    """The answer, for which this thread waits."""
    while isinstance(answer, Later):
        time.sleep(answer.pause)
        answer = answer.go_on()
    return answer


class Gateway(
    CatalogCalls,
    ConstraintCalls,
    DefinitionCalls,
    PartitionCalls,
    SessionCalls,
    TransactionCalls,
    CompactionCalls,
    StatisticsCalls,
):
    """All calls. It may be used from several threads."""

    observe: Callable[[str, float, str], None] | None = None
    """Gets the name, the seconds and the error of each known call."""

    def answer(self, payload: bytes, peer: Caller) -> bytes:
        """As `begin`; a call that waits holds this thread."""
        return waited(self.begin(payload, peer))

    def begin(self, payload: bytes, peer: Caller) -> bytes | Later:
        """The answer to one message, also to one that is wrong, fails or is not allowed.

        It is empty for a call that wants none: Hive's clients say `shutdown` before they go.
        """
        try:
            call = Call.decode(payload)
        except Undecodable as error:
            _LOG.warning("%s: a call that can't be decoded: %s", peer, error)
            return Call("", 0, []).failed(f"the call can't be decoded: {error}", PROTOCOL_ERROR)
        row = CALLS.get(call.name)
        if row is None or row.answer is None:
            if call.oneway:
                return b""
            _LOG.warning("%s: unknown call %s", peer, call.name)
            text = f"the gateway has no call {call.name}; docs/internal/rights.md lists its calls"
            return call.failed(text, UNKNOWN_METHOD)
        answer = row.answer

        def asked() -> Any:
            _require_few(call)
            call.arguments = _plain_names(call.arguments)
            self._guard.admit(row, call, peer)
            return answer(self, *call.arguments)

        return self._answered(call, peer, asked, time.perf_counter())

    def _answered(
        self, call: Call, peer: Caller, asked: Callable[[], Any], began: float
    ) -> bytes | Later:
        """What `asked` returns or raises, as the protocol says it."""
        self._present.caller = peer
        failed = ""
        try:
            answer = asked()
            self._guard.answered(call, peer, answer)
            written = call.answer(answer)
        except Waits as waits:
            return Later(waits.pause, partial(self._answered, call, peer, waits.again, began))
        except NotAuthorized as error:
            failed = type(error).__name__
            _LOG.warning("%s: %s", peer, error)
            written = _exception(call, error)
        except AcidError as error:
            failed = type(error).__name__
            _LOG.info("%s: %s: %s: %s", peer, call.name, type(error).__name__, error)
            written = _exception(call, error)
        except Exception as error:
            failed = type(error).__name__
            if isinstance(error, AttributeError | TypeError) and "NoneType" in str(error):
                _LOG.info("%s: %s lacks something: %s", peer, call.name, error)
                written = _exception(call, InvalidDefinition(_LACKS.format(call.name, error)))
            else:
                _LOG.exception("%s: %s failed", peer, call.name)
                written = call.failed(f"{call.name} failed: {failed}: {error}")
        if self.observe is not None:
            self.observe(call.name, time.perf_counter() - began, failed)
        return written

    def may_wait(self, payload: bytes) -> bool:
        """Whether the call may wait long for a lock, by its name."""
        call = Call.named(payload)
        row = CALLS.get(call.name) if call is not None else None
        return row is not None and row.rule in MAY_WAIT

    def refuse(self, payload: bytes, reason: str) -> bytes:
        """The answer to a call of which only the name is looked at; empty if it is none."""
        call = Call.named(payload)
        return b"" if call is None else call.failed(reason)

    def leave(self) -> None:
        """Ends this thread's connection to the metastore."""
        self._metastore.disconnect()


def _exception(call: Call, error: AcidError) -> bytes:
    """The answer that reports the error."""
    declared = call.declared()
    message = " ".join(str(error).split())
    kinds = next((names for kind, names in _EXCEPTIONS if isinstance(error, kind)), ())
    for kind in (*kinds, "MetaException"):
        if kind in declared:
            return call.raised(declared[kind], kind, message)
    return call.failed(f"{type(error).__name__}: {message}")


def _require_few(call: Call) -> None:
    """Raises InvalidDefinition for a list of more parts than the metastore, which does one thing at
    a time, decides in a moment (P78)."""
    for argument in call.arguments:
        spec = getattr(argument, "thrift_spec", None) or {}
        fields = {one[1]: getattr(argument, one[1]) for one in spec.values()}
        for name, value in (fields or {"an argument": argument}).items():
            if isinstance(value, list | set | dict) and len(value) > MOST_PARTS:
                raise InvalidDefinition(
                    f"{call.name}: {name} has {len(value):,} parts; a call may have"
                    f" {MOST_PARTS:,}: make several calls"
                )


def _plain_name(name: str) -> str | None:
    """The database of `@hive#database`, and every other text as it is.

    `@hive#` names none, and `@hive#!` the empty text. Raises NoSuchTable for another catalog.
    """
    if not name.startswith("@") or "#" not in name:
        return name
    catalog, _, database = name[1:].partition("#")
    if catalog.lower() != CATALOG:
        raise NoSuchTable(f"there is no catalog {catalog}; the only one is {CATALOG}")
    if database == _EMPTY_NAME:
        return ""
    return database or None


def _plain_names(arguments: Sequence[Any]) -> list[Any]:
    """A call's arguments with plain names: its first text, and the fields of its structs.

    Raises NoSuchTable.
    """
    plain = list(arguments)
    for number, argument in enumerate(plain):
        if isinstance(argument, str):
            plain[number] = _plain_name(argument) if number == 0 else argument
            continue
        for each in argument if isinstance(argument, list) else [argument]:
            for field in DATABASE_FIELDS:
                name = getattr(each, field, None)
                if isinstance(name, str):
                    setattr(each, field, _plain_name(name))
    return plain
