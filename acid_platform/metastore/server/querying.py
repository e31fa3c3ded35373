"""`acid metastore sql`: queries run in a process of their own, and one that takes long is ended.

The process follows the log, as a standby does, and has less memory and less of the processor than
the leader, which goes on answering whatever a query does, while it is parsed too (P78). It starts
with the first query and ends after a minute without one.

`python -m acid_platform.metastore.server.querying --log WHERE` reads a line of JSON for each query
and writes two: that it begins, and the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from acid_platform.base.databases import Error
from acid_platform.base.local_files import ScratchDirectory, scratch_directory
from acid_platform.errors import AcidError, InvalidExpression, MetastoreUnavailable
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.target import environment
from acid_platform.metastore.log.contract import Log, open_log
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import MetastoreOperation, json_text, write_answer
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server.store import Store, machine_at

SECONDS = 10.0
"""After so many seconds a query is ended."""
_START_SECONDS, _IDLE_SECONDS = 60.0, 60.0
_MEMORY = 4 << 30
"""Bytes of the process, of which DuckDB may use 2 GB."""
_MOST_WAITING = 16
_LONGEST_SQL, _LONGEST_ANSWER = 1 << 20, 32 << 20
"""Characters: the leader keeps what waits, and reads each answer at once."""


class Queries:
    """The leader's end: one query after another, and the process that runs them."""

    def __init__(self, log: Log, ring: Callable[[], None]) -> None:
        """`ring` is called, from a thread, when `replies` may have something new."""
        self._log, self._ring = log, ring
        self._waiting: deque[tuple[str, str]] = deque()
        """Ids of requests, and what the process is told."""
        self._told: deque[dict[str, Any]] = deque()
        self._process: subprocess.Popen[str] | None = None
        self._scratch: ScratchDirectory | None = None
        """For what the process spills: it is killed, and removes nothing."""
        self._running = ""
        self._deadline = 0.0
        self._used = 0.0

    def ask(self, request_id: str, sql: str, position: int, now: int) -> None:
        """Takes a query about the state at a position of the log."""
        if len(self._waiting) >= _MOST_WAITING:
            busy = MetastoreUnavailable(f"{_MOST_WAITING} queries wait already; try again later")
            self._told.append({"id": request_id, "reply": error_reply(busy)})
            return
        if len(sql) > _LONGEST_SQL:
            long = InvalidExpression(
                f"a query of {len(sql):,} characters is too long: at most {_LONGEST_SQL:,}"
            )
            self._told.append({"id": request_id, "reply": error_reply(long)})
            return
        asked = {"id": request_id, "sql": sql, "position": position, "now": now}
        self._waiting.append((request_id, json_text(asked)))

    def replies(self) -> list[Reply]:
        """What has been answered, or ended; begins the next query."""
        replies = []
        while self._told:
            told = self._told.popleft()
            if "reply" in told:
                replies.append(Reply(told["id"], told["reply"]))
                self._running = "" if told["id"] == self._running else self._running
            elif told.get("begun") == self._running:
                self._deadline = time.monotonic() + SECONDS
        now = time.monotonic()
        ended = self._process is not None and self._process.poll() is not None
        if self._running and (ended or now > self._deadline):
            self.end()
            why = (
                "its process needed more memory than it may have, or was killed"
                if ended
                else f"it was ended after {SECONDS:g} s"
            )
            failed = InvalidExpression(f"the query failed: {why}; ask for less")
            replies.append(Reply(self._running, error_reply(failed)))
            self._running = ""
        if not self._running and self._waiting:
            self._begin(now)
        elif not self._running and self._process and now - self._used > _IDLE_SECONDS:
            self.end()
        return replies

    def end(self) -> None:
        """Ends the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._scratch is not None:
            self._scratch.cleanup()
        self._process = self._scratch = None

    def _begin(self, now: float) -> None:
        self._running, line = self._waiting.popleft()
        self._deadline, self._used = now + _START_SECONDS, now
        if self._process is None or self._process.poll() is not None:
            self.end()
            self._scratch = scratch_directory("queries")
            command = [sys.executable, "-P", "-m", __name__, "--log", self._log.where]
            self._process = subprocess.Popen(
                command,
                env=environment() | {"TMPDIR": self._scratch.name},
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            listens = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
            listens.start()
        # In a thread, since a long query waits until the process reads it.
        threading.Thread(target=_tell, args=(self._process, line), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if process is self._process:
                self._told.append(json.loads(line))
                self._ring()
        process.stdout.close()
        self._ring()


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except (OSError, ValueError):  # it has just ended, which `replies` tells
        process.kill()


# --- the process ----------------------------------------------------------------------------------


class Follower:
    """The state at the end of a log that another process leads."""

    def __init__(self, log: Log, scratch: Path) -> None:
        self._log, self._scratch = log, scratch
        self.store: Store | None = None
        self._machine: Machine | None = None

    def answer(self, operation: ops.RunQuery, position: int, now: int) -> ops.QueryResult:
        """Raises what `Store.query` and reading the log raise."""
        try:
            return self._answer(operation, position, now)
        except (Error, OSError):
            raise
        except AcidError as error:
            if isinstance(error, InvalidExpression) or self.store is None:
                raise
            self.store = None  # the leader has replaced batches by a snapshot: read it anew
            return self._answer(operation, position, now)

    def _answer(self, operation: ops.RunQuery, position: int, now: int) -> ops.QueryResult:
        if self.store is None or self._machine is None:
            self.store = Store(self._log, self._scratch)
            self._machine = machine_at(self.store)
        else:
            self._machine.replay(self.store.follow(position))
        columns, rows = self.store.query(self._machine.state, operation.sql)
        plain = [[_plain(value) for value in row] for row in rows]
        return ops.QueryResult(columns, plain, now, self.store.end.position)


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str | None) else str(value)


HANDLERS: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    ops.RunQuery: Follower.answer
}
"""Operations that the process answers."""


def _serve(follower: Follower, lines: IO[str], answers: IO[str]) -> None:
    for line in lines:
        asked = json.loads(line)
        answers.write(json.dumps({"begun": asked["id"]}) + "\n")
        answers.flush()
        try:
            result = follower.answer(ops.RunQuery(asked["sql"]), asked["position"], asked["now"])
            reply: Any = {"value": write_answer(ops.RunQuery, result)}
        except AcidError as error:
            reply = error_reply(error)
        except (Error, OSError, MemoryError) as error:
            reply = error_reply(InvalidExpression(f"the query failed: {error}"))
        text = json_text({"id": asked["id"], "reply": reply})
        if len(text) > _LONGEST_ANSWER:
            long = InvalidExpression(
                f"the query failed: its answer has {len(text):,} characters, and at most"
                f" {_LONGEST_ANSWER:,} are sent; ask for less"
            )
            text = json_text({"id": asked["id"], "reply": error_reply(long)})
        answers.write(text + "\n")
        answers.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True)
    chosen = parser.parse_args()
    os.umask(0o077)
    os.nice(5)  # commits go first
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    with scratch_directory("queries") as scratch:
        local = "://" not in chosen.log
        log = LocalLog(Path(chosen.log)) if local else open_log(chosen.log)
        directory = Path(chosen.log) if local else Path(scratch)
        _serve(Follower(log, directory), sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
