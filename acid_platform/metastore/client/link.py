"""Sends a request over a connection that may break, and gets its answer (P3).

A connection belongs to one process and one thread. After a break the client asks for the outcome of
its request, and sends the request again only if the metastore has never seen it.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    MetastoreIncompatible,
    MetastoreRefused,
    MetastoreUnavailable,
    MetastoreWriteFailed,
    OutcomeUnknown,
    Terminal,
    WarehouseMoved,
    error_class,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.target import START_SECONDS, Target
from acid_platform.metastore.messages import (
    Answer,
    JsonObject,
    MetastoreOperation,
    encode,
    read_answer,
)
from acid_platform.metastore.wire import LARGEST_MESSAGE, Channel, Malformed, Refused

A = TypeVar("A")

ANSWER_SECONDS = 60.0
"""After so many seconds without an answer the metastore counts as gone, and is asked again."""

_TRANSIENT_ATTEMPTS = 3

_WITHDRAW_SECONDS = 5.0
"""How long an interrupted caller waits for the metastore."""


class Broken(Exception):
    """The connection ended before the answer came."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A message that may be sent again under the same id."""

    id: str
    operation: MetastoreOperation[object]
    message: bytes

    @classmethod
    def of(cls, operation: MetastoreOperation[object]) -> _Request:
        """Raises InvalidDefinition for a text that no file can hold."""
        request_id = secrets.token_hex(8)
        request = {"id": request_id, "op": operation.op, "args": encode(operation)}
        try:
            message = json.dumps(request, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            near = error.object[max(0, error.start - 20) : error.end + 20]
            raise InvalidDefinition(
                f"{operation.op}: {near!a} holds half of a character (a lone surrogate); correct it"
            ) from error
        return cls(request_id, operation, message)


class Link:
    """The connections of this process to one metastore, which it can also start."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._per_thread = threading.local()

    def call(self, operation: MetastoreOperation[A]) -> A:
        """Sends the operation and returns its answer.

        Raises the error that the metastore answered, MetastoreUnavailable, OutcomeUnknown,
        MetastoreWriteFailed, and Terminal for a message that is too large.
        """
        request = _Request.of(operation)
        try:
            return read_answer(type(operation), self._answer(request))
        except Exception:
            raise
        except BaseException:
            if isinstance(operation, ops.Begin):
                self._withdraw(request)
            raise

    def _withdraw(self, request: _Request) -> None:
        """Tells a metastore that answers now that nobody waits for the transaction any more: nobody
        would end it, and it would keep others from its lock until it timed out."""
        with suppress(Exception), closing(self.target.dial()) as connection:
            connection.exchange(_Request.of(ops.Withdraw(request.id)).message, _WITHDRAW_SECONDS)

    def _answer(self, request: _Request) -> JsonObject:
        op, size = request.operation.op, len(request.message)
        if size > LARGEST_MESSAGE:
            raise Terminal(
                f"{op} is a message of {size:,} bytes, but the metastore accepts"
                f" {LARGEST_MESSAGE:,}; report fewer things at once"
            )
        self._connection()
        try:
            answer = self._exchange(request)
        except Broken as broken:
            answer = self._recover(request, str(broken))
        for _ in range(_TRANSIENT_ATTEMPTS):
            if "ask" not in answer:
                return _value(answer)
            try:
                outcome = self._outcome(request)
                if outcome is None and not answer["transient"]:
                    break
                answer = outcome or self._exchange(request)
            except Broken as broken:
                answer = self._recover(request, str(broken))
        if "ask" not in answer:
            return _value(answer)
        kind = MetastoreUnavailable if answer["transient"] else MetastoreWriteFailed
        raise kind(f"the metastore did not do {op}, and nothing was changed: {answer['ask']}")

    def close(self) -> None:
        """Closes the connection of this thread."""
        connection = getattr(self._per_thread, "connection", None)
        if connection is not None:
            connection.close()
            self._per_thread.connection = None

    def await_end(self, pid: int) -> None:
        """Waits until a metastore process that was told to stop has closed its files.

        Raises MetastoreUnavailable if that takes longer than a start may take.
        """
        self.close()
        deadline = time.monotonic() + START_SECONDS
        while self.target.runs(pid):
            if time.monotonic() > deadline:
                raise MetastoreUnavailable(
                    f"process {pid} was told to stop the metastore of {self.target} and still runs"
                    f" after {START_SECONDS:g} s; its log says why"
                )
            time.sleep(0.005)

    # --- after a break ----------------------------------------------------------------------

    def _recover(self, request: _Request, why: str) -> Answer:
        repeatable = request.operation.repeatable
        deadline, pause = time.monotonic() + START_SECONDS, 0.005
        while True:
            self.close()
            try:
                self._connection()
                outcome = None if repeatable else self._outcome(request)
                return outcome or self._exchange(request)
            except (Broken, MetastoreUnavailable) as error:
                why = str(error)
            except (MetastoreRefused, MetastoreIncompatible, WarehouseMoved) as error:
                if repeatable and isinstance(error, WarehouseMoved):
                    raise
                raise self._lost(request.operation, str(error)) from error
            if time.monotonic() > deadline or not self.target.patient:
                raise self._lost(request.operation, why)
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _lost(self, operation: MetastoreOperation[object], why: str) -> AcidError:
        if operation.repeatable:
            return MetastoreUnavailable(f"the metastore of {self.target} is gone: {why}")
        return OutcomeUnknown(
            f"the answer to {operation.op} was lost and the metastore of {self.target} is gone"
            f" ({why}); whether it was done is not known: ask outcome() when it is back"
        )

    def _outcome(self, request: _Request) -> Answer | None:
        """The outcome of the request, or None if it is waiting or was never seen."""
        answer = self._exchange(_Request.of(ops.GetOutcome(request.id)))
        if "ask" in answer:
            raise OutcomeUnknown(
                f"the metastore can't tell what became of {request.operation.op}: {answer['ask']}"
            )
        return read_answer(ops.GetOutcome, _value(answer))

    def _exchange(self, request: _Request) -> Answer:
        """Raises Broken. After any interruption a late answer can't be taken for a
        later request's."""
        patience = ANSWER_SECONDS + request.operation.patience
        connection = self._connection()
        replaced = None
        if self.target.failover_seconds:
            replaced = partial(self.target.replaced, connection.epoch)
        try:
            answer: Answer = json.loads(connection.exchange(request.message, patience, replaced))
        except (EOFError, OSError, Malformed) as error:
            self.close()
            raise Broken(f"{type(error).__name__}: {error}") from error
        except BaseException:
            self.close()
            raise
        return answer

    # --- connections ------------------------------------------------------------------------

    def _connection(self) -> Channel:
        own = self._per_thread
        if getattr(own, "pid", None) != os.getpid():
            # After a fork this connection belongs to the parent; closing our copy does not end it.
            self.close()
            own.pid, own.connection = os.getpid(), None
        connection: Channel | None = own.connection
        if connection is not None and connection.ended:
            # Checked before anything is sent: if the warehouse was moved, no outcome is in doubt.
            self.target.require_same()
        if connection is None:
            connection = own.connection = self._connect()
        return connection

    def _connect(self) -> Channel:
        target, began, pause = self.target, time.monotonic(), 0.005
        seconds = START_SECONDS if target.startable else target.failover_seconds
        while True:
            try:
                return target.dial()
            except (OSError, EOFError, Refused, Malformed) as error:
                why = f"{type(error).__name__}: {error}"
            waited = time.monotonic() - began
            if waited >= seconds:
                raise MetastoreUnavailable(
                    f"no metastore answers for {target} ({why}); {target.advice}"
                )
            if target.startable:
                # If a client was killed, its child may still hold the lock for starting.
                target.start(alone=waited < seconds / 2)
            time.sleep(pause)
            pause = min(2 * pause, 0.1)


def _value(answer: Answer) -> JsonObject:
    if "error" in answer:
        name, text = answer["error"]
        raise error_class(name)(text)
    return answer["value"]
