"""SHOW TRANSACTIONS, LOCKS and COMPACTIONS: what the metastore does now, with Hive's filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import InvalidExpression
from acid_platform.metastore import show_columns
from acid_platform.metastore.show_columns import Shown
from acid_platform.sql.commands import NAME, ONE, SPEC, TABLE, CommandRun, Commands
from acid_platform.sql.partition_specs import PartitionSpec, fits

LISTINGS = Commands()
Row = Mapping[str, Any]


@LISTINGS("SHOW TRANSACTIONS", r"show transactions")
def show_transactions(run: CommandRun) -> Shown:
    return Shown(show_columns.TRANSACTIONS, tuple(run.metastore.transactions()))


@LISTINGS("SHOW LOCKS", rf"show locks (?:database|schema) (?P<database>{ONE})(?: extended)?")
@LISTINGS("SHOW LOCKS", rf"show locks(?: (?!extended$){TABLE}(?: {SPEC})?)?(?: extended)?")
def show_locks(
    run: CommandRun,
    table: str = "",
    spec: PartitionSpec | None = None,
    database: str = "",
) -> Shown:
    """The locks of everybody, or of a table, a partition or a database; EXTENDED adds nothing."""
    rows = run.metastore.locks()
    if database:
        run.catalog.require_database(database)
        rows = [row for row in rows if row["database"] == database]
    if table:
        is_of = _of_table(run, table, spec)
        rows = [row for row in rows if is_of(row["database"], row["table"], row["partition"])]
    return Shown(show_columns.LOCKS, tuple(rows))


_ORDER = r"(?: order by (?P<order>.+?))?(?: limit (?P<limit>\d+))?"
_FILTERS = (
    r"(?: pool '(?P<pool>[^']*)')?(?: type '(?P<type_name>[^']*)')?(?: status '(?P<status>[^']*)')?"
    + _ORDER
)


@LISTINGS("SHOW COMPACTIONS", r"show compactions compact_?id(?: ?= ?| )(?P<version>\d+)")
@LISTINGS(
    "SHOW COMPACTIONS",
    rf"show compactions (?:database|schema) (?P<database>{ONE}){_FILTERS}",
)
@LISTINGS(
    "SHOW COMPACTIONS",
    rf"show compactions(?: (?!(?:pool|type|status|order|limit) )(?:table )?{TABLE}(?: {SPEC})?)?"
    rf"{_FILTERS}",
)
def show_compactions(
    run: CommandRun,
    table: str = "",
    spec: PartitionSpec | None = None,
    database: str = "",
    version: int | None = None,
    pool: str | None = None,
    type_name: str | None = None,
    status: str | None = None,
    order: str = "",
    limit: str = "",
) -> Shown:
    """The queue and the history of compactions that fulfil all filters; `version` is an id.

    Raises InvalidExpression for a type, status or column that does not exist.
    """
    filters: dict[str, object] = {}
    if version is not None:
        filters["compactionid"] = version
    if database:
        filters["dbname"] = run.catalog.require_database(database)
    if pool is not None:
        filters["poolname"] = pool
    if type_name is not None:
        filters["type"] = _one_of("TYPE", type_name, [kind.name for kind in CompactionKind])
    if status is not None:
        filters["state"] = _one_of("STATUS", status, [state.text for state in CompactionState])
    rows = [
        row
        for row in run.metastore.compactions()
        if all(row[name] == value for name, value in filters.items())
    ]
    if table:
        is_of = _of_table(run, table, spec)
        rows = [row for row in rows if is_of(row["dbname"], row["tabname"], row["partname"])]
    for column, descending in reversed(_ordering(order)):
        rows.sort(key=_in_order_of(column), reverse=descending)
    return Shown(show_columns.COMPACTIONS, tuple(rows[: int(limit)] if limit else rows))


def _of_table(
    run: CommandRun, table: str, spec: PartitionSpec | None
) -> Callable[[str, str | None, str | None], bool]:
    """Tells whether a row is about the table, or about a partition of it that fits.

    Raises NoSuchTable, and NoSuchPartition for a column that does not partition the table.
    """
    record = run.catalog.record(table)
    names = record.name.split(".", 1)
    in_spec = None if spec is None else fits(record, spec)

    def is_of(database: str, short: str | None, partition: str | None) -> bool:
        if [database, short] != names:
            return False
        return in_spec is None or ("=" in (partition or "") and in_spec(partition or ""))

    return is_of


def _one_of(what: str, text: str, choices: list[str]) -> str:
    for choice in choices:
        if choice.lower() == text.lower():
            return choice
    raise InvalidExpression(
        f"SHOW COMPACTIONS {what} {text!r} does not exist; choose one of {', '.join(choices)}"
    )


_QUEUE_COLUMNS = {
    "cc_id": "compactionid",
    "cc_database": "dbname",
    "cc_table": "tabname",
    "cc_partition": "partname",
    "cc_type": "type",
    "cc_state": "state",
    "cc_worker_id": "workerid",
    "cc_enqueue_time": "enqueuetime",
    "cc_start": "starttime",
    "cc_initiator_id": "initiatorid",
    "cc_pool_name": "poolname",
    "cc_txn_id": "txnid",
    "cc_next_txn_id": "nexttxnid",
    "cc_commit_time": "committime",
    "cc_highest_write_id": "highestwriteid",
}
"""Hive's ORDER BY takes the columns of its metastore's table; those of the listing are as good."""
_ORDERED_BY = re.compile(rf"['\"]?({NAME})['\"]?(?: (asc|desc))?", re.IGNORECASE)


def _ordering(text: str) -> list[tuple[str, bool]]:
    """The columns of ORDER BY, and whether each descends. Raises InvalidExpression."""
    ordering = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _ORDERED_BY.fullmatch(part)
        name = match[1].strip("`").lower() if match else part
        column = _QUEUE_COLUMNS.get(name, name)
        if match is None or column not in show_columns.COMPACTIONS:
            raise InvalidExpression(
                f"SHOW COMPACTIONS ORDER BY {part}: there is no such column; columns are"
                f" {', '.join(_QUEUE_COLUMNS)}"
            )
        ordering.append((column, (match[2] or "").lower() == "desc"))
    return ordering


def _in_order_of(column: str) -> Callable[[Row], tuple[bool, float, str]]:
    """Numbers in their order, then texts: an empty field is a text."""

    def key(row: Row) -> tuple[bool, float, str]:
        value = row[column]
        return (False, value, "") if isinstance(value, int | float) else (True, 0.0, str(value))

    return key
