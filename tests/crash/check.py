"""Opens a warehouse as a power cut left it, and compares it with what was acknowledged.

The metastore runs in this process on the same files, so that no process has to start for each of
hundreds of crash points.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from acid_platform import Warehouse
from acid_platform.base.clock import SystemClock
from acid_platform.metastore.client.link import _value
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Endpoint, Home
from acid_platform.metastore.messages import MetastoreOperation, encode, read_answer, read_operation
from acid_platform.metastore.server.group_commit import GroupCommit, Request
from acid_platform.metastore.server.server import log_of
from acid_platform.metastore.server.store import Store
from tests.crash.recording import Keep, Recording, everything, make, nothing, some
from tests.crash.workload import put, rows_of

Rows = dict[str, list[list[Any]]]
AFTERWARDS = "db.afterwards"


A = TypeVar("A")


class _Link:
    """Hands each operation to the owner of the files, through JSON as on the wire."""

    def __init__(self, commits: GroupCommit) -> None:
        self.commits, self._numbers = commits, itertools.count()

    def call(self, operation: MetastoreOperation[A]) -> A:
        args = json.loads(json.dumps(encode(operation)))
        received = read_operation(operation.op, args)
        request = Request(f"after-{next(self._numbers)}", received)
        replies, left = self.commits.answer_reads([request])
        for reply in replies or self.commits.round(left, ()):
            if reply.request_id == request.id:
                return read_answer(type(operation), _value(json.loads(json.dumps(reply.value))))
        raise AssertionError(f"{operation.op} waits for a lock")

    def close(self) -> None:
        """Does nothing: there is no connection."""


@contextmanager
def reopened(path: Path) -> Iterator[Warehouse]:
    """Opens the warehouse in this process; its last events are in no snapshot."""
    home = Home(path / "_metastore")
    Endpoint.read(home)
    if home.path.exists():
        assert len(home.authkey()) == 64
    home.prepare()
    log = log_of(home)
    if not log.exists:
        log.create()
    log.open_to_append()
    commits = GroupCommit(Store(log, home.path), SystemClock())
    commits.lead()
    metastore = Metastore(_Link(commits), str(path))  # type: ignore[arg-type]
    try:
        yield Warehouse(str(path), metastore)
    finally:
        metastore.beats.close()
        commits.store.close()


@dataclass(frozen=True, slots=True)
class Point:
    """A power cut after so many records."""

    count: int
    policy: str
    keep: Keep
    fewest: int
    """The number of steps that were acknowledged."""
    most: int
    """The number of steps that had begun."""


@dataclass
class Outcomes:
    """The number of points, and the faults that were found."""

    points: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        each = ", ".join(f"{count} {policy}" for policy, count in sorted(self.points.items()))
        return f"{self.points.total()} points ({each}): {len(self.faults)} wrong"


def points(recording: Recording, wanted: int, seed: int = 0) -> list[Point]:
    """The worst case after each acknowledged step, and as many random points as are wanted: after a
    sync or any other record, with nothing, something or all of the rest."""
    chance = random.Random(seed)
    done = [at + 1 for at, mark in recording.marks if mark.startswith("done ")]
    begun = [at + 1 for at, mark in recording.marks if mark.startswith("begin ")]
    chosen: list[tuple[int, str, Keep]] = [(at, "nothing", nothing) for at in done]
    while len(chosen) < wanted:
        count = (
            chance.choice(recording.syncs) + chance.randrange(2)
            if chance.random() < 0.6
            else chance.randrange(recording.length)
        )
        policy, keep = chance.choice(
            [
                ("nothing", nothing),
                ("everything", everything),
                ("some", some(len(chosen))),
                ("some", some(len(chosen))),
            ]
        )
        chosen.append((count, policy, keep))
    return [
        Point(count, policy, keep, *(sum(at <= count for at in places) for places in (done, begun)))
        for count, policy, keep in chosen
    ]


def run(
    recording: Recording,
    states: Sequence[Rows],
    path: Path,
    wanted: Sequence[Point],
    stop_at: int = 1 << 30,
) -> Outcomes:
    """For each point recreates the files at `path`, where they were recorded, and checks them."""
    outcomes = Outcomes()
    for point in wanted:
        make(recording.after(point.count, point.keep), path)
        outcomes.points[point.policy] += 1
        wrong = fault(path / "wh", [{}, *states][point.fewest : point.most + 1])
        if wrong:
            last = recording.marks[max(0, point.fewest + point.most - 1)][1]
            outcomes.faults.append(
                f"record {point.count}, {point.policy} of the rest is left, {last!r}: {wrong}"
            )
            if len(outcomes.faults) >= stop_at:
                break
    return outcomes


def fault(path: Path, allowed: Sequence[Rows]) -> str:
    """The fault of the warehouse, which must be in one of these states; empty if there is none."""
    try:
        with reopened(path) as warehouse:
            seen = rows_of(warehouse)
            if seen not in allowed:
                return f"{seen} is none of {list(allowed)}"
            # The warehouse must remain usable.
            warehouse.create_table(AFTERWARDS, "id int, v string")
            put(warehouse, AFTERWARDS, [1])
            if rows_of(warehouse) != {**seen, AFTERWARDS: [[1, "v1"]]}:
                return "a commit afterwards is not as it was made"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
