"""What was checked, and what came out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Report:
    """The checks of one engine."""

    engine: str
    log: Path
    read: int = 0
    equal: int = 0
    statements: int = 0
    done: int = 0
    races: dict[str, str] = field(default_factory=dict)
    """Who raced, and how many races were decided."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further results, by name."""
    failures: list[str] = field(default_factory=list)

    def check(self, what: str, good: bool, detail: object = "") -> bool:
        print(
            f"{'ok  ' if good else 'BAD '} {what}" + ("" if good else f": {detail}")[:600],
            flush=True,
        )
        if not good:
            self.failures.append(what)
        return good

    def compared(self, what: str, ours: list[str], theirs: list[str]) -> None:
        """Both have to be the same rows."""
        self.read += 1
        extra = sorted({*theirs} - {*ours})[:3]
        lacking = sorted({*ours} - {*theirs})[:3]
        told = (
            f"{len(ours)} rows here, {len(theirs)} there; only there {extra}, only here {lacking}"
        )
        self.equal += self.check(f"{what}, {len(ours)} rows", ours == theirs, told)

    def ran(self, statement: str, error: object = None) -> None:
        self.statements += 1
        self.done += self.check(statement[:100], error is None, error)

    def note(self, entry: dict[str, Any]) -> None:
        with self.log.open("a") as log:
            log.write(json.dumps({"engine": self.engine, **entry}) + "\n")

    def shown(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "reads": self.read,
            "reads_equal": self.equal,
            "statements": self.statements,
            "statements_done": self.done,
            "races": self.races,
            "failed": self.failures,
            **self.more,
        }
