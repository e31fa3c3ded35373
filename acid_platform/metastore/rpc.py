"""One request and its answer, over a connection that may break (P3).

A connection belongs to one process and one thread. After a break the client asks what became of
its request, and sends it again only when the metastore has never seen it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from acid_platform import errors
from acid_platform.errors import (
    AcidError,
    MetastoreInUse,
    MetastoreUnavailable,
    MetastoreWriteFailed,
    OutcomeUnknown,
)
from acid_platform.metastore.endpoint import Endpoint, Home, limit_waits

Json = dict[str, Any]

START_SECONDS = 30.0
"""How long to wait for a metastore that is starting, or coming back."""

REPEATABLE = {
    "tables", "table", "partitions", "databases", "settings", "transactions", "locks",
    "compactions", "compaction", "entities", "cleaning", "txn_states", "outcome_of_txn",
    "heartbeat", "heartbeat_one", "valid_write_ids", "allocate", "granted", "outcome",
    "query", "history", "status", "stop",
}
"""Requests that may be sent twice without harm."""

ANSWER_SECONDS = 60.0
"""A metastore that does not answer for so long is taken for gone, and asked again."""

_TRANSIENT_ATTEMPTS = 3


class Broken(Exception):
    """The connection ended before the answer came."""


class Link:
    """Connections of this process to one metastore, and how to start it."""

    def __init__(self, home: Home, *, autostart: bool) -> None:
        self.home, self._autostart = home, autostart
        self._per_thread = threading.local()

    def call(self, op: str, **args: Any) -> Json:
        """The answer. Raises the error that the metastore answered, MetastoreUnavailable,
        OutcomeUnknown, MetastoreWriteFailed."""
        request_id = secrets.token_hex(8)
        message = json.dumps({"id": request_id, "op": op, "args": args}).encode()
        connection = self._connection()
        try:
            answer = _exchange(connection, message, _patience(args))
        except Broken as broken:
            answer = self._recover(op, request_id, message, str(broken))
        for _ in range(_TRANSIENT_ATTEMPTS):
            if "ask" not in answer:
                return _value(answer)
            kept = self._outcome(op, request_id)
            if kept is not None:
                answer = kept
            elif answer["transient"]:
                answer = self._again(op, request_id, message)
            else:
                break
        if "ask" not in answer:
            return _value(answer)
        kind = MetastoreUnavailable if answer["transient"] else MetastoreWriteFailed
        raise kind(f"the metastore did not do {op}, nothing was changed: {answer['ask']}")

    def close(self) -> None:
        """Closes the connection of this thread."""
        connection = getattr(self._per_thread, "connection", None)
        if connection is not None:
            connection.close()
            self._per_thread.connection = None

    # --- after a break ----------------------------------------------------------------------

    def _recover(self, op: str, request_id: str, message: bytes, why: str) -> Json:
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.close()
            try:
                self._connection()
                kept = None if op in REPEATABLE else self._outcome(op, request_id)
                return kept or self._again(op, request_id, message)
            except (Broken, MetastoreUnavailable) as error:
                why = str(error)
            if time.monotonic() > deadline or not self._autostart:
                raise self._lost(op, why)

    def _lost(self, op: str, why: str) -> AcidError:
        if op in REPEATABLE:
            return MetastoreUnavailable(f"the metastore of {self.home.path} is gone: {why}")
        return OutcomeUnknown(
            f"the answer to {op} was lost and the metastore of {self.home.path} is gone ({why});"
            " whether it was done is not known: ask outcome() when it is back"
        )

    def _outcome(self, op: str, request_id: str) -> Json | None:
        """The answer that was kept, or None if the request is waiting or was never seen."""
        question = {"id": secrets.token_hex(8), "op": "outcome", "args": {"request_id": request_id}}
        answer = _exchange(self._connection(), json.dumps(question).encode())
        if "ask" in answer:
            raise OutcomeUnknown(f"the metastore can't tell what became of {op}: {answer['ask']}")
        found = _value(answer)
        kept: Json | None = found.get("answer")
        return kept

    def _again(self, op: str, request_id: str, message: bytes) -> Json:
        patience = _patience(json.loads(message)["args"])
        return _exchange(self._connection(), message, patience)

    # --- connections ------------------------------------------------------------------------

    def _connection(self) -> Connection[Any, Any]:
        own = self._per_thread
        if getattr(own, "pid", None) != os.getpid():
            # After a fork the parent's connection is not ours; closing our copy does not end it.
            self.close()
            own.pid = os.getpid()
        if getattr(own, "connection", None) is None:
            own.connection = self._connect()
        connection: Connection[Any, Any] = own.connection
        return connection

    def _connect(self) -> Connection[Any, Any]:
        deadline = time.monotonic() + START_SECONDS
        pause, why = 0.005, ""
        while True:
            try:
                found = Endpoint.read(self.home)
                if found is not None:
                    return _dial(found.address, self.home.authkey())
                why = "none is running"
            except (OSError, EOFError, AuthenticationError) as error:
                why = f"{type(error).__name__}: {error}"
            if not self._autostart or time.monotonic() > deadline:
                raise MetastoreUnavailable(
                    f"no metastore answers for {self.home.path} ({why}); start one with"
                    f" `python -m acid_platform.metastore --dir {self.home.path}`"
                )
            start(self.home)
            time.sleep(pause)
            pause = min(2 * pause, 0.1)


def start(home: Home) -> None:
    """Starts a metastore process that outlives this one; another may be faster, that is fine.

    Raises MetastoreIncompatible or MetastoreUnavailable if it can't serve the directory.
    """
    home.prepare()
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    command = [sys.executable, "-m", "acid_platform.metastore", "--dir", str(home.path), "--detach"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, cwd="/",
            timeout=START_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise MetastoreUnavailable(
            f"a metastore for {home.path} did not start in {START_SECONDS:.0f} s; see {home.log}"
        ) from error
    try:
        told = json.loads(done.stdout)
    except ValueError as error:
        raise MetastoreUnavailable(
            f"a metastore for {home.path} did not start: {done.stderr.strip()}; see {home.log}"
        ) from error
    if "error" in told and told["error"][0] != MetastoreInUse.__name__:
        name, text = told["error"]
        raise _error_class(name)(f"a metastore for {home.path} did not start: {text}")


def _dial(address: str, key: bytes) -> Connection[Any, Any]:
    peer = socket.socket(socket.AF_UNIX)
    try:
        limit_waits(peer)
        peer.connect(address)
    except OSError:
        peer.close()
        raise
    connection: Connection[Any, Any] = Connection(peer.detach())
    try:
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    except BaseException:
        connection.close()
        raise
    return connection


def _patience(args: Json) -> float:
    """Seconds until a missing answer counts as a broken connection: locks may take their wait."""
    return ANSWER_SECONDS + float(args.get("wait") or 0)


def _exchange(
    connection: Connection[Any, Any], message: bytes, patience: float | None = None
) -> Json:
    patience = ANSWER_SECONDS if patience is None else patience
    try:
        connection.send_bytes(message)
        if not connection.poll(patience):
            raise Broken(f"no answer within {patience:.0f} s")
        answer: Json = json.loads(connection.recv_bytes())
        return answer
    except (EOFError, OSError) as error:
        raise Broken(f"{type(error).__name__}: {error}") from error


def _value(answer: Json) -> Json:
    if "error" in answer:
        name, text = answer["error"]
        raise _error_class(name)(text)
    value: Json = answer["value"]
    return value


def _error_class(name: str) -> type[AcidError]:
    found = getattr(errors, name, None)
    return found if isinstance(found, type) and issubclass(found, AcidError) else AcidError
