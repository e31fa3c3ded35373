"""Histories as Elle and Jepsen understand them: transactions of small steps, with their times.

A key is a list (`append`), a set (`add`) or a register (`write`), and each value is written to a
key once, so that a read says whose writes it saw. The judge imports nothing of the platform: it
has these records and the papers, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Do = Literal["append", "list", "add", "set", "write", "register"]
"""A write to a list, its read; the same for a set and for a register."""
Value = int | None
Version = tuple[int, ...] | frozenset[int] | Value
"""What a read returns: the elements of a list in their order, those of a set, or a value (None:
the register was never written)."""
Outcome = Literal["ok", "fail", "info"]
"""Committed, certainly not committed, or not known."""
WRITES: dict[str, Do] = {"append": "list", "add": "set", "write": "register"}
"""Each kind of write with the read of the same kind of key."""


class MalformedHistory(ValueError):
    """What was recorded is no history: no verdict can be given."""


@dataclass(frozen=True, slots=True)
class Step:
    """One write with its value, or one read with the version that it returned."""

    do: Do
    key: str
    value: Any

    @property
    def writes(self) -> bool:
        return self.do in WRITES

    def __str__(self) -> str:
        if self.do == "set":
            return f"{self.key} is {{{', '.join(map(str, sorted(self.value)))}}}"
        if self.writes:
            return f"{self.do} {self.value} to {self.key}"
        return f"{self.key} is {list(self.value) if self.do == 'list' else self.value}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A transaction that a client tried. Times are nanoseconds of a clock that all share."""

    process: str
    steps: tuple[Step, ...]
    outcome: Outcome = "ok"
    began: int = 0
    """Before anything was sent."""
    first_read: int | None = None
    """After the first read's answer had come: its snapshot is no younger."""
    sent: int | None = None
    """Before the commit was sent: it is no older."""
    ended: int | None = None
    """After the answer to the commit; None if there was none."""

    def __str__(self) -> str:
        return f"{self.process}: {'; '.join(map(str, self.steps))} ({self.outcome})"

    def to_json(self) -> dict[str, Any]:
        steps = [
            [step.do, step.key, sorted(step.value) if step.do == "set" else step.value]
            for step in self.steps
        ]
        times = {
            name: getattr(self, name)
            for name in ("first_read", "sent", "ended")
            if getattr(self, name) is not None
        }
        return {
            "process": self.process,
            "outcome": self.outcome,
            "steps": steps,
            "began": self.began,
            **times,
        }

    @classmethod
    def of_json(cls, line: dict[str, Any]) -> Attempt:
        """Raises MalformedHistory for what `to_json` does not write."""
        try:
            steps = tuple(Step(do, key, _version(do, value)) for do, key, value in line["steps"])
            return cls(
                line["process"],
                steps,
                line["outcome"],
                line["began"],
                line.get("first_read"),
                line.get("sent"),
                line.get("ended"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedHistory(f"{line}: {error!r}") from error


def _version(do: Do, value: Any) -> Any:
    if do not in {*WRITES, *WRITES.values()}:
        raise MalformedHistory(f"{do} is neither a write nor a read")
    if do in ("list", "set"):
        return tuple(value) if do == "list" else frozenset(value)
    return value


def save(path: Path, history: Iterable[Attempt]) -> None:
    """JSON lines, one transaction each."""
    with path.open("w") as file:
        for attempt in history:
            file.write(json.dumps(attempt.to_json(), separators=(",", ":")) + "\n")


def load(*paths: Path) -> list[Attempt]:
    """The attempts of all files, by the times at which they began. A last line that its process
    did not finish, since it was killed, is left out. Raises MalformedHistory."""
    return sorted(
        (attempt for path in paths for attempt in _lines(path)), key=lambda one: one.began
    )


def _lines(path: Path) -> Iterator[Attempt]:
    lines = path.read_text().splitlines(keepends=True)
    for line in lines:
        if line.endswith("\n"):
            yield Attempt.of_json(json.loads(line))
