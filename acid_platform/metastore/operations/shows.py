"""Listings for people, and operations on the process or its file rather than the state."""

from __future__ import annotations

from dataclasses import dataclass

from acid_platform.metastore.operations.base import (
    Answer,
    MetastoreOperation,
    Row,
    Unrecorded,
    Values,
)

# --- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownCompaction:
    row: Row
    ended: bool


@dataclass(frozen=True, slots=True)
class QueryResult:
    """`as_of` is the moment of the state that was asked, in milliseconds UTC, and `position` the
    last batch of the log in it."""

    columns: list[str]
    rows: Values
    as_of: int
    position: int


# --- listings -----------------------------------------------------------------------------------


class ShowTransactions(Unrecorded[list[Row]], op="transactions", answers="rows"):
    """SHOW TRANSACTIONS: open transactions, and aborted ones with data left."""


class ShowLocks(Unrecorded[list[Row]], op="locks", answers="rows"):
    """SHOW LOCKS: a row for each lock of a request."""


class ShowCompactions(Unrecorded[list[Row]], op="compactions", answers="rows"):
    """SHOW COMPACTIONS: the queue and the history with the 4.x columns (C61)."""


class ShowCompaction(Unrecorded[ShownCompaction], op="compaction"):
    """A row of SHOW COMPACTIONS, and whether it has left `initiated` and `working` (C59)."""

    id: int


# --- the file -----------------------------------------------------------------------------------


class GetOutcome(
    MetastoreOperation[Answer | None], op="outcome", answers="answer", repeatable=True
):
    """The answer that a request got (P3); None if it waits for a lock, or was never seen."""

    request_id: str


class RunQuery(MetastoreOperation[QueryResult], op="query", repeatable=True):
    """One SELECT over the metastore's own tables."""

    sql: str


class GetHistory(MetastoreOperation[list[Row]], op="history", answers="rows", repeatable=True):
    """Committed directories of a table, oldest first."""

    name: str


# --- the process --------------------------------------------------------------------------------


class GetStatus(MetastoreOperation[Row], op="status", repeatable=True):
    """Process, epoch and counters of the metastore."""


class ReportGateway(MetastoreOperation[None], op="report_gateway", repeatable=True):
    """What a gateway says of itself; `status` has it until the gateway is silent for a minute.

    `name` is the gateway's among all of this metastore. An empty `report` says that it ends.
    """

    name: str
    report: Row


class Stop(MetastoreOperation[int], op="stop", answers="pid", repeatable=True):
    """Stops the metastore process and returns its process id."""
