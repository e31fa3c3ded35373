"""`write_mode="history"`: a table that keeps every version of a row (a slowly changing dimension of
type 2).

A version is valid from `valid_from` until before `valid_to`, which is NULL for the one that
`is_current`. The rows of a load are observations: at this time the row of this key was like this,
or was gone. Those and the versions that are there are put into one order by time, from which the
versions follow anew; so a late row goes between the versions that it belongs to, and one that is
repeated changes nothing. One query finds what differs, one MERGE writes it.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of History.
import datetime
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa

from acid_platform.base.clock import wall_ms
from acid_platform.engine.choice import Choice
from acid_platform.engine.interface import Result
from acid_platform.engine.merge_clauses import MergeAction, MergeClause
from acid_platform.errors import InvalidDefinition
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column, parse_columns
from acid_platform.orchestration.body_rows import BodyRows, LocalRows, SparkRows
from acid_platform.orchestration.checks import Expectation
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.local_rows import local_table
from acid_platform.values.row_streams import table_or_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
DECLARED = f"{FROM} timestamp, {TO} timestamp, {CURRENT} boolean"
"""The columns that a table of versions has beside its own."""
_OWN = frozenset((FROM, TO, CURRENT))
_AT, _GONE, _DROPPED = "__at", "__gone", "__dropped"


@dataclass(frozen=True, slots=True)
class History(dg.Resolvable):
    """What the returned rows say of the versions of a row.

    `changed_at` is their column with the time (UTC) since which a row is as it is; without one it
    is the time of the run, which is after that of every version in the table. `deleted` is their
    boolean column that says that the key has no row any more; of those rows, key and time count.
    With `full` the rows are all that there are: a key that none has is deleted, at the time of the
    run. `compare` are the columns whose change makes a version, by default all but the key.

    `deleted`, and `changed_at` unless the table declares it, are not stored.
    """

    changed_at: str | None = None
    deleted: str | None = None
    full: bool = False
    compare: Sequence[str] = ()

    def more_columns(self, columns: Iterable[Column]) -> tuple[Column, ...]:
        """The columns that the rows may have and the table lacks."""
        there = {column.name for column in columns}
        given = ((self.changed_at, "timestamp"), (self.deleted, "boolean"))
        more = [f"{quoted(name.lower())} {kind}" for name, kind in given if name]
        every = parse_columns(", ".join(more)) if more else ()
        return tuple(column for column in every if column.name not in there)

    def require(self, columns: Sequence[Column], owner: str) -> None:
        """Raises InvalidDefinition for names that contradict the columns of the table."""
        names = {column.name for column in columns}
        if taken := sorted(names & _OWN):
            raise InvalidDefinition(
                f"{owner}: write_mode history adds {FROM}, {TO} and {CURRENT}; leave"
                f" {taken[0]} out, or call your column otherwise"
            )
        if isinstance(self.compare, str):
            raise InvalidDefinition(f"{owner}: compare must be a list: [{self.compare!r}]")
        if unknown := sorted({name.lower() for name in self.compare} - names):
            raise InvalidDefinition(
                f"{owner}: compare names the column {unknown[0]!r}; the columns are"
                f" {', '.join(sorted(names))}"
            )


def one_current_row(key: Sequence[str]) -> Expectation:
    """The check that no key has two current rows."""
    names = ", ".join(quoted(name.lower()) for name in key)
    query = f"SELECT {names} FROM {{batch}} WHERE {CURRENT} GROUP BY {names} HAVING count(*) > 1"
    about = "No key has two current rows."
    return Expectation(
        "one_current_row", "UnexpectedRowsExpectation", {"unexpected_rows_query": query}, about
    )


def write_versions(
    warehouse: Warehouse,
    txn: Transaction,
    table: TransactionTable,
    rows: BodyRows,
    key: Sequence[str],
    history: History,
) -> None:
    """Writes the versions that follow from the rows, whose keys and times are given and unique.

    Raises NeedsSpark, WrongType, WriteConflict.
    """
    txn.looked_for.condition(table.record, None)  # a version that another run brings conflicts
    at = _time_of_run(txn, table.name)

    def work(choice: Choice) -> BodyRows:
        stored = txn.sql(f"SELECT * FROM {_quoted(table.name)}", engine=choice.engine.name)
        assert isinstance(stored, Result)
        if choice.engine.name == "local":
            return _local_difference(table, stored, rows, key, history, at)
        from acid_platform.engine.spark.input_rows import as_frame

        loaded = (
            rows.rows
            if isinstance(rows, SparkRows)
            else as_frame(warehouse.spark, rows.rows, rows.columns, rows.table)
        )
        sql = _Versions(table, key, history, rows.names, at, quoted)
        return _spark_difference(stored.to_spark(), loaded, sql, table)

    if isinstance(rows, SparkRows):
        with warehouse.using("spark"):
            difference = warehouse.engines.run(work, warehouse.metastore.in_force)
    else:
        difference = warehouse.engines.run(work, warehouse.metastore.in_force, rows.rows)
    fixed = {*key, FROM}
    values = {column.name: f"s.{quoted(column.name)}" for column in table.all_columns}
    updated = {name: value for name, value in values.items() if name not in fixed}
    table.merge(
        difference.rows,
        " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in (*key, FROM)),
        clauses=[
            MergeClause(MergeAction.DELETE, condition=f"s.{_DROPPED}"),
            MergeClause(MergeAction.UPDATE, updated),
            MergeClause(MergeAction.INSERT, values),
        ],
    )


def _quoted(name: str) -> str:
    return ".".join(quoted(part) for part in name.split("."))


def _time_of_run(txn: Transaction, table: str) -> datetime.datetime:
    """Now in UTC, but after each version in the table: clocks are set back."""
    now = datetime.datetime.fromtimestamp(wall_ms() / 1000, datetime.UTC).replace(tzinfo=None)
    found = txn.sql(f"SELECT max({FROM}) AS last FROM {_quoted(table)}")
    assert isinstance(found, Result)
    [(last,)] = found.collect()
    return now if last is None else max(now, last + datetime.timedelta(microseconds=1))


def _local_difference(
    table: TransactionTable,
    stored: Result,
    rows: BodyRows,
    key: Sequence[str],
    history: History,
    at: datetime.datetime,
) -> LocalRows:
    from acid_platform.engine.local.computation import compute, in_declared_type
    from acid_platform.engine.local.translation.duckdb_sql import identifier

    assert isinstance(rows, LocalRows)
    columns = table.all_columns
    there = table_or_stream(stored.schema, stored.batches(), stored.batches)
    sql = _Versions(table, key, history, rows.names, at, identifier).difference("t", "s")
    found = compute(sql, {"t": local_table(there, columns, table.name), "s": rows.held}, many=True)
    for number, column in enumerate(columns):
        values = in_declared_type(found.column(column.name), column)
        found = found.set_column(number, pa.field(column.name, arrow_type(column.type)), values)
    return LocalRows(found, (*columns, *parse_columns(f"{_DROPPED} boolean")), table.name)


def _spark_difference(
    stored: "DataFrame", loaded: "DataFrame", versions: "_Versions", table: TransactionTable
) -> SparkRows:
    names = [f"acid_history_{side}_{uuid.uuid4().hex}" for side in "ts"]
    spark = stored.sparkSession
    try:
        for name, frame in zip(names, (stored, loaded), strict=True):
            frame.createOrReplaceTempView(name)
        frame = spark.sql(versions.difference(*names))
        return SparkRows(frame, tuple(table.all_columns)).computed()
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


@dataclass(frozen=True, slots=True)
class _Versions:
    """SQL, as DuckDB and Spark both read it, of the versions that the table has otherwise."""

    table: TransactionTable
    key: Sequence[str]
    history: History
    loaded: Sequence[str]
    """The columns of the loaded rows."""
    at: datetime.datetime
    quote: Callable[[str], str]

    def difference(self, stored: str, loaded: str) -> str:
        """A SELECT of the table's columns and whether the version has to go; the names are those of
        the two relations."""
        own = [column.name for column in self.table.all_columns if column.name not in _OWN]
        compared = [name.lower() for name in self.history.compare]
        compared = compared or [name for name in own if name not in self.key]
        key, every = (self._list(names) for names in (self.key, own))
        now = f"TIMESTAMP'{self.at:%Y-%m-%d %H:%M:%S.%f}'"
        at, gone = (name and self.quote(name.lower()) for name in self._columns)
        of_load = ", ".join(
            self.quote(name) if name in self.loaded else f"NULL AS {self.quote(name)}"
            for name in own
        )
        missing = touched = ""
        if self.history.full:
            missing = (
                f" UNION ALL SELECT {every}, {now}, true, 3 FROM {stored} AS t WHERE {CURRENT} AND"
                f" NOT EXISTS (SELECT 1 FROM {loaded} AS s WHERE {self._same('t', 's', self.key)})"
            )
        else:
            touched = (
                f" WHERE EXISTS (SELECT 1 FROM {loaded} AS s"
                f" WHERE {self._same('t', 's', self.key)})"
            )
        before = ", ".join(
            f"lag({self.quote(name)}) OVER in_order AS __was_{number}"
            for number, name in enumerate(compared)
        )
        changed = " OR ".join(
            f"{self.quote(name)} IS DISTINCT FROM __was_{number}"
            for number, name in enumerate(compared)
        )
        differs = " OR ".join(
            f"v.{self.quote(name)} IS DISTINCT FROM t.{self.quote(name)}" for name in compared
        )
        order = f"(PARTITION BY {key} ORDER BY {_AT})"
        columns = [*own, FROM, TO, CURRENT]
        same = self._same("v", "t", (*self.key, FROM))
        return f"""
WITH touched AS (SELECT * FROM {stored} AS t{touched}),
events AS (
  SELECT {every}, {FROM} AS {_AT}, false AS {_GONE}, 1 AS __weight FROM touched
  UNION ALL SELECT {every}, {TO}, true, 0 FROM touched WHERE {TO} IS NOT NULL
  UNION ALL SELECT {of_load}, {f"CAST({at} AS TIMESTAMP)" if at else now},
    {f"coalesce({gone}, false)" if gone else "false"}, 2 FROM {loaded}{missing}),
ranked AS (
  SELECT *, row_number() OVER (PARTITION BY {key}, {_AT} ORDER BY __weight DESC) AS __n
  FROM events),
before AS (
  SELECT *, lag({_GONE}) OVER in_order AS __was_gone{", " if before else ""}{before}
  FROM ranked WHERE __n = 1 WINDOW in_order AS {order}),
turns AS (
  SELECT * FROM before WHERE CASE WHEN __was_gone IS NULL THEN NOT {_GONE}
    WHEN {_GONE} THEN NOT __was_gone ELSE __was_gone OR {changed or "false"} END),
versions AS (
  SELECT {every}, {_GONE}, {_AT} AS {FROM}, lead({_AT}) OVER {order} AS {TO} FROM turns),
wanted AS (SELECT {every}, {FROM}, {TO}, {TO} IS NULL AS {CURRENT} FROM versions WHERE NOT {_GONE})
SELECT {self._list(columns, "v")}, false AS {_DROPPED} FROM wanted AS v LEFT JOIN touched AS t
  ON {same} WHERE t.{FROM} IS NULL OR v.{TO} IS DISTINCT FROM t.{TO} OR {differs or "false"}
UNION ALL SELECT {self._list(columns, "t")}, true FROM touched AS t
  WHERE NOT EXISTS (SELECT 1 FROM wanted AS v WHERE {same})"""

    @property
    def _columns(self) -> tuple[str | None, str | None]:
        return self.history.changed_at, self.history.deleted

    def _list(self, names: Iterable[str], of: str = "") -> str:
        return ", ".join(f"{of}.{self.quote(name)}" if of else self.quote(name) for name in names)

    def _same(self, left: str, right: str, names: Iterable[str]) -> str:
        return " AND ".join(
            f"{left}.{self.quote(name)} = {right}.{self.quote(name)}" for name in names
        )
