"""Listings for people, and operations on the process or its file rather than the state."""

from __future__ import annotations

from dataclasses import dataclass, field

from acid_platform.metastore.codec import BRIEF
from acid_platform.metastore.operations.base import Answer, MetastoreOperation, Row, Values

# --- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownCompaction:
    """A row of SHOW COMPACTIONS, and whether it has left `initiated` and `working` (C59)."""

    row: Row
    done: bool


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """The fate of a request (P3): `seen` is `done` (with its answer), `waiting` or `unseen`."""

    seen: str
    answer: Answer | None = field(default=None, metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """`as_of` is the moment of the state that was asked, in milliseconds UTC, and `position` the
    last batch of the log in it."""

    columns: list[str]
    rows: Values
    as_of: int
    position: int


# --- listings -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShowTransactions(MetastoreOperation[list[Row]]):
    op = "transactions"
    answers = "rows"
    reads = True


@dataclass(frozen=True, slots=True)
class ShowLocks(MetastoreOperation[list[Row]]):
    op = "locks"
    answers = "rows"
    reads = True


@dataclass(frozen=True, slots=True)
class ShowCompactions(MetastoreOperation[list[Row]]):
    op = "compactions"
    answers = "rows"
    reads = True


@dataclass(frozen=True, slots=True)
class ShowCompaction(MetastoreOperation[ShownCompaction]):
    op = "compaction"
    reads = True

    id: int


# --- the file -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GetOutcome(MetastoreOperation[SeenRequest]):
    """Asks for the fate of a request (P3)."""

    op = "outcome"
    repeatable = True

    request_id: str


@dataclass(frozen=True, slots=True)
class RunQuery(MetastoreOperation[QueryResult]):
    """One SELECT over the metastore's own tables."""

    op = "query"
    repeatable = True

    sql: str


@dataclass(frozen=True, slots=True)
class GetHistory(MetastoreOperation[list[Row]]):
    """Committed directories of a table, oldest first."""

    op = "history"
    answers = "rows"
    repeatable = True

    name: str


# --- the process --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GetStatus(MetastoreOperation[Row]):
    """Process, epoch and counters of the metastore."""

    op = "status"
    repeatable = True


@dataclass(frozen=True, slots=True)
class ReportGateway(MetastoreOperation[None]):
    """What a gateway says of itself; `status` has it until the gateway is silent for a minute.

    `name` is the gateway's among all of this metastore. An empty `report` says that it ends.
    """

    op = "report_gateway"
    repeatable = True

    name: str
    report: Row


@dataclass(frozen=True, slots=True)
class Stop(MetastoreOperation[int]):
    """Stops the metastore process and returns its process id."""

    op = "stop"
    answers = "pid"
    repeatable = True
