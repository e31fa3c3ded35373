"""The rows that a body returned, in Spark or in this process, and which of them are set aside.

Rows that fail an expectation with `quarantine=True` go into a table beside the asset's, in the same
transaction. Which rows fail is a condition in Spark's SQL, that Spark or Arrow evaluates before any
is written: an upsert with a row that fails leaves the row that is there. Great Expectations still
judges what would be committed.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg
import numpy as np
import pyarrow as pa

from acid_platform.base.clock import wall_ms
from acid_platform.engine.choice import Choice
from acid_platform.engine.interface import Result
from acid_platform.errors import InvalidDefinition, NeedsSpark, UnsupportedStatement, WrongType
from acid_platform.handles.transaction import Transaction
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column, parse_columns
from acid_platform.orchestration.check_results import Finding, data_docs
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.partition_keys import literal
from acid_platform.orchestration.sql_checks import IN_SQL, ROW_LEVEL, TEXTS, failing_rows
from acid_platform.values.arrow_types import arrow_type, filled, from_numpy, scalar_of
from acid_platform.values.local_rows import local_table
from acid_platform.values.partition_texts import partition_value
from acid_platform.values.row_streams import RowStream, table_or_stream
from acid_platform.values.rows import Rows, is_spark_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def body_rows(
    warehouse: Warehouse, rows: Rows, columns: Sequence[Column], table: str, key: Sequence[str] = ()
) -> BodyRows:
    """The rows of a body for a table with these columns, partition columns included.

    A Spark frame stays one, and rows whose key is nested become one; all others stay in this
    process, and many of a stream or a result are a stream until `computed` is asked for. Raises
    UnknownColumn, WrongType, NeedsSpark.
    """
    if isinstance(rows, Result) and rows.engine == "local":
        rows = table_or_stream(rows.schema, rows.batches(), rows.batches)
    nested = {column.name for column in columns if column.type.nested}
    from_spark = is_spark_frame(rows) or (isinstance(rows, Result) and rows.engine == "spark")
    if from_spark or nested & set(key):
        from acid_platform.engine.spark.input_rows import as_frame

        return SparkRows(as_frame(warehouse.spark, rows, columns, table), tuple(columns))
    local = rows if isinstance(rows, RowStream) else local_table(rows, columns, table)
    return LocalRows(local, tuple(columns), table)


@dataclass(frozen=True, slots=True)
class SparkRows:
    """Rows that Spark computes."""

    rows: DataFrame
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [name.lower() for name in self.rows.columns]

    def with_constants(self, values: Mapping[str, str]) -> SparkRows:
        """With more columns of the table, which have one value, each as a text."""
        kinds = {column.name: column.type for column in self.columns}
        added = [
            f"CAST({literal(value, True)} AS {kinds[name]}) AS `{name}`"
            for name, value in values.items()
        ]
        return SparkRows(self.rows.selectExpr("*", *added), self.columns)

    def without(self, name: str) -> SparkRows:
        return SparkRows(self.rows.drop(name), self.columns)

    def computed(self) -> SparkRows:
        """These rows, computed once however often they are looked at."""
        return SparkRows(self.rows.localCheckpoint(True), self.columns)

    def with_null(self, key: Sequence[str]) -> dict[str, Any] | None:
        """A row with NULL in one of the columns; None if there is none."""
        row = self.rows.filter(" OR ".join(f"`{name}` IS NULL" for name in key)).head()
        return None if row is None else row.asDict()

    def twice(self, key: Sequence[str]) -> dict[str, Any] | None:
        """Values of the columns that several rows have; None if there are none."""
        counted = self.rows.groupBy(*key).agg({"*": "count"}).filter("`count(1)` > 1")
        row = counted.select(*key).head()
        return None if row is None else row.asDict()

    def distinct(self, key: Sequence[str]) -> DataFrame:
        """Each combination of values of the columns once."""
        return self.rows.select(*key).distinct()


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows in this process; its methods are those of SparkRows.

    A table has the table's types; whoever looks at the rows of a stream needs `computed` before. As
    in Spark, NaN equals NaN.
    """

    rows: pa.Table | RowStream
    columns: tuple[Column, ...]
    table: str

    @property
    def held(self) -> pa.Table:
        assert isinstance(self.rows, pa.Table), "a stream has to be computed before"
        return self.rows

    @property
    def names(self) -> list[str]:
        return [name.lower() for name in self.rows.schema.names]

    def with_constants(self, values: Mapping[str, str]) -> LocalRows:
        """Raises WrongType."""
        constants: dict[str, pa.Scalar] = {}
        for name, text in values.items():
            kind = next(column.type for column in self.columns if column.name == name)
            value = partition_value(text, kind)
            if value is None:
                raise WrongType(
                    f"{text!r} is no value of the column {name!r} {kind} of {self.table}"
                )
            constants[name] = scalar_of(value, arrow_type(kind))
        rows = self.rows
        if isinstance(rows, RowStream):
            return replace(self, rows=rows.with_constants(constants))
        for name, constant in constants.items():
            rows = rows.append_column(name, pa.repeat(constant, rows.num_rows))
        return replace(self, rows=rows)

    def without(self, name: str) -> LocalRows:
        return replace(self, rows=self.held.drop_columns([name] if name in self.names else []))

    def computed(self) -> LocalRows:
        """These rows as a table, which lies in a file if it is large."""
        return replace(self, rows=local_table(self.rows, self.columns, self.table))

    def with_null(self, key: Sequence[str]) -> dict[str, Any] | None:
        for name in key:
            if self.held.column(name).null_count:
                return self._row(self.held.column(name).is_null().index(True).as_py(), self.names)
        return None

    def twice(self, key: Sequence[str]) -> dict[str, Any] | None:
        again = self._again(key)
        return self._row(int(again.argmax()), key) if again.any() else None

    def distinct(self, key: Sequence[str]) -> pa.Table:
        return self.held.select(list(key)).filter(from_numpy(~self._again(key)))

    def _again(self, key: Sequence[str]) -> np.ndarray:
        """Mask (n,) of the rows that have the values of an earlier row."""
        again: np.ndarray = self.held.select(list(key)).to_pandas().duplicated().to_numpy()
        return again

    def _row(self, number: int, names: Sequence[str]) -> dict[str, Any]:
        row = self.held.select(list(names)).slice(number, 1)
        return dict(row.to_pylist(maps_as_pydicts="strict")[0])


BodyRows: TypeAlias = SparkRows | LocalRows
"""Rows that can be looked at several times; `rows` is what the verbs of a table take."""


BY, RUN, AT = "quarantined_by", "quarantined_run", "quarantined_at"
"""Columns of the table of rejected rows: the names of the checks, the id of the run, the time."""
GIVEN = "quarantined_given"
"""Another one: the values that `coerce=True` has changed, as they were."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """How many rows a run rejected."""

    table: str = ""
    """Where they are."""
    rows: int = 0
    by_check: Mapping[str, int] = field(default_factory=dict)

    def with_warnings(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings, in which a check that rejected rows warns of them."""
        if not self.rows:
            return list(findings)
        warned = [
            replace(finding, passed=False, blocking=False, details=self._details(finding))
            if finding.passed and self.by_check.get(finding.name)
            else finding
            for finding in findings
        ]
        page = data_docs(warned)
        return [replace(finding, docs=page) if finding.docs else finding for finding in warned]

    def _details(self, finding: Finding) -> dict[str, Any]:
        count = self.by_check[finding.name]
        details = {**finding.details, "unexpected_count": count, "quarantine": self.table}
        details.pop("unexpected_percent", None)  # it is that of the rows that were stored
        return details

    @property
    def metadata(self) -> dict[str, dg.MetadataValue]:
        if not self.rows:
            return {}
        return {
            "quarantine": dg.MetadataValue.text(self.table),
            "quarantined rows": dg.MetadataValue.int(self.rows),
        }


def set_aside(
    warehouse: Warehouse,
    txn: Transaction,
    table: str,
    rows: BodyRows,
    expectations: Sequence[Expectation],
    run_id: str,
) -> tuple[BodyRows, Quarantined]:
    """Writes the rows that fail into the table of rejected rows, which is made for the first of
    them; returns the others. A column GIVEN of the rows is for that table alone.

    Raises NeedsSpark, and WrongType if that table has other types.
    """
    _refuse_names([column for column in rows.columns if column.name != GIVEN], table)
    names = rows.names
    failing = {each.name: failing_rows(each, names) for each in expectations}
    accepted, rejected, counts = _split(warehouse, rows.computed(), failing)
    accepted = accepted.without(GIVEN)
    if not any(counts.values()):
        return accepted, Quarantined()
    columns = (*rows.columns, *parse_columns(f"{BY} string, {RUN} string, {AT} timestamp"))
    name = f"{table}_quarantine"
    warehouse.create_table(name, _declared(columns), if_not_exists=True)
    quarantine = txn.table(name)
    there = {column.name for column in quarantine.columns}
    if new := [column for column in columns if column.name not in there]:
        quarantine.add_columns(_declared(new))
    at = datetime.datetime.fromtimestamp(wall_ms() / 1000, datetime.UTC)
    stamps = {RUN: run_id, AT: at.strftime("%Y-%m-%d %H:%M:%S.%f")}
    stamped = replace(rejected, columns=columns).with_constants(stamps)
    return accepted, Quarantined(name, quarantine.insert(stamped.rows), counts)


def _declared(columns: Sequence[Column]) -> str:
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)


# --- which rows fail ----------------------------------------------------------------------------


def require_row_level(
    expectations: Sequence[Expectation], columns: Sequence[Column], owner: str
) -> None:
    """Raises InvalidDefinition for an expectation with `quarantine` that no row fails by itself, or
    whose arguments are about several rows."""
    chosen = [each for each in expectations if each.quarantine]
    for each in chosen:
        if each.kind not in ROW_LEVEL:
            raise InvalidDefinition(
                f"{owner}: the check {each.name}: {each.kind} says not which row fails; with"
                f" quarantine=True there are {', '.join(sorted(ROW_LEVEL))}"
            )
        known = {"column", *IN_SQL[each.kind].arguments, *TEXTS} - {"mostly"}
        if other := [name for name in each.arguments if name not in known]:
            raise InvalidDefinition(
                f"{owner}: the check {each.name}: with quarantine=True each row counts, so leave"
                f" {other[0]} out"
            )
        try:
            failing_rows(each, [column.lower() for column in each.columns])
        except TypeError as error:
            raise InvalidDefinition(f"{owner}: the check {each.name}: {error}") from error
    if chosen:
        _refuse_names(columns, owner)


def _refuse_names(columns: Sequence[Column], owner: str) -> None:
    if taken := {column.name for column in columns} & {BY, RUN, AT, GIVEN}:
        raise InvalidDefinition(
            f"{owner}: the column {min(taken)} has the name of a column of the table of rejected"
            " rows; rename it"
        )


Split = tuple[BodyRows, BodyRows, dict[str, int]]
"""The rows that hold, those that fail with the names of their checks, and their number by check."""


def _split(warehouse: Warehouse, rows: BodyRows, failing: Mapping[str, str]) -> Split:
    if isinstance(rows, SparkRows):
        return _split_by_spark(rows, failing)

    def work(choice: Choice) -> Split:
        if choice.engine.name == "local":
            return _split_by_arrow(rows, failing)
        from acid_platform.engine.spark.input_rows import as_frame

        frame = as_frame(warehouse.spark, rows.rows, rows.columns, rows.table)
        return _split_by_spark(SparkRows(frame, rows.columns), failing)

    return warehouse.engines.run(work, warehouse.metastore.in_force, rows.rows)


def _split_by_arrow(rows: LocalRows, failing: Mapping[str, str]) -> Split:
    """Raises NeedsSpark for a condition that only Spark evaluates."""
    from acid_platform.predicates.arrow_predicates import arrow_predicate  # loads sqlglot

    count = rows.held.num_rows
    values = {
        name: column.combine_chunks()
        for name, column in zip(rows.names, rows.held.columns, strict=True)
    }
    masks: dict[str, np.ndarray] = {}
    for check, condition in failing.items():
        try:
            mask = arrow_predicate(condition, rows.columns, rows.table).mask(values)
        except UnsupportedStatement as error:
            raise NeedsSpark(f"the condition of the check {check}: {error}") from error
        masks[check] = (
            np.full(count, bool(mask.as_py()))
            if isinstance(mask, pa.Scalar)
            else filled(mask, False)
        )
    fails = np.logical_or.reduce([*masks.values()])
    checks = [
        ", ".join(check for check, mask in masks.items() if mask[row])
        for row in np.flatnonzero(fails)
    ]
    rejected = rows.held.filter(from_numpy(fails)).append_column(BY, pa.array(checks, pa.string()))
    return (
        replace(rows, rows=rows.held.filter(from_numpy(~fails))),
        replace(rows, rows=rejected),
        {check: int(mask.sum()) for check, mask in masks.items()},
    )


def _split_by_spark(rows: SparkRows, failing: Mapping[str, str]) -> Split:
    names = [
        f"CASE WHEN {condition} THEN {sql_string(check)} END"
        for check, condition in failing.items()
    ]
    named = rows.rows.selectExpr("*", f"concat_ws(', ', {', '.join(names)}) AS {BY}")
    counts = rows.rows.selectExpr(*(f"count_if({test})" for test in failing.values())).head()
    return (
        replace(rows, rows=named.filter(f"{BY} = ''").drop(BY)),
        replace(rows, rows=named.filter(f"{BY} <> ''")),
        dict(zip(failing, counts or (), strict=True)),
    )
