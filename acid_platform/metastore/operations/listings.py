"""Listings for people: operations, columns and rows; operations on the process or its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acid_platform.metastore.messages import Answer, MetastoreOperation, Row, Unrecorded, Values

if TYPE_CHECKING:
    import pandas as pd

    from acid_platform.metastore.operations.tables import DroppedTable


def names(text: str) -> tuple[str, ...]:
    """The words of the text."""
    return tuple(text.split())


TRANSACTIONS = names(
    "txnid state startedtime lastheartbeattime user host type agent run_id description reason "
    "tables"
)

LOCKS = names(
    "lockid database table partition lock_state blocked_by lock_type transaction_id "
    "last_heartbeat acquired_at user hostname agent_info"
)

COMPACTIONS = names(
    "compactionid dbname tabname partname type state workerhost workerid enqueuetime starttime "
    "duration hadoopjobid errormessage initiatorhost initiatorid poolname txnid nexttxnid "
    "committime highestwriteid"
)
"""The 4.x columns (C61)."""

HISTORY = names(
    "write_id partition operation directory rows bytes files txn user run_id time engine reason "
    "message"
)
"""The history of one table: a row for each committed directory."""


class HistoryEntry(dict[str, Any]):
    """A row of the history, whose fields are also attributes: `entry.operation`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the history has no {name}; it has {', '.join(self)}") from None


def history_entries(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the history. An update that deleted no row, such as an upsert of new keys, is
    called an insert."""
    entries = [HistoryEntry(row) for row in rows]
    deletes = {
        (entry.partition, entry.directory.removeprefix("delete_"))
        for entry in entries
        if entry.directory.startswith("delete_")
    }
    for entry in entries:
        written = (entry.partition, entry.directory)
        if entry.operation == "update" and entry.directory.startswith("delta_"):
            entry["operation"] = "update" if written in deletes else "insert"
    return list(entries)


BRANCHES = ("branch", "created", "expires", "user", "commits", "tables", "refused")
"""Where nothing is `refused`, the branch can be merged (P80)."""

DROPPED = ("table", "id", "dropped", "until", "refused")
"""Dropped tables whose files are still there; one of which nothing is `refused` can come back."""


def dropped_rows(tables: Iterable[DroppedTable]) -> list[dict[str, Any]]:
    """A row for each table, as `DROPPED` names the columns."""
    rows = (
        (each.table.name, each.table.table_id, each.dropped, each.until, each.refused)
        for each in tables
    )
    return [dict(zip(DROPPED, row, strict=True)) for row in rows]


TAGS = ("table", "tag", "write_id", "snapshot", "created", "expires", "user")

CURSORS = ("table", "consumer", "write_id", "snapshot", "txn", "behind", "refused")
"""How far the consumers of a table's changes have come (P39)."""

SINKS = ("table", "sink", "query", "batch", "rows", "txn", "time")
"""How far streaming queries have written tables (P42)."""

RETAINED = ("table", "retention", "since", "write_id", "directories", "bytes", "tags")

TIMES = frozenset(
    names(
        "time startedtime lastheartbeattime last_heartbeat acquired_at enqueuetime starttime "
        "committime snapshot expires since dropped until"
    )
)
"""Columns in milliseconds since 1970, as in Hive; 0 or NONE: not yet."""

DURATIONS = frozenset({"duration", "retention"})
"""Columns in milliseconds."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of a SHOW, DESCRIBE or EXPLAIN as the metastore gives them.

    Times and durations are in milliseconds.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    note: str = ""
    """What a person may need to know besides, such as where else to look."""

    @classmethod
    def lines(cls, column: str, values: Iterable[str], note: str = "") -> Shown:
        """One column of text."""
        return cls((column,), tuple({column: value} for value in values), note)

    def dicts(self) -> list[dict[str, Any]]:
        """The rows with these columns; None for a time that has not come yet."""
        numbers = TIMES | DURATIONS
        rows = [{name: row[name] for name in self.columns} for row in self.rows]
        for row in rows:
            for name in numbers & row.keys():
                if not isinstance(row[name], int) or (name in TIMES and not row[name]):
                    row[name] = None
        return rows

    def to_pandas(self) -> pd.DataFrame:
        """Times in UTC and durations as such."""
        import pandas as pd

        rows = self.dicts()
        frame = pd.DataFrame(rows, columns=list(self.columns))
        for name in TIMES & {*self.columns}:
            milliseconds = pd.Series([row[name] for row in rows], dtype="Int64")
            frame[name] = pd.to_datetime(milliseconds, unit="ms", utc=True)
        for name in DURATIONS & {*self.columns}:
            milliseconds = pd.Series([row[name] for row in rows], dtype="Int64")
            frame[name] = pd.to_timedelta(milliseconds, unit="ms")
        return frame


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


class ShowTransactions(Unrecorded[list[Row]], op="transactions", answers="rows"):
    """SHOW TRANSACTIONS: open transactions, and aborted ones with data left."""


class ShowLocks(Unrecorded[list[Row]], op="locks", answers="rows"):
    """SHOW LOCKS: a row for each lock of a request."""


class ShowCompactions(Unrecorded[list[Row]], op="compactions", answers="rows"):
    """SHOW COMPACTIONS: the queue and the history with the 4.x columns (C61)."""


class ShowCompaction(Unrecorded[ShownCompaction], op="compaction"):
    """A row of SHOW COMPACTIONS, and whether it has left `initiated` and `working` (C59)."""

    id: int


class GetOutcome(
    MetastoreOperation[Answer | None], op="outcome", answers="answer", repeatable=True
):
    """The answer that a request got (P3); None if it waits for a lock, or was never seen."""

    request_id: str


class RunQuery(MetastoreOperation[QueryResult], op="query", repeatable=True):
    """One SELECT over the metastore's own tables."""

    sql: str


class GetHistory(MetastoreOperation[list[Row]], op="history", answers="rows", repeatable=True):
    """Committed directories of a table, oldest first; on a branch those that it shows (P80)."""

    name: str
    branch: str = ""


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
