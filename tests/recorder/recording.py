"""What clients try, read and are told, as a history: a line before the first message, one after.

The first line holds the writes, with an unknown outcome; the second one replaces it. A process that
is killed in between leaves the first one.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from thriftpy2.thrift import TException

from acid_platform import (
    AcidError,
    LockNotAcquired,
    LockTimeout,
    NoSuchTxn,
    OutcomeUnknown,
    OverwriteThenWrite,
    SnapshotExpired,
    TxnAborted,
)
from acid_platform.metastore.client.open_transaction import UNDECIDED
from tests.gateway.clients import m
from tests.judge.recorded import Attempt, Outcome, Step
from tests.recorder.clients import Client
from tests.recorder.faults import free_disk

COMMITS_TRIED = 5
"""A commit that was not decided is sent again so often."""
LOST = (TException, OSError, EOFError)
"""Errors of a connection to the gateway."""
EXPECTED = (
    *UNDECIDED,
    OutcomeUnknown,
    TxnAborted,
    NoSuchTxn,
    SnapshotExpired,
    LockNotAcquired,
    LockTimeout,
    OverwriteThenWrite,  # refused by name: some plans write `j.files` anew, and then again
    *LOST,
)
"""Errors that clients may get under faults. Any other is a finding: such as a file that is gone."""
FULL = os.strerror(errno.EFBIG)
"""What an error of a write on a full disk says."""
BUSY = "Python worker failed to connect back"
"""What Spark says if Python does not start in time: the machine is busy, or a process stopped."""


def is_explained(error: BaseException) -> bool:
    """Whether the faults of a run explain an error."""
    return isinstance(error, EXPECTED) or any(why in str(error) for why in (FULL, BUSY))


@dataclass
class Journal:
    """The file of one process."""

    directory: Path
    process: str
    _file: int = field(init=False)

    def __post_init__(self) -> None:
        path = self.directory / f"{self.process}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def attempt(self, attempt: Attempt) -> None:
        """A transaction as it is now; it may be one that a killed process has begun."""
        self._line({"attempt": attempt.to_json()})

    def error(self, place: str, error: BaseException) -> None:
        name = type(error).__name__
        if is_explained(error):
            self._line({"error": f"{place}: {name}"})
        else:
            self._line({"unexpected": f"{self.process}, {place}: {name}: {error}"})

    def _line(self, content: dict[str, object]) -> None:
        rest = json.dumps(content, separators=(",", ":")).encode() + b"\n"
        while rest:
            free_disk(0)  # what befalls the platform does not befall the record of it
            with suppress(OSError):
                rest = rest[os.write(self._file, rest) :]


@dataclass
class Recording:
    """What all processes of a round have written down."""

    history: list[Attempt]
    """By the times at which they began."""
    errors: Counter[str]
    """Expected ones, by name and place."""
    unexpected: list[str]

    @classmethod
    def of(cls, directory: Path) -> Recording:
        attempts: dict[tuple[str, int], Attempt] = {}
        """By process and time; a later line replaces one with an unknown outcome."""
        recording = cls([], Counter(), [])
        for path in sorted(directory.glob("*.jsonl")):
            for text in path.read_text().splitlines(keepends=True):
                if not text.endswith("\n"):
                    continue  # its process was killed while it wrote
                line = json.loads(text)
                if "attempt" in line:
                    attempt = Attempt.of_json(line["attempt"])
                    which = attempt.process, attempt.began
                    if which not in attempts or attempts[which].outcome == "info":
                        attempts[which] = attempt
                elif "error" in line:
                    recording.errors[line["error"]] += 1
                else:
                    recording.unexpected.append(line["unexpected"])
        recording.history = sorted(attempts.values(), key=lambda one: one.began)
        return recording


def run(
    client: Client,
    journal: Journal,
    plan: list[Step],
    *,
    alone: bool = False,
    gives_up: bool = False,
    pause: Callable[[], None] = lambda: None,
) -> Outcome:
    """Runs one transaction, records it, and returns its outcome.

    `alone` is a single step that is a statement of its own. Who `gives_up` aborts it in the end.
    """
    writes = tuple(step for step in plan if step.writes)
    attempt = Attempt(journal.process, writes, "info", time.monotonic_ns())
    journal.attempt(attempt)
    steps: list[Step] = []
    first_read: int | None = None
    sent: int | None = None
    outcome: Outcome = "fail"
    try:
        if not alone:
            client.begin()
        for step in plan:
            if step.writes:
                sent = time.monotonic_ns() if alone else None
                client.write(step)
                steps.append(step)
            else:
                steps.append(replace(step, value=client.read(step)))
                first_read = first_read or time.monotonic_ns()
            pause()
        if gives_up:
            client.abort()
        else:
            if not alone:
                sent = time.monotonic_ns()
                _commit(client)
            outcome = "ok"
    except (AcidError, *LOST) as error:
        journal.error("commit" if sent else "statement", error)
        outcome = "info" if sent and _undecided(error) else "fail"
        with suppress(AcidError, *LOST):
            client.abort()
    if outcome != "ok" and not client.checks:
        steps, first_read = [], None
    steps += [step for step in writes if step not in steps]
    ended = time.monotonic_ns() if outcome != "info" else None
    journal.attempt(
        replace(
            attempt,
            steps=tuple(steps),
            outcome=outcome,
            first_read=first_read,
            sent=sent,
            ended=ended,
        )
    )
    return outcome


def _commit(client: Client) -> None:
    """Sends a commit again that was not decided. Raises what its last answer says."""
    undecided: BaseException | None = None
    for _ in range(COMMITS_TRIED):
        try:
            client.commit()
            return
        except UNDECIDED as error:
            undecided = error
            time.sleep(0.3)
        except TxnAborted:
            raise
        except AcidError as error:
            # It may say that the transaction has ended, by a commit that got through before.
            raise (undecided or error) from error
    assert undecided is not None
    raise undecided


def _undecided(error: BaseException) -> bool:
    """Whether a transaction whose commit failed so may be committed."""
    if isinstance(error, AcidError):
        return isinstance(error, (OutcomeUnknown, *UNDECIDED))
    return not isinstance(error, m.TxnAbortedException)
